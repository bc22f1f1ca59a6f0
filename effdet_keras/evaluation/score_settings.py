"""`ScoreSettings`: what an evaluation chose of a model's scores, to be kept with it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from effdet_keras.errors import InvalidValueError


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
        return {
            "thresholds": list(self.thresholds),
            "temperature": self.temperature,
        }

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
