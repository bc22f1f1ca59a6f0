"""The segmentation head of google/automl, which predicts a class for each pixel."""

from __future__ import annotations

import keras
from keras import ops

from effdet_keras.network.computing import (
    activate,
    computing,
    convolve,
    normalize,
    quantized,
)
from effdet_keras.network.layers import (
    BatchNormOptions,
    ConfiguredLayer,
    get_activation,
)


@keras.saving.register_keras_serializable(package="effdet_keras")
class SegmentationHead(ConfiguredLayer):
    """Computes logits of classes for each pixel from features `[B, H_l, W_l, C]`.

    The head starts from the coarsest pyramid level. For each finer level it applies a
    transposed convolution that doubles the size, a batch norm and an activation, and
    concatenates the features of that level. One more transposed convolution gives the
    logits, float32 `[B, height, width, num_classes]`. Their size is twice that of the
    finest level, or `output_size`. The paper has no such head; google/automl's code
    has.

    A level of odd size is less than twice as large as the coarser one. The excess rows
    and columns at the bottom and at the right are then cut off, whereas google/automl's
    head fails. So images of every size can be segmented, and the results equal those of
    google/automl if the sizes of the levels double exactly.

    Args:
        num_classes: int, number of classes of pixels.
        filters: int, number of filters of the transposed convolutions.
        activation: string, name of the activation.
        output_size: `(height, width)` of the logits in pixels; None for twice the size
            of the finest level.
        batch_norm: `BatchNormOptions`, or a dict of its fields; None for the defaults.
        **kwargs: arguments of `keras.layers.Layer`, such as `name`, `dtype`.

    Call arguments:
        inputs: list of tensors `[B, H_l, W_l, C]`, the finest level first.
        training: bool, whether batch norms use the statistics of the batch.
    """

    def __init__(
        self,
        num_classes,
        filters=64,
        activation="swish",
        output_size=None,
        batch_norm=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_classes = num_classes
        self.filters = filters
        self.activation = activation
        self.output_size = None if output_size is None else tuple(output_size)
        self.batch_norm = BatchNormOptions.from_value(batch_norm)
        self._act = get_activation(activation)

    def build(self, input_shape):
        shapes = [tuple(shape) for shape in input_shape]
        skips = shapes[-2::-1]  # the coarsest first
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
            # The numbering of Keras in google/automl's checkpoints.
            name=f"conv2d_transpose_{index}" if index else "conv2d_transpose",
            dtype=self.dtype_policy,
        )

    def call(self, inputs, training=False):
        x = inputs[-1]
        for conv, bn, skip in zip(self.convs, self.bns, inputs[-2::-1]):
            x = _convolve_transposed(conv, bn, x, tuple(skip.shape[1:3]), training)
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


def _convolve_transposed(conv, batch_norm, x, size, training):
    """Applies `conv`, crops, and applies `batch_norm`; quantizes if requested.

    To quantize, the batch norm is folded into the convolution. LiteRT's converter does
    this itself for all convolutions except transposed ones.
    """
    quantizer = computing().quantizer
    if quantizer is not None and not training:
        return quantizer.convolve_transposed(conv, batch_norm, x, size)
    height, width = size
    x = normalize(batch_norm, convolve(conv, x)[:, :height, :width], training)
    return quantized(conv, "normalized", x)
