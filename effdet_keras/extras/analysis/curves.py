"""Precision and recall, Pascal VOC's average precision, and COCO's AP of parts."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from effdet_keras.box_ops import pairwise_iou
from effdet_keras.errors import require
from effdet_keras.evaluate.coco import average_precisions
from effdet_keras.evaluate.image_result import (
    NONE,
    UNMEASURED,
    Matches,
    mean_of_measured,
    outcomes_of,
)
from effdet_keras.evaluate.thresholds import scores_and_whether_right

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
        if not self.num_objects:
            return UNMEASURED
        return float(self.best_precision_at(COCO_RECALLS).mean())

    def best_precision_at(self, recalls: ArrayLike) -> np.ndarray:
        """Floats `[r]`: the best precision at each recall, 0 where not reached."""
        places = np.searchsorted(self.recall, np.asarray(recalls, float), side="left")
        return np.append(self.best_precision, 0.0)[places]


def precision_recall_curves(results, class_names, *, iou_threshold=0.5):
    """The precision-recall curve of each class, by COCO's matching."""
    outcomes = outcomes_of(results, len(class_names), iou_threshold)
    return [_curve_of(name, one) for name, one in zip(class_names, outcomes)]


def _curve_of(name, outcomes):
    scores, is_true, num_objects = outcomes
    num_true = np.cumsum(is_true)
    unmeasured = np.full(len(num_true), UNMEASURED)
    recall = num_true / num_objects if num_objects else unmeasured
    precision = num_true / np.arange(1, len(num_true) + 1)
    return PrecisionRecallCurve(name, num_objects, scores, precision, recall)


def interpolated_ap(true, counted, num_objects):
    """COCO's average precision, `[...]`, of detections of one class, `[..., m]`.

    Best first, each is `true` so often, of the times that it is `counted`.
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


def voc_average_precision(results, num_classes, *, iou_threshold=0.5):
    """Computes Pascal VOC's average precision, by the rule of 2010.

    It is the area under the curve of the best precision at each recall or a higher one.
    Everingham et al., "The Pascal Visual Object Classes Challenge: A Retrospective",
    IJCV 2015, section 2.4. The VOC2010 kit adds 1 to each side of a box for its IoU;
    here, as in the Object Detection API and google/automl, nothing is added.
    """
    outcomes = outcomes_of(
        results, num_classes, iou_threshold, match=_match_most_overlapped
    )
    per_class = np.array([_area_under(_curve_of("", one)) for one in outcomes])
    return VOCAveragePrecision(mean_of_measured(per_class), per_class)


def _match_most_overlapped(result, iou_threshold):
    """Gives each detection the object of its class that it overlaps most, if free.

    It is ignored where that is a difficult object (a crowd region).
    """
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


def _area_under(curve):
    if not curve.num_objects:
        return UNMEASURED
    return float(np.sum(np.diff(curve.recall, prepend=0.0) * curve.best_precision))


# --- COCO's AP of a part of a dataset: of classes, of sizes, of any column.

EMPTY = "(empty)"  # the part of the images without a value
_OBJECT_SIZES = (("under 32 px", 0, 32), ("32 to 96 px", 32, 96))
_OBJECT_SIZES += (("96 px and more", 96, math.inf),)  # COCO's: both ends belong to it


class Slice(NamedTuple):
    """One row of a table: the average precision of a part of a dataset."""

    name: str  # which part
    num_images: int  # all of a slice of images; those that have such an object
    num_objects: int  # crowd regions not counted
    ap: float  # COCO's, mean over IoUs, and over classes with objects here; or -1
    ap50: float  # the same at IoU 0.5


def slice_by_class_and_size(results, class_names):
    """The average precision of each class, and of objects of COCO's three sizes."""
    precisions = average_precisions(results, len(class_names))
    objects = [x.truth_labels[~x.truth_is_crowd] for x in results]
    image_of = np.repeat(np.arange(len(results)), [len(x) for x in objects])
    label_of = np.concatenate([*objects, np.zeros(0, int)])
    areas = [x.truth_areas[~x.truth_is_crowd] for x in results]
    by_class, by_size = [], []
    for label, name in enumerate(class_names):
        counts = np.bincount(image_of[label_of == label], minlength=len(results))
        by_class.append(_slice(name, counts, precisions[:, label, 0]))
    for place, (name, low, high) in enumerate(_OBJECT_SIZES, 1):
        counts = [np.sum((x >= low**2) & (x <= high**2)) for x in areas]
        by_size.append(_slice(name, counts, precisions[..., place]))
    return by_class, by_size


def slice_by_column(results, num_classes, values):
    """The average precision of the images with each value, by image id, of a column.

    Images without a value, None, NaN or pandas' NA, are one part, "(empty)".
    """
    missing = [r.image_id for r in results if r.image_id not in values]
    rule = "A column must have a value for every image"
    require(not missing, rule, missing=missing[:5])
    values = {i: EMPTY if _is_missing(x) else x for i, x in values.items()}
    slices = []
    for value in dict.fromkeys(values.values()):
        part = [x for x in results if values[x.image_id] == value]
        if part:
            counts = [np.sum(~x.truth_is_crowd) for x in part]
            precisions = average_precisions(part, num_classes)[..., 0]
            row = _slice(str(value), counts, precisions)
            slices.append(row._replace(num_images=len(part)))
    return slices


def _is_missing(value):
    """Whether it is None, or unlike itself, as NaN and NaT are."""
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas' NA, of which that is unknown
        return True


def _slice(name, counts, precisions):
    """A slice with `counts[i]` objects in image `i`, and precisions `[10, ...]`."""
    return Slice(
        name,
        num_images=int(np.count_nonzero(counts)),
        num_objects=int(np.sum(counts)),
        ap=mean_of_measured(precisions),
        ap50=mean_of_measured(precisions[0]),
    )


# --- Calibration: whether of the detections with a score of 0.8 four in five are right.


class Calibration(NamedTuple):
    """How often detections are right, in bins of scores."""

    edges: np.ndarray  # floats [bins + 1]; a score on an edge is in the lower bin
    counts: np.ndarray  # ints [bins], the number of detections
    mean_scores: np.ndarray  # floats [bins]; NaN in an empty bin
    precisions: np.ndarray  # floats [bins], the share that is right; or NaN

    @property
    def expected_error(self) -> float:
        """The expected calibration error (https://arxiv.org/abs/1706.04599), or NaN."""
        if not self.counts.sum():
            return math.nan
        gaps = np.abs(self.mean_scores - self.precisions)
        return float(np.nansum(self.counts * gaps) / self.counts.sum())


def measure_calibration(results, *, num_bins=10):
    """Compares the scores of detections with how often they are right."""
    scores, is_right = scores_and_whether_right(results)
    edges = np.linspace(0.0, 1.0, num_bins + 1)
    bins = np.digitize(scores, edges[1:-1], right=True)
    counts, sums, rights = (
        np.bincount(bins, weights, minlength=num_bins)
        for weights in (None, scores, is_right)
    )
    with np.errstate(invalid="ignore"):  # 0 / 0 in an empty bin
        return Calibration(edges, counts, sums / counts, rights / counts)
