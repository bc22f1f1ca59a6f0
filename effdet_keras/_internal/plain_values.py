"""Conversion of objects to plain values for files: by fields, or to types of JSON."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Self

import numpy as np

from effdet_keras._internal.old_names import with_new_names


class FieldSerializable:
    """A mix-in that lets Keras save a frozen dataclass by its fields."""

    def get_config(self) -> dict[str, Any]:
        """Returns the fields as a dict, for Keras."""
        return dataclasses.asdict(self)  # type: ignore[call-overload]

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Returns an instance made from a dict of `get_config`."""
        return cls(**with_new_names(cls, config))


def to_jsonable(value: Any) -> Any:
    """Returns a value in types of JSON; NaN and infinity become None."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {str(key): to_jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_jsonable(item) for item in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return to_jsonable(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no NaN
    return value
