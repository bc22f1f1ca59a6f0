"""MBConv and fused MBConv, the blocks of EfficientNet, and how windows are padded."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from effdet_keras.errors import InvalidValueError
from effdet_keras.model.basic_layers import BatchNormOptions, DropPath, get_activation
from effdet_keras.model.config import PADDINGS
from effdet_keras.model.fake_quantization import (
    activate,
    convolve,
    gate,
    normalize,
    quantized,
)


def check_padding(padding: str) -> str:
    """Returns `padding` if it is one of `effdet_keras.model.config.PADDINGS`.

    Raises:
        ValueError: If it is not.

    Example:
        >>> check_padding("symmetric")
        'symmetric'
    """
    if padding not in PADDINGS:
        raise InvalidValueError(
            f"`padding` must be one of {', '.join(PADDINGS)}. "
            f"Received: padding={padding!r}"
        )
    return padding


def rows_to_add(padding: str, kernel_size: int, stride: int) -> int:
    """Returns how many rows of zeros a convolution needs on each side before it.

    TensorFlow's "same" puts the odd row behind an image; PyTorch's models pad both
    sides alike. With an odd kernel the two differ only where there is a stride, and the
    results have the same size.

    Args:
        padding: "same" or "symmetric".
        kernel_size: int, odd.
        stride: int.

    Returns:
        Int. 0 if the convolution itself does the padding, with "same"; after any other
        number it must be "valid".

    Example:
        >>> rows_to_add("symmetric", 5, 2), rows_to_add("same", 5, 2)
        (2, 0)
    """
    symmetric = check_padding(padding) == "symmetric" and stride > 1
    return (kernel_size - 1) // 2 if symmetric else 0


def pad_with_zeros(x: Any, rows: int) -> Any:
    """Puts rows and columns of zeros around `[B, H, W, C]`, `rows` on each side."""
    if rows == 0:
        return x
    return ops.pad(x, [[0, 0], [rows, rows], [rows, rows], [0, 0]])


def repeat_edges(x: Any, times: tuple[int, int]) -> Any:
    """Repeats the outermost rows and columns of `[B, H, W, C]`.

    Before max pooling it is what padding with minus infinity is, as long as each window
    has the edge in it, and no infinity comes into a quantized model.

    Args:
        x: tensor `[B, H, W, C]`.
        times: pair of 0 or 1, whether to repeat rows, and columns.

    Returns:
        Tensor `[B, H + 2 * times[0], W + 2 * times[1], C]`.

    Example:
        >>> tuple(repeat_edges(ops.ones((1, 2, 2, 1)), (1, 0)).shape)
        (1, 4, 2, 1)
    """
    if times[0]:
        x = ops.concatenate([x[:, :1], x, x[:, -1:]], axis=1)
    if times[1]:
        x = ops.concatenate([x[:, :, :1], x, x[:, :, -1:]], axis=2)
    return x


def strided(size: int | None, stride: int) -> int | None:
    """Returns the rows of a result for those of an input, with either padding."""
    return None if size is None else -(-size // stride)


# --- The mobile inverted bottleneck block of EfficientNet, with squeeze-excite.


def conv_initializer():
    """Returns EfficientNet's: normal with std `sqrt(2 / (kh * kw * filters))`."""
    return keras.initializers.VarianceScaling(2.0, "fan_out", "untruncated_normal")


@keras.saving.register_keras_serializable(package="effdet_keras")
class DepthwiseInitializer(keras.initializers.Initializer):
    """Normal with std `sqrt(2 / (kh * kw))` for kernels `[kh, kw, channels, 1]`.

    Each output of a depthwise convolution sees one channel, which
    `VarianceScaling` does not know.

    Example:
        >>> kernel = DepthwiseInitializer(seed=0)((3, 3, 500, 1))
        >>> round(float(ops.std(kernel)), 2)  # sqrt(2 / 9) = 0.47
        0.47
    """

    def __init__(self, seed: int | None = None) -> None:
        self.seed = seed

    def __call__(self, shape, dtype=None):
        stddev = (2.0 / (shape[0] * shape[1])) ** 0.5
        return keras.random.normal(shape, stddev=stddev, dtype=dtype, seed=self.seed)

    def get_config(self):
        return {"seed": self.seed}


@keras.saving.register_keras_serializable(package="effdet_keras")
class SqueezeExcite(keras.layers.Layer):
    """Weighs the channels by what the whole image shows.

    It takes the mean over the image, then two 1x1 convolutions and a sigmoid per
    channel (https://arxiv.org/abs/1709.01507, section 3).

    Args:
        reduced_filters: int, channels between the two convolutions.
        activation: string, see `effdet_keras.model.config.ACTIVATIONS`.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: tensor `[B, H, W, C]`.

    Returns:
        Tensor like `inputs`.

    Example:
        >>> tuple(SqueezeExcite(2)(ops.ones((1, 4, 4, 8))).shape)
        (1, 4, 4, 8)
    """

    def __init__(
        self, reduced_filters: int, activation: str = "swish", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.reduced_filters = reduced_filters
        self.activation = activation
        self._act = get_activation(activation)

    def build(self, input_shape):
        def conv(filters, name):
            return keras.layers.Conv2D(
                filters,
                1,
                kernel_initializer=conv_initializer(),
                name=name,
                dtype=self.dtype_policy,
            )

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

    def get_config(self):
        return {
            **super().get_config(),
            "reduced_filters": self.reduced_filters,
            "activation": self.activation,
        }


@keras.saving.register_keras_serializable(package="effdet_keras")
class MBConv(keras.layers.Layer):
    """Inverted bottleneck: expand, depthwise convolution, squeeze-excite, project.

    EfficientNet's block (https://arxiv.org/abs/1905.11946, section 4). If
    neither size nor channels change, the input is added to the result, which may be
    dropped by stochastic depth.

    Sub-layers carry the names of the published checkpoints.

    Args:
        filters: int, channels of the result.
        kernel_size: int, the depthwise convolution's.
        stride: int, the depthwise convolution's.
        expand_ratio: int, channels inside the block / input channels.
        se_ratio: float or None, squeeze-excite channels / input channels.
        activation: string, see `effdet_keras.model.config.ACTIVATIONS`.
        survival_prob: float or None, of the residual branch.
        padding: "same" or "symmetric", of the depthwise convolution.
        batch_norm: `BatchNormOptions` or None for its defaults.
        **kwargs: arguments of `keras.layers.Layer`.

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
        policy = self.dtype_policy
        bn_names = iter(f"tpu_batch_normalization{end}" for end in ("", "_1", "_2"))
        conv_names = iter(("conv2d", "conv2d_1"))
        shape = tuple(input_shape)
        if self.expand_ratio != 1:
            expanded = shape[-1] * self.expand_ratio
            self.expand_conv = self._conv(expanded, next(conv_names))
            self.expand_bn = self.batch_norm.layer(next(bn_names), policy)
            self.expand_conv.build(shape)
            shape = (*shape[:-1], expanded)
            self.expand_bn.build(shape)
        self.depthwise_conv = keras.layers.DepthwiseConv2D(
            self.kernel_size,
            strides=self.stride,
            padding="valid" if self._rows else "same",
            use_bias=False,
            depthwise_initializer=DepthwiseInitializer(),
            name="depthwise_conv2d",
            dtype=policy,
        )
        self.depthwise_bn = self.batch_norm.layer(next(bn_names), policy)
        # Of the padded sizes: those of `shape` may be below the kernel's.
        self.depthwise_conv.build((shape[0], None, None, shape[-1]))
        sides = (strided(n, self.stride) for n in shape[1:3])
        shape = (shape[0], *sides, shape[-1])
        self.depthwise_bn.build(shape)
        if self.se_ratio:
            reduced = max(1, int(input_shape[-1] * self.se_ratio))
            self.se = SqueezeExcite(reduced, self.activation, name="se", dtype=policy)
            self.se.build(shape)
        self.project_conv = self._conv(self.filters, next(conv_names))
        self.project_bn = self.batch_norm.layer(next(bn_names), policy)
        self.project_conv.build(shape)
        self.project_bn.build((*shape[:-1], self.filters))
        self._residual = self.stride == 1 and input_shape[-1] == self.filters
        if self._residual and self.survival_prob:
            self.drop_path = DropPath(self.survival_prob, name="drop", dtype=policy)

    def _conv(self, filters, name):
        return keras.layers.Conv2D(
            filters,
            1,
            use_bias=False,
            kernel_initializer=conv_initializer(),
            name=name,
            dtype=self.dtype_policy,
        )

    def call(self, inputs, training=False):
        x = inputs
        if self.expand_conv is not None:
            x = normalize(self.expand_bn, convolve(self.expand_conv, x), training)
            x = activate(self, self._act, x)
        x = convolve(self.depthwise_conv, pad_with_zeros(x, self._rows))
        x = activate(self, self._act, normalize(self.depthwise_bn, x, training))
        if self.se is not None:
            x = self.se(x)
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
            "se_ratio": self.se_ratio,
            "activation": self.activation,
            "survival_prob": self.survival_prob,
            "padding": self.padding,
            "batch_norm": self.batch_norm.serialize(),
        }


# --- The fused bottleneck block of EfficientNetV2, and its single convolution.


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
        activation: string, see `effdet_keras.model.config.ACTIVATIONS`.
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
