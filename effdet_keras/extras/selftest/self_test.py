"""`self_test`: can this model learn this dataset, and if not, at which stage?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.detect.evaluate import category_ids_in_dataset
from effdet_keras.errors import InvalidTypeError, InvalidValueError
from effdet_keras.extras.selftest.boxes import (
    AnnotatedBoxes,
    follow_targets,
    read_network_inputs,
)
from effdet_keras.extras.selftest.overfitting import (
    LEARNED,
    STEPS,
    check_overfitting,
    choose_images,
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
from effdet_keras.model.config import EfficientDetConfig
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.train.freezing import frozen_state, restore_frozen
from effdet_keras.train.matching import ATSSMatching, IoUMatching, Matching

RULES = {"IoU": IoUMatching(), "ATSS": ATSSMatching()}


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
    """Follows the boxes of a dataset through all that training does with them.

    For when a training does not learn. Each stage gets what the one before it left,
    and passes if COCO's AP of what is then left is high enough:

    | stage | what | AP |
    | --- | --- | --- |
    | scoring | the annotations, as detections of themselves | 1 |
    | reading | as training reads them, clipped to their images | 0.99 |
    | letterbox | on the network's input, and back | 0.99 |
    | matching | those that some anchor has to predict, by both rules | 0.99 |
    | encoding | encoded as targets, decoded, scored | 0.99 |
    | all of it | the last against the annotations | 0.99 |
    | overfitting | a copy of the model learns four images by heart | 0.9 |

    Args:
        dataset: `DetectionDataset`, of the classes of the model.
        model: `EfficientDet`; a copy of it is trained, and what is frozen stays so.
        training: bool, whether to do the last stage, which takes minutes.
        num_images: int, how many images to follow, drawn at random; None for all.
        steps: int, of the training at most.
        run_eagerly: bool, whether not to compile its step.
        verbose: bool, whether to print each stage when it is done.

    Returns:
        A report with `ok`, whether all stages passed; `stages`, and `stage(name)` for
        one of them, each with `passed`, `average_precision`, `cure` and what it `lost`;
        and `verdict()`, one sentence. `print` shows it all.

    Raises:
        TypeError: If `dataset` or `model` is something else.
        ValueError: If the dataset has no image, or other classes than the model.
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
    _check(dataset, model, num_images, steps)
    dataset = _in_classes_of(model, dataset)
    if num_images is not None and num_images < len(dataset):
        drawn = np.random.default_rng(0).permutation(len(dataset))[:num_images]
        dataset = DetectionDataset(
            [dataset.records[place] for place in sorted(drawn.tolist())],
            dataset.class_names,
            dataset.category_ids,
            problems=dataset.problems,  # which `subset` leaves out
        )
    stages: list[SelfTestStage] = []

    def add(stage: SelfTestStage) -> None:
        stages.append(stage)
        if verbose:
            print(stage, flush=True)

    usable = follow_boxes(dataset, model.config, add)
    if training and usable is not None:
        options = {"steps": steps, "run_eagerly": run_eagerly, "verbose": verbose}
        add(_overfit(dataset, model, usable, **options))
    report = SelfTestReport(tuple(stages))
    if verbose:
        print(report.verdict(), flush=True)
    return report


def follow_boxes(
    dataset: DetectionDataset,
    config: EfficientDetConfig,
    add: Callable[[SelfTestStage], None],
    rules: Mapping[str, Matching] = RULES,
) -> np.ndarray | None:
    """All stages that need no training; which images lose no box, bools."""
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
    targets = {
        name: follow_targets(table, inputs, config, rule)
        for name, rule in rules.items()
    }
    matched = {name: (found.num_anchors > 0).sum() for name, found in targets.items()}
    best = max(matched, key=matched.get)
    for name, found in targets.items():
        remedy = ""
        if matched[name] < matched[best]:
            remedy = f" {best} matching loses fewer: `compile(matching=...)`."
        matching, with_anchor = check_matching(table, seen, inputs, found, name, remedy)
        encoding, decoded = check_encoding(table, with_anchor, inputs, found, name)
        add(matching)
        add(encoding)
        add(check_whole_way(table, start, decoded, name))
    wrong = np.bincount(table.owner[~seen.is_there], minlength=len(dataset)) > 0
    return ~wrong & (inputs.image_scales > 0)


def _overfit(dataset, model, is_usable, **options):
    usable = dataset.subset(np.flatnonzero(is_usable))
    if chosen := choose_images(usable):
        return check_overfitting(_copy(model), usable.subset(chosen), **options)
    return SelfTestStage(
        "overfitting",
        -1.0,
        LEARNED,
        "there is no image all of whose boxes reach the network",
        cure="See the stages above",
    )


def _copy(model: Any) -> Any:
    """A model of its own, with the weights of another and what is frozen there."""
    copy = type(model).from_config(model.get_config())
    copy.set_weights(model.get_weights())
    copy.pretrained = model.pretrained
    restore_frozen(copy, frozen_state(model))
    return copy


def _check(dataset, model, num_images, steps):
    if not isinstance(dataset, DetectionDataset) or not isinstance(model, EfficientDet):
        raise InvalidTypeError(
            "`self_test` takes a `DetectionDataset` and an `EfficientDet`. Received: "
            f"{type(dataset).__name__}, {type(model).__name__}"
        )
    for name, number in (("num_images", num_images), ("steps", steps)):
        if number is not None and number < 1:
            raise InvalidValueError(
                f"`{name}` must be 1 or more. Received: {name}={number}"
            )
    if len(dataset) == 0:
        raise InvalidValueError("The dataset has no image to test with.")


def _in_classes_of(model, dataset):
    """The dataset with the labels that the model has, as `fit` has it."""
    names = model.class_names
    if names is None or not set(dataset.class_names) <= set(names):
        category_ids_in_dataset(model, dataset)  # says what is wrong
        return dataset
    return dataset.with_classes(names, model.category_ids)
