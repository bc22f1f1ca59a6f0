"""The segmentation head: from the coarsest level up, a class for each pixel."""

from __future__ import annotations

import itertools
from typing import Any

import keras
from keras import ops

from effdet_keras.errors import InvalidValueError
from effdet_keras.layers.activation import get_activation
from effdet_keras.layers.fake_quantization import (
    activate,
    convolve,
    convolve_transposed,
    quantized,
)
from effdet_keras.layers.options import BatchNormOptions


@keras.saving.register_keras_serializable(package="effdet_keras")
class SegmentationHead(keras.layers.Layer):
    """Turns pyramid features into the logits of a class for each pixel.

    It starts from the coarsest level. For each finer level: a transposed convolution
    that doubles the size, a batch norm, an activation, and the features of that level
    behind it. One more transposed convolution gives the logits, in twice the size of
    the finest level. The paper has no such head; google/automl's code has.

    A level of odd size is less than twice the one above: what is too much at the
    bottom and at the right is then cut off. (google/automl's fails there.) So images of
    every size can be segmented, and those whose levels double exactly are as there.

    Args:
        num_classes: int, classes of pixels.
        filters: int, channels inside the head.
        activation: string, see `effdet_keras.config.ACTIVATIONS`.
        output_size: `(height, width)` of the logits, at most twice the size of the
            first input; None for twice its size.
        batch_norm: `BatchNormOptions` or None for its defaults.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: list of tensors `[B, H_l, W_l, C]`, one per level, finest first.

    Returns:
        Tensor `[B, height, width, num_classes]`, float32.

    Raises:
        ValueError: If a level is not half as large as the one before, rounded up.

    Example:
        >>> head = SegmentationHead(3, filters=8)
        >>> tuple(head([ops.ones((1, 7, 8, 4)), ops.ones((1, 4, 4, 4))]).shape)
        (1, 14, 16, 3)
    """

    def __init__(
        self,
        num_classes: int,
        filters: int = 64,
        activation: str = "swish",
        output_size: tuple[int, int] | None = None,
        batch_norm: BatchNormOptions | dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_classes = num_classes
        self.filters = filters
        self.activation = activation
        self.output_size = None if output_size is None else tuple(output_size)
        self.batch_norm = BatchNormOptions.from_value(batch_norm)
        self._act = get_activation(activation)

    def build(self, input_shape):
        shapes = [tuple(shape) for shape in input_shape]
        _check_levels(shapes)
        skips = shapes[-2::-1]  # coarsest first
        self.convs = [
            self._doubling(self.filters, index, use_bias=False)
            for index in range(len(skips))
        ]
        self.bns = [
            self.batch_norm.layer(f"bn_{index}", self.dtype_policy)
            for index in range(len(skips))
        ]
        self.predict_conv = self._doubling(self.num_classes, len(skips), use_bias=True)
        shape = shapes[-1]
        for conv, bn, skip in zip(self.convs, self.bns, skips):
            conv.build(shape)
            bn.build((*skip[:-1], self.filters))
            shape = (*skip[:-1], self.filters + skip[-1])
        self.predict_conv.build(shape)

    def _doubling(self, filters, index, *, use_bias):
        return keras.layers.Conv2DTranspose(
            filters,
            3,
            strides=2,
            padding="same",
            use_bias=use_bias,
            # As Keras numbers them in google/automl's checkpoints.
            name=f"conv2d_transpose_{index}" if index else "conv2d_transpose",
            dtype=self.dtype_policy,
        )

    def call(self, inputs, training=False):
        x = inputs[-1]
        for conv, bn, skip in zip(self.convs, self.bns, inputs[-2::-1]):
            x = convolve_transposed(conv, bn, x, tuple(skip.shape[1:3]), training)
            x = activate(self, self._act, x)
            x = quantized(self, "with_level", ops.concatenate([x, skip], axis=-1))
        height, width = self._size(inputs[0].shape)
        x = quantized(self, "predictions", convolve(self.predict_conv, x))
        return ops.cast(x[:, :height, :width], "float32")

    def _size(self, finest):
        return self.output_size or (2 * finest[1], 2 * finest[2])

    def compute_output_shape(self, input_shape):
        finest = tuple(input_shape[0])
        return (finest[0], *self._size(finest), self.num_classes)

    def get_config(self):
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "filters": self.filters,
            "activation": self.activation,
            "output_size": self.output_size,
            "batch_norm": self.batch_norm.serialize(),
        }


def _check_levels(shapes):
    sizes = [shape[1:3] for shape in shapes]
    for finer, coarser in itertools.pairwise(sizes):
        if any(-(-a // 2) != b for a, b in zip(finer, coarser)):
            raise InvalidValueError(
                "`SegmentationHead` expects levels of which each is half as large as "
                f"the one before, rounded up. Received: sizes {sizes}"
            )
