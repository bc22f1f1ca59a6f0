"""A TF-Hub feature module as a layer of Keras 3: it trains, freezes and saves."""

import contextlib

import keras
import numpy as np
from keras import ops

from effdet_keras._internal.backend import require_tensorflow
from effdet_keras.hub.module import reopen_hub_module


class _Fixed(keras.Variable):
    """A variable that the module itself moves, if anyone does: never trained."""

    @property
    def trainable(self):
        return False

    @trainable.setter
    def trainable(self, value):
        pass


@keras.saving.register_keras_serializable(package="effdet_keras")
class HubFeatures(keras.layers.Layer):
    """Computes with the graph and the variables of a feature module."""

    def __init__(self, module, **kwargs):
        require_tensorflow(
            f"The TF-Hub module {module.handle!r} is a graph of TensorFlow",
            "Set KERAS_BACKEND to 'tensorflow' before Keras is imported.",
        )
        kwargs = {"name": "hub_module", **kwargs, "dtype": "float32"}
        super().__init__(**kwargs)
        self.module = module
        taken = set()
        for variable in module.variables:
            self._track_variable(_wrapped(module, variable, taken))

    def build(self, input_shape):
        # A module's graph may not tell the shapes of what it returns.
        found = self.module.features_of(np.zeros((1, *input_shape[1:]), "float32"))
        self._shapes = tuple([tuple(x.shape[1:]) for x in levels] for levels in found)

    def call(self, images, training=False):
        is_training = bool(training) and bool(self.trainable_variables)
        found = self.module.features(images, training=is_training)
        return tuple(
            [ops.reshape(x, (-1, *shape)) for x, shape in zip(*pair)]
            for pair in zip(found, self._shapes)
        )

    def get_config(self):
        config = super().get_config()
        config.pop("dtype")
        return {**config, "handle": self.module.handle}

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        config.pop("fingerprint", None)  # of former versions
        module = reopen_hub_module(config.pop("handle"))
        return cls(module, **config)


def _wrapped(module, variable, taken):
    """A TensorFlow variable as one of Keras, of the same storage."""
    *scopes, name = _free_path(variable.name, taken).split("/")
    trains = module.is_trainable(variable)
    with contextlib.ExitStack() as stack:
        for scope in scopes:
            stack.enter_context(keras.name_scope(scope))
        kind = keras.Variable if trains else _Fixed
        return kind(  # of the same storage, not a copy
            initializer=variable, trainable=trains, dtype=variable.dtype.name, name=name
        )


def _free_path(name, taken):
    """A variable's name as a path that no other weight of the model has."""
    path = "/".join(part for part in name.split(":")[0].split("/") if part)
    if "-predict/" in path:  # a module may hold layers that the model makes new
        path = f"hub_module/{path}"
    unique, number = path, 1
    while unique in taken:
        unique, number = f"{path}_{number}", number + 1
    taken.add(unique)
    return unique
