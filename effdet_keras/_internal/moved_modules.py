"""Old import paths, which work for one release with a deprecation warning."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any


def names_of_moved_module(old: str, new: str) -> Callable[[str], Any]:
    """Returns the `__getattr__` of a module whose names have moved to another one."""

    def get(name):
        if name.startswith("__"):  # Python itself looks these up
            raise AttributeError(f"module {old!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(new), name)
        warnings.warn(
            f"`{old}` is `{new}` now, and will be removed in the next release: import "
            f"`{name}` from there.",
            DeprecationWarning,
            stacklevel=2,
        )
        return value

    return get
