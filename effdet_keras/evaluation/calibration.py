"""Calibration: whether of the detections with a score of 0.8 four in five are right."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from effdet_keras.errors import InvalidValueError
from effdet_keras.evaluation.image_result import ImageResult
from effdet_keras.evaluation.matches import match_detections

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
