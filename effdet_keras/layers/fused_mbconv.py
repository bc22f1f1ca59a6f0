"""The fused bottleneck block of EfficientNetV2, and its single convolution."""

from __future__ import annotations

from typing import Any

import keras

from effdet_keras.layers.activation import get_activation
from effdet_keras.layers.drop_path import DropPath
from effdet_keras.layers.fake_quantization import (
    activate,
    convolve,
    normalize,
    quantized,
)
from effdet_keras.layers.mbconv import conv_initializer
from effdet_keras.layers.options import BatchNormOptions
from effdet_keras.layers.padding import pad_with_zeros, rows_to_add, strided


@keras.saving.register_keras_serializable(package="effdet_keras")
class FusedMBConv(keras.layers.Layer):
    """Bottleneck whose expansion is itself the convolution over space.

    EfficientNetV2's early block (https://arxiv.org/abs/2104.00298, figure 2) has one
    convolution in the place of `MBConv`'s expansion and depthwise convolution, and a
    1x1 projection. If neither size nor channels change, the input is added to the
    result, which may be dropped by stochastic depth.

    Without an expansion, EfficientNetV2 has no projection either: the block is one
    convolution with its activation.

    Args:
        filters: int, channels of the result.
        kernel_size: int.
        stride: int.
        expand_ratio: int, channels inside the block / input channels.
        project: bool, whether there is a projection. Without one, `expand_ratio` has no
            meaning.
        activation: string, see `effdet_keras.config.ACTIVATIONS`.
        survival_prob: float or None, of the residual branch.
        padding: "same" or "symmetric", of the convolution over space.
        batch_norm: `BatchNormOptions` or None for its defaults.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: tensor `[B, H, W, C]`.

    Returns:
        Tensor `[B, ceil(H / stride), ceil(W / stride), filters]`.

    Example:
        >>> block = FusedMBConv(16, stride=2, expand_ratio=4)
        >>> tuple(block(ops.ones((1, 7, 8, 4))).shape)
        (1, 4, 4, 16)
    """

    def __init__(
        self,
        filters: int,
        kernel_size: int = 3,
        stride: int = 1,
        expand_ratio: int = 4,
        project: bool = True,
        activation: str = "swish",
        survival_prob: float | None = None,
        padding: str = "same",
        batch_norm: BatchNormOptions | dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.filters = filters
        self.kernel_size = kernel_size
        self.stride = stride
        self.expand_ratio = expand_ratio
        self.project = project
        self.activation = activation
        self.survival_prob = survival_prob
        self.padding = padding
        self._rows = rows_to_add(padding, kernel_size, stride)
        self.batch_norm = BatchNormOptions.from_value(batch_norm)
        self._act = get_activation(activation)
        self.project_conv = self.project_bn = self.drop_path = None

    def build(self, input_shape):
        policy = self.dtype_policy
        channels = input_shape[-1]
        width = channels * self.expand_ratio if self.project else self.filters
        self.conv = keras.layers.Conv2D(
            width,
            self.kernel_size,
            strides=self.stride,
            padding="valid" if self._rows else "same",
            use_bias=False,
            kernel_initializer=conv_initializer(),
            name="conv2d",
            dtype=policy,
        )
        # Of the padded sizes: those of the input may be below the kernel's.
        self.conv.build((input_shape[0], None, None, channels))
        shape = (*self.compute_output_shape(input_shape)[:-1], width)
        self.bn = self.batch_norm.layer("tpu_batch_normalization", policy)
        self.bn.build(shape)
        if self.project:
            self.project_conv = keras.layers.Conv2D(
                self.filters,
                1,
                use_bias=False,
                kernel_initializer=conv_initializer(),
                name="conv2d_1",
                dtype=policy,
            )
            self.project_bn = self.batch_norm.layer("tpu_batch_normalization_1", policy)
            self.project_conv.build(shape)
            self.project_bn.build((*shape[:-1], self.filters))
        self._residual = self.stride == 1 and channels == self.filters
        if self._residual and self.survival_prob:
            self.drop_path = DropPath(self.survival_prob, name="drop", dtype=policy)

    def call(self, inputs, training=False):
        x = convolve(self.conv, pad_with_zeros(inputs, self._rows))
        x = activate(self, self._act, normalize(self.bn, x, training))
        if self.project_conv is not None:
            x = normalize(self.project_bn, convolve(self.project_conv, x), training)
            x = quantized(self, "projected", x)
        if not self._residual:
            return x
        if self.drop_path is not None:
            x = self.drop_path(x, training=training)
        return quantized(self, "sum", x + inputs)

    def compute_output_shape(self, input_shape):
        sides = (strided(n, self.stride) for n in input_shape[1:3])
        return (input_shape[0], *sides, self.filters)

    def get_config(self):
        return {
            **super().get_config(),
            "filters": self.filters,
            "kernel_size": self.kernel_size,
            "stride": self.stride,
            "expand_ratio": self.expand_ratio,
            "project": self.project,
            "activation": self.activation,
            "survival_prob": self.survival_prob,
            "padding": self.padding,
            "batch_norm": self.batch_norm.serialize(),
        }
