"""The classes of this package that a `.keras` file may name, made known to Keras.

Keras loads the classes that are registered, and a class is registered when its module
is imported. `import effdet_keras` does that at once. The command `effdet-keras` does
not, so that its help needs no Keras: there it is done before an archive is loaded.
"""

from __future__ import annotations

import importlib

# The first imports all layers, losses, optimizers and schedules.
_MODULES = ("model.efficientdet", "extras.advprop", "augment")


def register_keras_classes() -> None:
    """Imports what registers the package's classes with Keras; quick the next time."""
    for module in _MODULES:
        importlib.import_module(f"effdet_keras.{module}")
