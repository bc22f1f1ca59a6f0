"""Computes initial values of weights without compiling a JAX program for each shape.

Outside a compiled function, JAX compiles each operation again for each shape of its
arguments. A Keras initializer has three operations. For D0 this makes 181 programs,
which take most of the half minute until the model is created.
"""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np

from effdet_keras._internal.backend import compiles_each_operation
from effdet_keras._internal.optional_imports import jax

_FIRST_LENGTH, _LAST_STEP = 1 << 12, 1 << 20


def with_quick_initial_values(layer: Any) -> Any:
    """Makes the initializers of a layer `QuickInitializer`s on JAX, and returns it.

    Call it before the layer is built. The initial values stay the same. It also works
    for other objects with attributes that end in `_initializer`.
    """
    if compiles_each_operation():
        for name, value in list(vars(layer).items()):
            if name.endswith("_initializer"):
                setattr(layer, name, quick(value))
    return layer


def quick(initializer: Any) -> Any:
    """Returns the same initializer, on JAX as a `QuickInitializer`."""
    initializer = keras.initializers.get(initializer)
    if not compiles_each_operation() or isinstance(initializer, QuickInitializer):
        return initializer
    return QuickInitializer(initializer)


@keras.saving.register_keras_serializable(package="effdet_keras")
class QuickInitializer(keras.initializers.Initializer):
    """Computes the values of another initializer, with the same bits.

    Constants are created by NumPy. Random numbers are drawn as a vector of one of a few
    lengths, and its first numbers are used. This is possible because number `i` of JAX
    depends on the seed and on `i`, and not on how many numbers are drawn. Other
    initializers run unchanged.

    Args:
        initializer: Keras initializer.
    """

    def __init__(self, initializer: Any) -> None:
        self.initializer = keras.initializers.get(initializer)

    def __call__(self, shape: Any, dtype: Any = None) -> Any:
        dtype = keras.backend.standardize_dtype(dtype)
        values = None
        # With a distribution, Keras places an array on several devices as it is drawn.
        if keras.distribution.distribution() is None and dtype == "float32":
            values = _values(self.initializer, tuple(shape))
        if values is None:
            return self.initializer(shape, dtype=dtype)
        return on_device(values)

    def get_config(self):
        return {"initializer": keras.initializers.serialize(self.initializer)}

    @classmethod
    def from_config(cls, config):
        return cls(keras.initializers.deserialize(config["initializer"]))


def on_device(values: np.ndarray) -> Any:
    """Converts a NumPy array to JAX. Keras' conversion would compile a program."""
    return jax.device_put(values)


def drawn(draw: Any, shape: tuple[int, ...], **arguments: Any) -> np.ndarray:
    """Draws random numbers with a function of `keras.random`: float32 of this shape.

    It draws a longer vector of 4,096 numbers, 16 or 256 times as many, or a power of
    two of more than a million.
    """
    count, length = math.prod(shape), _FIRST_LENGTH
    while length < count:
        length *= 16 if length < _LAST_STEP else 2
    numbers = draw((length,), dtype="float32", **arguments)
    return np.asarray(numbers)[:count].reshape(shape)


def _values(initializer, shape):
    """Returns the values of one of Keras' own initializers; None for any other."""
    kind = keras.initializers
    if type(initializer) is kind.Zeros:
        return np.zeros(shape, "float32")
    if type(initializer) is kind.Ones:
        return np.ones(shape, "float32")
    if type(initializer) is kind.Constant and np.isscalar(initializer.value):
        return np.full(shape, initializer.value, "float32")
    if type(initializer) is kind.RandomNormal:
        mean, stddev = np.float32([initializer.mean, initializer.stddev])
        normal = drawn(keras.random.normal, shape, seed=initializer.seed)
        return normal * stddev + mean
    if type(initializer) in (kind.VarianceScaling, kind.GlorotUniform):
        return _scaled(initializer, shape)
    return None


def _scaled(initializer, shape):
    """Computes `keras.initializers.VarianceScaling`, which includes GlorotUniform."""
    if len(shape) < 2 or getattr(initializer, "input_axes", None) is not None:
        return None
    places = math.prod(shape[:-2])
    fans = {"fan_in": places * shape[-2], "fan_out": places * shape[-1]}
    fans["fan_avg"] = (fans["fan_in"] + fans["fan_out"]) / 2.0
    scale = initializer.scale / max(1.0, fans[initializer.mode])
    seed = initializer.seed
    if initializer.distribution == "uniform":
        limit = math.sqrt(3.0 * scale)
        return drawn(
            keras.random.uniform, shape, minval=-limit, maxval=limit, seed=seed
        )
    if initializer.distribution == "untruncated_normal":
        stddev = np.float32(math.sqrt(scale))
        return drawn(keras.random.normal, shape, seed=seed) * stddev
    stddev = np.float32(math.sqrt(scale) / 0.87962566103423978)
    return drawn(keras.random.truncated_normal, shape, seed=seed) * stddev
