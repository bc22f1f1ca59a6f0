"""Score thresholds and calibration of scores by a temperature."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from effdet_keras._internal.number_ranges import (
    check_number,
    check_number_fields,
    number,
    several,
)
from effdet_keras.errors import check_argument
from effdet_keras.evaluate.image_result import (
    UNMEASURED,
    ImageResult,
    Outcomes,
    concat_arrays,
    match_detections,
    outcomes_of,
)


@dataclasses.dataclass(frozen=True)
class ScoreSettings:
    """A score threshold for each class, and a temperature for all scores.

    `Evaluation.score_settings` creates them, and `EfficientDet.score_settings` stores
    them.

    Args:
        thresholds: floats `[C]`, 0 to 1, in the order of the model's labels: the lowest
            score to keep for each class. It applies to scores before calibration by the
            temperature.
        temperature: float above 0, for `apply_temperature`; None if it is not known.

    Raises:
        ValueError: If a threshold or the temperature is out of its range.

    Example:
        >>> settings = ScoreSettings([0.4, 0.25], temperature=1.5)
        >>> settings.thresholds
        (0.4, 0.25)
        >>> ScoreSettings.from_dict(settings.to_dict()) == settings
        True
    """

    thresholds: tuple[float, ...] = several(dataclasses.MISSING, "[0, 1]")
    temperature: float | None = number(None, "(0, inf)")

    def __post_init__(self) -> None:
        check_number_fields(self)
        thresholds = tuple(float(threshold) for threshold in self.thresholds)
        object.__setattr__(self, "thresholds", thresholds)
        if self.temperature is not None:
            object.__setattr__(self, "temperature", float(self.temperature))

    def to_dict(self) -> dict[str, Any]:
        """Returns a dict of `thresholds`, a list, and `temperature`, for JSON."""
        return {"thresholds": list(self.thresholds), "temperature": self.temperature}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> ScoreSettings:
        """Creates the settings from the dict of `to_dict`."""
        return cls(fields["thresholds"], fields.get("temperature"))


# --- The score threshold with the best F1, for each class and for all classes.


class BestThreshold(NamedTuple):
    """The score threshold with the best F1; F1 and the rest are -1 without objects."""

    name: str  # the class
    threshold: float  # the lowest score to show; infinity if it is best to show none
    f1: float  # the harmonic mean of precision and recall
    precision: float  # the share of shown detections that are right; -1 without any
    recall: float  # the share of objects that are found by shown detections


def best_thresholds(
    results: Sequence[ImageResult], class_names: Sequence[str]
) -> list[BestThreshold]:
    """Finds the threshold with the best F1 for each class, then one for all classes.

    `F1 = 2 TP / (2 TP + FP + FN)`. If several thresholds have the best F1, the highest
    is taken.

    Args:
        results: one `ImageResult` per image.
        class_names: strings `[C]`, in the order of the labels.

    Returns:
        List of `C + 1` `BestThreshold`; the last is for all classes together.
    """
    # Detections are matched in descending order of scores. So a threshold does not
    # change the matches of the detections above it.
    outcomes = outcomes_of(results, len(class_names))
    scores = concat_arrays([one.scores for one in outcomes])
    is_true = concat_arrays([one.is_true for one in outcomes], bool)
    order = np.argsort(-scores, kind="stable")
    num_objects = sum(one.num_objects for one in outcomes)
    together = "all classes", Outcomes(scores[order], is_true[order], num_objects)
    return [_best(*one) for one in (*zip(class_names, outcomes), together)]


def _best(name: str, outcomes: Outcomes) -> BestThreshold:
    """Finds the threshold with the best F1; scores are in descending order."""
    scores, is_true, num_objects = outcomes
    if not num_objects:
        return BestThreshold(name, math.inf, UNMEASURED, UNMEASURED, UNMEASURED)
    # A threshold shows either all or none of the detections with equal scores. The
    # first threshold shows nothing.
    is_last = np.diff(scores, append=-math.inf) < 0
    thresholds = np.append(math.inf, scores[is_last])
    num_shown = np.append(0, np.flatnonzero(is_last) + 1)
    num_true = np.append(0, np.cumsum(is_true)[is_last])
    f1 = 2 * num_true / (num_shown + num_objects)
    best = int(np.argmax(f1))  # the first of equal values: the highest threshold
    return BestThreshold(
        name,
        threshold=float(thresholds[best]),
        f1=float(f1[best]),
        precision=float(num_true[best] / num_shown[best]) if best else UNMEASURED,
        recall=float(num_true[best] / num_objects),
    )


# --- Calibration: with calibrated scores, 80 % of detections with score 0.8 are right.

SANE_TEMPERATURES = (0.1, 10.0)  # outside, scores do not separate right from wrong
_MIN_TEMPERATURE, _MAX_TEMPERATURE = 0.01, 100.0
_STEPS = 60  # bisections of the temperature range: down to the last bit of a float64
_CLOSEST = 2.0**-24  # the least distance from 1 of a float32 score that is not 1


def find_temperature(results: Sequence[ImageResult]) -> float | None:
    """Finds the temperature that makes scores as close as possible to probabilities.

    Let `z = log(s / (1 - s))` be the logit of a score `s`, and `y` be 1 for a right
    detection and 0 for a wrong one. The temperature `T` minimizes the cross-entropy

        sum(log(1 + exp(z / T)) - y * z / T)

    (https://arxiv.org/abs/1706.04599, section 4.2), which is convex in `1 / T`.

    Returns:
        Float, 0.01 to 100; None if no detection is right, or none is wrong.
    """
    scores, is_right = scores_and_whether_right(results)
    if is_right.all() or not is_right.any():
        return None
    logits = _logits(np.clip(scores, _CLOSEST, 1 - _CLOSEST))
    low, high = np.log(_MIN_TEMPERATURE), np.log(_MAX_TEMPERATURE)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        # The derivative of the sum with respect to 1 / T.
        slope = np.sum(logits * (_sigmoid(logits / np.exp(middle)) - is_right))
        low, high = (middle, high) if slope > 0 else (low, middle)
    return float(np.exp((low + high) / 2))


def apply_temperature(scores: ArrayLike, temperature: float) -> np.ndarray:
    """Computes `sigmoid(log(s / (1 - s)) / T)` of scores `s` and a temperature `T`.

    This is temperature scaling (https://arxiv.org/abs/1706.04599, section 4.2).

    Args:
        scores: floats of any shape, 0 to 1.
        temperature: float above 0.

    Returns:
        Float64 array of the shape of `scores`, 0 to 1.

    Raises:
        ValueError: If the temperature is not above 0, or a score is not between 0 and
            1.

    Example:
        >>> apply_temperature([0.0, 0.2, 0.5, 0.8, 1.0], 2.0).round(3)
        array([0.   , 0.333, 0.5  , 0.667, 1.   ])
    """
    scores = np.asarray(scores, float)
    check_number("temperature", temperature, "(0, inf)")
    are_shares = ((scores >= 0) & (scores <= 1)).all()
    check_argument(are_shares, "scores", scores, "from 0 to 1; logits are not accepted")
    return _sigmoid(_logits(scores) / temperature)


def scores_and_whether_right(results):
    """Returns scores, and whether they are right, of all detections not ignored.

    Both are arrays `[m]`, floats and bools.
    """
    matches = [match_detections(result) for result in results]
    counts = ~concat_arrays([one.is_ignored for one in matches], bool)
    scores = concat_arrays([result.scores for result in results])
    return scores[counts], concat_arrays([one.is_true for one in matches], bool)[counts]


def _logits(scores):
    with np.errstate(divide="ignore"):  # infinite at 0 and at 1
        return np.log(scores) - np.log1p(-scores)


def _sigmoid(logits):
    return np.exp(-np.logaddexp(0.0, -logits))
