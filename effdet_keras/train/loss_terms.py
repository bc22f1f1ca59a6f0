"""The loss of a batch, term by term: of each head, of parts, and weight decay."""

from keras import ops

from effdet_keras._internal.label_constants import IGNORE
from effdet_keras.train.inputs import is_valid_batch
from effdet_keras.train.losses import count_positives, segmentation_loss


def loss_terms(model, truth, outputs, is_counted, training):
    """`EfficientDet.losses_of`."""
    terms = {"loss": 0.0}
    if model.config.has_detection:
        terms = _detection_losses(model, truth, outputs, is_counted, training)
    if model.config.has_segmentation:
        of_images = segmentation_loss(truth["masks"], outputs["segmentation_logits"])
        segmentation = _mean_of_counted(of_images, is_counted)
        loss = terms["loss"] + segmentation  # unweighted, as in the reference
        terms = {**terms, "loss": loss, "segmentation_loss": segmentation}
    for part in model.parts.values():
        if (more := part.loss(truth, outputs)) is not None:
            weight, value = more
            loss = terms["loss"] + weight * value
            terms = {**terms, "loss": loss, part.logs[0]: value}
    decay = model.settings.weight_decay_loss(model.trainable_variables)
    is_valid = is_valid_batch(truth, model.config)
    loss = ops.where(is_valid, terms["loss"] + decay, float("nan"))
    return {**terms, "reg_l2_loss": decay, "loss": loss}


def _detection_losses(model, truth, outputs, is_counted, training):
    """The terms of `DetectionLoss`, with their sum as `loss`."""
    recipe, boxes, labels = model.settings.recipe, truth["boxes"], truth["labels"]
    # Rules and losses of one's own need not know what is seldom there.
    weights = {"weights": truth["weights"]} if "weights" in truth else {}
    class_targets, box_targets, *anchor_weights = recipe.matching(
        boxes, labels, model.anchors, model.config, **weights
    )
    options = {"anchor_weights": anchor_weights[0]} if anchor_weights else {}
    if set(model.config.box_scales) != {1.0}:
        options["box_scales"] = model.config.box_scales
    if is_counted is not None:
        class_targets = ops.where(is_counted[:, None], class_targets, IGNORE)
    num_positives = count_positives(class_targets, box_targets, *anchor_weights)
    parts = model.parts.values() if training else ()
    for one in (*parts, model._step):
        normalizer = one.normalizer(num_positives, recipe.loss.normalizer_of)
        if normalizer is not None:
            # A loss of one's own need not know what only parts of a batch need.
            options["normalizer"] = normalizer
            break
    return recipe.loss(
        class_targets,
        box_targets,
        outputs["class_logits"],
        outputs["box_deltas"],
        model.anchors,
        **options,
    )


def _mean_of_counted(of_images, is_counted):
    """The mean over the images of a batch that count."""
    if is_counted is None:
        return ops.mean(of_images)
    counted = ops.cast(is_counted, "float32")
    total = ops.sum(ops.where(is_counted, of_images, 0.0))
    return total / ops.maximum(ops.sum(counted), 1.0)
