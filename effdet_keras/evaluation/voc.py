"""Average precision as Pascal VOC defines it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

import numpy as np

from effdet_keras.errors import InvalidValueError
from effdet_keras.evaluation.image_result import ImageResult
from effdet_keras.evaluation.matches import NONE, Matches, pairwise_iou
from effdet_keras.evaluation.outcomes import outcomes_of
from effdet_keras.evaluation.precision_recall import PrecisionRecallCurve, curve_of
from effdet_keras.evaluation.unmeasured import UNMEASURED, mean_of_measured


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
    if rule not in _RULES:
        raise InvalidValueError(
            "`rule` must be '07', the mean at eleven recalls, or '10', the area under "
            f"the curve. Received: rule={rule!r}"
        )
    outcomes = outcomes_of(results, class_names, iou_threshold, _match_most_overlapped)
    curves = [curve_of(name, one) for name, one in zip(class_names, outcomes)]
    per_class = np.array([_RULES[rule](curve) for curve in curves])
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


def _at_eleven_recalls(curve: PrecisionRecallCurve) -> float:
    # 3 / 10 equals the recall of three objects of ten; 3 * 0.1 is above it.
    return curve.mean_precision(np.arange(11) / 10)


def _area_under(curve: PrecisionRecallCurve) -> float:
    if not curve.num_objects:
        return UNMEASURED
    return float(np.sum(np.diff(curve.recall, prepend=0.0) * curve.best_precision))


_RULES = {"07": _at_eleven_recalls, "10": _area_under}
