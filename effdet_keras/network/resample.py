"""Brings a feature map to another level's size and number of channels."""

from __future__ import annotations

import keras
import numpy as np
from keras import ops

from effdet_keras.network.computing import computing, convolve, quantized
from effdet_keras.network.initial_values import with_quick_initial_values
from effdet_keras.network.layers import ConfiguredLayer, PyramidOptions


@keras.saving.register_keras_serializable(package="effdet_keras")
class Resample(ConfiguredLayer):
    """Resamples `[B, H, W, C]` to another level's size and number of channels.

    If the number of channels differs, it applies a 1x1 convolution with a batch norm.
    Then it applies max pooling to a smaller size, or nearest-neighbor repetition to a
    larger one (https://arxiv.org/abs/1911.09070, section 3.3, "Resize").

    The size need not be halved exactly. Pooling has a window of `stride + 1` with
    `stride = (size - 1) // target + 1`. Row `i` of an upsampled map is row
    `i * size // target` of the input. With the option "bilinear", interpolation has
    half-pixel centers and no antialiasing.

    Args:
        filters: int, the number of channels of the result.
        target_size: `(height, width)` of the result.
        options: `PyramidOptions` (`effdet_keras.network.layers`), or a dict of its
            fields. None is the defaults.
    """

    def __init__(self, filters, target_size, options=None, **kwargs):
        super().__init__(**kwargs)
        self.filters = filters
        self.target_size = tuple(target_size)
        self.options = options = PyramidOptions.from_value(options)
        self.conv = self.bn = None

    def build(self, input_shape):
        size = tuple(input_shape[1:3])
        pairs = list(zip(size, self.target_size))
        self._shrinks = any(n > t for n, t in pairs)
        self._strides = tuple((n - 1) // t + 1 for n, t in pairs)
        if input_shape[-1] != self.filters:
            self._build_conv(input_shape)

    def _build_conv(self, input_shape):
        options, policy = self.options, self.dtype_policy
        has_norm = options.apply_bn_for_resampling
        self.conv = keras.layers.Conv2D(
            self.filters,
            1,
            use_bias=options.redundant_bias or not has_norm,
            name="conv2d",
            dtype=policy,
        )
        with_quick_initial_values(self.conv)
        self.conv.build(input_shape)
        if has_norm:
            self.bn = options.batch_norm.layer("bn", dtype=policy)
            self.bn.build((*input_shape[:-1], self.filters))

    def call(self, inputs, training=False):
        if self._shrinks and self.options.conv_after_downsample:
            return self._match_channels(self._pool(inputs), training)
        x = self._match_channels(inputs, training)
        return self._pool(x) if self._shrinks else self._upsample(x, training)

    def _match_channels(self, x, training):
        if self.conv is None:
            return x
        x = convolve(self.conv, x, self.bn, training)
        return quantized(self, "channels", x)

    def _pool(self, x):
        if self.options.downsampling == "bilinear":
            return self._interpolate(x)
        if self.options.padding == "symmetric":
            # Repeating the edge has the effect of padding with minus infinity, without
            # an infinity in a quantized model. A side of one row has a stride of 1.
            if self._strides[0] > 1:
                x = ops.concatenate([x[:, :1], x, x[:, -1:]], axis=1)
            if self._strides[1] > 1:
                x = ops.concatenate([x[:, :, :1], x, x[:, :, -1:]], axis=2)
            window = tuple(2 * stride - 1 for stride in self._strides)
            return ops.max_pool(x, window, self._strides, padding="valid")
        window = tuple(stride + 1 for stride in self._strides)
        return ops.max_pool(x, window, self._strides, padding="same")

    def _upsample(self, x, training):
        """Upsamples `[B, H, W, C]` to `target_size`, bilinear or nearest neighbor."""
        size = tuple(x.shape[1:3])
        if size == self.target_size:
            return x
        if self.options.upsampling == "bilinear":
            return self._interpolate(x)
        repeat = computing().repeat
        if repeat is not None and _is_cut_repetition(size, self.target_size):
            times = [-(-t // n) for n, t in zip(size, self.target_size)]
            height, width = self.target_size
            return repeat(x, tuple(times))[:, :height, :width]
        if all(t % n == 0 for n, t in zip(size, self.target_size)):
            # Gives the same rows as below, with a gradient that is five times faster.
            resize = _repeated_in_training if training else _repeated
            return resize(x, self.target_size)
        for axis, target in zip((1, 2), self.target_size):
            size = x.shape[axis]
            if target != size:
                rows = np.arange(target, dtype="int32") * size // target
                x = ops.take(x, rows, axis=axis)
        return x

    def _interpolate(self, x):
        x = ops.image.resize(
            x,
            self.target_size,
            interpolation="bilinear",
            antialias=False,
            data_format="channels_last",
        )
        return ops.cast(quantized(self, "interpolated", x), self.compute_dtype)

    def compute_output_shape(self, input_shape):
        size = self.target_size
        if self._shrinks and self.options.downsampling == "max":
            size = (-(-n // s) for n, s in zip(input_shape[1:3], self._strides))
        return (input_shape[0], *size, self.filters)


def _repeated(x, target_size):
    return ops.image.resize(
        x, target_size, interpolation="nearest", data_format="channels_last"
    )


def _repeated_in_training(x, target_size):
    """Does what `_repeated` does, with a gradient that XLA can compile.

    On TensorFlow, XLA cannot compile the gradient of `_repeated`.
    """
    # Average pooling is as fast without XLA. Sums over reshaped arrays would take three
    # to ten times as long.
    times = tuple(t // n for t, n in zip(target_size, x.shape[1:3]))

    @ops.custom_gradient
    def repeated(x):
        def gradient(*args, upstream=None):
            upstream = args[0] if upstream is None else upstream
            mean = ops.average_pool(
                upstream, times, times, "valid", data_format="channels_last"
            )
            return mean * (times[0] * times[1])

        return _repeated(x, target_size), gradient

    return repeated(x)


def _is_cut_repetition(size, target_size):
    """Returns whether repeating rows, and cutting off the end, gives the right rows."""
    return all(
        row * n // t == row // -(-t // n)
        for n, t in zip(size, target_size)
        for row in range(t)
    )
