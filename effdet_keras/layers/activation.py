"""The activations that a config can name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from effdet_keras.errors import InvalidValueError


@keras.saving.register_keras_serializable(package="effdet_keras")
def srelu(x):
    """Smooth ReLU: `x - log(1 + b * x) / b` above zero, else 0.

    In the reference `b` is the fourth power of a variable that starts at 20; here
    `b` is a constant with that starting value.
    """
    sharpness = 160_000.0
    positive = ops.relu(x)
    return positive - ops.log1p(sharpness * positive) / sharpness


_BY_NAME = {
    "swish": keras.activations.silu,
    "silu": keras.activations.silu,
    "swish_native": keras.activations.silu,
    "hswish": keras.activations.hard_silu,
    "hard_swish": keras.activations.hard_silu,
    "relu": keras.activations.relu,
    "relu6": keras.activations.relu6,
    "mish": keras.activations.mish,
    "srelu": srelu,
}


def get_activation(name: str) -> Callable[[Any], Any]:
    """Returns the activation function that a config's `activation` names.

    Raises:
        ValueError: If there is no activation of that name.

    Example:
        >>> float(get_activation("relu6")(ops.array(9.0)))
        6.0
    """
    if name not in _BY_NAME:
        raise InvalidValueError(
            f"`activation` must be one of {', '.join(_BY_NAME)}. "
            f"Received: activation={name!r}"
        )
    return _BY_NAME[name]
