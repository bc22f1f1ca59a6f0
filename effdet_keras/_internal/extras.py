"""Imports extras by name on first use; the core imports none of them directly."""

from __future__ import annotations

import importlib
from typing import Any


def extra(place: str) -> Any:
    """Returns the module "name", or the object "name:object" of an extra."""
    module, _, name = place.partition(":")
    found = importlib.import_module(f"effdet_keras.extras.{module}")
    return getattr(found, name) if name else found
