"""Configures the network: `EfficientDetConfig`, and the table of published models."""

from __future__ import annotations

import dataclasses
import numbers
from typing import Any

from effdet_keras._internal.number_ranges import (
    check_number_fields,
    number,
    several,
    whole_number,
)
from effdet_keras.errors import InvalidValueError, check_argument, check_fields, hint
from effdet_keras.labels import IGNORED_PIXEL

_IMAGENET_MEAN = (123.675, 116.28, 103.53)  # 255 * (0.485, 0.456, 0.406)
_IMAGENET_STDDEV = (58.395, 57.12, 57.375)  # 255 * (0.229, 0.224, 0.225)

BACKBONES = (
    *(f"efficientnet-b{i}" for i in range(8)),
    *(f"efficientnet-lite{i}" for i in range(5)),
    *(f"efficientnetv2-b{i}" for i in range(4)),
    "efficientnetv2-s",
    "efficientnetv2-m",
    "efficientnetv2-l",
    "efficientnetv2-rw-t",
    "efficientnetv2-rw-s",
)
PYRAMIDS = ("bifpn", "qufpn")
PADDINGS = ("same", "symmetric")
DOWNSAMPLINGS = ("max", "bilinear")
UPSAMPLINGS = ("nearest", "bilinear")
FUSION_METHODS = ("fastattn", "attn", "sum", "channel_fastattn", "channel_attn")
ANCHOR_ORDERS = ("scale_first", "aspect_first")
RESIZE_METHODS = ("half_pixel", "asymmetric")  # ONNX uses the same names
_SWISH = ("swish", "silu", "swish_native", "hswish", "hard_swish")
ACTIVATIONS = _SWISH + ("relu", "relu6", "mish", "srelu")
HEADS = ("object_detection", "segmentation")

# `backbone_taps` of the Object Detection API. In all backbones it takes the blocks at
# the positions of P3, P4 and P5 in B0. In B0 they are the last blocks (None).
TFOD_TAPS = {
    "efficientnet-b0": None,
    "efficientnet-b1": (6, 14, 21),
    "efficientnet-b2": (6, 14, 21),
    "efficientnet-b3": (6, 15, 24),
    "efficientnet-b4": (7, 18, 30),
    "efficientnet-b5": (9, 22, 36),
    "efficientnet-b6": (10, 25, 42),
    "efficientnet-b7": (12, 30, 51),
}


@dataclasses.dataclass(frozen=True)
class EfficientDetConfig:
    """All options of an EfficientDet network, checked when the object is created.

    The defaults are those of EfficientDet-D0 (https://arxiv.org/abs/1911.09070,
    table 1). `EfficientDetConfig.from_name` gives the configs of published models.
    `config.replace(...)` gives a copy with other values for some fields.

    Args:
        name: string, the model's name.
        backbone: one of `BACKBONES`.
        backbone_taps: ints, the blocks (`blocks_N`) whose outputs are the backbone's
            levels, `min_level` to 5. None is the last block of each level, as in the
            paper. The Object Detection API takes other blocks in D1-D7, such as
            (6, 14, 21) in D1.
        image_size: int, or `(height, width)`, the size of the network's input in
            pixels.
        num_classes: int, the number of logits per anchor. There is no background class.
        heads: one or both of `HEADS`. "segmentation" predicts a class for each pixel.
        seg_num_classes: int, the number of pixel classes of the segmentation head,
            including background; at most 255.
        min_level, max_level: ints, the finest and the coarsest pyramid level. Level `l`
            has stride `2**l`.
        num_scales: int, the number of anchor scales per octave.
        aspect_ratios: floats, width / height of anchors; or pairs `(x, y)` of factors
            on the sides.
        anchor_scale: float, anchor side / stride; or a tuple, one value per level.
        anchor_order: one of `ANCHOR_ORDERS`, see `generate_anchors`.
        box_scales: four floats above zero, factors on the box codes `(ty, tx, th, tw)`,
            as in the Object Detection API; see `box_ops.encode_boxes`.
        fpn_num_filters: int, the number of channels of the BiFPN and of the heads.
        fpn_cell_repeats: int, the number of BiFPN cells.
        fpn_name: one of `PYRAMIDS`, the graph of a cell: "bifpn" as in the paper, or
            "qufpn" for QuadFPN (https://ieeexplore.ieee.org/document/9225379).
        fpn_weight_method: one of `FUSION_METHODS` (section 3.3 of the paper).
        fpn_downsampling, fpn_upsampling: one of `DOWNSAMPLINGS` and one of
            `UPSAMPLINGS`, how an edge shrinks and enlarges a level.
        fpn_padding: one of `PADDINGS`, the padding of the pooling between levels:
            "same" as in TensorFlow, or "symmetric", equal on both sides as in PyTorch.
        backbone_padding: one of `PADDINGS`, the padding of the backbone's convolutions
            with a stride.
        head_repeats: int, the number of convolutions in each head before the last.
        activation: one of `ACTIVATIONS`.
        backbone_activation: one of `ACTIVATIONS`, for the backbone. None is that of the
            rest. The backbones of the Object Detection API always have "swish".
        separable_conv: bool, whether convolutions in BiFPN and heads are separable.
        conv_bn_act_pattern: bool, whether BiFPN nodes have the order convolution, batch
            norm, activation. Otherwise it is activation, convolution, batch norm.
        conv_after_downsample: bool, whether BiFPN edges pool first and then convolve.
        apply_bn_for_resampling: bool, whether a batch norm follows an edge's
            convolution.
        redundant_bias: bool, whether convolutions of BiFPN and heads have a bias even
            if a batch norm follows, which has its own offset.
        survival_prob: float above 0 and at most 1, the survival probability of
            stochastic depth in the heads; or None.
        backbone_survival_prob: float, the same for the backbone's last block; earlier
            blocks survive more often.
        mean_rgb, stddev_rgb: three floats each, the normalization of pixels 0-255.
        pad_rgb: three floats, the color around an image that does not fill the input.
            None is `mean_rgb`, which the network sees as zero.
        resize_method: one of `RESIZE_METHODS`, how an image is resized to the input.
            Both are bilinear without antialiasing. "half_pixel" is that of
            google/automl: centers of pixels are at 0.5, and sizes are rounded down.
            "asymmetric" is that of the Object Detection API: pixel `i` is at
            `i * old_size / new_size`, and sizes are rounded, half to even. It does not
            support a segmentation head.
        batch_norm_momentum, batch_norm_epsilon: floats, as in
            `keras.layers.BatchNormalization`.
        backbone_batch_norm_momentum, backbone_batch_norm_epsilon: floats, the same for
            the backbone. None is those of the rest. timm's backbones have 0.9 and 1e-5.
        batch_norm_unbiased: bool, whether moving variances use the unbiased variance of
            a batch, as in TensorFlow and torch. Otherwise they use the biased variance,
            as in Keras 3.
        sync_batch_norm: bool, whether batch statistics are computed over all replicas
            of TensorFlow.
        frozen_batch_norm: bool, whether batch norms neither train nor update their
            statistics, for batches of one or two images.

    Raises:
        ValueError: If a field has a value that the network cannot have.

    Example:
        >>> config = EfficientDetConfig.from_name("efficientdet-d0", num_classes=3)
        >>> config.image_size, config.num_anchors
        ((512, 512), 9)
        >>> config.replace(image_size=(384, 640)).image_size
        (384, 640)
    """

    name: str = "efficientdet-d0"
    backbone: str = "efficientnet-b0"
    backbone_taps: tuple | None = several(None, "[0, inf)", whole=True, rising=True)
    image_size: tuple = several((512, 512), "[1, inf)", count=2, whole=True)
    num_classes: int = whole_number(90, "[1, inf)")
    # 5 is the backbone's last level.
    min_level: int = whole_number(3, "[1, 5]")
    max_level: int = whole_number(7, "[5, inf)")
    num_scales: int = whole_number(3, "[1, inf)")
    aspect_ratios: tuple = several(
        (1.0, 2.0, 0.5), "(0, inf)", form="sequence with pairs"
    )
    anchor_scale: float = number(4.0, "(0, inf)", form="number or sequence")
    anchor_order: str = "scale_first"
    box_scales: tuple = several((1.0, 1.0, 1.0, 1.0), "(0, inf)", count=4)
    fpn_num_filters: int = whole_number(64, "[1, inf)")
    fpn_cell_repeats: int = whole_number(3, "[1, inf)")
    fpn_name: str = "bifpn"
    fpn_weight_method: str = "fastattn"
    fpn_downsampling: str = "max"
    fpn_upsampling: str = "nearest"
    fpn_padding: str = "same"
    backbone_padding: str = "same"
    head_repeats: int = whole_number(3, "[1, inf)")
    activation: str = "swish"
    backbone_activation: str | None = None
    separable_conv: bool = True
    conv_bn_act_pattern: bool = False
    conv_after_downsample: bool = False
    apply_bn_for_resampling: bool = True
    redundant_bias: bool = True
    survival_prob: float | None = number(None, "(0, 1]")
    backbone_survival_prob: float | None = number(None, "(0, 1]")
    mean_rgb: tuple = several(_IMAGENET_MEAN, "(-inf, inf)", count=3)
    stddev_rgb: tuple = several(_IMAGENET_STDDEV, "(0, inf)", count=3)
    pad_rgb: tuple | None = several(None, "[0, 255]", count=3)
    resize_method: str = "half_pixel"
    batch_norm_momentum: float = number(0.99, "[0, 1)")
    batch_norm_epsilon: float = number(1e-3, "(0, inf)")
    backbone_batch_norm_momentum: float | None = number(None, "[0, 1)")
    backbone_batch_norm_epsilon: float | None = number(None, "(0, inf)")
    batch_norm_unbiased: bool = False
    sync_batch_norm: bool = False
    frozen_batch_norm: bool = False
    heads: tuple = ("object_detection",)
    # 255 is the number of no class in masks.
    seg_num_classes: int = whole_number(3, f"[1, {IGNORED_PIXEL}]")

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = _without_numpy(getattr(self, field.name))
            normal_form = _NORMAL_FORMS.get(field.name, lambda value: value)
            object.__setattr__(self, field.name, normal_form(value))
        check_number_fields(self)
        for field, is_right, expected in _rules(self):
            check_argument(is_right, field, getattr(self, field), expected)

    @classmethod
    def from_name(cls, name: str, **overrides: Any) -> EfficientDetConfig:
        """Returns the config of a published model.

        Args:
            name: one of `MODEL_NAMES`.
            **overrides: other values for some of its fields.

        Raises:
            ValueError: If there is no such model or field, or a value is wrong.
        """
        if name not in _PUBLISHED:
            raise InvalidValueError(
                f"There is no model with this name."
                f"{hint(str(name).lower(), MODEL_NAMES, 0.4)} "
                f"Received: name={name!r}. Known names: {', '.join(MODEL_NAMES)}"
            )
        return cls(**{**_PUBLISHED[name], "name": name}).replace(**overrides)

    def replace(self, **overrides: Any) -> EfficientDetConfig:
        """Returns a copy with other values for some fields, checked like any config."""
        fields = [field.name for field in dataclasses.fields(self)]
        check_fields(overrides, fields, "`EfficientDetConfig`")
        return dataclasses.replace(self, **overrides)

    def to_dict(self) -> dict[str, Any]:
        """Returns all fields as a dict for JSON.

        Example:
            >>> config = EfficientDetConfig(num_classes=3)
            >>> EfficientDetConfig(**config.to_dict()) == config
            True
        """
        return dataclasses.asdict(self)

    @property
    def padding_rgb(self) -> tuple[float, float, float]:
        """Three floats: the color around an image that does not fill the input."""
        return self.mean_rgb if self.pad_rgb is None else self.pad_rgb

    @property
    def num_levels(self) -> int:
        """The number of pyramid levels."""
        return self.max_level - self.min_level + 1

    @property
    def num_anchors(self) -> int:
        """The number of anchors at each location."""
        return self.num_scales * len(self.aspect_ratios)

    @property
    def has_detection(self) -> bool:
        """Whether the network has the class and the box head."""
        return "object_detection" in self.heads

    @property
    def has_segmentation(self) -> bool:
        """Whether the network has the segmentation head."""
        return "segmentation" in self.heads


_CHOICES = {
    "backbone": BACKBONES,
    "fpn_name": PYRAMIDS,
    "fpn_weight_method": FUSION_METHODS,
    "fpn_downsampling": DOWNSAMPLINGS,
    "fpn_upsampling": UPSAMPLINGS,
    "fpn_padding": PADDINGS,
    "backbone_padding": PADDINGS,
    "activation": ACTIVATIONS,
    "anchor_order": ANCHOR_ORDERS,
    "resize_method": RESIZE_METHODS,
}


def _rules(c):
    """Yields a field of a config, whether its value is right, and what it must be.

    The ranges of numbers have been checked before. Rules that a layer or
    `generate_anchors` checks itself are not here.
    """
    for field, allowed in _CHOICES.items():
        yield field, getattr(c, field) in allowed, f"one of {', '.join(allowed)}"
    is_right = c.backbone_activation in (None, *ACTIVATIONS)
    yield "backbone_activation", is_right, f"None or one of {', '.join(ACTIVATIONS)}"
    is_right = isinstance(c.heads, tuple) and c.heads and set(c.heads) <= set(HEADS)
    yield "heads", is_right, f"some of {', '.join(map(repr, HEADS))}, such as {HEADS}"
    size = c.image_size
    is_right = c.min_level < c.max_level
    yield "min_level", is_right, f"below max_level, {c.max_level}"
    expected = (
        "at least 5 (the last level of the backbone), and 2**max_level must be at "
        f"most twice the larger side of image_size {size}"
    )
    is_right = 2**c.max_level <= 2 * max(size)
    yield "max_level", is_right, expected
    is_right = c.resize_method == "half_pixel" or not c.has_segmentation
    expected = (
        "'half_pixel' for a segmentation head, because its masks are resized that way"
    )
    yield "resize_method", is_right, expected


def _without_numpy(value):
    """Converts lists of JSON, NumPy arrays and NumPy numbers to tuples and numbers.

    So equal configs compare equal, and can be written to a file.
    """
    if hasattr(value, "tolist"):  # without importing NumPy, for `--help`
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return tuple(_without_numpy(item) for item in value)
    return value


def _repeated(times):
    """Returns a function that repeats a number as a tuple, and keeps other values."""
    return lambda x: (x,) * times if isinstance(x, numbers.Real) else x


def _in_order(heads):
    """Returns each head once, in the order of `HEADS`.

    Wrong values are returned unchanged; `_rules` rejects them.
    """
    heads = (heads,) if isinstance(heads, str) else heads
    if not isinstance(heads, tuple) or not set(heads) <= set(HEADS):
        return heads
    return tuple(head for head in HEADS if head in heads)


_NORMAL_FORMS = {
    "image_size": _repeated(2),
    "mean_rgb": _repeated(3),
    "stddev_rgb": _repeated(3),
    "pad_rgb": _repeated(3),
    "heads": _in_order,
}


def _d(index, image_size, filters, cells, repeats, **more):
    return {
        "backbone": f"efficientnet-b{index}",
        "image_size": image_size,
        "fpn_num_filters": filters,
        "fpn_cell_repeats": cells,
        "head_repeats": repeats,
        # The reference turns stochastic depth off for B0 only.
        "backbone_survival_prob": None if index == 0 else 0.8,
        **more,
    }


def _lite(index, image_size, filters, cells, repeats, anchor_scale):
    return {
        **_d(index, image_size, filters, cells, repeats),
        "backbone": f"efficientnet-lite{index}",
        "anchor_scale": anchor_scale,
        "fpn_weight_method": "sum",
        "activation": "relu6",
        "backbone_survival_prob": 0.8,
        "mean_rgb": 127.0,
        "stddev_rgb": 128.0,
    }


# timm's backbones, which PyTorch effdet's own models use: symmetric padding, and the
# batch norms of PyTorch (there the momentum is 0.1, the weight of the new value).
TIMM_BACKBONE = {
    "backbone_padding": "symmetric",
    "backbone_batch_norm_momentum": 0.9,
    "backbone_batch_norm_epsilon": 1e-5,
}
# The backbones of google/automl and Keras Applications.
TF_BACKBONE = {
    "backbone_padding": "same",
    "backbone_batch_norm_momentum": None,
    "backbone_batch_norm_epsilon": None,
}
# effdet rounds the factors on the sides of anchors.
EFFDET_ANCHORS = {"aspect_ratios": ((1.0, 1.0), (1.4, 0.7), (0.7, 1.4))}


def _effdet(index, image_size, filters, cells, repeats, **more):
    """Returns a model of effdet itself (effdet/config/model_config.py, 0.4.1)."""
    return {
        **_d(index, image_size, filters, cells, repeats),
        **TIMM_BACKBONE,
        **EFFDET_ANCHORS,
        "fpn_padding": "symmetric",
        "redundant_bias": False,
        "backbone_survival_prob": 0.9 if index == 0 else 0.8,
        **more,
    }


# effdet's own D4 and D5 have these values, as its `tf_` models have them.
_TF_PYRAMID = {"fpn_padding": "same", "redundant_bias": True}
_BILINEAR = {"fpn_downsampling": "bilinear", "fpn_upsampling": "bilinear"}
_EFFDET_V2 = {**_BILINEAR, "aspect_ratios": (1.0, 2.0, 0.5)}

# Paper, table 1 and section 5; the Lite models as google/automl publishes them.
_PUBLISHED = {
    "efficientdet-d0": _d(0, 512, 64, 3, 3),
    "efficientdet-d1": _d(1, 640, 88, 4, 3),
    "efficientdet-d2": _d(2, 768, 112, 5, 3),
    "efficientdet-d3": _d(3, 896, 160, 6, 4),
    "efficientdet-d4": _d(4, 1024, 224, 7, 4),
    "efficientdet-d5": _d(5, 1280, 288, 7, 4),
    "efficientdet-d6": _d(6, 1280, 384, 8, 5, fpn_weight_method="sum"),
    "efficientdet-d7": _d(
        6, 1536, 384, 8, 5, fpn_weight_method="sum", anchor_scale=5.0
    ),
    "efficientdet-d7x": _d(7, 1536, 384, 8, 5, fpn_weight_method="sum", max_level=8),
    "efficientdet-lite0": _lite(0, 320, 64, 3, 3, 3.0),
    "efficientdet-lite1": _lite(1, 384, 88, 4, 3, 3.0),
    "efficientdet-lite2": _lite(2, 448, 112, 5, 3, 3.0),
    "efficientdet-lite3": _lite(3, 512, 160, 6, 4, 4.0),
    "efficientdet-lite3x": _lite(3, 640, 200, 6, 4, 3.0),
    "efficientdet-lite4": _lite(4, 640, 224, 7, 4, 4.0),
    "efficientdet-q0": _effdet(0, 512, 64, 3, 3, fpn_name="qufpn"),
    "efficientdet-q1": _effdet(1, 640, 88, 3, 3, fpn_name="qufpn", **_BILINEAR),
    "efficientdet-q2": _effdet(2, 768, 112, 4, 3, fpn_name="qufpn"),
    "efficientdetv2-dt": _effdet(
        None, 768, 128, 5, 3, backbone="efficientnetv2-rw-t", **_EFFDET_V2
    ),
    "efficientdetv2-ds": _effdet(
        None, 1024, 256, 7, 4, backbone="efficientnetv2-rw-s", **_EFFDET_V2
    ),
    "effdet-d0": _effdet(0, 512, 64, 3, 3),
    "effdet-d1": _effdet(1, 640, 88, 4, 3),
    "effdet-d2": _effdet(2, 768, 112, 5, 3),
    "effdet-d3": _effdet(3, 896, 160, 6, 4),
    "effdet-d4": _effdet(4, 1024, 224, 7, 4, **_TF_PYRAMID),
    "effdet-d5": _effdet(5, 1280, 288, 7, 4, **_TF_PYRAMID),
    "effdet-lite0": _effdet(
        0,
        384,
        64,
        3,
        3,
        backbone="efficientnet-lite0",
        activation="relu6",
        fpn_padding="same",
    ),
}

MODEL_NAMES = tuple(_PUBLISHED)
