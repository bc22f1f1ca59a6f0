"""Packages whose public names are imported when they are first used.

So `from effdet_keras import Predictor` imports what a `Predictor` needs, and neither
Keras nor TensorFlow.
"""

import ast
import importlib
import sys

from effdet_keras._internal.optional_imports import keras

_TYPING = "TYPE_CHECKING"


def lazy_names(package):
    """Makes the `__getattr__` and `__dir__` of a package.

    The names, and where they come from, are read from the imports below
    `if TYPE_CHECKING:` in its `__init__.py`, so that they are written down once. None
    may be called as the module that it is in: Python would put the module in its place.

    Args:
        package: string, the name of a package that is being imported.

    Returns:
        `(__getattr__, __dir__)`.

    Example:
        >>> get, _ = lazy_names("effdet_keras.inference")
        >>> get("image_results").__module__
        'effdet_keras.inference.results_of_images'
        >>> get("no_such_name")
        Traceback (most recent call last):
            ...
        AttributeError: module 'effdet_keras.inference' has no attribute 'no_such_name'
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
