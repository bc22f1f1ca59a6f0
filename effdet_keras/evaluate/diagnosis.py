"""Diagnoses a low AP50: classes at chance, training images not learned, or too few.

AP alone does not tell these causes apart. Each has its own cure (docs/low_ap.md).
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

NUM_IMAGES = 200  # the most images for the AP50 of boxes, which takes a second
ENOUGH_STEPS = 1_000  # training steps after which classes should be better than chance
_LOW = 0.5  # a lower AP50 is diagnosed
_BOXES_FOUND = 0.3  # from this AP50 of boxes, the classes are the problem
# Measured with six classes of playing cards and an AP50 of boxes of 0.95: failed
# trainings ended at an AP50 of 0.21 (chance is 0.16; the share below is 0.06), good
# ones at 0.62 (the share is 0.58).
_NEAR_CHANCE = 0.2  # share of the way from chance to all classes right
_OVERFITTED = 0.2  # difference in AP50 between training images and other images
_FEW = 20  # objects: with fewer, chance and luck cannot be told apart
_SAME_PLACE = 0.5  # IoU from which two boxes are on the same object
_SEE = "See docs/low_ap.md#what-a-training-says."


def diagnose(
    ap50: float, boxes_ap50: float, num_classes: int, train_ap50: float = UNMEASURED
) -> str | None:
    """Returns the cause and the cure of a low AP50 as text, or None.

    Args:
        ap50: float, the AP50; -1 if it was not measured.
        boxes_ap50: float, the AP50 if all classes count as one; -1 if not measured.
        num_classes: int.
        train_ap50: float, the AP50 on training images; -1 if not measured.
    """
    if ap50 < 0:
        return None
    is_learned = train_ap50 >= _LOW and train_ap50 - ap50 >= _OVERFITTED
    if is_learned and is_low(ap50):
        return (
            f"The model finds objects in its training images (AP50 {train_ap50:.2f}), "
            f"but not in other images ({ap50:.2f}): it needs more training images, or "
            f"more varied ones. {_SEE}"
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
            "The model has not even learned its training images: AP50 "
            f"{train_ap50:.2f} on them, {ap50:.2f} on other images. Train for more "
            f"steps. {_SEE}"
        )
    return None


def is_low(ap50: float) -> bool:
    """Returns whether an AP50 was measured and is below 0.5."""
    return 0 <= ap50 < _LOW


def ap50_of_boxes(results: Sequence[ImageResult]) -> float:
    """Computes AP50 if all classes count as one; -1 with fewer than 20 objects.

    Of detections that overlap, only the best counts, whatever their classes are.
    """
    if sum(int((~result.truth_is_crowd).sum()) for result in results) < _FEW:
        return UNMEASURED
    best = [_best_of_each_place(result) for result in spread(results, NUM_IMAGES)]
    return float(average_precisions(as_one_class(best), 1)[0, 0, 0])


def _best_of_each_place(result):
    """Removes detections that overlap a better one of any class; NMS is per class."""
    overlaps = pairwise_iou(result.boxes, result.boxes) >= _SAME_PLACE
    keep = np.zeros(len(overlaps), bool)
    for row, overlap in enumerate(overlaps):  # best first
        keep[row] = not (overlap & keep).any()
    return with_detections(result, keep)
