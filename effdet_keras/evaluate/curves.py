"""Precision and recall at every score, and the average precision of COCO from them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from effdet_keras.box_ops import pairwise_iou
from effdet_keras.errors import InvalidValueError
from effdet_keras.evaluate.image_result import UNMEASURED, ImageResult, mean_of_measured
from effdet_keras.evaluate.matches import (
    EVERY_AREA,
    NONE,
    Matches,
    Outcomes,
    match_detections,
    outcomes_of,
    pool_outcomes,
)

# By `linspace`, as in pycocotools: its recall 0.35 is a little above 7 / 20.
COCO_IOU_THRESHOLDS = np.linspace(0.5, 0.95, 10)
COCO_RECALLS = np.linspace(0.0, 1.0, 101)


@dataclasses.dataclass(frozen=True, eq=False)
class PrecisionRecallCurve:
    """What precision and recall become with each further detection, best first.

    Ignored detections, such as those in crowd regions, are left out.

    Attributes:
        name: string, the class.
        num_objects: int, how many objects there were to find.
        scores: floats `[k]`, descending.
        precision: floats `[k]`, of the detections up to this one, the share that is
            right.
        recall: floats `[k]`, the share of the objects that they found; -1 where there
            are no objects.

    Example:
        >>> curve = PrecisionRecallCurve(
        ...     "cat", 2, scores=np.array([0.9, 0.8, 0.7]),
        ...     precision=np.array([1.0, 0.5, 0.75]), recall=np.array([0.5, 0.5, 1.0]))
        >>> curve.best_precision
        array([1.  , 0.75, 0.75])
        >>> curve.mean_precision([0.25, 0.75])
        0.875
    """

    name: str
    num_objects: int
    scores: np.ndarray
    precision: np.ndarray
    recall: np.ndarray

    @property
    def best_precision(self) -> np.ndarray:
        """Floats `[k]`: the best precision at this recall or a higher one."""
        return np.maximum.accumulate(self.precision[::-1])[::-1]

    @property
    def average_precision(self) -> float:
        """COCO's: the mean of the best precision at the recalls 0, 0.01, ..., 1."""
        return self.mean_precision(COCO_RECALLS)

    def mean_precision(self, recalls: ArrayLike) -> float:
        """Computes the mean of the best precision at some recalls.

        Args:
            recalls: floats `[r]`, 0 to 1. The precision at a recall that was not
                reached is 0.

        Returns:
            Float, 0 to 1; -1 where there are no objects.
        """
        if not self.num_objects:
            return UNMEASURED
        return float(self.best_precision_at(recalls).mean())

    def best_precision_at(self, recalls: ArrayLike) -> np.ndarray:
        """The best precision at each of some recalls, or at a higher one.

        Args:
            recalls: floats `[r]`, 0 to 1.

        Returns:
            Float64 array `[r]`; 0 at a recall that was not reached.
        """
        places = np.searchsorted(self.recall, np.asarray(recalls, float), side="left")
        return np.append(self.best_precision, 0.0)[places]


def precision_recall_curves(
    results: Sequence[ImageResult],
    class_names: Sequence[str],
    *,
    iou_threshold: float = 0.5,
) -> list[PrecisionRecallCurve]:
    """Computes the precision-recall curve of each class.

    Detections find objects by the rule of COCO, and `average_precision` of a curve is
    COCO's AP of the class at this IoU (AP50 at 0.5), if no image has more than 100
    detections of a class: COCO takes the best 100, and here all count.

    Args:
        results: an `ImageResult` per image, also for images without objects.
        class_names: strings `[C]`, in the order of the labels.
        iou_threshold: float above 0, at most 1.

    Returns:
        List of `C` `PrecisionRecallCurve`, in the order of the labels.

    Raises:
        InvalidValueError: If a label has no name, or the threshold is out of its range.

    Example:
        >>> result = ImageResult(
        ...     1, truth_boxes=[[0, 0, 8, 8], [20, 20, 28, 28]], truth_labels=[0, 0],
        ...     boxes=[[0, 0, 8, 8], [40, 40, 48, 48], [20, 20, 28, 28]],
        ...     scores=[0.9, 0.8, 0.7], labels=[0, 0, 0])
        >>> [curve] = precision_recall_curves([result], ["cat"])
        >>> curve.precision.round(3), curve.recall
        (array([1.   , 0.5  , 0.667]), array([0.5, 0.5, 1. ]))
        >>> round(curve.average_precision, 3)  # 51 recalls with 1, 50 with 2 / 3
        0.835
    """
    outcomes = outcomes_of(results, class_names, iou_threshold)
    return [curve_of(name, one) for name, one in zip(class_names, outcomes)]


def class_agnostic_curve(
    results: Sequence[ImageResult], *, iou_threshold: float = 0.5
) -> PrecisionRecallCurve:
    """Computes the precision-recall curve of all classes as one.

    A detection of an object is right whatever class it says: how well a model finds
    objects, apart from how well it tells them apart.

    Args:
        results: an `ImageResult` per image, also for images without objects.
        iou_threshold: float above 0, at most 1.

    Returns:
        `PrecisionRecallCurve`, with the name "all classes".

    Raises:
        InvalidValueError: If the threshold is out of its range.

    Example:
        >>> result = ImageResult(
        ...     1, truth_boxes=[[0, 0, 8, 8]], truth_labels=[0],
        ...     boxes=[[0, 0, 8, 8]], scores=[0.9], labels=[1])
        >>> class_agnostic_curve([result]).average_precision
        1.0
    """
    names = ["all classes"]
    return precision_recall_curves(
        _as_one_class(results), names, iou_threshold=iou_threshold
    )[0]


def class_agnostic_average_precision(results: Sequence[ImageResult]) -> float:
    """Computes COCO's AP, over ten IoU thresholds, of all classes as one.

    Args:
        results: an `ImageResult` per image, also for images without objects.

    Returns:
        Float, 0 to 1; -1 where there are no objects.

    Example:
        >>> result = ImageResult(
        ...     1, truth_boxes=[[0, 0, 10, 10]], truth_labels=[0],
        ...     boxes=[[0, 0, 10, 8.2]], scores=[0.9], labels=[1])
        >>> class_agnostic_average_precision([result])  # up to 0.8: 7 of 10 thresholds
        0.7
    """
    return mean_of_measured(average_precisions(_as_one_class(results), 1))


def average_precisions(
    results: Sequence[ImageResult],
    num_classes: int,
    *,
    area_range: tuple[float, float] = EVERY_AREA,
) -> np.ndarray:
    """COCO's average precision of each class at its ten IoU thresholds, `[10, C]`.

    IoU 0.5 comes first; -1 is for a class without objects.
    """
    rows = []
    for threshold in COCO_IOU_THRESHOLDS.tolist():
        matches = [
            match_detections(r, threshold, area_range=area_range) for r in results
        ]
        outcomes = pool_outcomes(results, matches, num_classes, area_range=area_range)
        rows.append([curve_of("", one).average_precision for one in outcomes])
    return np.array(rows)


def curve_of(name: str, outcomes: Outcomes) -> PrecisionRecallCurve:
    """The curve of a class from its right and wrong detections."""
    num_true = np.cumsum(outcomes.is_true)
    num_shown = np.arange(1, len(num_true) + 1)
    if outcomes.num_objects:
        recall = num_true / outcomes.num_objects
    else:
        recall = np.full(len(num_true), UNMEASURED)
    return PrecisionRecallCurve(
        name, outcomes.num_objects, outcomes.scores, num_true / num_shown, recall
    )


def _as_one_class(results):
    return [
        dataclasses.replace(
            result,
            labels=np.zeros_like(result.labels),
            truth_labels=np.zeros_like(result.truth_labels),
        )
        for result in results
    ]


def interpolated_ap(
    true: np.ndarray, counted: np.ndarray, num_objects: int
) -> np.ndarray:
    """COCO's average precision of ranked detections of one class, `[...]`.

    With `precision(k)` and `recall(k)` of the best `k` detections:

        AP = mean over r in {0, 0.01, .. 1} of max(precision(k) for recall(k) >= r)

    and 0 for a recall that is never reached. The rule of pycocotools
    (https://cocodataset.org/#detection-eval). A detection may count several times: its
    weight stands in both arrays.

    Args:
        true: ints `[..., m]`, best first: how often each counts as a true positive.
        counted: ints `[..., m]`: how often it counts at all, as right or as wrong.
    """
    found, total = np.cumsum(true, axis=-1), np.cumsum(counted, axis=-1)
    precision, recall = found / np.maximum(total, 1), found / num_objects
    result = np.empty(found.shape[:-1])
    for row in np.ndindex(result.shape):
        curve = PrecisionRecallCurve("", num_objects, None, precision[row], recall[row])
        result[row] = curve.average_precision
    return result


# --- Average precision as Pascal VOC defines it.


@dataclasses.dataclass(frozen=True, eq=False)
class VOCAveragePrecision:
    """Pascal VOC's average precision of each class, and their mean.

    Attributes:
        mean: float, the mean of the classes that have objects ("mAP"); -1 where none
            has.
        per_class: floats `[C]`, in the order of the labels; -1 for a class without
            objects.
    """

    mean: float
    per_class: np.ndarray


def voc_average_precision(
    results: Sequence[ImageResult],
    class_names: Sequence[str],
    *,
    rule: Literal["07", "10"] = "10",
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

    Args:
        results: an `ImageResult` per image, also for images without objects.
        class_names: strings `[C]`, in the order of the labels.
        rule: "07" or "10", how the precision is averaged.
        iou_threshold: float above 0, at most 1. VOC uses 0.5.

    Returns:
        `VOCAveragePrecision`.

    Raises:
        InvalidValueError: If a label has no name, or another argument is out of its
            range.

    Example:
        >>> result = ImageResult(
        ...     1, truth_boxes=[[0, 0, 8, 8], [20, 20, 28, 28]], truth_labels=[0, 0],
        ...     boxes=[[0, 0, 8, 8], [40, 40, 48, 48], [20, 20, 28, 28]],
        ...     scores=[0.9, 0.8, 0.7], labels=[0, 0, 0])
        >>> names = ["cat", "dog"]
        >>> voc_average_precision([result], names).per_class.round(3)
        array([ 0.833, -1.   ])
        >>> round(voc_average_precision([result], names, rule="07").mean, 3)
        0.848
    """
    if rule not in ("07", "10"):
        raise InvalidValueError(
            "`rule` must be '07', the mean at eleven recalls, or '10', the area under "
            f"the curve. Received: rule={rule!r}"
        )
    outcomes = outcomes_of(results, class_names, iou_threshold, _match_most_overlapped)
    curves = [curve_of(name, one) for name, one in zip(class_names, outcomes)]
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
