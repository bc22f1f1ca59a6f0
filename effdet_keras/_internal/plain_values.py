"""Objects as plain values, for files: by their fields, and in the types of JSON."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Self

import numpy as np

from effdet_keras._internal.old_names import with_new_names


class FieldSerializable:
    """Mix-in: Keras saves a frozen dataclass by its fields."""

    def get_config(self) -> dict[str, Any]:
        """Returns the fields as a dict, for Keras."""
        return dataclasses.asdict(self)  # type: ignore[call-overload]

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Makes it from what `get_config` returned."""
        return cls(**with_new_names(cls, config))


def to_jsonable(value: Any) -> Any:
    """A value as Python's own dicts, lists, texts and finite numbers."""
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
