"""Precision and recall, Pascal VOC's AP, COCO's AP of slices, and calibration."""

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

# `linspace` as in pycocotools: its recall 0.35 is slightly greater than 7 / 20.
COCO_IOU_THRESHOLDS = np.linspace(0.5, 0.95, 10)
COCO_RECALLS = np.linspace(0.0, 1.0, 101)


class PrecisionRecallCurve(NamedTuple):
    """Precision and recall of one class, after each detection from the best down."""

    name: str  # the class
    num_objects: int  # the number of objects of this class
    scores: np.ndarray  # floats [k], descending, without ignored detections
    precision: np.ndarray  # floats [k], the fraction of detections so far that is right
    recall: np.ndarray  # floats [k], the fraction of objects that they found

    @property
    def best_precision(self) -> np.ndarray:
        """Floats `[k]`: the best precision at this or any higher recall."""
        return np.maximum.accumulate(self.precision[::-1])[::-1]

    @property
    def average_precision(self) -> float:
        """COCO's AP: the mean of the best precision at the recalls 0, 0.01, ..., 1."""
        if not self.num_objects:
            return UNMEASURED
        return float(self.best_precision_at(COCO_RECALLS).mean())

    def best_precision_at(self, recalls: ArrayLike) -> np.ndarray:
        """Returns floats `[r]`, the best precision at each recall; 0 if not reached."""
        places = np.searchsorted(self.recall, np.asarray(recalls, float), side="left")
        return np.append(self.best_precision, 0.0)[places]


def precision_recall_curves(results, class_names, *, iou_threshold=0.5):
    """Returns the `PrecisionRecallCurve` of each class, by COCO's matching.

    Args:
        results: sequence of `ImageResult`.
        class_names: sequence of strings, in the order of the labels.
        iou_threshold: float, the lowest IoU of a detection that is right.
    """
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
    """Returns COCO's AP, `[...]`, of the detections of one class, `[..., m]`.

    Detections are sorted by score. Each one is counted `counted` times, and is right
    `true` times of these.
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
    """Pascal VOC's average precision; -1 if there are no objects."""

    mean: float  # mean over the classes that have objects: "mAP"
    per_class: np.ndarray  # floats [C], in the order of the labels


def voc_average_precision(results, num_classes, *, iou_threshold=0.5):
    """Computes Pascal VOC's average precision, by the rule of 2010.

    This is the area under the curve of the best precision at each recall or a higher
    one (Everingham et al., "The Pascal Visual Object Classes Challenge: A
    Retrospective", IJCV 2015, section 2.4). The VOC2010 kit adds 1 to each side of a
    box for its IoU. Here nothing is added, as in the Object Detection API and
    google/automl.

    Args:
        results: sequence of `ImageResult`.
        num_classes: int, the number of classes `C`.
        iou_threshold: float, the lowest IoU of a detection that is right.

    Returns:
        `VOCAveragePrecision`.
    """
    outcomes = outcomes_of(
        results, num_classes, iou_threshold, match=_match_most_overlapped
    )
    per_class = np.array([_area_under(_curve_of("", one)) for one in outcomes])
    return VOCAveragePrecision(mean_of_measured(per_class), per_class)


def _match_most_overlapped(result, iou_threshold):
    """Matches each detection to the object of its class with the highest IoU, if free.

    A detection is ignored if that is a difficult object (a crowd region).
    """
    num_found, num_true = len(result.boxes), len(result.truth_boxes)
    truth, detection = np.full(num_found, NONE), np.full(num_true, NONE)
    iou_of_match, is_ignored = np.zeros(num_found), np.zeros(num_found, bool)
    iou = pairwise_iou(result.boxes, result.truth_boxes)
    iou[result.labels[:, None] != result.truth_labels] = 0.0
    for row in np.flatnonzero((iou >= iou_threshold).any(axis=1)):
        most = int(np.argmax(iou[row]))  # the first one of equal IoUs
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


# --- COCO's AP of slices of a dataset: by class, by size, or by any column.

EMPTY = "(empty)"  # the slice of images without a value
_OBJECT_SIZES = (("under 32 px", 0, 32), ("32 to 96 px", 32, 96))
_OBJECT_SIZES += (("96 px and more", 96, math.inf),)  # as in COCO, with both ends


class Slice(NamedTuple):
    """A row of a table: the average precision of a slice of a dataset."""

    name: str  # of the slice
    num_images: int  # images of the slice; for a class or size, images with an object
    num_objects: int  # without crowd regions
    ap: float  # COCO's AP, mean over IoUs, and over classes with objects here; or -1
    ap50: float  # the same at IoU 0.5


def slice_by_class_and_size(results, class_names):
    """Returns the AP of each class, and of objects of COCO's three sizes."""
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
    """Returns the AP of the images with each value of a column.

    Images without a value (None, NaN or pandas' NA) form one slice, "(empty)".

    Args:
        results: sequence of `ImageResult`.
        num_classes: int, the number of classes.
        values: dict from image id to the value in the column.

    Returns:
        List of `Slice`, one per value.

    Raises:
        ValueError: If an image has no value in the dict.
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
    """Returns whether a value is None, or differs from itself, like NaN and NaT."""
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas' NA, for which the comparison has no truth value
        return True


def _slice(name, counts, precisions):
    """Returns a slice with `counts[i]` objects in image `i`; precisions `[10, ...]`."""
    return Slice(
        name,
        num_images=int(np.count_nonzero(counts)),
        num_objects=int(np.sum(counts)),
        ap=mean_of_measured(precisions),
        ap50=mean_of_measured(precisions[0]),
    )


# --- Calibration: of the detections with a score of 0.8, four in five should be right.


class Calibration(NamedTuple):
    """The frequency with which detections are right, in bins of scores."""

    edges: np.ndarray  # floats [bins + 1]; a score on an edge is in the lower bin
    counts: np.ndarray  # ints [bins], the number of detections
    mean_scores: np.ndarray  # floats [bins]; NaN in an empty bin
    precisions: np.ndarray  # floats [bins], the fraction that is right; or NaN

    @property
    def expected_error(self) -> float:
        """The expected calibration error (https://arxiv.org/abs/1706.04599), or NaN."""
        if not self.counts.sum():
            return math.nan
        gaps = np.abs(self.mean_scores - self.precisions)
        return float(np.nansum(self.counts * gaps) / self.counts.sum())


def measure_calibration(results, *, num_bins=10):
    """Compares the scores of detections with how often they are right.

    Args:
        results: sequence of `ImageResult`.
        num_bins: int, number of bins of equal width in [0, 1].

    Returns:
        `Calibration`.
    """
    scores, is_right = scores_and_whether_right(results)
    edges = np.linspace(0.0, 1.0, num_bins + 1)
    bins = np.digitize(scores, edges[1:-1], right=True)
    counts, sums, rights = (
        np.bincount(bins, weights, minlength=num_bins)
        for weights in (None, scores, is_right)
    )
    with np.errstate(invalid="ignore"):  # 0 / 0 in an empty bin
        return Calibration(edges, counts, sums / counts, rights / counts)
