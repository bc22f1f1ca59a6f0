"""AutoAugment and RandAugment: a learned policy, and a random policy."""

from __future__ import annotations

import dataclasses
from typing import Any

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.augment import random_ops
from effdet_keras.augment.augmentation import (
    Augmentation,
    Example,
    parameter,
    size_of,
    to_dtype,
)
from effdet_keras.errors import check_choice
from effdet_keras.extras.policies.operations import (
    Settings,
    Step,
    apply_kind,
    inner_kind_of,
    kind_of,
    step_of,
)


@dataclasses.dataclass(eq=False)
class _Policy(Augmentation):
    """The common part of both: sub-policies, and how their operations move boxes."""

    _: dataclasses.KW_ONLY
    long_side: float | None = parameter(640.0, "(0, inf)", others=(None,))
    min_visibility: float = parameter(0.1, "[0, 1]")
    reference_boxes: bool = False

    def _one_of(self, sub_policies, example, seed):
        of_choice, of_steps = random_ops.split(seed, 2)
        choice = random_ops.integer(random_ops.uniform(of_choice), len(sub_policies))
        return run_sub_policy(example, of_steps, sub_policies, choice, self)


@dataclasses.dataclass(eq=False)
class AutoAugment(_Policy):
    """Applies a random sub-policy of one of google/automl's learned policies.

    The policies were learned on COCO (Zoph et al., "Learning Data Augmentation
    Strategies for Object Detection", https://arxiv.org/abs/1906.11172). Each image gets
    one of 5 to 20 sub-policies. A sub-policy rotates, shears, shifts or recolors the
    image, or what is inside its boxes. The resulting pixels equal those of the
    reference. Boxes are exact, whereas the reference truncates them to whole pixels.

    Args:
        policy: string, "v0", "v1", "v2" or "v3".
        long_side: float, the long side in pixels of the images for which the policies'
            distances (shifts up to 250 pixels, squares up to 200) are meant. The
            distances are scaled for images of other sizes. None does not scale them,
            like the reference.
        min_visibility: float from 0 to 1; a box is dropped if less than this fraction
            of it stays in the image.
        reference_boxes: bool, whether to move boxes as the reference does: by whole
            pixels, and boxes that leave the image stay as strips at the border.
            `min_visibility` is then not used.

    Raises:
        ValueError: If there is no such policy, or a number is out of range.

    Example:
        >>> import numpy as np
        >>> import effdet_keras as ek
        >>> augment = ek.augment.AutoAugment("v0")
        >>> example = {"image": np.zeros((64, 64, 3), "uint8"),
        ...     "boxes": np.float32([[16, 16, 48, 48]]), "labels": np.int32([5])}
        >>> augmented = augment(example, seed=[0, 1])
        >>> augmented["image"].shape, augmented["image"].dtype.name
        (TensorShape([64, 64, 3]), 'uint8')
    """

    policy: str = "v0"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("policy", self.policy, POLICIES)

    def augment(self, example: Example, seed: Any) -> Example:
        return self._one_of(POLICIES[self.policy], example, seed)


@dataclasses.dataclass(eq=False)
class RandAugment(_Policy):
    """Applies several random operations in sequence, all at one level.

    No policy is learned (Cubuk et al., https://arxiv.org/abs/1909.13719): each
    operation is one of ten, chosen with equal probability. These are equalize,
    solarize, solarize-add, color, cutout, rotation, and shift and shear, each along x
    or along y.

    Args:
        num_operations: int, number of operations for each image.
        level: float, the strength. At 10, an operation has the largest strength that
            AutoAugment uses, such as a rotation by 30 degrees. google/automl uses 15.
        long_side, min_visibility, reference_boxes: as in `AutoAugment`.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> import numpy as np
        >>> import effdet_keras as ek
        >>> augment = ek.augment.RandAugment(num_operations=2, level=5.0)
        >>> example = {"image": np.zeros((64, 64, 3), "uint8"),
        ...     "boxes": np.float32([[16, 16, 48, 48]]), "labels": np.int32([5])}
        >>> augmented = augment(example, seed=[0, 1])
        >>> augmented["image"].shape, augmented["image"].dtype.name
        (TensorShape([64, 64, 3]), 'uint8')
    """

    num_operations: int = parameter(1, "[1, inf)")
    level: float = parameter(15.0, "[0, inf)")

    def augment(self, example: Example, seed: Any) -> Example:
        # Each operation is a sub-policy of one step, with probability 1.
        sub_policies = [[(name, 1.0, self.level)] for name in RAND_AUGMENT_OPERATIONS]
        for one in random_ops.split(seed, self.num_operations):
            example = self._one_of(sub_policies, example, one)
        return example


# --- The policies of AutoAugment for detection.

_V0 = [
    [("TranslateX_BBox", 0.6, 4), ("Equalize", 0.8, 10)],
    [("TranslateY_Only_BBoxes", 0.2, 2), ("Cutout", 0.8, 8)],
    [("Sharpness", 0.0, 8), ("ShearX_BBox", 0.4, 0)],
    [("ShearY_BBox", 1.0, 2), ("TranslateY_Only_BBoxes", 0.6, 6)],
    [("Rotate_BBox", 0.6, 10), ("Color", 1.0, 6)],
]
POLICIES = {
    "v0": _V0,
    "v1": [
        *_V0,
        [("Color", 0.0, 0), ("ShearX_Only_BBoxes", 0.8, 4)],
        [("ShearY_Only_BBoxes", 0.8, 2), ("Flip_Only_BBoxes", 0.0, 10)],
        [("Equalize", 0.6, 10), ("TranslateX_BBox", 0.2, 2)],
        [("Color", 1.0, 10), ("TranslateY_Only_BBoxes", 0.4, 6)],
        [("Rotate_BBox", 0.8, 10), ("Contrast", 0.0, 10)],
        [("Cutout", 0.2, 2), ("Brightness", 0.8, 10)],
        [("Color", 1.0, 6), ("Equalize", 1.0, 2)],
        [("Cutout_Only_BBoxes", 0.4, 6), ("TranslateY_Only_BBoxes", 0.8, 2)],
        [("Color", 0.2, 8), ("Rotate_BBox", 0.8, 10)],
        [("Sharpness", 0.4, 4), ("TranslateY_Only_BBoxes", 0.0, 4)],
        [("Sharpness", 1.0, 4), ("SolarizeAdd", 0.4, 4)],
        [("Rotate_BBox", 1.0, 8), ("Sharpness", 0.2, 8)],
        [("ShearY_BBox", 0.6, 10), ("Equalize_Only_BBoxes", 0.6, 8)],
        [("ShearX_BBox", 0.2, 6), ("TranslateY_Only_BBoxes", 0.2, 10)],
        [("SolarizeAdd", 0.6, 8), ("Brightness", 0.8, 10)],
    ],
    "v2": [
        [("Color", 0.0, 6), ("Cutout", 0.6, 8), ("Sharpness", 0.4, 8)],
        [("Rotate_BBox", 0.4, 8), ("Sharpness", 0.4, 2), ("Rotate_BBox", 0.8, 10)],
        [("TranslateY_BBox", 1.0, 8), ("AutoContrast", 0.8, 2)],
        [("AutoContrast", 0.4, 6), ("ShearX_BBox", 0.8, 8), ("Brightness", 0.0, 10)],
        [("SolarizeAdd", 0.2, 6), ("Contrast", 0.0, 10), ("AutoContrast", 0.6, 0)],
        [("Cutout", 0.2, 0), ("Solarize", 0.8, 8), ("Color", 1.0, 4)],
        [("TranslateY_BBox", 0.0, 4), ("Equalize", 0.6, 8), ("Solarize", 0.0, 10)],
        [("TranslateY_BBox", 0.2, 2), ("ShearY_BBox", 0.8, 8), ("Rotate_BBox", 0.8, 8)],
        [("Cutout", 0.8, 8), ("Brightness", 0.8, 8), ("Cutout", 0.2, 2)],
        [("Color", 0.8, 4), ("TranslateY_BBox", 1.0, 6), ("Rotate_BBox", 0.6, 6)],
        [("Rotate_BBox", 0.6, 10), ("BBox_Cutout", 1.0, 4), ("Cutout", 0.2, 8)],
        [("Rotate_BBox", 0.0, 0), ("Equalize", 0.6, 6), ("ShearY_BBox", 0.6, 8)],
        [("Brightness", 0.8, 8), ("AutoContrast", 0.4, 2), ("Brightness", 0.2, 2)],
        [("TranslateY_BBox", 0.4, 8), ("Solarize", 0.4, 6), ("SolarizeAdd", 0.2, 10)],
        [("Contrast", 1.0, 10), ("SolarizeAdd", 0.2, 8), ("Equalize", 0.2, 4)],
    ],
    "v3": [
        [("Posterize", 0.8, 2), ("TranslateX_BBox", 1.0, 8)],
        [("BBox_Cutout", 0.2, 10), ("Sharpness", 1.0, 8)],
        [("Rotate_BBox", 0.6, 8), ("Rotate_BBox", 0.8, 10)],
        [("Equalize", 0.8, 10), ("AutoContrast", 0.2, 10)],
        [("SolarizeAdd", 0.2, 2), ("TranslateY_BBox", 0.2, 8)],
        [("Sharpness", 0.0, 2), ("Color", 0.4, 8)],
        [("Equalize", 1.0, 8), ("TranslateY_BBox", 1.0, 8)],
        [("Posterize", 0.6, 2), ("Rotate_BBox", 0.0, 10)],
        [("AutoContrast", 0.6, 0), ("Rotate_BBox", 1.0, 6)],
        [("Equalize", 0.0, 4), ("Cutout", 0.8, 10)],
        [("Brightness", 1.0, 2), ("TranslateY_BBox", 1.0, 6)],
        [("Contrast", 0.0, 2), ("ShearY_BBox", 0.8, 0)],
        [("AutoContrast", 0.8, 10), ("Contrast", 0.2, 10)],
        [("Rotate_BBox", 1.0, 10), ("Cutout", 1.0, 10)],
        [("SolarizeAdd", 0.8, 6), ("Equalize", 0.8, 8)],
    ],
}

# The operations of RandAugment (https://arxiv.org/abs/1909.13719).
RAND_AUGMENT_OPERATIONS = """
    Equalize Solarize Color Cutout SolarizeAdd TranslateX_BBox TranslateY_BBox
    ShearX_BBox ShearY_BBox Rotate_BBox
""".split()


# --- Sub-policies: operations in sequence, each with its probability.

_NOTHING = ("AutoContrast", 0.0, 0)  # pads the shorter sub-policies


def run_sub_policy(example, seed, sub_policies, choice, owner):
    """Applies one of several sub-policies, as a loop over its steps."""
    image = to_dtype(example["image"], tf.uint8)
    scale = tf.ones([])
    if owner.long_side is not None:
        scale = tf.maximum(*size_of(image)) / owner.long_side
    settings = Settings(scale, owner.min_visibility, owner.reference_boxes)
    kinds, inner_kinds, table = _tables(sub_policies)
    rows = Step(*[tf.constant(column)[choice] for column in table])
    count = len(table.kind[0])
    # One seed for the random decisions, and one for each step.
    seeds = random_ops.split(seed, count + 1)
    coins = random_ops.uniform(seeds[0], [count])
    seeds = tf.stack(seeds[1:])

    def run_step(i, image, boxes):
        step = Step(*[row[i] for row in rows])
        # "Inside" applies the probability itself, to each box.
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
        image = tf.ensure_shape(image, [None, None, 3])
        return i + 1, image, tf.ensure_shape(boxes, [None, 4])

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


def _tables(sub_policies):
    """Returns kinds of operations, and a `Step` of lists `[sub-policies, steps]`."""
    count = max(len(steps) for steps in sub_policies)
    padded = [[*steps, *[_NOTHING] * (count - len(steps))] for steps in sub_policies]
    names = [name for steps in padded for name, _, _ in steps]
    kinds = sorted({kind_of(name) for name in names})
    inner_kinds = sorted({inner_kind_of(name) for name in names} - {None})
    rows = [[step_of(*step, kinds, inner_kinds) for step in steps] for steps in padded]
    columns = [[[step[i] for step in row] for row in rows] for i in range(5)]
    return kinds, inner_kinds, Step(*columns)
