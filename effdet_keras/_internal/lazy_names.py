"""Whether this process is the `effdet-keras` command."""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.abc
import itertools
import pathlib
import sys
import threading

from effdet_keras._internal.optional_imports import keras

COMMAND = "effdet-keras"
_PACKAGE = "effdet_keras"


def started_as_command(
    argv: list[str] | None = None, orig_argv: list[str] | None = None
) -> bool:
    """Whether Python was started as `effdet-keras` or `python -m effdet_keras`.

    Args:
        argv: list of strings, `sys.argv` if None. While Python looks for the module of
            `-m`, its first item is "-m".

    Example:
        >>> started_as_command(["/usr/bin/effdet-keras", "--help"])
        True
        >>> started_as_command(["-m"], ["python", "-m", "effdet_keras", "--help"])
        True
        >>> started_as_command(["train.py"])
        False
    """
    argv = sys.argv if argv is None else argv
    orig_argv = sys.orig_argv if orig_argv is None else orig_argv
    program = argv[0] if argv else ""  # an embedded Python may have none
    if program != "-m":
        name = pathlib.PurePath(program).name
        return name in (COMMAND, f"{COMMAND}.exe")  # the second on Windows
    following = itertools.pairwise(orig_argv)
    return ("-m", _PACKAGE) in following


# --- Calls a function as soon as Keras has been imported, by whomever.

_PACKAGE_OF_WHEN_KERAS_COMES = "effdet_keras."


def keras_is_imported():
    """Whether Keras is there already."""
    return sys.modules.get("keras") is not None


def when_keras_comes(call):
    """Calls a function once, after the import that brought Keras.

    That is an import of Keras itself, or of a module of ours that needs it: then the
    outermost of them, because one that is only half imported cannot be used.
    """
    sys.meta_path.insert(0, _Watch(call))


class _Watch(importlib.abc.MetaPathFinder):
    """Finds nothing itself; it is told which modules are imported."""

    def __init__(self, call):
        self._call = call
        self._here = threading.local()  # how many imports are within each other

    def find_spec(self, name, path=None, target=None):
        if name != "keras" and not name.startswith(_PACKAGE_OF_WHEN_KERAS_COMES):
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next(filter(None, specs), None)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            self._count(spec.loader)
        return spec

    def _count(self, loader):
        """Has the loader say when it begins and ends."""
        execute = loader.exec_module

        def counted(module):
            del loader.exec_module  # what was put over the method of its class
            self._here.depth = getattr(self._here, "depth", 0) + 1
            try:
                execute(module)
            finally:
                self._here.depth -= 1
            if self._here.depth == 0 and keras_is_imported() and self in sys.meta_path:
                with contextlib.suppress(ValueError):  # another thread was faster
                    sys.meta_path.remove(self)
                self._call()

        loader.exec_module = counted


# --- Packages whose public names are imported when they are first used.

_TYPING = "TYPE_CHECKING"


def lazy_names(package):
    """Makes the `__getattr__` and `__dir__` of a package.

    The names, and where they come from, are read from the imports below
    `if TYPE_CHECKING:` in its `__init__.py`, so that they are written down once. None
    may be called as the module that it is in: Python would put the module in its place.

    Example:
        >>> get, _ = lazy_names("effdet_keras.detect")
        >>> get("image_results").__module__
        'effdet_keras.detect.evaluate'
        >>> get("no_such_name")
        Traceback (most recent call last):
            ...
        AttributeError: module 'effdet_keras.detect' has no attribute 'no_such_name'
    """
    module = sys.modules[package]
    places = _places(module.__spec__.loader.get_source(package))

    def get(name):
        place, original = places.get(name, (package, name))
        value = _imported(place, original)
        if value is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(module, name, value)
        return value

    def names():
        return sorted({*vars(module), *places})

    return get, names


def _places(source):
    """Module and name of each import below `if TYPE_CHECKING:`, by its name here."""
    places = {}
    for block in ast.parse(source).body:
        if isinstance(block, ast.If) and ast.unparse(block.test) == _TYPING:
            for node in block.body:
                for alias in node.names:
                    places[alias.asname or alias.name] = (node.module, alias.name)
    return places


def _imported(place, name):
    """An attribute of a module, or a module of a package; None if it is neither."""
    try:
        found = vars(importlib.import_module(place)).get(name)
        if found is None and not name.startswith("_"):
            return importlib.import_module(f"{place}.{name}")
        return found
    except ModuleNotFoundError as error:
        if error.name == f"{place}.{name}":
            return None
        keras.require(f"`{name}` of effdet_keras")  # where it is Keras, with the cure
        raise
