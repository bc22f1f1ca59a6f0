"""Assembles the network: normalise, backbone, extra levels, BiFPN, two heads."""

import dataclasses
import math

import keras

from effdet_keras.backbones.efficientnet import EfficientNet
from effdet_keras.geometry.anchors import level_sizes
from effdet_keras.layers import (
    BatchNormOptions,
    BiFPN,
    Normalize,
    PredictionHead,
    PyramidOptions,
    Resample,
)

_BACKBONE_MAX_LEVEL = 5
_PRIOR_BIAS = -math.log((1 - 0.01) / 0.01)  # focal loss paper, section 3.3


def build_network(config, dtype=None, features=None):
    """The network of a config, as symbolic input and outputs.

    https://arxiv.org/abs/1911.09070, figure 3. This is the one place that
    reads the config: every layer takes plain values.

    Args:
        config: `EfficientDetConfig`.
        dtype: dtype policy of the layers, or None for Keras' own.
        features: layer in the place of all but the last layer of each head, or
            None. It takes normalised images and returns a list of class features
            and a list of box features `[B, H_l, W_l, C]`, one per level.

    Returns:
        `(images, outputs)`: a `keras.Input` `[B, H, W, 3]` of pixels 0-255, and
        `{"class_logits": [B, N, C], "box_deltas": [B, N, 4]}`, float32.

    Example:
        >>> from effdet_keras.config import EfficientDetConfig
        >>> config = EfficientDetConfig(image_size=64, max_level=6, num_classes=2)
        >>> images, outputs = build_network(config)
        >>> outputs["class_logits"].shape  # 9 anchors at 8x8, 4x4, 2x2, 1x1
        (None, 765, 2)
    """
    images = keras.Input((*config.image_size, 3), name="images")
    x = Normalize(
        config.mean_rgb,
        config.stddev_rgb,
        name="normalization",
        dtype=dtype if features is None else "float32",
    )(images)
    if features is None:
        pyramid = _pyramid(x, config, dtype)
        class_features = box_features = pyramid
        repeats = config.head_repeats
    else:
        class_features, box_features = features(x)
        repeats = 0

    def head(features, values, prefix, prior_bias):
        return PredictionHead(
            values,
            num_anchors=config.num_anchors,
            filters=config.fpn_num_filters,
            repeats=repeats,
            min_level=config.min_level,
            prefix=prefix,
            separable_conv=config.separable_conv,
            redundant_bias=config.redundant_bias,
            activation=config.activation,
            survival_prob=config.survival_prob if repeats else None,
            prior_bias=prior_bias,
            batch_norm=_batch_norm(config),
            name=f"{prefix}_net",
            dtype=dtype,
        )(features)

    outputs = {
        "class_logits": head(class_features, config.num_classes, "class", _PRIOR_BIAS),
        "box_deltas": head(box_features, 4, "box", 0.0),
    }
    return images, outputs


def _batch_norm(config):
    return BatchNormOptions(
        momentum=config.batch_norm_momentum,
        epsilon=config.batch_norm_epsilon,
        synchronized=config.sync_batch_norm,
        unbiased=config.batch_norm_unbiased,
        frozen=config.frozen_batch_norm,
    )


def _backbone_batch_norm(config):
    own = {
        "momentum": config.backbone_batch_norm_momentum,
        "epsilon": config.backbone_batch_norm_epsilon,
    }
    told = {name: value for name, value in own.items() if value is not None}
    return dataclasses.replace(_batch_norm(config), **told)


def _pyramid(images, config, dtype):
    """Normalised images to the levels that both heads read."""
    options = PyramidOptions(
        graph=config.fpn_name,
        weight_method=config.fpn_weight_method,
        activation=config.activation,
        separable_conv=config.separable_conv,
        conv_bn_act_pattern=config.conv_bn_act_pattern,
        redundant_bias=config.redundant_bias,
        apply_bn_for_resampling=config.apply_bn_for_resampling,
        conv_after_downsample=config.conv_after_downsample,
        downsampling=config.fpn_downsampling,
        upsampling=config.fpn_upsampling,
        padding=config.fpn_padding,
        batch_norm=_batch_norm(config),
    )
    features = EfficientNet(
        config.backbone,
        min_level=config.min_level,
        activation=config.activation,
        survival_prob=config.backbone_survival_prob,
        padding=config.backbone_padding,
        batch_norm=_backbone_batch_norm(config),
        taps=config.backbone_taps,
        name=config.backbone,
        dtype=dtype,
    )(images)
    features = _add_levels(features, config, options, dtype)
    return BiFPN(
        config.fpn_num_filters,
        repeats=config.fpn_cell_repeats,
        min_level=config.min_level,
        max_level=config.max_level,
        options=options,
        name="fpn_cells",
        dtype=dtype,
    )(features)


def _add_levels(features, config, options, dtype):
    """Levels above the backbone's, each from the one below."""
    sizes = level_sizes(config.image_size, config.min_level, config.max_level)
    features = list(features)
    for level in range(_BACKBONE_MAX_LEVEL + 1, config.max_level + 1):
        resample = Resample(
            config.fpn_num_filters,
            sizes[level - config.min_level],
            **options.edge(),
            name=f"resample_p{level}",
            dtype=dtype,
        )
        features.append(resample(features[-1]))
    return features
