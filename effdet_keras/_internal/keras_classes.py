"""Registers this package's classes with Keras, which a `.keras` file may name.

Keras can load classes that are registered, and a class is registered when its module is
imported. `import effdet_keras` does that at once. The command `effdet-keras` does not,
so that its help needs no Keras. The command registers them before it loads an archive.
"""

from __future__ import annotations

import importlib

# The first imports all layers, losses, optimizers and schedules.
_MODULES = ("model.efficientdet", "extras.advprop", "augment")


def register_keras_classes() -> None:
    """Imports the modules that register classes with Keras; cheap if repeated."""
    for module in _MODULES:
        importlib.import_module(f"effdet_keras.{module}")
