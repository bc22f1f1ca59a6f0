"""Batch norm as the reference has it, with its own arrays or with others for a step."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import importlib
from collections.abc import Iterator, Mapping
from typing import Any

import keras
from keras import ops


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


# --- Batch norm: Keras' own, and on TensorFlow its fused kernel.


@keras.saving.register_keras_serializable(package="effdet_keras")
class BatchNormalization(keras.layers.BatchNormalization):
    """`keras.layers.BatchNormalization` over the last axis, faster on TensorFlow.

    Keras composes it of ten operations, each a pass over the largest arrays of a
    training step; TensorFlow's fused kernel takes a fifth of their time on a CPU,
    forward and backward, and lets the graph's optimizer merge it into a
    convolution before it. Numbers, variables and their names are the same. Within
    `batch_norms_with` (`model/batch_norm.py`) it normalizes with other arrays.

    Args:
        unbiased: bool, whether the moving variance takes `n / (n - 1)` of the variance
            of `n` numbers, as TensorFlow's fused kernel and torch have it, where Keras
            3 takes the variance itself.
        **kwargs: arguments of `keras.layers.BatchNormalization`, except that `axis` is
            always the last, and that there are always a scale and an offset.

    Example:
        >>> x = ops.array([[[[1.0], [3.0]]]])
        >>> y = BatchNormalization(epsilon=0.0)(x, training=True)
        >>> ops.convert_to_numpy(y).ravel().round(4)
        array([-1.,  1.], dtype=float32)
    """

    def __init__(self, *, unbiased: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.unbiased = unbiased

    def get_config(self):
        return {**super().get_config(), "unbiased": self.unbiased}

    def call(self, inputs, training=None, mask=None):
        is_training = bool(training) and self.trainable
        other = other_arrays_of(self)
        if _kernels is None or mask is not None or len(inputs.shape) != 4:
            if other is not None:
                raise NotImplementedError("Only TensorFlow's kernel takes other arrays")
            kept = self.moving_variance * self.momentum
            outputs = super().call(inputs, training=training, mask=mask)
            if is_training and self.unbiased:
                # Keras has added (1 - momentum) times the variance to what it kept.
                added = (self.moving_variance - kept) * _bessel(inputs)
                self.moving_variance.assign(kept + added)
            return outputs
        used = other or BatchNormArrays(
            self.gamma, self.beta, self.moving_mean, self.moving_variance
        )
        # The kernel's statistics are float32, as Keras' are under any policy.
        arrays = [ops.cast(x, "float32") for x in (inputs, used.gamma, used.beta)]
        if is_training and self.synchronized:
            outputs, mean, variance = _kernels.synchronized_batch_norm(
                *arrays, epsilon=self.epsilon
            )
        else:
            outputs, mean, variance = _kernels.fused_batch_norm(
                *arrays,
                ops.cast(used.moving_mean, "float32"),
                ops.cast(used.moving_variance, "float32"),
                epsilon=self.epsilon,
                training=is_training,
            )
        if is_training and used.are_moved:
            if self.unbiased:
                replicas = _kernels.num_replicas() if self.synchronized else 1
                variance = variance * _bessel(inputs, replicas)
            self._move(used.moving_mean, mean)
            self._move(used.moving_variance, variance)
        return ops.cast(outputs, self.compute_dtype)

    def _move(self, statistic, value):
        statistic.assign(
            ops.cast(statistic, "float32") * self.momentum
            + value * (1.0 - self.momentum)
        )


def _bessel(inputs, replicas=1):
    """`n / (n - 1)` of the `n` numbers that each channel has on all replicas."""
    count = ops.prod(ops.cast(ops.shape(inputs)[:-1], "float32")) * replicas
    return count / ops.maximum(count - 1.0, 1.0)


def _find_kernels():
    if keras.backend.backend() != "tensorflow":
        return None
    return importlib.import_module("effdet_keras.model.tensorflow_batch_norm")


_kernels = _find_kernels()
# Elsewhere Keras refuses to. On JAX statistics are those of the whole batch, on all its
# devices, without it; on torch a model trains on one device.
CAN_SYNCHRONIZE = _kernels is not None
