"""Public names that are imported when they are first used, and who needs that."""

from __future__ import annotations

import importlib
import itertools
import pathlib
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

from effdet_keras._internal.optional_imports import keras

COMMAND = "effdet-keras"
_PACKAGE = "effdet_keras"


def started_as_command() -> bool:
    """Whether Python was started as `effdet-keras` or `python -m effdet_keras`."""
    program = pathlib.PurePath(sys.argv[0]).name if sys.argv else ""
    if program == "-m":  # also with other flags before it, `-Im`, or without a space
        is_module = re.compile(rf"-[a-zA-Z]*m {_PACKAGE}|-[a-zA-Z]*m{_PACKAGE}")
        words = (*sys.orig_argv, "")
        pairs = (" ".join(pair) for pair in itertools.pairwise(words))
        return any(is_module.fullmatch(text) for text in (*pairs, *words))
    return program in (COMMAND, f"{COMMAND}.exe")  # the second on Windows


def lazy_names(
    package: str, places: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Makes the `__getattr__` and `__dir__` of a package."""

    def get(name):
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = importlib.import_module(f"{_PACKAGE}.{places[name]}")
        except ModuleNotFoundError:
            keras.require(f"`{name}` of effdet_keras")  # where it is Keras, the cure
            raise
        value = getattr(module, name, module)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted({*vars(sys.modules[package]), *places})
