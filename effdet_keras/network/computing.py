"""Functions through which layers compute, so that a network can be quantized.

Layers mark the places at which LiteRT's converter needs a range in an int8 file: the
results of their operations with `quantized`, activations with `activate` and `gate`,
convolutions and batch norms with `convolve` and `normalize`. Without a `quantizer`,
these functions only compute what they wrap. With that of `extras/quantization` they
also round.
"""

import contextlib
import contextvars
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from effdet_keras._internal.optional_imports import tensorflow as tf

ON_TENSORFLOW = keras.backend.backend() == "tensorflow"
ON_TORCH = keras.backend.backend() == "torch"


class Computing(NamedTuple):
    """Settings of one call of a network.

    Attributes:
        quantizer: the quantizer of `extras/quantization`, or None.
        repeat: function that takes `[B, H, W, C]` and two ints `(rows, columns)`. It
            returns `[B, H * rows, W * columns, C]`, with each row and column repeated.
            It is for exports to runtimes without a resize operation, or a slow one.
        fold: function that takes a convolution, `x` and a batch norm, and computes both
            as one operation.
    """

    quantizer: Any = None
    repeat: Callable | None = None
    fold: Callable | None = None


# A context variable, because each replica of a model is traced in its own thread with
# its own quantizer.
_PLAIN = Computing()
_computing = contextvars.ContextVar("computing", default=_PLAIN)
computing = _computing.get


@contextlib.contextmanager
def computing_with(**changes):
    """Context in which networks compute with other fields of `Computing`."""
    token = _computing.set(computing()._replace(**changes))
    try:
        yield
    finally:
        _computing.reset(token)


def quantized(layer, place, x, limits=None):
    """Returns a result `x` within a layer, rounded if the network is quantized.

    `place` is the name of the result in the layer. `limits` is its known range
    `(low, high)`, or None.
    """
    quantizer = computing().quantizer
    return x if quantizer is None else quantizer.quantized(layer, place, x, limits)


def activate(layer, activation, x):
    """Returns `activation(x)`, rounded if the network is quantized."""
    quantizer = computing().quantizer
    if quantizer is None:
        return activation(x)
    return quantizer.activate(layer, activation, x)


def gate(layer, x):
    """Returns `sigmoid(x)`, rounded if the network is quantized."""
    quantizer = computing().quantizer
    return ops.sigmoid(x) if quantizer is None else quantizer.gate(layer, x)


def normalize(batch_norm, x, training):
    """Returns the batch norm of `x` `[B, H, W, C]`, the result of a convolution."""

    def run(training):
        return batch_norm(x, training=training)

    quantizer = computing().quantizer
    if quantizer is None:
        return run(training)
    return quantizer.normalized(run, training, batch_norm)


def convolve(conv, x, batch_norm=None, training=False):
    """Returns `conv(x)`, or with `batch_norm` the batch norm of it."""
    quantizer, _, fold = computing()
    if batch_norm is not None and fold is not None:
        return fold(conv, x, batch_norm)
    x = _convolved(conv, x) if quantizer is None else quantizer.convolve(conv, x)
    return x if batch_norm is None else normalize(batch_norm, x, training)


def _convolved(conv, x):
    """Returns `conv(x)`, with eleven operations less in a step's graph than Keras."""
    if isinstance(conv, keras.layers.SeparableConv2D):
        kernel, padding = conv.depthwise_kernel, conv.padding
        if ON_TENSORFLOW:
            kernel = tf.cast(kernel, x.dtype)
            x = tf.raw_ops.DepthwiseConv2dNative(
                input=x, filter=kernel, strides=[1] * 4, padding=padding.upper()
            )
        else:
            x = ops.depthwise_conv(x, kernel, padding=padding)
        x = _conv2d(x, conv.pointwise_kernel)
    elif type(conv) is keras.layers.Conv2D:
        x = _conv2d(x, conv.kernel, conv.strides, conv.padding)
    else:
        return conv(x)
    return ops.add(x, conv.bias) if conv.use_bias else x


def _conv2d(x, kernel, strides=(1, 1), padding="valid"):
    """Does what `ops.conv` does, on TensorFlow with one operation.

    It is created in half of the time. A step of D0 has 134 of them, so this saves 1 to
    2 % of the time until the first step.
    """
    if not ON_TENSORFLOW:
        return ops.conv(x, kernel, strides, padding)
    return tf.raw_ops.Conv2D(
        input=x,
        filter=tf.cast(kernel, x.dtype),
        strides=[1, *strides, 1],
        padding=padding.upper(),
    )
