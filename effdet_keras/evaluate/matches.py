"""Which detection found which object: COCO's greedy rule, for one image."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from effdet_keras.box_ops import area, pairwise_iou
from effdet_keras.errors import InvalidValueError
from effdet_keras.evaluate.image_result import ImageResult

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

    Without `per_class` a detection can find objects of other classes, too.
    """
    num_found, num_true = len(result.boxes), len(result.truth_boxes)
    truth, taken = np.full(num_found, NONE), np.full(num_true, NONE)
    iou, is_ignored = np.zeros(num_found), np.zeros(num_found, bool)
    counts = objects_that_count(result, area_range)
    # The IoU of detections and objects, or the share inside of a crowd, `[m, n]`.
    overlap = pairwise_iou(result.boxes, result.truth_boxes)
    is_crowd = result.truth_is_crowd
    overlap[:, is_crowd] = pairwise_share(result.boxes, result.truth_boxes[is_crowd])
    if per_class:
        overlap[result.labels[:, None] != result.truth_labels] = 0.0
    limit = least_overlap(iou_threshold)
    for row in np.flatnonzero((overlap >= limit).any(axis=1)):
        is_free = (taken == NONE) | is_crowd
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
    areas = area(result.boxes)
    is_ignored |= (truth == NONE) & ((areas < low) | (areas > high))
    return Matches(truth, iou, is_ignored, np.where(counts, taken, NONE))


def objects_that_count(
    result: ImageResult, area_range: tuple[float, float] = EVERY_AREA
) -> np.ndarray:
    """Bools `[n]`: False for crowd regions and for objects of other areas."""
    low, high = area_range
    areas = result.truth_areas
    return ~result.truth_is_crowd & (areas >= low) & (areas <= high)


def least_overlap(iou_threshold: float) -> float:
    """The IoU that counts as the threshold: in COCO, 1 less a margin for rounding."""
    return min(iou_threshold, 1 - 1e-10)


def pairwise_share(boxes1: np.ndarray, boxes2: np.ndarray) -> np.ndarray:
    """How much of each first box lies in each second one, `[n, m]`."""
    low = np.maximum(boxes1[:, None, :2], boxes2[:, :2])
    high = np.minimum(boxes1[:, None, 2:], boxes2[:, 2:])
    shared, areas = area(np.concatenate([low, high], axis=-1)), area(boxes1)[:, None]
    return np.divide(shared, areas, out=np.zeros_like(shared), where=areas > 0)


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

    `match` is the rule by which detections find objects.
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
    """Collects the detections of all classes, each right or wrong about its own."""
    scores = _joined([one.scores for one in outcomes], float)
    is_true = _joined([one.is_true for one in outcomes], bool)
    order = np.argsort(-scores, kind="stable")
    num_objects = sum(one.num_objects for one in outcomes)
    return Outcomes(scores[order], is_true[order], num_objects)


def check_labels(results: Sequence[ImageResult], class_names: Sequence[str]) -> None:
    """Refuses labels without a name."""
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
    """Refuses an IoU threshold that no IoU can have."""
    if not 0 < iou_threshold <= 1:
        raise InvalidValueError(
            "`iou_threshold` must be above 0 and at most 1, such as 0.5. "
            f"Received: iou_threshold={iou_threshold}"
        )


def _joined(arrays, dtype):
    return np.concatenate([np.zeros(0, dtype), *arrays])
