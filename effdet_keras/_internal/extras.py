"""How the core reaches its extras: by name, when one is first used; it imports none."""

from __future__ import annotations

import importlib
from typing import Any


def extra(place: str) -> Any:
    """What an extra registered under a name."""
    module, _, name = place.partition(":")
    found = importlib.import_module(f"effdet_keras.extras.{module}")
    return getattr(found, name) if name else found
