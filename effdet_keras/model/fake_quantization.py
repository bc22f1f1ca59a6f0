"""Where a network rounds its numbers to 8 bits in quantization-aware training.

Layers mark the places: the results of their operations with `quantized`, activations
with `activate`, convolutions and batch norms with `convolve` and `normalize`. Outside
of `quantizing_with` all of these compute just what they wrap. The places are those at
which LiteRT's converter needs a range in an int8 file, no more and no fewer.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

import keras
from keras import ops

UNIT = (0.0, 255 / 256)  # the range that LiteRT gives every sigmoid


class Quantizer:
    """What `quantizing_with` lets a network round with; this one changes nothing."""

    def point(
        self, name: str, x: Any, limits: tuple[float, float] | None = None
    ) -> Any:
        """The tensor `x`, rounded; `name` is the layer's path and the place in it."""
        return x

    def kernel(self, kernel: Any, axis: int) -> Any:
        """The kernel, rounded with a scale for each index of its `axis`."""
        return kernel

    def bias(self, bias: Any) -> Any:
        """The bias of a convolution, which int8 keeps in 32 bits."""
        return bias

    def normalized(self, batch_norm: Callable[[bool], Any], training: bool) -> Any:
        """What `batch_norm(training)` returns, `training` being as it is to be now."""
        return batch_norm(False)


_quantizer: contextvars.ContextVar[Quantizer | None] = contextvars.ContextVar(
    "quantizer", default=None
)


@contextlib.contextmanager
def quantizing_with(quantizer: Quantizer | None) -> Iterator[None]:
    """Within this context a network that is called rounds with `quantizer`."""
    token = _quantizer.set(quantizer)
    try:
        yield
    finally:
        _quantizer.reset(token)


def quantized(
    layer: keras.layers.Layer,
    place: str,
    x: Any,
    limits: tuple[float, float] | None = None,
) -> Any:
    """A result within a layer, rounded where the network is quantized."""
    quantizer = _quantizer.get()
    if quantizer is None:
        return x
    return quantizer.point(f"{layer.path or layer.name}/{place}", x, limits)


def activate(
    layer: keras.layers.Layer, activation: Callable[[Any], Any], x: Any
) -> Any:
    """`activation(x)`. LiteRT joins a ReLU to the convolution before it, no other."""
    if _quantizer.get() is None:
        return activation(x)
    if activation not in (keras.activations.relu, keras.activations.relu6):
        x = quantized(layer, "before_activation", x)
    if activation is keras.activations.silu:
        return quantized(layer, "activation", x * gate(layer, x))
    return quantized(layer, "activation", activation(x))


def gate(layer: keras.layers.Layer, x: Any) -> Any:
    """`sigmoid(x)`, in the range that it has in LiteRT."""
    return quantized(layer, "sigmoid", ops.sigmoid(x), UNIT)


def normalize(batch_norm: keras.layers.Layer, x: Any, training: bool) -> Any:
    """The batch norm of `x` `[B, H, W, C]`: a part of the convolution before it."""

    def run(training):
        return batch_norm(x, training=training)

    quantizer = _quantizer.get()
    return run(training) if quantizer is None else quantizer.normalized(run, training)


def convolve(conv: keras.layers.Layer, x: Any) -> Any:
    """`conv(x)`, with rounded kernels where the network is quantized.

    A scale for each output channel stands before the batch norm as well as after it:
    what the norm multiplies a channel by changes its scale, and not its integers.
    """
    quantizer = _quantizer.get()
    if quantizer is None:
        return conv(x)
    layers = keras.layers
    strided = {"strides": tuple(conv.strides), "padding": conv.padding}
    if isinstance(conv, layers.SeparableConv2D):
        x = ops.depthwise_conv(x, quantizer.kernel(conv.depthwise_kernel, 2), **strided)
        x = quantized(conv, "depthwise", x)
        x = ops.conv(x, quantizer.kernel(conv.pointwise_kernel, 3))
    elif isinstance(conv, layers.DepthwiseConv2D):
        x = ops.depthwise_conv(x, quantizer.kernel(conv.kernel, 2), **strided)
    elif isinstance(conv, layers.Conv2DTranspose):
        x = ops.conv_transpose(x, quantizer.kernel(conv.kernel, 2), **strided)
    else:
        x = ops.conv(x, quantizer.kernel(conv.kernel, 3), **strided)
    return x + quantizer.bias(conv.bias) if conv.use_bias else x


def convolve_transposed(
    conv: keras.layers.Layer,
    batch_norm: keras.layers.Layer,
    x: Any,
    size: tuple[int, int],
    training: bool,
) -> Any:
    """`conv`, cut to a size, and `batch_norm`, which becomes a part of `conv`; rounded.

    LiteRT's converter does so itself with every convolution but a transposed one.
    """
    height, width = size
    quantizer = _quantizer.get()
    if quantizer is None or training:
        x = convolve(conv, x)[:, :height, :width]
        return quantized(conv, "normalized", normalize(batch_norm, x, training))
    scale = batch_norm.gamma * ops.rsqrt(
        batch_norm.moving_variance + batch_norm.epsilon
    )
    kernel = quantizer.kernel(conv.kernel * scale[:, None], 2)
    x = ops.conv_transpose(x, kernel, strides=tuple(conv.strides), padding=conv.padding)
    shift = batch_norm.beta - batch_norm.moving_mean * scale
    # Nothing can join a transposed convolution that is cut afterwards.
    return quantized(conv, "normalized", x + shift)[:, :height, :width]


def rounded_kernel(kernel: Any, axis: int) -> Any:
    """A kernel in 255 symmetric steps, with a scale for each index of an axis."""
    kernel = ops.convert_to_tensor(kernel)
    others = [i for i in range(len(kernel.shape)) if i != axis]
    scale = ops.max(ops.abs(kernel), axis=others, keepdims=True) / 127.0
    scale = ops.where(scale > 0, scale, 1.0)
    return ops.round(kernel / scale) * scale
