"""Losses, L2 and suppression of a `pipeline.config`."""

from __future__ import annotations

from typing import Any

from effdet_keras.errors import InvalidValueError


def loss(ssd, note):
    """Fields of `DetectionLoss`, of the message `model.ssd`.

    Codes have the scales of the config here as well, `box_scales`.
    """
    message = ssd.message("loss")
    of_class, of_box = (
        message.number(name, 1.0)
        for name in ("classification_weight", "localization_weight")
    )
    if of_class <= 0:
        place = message.place_of("classification_weight")
        raise InvalidValueError(f"`{place}` must be above 0. Received: {of_class}")
    fields, of_class = _class_loss(
        message.message("classification_loss"), of_class, note
    )
    weight = of_box / of_class
    if of_class != 1:
        note(
            message.place_of("classification_weight"),
            f"{of_class:g}",
            f"the class loss has a weight of 1 here, the box loss of {weight:g}",
        )
    if not ssd.switch("normalize_loc_loss_by_codesize", False):
        weight *= 4  # here it is always by the four numbers of a code
    fields |= _box_loss(message.message("localization_loss"), weight, note)
    return fields


def _class_loss(message, weight, note):
    """Alpha and gamma, and the weight that goes with them."""
    focal = message.message("weighted_sigmoid_focal")
    if not message.has("weighted_sigmoid_focal"):
        name = (message.names or ["nothing"])[0]
        note(message.path, name, "the class loss is the focal loss")
        return {}, weight
    gamma, alpha = focal.number("gamma", 2.0), focal.number("alpha", None)
    if alpha is None:  # all anchors count alike: as with 0.5, but twice as much
        return {"alpha": 0.5, "gamma": gamma}, 2 * weight
    return {"alpha": alpha, "gamma": gamma}, weight


def _box_loss(message, weight, note):
    for name, kind in (("weighted_iou", "iou"), ("weighted_giou", "giou")):
        if message.has(name):
            return {
                "box_loss_weight": 0.0,
                "iou_loss_type": kind,
                "iou_loss_weight": weight,
            }
    if not message.has("weighted_smooth_l1"):
        name = (message.names or ["nothing"])[0]
        note(message.path, name, "the box loss is Huber's, with a delta of 1")
    delta = message.message("weighted_smooth_l1").number("delta", 1.0)
    return {"delta": delta, "box_loss_weight": weight}


def weight_decay(config, note):
    """L2 of the BiFPN's convolutions, of the whole config: here of all kernels."""
    ssd = config.message("model").message("ssd")
    places = [ssd.message("feature_extractor")]
    places.append(
        ssd.message("box_predictor").message(
            "weight_shared_convolutional_box_predictor"
        )
    )
    ours, other = (_l2(m.message("conv_hyperparams"), note) for m in places)
    if other != ours:
        place = places[1].place_of("conv_hyperparams.regularizer")
        note(place, f"{other:g}", f"the heads decay with {ours:g} as well")
    if not config.message("train_config").switch("add_regularization_loss", True):
        return {"weight_decay": None}
    if ours:
        place = places[0].place_of("conv_hyperparams.regularizer")
        why = "for all kernels; there 1e-5 in the backbone, and none for some of heads"
        note(place, f"{ours:g}", why)
    return {"weight_decay": ours or None}


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
