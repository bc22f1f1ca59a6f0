"""Public names that are imported on first use, for a quick start of the command."""

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
    """Returns whether Python runs `effdet-keras` or `python -m effdet_keras`."""
    program = pathlib.PurePath(sys.argv[0]).name if sys.argv else ""
    if program == "-m":  # also combined with other flags, `-Im`, or without a space
        is_module = re.compile(rf"-[a-zA-Z]*m {_PACKAGE}|-[a-zA-Z]*m{_PACKAGE}")
        words = (*sys.orig_argv, "")
        pairs = (" ".join(pair) for pair in itertools.pairwise(words))
        return any(is_module.fullmatch(text) for text in (*pairs, *words))
    return program in (COMMAND, f"{COMMAND}.exe")  # the second one on Windows


def lazy_names(
    package: str, places: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns the functions `__getattr__` and `__dir__` of a package.

    Args:
        package: string, the name of the package.
        places: dict from each public name to the module that has it.
    """

    def get(name):
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = importlib.import_module(f"{_PACKAGE}.{places[name]}")
        except ModuleNotFoundError:
            keras.require(f"`{name}` of effdet_keras")  # a better error if it is Keras
            raise
        value = getattr(module, name, module)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted({*vars(sys.modules[package]), *places})
