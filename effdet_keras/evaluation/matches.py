"""Which detection found which object: COCO's greedy rule, for one image."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import ArrayLike

from effdet_keras.evaluation.image_result import ImageResult, box_areas

NONE = -1  # no object; no detection
EVERY_AREA = (0.0, math.inf)  # square pixels


@dataclasses.dataclass(frozen=True, eq=False)
class Matches:
    """What the detections of one image are.

    Attributes:
        truth: ints `[m]`, for each detection the row of the object that it found, or
            -1.
        iou: floats `[m]`, the IoU with that object; 0 where there is none.
        is_ignored: bools `[m]`, whether a detection counts neither as right nor as
            wrong: it lies in a crowd region, or is about objects of other areas.
        detection: ints `[n]`, for each object the row of the detection that found
            it, or -1. Crowd regions and objects of other areas are never found.
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
    result: ImageResult,
    iou_threshold: float = 0.5,
    *,
    per_class: bool = True,
    area_range: tuple[float, float] = EVERY_AREA,
) -> Matches:
    """Gives each detection the object that it found.

    The rule of COCO's evaluation: detections choose in the order of their scores; each
    takes, of the objects that are still free and overlap it by the threshold or more,
    the one that it overlaps most. What then overlaps a crowd region by as much of its
    own area is ignored.

    With an area range, objects of other areas are neither found nor missed: a detection
    that overlaps such an object, and none that counts, is ignored. So is one that found
    nothing and is itself of another area.

    Args:
        result: `ImageResult`.
        iou_threshold: float above 0, at most 1.
        per_class: bool, whether only objects of its own class can be found by a
            detection.
        area_range: `(low, high)` in square pixels, both included.

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
    iou, is_ignored = np.zeros(num_found), np.zeros(num_found, bool)
    counts = objects_that_count(result, area_range)
    overlap = _overlap(result, per_class)
    limit = least_overlap(iou_threshold)
    for row in np.flatnonzero((overlap >= limit).any(axis=1)):
        is_free = (taken == NONE) | result.truth_is_crowd
        free = np.where(is_free, overlap[row], 0.0)
        counting = np.where(counts, free, 0.0)
        candidates = counting if counting.max() >= limit else free
        best = num_true - 1 - int(np.argmax(candidates[::-1]))  # of equal ones the last
        if candidates[best] < limit:
            continue  # others have taken what it overlaps
        taken[best], is_ignored[row] = row, not counts[best]
        if counts[best]:
            truth[row], iou[row] = best, overlap[row, best]
    low, high = area_range
    areas = box_areas(result.boxes)
    is_ignored |= (truth == NONE) & ((areas < low) | (areas > high))
    return Matches(truth, iou, is_ignored, np.where(counts, taken, NONE))


def objects_that_count(
    result: ImageResult, area_range: tuple[float, float] = EVERY_AREA
) -> np.ndarray:
    """Tells which objects can be found or missed.

    Args:
        result: `ImageResult`.
        area_range: `(low, high)` in square pixels, both included.

    Returns:
        Bools `[n]`: False for crowd regions and for objects of other areas.

    Example:
        >>> result = ImageResult(
        ...     1, [[0, 0, 8, 8], [0, 0, 9, 9]], [0, 0], [], [], [], [False, True])
        >>> objects_that_count(result)
        array([ True, False])
    """
    low, high = area_range
    areas = result.truth_areas
    return ~result.truth_is_crowd & (areas >= low) & (areas <= high)


def least_overlap(iou_threshold: float) -> float:
    """The IoU that counts as the threshold: 1 less a margin for rounding is 1, in COCO.

    Example:
        >>> least_overlap(0.5), 1 - least_overlap(1.0) > 0
        (0.5, True)
    """
    return min(iou_threshold, 1 - 1e-10)


def _overlap(result, per_class):
    """The IoU of detections and objects, or the share inside of a crowd, `[m, n]`."""
    overlap = pairwise_iou(result.boxes, result.truth_boxes)
    is_crowd = result.truth_is_crowd
    overlap[:, is_crowd] = pairwise_share(result.boxes, result.truth_boxes[is_crowd])
    if per_class:
        overlap[result.labels[:, None] != result.truth_labels] = 0.0
    return overlap


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
    union = box_areas(boxes1)[:, None] + box_areas(boxes2) - shared
    return np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)


def pairwise_share(boxes1: ArrayLike, boxes2: ArrayLike) -> np.ndarray:
    """Computes how much of each first box lies in each second one.

    Args:
        boxes1: floats `[n, 4]`, `yxyx`.
        boxes2: floats `[m, 4]`, `yxyx`.

    Returns:
        Float64 array `[n, m]`, 0 to 1; 0 for a first box that is empty.

    Example:
        >>> pairwise_share([[0, 0, 2, 2]], [[0, 1, 9, 9], [0, 0, 9, 9]])
        array([[0.5, 1. ]])
    """
    boxes1, boxes2 = (np.asarray(b, float).reshape(-1, 4) for b in (boxes1, boxes2))
    shared, area = _intersection(boxes1, boxes2), box_areas(boxes1)[:, None]
    return np.divide(shared, area, out=np.zeros_like(shared), where=area > 0)


def _intersection(boxes1, boxes2):
    low = np.maximum(boxes1[:, None, :2], boxes2[:, :2])
    high = np.minimum(boxes1[:, None, 2:], boxes2[:, 2:])
    return np.prod(np.maximum(high - low, 0.0), axis=-1)
