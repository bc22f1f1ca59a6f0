"""Losses, L2 and suppression of a `pipeline.config`."""

from __future__ import annotations

from typing import Any

from effdet_keras.tfod.decay import tfod_decay


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


def matching(ssd, note):
    """Fields of `IoUMatching`, of the message `model.ssd`."""
    matcher = ssd.message("matcher").message("argmax_matcher")
    matched = matcher.number("matched_threshold", 0.5)
    unmatched = matcher.number("unmatched_threshold", 0.5)
    if matcher.switch("ignore_thresholds", False):
        place = matcher.place_of("ignore_thresholds")
        note(place, "true", "there are thresholds")
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
