"""Which detections are shown, and with which scores: thresholds and temperature."""

from __future__ import annotations

import dataclasses
import numbers
from typing import Any, Literal, TypeAlias

import numpy as np

from effdet_keras.detections import Detections
from effdet_keras.errors import InvalidStateError, InvalidValueError
from effdet_keras.evaluation.calibration import apply_temperature
from effdet_keras.evaluation.score_settings import ScoreSettings

# The lowest score to keep, or "best" for the thresholds that are kept with the model.
ScoreThreshold: TypeAlias = float | Literal["best"]

_MARGIN = 1e-6  # of a score: an inverse temperature gives it back all but exactly
_CURE = (
    "`effdet-keras eval MODEL DATA --store-thresholds` stores them in a `.keras` file; "
    "in Python set `model.score_settings = evaluation.score_settings(model.class_names)"
    "`. Training and loading weights drop them."
)


class ScoreRule:
    """What `score_threshold` and `calibrated` of `detect` mean for one detector.

    A number is compared with the scores that are returned: with `calibrated` those
    after the temperature. "best" compares with the scores of the model itself, for
    which its thresholds were chosen, so that `calibrated` changes no choice.

    Args:
        detector: may have `score_settings`, `ScoreSettings` or None.
        score_threshold: float, 0 to 1, or "best".
        calibrated: bool, whether scores get the temperature of the detector.

    Attributes:
        lowest: float, a score of the model itself below which nothing is kept.

    Raises:
        ValueError: If `score_threshold` is neither of the two.
        RuntimeError: If the detector has no thresholds or temperature, and they are
            needed.
    """

    def __init__(
        self, detector: Any, score_threshold: ScoreThreshold, calibrated: bool = False
    ) -> None:
        check_score_threshold(score_threshold)
        settings = getattr(detector, "score_settings", None)
        self._temperature = _temperature(settings) if calibrated else None
        self._threshold = self._thresholds = None
        if score_threshold == "best":
            self._thresholds = np.array(_thresholds(settings))
            self.lowest = float(self._thresholds.min())
            return
        self._threshold = self.lowest = score_threshold
        if self._temperature is not None:
            raw = apply_temperature(score_threshold, 1 / self._temperature)
            self.lowest = max(float(raw) - _MARGIN, 0.0)

    def apply(
        self, scores: np.ndarray, labels: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Chooses among detections, and computes their scores.

        Args:
            scores: floats `[n]`, of the model itself.
            labels: ints `[n]`, `0 .. C-1`.

        Returns:
            `(kept, scores)`: bools `[n]`, and float32 `[n]` to be shown.
        """
        shown = np.asarray(scores, "float32")
        if self._temperature is not None:
            shown = apply_temperature(shown, self._temperature).astype("float32")
        if self._thresholds is None:
            return shown >= self._threshold, shown
        return scores >= self._thresholds[labels], shown

    def applied_to(self, detections: Detections) -> Detections:
        """The detections that are kept, with the scores to be shown."""
        kept, shown = self.apply(detections.scores, detections.labels)
        return dataclasses.replace(detections, scores=shown)[kept]


def check_score_threshold(score_threshold: Any) -> None:
    """Raises ValueError where it is neither between 0 and 1 nor "best"."""
    is_number = isinstance(score_threshold, (numbers.Real, np.ndarray, np.generic))
    if is_number and 0 <= score_threshold <= 1:
        return
    if not (isinstance(score_threshold, str) and score_threshold == "best"):
        raise InvalidValueError(
            "`score_threshold` must be between 0 and 1, or 'best' for the thresholds "
            f"that are kept with the model. Received: {score_threshold=}"
        )


def _thresholds(settings: ScoreSettings | None):
    if settings is None:
        raise InvalidStateError(
            f"`score_threshold='best'` needs a model with thresholds. {_CURE}"
        )
    return settings.thresholds


def _temperature(settings: ScoreSettings | None):
    if settings is None or settings.temperature is None:
        raise InvalidStateError(
            f"`calibrated=True` needs a model with a temperature. {_CURE} An "
            "evaluation finds none where its scores do not tell right from wrong."
        )
    return settings.temperature
