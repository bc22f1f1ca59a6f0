"""Precision and recall, COCO's and VOC's average precision, and AP of parts."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from effdet_keras.box_ops import pairwise_iou
from effdet_keras.errors import InvalidValueError
from effdet_keras.evaluate.image_result import (
    EVERY_AREA,
    NONE,
    UNMEASURED,
    ImageResult,
    Matches,
    Outcomes,
    mean_of_measured,
    objects_that_count,
    outcomes_of,
)

# By `linspace`, as in pycocotools: its recall 0.35 is a little above 7 / 20.
COCO_IOU_THRESHOLDS = np.linspace(0.5, 0.95, 10)
COCO_RECALLS = np.linspace(0.0, 1.0, 101)


class PrecisionRecallCurve(NamedTuple):
    """What precision and recall become with each further detection, best first."""

    name: str  # the class
    num_objects: int  # how many there were to find
    scores: np.ndarray  # floats [k], descending, without ignored detections
    precision: np.ndarray  # floats [k], the share of them so far that is right
    recall: np.ndarray  # floats [k], the share of the objects that they found

    @property
    def best_precision(self) -> np.ndarray:
        """Floats `[k]`: the best precision at this recall or a higher one."""
        return np.maximum.accumulate(self.precision[::-1])[::-1]

    @property
    def average_precision(self) -> float:
        """COCO's: the mean of the best precision at the recalls 0, 0.01, ..., 1."""
        return self.mean_precision(COCO_RECALLS)

    def mean_precision(self, recalls: ArrayLike) -> float:
        """The mean of the best precision at some recalls; -1 without objects."""
        if not self.num_objects:
            return UNMEASURED
        return float(self.best_precision_at(recalls).mean())

    def best_precision_at(self, recalls: ArrayLike) -> np.ndarray:
        """Floats `[r]`: the best precision at each recall, 0 where not reached."""
        places = np.searchsorted(self.recall, np.asarray(recalls, float), side="left")
        return np.append(self.best_precision, 0.0)[places]


def precision_recall_curves(
    results: Sequence[ImageResult],
    class_names: Sequence[str],
    *,
    iou_threshold: float = 0.5,
) -> list[PrecisionRecallCurve]:
    """The precision-recall curve of each class, by COCO's matching.

    `average_precision` of a curve is COCO's AP of the class at this IoU, if no image
    has more than 100 detections of a class: COCO takes the best 100, here all count.
    """
    outcomes = outcomes_of(results, len(class_names), iou_threshold)
    return [_curve_of(name, one) for name, one in zip(class_names, outcomes)]


def as_one_class(results: Sequence[ImageResult]) -> list[ImageResult]:
    """The results if all classes were one: how well objects are found."""
    return [
        dataclasses.replace(
            result,
            labels=np.zeros_like(result.labels),
            truth_labels=np.zeros_like(result.truth_labels),
        )
        for result in results
    ]


def average_precisions(
    results: Sequence[ImageResult],
    num_classes: int,
    *,
    area_range: tuple[float, float] = EVERY_AREA,
) -> np.ndarray:
    """COCO's average precision of each class at its ten IoU thresholds, `[10, C]`.

    IoU 0.5 comes first; -1 is for a class without objects.
    """
    outcomes = (
        outcomes_of(results, num_classes, threshold, area_range=area_range)
        for threshold in COCO_IOU_THRESHOLDS.tolist()
    )
    return np.array(
        [[_curve_of("", one).average_precision for one in row] for row in outcomes]
    )


def _curve_of(name: str, outcomes: Outcomes) -> PrecisionRecallCurve:
    scores, is_true, num_objects = outcomes
    num_true = np.cumsum(is_true)
    if num_objects:
        recall = num_true / num_objects
    else:
        recall = np.full(len(num_true), UNMEASURED)
    precision = num_true / np.arange(1, len(num_true) + 1)
    return PrecisionRecallCurve(name, num_objects, scores, precision, recall)


def interpolated_ap(
    true: np.ndarray, counted: np.ndarray, num_objects: int
) -> np.ndarray:
    """COCO's average precision of ranked detections of one class, `[...]`.

    With `precision(k)` and `recall(k)` of the best `k` detections:

        AP = mean over r in {0, 0.01, .. 1} of max(precision(k) for recall(k) >= r)

    and 0 for a recall that is never reached. The rule of pycocotools
    (https://cocodataset.org/#detection-eval). `true` and `counted`, ints `[..., m]`,
    best first, say how often each detection is a true positive, and how often it counts
    at all: a detection may count several times.
    """
    found, total = np.cumsum(true, axis=-1), np.cumsum(counted, axis=-1)
    precision, recall = found / np.maximum(total, 1), found / num_objects
    result = np.empty(found.shape[:-1])
    for row in np.ndindex(result.shape):
        curve = PrecisionRecallCurve("", num_objects, None, precision[row], recall[row])
        result[row] = curve.average_precision
    return result


# --- Average precision as Pascal VOC defines it.


class VOCAveragePrecision(NamedTuple):
    """Pascal VOC's average precision; -1 where there are no objects."""

    mean: float  # of the classes that have objects: "mAP"
    per_class: np.ndarray  # floats [C], in the order of the labels


def voc_average_precision(
    results: Sequence[ImageResult],
    num_classes: int,
    *,
    rule: str = "10",
    iou_threshold: float = 0.5,
) -> VOCAveragePrecision:
    """Computes Pascal VOC's average precision.

    It differs from COCO's at this IoU in two ways. A detection looks only at the object
    of its class that it overlaps most, and is wrong if a better detection has taken
    that one, even where it overlaps another. And the precision is averaged differently:
    rule "10", of 2010 and later, takes the area under the curve of the best precision
    at each recall or a higher one; rule "07", of 2007 to 2009, takes the mean of that
    precision at the eleven recalls 0, 0.1, ..., 1.

    Difficult objects (crowd regions, in an `ImageResult`) are neither found nor missed,
    and a detection that overlaps one of them most is ignored.

    Source: Everingham et al., "The Pascal Visual Object Classes Challenge: A
    Retrospective", IJCV 2015, section 2.4; the VOC2010 development kit, sections 3.4.1
    and 4.4. The kit counts a box from 0 to 9 as ten pixels wide, and adds 1 to each
    side for its IoU, which is then higher for small objects. Here, as in the Object
    Detection API and google/automl, corners are real numbers, and nothing is added.
    """
    outcomes = outcomes_of(
        results, num_classes, iou_threshold, match=_match_most_overlapped
    )
    curves = [_curve_of("", one) for one in outcomes]
    if rule == "10":
        per_class = np.array([_area_under(curve) for curve in curves])
    else:
        # 3 / 10 equals the recall of three objects of ten; 3 * 0.1 is above it.
        recalls = np.arange(11) / 10
        per_class = np.array([curve.mean_precision(recalls) for curve in curves])
    return VOCAveragePrecision(mean_of_measured(per_class), per_class)


def _match_most_overlapped(result: ImageResult, iou_threshold: float) -> Matches:
    """Gives each detection the object of its class that it overlaps most, once."""
    num_found, num_true = len(result.boxes), len(result.truth_boxes)
    truth, detection = np.full(num_found, NONE), np.full(num_true, NONE)
    iou_of_match, is_ignored = np.zeros(num_found), np.zeros(num_found, bool)
    iou = pairwise_iou(result.boxes, result.truth_boxes)
    iou[result.labels[:, None] != result.truth_labels] = 0.0
    for row in np.flatnonzero((iou >= iou_threshold).any(axis=1)):
        most = int(np.argmax(iou[row]))  # of equal ones the first
        if result.truth_is_crowd[most]:
            is_ignored[row] = True
        elif detection[most] == NONE:
            truth[row], detection[most] = most, row
            iou_of_match[row] = iou[row, most]
    return Matches(truth, iou_of_match, is_ignored, detection)


def _area_under(curve: PrecisionRecallCurve) -> float:
    if not curve.num_objects:
        return UNMEASURED
    return float(np.sum(np.diff(curve.recall, prepend=0.0) * curve.best_precision))


# --- Average precision of a part of a dataset: of classes, of sizes, of any column.


class Slice(NamedTuple):
    """One row of a table: the average precision of a part of a dataset."""

    name: str  # which part
    num_images: int  # all of a slice of images; those that have such an object
    num_objects: int  # crowd regions not counted
    ap: float  # COCO's, mean over IoUs, and over classes with objects here; or -1
    ap50: float  # the same at IoU 0.5


def slice_by_class(
    results: Sequence[ImageResult], class_names: Sequence[str]
) -> list[Slice]:
    """The average precision of each class."""
    precisions = average_precisions(results, len(class_names))
    objects = [result.truth_labels[objects_that_count(result)] for result in results]
    return [
        _slice(name, [(x == label).sum() for x in objects], precisions[:, label])
        for label, name in enumerate(class_names)
    ]


def slice_by_object_size(
    results: Sequence[ImageResult],
    num_classes: int,
    *,
    borders: Sequence[float] = (32, 96),
) -> list[Slice]:
    """The average precision of objects of some sizes, by default of COCO's.

    The size of an object is the side of the square of its area (`truth_areas`): 20 x 5
    pixels have size 10. As in COCO's evaluation, objects of other sizes are ignored:
    they are neither missed, nor is it wrong to find them. Of the detections that found
    nothing, those of this size are wrong. An object on a border belongs to both sides.
    """
    rows = []
    for name, (low, high) in _bins(borders):
        area_range = low**2, high**2
        counts = [objects_that_count(result, area_range).sum() for result in results]
        aps = average_precisions(results, num_classes, area_range=area_range)
        rows.append(_slice(name, counts, aps))
    return rows


def slice_by_image_size(
    results: Sequence[ImageResult],
    num_classes: int,
    *,
    borders: Sequence[float] = (512, 1024),
) -> list[Slice]:
    """The average precision of images of some sizes; one on a border is of the larger.

    The size of an image is its longer side, which decides how much smaller the network
    sees it.
    """
    parts = (
        (name, [r for r in results if low <= max(r.size) < high])
        for name, (low, high) in _bins(borders)
    )
    return [_slice_of_images(*part, num_classes) for part in parts]


def slice_by_column(
    results: Sequence[ImageResult], num_classes: int, values: Mapping[int, object]
) -> list[Slice]:
    """The average precision of the images with each value, by image id, of a column.

    Slices have the order in which the values first stand in the column.
    """
    missing = [r.image_id for r in results if r.image_id not in values]
    if missing:
        raise InvalidValueError(
            "A column must have a value for every image; give those that are not known "
            f"one of their own, such as 'unknown'. Missing: {len(missing)} of "
            f"{len(results)} images, such as {missing[:5]}"
        )
    parts: dict[object, list[ImageResult]] = {value: [] for value in values.values()}
    for result in results:
        parts[values[result.image_id]].append(result)
    return [
        _slice_of_images(str(value), part, num_classes)
        for value, part in parts.items()
        if part
    ]


def _slice(name, counts, precisions):
    """A slice with `counts[i]` objects in image `i`, and precisions `[10, ...]`."""
    return Slice(
        name,
        num_images=int(np.count_nonzero(counts)),
        num_objects=int(np.sum(counts)),
        ap=mean_of_measured(precisions),
        ap50=mean_of_measured(precisions[0]),
    )


def _slice_of_images(name, results, num_classes):
    counts = [objects_that_count(result).sum() for result in results]
    row = _slice(name, counts, average_precisions(results, num_classes))
    return row._replace(num_images=len(results))


def _bins(borders):
    """Name and `(low, high)` of each bin between borders, and outside of them."""
    last = borders[-1]
    inner = [
        (f"{low:g} to {high:g} px", (low, high))
        for low, high in itertools.pairwise(borders)
    ]
    smallest = f"under {borders[0]:g} px", (0, borders[0])
    return [smallest, *inner, (f"{last:g} px and more", (last, math.inf))]
