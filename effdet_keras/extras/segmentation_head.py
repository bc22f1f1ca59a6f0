"""The segmentation head of google/automl: a class for each pixel."""

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
    """Turns pyramid features `[B, H_l, W_l, C]` into a class's logits for each pixel.

    It starts from the coarsest level. For each finer level: a transposed convolution
    that doubles the size, a batch norm, an activation, and the features of that level
    behind it. One more transposed convolution gives the logits, float32
    `[B, height, width, num_classes]`, in twice the size of the finest level, or in
    `output_size`. The paper has no such head; google/automl's code has.

    A level of odd size is less than twice the one above: what is too much at the
    bottom and at the right is then cut off. (google/automl's fails there.) So images of
    every size can be segmented, and those whose levels double exactly are as there.
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
    """`conv`, cut to a size, and `batch_norm`, which becomes a part of `conv`; rounded.

    LiteRT's converter does so itself with every convolution but a transposed one.
    """
    quantizer = computing().quantizer
    if quantizer is not None and not training:
        return quantizer.convolve_transposed(conv, batch_norm, x, size)
    height, width = size
    x = normalize(batch_norm, convolve(conv, x)[:, :height, :width], training)
    return quantized(conv, "normalized", x)
