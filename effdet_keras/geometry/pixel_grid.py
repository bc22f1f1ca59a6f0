"""The places of a network's output map, and the pixels of its input that they cover."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from effdet_keras._internal.optional_imports import keras_ops as ops
from effdet_keras.errors import InvalidValueError


def stride_of(length: int, places: int) -> int:
    """The pixels of the input for each place of a map, along one axis.

    Args:
        length: int, pixels.
        places: int, `length` divided by a power of 2, rounded up.

    Returns:
        Int, that power of 2.

    Raises:
        ValueError: If there is none.

    Example:
        >>> stride_of(18, 5)
        4
    """
    stride = 1
    while -(-length // stride) > places:
        stride *= 2
    if -(-length // stride) != places:
        raise InvalidValueError(
            "An image or a mask must have the size of the map, or a power of 2 times "
            f"that. Received: {length} pixels for {places} places of the map"
        )
    return stride


def at_places(values: Any, size: Sequence[int]) -> Any:
    """The value of a pixel at the middle of each place of a smaller map.

    Args:
        values: tensor `[B, H, W]`.
        size: `(h, w)` of the map, see `stride_of`.

    Returns:
        Tensor `[B, h, w]`.

    Raises:
        ValueError: If the shapes do not fit.

    Example:
        >>> picked = at_places(ops.reshape(ops.arange(16), (1, 4, 4)), (2, 2))
        >>> ops.convert_to_numpy(picked).tolist()
        [[[5, 7], [13, 15]]]
    """
    for axis, places in enumerate(size, start=1):
        length = values.shape[axis]
        stride = stride_of(length, places)
        if stride > 1:
            middles = np.arange(places) * stride + stride // 2
            middles = np.minimum(middles, length - 1).astype("int32")
            values = ops.take(values, middles, axis=axis)
    return values
