"""`self_test`: tests whether a model can learn a dataset, and finds where it fails."""

from __future__ import annotations

import functools

import keras
import numpy as np

from effdet_keras._internal.number_ranges import check_whole_number
from effdet_keras.data.dataset import DetectionDataset, count_of
from effdet_keras.detect.evaluate import category_ids_in_dataset, evaluate
from effdet_keras.errors import EffDetError
from effdet_keras.extras.selftest.boxes import (
    AnnotatedBoxes,
    follow_targets,
    read_network_inputs,
)
from effdet_keras.extras.selftest.stages import (
    SelfTestReport,
    SelfTestStage,
    check_encoding,
    check_letterbox,
    check_matching,
    check_reading,
    check_scoring,
    check_whole_way,
)
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.network.build import copied
from effdet_keras.train.auto_recipe import BOX_LOSS
from effdet_keras.train.freezing import frozen_state, restore_frozen
from effdet_keras.train.matching import ATSSMatching, IoUMatching

RULES = {"IoU": IoUMatching(), "ATSS": ATSSMatching()}
LEARNED = 0.9  # AP on the training images from which they count as learned
NUM_IMAGES = 4  # number of images to learn by heart
STEPS = 400  # the most training steps
_STEPS_BETWEEN = 25  # steps from one evaluation to the next
_RATE = 3e-3
_OVERFITTING = "overfitting"
_NO_MASKS = (
    f"{_OVERFITTING} is left out: a model with a segmentation head also learns masks, "
    "but the dataset has none (load it with `from_coco(..., masks=True)`, "
    "`dataset.with_masks`)"
)


def self_test(
    dataset: DetectionDataset,
    model: EfficientDet,
    *,
    training: bool = True,
    num_images: int | None = None,
    steps: int = STEPS,
    run_eagerly: bool = False,
    verbose: bool = True,
) -> SelfTestReport:
    """Follows the boxes of a dataset through all stages of a training.

    It helps when a training does not learn. Each stage receives the boxes that the
    stage before has left, and passes if COCO's AP of the boxes that it leaves is high
    enough:

    | stage | what it does | AP to pass |
    | --- | --- | --- |
    | scoring | scores the annotations as detections of themselves | 1 |
    | reading | reads boxes as training does, clipped to their images | 0.99 |
    | letterbox | moves boxes to the network's input, and back | 0.99 |
    | matching | keeps boxes that an anchor has to predict, by both rules | 0.99 |
    | encoding | encodes boxes as targets, decodes and scores them | 0.99 |
    | all of it | scores the decoded boxes against the annotations | 0.99 |
    | overfitting | a copy of the model learns four images by heart | 0.9 |

    Args:
        dataset: `DetectionDataset` with the classes of the model.
        model: `EfficientDet`. A copy of it is trained, in which frozen weights stay
            frozen.
        training: bool, whether to run the last stage, which takes minutes. For a model
            with a segmentation head, this needs a dataset with masks.
        num_images: int, number of images to follow, drawn at random; None for all.
        steps: int, the most steps of the training.
        run_eagerly: bool, whether to train without compiling the step.
        verbose: bool, whether to print each stage when it is done.

    Returns:
        `SelfTestReport`, which `print` shows completely. `ok` is whether all stages
        passed. `stages` has all stages, and `stage(name)` returns one of them. Each
        stage has `passed`, `average_precision`, `cure` and `lost`, the lost boxes.
        `verdict()` returns one sentence.

    Raises:
        ValueError: If the dataset has other classes than the model, or a number is
            below 1.
        ImportError: If TensorFlow is not installed, which the input pipeline needs.

    Example:
        >>> from effdet_keras.data.formats.arrays import from_arrays
        >>> image = np.zeros((64, 64, 3), "uint8")
        >>> dataset = from_arrays([image], [[[8, 8, 40, 40]]], [[0]], ["cat"])
        >>> model = EfficientDet.from_preset(
        ...     "efficientdet-lite0", image_size=64, class_names=["cat"])
        >>> report = self_test(dataset, model, training=False, verbose=False)
        >>> report.ok, len(report.stages), report.stages[0].name
        (True, 9, 'scoring')
    """
    check_numbers(num_images, steps)
    dataset = _in_classes_of(model, dataset)
    if num_images is not None and num_images < len(dataset):
        drawn = np.random.default_rng(0).permutation(len(dataset))[:num_images]
        dataset = DetectionDataset(
            [dataset.records[place] for place in sorted(drawn.tolist())],
            dataset.class_names,
            dataset.category_ids,
            problems=dataset.problems,  # `subset` would drop them
            seg_class_names=dataset.seg_class_names,
        )
    stages: list[SelfTestStage] = []

    def add(stage: SelfTestStage) -> None:
        stages.append(stage)
        if verbose:
            print(stage, flush=True)

    usable = follow_boxes(dataset, model.config, add)
    lacks_masks = not all(record.has_mask for record in dataset.records)
    if training and model.config.has_segmentation and lacks_masks:
        training = False
        if verbose:
            print(_NO_MASKS, flush=True)
    if training and usable is not None:
        options = {"steps": steps, "run_eagerly": run_eagerly, "verbose": verbose}
        add(_overfit(dataset, model, usable, **options))
    report = SelfTestReport(tuple(stages))
    if verbose:
        print(report.verdict(), flush=True)
    return report


def check_numbers(num_images, steps):
    """Raises `InvalidValueError` if a number of images or steps is invalid."""
    check_whole_number("num_images", num_images, "[1, inf)", others=(None,))
    check_whole_number("steps", steps, "[1, inf)")


def follow_boxes(dataset, config, add, rules=RULES):
    """Adds all stages without training; returns bools, images that lose no box.

    The result is None if no box can be scored.
    """
    none = np.zeros(len(dataset), bool)
    table = AnnotatedBoxes.of(dataset)
    scoring, start = check_scoring(table)
    add(scoring)
    if not start.is_there.any():
        return None
    inputs = read_network_inputs(table, config)
    reading, read = check_reading(table, start, inputs)
    add(reading)
    if not read.is_there.any():
        return none
    letterbox, seen = check_letterbox(table, read, inputs, config)
    add(letterbox)
    if not seen.is_there.any():
        return none
    for name, rule in rules.items():
        found = follow_targets(table, inputs, config, rule)
        matching, with_anchor = check_matching(table, seen, found, name)
        encoding, decoded = check_encoding(table, with_anchor, inputs, found, name)
        add(matching)
        add(encoding)
        add(check_whole_way(table, start, decoded, name))
    wrong = np.bincount(table.owner[~seen.is_there], minlength=len(dataset)) > 0
    return ~wrong & (inputs.image_scales > 0)


def _overfit(dataset, model, is_usable, **options):
    usable = dataset.subset(np.flatnonzero(is_usable))
    chosen = choose_images(usable)
    if not chosen:
        detail = (
            "every image has a box that does not reach the network (see the stages "
            "above)"
        )
        return SelfTestStage(_OVERFITTING, -1.0, LEARNED, detail)
    copy = copied(model)
    restore_frozen(copy, frozen_state(model))
    return check_overfitting(copy, usable.subset(chosen), **options)


def _in_classes_of(model, dataset):
    """Returns the dataset with the labels of the model, as `fit` uses it."""
    names = model.class_names
    if names is None or not set(dataset.class_names) <= set(names):
        category_ids_in_dataset(model, dataset)  # raises if they do not fit
        return dataset
    return dataset.with_classes(names, model.category_ids)


# --- The last stage: a copy of the model learns a few images by heart.


def check_overfitting(
    model, dataset, *, steps=STEPS, learning_rate=_RATE, run_eagerly=False, verbose=True
):
    """Trains a model on one batch until it knows it by heart, or for `steps` steps.

    The model does not have to generalize, so nothing makes the task harder: each step
    has the same images, and there is no augmentation, no averaging of weights, and one
    constant learning rate. Frozen weights stay frozen.
    """
    stage = functools.partial(SelfTestStage, _OVERFITTING, needed=LEARNED)
    if not model.trainable_variables:
        return stage(
            0.0, detail=("all weights of the model are frozen: call `model.unfreeze()`")
        )
    model.compile(
        keras.optimizers.Adam(learning_rate),
        loss=BOX_LOSS,
        matching=ATSSMatching(),
        weight_decay=None,
        ema_decay=None,
        batch_norm_warmup=True,
        freeze=None,
        run_eagerly=run_eagerly,
    )
    try:
        losses, numbers = _learn(model, dataset, steps, verbose)
    except (EffDetError, FloatingPointError) as error:
        return stage(0.0, detail=f"training stopped: {error}")
    boxes = count_of(sum(len(r.labels) for r in dataset.records), "box", "boxes")
    detail = f"{count_of(len(dataset), 'image')} with {boxes}, after "
    return stage(
        numbers["AP"],
        detail=f"{detail}{len(losses)} steps",
        cure=cure_of(losses, numbers, steps),
    )


def choose_images(dataset: DetectionDataset, count: int = NUM_IMAGES) -> list[int]:
    """Returns the indices of images to learn: with the fewest boxes, but not none."""
    counts = np.array([(~r.usable().is_crowd).sum() for r in dataset.records])
    order = np.argsort(counts, kind="stable")
    return sorted(order[counts[order] > 0][:count].tolist())


def _learn(model, dataset, steps, verbose):
    """Trains until all is learned, or to the last step; returns losses and metrics."""
    say = print if verbose else lambda *_, **__: None
    say(
        f"Memorizing {count_of(len(dataset), 'image')} in at most {steps} steps; "
        "compiling the first step takes up to a minute ...",
        flush=True,
    )
    images, truth = next(iter(model.batches(dataset, len(dataset), training=False)))
    names = ("boxes", "labels", "masks")
    truth = {name: truth[name] for name in names if name in truth}
    losses, numbers = [], {"AP": 0.0}
    while len(losses) < steps and numbers["AP"] < LEARNED:
        for _ in range(min(_STEPS_BETWEEN, steps - len(losses))):
            logs = model.train_on_batch(images, truth, return_dict=True)
            losses.append(float(logs["loss"]))
        numbers = evaluate(model, dataset, batch_size=len(dataset), verbose=False)
        state = f"loss {losses[-1]:.3f}, AP {numbers['AP']:.3f}"
        say(f"  step {len(losses)}: {state}", flush=True)
    return losses, numbers


def cure_of(losses, numbers, steps):
    """Returns advice for a training with these losses and metrics; "" if it passed."""
    if numbers["AP"] >= LEARNED:
        return ""
    if losses[-1] > 0.8 * losses[0]:
        return (
            f"The loss has not fallen ({losses[0]:.3f} to {losses[-1]:.3f}): are too "
            "many layers frozen, or are all images alike?"
        )
    return (
        f"The loss fell ({losses[0]:.3f} to {losses[-1]:.3f}) and AP50 is "
        f"{numbers['AP50']:.3f}: more than {steps} steps may be enough (`--steps`). "
        "Otherwise look for objects that are too small (see letterbox above), and "
        "for boxes of two classes at the same place"
    )
