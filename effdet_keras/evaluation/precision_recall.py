"""Precision and recall at every score, and the average precision of COCO from them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from effdet_keras.evaluation.image_result import ImageResult
from effdet_keras.evaluation.interpolated_ap import (
    COCO_RECALLS,
    best_precision,
    precision_at_recalls,
)
from effdet_keras.evaluation.matches import EVERY_AREA, match_detections
from effdet_keras.evaluation.outcomes import Outcomes, outcomes_of, pool_outcomes
from effdet_keras.evaluation.unmeasured import UNMEASURED, mean_of_measured

# By `linspace`, as in pycocotools, and as its recalls.
COCO_IOU_THRESHOLDS = np.linspace(0.5, 0.95, 10)


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
        return best_precision(self.precision)

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
        return precision_at_recalls(self.recall, self.best_precision, recalls)


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
    """Computes COCO's average precision of each class at its ten IoU thresholds.

    Args:
        results: an `ImageResult` per image.
        num_classes: int, `C`; all labels are below it.
        area_range: `(low, high)` in square pixels: objects of other areas are ignored.

    Returns:
        Float64 array `[10, C]`, IoU 0.5 first; -1 for a class without objects.

    Example:
        >>> result = ImageResult(
        ...     1, [[0, 0, 10, 10]], [0], [[0, 0, 10, 8.2]], [0.9], [0])
        >>> average_precisions([result], 2)[[0, 9]]
        array([[ 1., -1.],
               [ 0., -1.]])
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
    """Computes the curve of a class from its right and wrong detections.

    Example:
        >>> curve_of("cat", Outcomes(np.array([0.9]), np.array([True]), 4)).recall
        array([0.25])
    """
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
