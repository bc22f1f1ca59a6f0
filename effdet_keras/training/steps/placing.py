"""Values for variables whose copies lie on devices of several processes."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from effdet_keras._internal.optional_imports import jax


def placed_like(variable: Any, value: Any) -> Any:
    """A value where its variable is, without asking the other processes.

    Only JAX spreads a variable over the devices of several processes. Keras assigns
    there as JAX does by default: all processes compare what they assign, number by
    number, and one that assigns nothing, because it has failed, has the others wait.

    Args:
        variable: `keras.Variable`.
        value: array, the same in all processes.

    Returns:
        `value`; or a `jax.Array`, of which each process has put its copies in place.

    Example:
        >>> placed_like(keras.Variable(0.0), 1.0)
        1.0
    """
    sharding = getattr(variable.value, "sharding", None)
    if sharding is None or sharding.is_fully_addressable:
        return value
    array = np.asarray(keras.ops.convert_to_numpy(value))
    return jax.make_array_from_callback(array.shape, sharding, lambda part: array[part])
