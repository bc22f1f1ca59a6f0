"""MBConv and fused MBConv, the blocks of EfficientNet, with their padding."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from effdet_keras._internal.backend import (
    compiles_each_operation,
    runs_on_processors,
)
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.network.computing import activate, convolve, gate, quantized
from effdet_keras.network.initial_values import (
    drawn,
    on_device,
    with_quick_initial_values,
)
from effdet_keras.network.layers import (
    BatchNormOptions,
    ConfiguredLayer,
    DropPath,
    get_activation,
)


def rows_to_add(padding, kernel_size, stride):
    """Returns the number of zero rows to add on each side before a convolution.

    With "symmetric" padding and a stride, the convolution is then "valid". Otherwise
    the number is 0 and the convolution pads itself. TensorFlow's "same" puts an odd row
    after the image, and PyTorch's models pad both sides equally. With an odd kernel the
    two differ only if there is a stride.
    """
    symmetric = padding == "symmetric" and stride > 1
    return (kernel_size - 1) // 2 if symmetric else 0


def pad_with_zeros(x, rows):
    """Pads `[B, H, W, C]` with `rows` rows and columns of zeros on each side."""
    return ops.pad(x, [[0, 0], [rows, rows], [rows, rows], [0, 0]]) if rows else x


def strided(shape, stride, filters):
    """Returns the shape of a strided convolution's result, for both paddings."""
    sides = (None if n is None else -(-n // stride) for n in shape[1:3])
    return (shape[0], *sides, filters)


def conv_initializer():
    """Returns EfficientNet's initializer, with std `sqrt(2 / (kh * kw * filters))`.

    Its values are normally distributed.
    """
    return keras.initializers.VarianceScaling(2.0, "fan_out", "untruncated_normal")


@keras.saving.register_keras_serializable(package="effdet_keras")
class DepthwiseInitializer(keras.initializers.Initializer):
    """Normal with std `sqrt(2 / (kh * kw))` for kernels `[kh, kw, channels, 1]`.

    `VarianceScaling` does not take into account that each output of a depthwise
    convolution depends on one channel only.
    """

    def __init__(self, seed=None):
        self.seed = seed

    def __call__(self, shape, dtype=None):
        stddev = (2.0 / (shape[0] * shape[1])) ** 0.5
        if compiles_each_operation() and keras.distribution.distribution() is None:
            numbers = drawn(keras.random.normal, tuple(shape), seed=self.seed)
            return on_device(numbers * np.float32(stddev))
        return keras.random.normal(shape, stddev=stddev, dtype=dtype, seed=self.seed)

    def get_config(self):
        return {"seed": self.seed}


_QUICK = 3  # the widest kernel whose gradient oneDNN computes at full speed


class DepthwiseConv2D(keras.layers.DepthwiseConv2D):
    """`keras.layers.DepthwiseConv2D` with faster gradients on CPUs (docs/speed.md).

    oneDNN takes seven times as long for the gradient of a 5x5 kernel as for that of a
    5x3 kernel. So the gradient is computed in pieces of at most 3 columns. With a
    stride, the gradient of the input takes five to forty times as long in bfloat16 as
    in float32, so it is computed in float32.
    """

    def call(self, inputs):
        is_wide, is_strided = self.kernel_size[1] > _QUICK, max(self.strides) > 1
        is_slow = {"float32": is_wide, "bfloat16": is_wide or is_strided}
        if not (is_slow.get(self.compute_dtype) and runs_on_processors()):
            return super().call(inputs)
        strides = [1, *self.strides, 1]
        padding = self.padding.upper()

        @tf.custom_gradient
        def convolved(x, kernel):
            """Depthwise convolution of `x` `[B, H, W, C]` with a custom gradient."""
            y = tf.nn.depthwise_conv2d(x, kernel, strides, padding)

            def gradient(upstream):
                dtype = tf.float32 if is_strided else x.dtype
                of_x = tf.raw_ops.DepthwiseConv2dNativeBackpropInput(
                    input_sizes=tf.shape(x),
                    filter=tf.cast(kernel, dtype),
                    out_backprop=tf.cast(upstream, dtype),
                    strides=strides,
                    padding=padding,
                )
                of_kernel = _gradient_of_kernel(x, upstream, kernel.shape, strides)
                return tf.cast(of_x, x.dtype), of_kernel

            return y, gradient

        return convolved(inputs, tf.convert_to_tensor(self.kernel))


def _gradient_of_kernel(x, upstream, shape, strides):
    """Computes the gradient of a depthwise kernel `[kh, kw, channels, 1]` in pieces."""
    sides = zip(upstream.shape[1:3], strides[1:3], shape[:2], x.shape[1:3])
    added = [max((n - 1) * stride + k - side, 0) for n, stride, k, side in sides]
    x = tf.pad(x, [[0, 0], *([n // 2, n - n // 2] for n in added), [0, 0]])
    reach = (upstream.shape[2] - 1) * strides[2]
    pieces = []
    for first in range(0, shape[1], _QUICK):
        width = min(_QUICK, shape[1] - first)
        pieces.append(
            tf.raw_ops.DepthwiseConv2dNativeBackpropFilter(
                input=x[:, :, first : first + reach + width],
                filter_sizes=[shape[0], width, *shape[2:]],
                out_backprop=upstream,
                strides=strides,
                padding="VALID",
            )
        )
    return tf.concat(pieces, axis=1)


@keras.saving.register_keras_serializable(package="effdet_keras")
class SqueezeExcite(ConfiguredLayer):
    """Multiplies each channel of `[B, H, W, C]` by a gate from the whole image.

    The gate is the mean over the image, followed by two 1x1 convolutions and a sigmoid
    per channel (https://arxiv.org/abs/1709.01507, section 3).

    Args:
        reduced_filters: int, the number of channels between the two convolutions.
        activation: one of `effdet_keras.network.config.ACTIVATIONS`, after the first
            convolution.
    """

    def __init__(self, reduced_filters, activation="swish", **kwargs):
        super().__init__(**kwargs)
        self.reduced_filters = reduced_filters
        self.activation = activation
        self._act = get_activation(activation)

    def build(self, input_shape):
        def conv(filters, name):
            conv = keras.layers.Conv2D(
                filters,
                1,
                kernel_initializer=conv_initializer(),
                name=name,
                dtype=self.dtype_policy,
            )
            return with_quick_initial_values(conv)

        self.reduce_conv = conv(self.reduced_filters, "conv2d")
        self.expand_conv = conv(input_shape[-1], "conv2d_1")
        squeezed = (input_shape[0], 1, 1, input_shape[-1])
        self.reduce_conv.build(squeezed)
        self.expand_conv.build((*squeezed[:-1], self.reduced_filters))

    def call(self, inputs):
        x = ops.mean(inputs, axis=(1, 2), keepdims=True)
        x = convolve(self.reduce_conv, quantized(self, "squeezed", x))
        x = convolve(self.expand_conv, activate(self, self._act, x))
        x = gate(self, quantized(self, "expanded", x))
        return quantized(self, "excited", inputs * x)

    def compute_output_shape(self, input_shape):
        return input_shape


class _Bottleneck(ConfiguredLayer):
    """Base class of both blocks: convolutions, batch norms and the residual."""

    def _built(self, name, norm_index, shape, filters, kernel_size=1, stride=1):
        """Returns a built convolution, its batch norm, and the shape of their result.

        The convolution is depthwise if `filters` is None.
        """
        options = {
            "kernel_size": kernel_size,
            "strides": stride,
            "padding": "valid" if self._rows and stride > 1 else "same",
            "use_bias": False,
            "name": name,
            "dtype": self.dtype_policy,
        }
        if filters is None:
            conv = DepthwiseConv2D(
                depthwise_initializer=DepthwiseInitializer(), **options
            )
        else:
            conv = keras.layers.Conv2D(
                filters, kernel_initializer=conv_initializer(), **options
            )
        norm = "tpu_batch_normalization" + (f"_{norm_index}" if norm_index else "")
        bn = self.batch_norm.layer(norm, self.dtype_policy)
        with_quick_initial_values(conv)
        # Built without sizes: without padding they may be smaller than the kernel.
        conv.build((shape[0], None, None, shape[-1]))
        shape = strided(shape, stride, filters or shape[-1])
        bn.build(shape)
        return conv, bn, shape

    def _build_residual(self, input_shape):
        self._residual = self.stride == 1 and input_shape[-1] == self.filters
        if self._residual and self.survival_prob:
            self.drop_path = DropPath(
                self.survival_prob, name="drop", dtype=self.dtype_policy
            )

    def _with_input(self, x, inputs, training):
        if not self._residual:
            return x
        if self.drop_path is not None:
            x = self.drop_path(x, training=training)
        return quantized(self, "sum", x + inputs)

    def compute_output_shape(self, input_shape):
        return strided(input_shape, self.stride, self.filters)


@keras.saving.register_keras_serializable(package="effdet_keras")
class MBConv(_Bottleneck):
    """Inverted bottleneck: expand, depthwise convolution, squeeze-excite, project.

    This is EfficientNet's block (https://arxiv.org/abs/1905.11946, section 4). If
    neither size nor channels change, the input is added to the result, which stochastic
    depth may drop before. Sub-layers have the names of the published checkpoints.

    Args:
        filters: int, the number of channels of the result.
        kernel_size, stride: ints, of the depthwise convolution.
        expand_ratio: int, channels inside the block / input channels.
        se_ratio: float, squeeze-excite channels / input channels. None for no
            squeeze-excite.
        activation: one of `effdet_keras.network.config.ACTIVATIONS`.
        survival_prob: float above 0 and at most 1, the survival probability of the
            residual branch; or None.
        padding: "same" or "symmetric", of the depthwise convolution.
        batch_norm: `BatchNormOptions` (`effdet_keras.network.layers`), or a dict of its
            fields. None is the defaults.

    Call arguments:
        inputs: tensor `[B, H, W, C]`.

    Returns:
        Tensor `[B, ceil(H / stride), ceil(W / stride), filters]`.

    Example:
        >>> block = MBConv(16, kernel_size=3, stride=2, expand_ratio=6)
        >>> tuple(block(ops.ones((1, 7, 8, 4))).shape)
        (1, 4, 4, 16)
    """

    def __init__(
        self,
        filters: int,
        kernel_size: int = 3,
        stride: int = 1,
        expand_ratio: int = 6,
        se_ratio: float | None = 0.25,
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
        self.se_ratio = se_ratio
        self.activation = activation
        self.survival_prob = survival_prob
        self.padding = padding
        self._rows = rows_to_add(padding, kernel_size, stride)
        self.batch_norm = BatchNormOptions.from_value(batch_norm)
        self._act = get_activation(activation)
        self.expand_conv = self.expand_bn = self.se = self.drop_path = None

    def build(self, input_shape):
        shape, norms, last = tuple(input_shape), 0, "conv2d"
        if self.expand_ratio != 1:
            expanded = shape[-1] * self.expand_ratio
            made = self._built("conv2d", 0, shape, expanded)
            self.expand_conv, self.expand_bn, shape = made
            norms, last = 1, "conv2d_1"
        self.depthwise_conv, self.depthwise_bn, shape = self._built(
            "depthwise_conv2d", norms, shape, None, self.kernel_size, self.stride
        )
        if self.se_ratio:
            reduced = max(1, int(input_shape[-1] * self.se_ratio))
            self.se = SqueezeExcite(
                reduced, self.activation, name="se", dtype=self.dtype_policy
            )
            self.se.build(shape)
        made = self._built(last, norms + 1, shape, self.filters)
        self.project_conv, self.project_bn, _ = made
        self._build_residual(input_shape)

    def call(self, inputs, training=False):
        x = inputs
        if self.expand_conv is not None:
            x = convolve(self.expand_conv, x, self.expand_bn, training)
            x = activate(self, self._act, x)
        x = pad_with_zeros(x, self._rows)
        x = convolve(self.depthwise_conv, x, self.depthwise_bn, training)
        x = activate(self, self._act, x)
        if self.se is not None:
            x = self.se(x)
        x = convolve(self.project_conv, x, self.project_bn, training)
        x = quantized(self, "projected", x)
        return self._with_input(x, inputs, training)


@keras.saving.register_keras_serializable(package="effdet_keras")
class FusedMBConv(_Bottleneck):
    """Bottleneck whose expansion is the spatial convolution.

    This is EfficientNetV2's block of early stages (https://arxiv.org/abs/2104.00298,
    figure 2). One convolution replaces the expansion and the depthwise convolution of
    `MBConv`; a 1x1 projection follows. A block without an expansion has no projection
    in EfficientNetV2 either (`project=False`): it is one convolution with its
    activation.

    Args:
        project: bool, whether there is a projection. Without it, the convolution has
            `filters` channels.
        filters, kernel_size, stride, expand_ratio, activation, survival_prob, padding,
            batch_norm: as in `MBConv`, for the spatial convolution.
    """

    def __init__(
        self,
        filters,
        kernel_size=3,
        stride=1,
        expand_ratio=4,
        project=True,
        activation="swish",
        survival_prob=None,
        padding="same",
        batch_norm=None,
        **kwargs,
    ):
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
        expanded = input_shape[-1] * self.expand_ratio
        width = expanded if self.project else self.filters
        self.conv, self.bn, shape = self._built(
            "conv2d", 0, input_shape, width, self.kernel_size, self.stride
        )
        if self.project:
            made = self._built("conv2d_1", 1, shape, self.filters)
            self.project_conv, self.project_bn, _ = made
        self._build_residual(input_shape)

    def call(self, inputs, training=False):
        x = pad_with_zeros(inputs, self._rows)
        x = activate(self, self._act, convolve(self.conv, x, self.bn, training))
        if self.project_conv is not None:
            x = convolve(self.project_conv, x, self.project_bn, training)
            x = quantized(self, "projected", x)
        return self._with_input(x, inputs, training)
