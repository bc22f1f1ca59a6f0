"""Why AP50 is low: classes at chance, training images not learned, or too few of them.

AP alone does not tell these apart, and each has a cure of its own (docs/low_ap.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from effdet_keras.box_ops import pairwise_iou
from effdet_keras.evaluate.coco import average_precisions
from effdet_keras.evaluate.image_result import (
    UNMEASURED,
    ImageResult,
    as_one_class,
    spread,
    with_detections,
)

NUM_IMAGES = 200  # from which the AP50 of boxes is taken: a second at most
ENOUGH_STEPS = 1_000  # to leave chance
_LOW = 0.5  # AP50 below which the cause is looked for
_BOXES_FOUND = 0.3  # AP50 of boxes, from which classes are what is missing
# Of six playing cards at 0.95 for boxes, failed trainings ended at 0.21 (0.16 is
# chance, and this share 0.06), good ones at 0.62 (0.58).
_NEAR_CHANCE = 0.2  # share of the way from chance to all classes right
_OVERFITTED = 0.2  # of AP50, between images of the training and others
_FEW = 20  # objects: fewer do not tell chance from luck
_SAME_PLACE = 0.5  # IoU
_SEE = "See docs/low_ap.md#what-a-training-says."


def diagnose(
    ap50: float, boxes_ap50: float, num_classes: int, train_ap50: float = UNMEASURED
) -> str | None:
    """Cause and cure of a low AP50, or None; `boxes_ap50` is that of all as one class.

    -1 is a number that was not measured.
    """
    if ap50 < 0:
        return None
    is_learned = train_ap50 >= _LOW and train_ap50 - ap50 >= _OVERFITTED
    if is_learned and is_low(ap50):
        return (
            f"The images of the training are learned (AP50 {train_ap50:.2f}), others "
            f"are not ({ap50:.2f}): this needs more training images, or more varied "
            f"ones. {_SEE}"
        )
    both = "" if train_ap50 < 0 else f" (on training images {train_ap50:.2f})"
    chance = boxes_ap50 / num_classes
    is_near_chance = ap50 - chance < _NEAR_CHANCE * (boxes_ap50 - chance)
    if num_classes > 1 and boxes_ap50 >= _BOXES_FOUND and is_near_chance:
        return (
            f"Objects are found, but their classes are near chance: AP50 {ap50:.2f}"
            f"{both}, and {boxes_ap50:.2f} if all {num_classes} classes count as one. "
            'Train for more steps, and with `optimizer="muon"`, as `recipe="auto"` '
            f"does. {_SEE}"
        )
    if is_low(ap50) and is_low(train_ap50):
        return (
            f"Not even the images of the training are learned: AP50 {train_ap50:.2f} "
            f"on them, {ap50:.2f} on others. Train for more steps. {_SEE}"
        )
    return None


def is_low(ap50: float) -> bool:
    """Whether an AP50 that was measured needs an explanation."""
    return 0 <= ap50 < _LOW


def ap50_of_boxes(results: Sequence[ImageResult]) -> float:
    """AP50 if all classes count as one, each place once; -1 of few objects."""
    if sum(int((~result.truth_is_crowd).sum()) for result in results) < _FEW:
        return UNMEASURED
    best = [_best_of_each_place(result) for result in spread(results, NUM_IMAGES)]
    return float(average_precisions(as_one_class(best), 1)[0, 0, 0])


def _best_of_each_place(result):
    """Without what a better detection of any class overlaps: NMS works per class."""
    overlaps = pairwise_iou(result.boxes, result.boxes) >= _SAME_PLACE
    keep = np.zeros(len(overlaps), bool)
    for row, overlap in enumerate(overlaps):  # best first
        keep[row] = not (overlap & keep).any()
    return with_detections(result, keep)
