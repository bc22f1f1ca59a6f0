"""Other arrays for batch norms than their own, within a block of a training step."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class BatchNormArrays:
    """What a batch norm normalizes with: four vectors `[C]`, of variables.

    Args:
        gamma, beta: scale and offset, which train.
        moving_mean, moving_variance: statistics, which move in training.
        are_moved: bool, whether a forward pass in training moves the statistics.
    """

    gamma: Any
    beta: Any
    moving_mean: Any
    moving_variance: Any
    are_moved: bool = True


# Of the thread: replicas of TensorFlow are traced in threads of their own.
_others: contextvars.ContextVar[Mapping[Any, BatchNormArrays]] = contextvars.ContextVar(
    "other_arrays"
)


@contextlib.contextmanager
def batch_norms_with(others: Mapping[Any, BatchNormArrays]) -> Iterator[None]:
    """Context in which batch norms use other arrays; its backward pass belongs inside.

    Args:
        others: dict from a `BatchNormalization` to its `BatchNormArrays`. Layers that
            are not in it use their own.

    Example:
        >>> from keras import ops
        >>> from effdet_keras.layers import BatchNormalization
        >>> layer = BatchNormalization(epsilon=0.0)
        >>> layer.build((None, 1, 1, 1))
        >>> zero, one, x = ops.zeros((1,)), ops.ones((1,)), ops.ones((1, 1, 1, 1))
        >>> with batch_norms_with({layer: BatchNormArrays(3 * one, zero, zero, one)}):
        ...     tripled = layer(x)
        >>> float(tripled[0, 0, 0, 0]), float(layer(x)[0, 0, 0, 0])
        (3.0, 1.0)
    """
    token = _others.set(others)
    try:
        yield
    finally:
        _others.reset(token)


def other_arrays_of(layer: Any) -> BatchNormArrays | None:
    """The arrays that a layer is to use instead of its own, or None."""
    others = _others.get(None)
    return None if others is None else others.get(layer)


def other_variables_within(block: Any) -> tuple[list, list]:
    """What a block uses of other arrays: those that train, and the statistics.

    Args:
        block: Keras layer; each batch norm within it counts.
    """
    others = _others.get(None) or {}
    used = [others[x] for x in block._flatten_layers() if x in others] if others else []
    return (
        [array for arrays in used for array in (arrays.gamma, arrays.beta)],
        [a for arrays in used for a in (arrays.moving_mean, arrays.moving_variance)],
    )
