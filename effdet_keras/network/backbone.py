"""The backbones EfficientNet B0-B7, Lite0-4 and EfficientNetV2, with block tables."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import NamedTuple

import keras

from effdet_keras.errors import check_argument
from effdet_keras.network.layers import (
    BatchNormOptions,
    ConfiguredLayer,
    call_block,
)
from effdet_keras.network.mbconv import FusedMBConv, MBConv


@dataclasses.dataclass(frozen=True)
class Block:
    """The shape of one block of a backbone."""

    kernel_size: int  # of the spatial convolution
    stride: int
    expand_ratio: int  # channels inside / input channels
    filters: int  # channels of the result
    kind: str = "mbconv"  # or "fused", or "conv" (fused, without a projection)
    se_ratio: float | None = 0.25  # squeeze-excite channels / input channels


# Repeats, kernel size, stride, expansion, filters (EfficientNet paper, table 1).
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


class _V2(NamedTuple):
    """An EfficientNetV2 variant: its stages, and their scaling."""

    stages: tuple  # kind, repeats, stride, expansion, filters; all kernels are 3x3
    stem_filters: int
    width: float = 1.0
    depth: float = 1.0
    lowest: float = 0.0  # fraction of the scaled filters that rounding must keep

    def scale(self, filters):
        return scale_filters(filters, self.width, self.lowest)


# From the EfficientNetV2 paper (https://arxiv.org/abs/2104.00298), table 4, and the
# published models.
_V2_S = (
    ("conv", 2, 1, 1, 24),
    ("fused", 4, 2, 4, 48),
    ("fused", 4, 2, 4, 64),
    ("mbconv", 6, 2, 4, 128),
    ("mbconv", 9, 1, 6, 160),
    ("mbconv", 15, 2, 6, 256),
)
_V2_M = (
    ("conv", 3, 1, 1, 24),
    ("fused", 5, 2, 4, 48),
    ("fused", 5, 2, 4, 80),
    ("mbconv", 7, 2, 4, 160),
    ("mbconv", 14, 1, 6, 176),
    ("mbconv", 18, 2, 6, 304),
    ("mbconv", 5, 1, 6, 512),
)
_V2_L = (
    ("conv", 4, 1, 1, 32),
    ("fused", 7, 2, 4, 64),
    ("fused", 7, 2, 4, 96),
    ("mbconv", 10, 2, 4, 192),
    ("mbconv", 19, 1, 6, 224),
    ("mbconv", 25, 2, 6, 384),
    ("mbconv", 7, 1, 6, 640),
)
_V2_B = (
    ("conv", 1, 1, 1, 16),
    ("fused", 2, 2, 4, 32),
    ("fused", 2, 2, 4, 48),
    ("mbconv", 3, 2, 4, 96),
    ("mbconv", 5, 1, 6, 112),
    ("mbconv", 8, 2, 6, 192),
)
# timm's `efficientnetv2_rw_s` was written from the paper before its code was published.
# Its first stage has projections, and its last stage is wider.
_V2_RW_S = (("fused", 2, 1, 1, 24), *_V2_S[1:-1], ("mbconv", 15, 2, 6, 272))

_V2_VARIANTS = {
    "efficientnetv2-b0": _V2(_V2_B, 32),
    "efficientnetv2-b1": _V2(_V2_B, 32, 1.0, 1.1),
    "efficientnetv2-b2": _V2(_V2_B, 32, 1.1, 1.2),
    "efficientnetv2-b3": _V2(_V2_B, 32, 1.2, 1.4),
    "efficientnetv2-s": _V2(_V2_S, 24),
    "efficientnetv2-m": _V2(_V2_M, 24),
    "efficientnetv2-l": _V2(_V2_L, 32),
    # timm's "tiny": V2-S scaled down, with the rounding rule of EfficientNet.
    "efficientnetv2-rw-t": _V2(_V2_S, 24, 0.8, 0.9, 0.9),
    "efficientnetv2-rw-s": _V2(_V2_RW_S, 24, lowest=0.9),
}


def scale_filters(filters, width, lowest=0.9):
    """Returns `filters * width`, rounded to a multiple of 8.

    The result is at least 8, and at least the fraction `lowest` of `filters * width`.
    """
    scaled = filters * width
    rounded = max(8, int(scaled + 4) // 8 * 8)
    return rounded + 8 if rounded < lowest * scaled else rounded


def stem_filters(variant):
    """Returns the channels of the first convolution. Lite models do not scale them."""
    if variant in _V2_VARIANTS:
        v2 = _V2_VARIANTS[variant]
        return v2.scale(v2.stem_filters)
    width, _ = _SCALES[variant]
    return _STEM_FILTERS if "lite" in variant else scale_filters(_STEM_FILTERS, width)


def block_table(variant):
    """Returns the blocks of a backbone, in order."""
    blocks = []
    for first, repeats in _stages(variant):
        blocks += [first, *[dataclasses.replace(first, stride=1)] * (repeats - 1)]
    return blocks


def _stages(variant):
    """Yields the first block of each stage, and the number of its blocks."""
    if variant in _V2_VARIANTS:
        v2 = _V2_VARIANTS[variant]
        for kind, repeats, stride, expansion, filters in v2.stages:
            se_ratio = 0.25 if kind == "mbconv" else None
            first = Block(3, stride, expansion, v2.scale(filters), kind, se_ratio)
            yield first, math.ceil(v2.depth * repeats)
        return
    width, depth = _SCALES[variant]
    is_lite = "lite" in variant
    for index, (repeats, kernel, stride, expansion, filters) in enumerate(_STAGES):
        is_end_of_lite = is_lite and index in (0, len(_STAGES) - 1)
        filters, se_ratio = scale_filters(filters, width), None if is_lite else 0.25
        first = Block(kernel, stride, expansion, filters, se_ratio=se_ratio)
        yield first, repeats if is_end_of_lite else math.ceil(depth * repeats)


def feature_block_indices(variant, min_level, feature_blocks=None):
    """Returns the indices of the blocks whose outputs are the levels `min_level` to 5.

    They are `feature_blocks`, or if that is None the last block of each level.

    Raises:
        ValueError: If `feature_blocks` does not have one block of each level.
    """
    table = block_table(variant)
    starts = [0, *(i for i, block in enumerate(table) if block.stride == 2)]
    # The blocks of each level, from level 1. A level ends where the size is halved.
    blocks = [range(*pair) for pair in itertools.pairwise([*starts, len(table)])]
    blocks = blocks[min_level - 1 :]
    if feature_blocks is None:
        return [of_level[-1] for of_level in blocks]
    is_right = len(feature_blocks) == len(blocks) and all(
        block in of_level for block, of_level in zip(feature_blocks, blocks)
    )
    ranges = ", ".join(f"{b[0]} to {b[-1]}" for b in blocks)
    expected = f"a block of each level from {min_level} to 5 of {variant}: {ranges}"
    check_argument(is_right, "backbone_taps", feature_blocks, expected)
    return list(feature_blocks)


@keras.saving.register_keras_serializable(package="effdet_keras")
class EfficientNet(ConfiguredLayer):
    """EfficientNet without its classifier: images to feature maps of several levels.

    https://arxiv.org/abs/1905.11946. The Lite variants have no squeeze-excite, and do
    not scale the stem and the number of blocks of the first and the last stage.
    EfficientNetV2 (https://arxiv.org/abs/2104.00298) begins with fused blocks.
    Sub-layers have the names of the published checkpoints.

    Args:
        variant: string, one of `effdet_keras.network.config.BACKBONES`.
        min_level: int, the finest level of the result.
        activation: one of `effdet_keras.network.config.ACTIVATIONS`.
        survival_prob: float above 0 and at most 1, or None. Block `i` of `n` survives
            with the probability `1 - (1 - survival_prob) * i / n`.
        padding: "same" or "symmetric", of convolutions with a stride.
        batch_norm: `BatchNormOptions` (`effdet_keras.network.layers`), or a dict of its
            fields. None is the defaults.
        feature_blocks: ints, the blocks whose outputs are the levels. None is the last
            block of each level, before the size is halved. Later blocks have weights
            but are not called.

    Call arguments:
        inputs: normalized images `[B, H, W, 3]`.

    Returns:
        List of tensors `[B, H_l, W_l, C_l]`, one for each level from `min_level` to 5,
        with a stride of `2**level`.

    Example:
        >>> from keras import ops
        >>> backbone = EfficientNet("efficientnet-b0", min_level=3)
        >>> features = backbone(ops.zeros((1, 64, 64, 3)))
        >>> [tuple(x.shape) for x in features]
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
        feature_blocks=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.variant = variant
        self.min_level = min_level
        self.activation = activation
        self.survival_prob = survival_prob
        self.padding = padding
        self.batch_norm = BatchNormOptions.from_value(batch_norm)
        # The stem is a convolution, a batch norm and an activation, as a block without
        # a projection.
        self.stem = FusedMBConv(
            stem_filters(variant),
            stride=2,
            project=False,
            activation=activation,
            padding=padding,
            batch_norm=batch_norm,
            name="stem",
            dtype=self.dtype_policy,
        )
        table = block_table(variant)
        self.blocks = [
            self._block(block, index, len(table)) for index, block in enumerate(table)
        ]
        self.feature_blocks = None if feature_blocks is None else tuple(feature_blocks)
        self._feature_blocks = feature_block_indices(variant, min_level, feature_blocks)

    def _block(self, block, index, count):
        """Returns an `MBConv` or `FusedMBConv`. Deeper blocks survive less often."""
        survival_prob = self.survival_prob
        if survival_prob is not None:
            survival_prob = 1 - (1 - survival_prob) * index / count if index else None
        options = {
            "kernel_size": block.kernel_size,
            "stride": block.stride,
            "expand_ratio": block.expand_ratio,
            "activation": self.activation,
            "survival_prob": survival_prob,
            "padding": self.padding,
            "batch_norm": self.batch_norm,
            "name": f"blocks_{index}",
            "dtype": self.dtype_policy,
        }
        if block.kind == "mbconv":
            return MBConv(block.filters, se_ratio=block.se_ratio, **options)
        return FusedMBConv(block.filters, project=block.kind == "fused", **options)

    def build(self, input_shape):
        shape = input_shape
        for layer in (self.stem, *self.blocks):
            layer.build(shape)
            shape = layer.compute_output_shape(shape)

    def call(self, inputs, training=False):
        x = self.stem(inputs, training=training)
        outputs = []
        for block in self.blocks[: self._feature_blocks[-1] + 1]:
            x = call_block(block, x, training)
            outputs.append(x)
        return [outputs[i] for i in self._feature_blocks]

    def compute_output_shape(self, input_shape):
        shape = self.stem.compute_output_shape(input_shape)
        shapes = []
        for block in self.blocks:
            shape = block.compute_output_shape(shape)
            shapes.append(shape)
        return [shapes[i] for i in self._feature_blocks]
