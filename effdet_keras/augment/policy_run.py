"""Applies a sub-policy: operations one after the other, each with its probability."""

from __future__ import annotations  # a type of TensorFlow would import it

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.augment import draws
from effdet_keras.augment.augmentation import size_of, to_dtype
from effdet_keras.augment.policy_operations import (
    Settings,
    Step,
    apply_kind,
    inner_kind_of,
    kind_of,
    step_of,
)

_NOTHING = ("AutoContrast", 0.0, 0)  # fills up the shorter sub-policies


def run_sub_policy(example, seed, sub_policies, choice, owner):
    """Applies one of several sub-policies.

    The graph is a loop over its steps with one `switch_case` of all kinds of
    operations: which one runs, how strong and how likely, is looked up.

    Args:
        example: dict of tensors.
        seed: int tensor `[2]`.
        sub_policies: list of lists of `(name, probability, level)`.
        choice: int32 scalar tensor, the number of the sub-policy.
        owner: an augmentation with `long_side`, `min_visibility` and
            `reference_boxes`.

    Returns:
        Dict like `example`.
    """
    image = to_dtype(example["image"], tf.uint8)
    scale = tf.ones([])
    if owner.long_side is not None:
        scale = tf.maximum(*size_of(image)) / owner.long_side
    settings = Settings(scale, owner.min_visibility, owner.reference_boxes)
    kinds, inner_kinds, table = _tables(sub_policies)
    rows = Step(*[tf.constant(column)[choice] for column in table])
    count = len(table.kind[0])
    # One seed for the coins, and one for each step.
    seeds = draws.split(seed, count + 1)
    coins = draws.uniform(seeds[0], [count])
    seeds = tf.stack(seeds[1:])

    def run_step(i, image, boxes):
        step = Step(*[row[i] for row in rows])
        # "Inside" looks at the probability by itself, for each box.
        always = step.kind == (kinds.index("Inside") if "Inside" in kinds else -1)
        happens = always | (coins[i] < step.probability)
        branches = [
            lambda kind=kind: apply_kind(
                kind, inner_kinds, image, boxes, step, seeds[i], settings
            )
            for kind in kinds
        ]
        which = tf.where(happens, step.kind, len(kinds))
        image, boxes = tf.switch_case(which, [*branches, lambda: (image, boxes)])
        return i + 1, _any_size(image), tf.ensure_shape(boxes, [None, 4])

    boxes = tf.ensure_shape(example["boxes"], [None, 4])
    shapes = ([], [None, None, 3], [None, 4])
    _, image, boxes = tf.while_loop(
        lambda i, *_: i < count,
        run_step,
        [0, image, boxes],
        shape_invariants=[tf.TensorShape(shape) for shape in shapes],
        parallel_iterations=1,
    )
    return {**example, "image": image, "boxes": boxes}


def _any_size(image):
    return tf.ensure_shape(image, [None, None, 3])


def _tables(sub_policies):
    """The kinds of a policy; its steps as a `Step` of lists `[sub-policies, steps]`."""
    count = max(len(steps) for steps in sub_policies)
    padded = [[*steps, *[_NOTHING] * (count - len(steps))] for steps in sub_policies]
    names = [name for steps in padded for name, _, _ in steps]
    kinds = sorted({kind_of(name) for name in names})
    inner_kinds = sorted({inner_kind_of(name) for name in names} - {None})
    rows = [[step_of(*step, kinds, inner_kinds) for step in steps] for steps in padded]
    columns = [[[step[i] for step in row] for row in rows] for i in range(5)]
    return kinds, inner_kinds, Step(*columns)
