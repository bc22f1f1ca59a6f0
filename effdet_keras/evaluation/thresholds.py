"""The score threshold with the best F1, for each class and for all."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from effdet_keras.evaluation.image_result import ImageResult
from effdet_keras.evaluation.outcomes import Outcomes, outcomes_of, pool_classes
from effdet_keras.evaluation.unmeasured import UNMEASURED


@dataclasses.dataclass(frozen=True)
class BestThreshold:
    """A score threshold with the best F1, and what it gives.

    Attributes:
        name: string, the class.
        threshold: float: show detections with this score or a higher one. Infinity
            where it is best to show none: nothing was found rightly.
        f1: float, 0 to 1, the harmonic mean of precision and recall; -1 where there
            are no objects, as the next two.
        precision: float, the share of the shown detections that is right; -1 where
            none is shown.
        recall: float, the share of the objects that they found.
    """

    name: str
    threshold: float
    f1: float
    precision: float
    recall: float


def best_thresholds(
    results: Sequence[ImageResult],
    class_names: Sequence[str],
    *,
    iou_threshold: float = 0.5,
) -> list[BestThreshold]:
    """Finds for each class the score threshold with the best F1.

    With `TP` right and `FP` wrong detections shown, and `FN` objects not found,

        F1 = 2 TP / (2 TP + FP + FN)

    Tried are the scores of the detections. Of thresholds with one F1 the highest is
    taken: it shows the fewest detections. Choose thresholds on other images than those
    they are judged by; few objects make a threshold a matter of luck.

    Args:
        results: an `ImageResult` per image, with detections down to a low score.
        class_names: strings `[C]`, in the order of the labels.
        iou_threshold: float above 0, at most 1.

    Returns:
        List of `C` `BestThreshold`, in the order of the labels.

    Raises:
        InvalidValueError: If a label has no name, or the threshold is out of its range.

    Example:
        >>> result = ImageResult(
        ...     1, truth_boxes=[[0, 0, 8, 8], [20, 20, 28, 28]], truth_labels=[0, 0],
        ...     boxes=[[0, 0, 8, 8], [40, 40, 48, 48]], scores=[0.9, 0.2],
        ...     labels=[0, 0])
        >>> [cat] = best_thresholds([result], ["cat"])
        >>> cat.threshold, round(cat.f1, 3), cat.precision, cat.recall
        (0.9, 0.667, 1.0, 0.5)
    """
    # Detections choose best first, so that a threshold changes no match above it.
    outcomes = outcomes_of(results, class_names, iou_threshold)
    return [_best(name, one) for name, one in zip(class_names, outcomes)]


def best_common_threshold(
    results: Sequence[ImageResult],
    class_names: Sequence[str],
    *,
    iou_threshold: float = 0.5,
) -> BestThreshold:
    """Finds the one score threshold with the best F1 over all classes.

    A detection is right only if it says the class of its object. Every detection and
    every object counts once, so that frequent classes weigh most.

    Args:
        results: an `ImageResult` per image, with detections down to a low score.
        class_names: strings `[C]`, in the order of the labels.
        iou_threshold: float above 0, at most 1.

    Returns:
        `BestThreshold`, with the name "all classes".

    Raises:
        InvalidValueError: If a label has no name, or the threshold is out of its range.

    Example:
        >>> result = ImageResult(
        ...     1, truth_boxes=[[0, 0, 8, 8], [20, 20, 28, 28]], truth_labels=[0, 1],
        ...     boxes=[[0, 0, 8, 8], [20, 20, 28, 28]], scores=[0.9, 0.4],
        ...     labels=[0, 1])
        >>> best_common_threshold([result], ["cat", "dog"]).threshold
        0.4
    """
    outcomes = outcomes_of(results, class_names, iou_threshold)
    return _best("all classes", pool_classes(outcomes))


def _best(name: str, outcomes: Outcomes) -> BestThreshold:
    scores, num_objects = outcomes.scores, outcomes.num_objects
    if not num_objects:
        return BestThreshold(name, math.inf, UNMEASURED, UNMEASURED, UNMEASURED)
    # A threshold shows all detections of its score, or none. The first shows nothing.
    is_last = np.diff(scores, append=-math.inf) < 0
    thresholds = np.append(math.inf, scores[is_last])
    num_shown = np.append(0, np.flatnonzero(is_last) + 1)
    num_true = np.append(0, np.cumsum(outcomes.is_true)[is_last])
    f1 = 2 * num_true / (num_shown + num_objects)
    best = int(np.argmax(f1))  # of equal ones the first
    return BestThreshold(
        name,
        threshold=float(thresholds[best]),
        f1=float(f1[best]),
        precision=float(num_true[best] / num_shown[best]) if best else UNMEASURED,
        recall=float(num_true[best] / num_objects),
    )
