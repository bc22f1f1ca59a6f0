"""Which detection found which object: COCO's greedy rule, for one image."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from effdet_keras.errors import InvalidValueError
from effdet_keras.evaluate.image_result import ImageResult, box_areas

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
        per_class: bool, whether only objects of its own class can be found by a
            detection.

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


# --- `Outcomes`: the detections of one class in a whole dataset, right or wrong.


@dataclasses.dataclass(frozen=True, eq=False)
class Outcomes:
    """The detections of a class that are right or wrong, without the ignored ones.

    Attributes:
        scores: floats `[k]`, best first.
        is_true: bools `[k]`, whether each detection found an object.
        num_objects: int, how many objects there were to find.
    """

    scores: np.ndarray
    is_true: np.ndarray
    num_objects: int


def outcomes_of(
    results: Sequence[ImageResult],
    class_names: Sequence[str],
    iou_threshold: float,
    match: Callable[[ImageResult, float], Matches] = match_detections,
) -> list[Outcomes]:
    """Checks results, matches each image, and collects the detections of each class.

    Args:
        class_names: strings `[C]`, in the order of the labels.
        match: function of a result and the threshold, the rule by which detections
            find objects.

    Example:
        >>> result = ImageResult(
        ...     1, [[0, 0, 8, 8]], [0], [[0, 0, 8, 8]] * 2, [0.9, 0.8], [0, 0])
        >>> outcomes_of([result], ["cat"], 0.5)[0].is_true
        array([ True, False])
    """
    check_labels(results, class_names)
    check_iou_threshold(iou_threshold)
    matches = [match(result, iou_threshold) for result in results]
    return pool_outcomes(results, matches, len(class_names))


def pool_outcomes(
    results: Sequence[ImageResult],
    matches: Sequence[Matches],
    num_classes: int,
    *,
    area_range: tuple[float, float] = EVERY_AREA,
) -> list[Outcomes]:
    """Collects the detections of all images, class by class.

    Of detections with one score, that of the lower image id comes first, and of one
    image that which comes first there: COCO's order.

    Example:

        >>> result = ImageResult(
        ...     1, [[0, 0, 8, 8]], [0], [[0, 0, 8, 8]] * 2, [0.9, 0.8], [0, 0])
        >>> pool_outcomes([result], [match_detections(result)], 1)[0].is_true
        array([ True, False])
    """
    scores = _joined([result.scores for result in results], float)
    labels = _joined([result.labels for result in results], int)
    is_true = _joined([match.is_true for match in matches], bool)
    counts = is_true | _joined([match.is_false for match in matches], bool)
    ids = _joined([np.full(len(r.scores), r.image_id) for r in results], int)
    order = np.lexsort((ids, -scores))
    order = order[counts[order]]
    objects = [r.truth_labels[objects_that_count(r, area_range)] for r in results]
    num_objects = np.bincount(_joined(objects, int), minlength=num_classes)
    places = [order[labels[order] == label] for label in range(num_classes)]
    return [
        Outcomes(scores[rows], is_true[rows], int(count))
        for rows, count in zip(places, num_objects)
    ]


def pool_classes(outcomes: Sequence[Outcomes]) -> Outcomes:
    """Collects the detections of all classes, each right or wrong about its own class.

    Example:
        >>> cats = Outcomes(np.array([0.9, 0.2]), np.array([True, False]), 3)
        >>> dogs = Outcomes(np.array([0.5]), np.array([True]), 1)
        >>> both = pool_classes([cats, dogs])
        >>> both.is_true, both.num_objects
        (array([ True,  True, False]), 4)
    """
    scores = _joined([one.scores for one in outcomes], float)
    is_true = _joined([one.is_true for one in outcomes], bool)
    order = np.argsort(-scores, kind="stable")
    num_objects = sum(one.num_objects for one in outcomes)
    return Outcomes(scores[order], is_true[order], num_objects)


def check_labels(results: Sequence[ImageResult], class_names: Sequence[str]) -> None:
    """Refuses labels without a name.

    Example:
        >>> check_labels([ImageResult(1, [[0, 0, 8, 8]], [1], [], [], [])], ["cat"])
        Traceback (most recent call last):
            ...
        effdet_keras.errors.InvalidValueError: `class_names` must have a name for ...
    """
    for result in results:
        for field in ("truth_labels", "labels"):
            labels = getattr(result, field)
            wrong = labels[(labels < 0) | (labels >= len(class_names))]
            if len(wrong):
                raise InvalidValueError(
                    "`class_names` must have a name for each label, 0 .. C-1, and "
                    f"padding rows must be left out. Received: {len(class_names)} "
                    f"names; label {wrong[0]} in `{field}` of image {result.image_id}"
                )


def check_iou_threshold(iou_threshold: float) -> None:
    """Refuses an IoU threshold that no IoU can have.

    Example:
        >>> check_iou_threshold(50)
        Traceback (most recent call last):
            ...
        effdet_keras.errors.InvalidValueError: `iou_threshold` must be above 0 ...
    """
    if not 0 < iou_threshold <= 1:
        raise InvalidValueError(
            "`iou_threshold` must be above 0 and at most 1, such as 0.5. "
            f"Received: iou_threshold={iou_threshold}"
        )


def _joined(arrays, dtype):
    return np.concatenate([np.zeros(0, dtype), *arrays])
