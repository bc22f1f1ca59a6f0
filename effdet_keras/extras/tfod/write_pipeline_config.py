"""Writes the `pipeline.config` of a model, for the TF Object Detection API."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from typing import Any

import numpy as np

from effdet_keras._internal.proto_text import Enum, message_text
from effdet_keras._version import __version__
from effdet_keras.data.formats.label_map import write_label_map
from effdet_keras.detect.postprocess import Postprocess
from effdet_keras.export.runtime import labels_of
from effdet_keras.extras.tfod.pipeline_config import (
    read_pipeline_config,
    read_pipeline_model,
)
from effdet_keras.extras.tfod.pipeline_parts import EXTRACTOR
from effdet_keras.extras.tfod.recipe import SCHEDULE, WARMUP_INIT, tfod_decay
from effdet_keras.labels import category_ids_or_default
from effdet_keras.network.config import EfficientDetConfig
from effdet_keras.train.losses import DetectionLoss
from effdet_keras.train.matching import IoUMatching
from effdet_keras.train.recipe import TFOD_NAME, Recipe
from effdet_keras.weights.locate import CONFIG_NAME

LABEL_MAP_NAME = "label_map.pbtxt"
_ACTIVATIONS = {
    **dict.fromkeys(("swish", "silu", "swish_native"), "SWISH"),
    "relu": "RELU",
    "relu6": "RELU_6",
}
_FUSION = {"fastattn": "fast_attention", "sum": "sum"}
_IOU_LOSSES = {"iou": "weighted_iou", "giou": "weighted_giou"}
_RATE = 0.08  # learning rate of the API's published configs
_ANY_DATA = {"input_path": "PATH_TO_BE_CONFIGURED"}  # as in its published configs


def write_pipeline_config(model: Any, folder: str | os.PathLike) -> None:
    """Writes `pipeline.config`, and the label map that it names, into a folder.

    The API lacks fields for some options of a model. Comments at the top of the file
    list what differs between file and model. If the model is not compiled, the training
    options are those of the API's published configs.

    Args:
        model: `EfficientDet`.
        folder: path of an existing folder.
    """
    folder = pathlib.Path(folder)
    ids = category_ids_or_default(model.category_ids, model.num_classes)
    write_label_map(folder / LABEL_MAP_NAME, dict(zip(ids, labels_of(model))))
    recipe = Recipe(TFOD_NAME).resolve()
    if model.settings is not None:
        recipe = model.settings.recipe
    path, text = folder / CONFIG_NAME, message_text(_pipeline(model, recipe))
    path.write_text(text, encoding="utf-8")
    title = f"Written by effdet_keras {__version__} for {model.config.name!r}."
    lines = [title, *_differences(model, recipe, path)]
    comments = "".join(f"# {line}\n" for line in lines)
    path.write_text(comments + text, encoding="utf-8")


def _pipeline(model, recipe):
    """Returns the fields of the whole config."""
    reader = {"label_map_path": LABEL_MAP_NAME, "tf_record_input_reader": _ANY_DATA}
    return {
        "model": {"ssd": _ssd(model, recipe)},
        "train_config": _train_config(recipe),
        "train_input_reader": reader,
        "eval_config": {"metrics_set": "coco_detection_metrics"},
        "eval_input_reader": {**reader, "shuffle": False, "num_epochs": 1},
    }


def _ssd(model, recipe):
    """Returns the fields of the message `model.ssd`."""
    config = model.config
    of_fpn, of_heads = _l2_weights(recipe)
    levels = {"min_level": config.min_level, "max_level": config.max_level}
    sides = ("y_scale", "x_scale", "height_scale", "width_scale")
    name = config.backbone.removeprefix("efficientnet-")
    return {
        "num_classes": config.num_classes,
        "image_resizer": _resizer(config),
        "feature_extractor": {
            "type": f"ssd_efficientnet-{name}_bifpn_keras",
            "conv_hyperparams": _conv_hyperparams(
                config,
                of_fpn,
                {"truncated_normal_initializer": {"mean": 0.0, "stddev": 0.03}},
            ),
            "bifpn": {
                **levels,
                "num_iterations": config.fpn_cell_repeats,
                "num_filters": config.fpn_num_filters,
                "combine_method": _FUSION.get(
                    config.fpn_weight_method, "fast_attention"
                ),
            },
        },
        "box_coder": {"faster_rcnn_box_coder": dict(zip(sides, config.box_scales))},
        "matcher": {"argmax_matcher": _matcher(recipe.matching)},
        "similarity_calculator": {"iou_similarity": {}},
        "box_predictor": {
            "weight_shared_convolutional_box_predictor": {
                "conv_hyperparams": _conv_hyperparams(
                    config,
                    of_heads,
                    {"random_normal_initializer": {"mean": 0.0, "stddev": 0.01}},
                ),
                "depth": config.fpn_num_filters,
                "num_layers_before_predictor": config.head_repeats,
                "kernel_size": 3,
                "class_prediction_bias_init": -4.6,
                "use_depthwise": config.separable_conv,
            }
        },
        "anchor_generator": {
            "multiscale_anchor_generator": {
                **levels,
                "anchor_scale": float(np.mean(config.anchor_scale)),
                "aspect_ratios": [_ratio(value) for value in config.aspect_ratios],
                "scales_per_octave": config.num_scales,
            }
        },
        "post_processing": {
            "batch_non_max_suppression": _suppression(model.postprocess),
            "score_converter": Enum("SIGMOID"),
        },
        **_losses(recipe.loss),
        "negative_class_weight": getattr(recipe.matching, "background_weight", 1.0),
        "encode_background_as_zeros": True,
        "freeze_batchnorm": config.frozen_batch_norm,
        "add_background_class": False,
    }


def _resizer(config):
    """Returns the resizer, which keeps the aspect ratio if the input is square.

    The API has no such resizer for other shapes.
    """
    height, width = config.image_size
    if height != width:
        return {"fixed_shape_resizer": {"height": height, "width": width}}
    keeps = {
        "min_dimension": height,
        "max_dimension": width,
        "pad_to_max_dimension": True,
    }
    if config.pad_rgb is not None:  # the API has normalized values
        rgb = np.subtract(config.pad_rgb, config.mean_rgb) / config.stddev_rgb
        keeps["per_channel_pad_value"] = rgb.tolist()
    return {"keep_aspect_ratio_resizer": keeps}


def _conv_hyperparams(config, l2_weight, initializer):
    return {
        "regularizer": {"l2_regularizer": {"weight": l2_weight}},
        "initializer": initializer,
        "activation": Enum(_ACTIVATIONS.get(config.activation, "SWISH")),
        "batch_norm": {
            "decay": config.batch_norm_momentum,
            "scale": True,
            "epsilon": config.batch_norm_epsilon,
        },
        "force_use_bias": config.redundant_bias,
    }


def _l2_weights(recipe):
    """Returns the L2 weights of BiFPN and of heads, in the order of `tfod_decay`."""
    decay = recipe.l2_decay
    if isinstance(decay, dict):
        known = tfod_decay()
        _, _, *both = known
        decay = known | decay
        return [decay[pattern] for pattern in both]
    return [decay, decay]


def _ratio(value):
    """Converts an aspect ratio, a number or a pair `(width, height)`, to a number."""
    return float(np.divide(*value)) if isinstance(value, tuple) else float(value)


def _matcher(matching):
    iou = getattr(matching, "iou_threshold", 0.5)
    return {
        "matched_threshold": iou,
        "unmatched_threshold": getattr(matching, "ignore_threshold", None) or iou,
        "ignore_thresholds": False,
        "negatives_lower_than_unmatched": True,
        "force_match_for_each_row": getattr(matching, "force", True),
        "use_matmul_gather": True,
    }


def _suppression(postprocess):
    is_soft = postprocess.method == "gaussian"
    total = postprocess.max_detections
    fields = {
        "score_threshold": max(postprocess.lowest_score, 0.0),
        # In that API, Soft-NMS also removes boxes whose IoU is above this threshold.
        "iou_threshold": 1.0 if is_soft else postprocess.iou_threshold,
        "max_detections_per_class": postprocess.max_detections_per_class or total,
        "max_total_detections": total,
        "use_class_agnostic_nms": not postprocess.per_class,
    }
    if is_soft:  # the API has exp(-iou**2 / (2 * sigma)), and here it is / sigma
        fields["soft_nms_sigma"] = postprocess.sigma / 2
    elif not postprocess.drop_empty:
        fields["use_combined_nms"] = True
    return fields


def _losses(loss):
    """Returns the fields of `model.ssd` for the losses."""
    kind = {"weighted_smooth_l1": {"delta": loss.delta}}
    box_weight = loss.box_loss_weight
    if loss.iou_loss_type is not None:
        kind = {_IOU_LOSSES.get(loss.iou_loss_type, "weighted_giou"): {}}
        box_weight = loss.iou_loss_weight
    return {
        "loss": {
            "localization_loss": kind,
            "classification_loss": {
                "weighted_sigmoid_focal": {"gamma": loss.gamma, "alpha": loss.alpha}
            },
            "classification_weight": loss.class_loss_weight,
            "localization_weight": box_weight,
        },
        "normalize_loss_by_num_matches": loss.normalizer != "one",
        "normalize_loc_loss_by_codesize": True,
    }


# --- The message `train_config`.


def _train_config(recipe):
    """Returns the fields of `train_config`: optimizer, schedule, clipping, averages."""
    schedule = _schedule(recipe)
    rate = _RATES[schedule["name"]](recipe.learning_rate or _RATE, schedule)
    optimizer = {
        **_optimizer(recipe.optimizer, rate),
        "use_moving_average": recipe.ema_decay is not None,
    }
    if recipe.ema_decay is not None:
        optimizer["moving_average_decay"] = recipe.ema_decay
    fields = {
        "optimizer": optimizer,
        "num_steps": schedule.get("total_steps", SCHEDULE["total_steps"]),
        "add_regularization_loss": bool(recipe.l2_decay),
        "fine_tune_checkpoint_version": Enum("V2"),
    }
    if recipe.clip_norm:
        fields["gradient_clipping_by_norm"] = recipe.clip_norm
    return fields


def _optimizer(optimizer, learning_rate):
    """Returns the optimizer's message; SGD with momentum if the API lacks it."""
    fields = {"name": optimizer} if isinstance(optimizer, str) else optimizer
    fields = fields if isinstance(fields, dict) else {}
    rate = {"learning_rate": learning_rate}
    kind = fields.get("name", "momentum")
    if kind == "adam":
        return {"adam_optimizer": {**rate, "epsilon": fields.get("epsilon", 1e-7)}}
    momentum = {"momentum_optimizer_value": fields.get("momentum", 0.9)}
    if kind == "rmsprop":
        others = {"decay": fields.get("rho", 0.9)}
        others["epsilon"] = fields.get("epsilon", 1e-7)
        return {"rms_prop_optimizer": {**rate, **momentum, **others}}
    return {"momentum_optimizer": {**rate, **momentum}}


def _schedule(recipe):
    """Returns the schedule as a dict; the published one if the API lacks it."""
    schedule = recipe.schedule
    schedule = {"name": schedule} if isinstance(schedule, str) else schedule
    if not isinstance(schedule, dict):
        return SCHEDULE
    name = schedule["name"]
    lacks_length = name == "cosine" and "total_steps" not in schedule
    return schedule if name in _RATES and not lacks_length else SCHEDULE


def _cosine(rate, schedule):
    hold = schedule.get("hold_steps")
    fields = {
        "learning_rate_base": rate,
        "total_steps": schedule["total_steps"],
        "warmup_learning_rate": schedule.get("warmup_init", rate * WARMUP_INIT / _RATE),
        "warmup_steps": schedule.get("warmup_steps", 0),
    }
    hold = {"hold_base_rate_steps": hold} if hold else {}
    return {"cosine_decay_learning_rate": {**fields, **hold}}


def _exponential(rate, schedule):
    fields = {
        "initial_learning_rate": rate,
        "decay_steps": schedule["decay_steps"],
        "decay_factor": schedule["decay_rate"],
        "staircase": schedule.get("staircase", False),
    }
    if steps := schedule.get("warmup_steps"):
        fields["burnin_steps"] = steps
        fields["burnin_learning_rate"] = schedule.get("warmup_init", rate)
    return {"exponential_decay_learning_rate": fields}


def _constant(rate, schedule):
    return _manual_step(rate, {**schedule, "boundaries": (), "rates": (rate,)})


def _manual_step(_, schedule):
    """Returns learning rates by step; in the API a warm-up is an additional step."""
    boundaries, rates = list(schedule["boundaries"]), list(schedule["rates"])
    rises = bool(schedule.get("warmup_steps"))
    if rises:
        boundaries.insert(0, schedule["warmup_steps"])
        rates.insert(0, schedule.get("warmup_init", 0.0))
    if not boundaries:
        return {"constant_learning_rate": {"learning_rate": rates[0]}}
    steps = [
        {"step": step, "learning_rate": rate}
        for step, rate in zip(boundaries, rates[1:], strict=True)
    ]
    fields = {"initial_learning_rate": rates[0], "schedule": steps, "warmup": rises}
    return {"manual_step_learning_rate": fields}


_RATES = {
    "cosine": _cosine,
    "constant": _constant,
    "exponential": _exponential,
    "manual_step": _manual_step,
}


# --- Differences between the model and the file.


def _differences(model, recipe, path):
    """Returns lines about differences between the file and the model.

    The file is read again, and the result is compared with the model.
    """
    kind = f"ssd_{model.config.backbone}_bifpn_keras"
    if not EXTRACTOR.fullmatch(kind):
        return [
            "The Object Detection API has no such feature extractor: it can read this "
            "file, but cannot make a model of it."
        ]
    read = read_pipeline_model(path)
    there = EfficientDetConfig.from_name(**read.config, num_classes=read.num_classes)
    same = {
        field: getattr(there, field)
        for field, kind in _activations(there).items()
        if kind == _activations(model.config)[field]
    }
    here = model.config.replace(name=there.name, **same)
    trained = read_pipeline_config(path).fields
    pairs = [
        (here, there),
        (_explicit(model.postprocess), Postprocess(**read.postprocess)),
        (recipe.loss, DetectionLoss(**trained["loss"])),
        (recipe.matching, IoUMatching(**trained["matching"])),
    ]
    lines = [line for pair in pairs for line in _differing(*pair)]
    lines += [
        f"{field}={getattr(recipe, field)!r}"
        for field in ("optimizer", "schedule", "weight_decay")
        if getattr(recipe, field) is not None
        and not _is_same(getattr(recipe, field), trained[field])
    ]
    lines += read.unsupported
    if not lines:
        return []
    return ["The exported model or training differs from this file in:", *lines]


def _activations(config):
    """Returns a dict from field to activation, with the API's name if it has one."""
    names = {
        "activation": config.activation,
        "backbone_activation": config.backbone_activation or config.activation,
    }
    return {field: _ACTIVATIONS.get(name, name) for field, name in names.items()}


def _explicit(postprocess):
    """Returns the same postprocess, with values instead of None where possible."""
    nms = _suppression(postprocess)
    return dataclasses.replace(
        postprocess,
        score_threshold=nms["score_threshold"],
        iou_threshold=nms["iou_threshold"],
        max_detections_per_class=nms["max_detections_per_class"],
    )


def _differing(here, there):
    """Returns texts about the fields in which two dataclass instances differ."""
    if type(here) is not type(there):
        return [f"{type(there).__name__}: {here}"]
    return [
        f"{type(here).__name__}.{field.name}={getattr(here, field.name)!r} "
        f"(in this file {getattr(there, field.name)!r})"
        for field in dataclasses.fields(here)
        if not _is_same(getattr(here, field.name), getattr(there, field.name))
    ]


def _is_same(one, other):
    """Returns whether two values are equal; numbers up to rounding."""
    if isinstance(one, dict) and isinstance(other, dict):
        same_keys = one.keys() == other.keys()
        return same_keys and all(_is_same(one[key], other[key]) for key in one)
    if isinstance(one, str) and isinstance(other, dict):
        return other.get("name") == one
    try:
        return bool(np.allclose(one, other, rtol=1e-5, atol=1e-9))
    except (TypeError, ValueError):
        return one == other
