"""The parts of a `pipeline.config`, model to augmentation, as fields of a run."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from effdet_keras.errors import InvalidValueError
from effdet_keras.extras.tfod.fields import Fields
from effdet_keras.extras.tfod.preprocessing import STEPS
from effdet_keras.model.config import MODEL_NAMES, TFOD_TAPS, EfficientDetConfig
from effdet_keras.train.recipe import tfod_decay

EXTRACTOR = re.compile(r"ssd_efficientnet-(b[0-7])_bifpn_keras")
_FUSION = {"fast_attention": "fastattn", "attention": "sum", "sum": "sum"}
_ACTIVATIONS = {"SWISH": "swish", "RELU": "relu", "RELU_6": "relu6"}


def model(ssd, note):
    """The preset that is nearest, its image size, and what of it is to be otherwise."""
    name, wanted, size = _model(ssd, note)
    others = _differing(EfficientDetConfig.from_name(name), wanted)
    return {"model": name, "image_size": size, "model_config": others}


def _differing(config, wanted):
    return {n: v for n, v in wanted.items() if getattr(config, n) != v}


def model_config(ssd, note):
    """The model as fields of `EfficientDetConfig`, all that the file says."""
    name, wanted, size = _model(ssd, note)
    sizes = {} if size is None else {"image_size": size}
    return {"name": name, **wanted, **sizes}


def _model(ssd, note):
    """The nearest preset, fields of `EfficientDetConfig`, and the image size."""
    backbone, wanted = _network(ssd, note)
    size = _image_size(ssd, note)
    side = max(size) if isinstance(size, tuple) else size or 0
    near = {}
    for name in MODEL_NAMES:
        config = EfficientDetConfig.from_name(name)
        if config.backbone != f"efficientnet-{backbone}":
            continue
        if config.backbone_padding == "same":  # not PyTorch effdet's
            # D6 and D7 differ in their sizes alone.
            distance = abs(max(config.image_size) - side)
            near[name] = distance, len(_differing(config, wanted))
    return min(near, key=near.get), wanted, size


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
    defaults = {"y": 10.0, "x": 10.0, "height": 5.0, "width": 5.0}
    scales = tuple(coder.number(f"{n}_scale", value) for n, value in defaults.items())
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
    levels = {}
    for name, otherwise in (("min_level", 3), ("max_level", 7)):
        levels[name] = level = bifpn.whole(name, otherwise)
        if generator.whole(name, otherwise) != level:
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
    of_backbone = {"batch_norm_momentum": 0.99, "batch_norm_epsilon": 0.001}
    values, of_heads = map(_layer_fields, (ours, other))
    for name, value in values.items():
        if of_heads[name] != value:
            note(f"{other.path}: {name}", of_heads[name], "the heads have the BiFPN's")
        if value != of_backbone.get(name, value):
            why = "here for the backbone as well"
            note(f"{ours.path}: {name}", value, why, is_done=True)
    return values


def _layer_fields(hyperparams):
    batch_norm = hyperparams.message("batch_norm")
    return {
        "activation": _activation(hyperparams),
        "batch_norm_momentum": batch_norm.number("decay", 0.999),
        "batch_norm_epsilon": batch_norm.number("epsilon", 0.001),
        "sync_batch_norm": hyperparams.switch("sync_batch_norm", False),
    }


def _image_size(ssd, note):
    """An int, `(height, width)`, or None for the preset's."""
    resizer = ssd.message("image_resizer")
    if resizer.has("fixed_shape_resizer"):
        fixed = resizer.message("fixed_shape_resizer")
        height, width = fixed.whole("height", 300), fixed.whole("width", 300)
        why = (
            "images are stretched to this size there; here they keep their aspect "
            "ratio and are padded, so that detections differ"
        )
        note(fixed.path, f"{height}x{width}", why)
        return height if height == width else (height, width)
    if not resizer.has("keep_aspect_ratio_resizer"):
        name = (resizer.names or ["nothing"])[0]
        why = "the image size is the model's own"
        note(resizer.path, name, why, is_done=not resizer.names)
        return None
    resize = resizer.message("keep_aspect_ratio_resizer")
    low, high = resize.whole("min_dimension", 600), resize.whole("max_dimension", 1024)
    if low != high:
        why = (
            f"images are scaled to fit {high}x{high} here; there, the shorter side to "
            f"{low} at most, so that detections differ for images less oblong"
        )
        note(resize.place_of("min_dimension"), low, why)
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


# --- Losses, L2 and suppression of a `pipeline.config`.


def loss(ssd, note):
    """Fields of `DetectionLoss`, of the message `model.ssd`.

    Codes have the scales of the config here as well, `box_scales`.
    """
    message = ssd.message("loss")
    of_class, of_box = (
        message.number(name, 1.0)
        for name in ("classification_weight", "localization_weight")
    )
    if not ssd.switch("normalize_loc_loss_by_codesize", False):
        of_box *= 4  # here it is always by the four numbers of a code
    is_by_matches = ssd.switch("normalize_loss_by_num_matches", True)
    return {
        "divide_by": "positives" if is_by_matches else "one",
        **_class_loss(message.message("classification_loss"), of_class, note),
        **_box_loss(message.message("localization_loss"), of_box, note),
    }


def _class_loss(message, weight, note):
    focal = message.message("weighted_sigmoid_focal")
    if not message.has("weighted_sigmoid_focal"):
        name = (message.names or ["nothing"])[0]
        note(message.path, name, "the class loss is the focal loss")
        return {"class_loss_weight": weight}
    gamma, alpha = focal.number("gamma", 2.0), focal.number("alpha", None)
    if alpha is None:  # all anchors count alike: as with 0.5, but twice as much
        alpha, weight = 0.5, 2 * weight
    return {"alpha": alpha, "gamma": gamma, "class_loss_weight": weight}


def _box_loss(message, weight, note):
    for kind in ("iou", "giou"):
        if message.has(f"weighted_{kind}"):
            of_iou = {"iou_loss_type": kind, "iou_loss_weight": weight}
            return {"box_loss_weight": 0.0, **of_iou}
    if not message.has("weighted_smooth_l1"):
        name = (message.names or ["nothing"])[0]
        note(message.path, name, "the box loss is Huber's, with a delta of 1")
    delta = message.message("weighted_smooth_l1").number("delta", 1.0)
    return {"delta": delta, "box_loss_weight": weight}


def matching(ssd, note):
    """Fields of `IoUMatching`, of the message `model.ssd`."""
    matcher = ssd.message("matcher").message("argmax_matcher")
    matched = matcher.number("matched_threshold", 0.5)
    unmatched = matcher.number("unmatched_threshold", 0.5)
    is_usual = matcher.switch("negatives_lower_than_unmatched", True)
    if not is_usual and unmatched < matched:
        place = matcher.place_of("negatives_lower_than_unmatched")
        note(place, "false", "what lies between the thresholds is ignored")
    return {
        "iou_threshold": matched,
        "ignore_threshold": unmatched if unmatched < matched else None,
        "force": matcher.switch("force_match_for_each_row", False),
        "background_weight": ssd.number("negative_class_weight", 1.0),
        "in_fractions": True,
    }


def weight_decay(config, note):
    """L2 of the whole config, by paths of variables; see `l2_decay.tfod_decay`."""
    ssd = config.message("model").message("ssd")
    extractor = ssd.message("feature_extractor")
    heads = ssd.message("box_predictor").message(
        "weight_shared_convolutional_box_predictor"
    )
    of_fpn, of_heads = (
        _l2(m.message("conv_hyperparams"), note) for m in (extractor, heads)
    )
    name = "override_base_feature_extractor_hyperparams"
    has_override = extractor.switch(name, False)
    if not config.message("train_config").switch("add_regularization_loss", True):
        return {"weight_decay": None}
    backbone = {"backbone": of_fpn} if has_override else {}
    return {"weight_decay": tfod_decay(fpn=of_fpn, heads=of_heads, **backbone)}


def _l2(hyperparams, note):
    regularizer = hyperparams.message("regularizer")
    if regularizer.has("l1_regularizer"):
        weight = regularizer.message("l1_regularizer").number("weight", 1.0)
        note(regularizer.place_of("l1_regularizer"), weight, "L2 only")
    if not regularizer.has("l2_regularizer"):
        return 0.0
    return regularizer.message("l2_regularizer").number("weight", 1.0)


def postprocess(ssd, note):
    """Fields of `Postprocess`, of the message `model.ssd`."""
    processing = ssd.message("post_processing")
    if not processing.has("score_converter"):
        place = processing.place_of("score_converter")
        note(place, "IDENTITY", "always sigmoid")
    nms = processing.message("batch_non_max_suppression")
    per_class = nms.whole("max_detections_per_class", 100)
    total = nms.whole("max_total_detections", 100)
    is_agnostic = nms.switch("use_class_agnostic_nms", False)
    sigma = nms.number("soft_nms_sigma", 0.0)
    threshold = nms.number("iou_threshold", 0.6)
    fields: dict[str, Any] = {
        "method": "gaussian" if sigma else "hard",
        "iou_threshold": threshold,
        "score_threshold": nms.number("score_threshold", 0.0),
        "max_detections": total,
        "per_class": not is_agnostic,
        "max_detections_per_class": total if is_agnostic else per_class,
        # All pairs of anchor and class; across classes, each anchor's best class.
        "pre_nms_top_k": 0 if is_agnostic else None,
        # The combined operation keeps those beside the image.
        "drop_empty": not nms.switch("use_combined_nms", False),
    }
    if sigma:
        # exp(-iou**2 / (2 * sigma)) there, exp(-iou**2 / sigma) here.
        fields["sigma"] = 2 * sigma
        if threshold < 1:
            place = nms.place_of("iou_threshold")
            note(place, threshold, "Soft-NMS removes no box outright here")
    return fields


# --- The `train_config` of a `pipeline.config`: how to train, and from what.

# What takes path, value and reason of a field that is not done here; with
# `is_done=True`, of one that changes nothing, or is done in another way.
Note = Callable[..., None]

_OPTIMIZERS = ("momentum_optimizer", "adam_optimizer", "rms_prop_optimizer")
_RATES = (
    *("cosine_decay_learning_rate", "constant_learning_rate"),
    *("exponential_decay_learning_rate", "manual_step_learning_rate"),
)
_TYPES = ("classification", "detection", "full")


def overall(config: Fields, note: Note) -> dict[str, Any]:
    """Length, batch size, clipping, averages, and what to start from."""
    train = config.message("train_config")
    steps = train.whole("num_steps", 0)
    if not steps:
        why = "no end there; enough for 1,400 steps here"
        note(train.place_of("num_steps"), 0, why, is_done=True)
    bias = train.number("bias_grad_multiplier", 0.0)
    return {
        "batch_size": train.whole("batch_size", 32),
        "steps": steps or None,
        "clip_norm": train.number("gradient_clipping_by_norm", 0.0) or None,
        "gradient_multipliers": {"bias$": bias} if bias else {},
        **_averages(config, note),
        **_start(train),
        **_quantization(config.message("graph_rewriter")),
    }


def _averages(config, note):
    optimizer = config.message("train_config").message("optimizer")
    decay = optimizer.number("moving_average_decay", 0.9999)
    evaluation = config.message("eval_config")
    are_evaluated = evaluation.switch("use_moving_averages", False)
    if not optimizer.switch("use_moving_average", True):
        return {"ema_decay": None}
    if not are_evaluated:
        why = "the averages are evaluated and saved; `ema_decay` None turns them off"
        note(evaluation.place_of("use_moving_averages"), "false", why, is_done=True)
    return {"ema_decay": decay}


def _quantization(rewriter):
    """Quantization-aware training; the delay's default is that of its message."""
    if not rewriter.has("quantization"):
        return {}
    delay = rewriter.message("quantization").whole("delay", 500_000)
    return {"quantize_aware": {"delay": delay}}


def _start(train):
    """The checkpoint, and what to take of it."""
    path = train.text("fine_tune_checkpoint", "")
    from_detection = train.switch("from_detection_checkpoint", False)
    kind = train.text("fine_tune_checkpoint_type", "")
    if not path:
        return {"weights": None}  # there, too, it starts from random weights
    kind = kind or ("detection" if from_detection else "classification")
    if kind not in _TYPES:
        place = train.place_of("fine_tune_checkpoint_type")
        raise InvalidValueError(
            f"`{place}` must be one of {', '.join(_TYPES)}. Received: {kind!r}"
        )
    return {"weights": path, "checkpoint_type": kind}


def optimizer(train: Fields, note: Note) -> dict[str, Any]:
    """Optimizer, schedule and learning rate."""
    message = train.message("optimizer")
    kind, inner = _one_of(message, _OPTIMIZERS)
    chosen: dict[str, Any]
    if kind == "adam_optimizer":
        chosen = {"name": "adam", "epsilon": inner.number("epsilon", 1e-8)}
    else:
        momentum = inner.number("momentum_optimizer_value", 0.9)
        chosen = {"name": "momentum", "momentum": momentum}
        if kind == "rms_prop_optimizer":
            rho, epsilon = inner.number("decay", 0.9), inner.number("epsilon", 1.0)
            chosen |= {"name": "rmsprop", "rho": rho, "epsilon": epsilon}
    schedule = _schedule(
        inner.message("learning_rate"), train.whole("num_steps", 0), note
    )
    return {"optimizer": chosen, **schedule}


def _one_of(message, names):
    """The first of the fields that is there, and its message."""
    kind = next((name for name in names if message.has(name)), None)
    if kind is None:
        raise InvalidValueError(
            f"`{message.path}` must be one of {', '.join(names)}. "
            f"Received: {message.names}"
        )
    return kind, message.message(kind)


def _schedule(message, steps, note):
    kind, inner = _one_of(message, _RATES)
    if kind == "cosine_decay_learning_rate":
        return _cosine(inner, steps, note)
    if kind == "constant_learning_rate":
        rate = inner.number("learning_rate", 0.002)
        return {"schedule": "constant", "learning_rate": rate}
    if kind == "exponential_decay_learning_rate":
        return _exponential(inner, note)
    return _manual_step(inner)


def _cosine(inner, steps, note):
    total = inner.whole("total_steps", 4_000_000)
    if steps and total > steps:
        why = f"as there, the {steps} steps of the training end before the cosine does"
        note(inner.place_of("total_steps"), total, why, is_done=True)
    schedule = {
        "name": "cosine",
        "total_steps": total,
        "warmup_steps": inner.whole("warmup_steps", 10_000),
        "warmup_init": inner.number("warmup_learning_rate", 0.0002),
    }
    hold = inner.whole("hold_base_rate_steps", 0)
    return {
        "schedule": schedule | ({"hold_steps": hold} if hold else {}),
        "learning_rate": inner.number("learning_rate_base", 0.002),
    }


def _exponential(inner, note):
    schedule = {
        "name": "exponential",
        "decay_steps": inner.whole("decay_steps", 4_000_000),
        "decay_rate": inner.number("decay_factor", 0.95),
        "staircase": inner.switch("staircase", True),
    }
    rate = inner.number("initial_learning_rate", 0.002)
    first = inner.number("burnin_learning_rate", 0.0)
    steps = inner.whole("burnin_steps", 0)
    if steps:
        schedule |= {"warmup_steps": steps, "warmup_init": first or rate}
        why = "the rate rises from the first one here, and the decay begins at step 0"
        note(inner.place_of("burnin_steps"), steps, why)
    return {"schedule": schedule, "learning_rate": rate}


def _manual_step(inner):
    rates = [inner.number("initial_learning_rate", 0.002)]
    boundaries = []
    for step in inner.messages("schedule"):
        boundaries.append(step.whole("step", 0))
        rates.append(step.number("learning_rate", 0.002))
    warmup = {}
    if inner.switch("warmup", False) and boundaries:
        # There the rate rises from the first one to the second one.
        warmup = {"warmup_steps": boundaries.pop(0), "warmup_init": rates.pop(0)}
    if not boundaries:
        schedule: dict[str, Any] = {"name": "constant", **warmup}
        return {"schedule": schedule, "learning_rate": rates[0]}
    schedule = {"name": "manual_step", "boundaries": tuple(boundaries)}
    return {"schedule": {**schedule, "rates": tuple(rates), **warmup}}


# --- The `data_augmentation_options` of a `pipeline.config`.

# What is done in any case.
_ALWAYS = (
    *("normalize_image", "subtract_channel_mean", "resize_image"),
    *("scale_boxes_to_pixel_coordinates", "random_resize_method"),
)
_FLIP, _SQUARE = "random_horizontal_flip", "random_scale_crop_and_pad_to_square"
# Fields that only one value has a place for here.
_ONLY = {"clip_boxes": "true", "jitter_mode": "DEFAULT"}


def augmentation(train: Fields, note: Note) -> dict[str, Any]:
    """All steps in order; flip and scale jitter, where last, as the fields of a run."""
    fields: dict[str, Any] = {"flip_probability": 0.0, "scale_jitter": (1.0, 1.0)}
    entries: list[Any] = []
    for option in train.messages("data_augmentation_options"):
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
    """The entry of `augment` that one step becomes; none for what needs none."""
    step = option.message(kind)
    if kind == "autoaugment_image":
        return [{"name": f"auto_augment_{step.text('policy_name', 'v0')}"}]
    if kind in STEPS:
        return [{"name": kind, **_parameters(step, STEPS[kind][1], note)}]
    step.take_all()
    if kind not in _ALWAYS:
        note(option.place_of(kind), "{...}", "there is no such augmentation here")
    return []


def _parameters(step, defaults, note, is_operation=False):
    """The fields of a step, each read as its default is; and of its operations."""
    for name, only in _ONLY.items():
        if step.text(name, only) != only:
            note(step.place_of(name), step.text(name, only), f"always {only}")
    parameters = {
        name: _parameter(step, name, default, is_operation)
        for name, default in defaults.items()
        if name != "operations"
    }
    if step.has("operations"):
        each, first = step.messages("operations"), defaults["operations"][0]
        parameters["operations"] = tuple(
            _parameters(o, first, note, True) for o in each
        )
    return parameters


def _parameter(step, name, default, is_operation):
    if name == "pad_color" and is_operation:
        return tuple(step.number(f"{name}_{channel}", 0.0) for channel in "rgb")
    if isinstance(default, tuple):
        return tuple(step.numbers(name)) or default
    read = step.number if isinstance(default, float) else step.whole
    # The fields of an operation have no defaults there: they are 0.
    return read(name, 0.0 if is_operation else default)
