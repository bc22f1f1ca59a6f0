"""How a network computes that rounds at the places of `model/computing.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from effdet_keras.model.basic_layers import swish

_UNIT = (0.0, 255 / 256)  # the range that LiteRT gives every sigmoid


class Quantizer:
    """What `computing_with(quantizer=...)` lets a network round with.

    This one changes nothing: `point`, `kernel`, `bias` and `normalized` are to be
    overridden.
    """

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

    def quantized(self, layer, place, x, limits=None):
        return self.point(f"{layer.path or layer.name}/{place}", x, limits)

    def activate(self, layer, activation, x):
        """LiteRT joins a ReLU to the convolution before it, no other activation."""
        if activation not in (keras.activations.relu, keras.activations.relu6):
            x = self.quantized(layer, "before_activation", x)
        is_swish = activation is swish
        x = x * self.gate(layer, x) if is_swish else activation(x)
        return self.quantized(layer, "activation", x)

    def gate(self, layer, x):
        """`sigmoid(x)`, in the range that it has in LiteRT."""
        return self.quantized(layer, "sigmoid", ops.sigmoid(x), _UNIT)

    def convolve(self, conv, x):
        """`conv(x)` with rounded kernels.

        A scale for each output channel stands before the batch norm as well as after
        it: what the norm multiplies a channel by changes its scale, not its integers.
        """
        layers = keras.layers
        strided = {"strides": tuple(conv.strides), "padding": conv.padding}
        if isinstance(conv, layers.SeparableConv2D):
            x = ops.depthwise_conv(x, self.kernel(conv.depthwise_kernel, 2), **strided)
            x = self.quantized(conv, "depthwise", x)
            x = ops.conv(x, self.kernel(conv.pointwise_kernel, 3))
        elif isinstance(conv, layers.DepthwiseConv2D):
            x = ops.depthwise_conv(x, self.kernel(conv.kernel, 2), **strided)
        elif isinstance(conv, layers.Conv2DTranspose):
            x = ops.conv_transpose(x, self.kernel(conv.kernel, 2), **strided)
        else:
            x = ops.conv(x, self.kernel(conv.kernel, 3), **strided)
        return x + self.bias(conv.bias) if conv.use_bias else x

    def convolve_transposed(self, conv, batch_norm, x, size):
        """As of `model/computing.py`, outside of training."""
        height, width = size
        variance = batch_norm.moving_variance + batch_norm.epsilon
        scale = batch_norm.gamma * ops.rsqrt(variance)
        kernel = self.kernel(conv.kernel * scale[:, None], 2)
        strided = {"strides": tuple(conv.strides), "padding": conv.padding}
        x = ops.conv_transpose(x, kernel, **strided)
        shift = batch_norm.beta - batch_norm.moving_mean * scale
        # Nothing can join a transposed convolution that is cut afterwards.
        return self.quantized(conv, "normalized", x + shift)[:, :height, :width]


def rounded_kernel(kernel: Any, axis: int) -> Any:
    """A kernel in 255 symmetric steps, with a scale for each index of an axis."""
    kernel = ops.convert_to_tensor(kernel)
    others = [i for i in range(len(kernel.shape)) if i != axis]
    scale = ops.max(ops.abs(kernel), axis=others, keepdims=True) / 127.0
    scale = ops.where(scale > 0, scale, 1.0)
    return ops.round(kernel / scale) * scale
