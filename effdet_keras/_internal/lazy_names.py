"""Public names that are imported when they are first used, and who needs that."""

from __future__ import annotations

import importlib
import itertools
import pathlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from effdet_keras._internal.optional_imports import keras

COMMAND = "effdet-keras"
_PACKAGE = "effdet_keras"


def started_as_command(
    argv: list[str] | None = None, orig_argv: list[str] | None = None
) -> bool:
    """Whether Python was started as `effdet-keras` or `python -m effdet_keras`."""
    argv = sys.argv if argv is None else argv
    orig_argv = sys.orig_argv if orig_argv is None else orig_argv
    program = argv[0] if argv else ""  # an embedded Python may have none
    if program != "-m":
        name = pathlib.PurePath(program).name
        return name in (COMMAND, f"{COMMAND}.exe")  # the second on Windows
    following = itertools.pairwise(orig_argv)
    return ("-m", _PACKAGE) in following


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
