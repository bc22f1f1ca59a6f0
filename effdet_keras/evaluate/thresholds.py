"""`ScoreSettings`: what an evaluation chose of a model's scores, to be kept with it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from effdet_keras.errors import InvalidValueError
from effdet_keras.evaluate.image_result import UNMEASURED, ImageResult
from effdet_keras.evaluate.matches import (
    Outcomes,
    match_detections,
    outcomes_of,
    pool_classes,
)


@dataclasses.dataclass(frozen=True)
class ScoreSettings:
    """A score threshold for each class, and a temperature for all scores.

    `Evaluation.score_settings` makes them, `EfficientDet.score_settings` holds them,
    and `detect(score_threshold="best")` and `detect(calibrated=True)` use them.

    The thresholds are scores as the model gives them, before the temperature. A
    temperature keeps the order of scores, so that both together show the same objects
    as the thresholds alone.

    Args:
        thresholds: floats `[C]`, 0 to 1, in the order of the model's labels: the
            lowest score to keep of each class.
        temperature: float above 0, for `apply_temperature`; None where it is not known.

    Raises:
        ValueError: If a threshold or the temperature is out of its range.

    Example:
        >>> settings = ScoreSettings([0.4, 0.25], temperature=1.5)
        >>> settings.thresholds
        (0.4, 0.25)
        >>> ScoreSettings.from_dict(settings.to_dict()) == settings
        True
    """

    thresholds: tuple[float, ...]
    temperature: float | None = None

    def __post_init__(self) -> None:
        thresholds = tuple(float(threshold) for threshold in self.thresholds)
        object.__setattr__(self, "thresholds", thresholds)
        wrong = [x for x in thresholds if not 0 <= x <= 1]
        if wrong or not thresholds:
            raise InvalidValueError(
                "`thresholds` must be a score for each class, 0 to 1. Received: "
                f"{len(thresholds)} of them{f', such as {wrong[0]}' if wrong else ''}"
            )
        if self.temperature is None:
            return
        object.__setattr__(self, "temperature", float(self.temperature))
        if not 0 < self.temperature < math.inf:
            raise InvalidValueError(
                "`temperature` must be a finite number above 0, or None. Received: "
                f"temperature={self.temperature}"
            )

    def to_dict(self) -> dict[str, Any]:
        """Returns the settings as a dict that JSON can hold.

        Returns:
            Dict of `thresholds`, a list, and `temperature`.
        """
        return {"thresholds": list(self.thresholds), "temperature": self.temperature}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> ScoreSettings:
        """Makes the settings of what `to_dict` returned.

        Args:
            fields: mapping with `thresholds` and `temperature`.

        Returns:
            `ScoreSettings`.

        Raises:
            ValueError: If a threshold or the temperature is out of its range.
        """
        return cls(fields["thresholds"], fields.get("temperature"))


# --- The score threshold with the best F1, for each class and for all.


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


# --- Calibration: whether of the detections with a score of 0.8 four in five are right.

SANE_TEMPERATURES = (0.1, 10.0)  # beyond, scores do not tell right from wrong
_MIN_TEMPERATURE, _MAX_TEMPERATURE = 0.01, 100.0
_STEPS = 60  # halvings of the range of temperatures: to the last bit of a float64
_CLOSEST = 2.0**-24  # a float32 score is no closer to 1 than this without being 1


@dataclasses.dataclass(frozen=True, eq=False)
class Calibration:
    """How often detections are right, by their scores.

    Attributes:
        edges: floats `[num_bins + 1]`, where the bins of scores begin and end; a
            score on an edge is in the lower bin.
        counts: ints `[num_bins]`, the number of detections in each.
        mean_scores: floats `[num_bins]`, their mean score; NaN in an empty bin.
        precisions: floats `[num_bins]`, the share of them that is right; NaN in an
            empty bin.
    """

    edges: np.ndarray
    counts: np.ndarray
    mean_scores: np.ndarray
    precisions: np.ndarray

    @property
    def expected_error(self) -> float:
        """The expected calibration error (ECE), 0 to 1; NaN without detections.

        The mean distance of score and precision, over all detections
        (https://arxiv.org/abs/1706.04599, equation 3).
        """
        if not self.counts.sum():
            return float("nan")
        gaps = np.abs(self.mean_scores - self.precisions)
        return float(np.nansum(self.counts * gaps) / self.counts.sum())


def measure_calibration(
    results: Sequence[ImageResult], *, iou_threshold: float = 0.5, num_bins: int = 10
) -> Calibration:
    """Compares the scores of detections with how often they are right.

    A detection is right if it found an object of its class (`iou_threshold`); one in
    a crowd region does not count. Most detections of a detector have scores near 0 and
    are wrong, and the expected error is mostly about those: leave them out with
    `[result.above(0.05) for result in results]` to ask about what people see.

    The bins have one width, as in https://arxiv.org/abs/1706.04599, section 2.

    Args:
        results: sequence of `ImageResult`.
        iou_threshold: float above 0, at most 1.
        num_bins: int above 0.

    Returns:
        `Calibration`.

    Raises:
        ValueError: If `num_bins` is not above 0.

    Example:
        >>> result = ImageResult(
        ...     1, truth_boxes=[[0, 0, 8, 8]], truth_labels=[0],
        ...     boxes=[[0, 0, 8, 8], [9, 9, 28, 28]], scores=[0.9, 0.8], labels=[0, 0])
        >>> found = measure_calibration([result], num_bins=2)
        >>> found.counts, found.precisions, round(found.expected_error, 3)
        (array([0, 2]), array([nan, 0.5]), 0.35)
    """
    if num_bins < 1:
        raise InvalidValueError(
            f"`num_bins` must be above 0. Received: num_bins={num_bins}"
        )
    scores, is_right = _scores_and_whether_right(results, iou_threshold)
    edges = np.linspace(0.0, 1.0, num_bins + 1)
    bins = np.digitize(scores, edges[1:-1], right=True)
    counts, sums, rights = (
        np.bincount(bins, weights, minlength=num_bins)
        for weights in (None, scores, is_right)
    )
    with np.errstate(invalid="ignore"):  # 0 / 0 in an empty bin
        return Calibration(edges, counts, sums / counts, rights / counts)


def find_temperature(
    results: Sequence[ImageResult], *, iou_threshold: float = 0.5
) -> float:
    """Finds the temperature that makes scores most like probabilities.

    With `z = log(s / (1 - s))` of a score `s` and `y = 1` of a detection that is
    right, 0 of one that is wrong, it has the smallest negative log likelihood

        sum(log(1 + exp(z / T)) - y * z / T)

    (https://arxiv.org/abs/1706.04599, section 4.2, for scores that are sigmoids).
    Above 1 the scores were too sure of themselves, below 1 not sure enough. The sum is
    convex in `1 / T`, so that halving the range of temperatures, 0.01 to 100, finds it.

    A temperature keeps the order of detections, and so every AP. It cannot help where
    even the best score of a detector is below 0.5: scores below stay below.

    Args:
        results: sequence of `ImageResult`: not those of the training images.
        iou_threshold: float above 0, at most 1.

    Returns:
        float, 0.01 to 100.

    Raises:
        ValueError: If there are not both right and wrong detections.

    Example:
        >>> result = ImageResult(
        ...     1, truth_boxes=[[0, 0, 8, 8]], truth_labels=[0],
        ...     boxes=[[0, 0, 8, 8], [20, 20, 28, 28], [40, 40, 48, 48]],
        ...     scores=[0.9, 0.9, 0.1], labels=[0, 0, 0])
        >>> temperature = find_temperature([result])
        >>> round(temperature, 2), apply_temperature([0.9, 0.1], temperature).round(3)
        (3.17, array([0.667, 0.333]))
    """
    scores, is_right = _scores_and_whether_right(results, iou_threshold)
    if is_right.all() or not is_right.any():
        raise InvalidValueError(
            "A temperature needs detections that are right and some that are wrong. "
            f"Received: {len(scores)} detections, {int(is_right.sum())} of them right. "
            "Pass the results of more images, with detections of low scores too."
        )
    logits = _logits(np.clip(scores, _CLOSEST, 1 - _CLOSEST))
    low, high = np.log(_MIN_TEMPERATURE), np.log(_MAX_TEMPERATURE)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        # The derivative of the sum by 1 / T.
        slope = np.sum(logits * (_sigmoid(logits / np.exp(middle)) - is_right))
        low, high = (middle, high) if slope > 0 else (low, middle)
    return float(np.exp((low + high) / 2))


def apply_temperature(scores: ArrayLike, temperature: float) -> np.ndarray:
    """Computes the scores that a temperature makes of scores.

        sigmoid(log(s / (1 - s)) / T)

    Args:
        scores: floats of any shape, 0 to 1.
        temperature: float above 0.

    Returns:
        Float64 array of that shape, 0 to 1.

    Raises:
        ValueError: If the temperature is not above 0, or a score not within 0 and 1.

    Example:
        >>> apply_temperature([0.0, 0.2, 0.5, 0.8, 1.0], 2.0).round(3)
        array([0.   , 0.333, 0.5  , 0.667, 1.   ])
    """
    scores = np.asarray(scores, float)
    if not temperature > 0:
        raise InvalidValueError(
            f"`temperature` must be above 0. Received: temperature={temperature}"
        )
    if not ((scores >= 0) & (scores <= 1)).all():
        raise InvalidValueError(
            "`scores` must be within 0 and 1: a temperature is for probabilities, not "
            f"for logits. Received: {scores.min()} to {scores.max()}"
        )
    return _sigmoid(_logits(scores) / temperature)


def _scores_and_whether_right(results, iou_threshold):
    """Of all detections that count: floats `[m]`, bools `[m]`."""
    scores, is_right = [np.zeros(0)], [np.zeros(0, bool)]
    for result in results:
        matches = match_detections(result, iou_threshold)
        scores.append(result.scores[~matches.is_ignored])
        is_right.append(matches.is_true[~matches.is_ignored])
    return np.concatenate(scores), np.concatenate(is_right)


def _logits(scores):
    with np.errstate(divide="ignore"):  # infinite at 0 and at 1
        return np.log(scores) - np.log1p(-scores)


def _sigmoid(logits):
    return np.exp(-np.logaddexp(0.0, -logits))
