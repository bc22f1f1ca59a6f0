"""EfficientNet B0-B7 and Lite0-4: the block table, the scaling rule, the layer."""

import dataclasses
import math

import keras

from effdet_keras.errors import InvalidValueError
from effdet_keras.layers.activation import get_activation
from effdet_keras.layers.mbconv import MBConv, conv_initializer
from effdet_keras.layers.options import BatchNormOptions
from effdet_keras.layers.recompute import call_block


@dataclasses.dataclass(frozen=True)
class Block:
    """The shape of one `MBConv` block of a backbone."""

    kernel_size: int
    stride: int
    expand_ratio: int
    filters: int


# repeats, kernel, stride, expansion, filters (EfficientNet paper, table 1).
_STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
_STEM_FILTERS = 32

# name -> (width coefficient, depth coefficient)
_SCALES = {
    "efficientnet-b0": (1.0, 1.0),
    "efficientnet-b1": (1.0, 1.1),
    "efficientnet-b2": (1.1, 1.2),
    "efficientnet-b3": (1.2, 1.4),
    "efficientnet-b4": (1.4, 1.8),
    "efficientnet-b5": (1.6, 2.2),
    "efficientnet-b6": (1.8, 2.6),
    "efficientnet-b7": (2.0, 3.1),
    "efficientnet-lite0": (1.0, 1.0),
    "efficientnet-lite1": (1.0, 1.1),
    "efficientnet-lite2": (1.1, 1.2),
    "efficientnet-lite3": (1.2, 1.4),
    "efficientnet-lite4": (1.4, 1.8),
}


def scale_filters(filters, width):
    """Channels times `width`, rounded to a multiple of 8, at most 10 % lower.

    Example:
        >>> scale_filters(32, 1.2), scale_filters(320, 1.1)
        (40, 352)
    """
    scaled = filters * width
    rounded = max(8, int(scaled + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * scaled else rounded


def stem_filters(variant):
    """Channels of the first convolution; Lite models do not scale it."""
    width, _ = _scale(variant)
    return _STEM_FILTERS if "lite" in variant else scale_filters(_STEM_FILTERS, width)


def block_table(variant):
    """The blocks of a backbone, in order.

    Args:
        variant: string, such as "efficientnet-b0".

    Returns:
        List of `Block`.

    Raises:
        ValueError: If there is no such variant.

    Example:
        >>> len(block_table("efficientnet-b0")), len(block_table("efficientnet-b7"))
        (16, 55)
    """
    width, depth = _scale(variant)
    blocks = []
    for index, (repeats, kernel, stride, expansion, filters) in enumerate(_STAGES):
        ends_of_lite = "lite" in variant and index in (0, len(_STAGES) - 1)
        repeats = repeats if ends_of_lite else math.ceil(depth * repeats)
        filters = scale_filters(filters, width)
        blocks.append(Block(kernel, stride, expansion, filters))
        blocks += [Block(kernel, 1, expansion, filters)] * (repeats - 1)
    return blocks


def last_blocks(table):
    """The index of the last block of each level, 1 to 5.

    Level 1 ends before the first block that halves the size, level 5 with the
    last block.

    Args:
        table: list of `Block`, see `block_table`.

    Returns:
        List of five ints.

    Example:
        >>> last_blocks(block_table("efficientnet-b0"))
        [0, 2, 4, 10, 15]
    """
    halvings = [i for i, block in enumerate(table) if block.stride == 2]
    return [i - 1 for i in halvings] + [len(table) - 1]


def _scale(variant):
    if variant not in _SCALES:
        raise InvalidValueError(
            f"`variant` must be one of {', '.join(_SCALES)}. "
            f"Received: variant={variant!r}"
        )
    return _SCALES[variant]


@keras.saving.register_keras_serializable(package="effdet_keras")
class EfficientNet(keras.layers.Layer):
    """EfficientNet without its classifier: images to feature maps.

    https://arxiv.org/abs/1905.11946; the Lite variants have no squeeze-excite
    and keep stem, first and last stage unscaled. Sub-layers carry the names of
    the published checkpoints.

    Args:
        variant: string, "efficientnet-b0" ... "-b7", "efficientnet-lite0" ...
            "-lite4".
        min_level: int, the finest level to return (stride `2**level`).
        activation: string, see `effdet_keras.config.ACTIVATIONS`.
        survival_prob: float or None; block `i` of `n` survives with
            `1 - (1 - survival_prob) * i / n`.
        batch_norm: `BatchNormOptions` or None for its defaults.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: normalised images, tensor `[B, H, W, 3]`.

    Returns:
        List of tensors, one per level from `min_level` to 5: the last block's
        output before each halving of the size.

    Raises:
        ValueError: If `variant` is unknown.

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
        batch_norm=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.variant = variant
        self.min_level = min_level
        self.activation = activation
        self.survival_prob = survival_prob
        self.batch_norm = BatchNormOptions.from_value(batch_norm)
        policy = self.dtype_policy
        self.stem = Stem(
            stem_filters(variant), activation, batch_norm, name="stem", dtype=policy
        )
        table = block_table(variant)
        self.blocks = [
            MBConv(
                block.filters,
                block.kernel_size,
                block.stride,
                block.expand_ratio,
                se_ratio=None if "lite" in variant else 0.25,
                activation=activation,
                survival_prob=self._survival(index, len(table)),
                batch_norm=batch_norm,
                name=f"blocks_{index}",
                dtype=policy,
            )
            for index, block in enumerate(table)
        ]
        self._last_blocks = last_blocks(table)

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
        for block in self.blocks:
            x = call_block(block, x, training)
            outputs.append(x)
        return [outputs[i] for i in self._last_blocks[self.min_level - 1 :]]

    def compute_output_shape(self, input_shape):
        shape = self.stem.compute_output_shape(input_shape)
        shapes = []
        for block in self.blocks:
            shape = block.compute_output_shape(shape)
            shapes.append(shape)
        return [shapes[i] for i in self._last_blocks[self.min_level - 1 :]]

    def get_config(self):
        return {
            **super().get_config(),
            "variant": self.variant,
            "min_level": self.min_level,
            "activation": self.activation,
            "survival_prob": self.survival_prob,
            "batch_norm": self.batch_norm.serialize(),
        }


@keras.saving.register_keras_serializable(package="effdet_keras")
class Stem(keras.layers.Layer):
    """The first convolution of EfficientNet: 3x3, stride 2, batch norm, activation.

    Args:
        filters: int, channels of the result.
        activation: string, see `effdet_keras.config.ACTIVATIONS`.
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

    def __init__(self, filters, activation="swish", batch_norm=None, **kwargs):
        super().__init__(**kwargs)
        self.filters = filters
        self.activation = activation
        self.batch_norm = BatchNormOptions.from_value(batch_norm)
        self._act = get_activation(activation)
        self.conv = keras.layers.Conv2D(
            filters,
            3,
            strides=2,
            padding="same",
            use_bias=False,
            kernel_initializer=conv_initializer(),
            name="conv2d",
            dtype=self.dtype_policy,
        )
        self.bn = self.batch_norm.layer("tpu_batch_normalization", self.dtype_policy)

    def build(self, input_shape):
        self.conv.build(input_shape)
        self.bn.build(self.conv.compute_output_shape(input_shape))

    def call(self, inputs, training=False):
        return self._act(self.bn(self.conv(inputs), training=training))

    def compute_output_shape(self, input_shape):
        return self.conv.compute_output_shape(input_shape)

    def get_config(self):
        return {
            **super().get_config(),
            "filters": self.filters,
            "activation": self.activation,
            "batch_norm": self.batch_norm.serialize(),
        }
