"""The `model` of a `pipeline.config`: a preset, and the fields that differ from it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from effdet_keras.config import MODEL_NAMES, TFOD_TAPS, EfficientDetConfig
from effdet_keras.errors import InvalidValueError

EXTRACTOR = re.compile(r"ssd_efficientnet-(b[0-7])_bifpn_keras")
_FUSION = {"fast_attention": "fastattn", "attention": "sum", "sum": "sum"}
_ACTIVATIONS = {"SWISH": "swish", "RELU": "relu", "RELU_6": "relu6"}


def model(ssd, note):
    """The preset that is nearest, its image size, and what of it is to be otherwise.

    Args:
        ssd: the message `model.ssd`.
        note: `Note`.

    Returns:
        Dict of fields of `RunConfiguration`.
    """
    name, wanted, size = _model(ssd, note)
    preset = EfficientDetConfig.from_name(name)
    others = {n: v for n, v in wanted.items() if getattr(preset, n) != v}
    return {"model": name, "image_size": size, "model_config": others}


def model_config(ssd, note):
    """The model as fields of `EfficientDetConfig`, all that the file says.

    Args:
        ssd: the message `model.ssd`.
        note: `Note`.

    Returns:
        Dict, with `name` of the nearest preset, and without `num_classes`.
    """
    name, wanted, size = _model(ssd, note)
    sizes = {} if size is None else {"image_size": size}
    return {"name": name, **wanted, **sizes}


def _model(ssd, note):
    """The nearest preset, fields of `EfficientDetConfig`, and the image size."""
    backbone, wanted = _network(ssd, note)
    size = _image_size(ssd, note)
    side = max(size) if isinstance(size, tuple) else size or 0
    configs = {n: EfficientDetConfig.from_name(n) for n in MODEL_NAMES}

    def others(name):
        return {n: v for n, v in wanted.items() if getattr(configs[name], n) != v}

    def distance(name):  # D6 and D7 differ in their sizes alone
        return abs(max(configs[name].image_size) - side), len(others(name))

    near = [
        name
        for name, config in configs.items()
        if config.backbone == f"efficientnet-{backbone}"
        and config.backbone_padding == "same"  # not PyTorch effdet's
    ]
    return min(near, key=distance), wanted, size


def _network(ssd, note):
    """The name of the backbone, and fields of `EfficientDetConfig`."""
    extractor = ssd.message("feature_extractor")
    backbone = EXTRACTOR.fullmatch(extractor.text("type", ""))[1]
    bifpn = extractor.message("bifpn")
    head = ssd.message("box_predictor").message(
        "weight_shared_convolutional_box_predictor"
    )
    wanted: dict[str, Any] = {
        "fpn_cell_repeats": bifpn.whole("num_iterations", None),
        "fpn_num_filters": bifpn.whole("num_filters", None),
        "fpn_weight_method": _fusion(bifpn, note),
        "head_repeats": head.whole("num_layers_before_predictor", None),
        "batch_norm_unbiased": True,
        "frozen_batch_norm": ssd.switch("freeze_batchnorm", False),
        "pad_rgb": _padding(ssd),
        # There stochastic depth acts in all of them, B0 too.
        "backbone_survival_prob": 0.8,
        "backbone_taps": TFOD_TAPS[f"efficientnet-{backbone}"],
        "anchor_order": "aspect_first",
        "box_scales": box_scales(ssd),
        "resize_method": "asymmetric",
        **_anchors(bifpn, ssd),
        **_layers(extractor, head, note),
    }
    if not head.switch("use_depthwise", False):
        place = head.place_of("use_depthwise")
        note(place, "false", "the heads' convolutions are separable here")
    depth = head.whole("depth", None)
    if depth is not None and depth != wanted["fpn_num_filters"]:
        note(head.place_of("depth"), depth, "the heads have the BiFPN's")
    return backbone, {
        n: v
        for n, v in wanted.items()
        if v is not None or n in ("pad_rgb", "backbone_taps")
    }


def box_scales(ssd):
    """The scales of the box codes, for ty, tx, th, tw."""
    coder = ssd.message("box_coder").message("faster_rcnn_box_coder")
    names = {
        "y_scale": 10.0,
        "x_scale": 10.0,
        "height_scale": 5.0,
        "width_scale": 5.0,
    }
    scales = tuple(coder.number(name, otherwise) for name, otherwise in names.items())
    if min(scales) <= 0:
        raise InvalidValueError(f"`{coder.path}`: scales must be above 0: {scales}")
    return scales


def _fusion(bifpn, note):
    method = bifpn.text("combine_method", "fast_attention")
    if method not in _FUSION:
        raise _not_known(bifpn.place_of("combine_method"), method, _FUSION)
    if method == "attention":  # its softmax runs over an axis of length 1
        place = bifpn.place_of("combine_method")
        note(place, method, "there it is a plain sum: `sum` is taken", is_done=True)
    return _FUSION[method]


def _anchors(bifpn, ssd):
    generator = ssd.message("anchor_generator").message("multiscale_anchor_generator")
    levels = {
        name: bifpn.whole(name, otherwise)
        for name, otherwise in (("min_level", 3), ("max_level", 7))
    }
    for name, level in levels.items():
        if generator.whole(name, {"min_level": 3, "max_level": 7}[name]) != level:
            raise InvalidValueError(
                f"`{name}` of `bifpn` and `multiscale_anchor_generator` must be "
                f"one number. Received: {level} and "
                f"{generator.whole(name, 'its default')}"
            )
    return {
        **levels,
        "anchor_scale": generator.number("anchor_scale", 4.0),
        "aspect_ratios": tuple(generator.numbers("aspect_ratios")) or (1.0,),
        "num_scales": generator.whole("scales_per_octave", 2),
    }


def _layers(extractor, head, note):
    """What BiFPN and heads share here, and there each has for itself."""
    ours, other = (m.message("conv_hyperparams") for m in (extractor, head))
    fields: dict[str, tuple[Callable, Any]] = {
        "activation": (_activation, None),
        "batch_norm_momentum": (
            lambda m: m.message("batch_norm").number("decay", 0.999),
            0.99,
        ),
        "batch_norm_epsilon": (
            lambda m: m.message("batch_norm").number("epsilon", 0.001),
            0.001,
        ),
        "sync_batch_norm": (lambda m: m.switch("sync_batch_norm", False), None),
    }
    values = {}
    for name, (read, in_backbone) in fields.items():
        values[name], of_head = read(ours), read(other)
        if of_head != values[name]:
            note(f"{other.path}: {name}", of_head, "the heads have the BiFPN's")
        if in_backbone is not None and values[name] != in_backbone:
            place = f"{ours.path}: {name}"
            why = "here for the backbone as well"
            note(place, values[name], why, is_done=True)
    return values


def _image_size(ssd, note):
    """An int, `(height, width)`, or None for the preset's."""
    resizer = ssd.message("image_resizer")
    if resizer.has("fixed_shape_resizer"):
        fixed = resizer.message("fixed_shape_resizer")
        height, width = fixed.whole("height", 300), fixed.whole("width", 300)
        note(
            fixed.path,
            f"{height}x{width}",
            "images are stretched to this size there; here they keep their aspect "
            "ratio and are padded, so that detections differ",
        )
        return height if height == width else (height, width)
    if not resizer.has("keep_aspect_ratio_resizer"):
        name = (resizer.names or ["nothing"])[0]
        why = "the image size is the model's own"
        note(resizer.path, name, why, is_done=not resizer.names)
        return None
    resize = resizer.message("keep_aspect_ratio_resizer")
    low, high = (
        resize.whole("min_dimension", 600),
        resize.whole("max_dimension", 1024),
    )
    if low != high:
        place = resize.place_of("min_dimension")
        note(
            place,
            low,
            f"images are scaled to fit {high}x{high} here; there, the shorter side to "
            f"{low} at most, so that detections differ for images less oblong",
        )
    if not resize.switch("pad_to_max_dimension", False):
        place = resize.place_of("pad_to_max_dimension")
        note(place, "false", f"images are padded to {high}x{high}", is_done=True)
    return high


def _padding(ssd):
    """The color beside an image; None, the default of both, is the mean."""
    resizer = ssd.message("image_resizer").message("keep_aspect_ratio_resizer")
    values = resizer.numbers("per_channel_pad_value")
    if not any(values):
        return None
    preset = EfficientDetConfig()
    values = values * 3 if len(values) == 1 else values
    rgb = zip(values, preset.mean_rgb, preset.stddev_rgb)
    return tuple(round(value * std + mean, 4) for value, mean, std in rgb)


def _activation(hyperparams):
    name = hyperparams.text("activation", "RELU")
    if name not in _ACTIVATIONS:
        raise _not_known(hyperparams.place_of("activation"), name, _ACTIVATIONS)
    return _ACTIVATIONS[name]


def _not_known(place, value, known):
    return InvalidValueError(
        f"`{place}` must be one of {', '.join(known)}. Received: {value!r}"
    )
