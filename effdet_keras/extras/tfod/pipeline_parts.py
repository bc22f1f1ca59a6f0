"""Converts the parts of a `pipeline.config`, such as the model, to fields of a run."""

from __future__ import annotations

import math
import re
from typing import Any

from effdet_keras.errors import check_argument, check_choice, require
from effdet_keras.extras.tfod.fields import Fields
from effdet_keras.extras.tfod.preprocessing import STEPS
from effdet_keras.extras.tfod.recipe import tfod_decay
from effdet_keras.network.config import MODEL_NAMES, TFOD_TAPS, EfficientDetConfig

_HEADS = "box_predictor.weight_shared_convolutional_box_predictor"
EXTRACTOR = re.compile(r"ssd_efficientnet-(b[0-7])_bifpn_keras")
_FUSION = {"fast_attention": "fastattn", "attention": "sum", "sum": "sum"}
_ACTIVATIONS = {"SWISH": "swish", "RELU": "relu", "RELU_6": "relu6"}


def model(ssd, note):
    """Returns the nearest preset, the image size, and config fields that differ."""
    name, wanted, size = _model(ssd, note)
    others = _differing(EfficientDetConfig.from_name(name), wanted)
    return {"model": name, "image_size": size, "model_config": others}


def _differing(config, wanted):
    return {n: v for n, v in wanted.items() if getattr(config, n) != v}


def model_config(ssd, note):
    """Returns all fields of `EfficientDetConfig` in the file, and the preset's name."""
    name, wanted, size = _model(ssd, note)
    sizes = {} if size is None else {"image_size": size}
    return {"name": name, **wanted, **sizes}


def _model(ssd, note):
    """Returns the nearest preset, fields of `EfficientDetConfig`, and image size."""
    backbone, wanted = _network(ssd, note)
    size = _image_size(ssd.message("image_resizer"), note)
    side = max(size) if isinstance(size, tuple) else size or 0
    near = {}
    for name in MODEL_NAMES:
        config = EfficientDetConfig.from_name(name)
        if config.backbone != f"efficientnet-{backbone}":
            continue
        if config.backbone_padding == "same":  # not a model of PyTorch effdet
            # D6 and D7 differ only in their image sizes.
            distance = abs(max(config.image_size) - side)
            near[name] = distance, len(_differing(config, wanted))
    return min(near, key=near.get), wanted, size


def _network(ssd, note):
    """Returns the name of the backbone, and fields of `EfficientDetConfig`."""
    extractor = ssd.message("feature_extractor")
    backbone = EXTRACTOR.fullmatch(extractor.get("type", ""))[1]
    bifpn = extractor.message("bifpn")
    head = ssd.message(_HEADS)
    wanted: dict[str, Any] = {
        "fpn_cell_repeats": bifpn.get("num_iterations", None, int),
        "fpn_num_filters": bifpn.get("num_filters", None, int),
        "fpn_weight_method": _chosen(
            bifpn, "combine_method", "fast_attention", _FUSION
        ),
        "head_repeats": head.get("num_layers_before_predictor", None, int),
        "batch_norm_unbiased": True,
        "frozen_batch_norm": ssd.get("freeze_batchnorm", False),
        "pad_rgb": _padding(ssd),
        # In that API, all backbones have stochastic depth, also B0.
        "backbone_survival_prob": 0.8,
        "backbone_taps": _feature_blocks(backbone, bifpn),
        "anchor_order": "aspect_first",
        "box_scales": box_scales(ssd),
        "resize_method": "asymmetric",
        **_anchors(bifpn, ssd),
        **_layers(extractor, head, note),
    }
    depth = head.get("depth", None, int)
    if depth is not None and depth != wanted["fpn_num_filters"]:
        note(head, "depth", depth, "the heads use the value of the BiFPN")
    return backbone, {
        n: v
        for n, v in wanted.items()
        if v is not None or n in ("pad_rgb", "backbone_taps")
    }


def _feature_blocks(backbone, bifpn):
    """Returns the feature blocks of levels `min_level` to 5.

    None means the last block of each level.
    """
    taps, lowest = TFOD_TAPS[f"efficientnet-{backbone}"], bifpn.get("min_level", 3)
    if taps is None:
        return None
    expected = (
        f"at least 3 with {backbone}, because it is not known which of its blocks are "
        "the last ones of finer levels"
    )
    check_argument(lowest >= 3, bifpn.place_of("min_level"), lowest, expected)
    return taps[lowest - 3 :]


def box_scales(ssd):
    """Returns the scales of the box coding, for ty, tx, th, tw."""
    coder = ssd.message("box_coder.faster_rcnn_box_coder")
    defaults = {"y": 10.0, "x": 10.0, "height": 5.0, "width": 5.0}
    return tuple(coder.get(f"{n}_scale", value) for n, value in defaults.items())


def _anchors(bifpn, ssd):
    generator = ssd.message("anchor_generator.multiscale_anchor_generator")
    levels, of_anchors = (
        {"min_level": m.get("min_level", 3), "max_level": m.get("max_level", 7)}
        for m in (bifpn, generator)
    )
    rule = "`bifpn` and `multiscale_anchor_generator` must have the same levels"
    require(levels == of_anchors, rule, bifpn=levels, anchors=of_anchors)
    return {
        **levels,
        "anchor_scale": generator.get("anchor_scale", 4.0),
        "aspect_ratios": tuple(generator.all("aspect_ratios", float)) or (1.0,),
        "num_scales": generator.get("scales_per_octave", 2),
    }


# Fields of BiFPN and heads: our name, and the API's name and default.
_LAYER_FIELDS = {
    "activation": ("activation", "RELU"),
    "batch_norm_momentum": ("batch_norm.decay", 0.999),
    "batch_norm_epsilon": ("batch_norm.epsilon", 0.001),
    "sync_batch_norm": ("sync_batch_norm", False),
}
# Values of the API's backbone, whatever `conv_hyperparams` say. Of those, only the
# decay and the synchronization of batch norm apply to the backbone.
_BACKBONE_FIELDS = {
    "activation": "swish",
    "batch_norm_momentum": 0.99,
    "batch_norm_epsilon": 0.001,
}


def _layers(extractor, head, note):
    """Returns fields that BiFPN and heads share here, but not in that API."""
    of_fpn, of_heads = (m.message("conv_hyperparams") for m in (extractor, head))
    values = {"activation": _chosen(of_fpn, "activation", "RELU", _ACTIVATIONS)}
    for name, (api_name, default) in _LAYER_FIELDS.items():
        value = of_fpn.get(api_name, default)
        values.setdefault(name, value)
        if (other := of_heads.get(api_name, default)) != value:
            note(of_heads, api_name, other, "the heads use the value of the BiFPN")
    others = {n: x for n, x in _BACKBONE_FIELDS.items() if not _is_near(values[n], x)}
    return values | {f"backbone_{name}": value for name, value in others.items()}


def _is_near(value, other):
    """Returns whether two values are equal; numbers up to the precision of float32."""
    is_number = isinstance(other, float)
    return math.isclose(value, other, rel_tol=1e-6) if is_number else value == other


def _image_size(resizer, note):
    """Returns the image size: an int, `(height, width)`, or None for the preset's."""
    if resizer.has("fixed_shape_resizer"):
        fixed = resizer.message("fixed_shape_resizer")
        height, width = fixed.get("height", 300), fixed.get("width", 300)
        why = (
            "the API stretches images to this size; this package keeps their aspect "
            "ratio and pads them, so detections differ"
        )
        note(resizer, "fixed_shape_resizer", f"{height}x{width}", why)
        return height if height == width else (height, width)
    if not resizer.has("keep_aspect_ratio_resizer"):
        return None
    resize = resizer.message("keep_aspect_ratio_resizer")
    low, high = resize.get("min_dimension", 600), resize.get("max_dimension", 1024)
    if low != high:
        why = (
            f"this package scales images to fit {high}x{high}; the API scales the "
            f"shorter side to {low} at most, so detections differ for images that are "
            "less elongated"
        )
        note(resize, "min_dimension", low, why)
    return high


def _padding(ssd):
    """Returns the padding color; None, the default in both, is the mean color."""
    resizer = ssd.message("image_resizer.keep_aspect_ratio_resizer")
    values = resizer.all("per_channel_pad_value", float)
    if not any(values):
        return None
    preset = EfficientDetConfig()
    rgb = zip(values, preset.mean_rgb, preset.stddev_rgb)
    return tuple(round(value * std + mean, 4) for value, mean, std in rgb)


def _chosen(message, name, default, choices):
    """Returns our equivalent of the value of a field."""
    value = message.get(name, default)
    check_choice(message.place_of(name), value, choices)
    return choices[value]


# --- Losses, L2 and suppression of a `pipeline.config`.


def loss(ssd):
    """Returns fields of `DetectionLoss` from the message `model.ssd`.

    Box codes have the same scales here, `box_scales`.
    """
    of_class = ssd.get("loss.classification_weight", 1.0)
    of_box = ssd.get("loss.localization_weight", 1.0)
    if not ssd.get("normalize_loc_loss_by_codesize", False):
        of_box *= 4  # here the loss is always divided by the four numbers of a code
    is_by_matches = ssd.get("normalize_loss_by_num_matches", True)
    return {
        "normalizer": "positives" if is_by_matches else "one",
        **_class_loss(ssd.message("loss.classification_loss"), of_class),
        **_box_loss(ssd.message("loss.localization_loss"), of_box),
    }


def _class_loss(chosen, weight):
    focal = chosen.message("weighted_sigmoid_focal")
    gamma, alpha = focal.get("gamma", 2.0), focal.get("alpha", None, float)
    if alpha is None:  # all anchors have equal weight: as with 0.5, but twice as much
        alpha, weight = 0.5, 2 * weight
    return {"alpha": alpha, "gamma": gamma, "class_loss_weight": weight}


def _box_loss(chosen, weight):
    for kind in ("iou", "giou"):
        if chosen.has(f"weighted_{kind}"):
            of_iou = {"iou_loss_type": kind, "iou_loss_weight": weight}
            return {"box_loss_weight": 0.0, **of_iou}
    delta = chosen.get("weighted_smooth_l1.delta", 1.0)
    return {"delta": delta, "box_loss_weight": weight}


def matching(ssd):
    """Returns fields of `IoUMatching` from the message `model.ssd`."""
    matcher = ssd.message("matcher.argmax_matcher")
    matched = matcher.get("matched_threshold", 0.5)
    unmatched = matcher.get("unmatched_threshold", 0.5)
    return {
        "iou_threshold": matched,
        "ignore_threshold": unmatched if unmatched < matched else None,
        "force": matcher.get("force_match_for_each_row", False),
        "background_weight": ssd.get("negative_class_weight", 1.0),
        "normalized_coordinates": True,
    }


def weight_decay(config):
    """Returns the L2 decay of a config, by paths of variables; see `tfod_decay`."""
    ssd = config.message("model.ssd")
    extractor = ssd.message("feature_extractor")
    of_fpn, of_heads = (
        _l2(m.message("conv_hyperparams.regularizer"))
        for m in (extractor, ssd.message(_HEADS))
    )
    name = "override_base_feature_extractor_hyperparams"
    has_override = extractor.get(name, False)
    if not config.get("train_config.add_regularization_loss", True):
        return {"weight_decay": None}
    backbone = {"backbone": of_fpn} if has_override else {}
    return {"weight_decay": tfod_decay(fpn=of_fpn, heads=of_heads, **backbone)}


def _l2(regularizer):
    if not regularizer.has("l2_regularizer"):
        return 0.0
    return regularizer.get("l2_regularizer.weight", 1.0)


def postprocess(ssd, note):
    """Returns fields of `Postprocess` from the message `model.ssd`."""
    nms = ssd.message("post_processing.batch_non_max_suppression")
    per_class = nms.get("max_detections_per_class", 100)
    total = nms.get("max_total_detections", 100)
    is_agnostic = nms.get("use_class_agnostic_nms", False)
    sigma = nms.get("soft_nms_sigma", 0.0)
    threshold = nms.get("iou_threshold", 0.6)
    fields: dict[str, Any] = {
        "method": "gaussian" if sigma else "hard",
        "iou_threshold": threshold,
        "score_threshold": nms.get("score_threshold", 0.0),
        "max_detections": total,
        "per_class": not is_agnostic,
        "max_detections_per_class": total if is_agnostic else per_class,
        # All pairs of anchor and class; if class-agnostic, the best class per anchor.
        "pre_nms_top_k": 0 if is_agnostic else None,
        # The combined operation keeps boxes outside of the image.
        "drop_empty": not nms.get("use_combined_nms", False),
    }
    if sigma:
        # It is exp(-iou**2 / (2 * sigma)) in that API, and exp(-iou**2 / sigma) here.
        fields["sigma"] = 2 * sigma
        if threshold < 1:
            why = (
                "this package's Soft-NMS only lowers scores, and removes no box "
                "because of its overlap"
            )
            note(nms, "iou_threshold", threshold, why)
    return fields


# --- The `train_config` of a `pipeline.config`: how to train, and from what.

_SUMMARY_STEPS = 100
_OPTIMIZERS = ("momentum_optimizer", "adam_optimizer", "rms_prop_optimizer")
_RATES = (
    "cosine_decay_learning_rate",
    "constant_learning_rate",
    "exponential_decay_learning_rate",
    "manual_step_learning_rate",
)


def overall(config):
    """Returns number of steps, batch size, clipping, averages, and start weights."""
    train = config.message("train_config")
    bias = train.get("bias_grad_multiplier", 0.0)
    return {
        "batch_size": train.get("batch_size", 32),
        "steps": train.get("num_steps", 0) or None,
        "keep_every_hours": train.get("keep_checkpoint_every_n_hours", 0.0) or None,
        "clip_norm": train.get("gradient_clipping_by_norm", 0.0) or None,
        "gradient_multipliers": {"bias$": bias} if bias else None,
        "ema_decay": _average(train.message("optimizer")),
        **_summaries(train),
        **_start(train),
        **_quantization(config.message("graph_rewriter")),
    }


def _summaries(train):
    """Returns how often to log gradient norms: as often as the API's summaries."""
    wants = train.get("summarize_gradients", False)
    return {"gradient_summary_every": _SUMMARY_STEPS} if wants else {}


def _average(optimizer):
    decay = optimizer.get("moving_average_decay", 0.9999)
    return decay if optimizer.get("use_moving_average", True) else None


def _quantization(rewriter):
    """Returns `quantize_aware` with its delay, whose default is that of the API."""
    if not rewriter.has("quantization"):
        return {}
    delay = rewriter.get("quantization.delay", 500_000)
    return {"quantize_aware": {"delay": delay}}


def _start(train):
    """Returns the checkpoint to start from, and its type."""
    path = train.get("fine_tune_checkpoint", "")
    from_detection = train.get("from_detection_checkpoint", False)
    kind = train.get("fine_tune_checkpoint_type", "")
    if not path:
        return {"weights": None}  # random weights, as in that API
    kind = kind or ("detection" if from_detection else "classification")
    return {"weights": path, "checkpoint_type": kind}


def optimizer(train):
    """Returns optimizer, schedule and learning rate."""
    message = train.message("optimizer")
    kind, inner = _one_of(message, _OPTIMIZERS)
    chosen: dict[str, Any]
    if kind == "adam_optimizer":
        chosen = {"name": "adam", "epsilon": inner.get("epsilon", 1e-8)}
    else:
        momentum = inner.get("momentum_optimizer_value", 0.9)
        chosen = {"name": "momentum", "momentum": momentum}
        if kind == "rms_prop_optimizer":
            rho, epsilon = inner.get("decay", 0.9), inner.get("epsilon", 1.0)
            chosen |= {"name": "rmsprop", "rho": rho, "epsilon": epsilon}
    return {"optimizer": chosen, **_schedule(inner.message("learning_rate"))}


def _one_of(message, names):
    """Returns the first of the fields that is present, and its message."""
    kind = next((name for name in names if message.has(name)), None)
    rule = f"`{message.path}` must have one of {', '.join(names)}"
    require(kind is not None, rule, fields=message.names)
    return kind, message.message(kind)


def _schedule(message):
    kind, inner = _one_of(message, _RATES)
    if kind == "cosine_decay_learning_rate":
        return _cosine(inner)
    if kind == "constant_learning_rate":
        rate = inner.get("learning_rate", 0.002)
        return {"schedule": "constant", "learning_rate": rate}
    if kind == "exponential_decay_learning_rate":
        return _exponential(inner)
    return _manual_step(inner)


def _cosine(inner):
    schedule = {
        "name": "cosine",
        "total_steps": inner.get("total_steps", 4_000_000),
        "warmup_steps": inner.get("warmup_steps", 10_000),
        "warmup_init": inner.get("warmup_learning_rate", 0.0002),
    }
    hold = inner.get("hold_base_rate_steps", 0)
    return {
        "schedule": schedule | ({"hold_steps": hold} if hold else {}),
        "learning_rate": inner.get("learning_rate_base", 0.002),
    }


def _exponential(inner):
    schedule = {
        "name": "exponential",
        "decay_steps": inner.get("decay_steps", 4_000_000),
        "decay_rate": inner.get("decay_factor", 0.95),
        "staircase": inner.get("staircase", True),
    }
    rate = inner.get("initial_learning_rate", 0.002)
    first = inner.get("burnin_learning_rate", 0.0) or rate
    if steps := inner.get("burnin_steps", 0):
        warmup = {"warmup_steps": steps, "warmup_init": first}
        schedule |= {"flat_warmup": True, **warmup}
    return {"schedule": schedule, "learning_rate": rate}


def _manual_step(inner):
    rates = [inner.get("initial_learning_rate", 0.002)]
    boundaries = []
    for step in inner.all("schedule", Fields):
        boundaries.append(step.get("step", 0))
        rates.append(step.get("learning_rate", 0.002))
    warmup = {}
    if inner.get("warmup", False) and boundaries:
        # In that API, the rate rises from the first rate to the second one.
        warmup = {"warmup_steps": boundaries.pop(0), "warmup_init": rates.pop(0)}
    if not boundaries:
        schedule: dict[str, Any] = {"name": "constant", **warmup}
        return {"schedule": schedule, "learning_rate": rates[0]}
    schedule = {"name": "manual_step", "boundaries": tuple(boundaries)}
    return {"schedule": {**schedule, "rates": tuple(rates), **warmup}}


# --- The `data_augmentation_options` of a `pipeline.config`.

# Steps that are always done here.
_ALWAYS = (
    "normalize_image",
    "subtract_channel_mean",
    "resize_image",
    "scale_boxes_to_pixel_coordinates",
    "random_resize_method",
)
_FLIP, _SQUARE = "random_horizontal_flip", "random_scale_crop_and_pad_to_square"


def augmentation(train, note):
    """Returns all steps in order as `augment`.

    A flip and a scale jitter at the end become separate fields of a run.
    """
    fields: dict[str, Any] = {"flip_probability": 0.0, "scale_jitter": (1.0, 1.0)}
    entries: list[Any] = []
    for option in train.all("data_augmentation_options", Fields):
        for kind in option.names:
            entries += _entries(option, kind, note)
    if entries and entries[-1]["name"] == _SQUARE:
        square = entries.pop()
        fields["scale_jitter"] = (square["scale_min"], square["scale_max"])
        fields["pad_rgb"] = (0.0, 0.0, 0.0)
    if entries and entries[-1]["name"] == _FLIP:
        fields["flip_probability"] = entries.pop()["probability"]
    names_alone = [one["name"] if len(one) == 1 else one for one in entries]
    return {**fields, "augment": tuple(names_alone)}


def _entries(option, kind, note):
    """Returns the entries of `augment` for a step; empty if it needs none."""
    step = option.message(kind)
    if kind == "autoaugment_image":
        return [{"name": f"auto_augment_{step.get('policy_name', 'v0')}"}]
    if kind in STEPS:
        return [{"name": kind, **_parameters(step, STEPS[kind][1])}]
    step.take_all()
    if kind not in _ALWAYS:
        note(option, kind, "{...}", "this package does not have this augmentation")
    return []


def _parameters(step, defaults, is_operation=False):
    """Returns the fields of a step and of its operations, as types of the defaults."""
    parameters = {
        name: _parameter(step, name, default, is_operation)
        for name, default in defaults.items()
        if name != "operations"
    }
    if step.has("operations"):
        each, first = step.all("operations", Fields), defaults["operations"][0]
        parameters["operations"] = tuple(_parameters(o, first, True) for o in each)
    return parameters


def _parameter(step, name, default, is_operation):
    if name == "pad_color" and is_operation:
        return tuple(step.get(f"{name}_{channel}", 0.0) for channel in "rgb")
    if isinstance(default, tuple):
        return tuple(step.all(name, float)) or default
    # The fields of an operation have no defaults in that API, so they are 0.
    return step.get(name, type(default)() if is_operation else default)
