"""What is true of one image, what was found in it, and which detection found what."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from effdet_keras.box_ops import area, pairwise_iou
from effdet_keras.errors import InvalidValueError

_FIELDS = (
    ("truth_boxes", np.float64, (-1, 4)),
    ("truth_labels", np.int64, (-1,)),
    ("truth_is_crowd", bool, (-1,)),
    ("truth_areas", np.float64, (-1,)),
    ("boxes", np.float64, (-1, 4)),
    ("scores", np.float64, (-1,)),
    ("labels", np.int64, (-1,)),
)
_FOUND = ("boxes", "scores", "labels")


@dataclasses.dataclass(frozen=True, eq=False)
class ImageResult:
    """Ground truth and detections of one image, in the pixels of that image.

    What `analyze_results` takes: a list of these, one for each image of a dataset, also
    for those with no objects or no detections.

    Args:
        image_id: int, the id in the dataset.
        truth_boxes: floats `[n, 4]`, `yxyx` in pixels of the image.
        truth_labels: ints `[n]`, `0 .. C-1`.
        boxes: floats `[m, 4]`, `yxyx` in pixels of the image; kept best first.
        scores: floats `[m]`, 0 to 1.
        labels: ints `[m]`, `0 .. C-1`.
        truth_is_crowd: bools `[n]`; None means that none is a crowd region.
        name: string, the file of the image, for people.
        size: `(height, width)` of the image, in pixels; None if it is not known.
        truth_areas: floats `[n]`, square pixels: the areas in the annotations, which
            for COCO are those of the outlines; None means those of the boxes.

    Raises:
        ValueError: If the lengths differ.

    Example:
        >>> result = ImageResult(
        ...     7, truth_boxes=[[0, 0, 8, 8]], truth_labels=[0],
        ...     boxes=[[0, 0, 8, 4], [0, 0, 8, 8]], scores=[0.3, 0.9], labels=[0, 0])
        >>> result.scores, result.truth_is_crowd
        (array([0.9, 0.3]), array([False]))
    """

    image_id: int
    truth_boxes: np.ndarray
    truth_labels: np.ndarray
    boxes: np.ndarray
    scores: np.ndarray
    labels: np.ndarray
    truth_is_crowd: np.ndarray | None = None
    name: str = ""
    size: tuple[int, int] | None = None
    truth_areas: np.ndarray | None = None

    def __post_init__(self) -> None:
        truth_boxes = np.asarray(self.truth_boxes, np.float64).reshape(-1, 4)
        usual = {
            "truth_is_crowd": np.zeros(len(truth_boxes), bool),
            "truth_areas": area(truth_boxes),
        }
        for field, dtype, shape in _FIELDS:
            value = getattr(self, field)
            value = usual[field] if value is None and field in usual else value
            array = np.asarray(value, dtype).reshape(shape)
            object.__setattr__(self, field, array)
        for names in (_FIELDS[:4], _FIELDS[4:]):
            lengths = {name: len(getattr(self, name)) for name, *_ in names}
            if len(set(lengths.values())) > 1:
                raise InvalidValueError(
                    f"{' and '.join(f'`{name}`' for name in lengths)} must have one "
                    f"length. Received: {lengths} of image {self.image_id}"
                )
        best = np.argsort(-self.scores, kind="stable")
        for field in _FOUND:
            object.__setattr__(self, field, getattr(self, field)[best])

    def above(self, score: float) -> ImageResult:
        """Returns the result without the detections below a score.

        Example:
            >>> result = ImageResult(1, [], [], [[0, 0, 1, 1]] * 2, [0.3, 0.9], [0, 0])
            >>> result.above(0.5).scores
            array([0.9])
        """
        return with_detections(self, self.scores >= score)


def with_detections(result, keep):
    """The result with the detections that `keep`, bools `[m]`, marks."""
    found = {name: getattr(result, name)[keep] for name in _FOUND}
    return dataclasses.replace(result, **found)


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


# --- -1, COCO's mark where there is nothing to measure, and means that leave it out.

UNMEASURED = -1.0


def mean_of_measured(values: ArrayLike) -> float:
    """The mean of the values that could be measured; `UNMEASURED` where none could."""
    values = np.asarray(values, float)
    measured = values[values > UNMEASURED]
    return float(measured.mean()) if measured.size else UNMEASURED


# --- Which detection found which object: COCO's greedy rule.

NONE = -1  # no object; no detection
EVERY_AREA = (0.0, math.inf)  # square pixels


class Matches(NamedTuple):
    """What the `m` detections and `n` objects of one image are to each other."""

    truth: np.ndarray  # ints [m], the row of the object that was found, or -1
    iou: np.ndarray  # floats [m], the IoU with it, or 0
    # bools [m]: neither right nor wrong, in a crowd region or about other areas
    is_ignored: np.ndarray
    detection: np.ndarray  # ints [n], the row of the detection that found it, or -1

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


# --- The detections of one class in a whole dataset, right or wrong.


class Outcomes(NamedTuple):
    """The `k` detections of a class that are right or wrong, best first."""

    scores: np.ndarray  # floats [k], descending
    is_true: np.ndarray  # bools [k], whether each found an object
    num_objects: int  # how many objects there were to find


def outcomes_of(
    results: Sequence[ImageResult],
    num_classes: int,
    iou_threshold: float = 0.5,
    *,
    match=match_detections,
    area_range: tuple[float, float] = EVERY_AREA,
) -> list[Outcomes]:
    """Matches each image by a rule, and collects the detections class by class.

    Of detections with one score, that of the lower image id comes first, and of one
    image that which comes first there: COCO's order.
    """
    ranges = {} if area_range == EVERY_AREA else {"area_range": area_range}
    matches = [match(result, iou_threshold, **ranges) for result in results]
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


def _joined(arrays, dtype):
    return np.concatenate([np.zeros(0, dtype), *arrays])
