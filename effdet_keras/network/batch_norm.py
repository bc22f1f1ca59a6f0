"""Batch norm of the reference, with the fused kernels of TensorFlow and CUDA."""

from __future__ import annotations

import contextlib
import functools
import math
import threading
from typing import Any

import keras
from keras import ops

from effdet_keras._internal.backend import runs_on_processors
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras._internal.optional_imports import torch
from effdet_keras._internal.replicas import num_replicas, sum_of_replicas
from effdet_keras.network.computing import ON_TENSORFLOW, ON_TORCH
from effdet_keras.network.initial_values import with_quick_initial_values

STATISTICS = ("moving_mean", "moving_variance")  # names of the statistics' variables


def batch_norm_layers(layer: Any) -> list:
    """Returns the batch norms of a model or a block, in the order of its layers."""
    layers = layer._flatten_layers(include_self=False)
    return [x for x in layers if isinstance(x, keras.layers.BatchNormalization)]


def moving_statistics(norms: list) -> list:
    """Returns the moving means and variances of batch norms."""
    return [v for bn in norms for v in (bn.moving_mean, bn.moving_variance)]


def substituted_variables(block: Any) -> tuple[list, list]:
    """Returns variables that the batch norms of a block use, but that it does not own.

    There are two lists. The first has scales and offsets. The second has variables that
    are not trained: statistics, and the counter of training steps. Adversarial training
    substitutes the scales, offsets and statistics of the batch norms.
    """
    norms = batch_norm_layers(block)
    own = {id(variable) for variable in block.variables}
    trainable = [v for bn in norms for v in (bn.gamma, bn.beta)]
    warmups = [getattr(bn, "momentum_warmup", None) for bn in norms]
    counters = [warmup.counter for warmup in warmups if warmup is not None]
    not_trained = [*moving_statistics(norms), *counters[:1]]
    return (
        [v for v in trainable if id(v) not in own],
        [v for v in not_trained if id(v) not in own],
    )


class MomentumWarmup:
    """Warm-up of the momentum of batch norms in the first training steps.

    A layer of momentum `m` updates a statistic `s` with that of the batch, `b`, to
    `s + (1 - m) * (b - s)`. With 0.99, the initial value still has a weight of about
    a seventh after 200 steps. With a warm-up, the momentum of step `k` (0-based) is

        m_k = min(m, (1 + k) / (10 + k))

    as the decay of `WeightAverages`. So statistics follow the weights from the first
    steps.

    Args:
        counter: `keras.Variable` that counts training steps: that of the optimizer.
    """

    # A plain object, because Keras would track a variable of a layer as its weight.
    def __init__(self, counter: keras.Variable) -> None:
        self.counter = counter
        self._last_graph: Any = None
        self._last_values: dict[float, Any] = {}

    def one_minus_momentum(self, momentum: float) -> Any:
        """Returns `1 - m_k` for a layer's own momentum `m`, a float32 scalar."""
        if not ON_TENSORFLOW or tf.executing_eagerly():
            return self._compute(momentum)
        # All layers of a graph share it: a step has 115 of them, and each operation has
        # a cost.
        graph = tf.compat.v1.get_default_graph()
        if graph is not self._last_graph:
            self._last_graph, self._last_values = graph, {}
        if momentum not in self._last_values:
            self._last_values[momentum] = self._compute(momentum)
        return self._last_values[momentum]

    def _compute(self, momentum):
        # 1 - (1 + k) / (10 + k), without loss of precision.
        step = ops.cast(ops.convert_to_tensor(self.counter), "float32")
        return ops.maximum(1.0 - momentum, 9.0 / (10.0 + step))


def momentum_warmup(model: Any) -> MomentumWarmup | None:
    """Returns the momentum warm-up of the batch norms of a model, or None."""
    found = (getattr(bn, "momentum_warmup", None) for bn in batch_norm_layers(model))
    return next((warmup for warmup in found if warmup is not None), None)


def set_momentum_warmup(model: Any, warmup: MomentumWarmup | None) -> None:
    """Sets the momentum warm-up of all batch norms of a model; None removes it."""
    for bn in batch_norm_layers(model):
        if isinstance(bn, BatchNormalization):
            bn.momentum_warmup = warmup


@keras.saving.register_keras_serializable(package="effdet_keras")
class BatchNormalization(keras.layers.BatchNormalization):
    """`keras.layers.BatchNormalization` over the last axis, with fused kernels.

    Keras composes a batch norm of ten operations. TensorFlow's fused kernel takes a
    fifth of their time on a CPU. On torch, the CUDA kernel reads its input twice in
    training, and the input stays in half precision. JAX fuses the operations itself.
    Results, variables and their names are the same as in Keras.

    The momentum may have a warm-up, see `MomentumWarmup`.

    Args:
        unbiased: bool, whether the moving variance uses `n / (n - 1)` times the
            variance of the `n` numbers of a batch, as TensorFlow's fused kernel and
            torch do. Keras 3 uses the variance itself.
        **kwargs: arguments of `keras.layers.BatchNormalization`.
    """

    momentum_warmup: MomentumWarmup | None = None

    def __init__(self, *, unbiased: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.unbiased = unbiased
        with_quick_initial_values(self)

    def get_config(self):
        return {**super().get_config(), "unbiased": self.unbiased}

    def call(self, inputs, training=None):
        is_training = bool(training) and self.trainable
        # Exports call layers with symbolic tensors, which have no device.
        on_cuda = ON_TORCH and getattr(inputs, "is_cuda", False)
        if on_cuda and len(inputs.shape) == 4:
            return self._by_torch(inputs, is_training)
        if not ON_TENSORFLOW or len(inputs.shape) != 4:
            return self._composed(inputs, training, is_training)
        # The kernel's statistics are float32, as those of Keras under every policy.
        gamma, beta = (ops.cast(array, "float32") for array in (self.gamma, self.beta))
        # oneDNN also computes bfloat16. It is fast if the channels fill its vectors.
        is_half = self.compute_dtype == "bfloat16" and inputs.shape[-1] % 16 == 0
        x = inputs if is_half and runs_on_processors() else ops.cast(inputs, "float32")
        if not is_training:
            mean, variance = (ops.cast(v, "float32") for v in moving_statistics([self]))
            # Converters know version 3 of the kernel. So it is used outside training,
            # as in exports.
            kernel = _kernel(x) if training else tf.raw_ops.FusedBatchNormV3
            with _one_eager_kernel_at_a_time():
                outputs, *_ = kernel(
                    x=x,
                    scale=gamma,
                    offset=beta,
                    mean=mean,
                    variance=variance,
                    epsilon=self.epsilon,
                    is_training=False,
                )
            return ops.cast(outputs, self.compute_dtype)
        normalized = _over_replicas if self.synchronized else _fused
        outputs, mean, variance = normalized(x, gamma, beta, self.epsilon)
        if self.unbiased:
            replicas = num_replicas() if self.synchronized else 1
            variance = variance * _bessel(inputs, replicas)
        self._move_statistics(mean, variance)
        return ops.cast(outputs, self.compute_dtype)

    def _one_minus_momentum(self):
        if self.momentum_warmup is None:
            return 1.0 - self.momentum
        return self.momentum_warmup.one_minus_momentum(self.momentum)

    def _move_statistics(self, mean, variance):
        rate = self._one_minus_momentum()
        for statistic, value in zip(moving_statistics([self]), (mean, variance)):
            before = ops.cast(statistic, statistic.dtype)  # read once
            statistic.assign(before + rate * (value - before))

    def _by_torch(self, x, is_training):
        """Computes with torch's fused kernel, for `[B, H, W, C]` in any precision."""
        gamma, beta, *moving = (
            ops.cast(v, "float32")
            for v in (self.gamma, self.beta, *moving_statistics([self]))
        )
        # torch takes `[B, C, H, W]`. This is a view in the format "channels last": no
        # number is moved.
        outputs, mean, deviation = torch.native_batch_norm(
            x.permute(0, 3, 1, 2),
            gamma,
            beta,
            *([None, None] if is_training else moving),
            is_training,
            0.0,
            self.epsilon,
        )
        if is_training:
            mean = mean.detach()  # `deviation` is the inverse of the standard deviation
            variance = deviation.detach() ** -2 - self.epsilon
            if self.unbiased:
                variance = variance * _bessel(x)
            self._move_statistics(mean, variance)
        return ops.cast(outputs.permute(0, 2, 3, 1), self.compute_dtype)

    def _composed(self, inputs, training, is_training):
        """Runs Keras' batch norm, and then updates the statistics by the options."""
        if not is_training or not (self.unbiased or self.momentum_warmup):
            return super().call(inputs, training=training)
        before = [ops.copy(v) for v in moving_statistics([self])]
        outputs = super().call(inputs, training=training)
        # Keras has updated the statistics with (1 - momentum) times those of the batch.
        # This recovers the mean and variance of the batch.
        mean, variance = (
            (after - self.momentum * old) / (1.0 - self.momentum)
            for after, old in zip(map(ops.copy, moving_statistics([self])), before)
        )
        if self.unbiased:
            variance = variance * _bessel(inputs)
        for statistic, old in zip(moving_statistics([self]), before):
            statistic.assign(old)
        self._move_statistics(mean, variance)
        return outputs


def _bessel(inputs, replicas=1):
    """Returns `n / (n - 1)` for the `n` numbers of each channel on all replicas."""
    sizes = tuple(inputs.shape[:-1])
    if None not in sizes:  # a Python number
        n = math.prod(sizes) * replicas
        return n / max(n - 1.0, 1.0)
    n = ops.prod(ops.cast(ops.shape(inputs)[:-1], "float32")) * replicas
    return n / ops.maximum(n - 1.0, 1.0)


def _fused(x, gamma, beta, epsilon):
    """Runs TensorFlow's kernel.

    Returns the result, and the mean and variance `[C]` of the batch.
    """
    none = _nothing()
    with _one_eager_kernel_at_a_time():
        outputs, mean, variance, _, kept, *_ = _kernel(x)(
            x=x, scale=gamma, offset=beta, mean=none, variance=none, epsilon=epsilon
        )
    # Keras divides the variance by n, the kernel by n - 1. On CPUs, the kernel also
    # returns the variance over n, which it keeps for the gradient.
    return outputs, mean, kept if runs_on_processors() else variance / _bessel(x)


_eager_kernel = threading.Lock()


def _one_eager_kernel_at_a_time():
    """Context for TensorFlow's fused kernel, which two threads must not share.

    Threads that run a model eagerly share one kernel object for all batch norms with
    the same attributes. In TensorFlow 2.20 with oneDNN, the object stores the number of
    channels. So two threads with different numbers of channels write beyond their
    memory, and the process crashes. In a graph each layer has its own kernel.
    """
    return _eager_kernel if tf.executing_eagerly() else contextlib.nullcontext()


def _kernel(x):
    # Half precision needs version 3. Its gradient has eight more operations, for zeros.
    is_half = x.dtype == tf.bfloat16
    return tf.raw_ops.FusedBatchNormV3 if is_half else tf.raw_ops.FusedBatchNorm


@functools.cache
def _nothing():
    with tf.init_scope():  # one constant for all graphs
        return tf.constant([], tf.float32)


def _over_replicas(x, gamma, beta, epsilon):
    """Does what `_fused` does, with the statistics of all replicas.

    Keras computes the variance as a difference of large numbers, and needs three
    reductions where two are enough.
    """
    axes, x = list(range(x.shape.rank - 1)), tf.cast(x, tf.float32)
    count = tf.cast(tf.size(x) // tf.size(gamma), tf.float32)
    total = sum_of_replicas(tf.concat([tf.reduce_sum(x, axes), [count]], 0))
    mean, count = total[:-1] / total[-1], total[-1]
    squares = tf.reduce_sum(tf.math.squared_difference(x, mean), axes)
    variance = sum_of_replicas(squares) / count
    outputs = tf.nn.batch_normalization(x, mean, variance, beta, gamma, epsilon)
    return outputs, mean, variance
