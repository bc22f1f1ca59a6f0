"""Which detection found which object: COCO's greedy rule, for one image."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import ArrayLike

from effdet_keras.evaluation.image_result import ImageResult

NONE = -1  # no object; no detection


@dataclasses.dataclass(frozen=True, eq=False)
class Matches:
    """What the detections of one image are.

    Attributes:
        truth: ints `[m]`, for each detection the row of the object that it found, or
            -1.
        iou: floats `[m]`, the IoU with that object; 0 where there is none.
        is_ignored: bools `[m]`, whether a detection lies in a crowd region, and
            counts neither as right nor as wrong.
        detection: ints `[n]`, for each object the row of the detection that found
            it, or -1. Crowd regions are never found.
    """

    truth: np.ndarray
    iou: np.ndarray
    is_ignored: np.ndarray
    detection: np.ndarray

    @property
    def is_true(self) -> np.ndarray:
        """Bools `[m]`, whether a detection is a true positive."""
        return self.truth != NONE

    @property
    def is_false(self) -> np.ndarray:
        """Bools `[m]`, whether a detection is a false positive."""
        return (self.truth == NONE) & ~self.is_ignored


def match_detections(
    result: ImageResult, iou_threshold: float = 0.5, *, per_class: bool = True
) -> Matches:
    """Gives each detection the object that it found.

    The rule of COCO's evaluation: detections choose in the order of their scores; each
    takes, of the objects that are still free and overlap it by the threshold or more,
    the one that it overlaps most. What then overlaps a crowd region by as much of its
    own area is ignored.

    Args:
        result: `ImageResult`.
        iou_threshold: float above 0, at most 1.
        per_class: bool, whether only objects of its own class can be found by a
            detection.

    Returns:
        `Matches`.

    Example:
        >>> result = ImageResult(
        ...     1, truth_boxes=[[0, 0, 8, 8], [20, 20, 28, 28]], truth_labels=[0, 1],
        ...     boxes=[[0, 0, 8, 8], [0, 0, 8, 7], [20, 20, 28, 28]],
        ...     scores=[0.9, 0.8, 0.7], labels=[0, 0, 0])
        >>> match_detections(result).truth
        array([ 0, -1, -1])
        >>> match_detections(result, per_class=False).truth
        array([ 0, -1,  1])
    """
    num_found, num_true = len(result.boxes), len(result.truth_boxes)
    truth, taken = np.full(num_found, NONE), np.full(num_true, NONE)
    iou_of_match, is_ignored = np.zeros(num_found), np.zeros(num_found, bool)
    is_crowd = result.truth_is_crowd
    overlap = pairwise_iou(result.boxes, result.truth_boxes)
    if is_crowd.any():
        crowds = result.truth_boxes[is_crowd]
        overlap[:, is_crowd] = _share_of_first(result.boxes, crowds)
    if per_class:
        overlap[result.labels[:, None] != result.truth_labels] = 0.0
    # COCO's own margin: an IoU that rounding put below the threshold counts.
    limit = min(iou_threshold, 1 - 1e-10)
    for row in range(num_found if num_true else 0):
        free = np.where(is_crowd | (taken != NONE), 0.0, overlap[row])
        best = len(free) - 1 - int(np.argmax(free[::-1]))  # of equal ones the last
        if free[best] >= limit:
            truth[row], taken[best], iou_of_match[row] = best, row, free[best]
        else:
            is_ignored[row] = (overlap[row][is_crowd] >= limit).any()
    return Matches(truth, iou_of_match, is_ignored, taken)


def pairwise_iou(boxes1: ArrayLike, boxes2: ArrayLike) -> np.ndarray:
    """Computes the IoU of each box with each other, in NumPy.

    Args:
        boxes1: floats `[n, 4]`, `yxyx`.
        boxes2: floats `[m, 4]`, `yxyx`.

    Returns:
        Float64 array `[n, m]`; 0 where both boxes are empty.

    Example:
        >>> pairwise_iou([[0, 0, 2, 2]], [[0, 1, 2, 3], [0, 0, 2, 2]]).round(3)
        array([[0.333, 1.   ]])
    """
    boxes1, boxes2 = (np.asarray(b, float).reshape(-1, 4) for b in (boxes1, boxes2))
    shared = _intersection(boxes1, boxes2)
    union = _area(boxes1)[:, None] + _area(boxes2) - shared
    return np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)


def _share_of_first(boxes1, boxes2):
    """How much of each first box lies in each second one, `[n, m]`."""
    shared, area = _intersection(boxes1, boxes2), _area(boxes1)[:, None]
    return np.divide(shared, area, out=np.zeros_like(shared), where=area > 0)


def _intersection(boxes1, boxes2):
    low = np.maximum(boxes1[:, None, :2], boxes2[:, :2])
    high = np.minimum(boxes1[:, None, 2:], boxes2[:, 2:])
    return np.prod(np.maximum(high - low, 0.0), axis=-1)


def _area(boxes):
    return np.prod(np.maximum(boxes[:, 2:] - boxes[:, :2], 0.0), axis=-1)
