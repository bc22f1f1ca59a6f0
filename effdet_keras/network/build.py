"""Assembles the network (normalization, backbone, BiFPN, heads), and copies models."""

import math
from typing import Any

import keras

from effdet_keras.errors import InvalidStateError, require
from effdet_keras.network.anchors import level_sizes
from effdet_keras.network.backbone import EfficientNet
from effdet_keras.network.bifpn import BiFPN
from effdet_keras.network.heads import PredictionHead
from effdet_keras.network.layers import BatchNormOptions, Normalize, PyramidOptions
from effdet_keras.network.resample import Resample

_BACKBONE_MAX_LEVEL = 5
_PRIOR_BIAS = -math.log((1 - 0.01) / 0.01)  # focal loss paper, section 3.3


def build_network(config, dtype=None, features=None):
    """Builds the network of a config, and returns its symbolic input and outputs.

    https://arxiv.org/abs/1911.09070, figure 3. Only this module reads the config: every
    layer takes plain values.

    Args:
        config: `EfficientDetConfig`.
        dtype: dtype policy of the layers. None is Keras' global policy.
        features: layer that replaces the network up to the last layer of each head, or
            None. It takes normalized images, and returns a list of class features and a
            list of box features `[B, H_l, W_l, C]`, one tensor per level.

    Returns:
        Tuple `(images, outputs)`. `images` is a `keras.Input` `[B, H, W, 3]` of pixels
        0-255. `outputs` is a dict of `class_logits` `[B, N, C]` and `box_deltas`
        `[B, N, 4]`, float32. A segmentation head adds `segmentation_logits`
        `[B, h, w, K]`, where each output covers a square with sides of
        `2 ** (min_level - 1)` pixels of the input, 4 in the published models.

    Raises:
        ValueError: If the config has a segmentation head and `features` is given.
    """
    images = keras.Input((*config.image_size, 3), name="images")
    x = Normalize(
        config.mean_rgb,
        config.stddev_rgb,
        name="normalization",
        dtype=dtype if features is None else "float32",
    )(images)
    outputs = {}
    if features is None:
        pyramid = _pyramid(x, config, dtype)
        class_features = box_features = pyramid
        if config.has_segmentation:
            outputs["segmentation_logits"] = _segmentation(pyramid, config, dtype)
    else:
        rule = (
            "A model with a TF-Hub module cannot have a segmentation head: the module "
            "returns no feature levels for it"
        )
        require(not config.has_segmentation, rule, heads=config.heads)
        class_features, box_features = features(x)
    repeats = config.head_repeats if features is None else 0

    def head(features, outputs_per_anchor, prefix, prior_bias):
        """Applies a new prediction head to features. Returns a tensor `[B, N, O]`."""
        return PredictionHead(
            outputs_per_anchor,
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

    if config.has_detection:
        classes = head(class_features, config.num_classes, "class", _PRIOR_BIAS)
        outputs["class_logits"] = classes
        outputs["box_deltas"] = head(box_features, 4, "box", 0.0)
    return images, outputs


def _segmentation(pyramid, config, dtype):
    """Returns the class logits of pixels, at half the stride of the finest level."""
    finest = config.min_level - 1
    (output_size,) = level_sizes(config.image_size, finest, finest)
    from effdet_keras.extras.segmentation_head import SegmentationHead as head

    return head(
        config.seg_num_classes,
        filters=config.fpn_num_filters,
        activation=config.activation,
        output_size=output_size,
        batch_norm=_batch_norm(config),
        name="segmentation_head",
        dtype=dtype,
    )(pyramid)


def _batch_norm(config, momentum=None, epsilon=None):
    return BatchNormOptions(
        momentum=config.batch_norm_momentum if momentum is None else momentum,
        epsilon=config.batch_norm_epsilon if epsilon is None else epsilon,
        synchronized=config.sync_batch_norm,
        unbiased=config.batch_norm_unbiased,
        frozen=config.frozen_batch_norm,
    )


def _pyramid(images, config, dtype):
    """Computes the features of all levels for the heads from normalized images."""
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
    backbone = EfficientNet(
        config.backbone,
        min_level=config.min_level,
        activation=config.backbone_activation or config.activation,
        survival_prob=config.backbone_survival_prob,
        padding=config.backbone_padding,
        batch_norm=_batch_norm(
            config,
            config.backbone_batch_norm_momentum,
            config.backbone_batch_norm_epsilon,
        ),
        feature_blocks=config.backbone_taps,
        name=config.backbone,
        dtype=dtype,
    )
    features = list(backbone(images))
    # The levels above those of the backbone, each computed from the one below.
    sizes = level_sizes(config.image_size, config.min_level, config.max_level)
    for level in range(_BACKBONE_MAX_LEVEL + 1, config.max_level + 1):
        resample = Resample(
            config.fpn_num_filters,
            sizes[level - config.min_level],
            options,
            name=f"resample_p{level}",
            dtype=dtype,
        )
        features.append(resample(features[-1]))
    return BiFPN(
        config.fpn_num_filters,
        repeats=config.fpn_cell_repeats,
        min_level=config.min_level,
        max_level=config.max_level,
        options=options,
        name="fpn_cells",
        dtype=dtype,
    )(features)


def check_data_format() -> None:
    """Raises RuntimeError unless Keras' image data format is `channels_last`."""
    if keras.config.image_data_format() != "channels_last":
        raise InvalidStateError(
            "`EfficientDet` needs Keras' image data format `channels_last`, which is "
            "`[B, H, W, C]`, on every backend. Call "
            '`keras.config.set_image_data_format("channels_last")`. '
        )


def check_precision(dtype: Any) -> None:
    """Raises ValueError for a precision that the package does not support."""
    require(
        keras.config.floatx() == "float32",
        "`EfficientDet` needs `keras.config.set_floatx('float32')`, the default. For "
        "half precision, call `keras.config.set_dtype_policy('mixed_bfloat16')`, or "
        "'mixed_float16', before the model is made",
        floatx=keras.config.floatx(),
    )
    policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
    require(
        "float64" not in (policy.compute_dtype, policy.variable_dtype),
        "`EfficientDet` does not work in float64. Before the model is made, call "
        "`keras.config.set_dtype_policy` with 'float32', 'mixed_bfloat16' or "
        "'mixed_float16'",
        dtype=policy.name,
    )


def copied(model, fields=None, **arguments):
    """Returns a copy of an `EfficientDet` with the same weights.

    Args:
        model: `EfficientDet`.
        fields: dict of fields of its config that differ in the copy, or None.
        **arguments: arguments of `EfficientDet` that differ, as `get_config` has them.
    """
    config = model.config.replace(**(fields or {})).to_dict()
    config = {**model.get_config(), "config": config, **arguments}
    copy = type(model).from_config(config)
    copy.set_weights(model.get_weights())
    copy.pretrained = model.pretrained
    if copy.class_names == model.class_names:
        copy.loaded_classes = model.loaded_classes
    return copy
