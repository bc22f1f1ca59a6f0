"""EfficientNet B0-B7, Lite0-4 and EfficientNetV2: the layer."""

import keras

from effdet_keras.backbones.variants import block_table, stem_filters, tapped_blocks
from effdet_keras.layers.activation import get_activation
from effdet_keras.layers.fake_quantization import activate, convolve, normalize
from effdet_keras.layers.fused_mbconv import FusedMBConv
from effdet_keras.layers.mbconv import MBConv, conv_initializer
from effdet_keras.layers.options import BatchNormOptions
from effdet_keras.layers.padding import pad_with_zeros, rows_to_add, strided
from effdet_keras.layers.recompute import call_block


@keras.saving.register_keras_serializable(package="effdet_keras")
class EfficientNet(keras.layers.Layer):
    """EfficientNet without its classifier: images to feature maps.

    https://arxiv.org/abs/1905.11946; the Lite variants have no squeeze-excite
    and keep stem, first and last stage unscaled. EfficientNetV2
    (https://arxiv.org/abs/2104.00298) begins with fused blocks. Sub-layers carry the
    names of the published checkpoints.

    Args:
        variant: string, one of `effdet_keras.config.BACKBONES`.
        min_level: int, the finest level to return (stride `2**level`).
        activation: string, see `effdet_keras.config.ACTIVATIONS`.
        survival_prob: float or None; block `i` of `n` survives with
            `1 - (1 - survival_prob) * i / n`.
        padding: "same" or "symmetric", of the convolutions with a stride.
        batch_norm: `BatchNormOptions` or None for its defaults.
        taps: indices of the blocks whose outputs are returned, one for each level
            from `min_level` to 5; None for the last block of each. Blocks after the
            last one have weights and are not called.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: normalised images, tensor `[B, H, W, 3]`.

    Returns:
        List of tensors, one per level from `min_level` to 5: the last block's
        output before each halving of the size.

    Raises:
        ValueError: If `variant` is unknown, or `taps` are not on their levels.

    Example:
        >>> backbone = EfficientNet("efficientnet-lite0", activation="relu6")
        >>> [tuple(f.shape) for f in backbone(ops.ones((1, 64, 64, 3)))]
        [(1, 8, 8, 40), (1, 4, 4, 112), (1, 2, 2, 320)]
    """

    def __init__(
        self,
        variant="efficientnet-b0",
        min_level=3,
        activation="swish",
        survival_prob=None,
        padding="same",
        batch_norm=None,
        taps=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.variant = variant
        self.min_level = min_level
        self.activation = activation
        self.survival_prob = survival_prob
        self.padding = padding
        self.batch_norm = BatchNormOptions.from_value(batch_norm)
        self.stem = Stem(
            stem_filters(variant),
            activation,
            padding,
            batch_norm,
            name="stem",
            dtype=self.dtype_policy,
        )
        table = block_table(variant)
        self.blocks = [
            self._block(block, index, len(table)) for index, block in enumerate(table)
        ]
        self.taps = None if taps is None else tuple(taps)
        self._taps = tapped_blocks(variant, min_level, taps)

    def _block(self, block, index, count):
        options = {
            "kernel_size": block.kernel_size,
            "stride": block.stride,
            "expand_ratio": block.expand_ratio,
            "activation": self.activation,
            "survival_prob": self._survival(index, count),
            "padding": self.padding,
            "batch_norm": self.batch_norm,
            "name": f"blocks_{index}",
            "dtype": self.dtype_policy,
        }
        if block.kind == "mbconv":
            return MBConv(block.filters, se_ratio=block.se_ratio, **options)
        return FusedMBConv(block.filters, project=block.kind == "fused", **options)

    def _survival(self, index, count):
        if self.survival_prob is None or index == 0:
            return None
        return 1 - (1 - self.survival_prob) * index / count

    def build(self, input_shape):
        self.stem.build(input_shape)
        shape = self.stem.compute_output_shape(input_shape)
        for block in self.blocks:
            block.build(shape)
            shape = block.compute_output_shape(shape)

    def call(self, inputs, training=False):
        x = self.stem(inputs, training=training)
        outputs = []
        for block in self.blocks[: self._taps[-1] + 1]:
            x = call_block(block, x, training)
            outputs.append(x)
        return [outputs[i] for i in self._taps]

    def compute_output_shape(self, input_shape):
        shape = self.stem.compute_output_shape(input_shape)
        shapes = []
        for block in self.blocks:
            shape = block.compute_output_shape(shape)
            shapes.append(shape)
        return [shapes[i] for i in self._taps]

    def get_config(self):
        return {
            **super().get_config(),
            "variant": self.variant,
            "min_level": self.min_level,
            "activation": self.activation,
            "survival_prob": self.survival_prob,
            "padding": self.padding,
            "batch_norm": self.batch_norm.serialize(),
            "taps": self.taps,
        }


@keras.saving.register_keras_serializable(package="effdet_keras")
class Stem(keras.layers.Layer):
    """The first convolution of EfficientNet: 3x3, stride 2, batch norm, activation.

    Args:
        filters: int, channels of the result.
        activation: string, see `effdet_keras.config.ACTIVATIONS`.
        padding: "same" or "symmetric".
        batch_norm: `BatchNormOptions` or None for its defaults.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: tensor `[B, H, W, 3]`.

    Returns:
        Tensor `[B, ceil(H / 2), ceil(W / 2), filters]`.

    Example:
        >>> tuple(Stem(32)(ops.ones((1, 9, 8, 3))).shape)
        (1, 5, 4, 32)
    """

    def __init__(
        self, filters, activation="swish", padding="same", batch_norm=None, **kwargs
    ):
        super().__init__(**kwargs)
        self.filters = filters
        self.activation = activation
        self.padding = padding
        self._rows = rows_to_add(padding, 3, 2)
        self.batch_norm = BatchNormOptions.from_value(batch_norm)
        self._act = get_activation(activation)
        self.conv = keras.layers.Conv2D(
            filters,
            3,
            strides=2,
            padding="valid" if self._rows else "same",
            use_bias=False,
            kernel_initializer=conv_initializer(),
            name="conv2d",
            dtype=self.dtype_policy,
        )
        self.bn = self.batch_norm.layer("tpu_batch_normalization", self.dtype_policy)

    def build(self, input_shape):
        self.conv.build((input_shape[0], None, None, input_shape[-1]))
        self.bn.build(self.compute_output_shape(input_shape))

    def call(self, inputs, training=False):
        x = convolve(self.conv, pad_with_zeros(inputs, self._rows))
        return activate(self, self._act, normalize(self.bn, x, training))

    def compute_output_shape(self, input_shape):
        sides = (strided(n, 2) for n in input_shape[1:3])
        return (input_shape[0], *sides, self.filters)

    def get_config(self):
        return {
            **super().get_config(),
            "filters": self.filters,
            "activation": self.activation,
            "padding": self.padding,
            "batch_norm": self.batch_norm.serialize(),
        }
