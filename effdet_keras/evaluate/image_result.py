"""Ground truth and detections of one image, and how they match."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from effdet_keras.box_ops import area, pairwise_iou
from effdet_keras.errors import require

_TRUTH = ("truth_boxes", "truth_labels", "truth_is_crowd", "truth_areas")
_FOUND = ("boxes", "scores", "labels")
_DTYPES = {"truth_labels": np.int64, "labels": np.int64, "truth_is_crowd": bool}


@dataclasses.dataclass(frozen=True, eq=False)
class ImageResult:
    """Ground truth and detections of one image, in the pixels of that image.

    Args:
        image_id: int, the id in the dataset.
        truth_boxes: floats `[n, 4]`, `yxyx` in pixels of the image.
        truth_labels: ints `[n]`, `0 .. C-1`.
        boxes: floats `[m, 4]`, `yxyx` in pixels of the image. They are sorted by
            score, highest first, together with `scores` and `labels`.
        scores: floats `[m]`, 0 to 1.
        labels: ints `[m]`, `0 .. C-1`.
        truth_is_crowd: bools `[n]`; None means that none is a crowd region.
        name: string, the file name of the image, for display only.
        size: `(height, width)` of the image, in pixels; None if it is not known.
        truth_areas: floats `[n]`, areas in square pixels, as in the annotations; None
            means the areas of the boxes.

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
        for field in _TRUTH + _FOUND:
            value = getattr(self, field)
            value = usual[field] if value is None and field in usual else value
            array = np.asarray(value, _DTYPES.get(field, np.float64))
            array = array.reshape((-1, 4) if field.endswith("boxes") else -1)
            object.__setattr__(self, field, array)
        for names in (_TRUTH, _FOUND):
            lengths = {name: len(getattr(self, name)) for name in names}
            is_one = len(set(lengths.values())) == 1
            rule = f"Arrays of image {self.image_id} must be of the same length"
            require(is_one, rule, **lengths)
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
    """Returns the result with only the detections that `keep` `[m]` selects."""
    found = {name: getattr(result, name)[keep] for name in _FOUND}
    return dataclasses.replace(result, **found)


def as_one_class(results: Sequence[ImageResult]) -> list[ImageResult]:
    """Returns the results with all classes merged into one, label 0."""
    return [
        dataclasses.replace(
            result,
            labels=np.zeros_like(result.labels),
            truth_labels=np.zeros_like(result.truth_labels),
        )
        for result in results
    ]


def spread(items: Sequence, count: int) -> Sequence:
    """Returns at most `count` items, evenly spread over all."""
    return items[:: max(1, -(-len(items) // count))]


# --- COCO reports -1 if there is nothing to measure. Means leave it out.

UNMEASURED = -1.0


def mean_of_measured(values: ArrayLike) -> float:
    """Returns the mean of the measured values; `UNMEASURED` if there are none."""
    values = np.asarray(values, float)
    measured = values[values > UNMEASURED]
    return float(measured.mean()) if measured.size else UNMEASURED


# --- Matching of detections and objects, by COCO's greedy rule.

NONE = -1  # in `Matches`: no object, or no detection


class Matches(NamedTuple):
    """The matches of the `m` detections and `n` objects of one image."""

    truth: np.ndarray  # ints [m], the row of the matched object, or -1
    iou: np.ndarray  # floats [m], the IoU with the matched object, or 0
    is_ignored: np.ndarray  # bools [m], True in a crowd region: neither right nor wrong
    detection: np.ndarray  # ints [n], the row of the matched detection, or -1

    @property
    def is_true(self) -> np.ndarray:
        """Bools `[m]`, whether a detection is a true positive."""
        return self.truth != NONE

    @property
    def is_false(self) -> np.ndarray:
        """Bools `[m]`, whether a detection is a false positive."""
        return (self.truth == NONE) & ~self.is_ignored


def match_detections(result: ImageResult, iou_threshold: float = 0.5) -> Matches:
    """Matches detections with objects by COCO's rule.

    Detections choose in descending order of their scores. Each is matched with the
    object of its class that has the highest IoU with it, among the objects that are not
    matched yet and whose IoU is at least the threshold. An unmatched detection is
    ignored if at least that share of its own area lies in a crowd region of its class.

    Args:
        result: `ImageResult`.
        iou_threshold: float, 0 to 1.

    Returns:
        `Matches`.
    """
    num_found, num_true = len(result.boxes), len(result.truth_boxes)
    truth, taken = np.full(num_found, NONE), np.full(num_true, NONE)
    iou, is_ignored = np.zeros(num_found), np.zeros(num_found, bool)
    # IoU of detections and objects; for crowd regions, the share of the detection that
    # lies inside: `[m, n]`.
    overlap = pairwise_iou(result.boxes, result.truth_boxes)
    is_crowd = result.truth_is_crowd
    overlap[:, is_crowd] = pairwise_share(result.boxes, result.truth_boxes[is_crowd])
    overlap[result.labels[:, None] != result.truth_labels] = 0.0
    limit = min(iou_threshold, 1 - 1e-10)  # as in COCO: a margin for rounding
    for row in np.flatnonzero((overlap >= limit).any(axis=1)):
        free = np.where((taken == NONE) & ~is_crowd, overlap[row], 0.0)
        best = num_true - 1 - int(np.argmax(free[::-1]))  # the last of equal IoUs
        if free[best] >= limit:
            taken[best], truth[row], iou[row] = row, best, free[best]
        else:
            is_ignored[row] = (overlap[row, is_crowd] >= limit).any()
    return Matches(truth, iou, is_ignored, taken)


def pairwise_share(boxes1: np.ndarray, boxes2: np.ndarray) -> np.ndarray:
    """Computes the share of each box of `boxes1` inside each of `boxes2`, `[n, m]`."""
    low = np.maximum(boxes1[:, None, :2], boxes2[:, :2])
    high = np.minimum(boxes1[:, None, 2:], boxes2[:, 2:])
    shared, areas = area(np.concatenate([low, high], axis=-1)), area(boxes1)[:, None]
    return np.divide(shared, areas, out=np.zeros_like(shared), where=areas > 0)


# --- Right and wrong detections of one class in a whole dataset.


class Outcomes(NamedTuple):
    """The `k` detections of a class that are not ignored, in descending score order."""

    scores: np.ndarray  # floats [k], descending
    is_true: np.ndarray  # bools [k], whether each is a true positive
    num_objects: int  # the number of objects of the class


def outcomes_of(
    results: Sequence[ImageResult],
    num_classes: int,
    iou_threshold: float = 0.5,
    *,
    match=match_detections,
) -> list[Outcomes]:
    """Matches the detections of each image, and collects them per class.

    Detections with equal scores are in COCO's order: the lower image id first, then in
    their order in the image.

    Args:
        results: one `ImageResult` per image.
        num_classes: int, `C`.
        iou_threshold: float, 0 to 1.
        match: function like `match_detections`.

    Returns:
        List of `C` `Outcomes`, in the order of the labels.
    """
    matches = [match(result, iou_threshold) for result in results]
    scores = concat_arrays([result.scores for result in results])
    labels = concat_arrays([result.labels for result in results], int)
    is_true = concat_arrays([match.is_true for match in matches], bool)
    counts = is_true | concat_arrays([match.is_false for match in matches], bool)
    ids = concat_arrays([np.full(len(r.scores), r.image_id) for r in results], int)
    order = np.lexsort((ids, -scores))
    order = order[counts[order]]
    objects = concat_arrays([r.truth_labels[~r.truth_is_crowd] for r in results], int)
    places = [order[labels[order] == label] for label in range(num_classes)]
    return [
        Outcomes(scores[rows], is_true[rows], int(count))
        for rows, count in zip(places, np.bincount(objects, minlength=num_classes))
    ]


def concat_arrays(arrays, dtype=float):
    """Concatenates one-dimensional arrays; an empty array if there are none."""
    return np.concatenate([np.zeros(0, dtype), *arrays])
