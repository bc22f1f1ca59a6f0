"""The operation `TFLite_Detection_PostProcess`, and the `Postprocess` equal to it."""

import dataclasses

import numpy as np

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.errors import InvalidValueError
from effdet_keras.geometry.anchors import anchors_of

# The time of the operation grows with the anchors above it: 32 ms for all 49,104 of D0,
# 7 ms for 7,700 of them, 3 ms for 400 (one thread, 90 classes).
_DEFAULT_SCORE_THRESHOLD = 0.01


def hard_postprocess(postprocess, **options):
    """The nearest to a postprocess that the operation can do.

    That is hard suppression, inside each class ("regular") or across all ("fast").
    Boxes outside the input are kept, whatever `drop_empty` says.

    Args:
        postprocess: `Postprocess` of the model.
        **options: fields to replace.

    Returns:
        `Postprocess` that computes what the operation computes.

    Raises:
        ValueError: If an option is wrong.

    Example:
        >>> from effdet_keras.postprocess import Postprocess
        >>> hard = hard_postprocess(Postprocess(), iou_threshold=0.6)
        >>> hard.method, hard.score_threshold, hard.iou_threshold
        ('hard', 0.01, 0.6)
    """
    hard = dataclasses.replace(postprocess, method="hard", drop_empty=False, **options)
    threshold = hard.score_threshold
    if threshold is None:
        threshold = _DEFAULT_SCORE_THRESHOLD
    if not 0 <= threshold <= 1:
        raise InvalidValueError(
            "`score_threshold` must be between 0 and 1. "
            f"Received: score_threshold={threshold}"
        )
    # Across classes, an anchor can keep its best class alone: all have one box.
    top_k = hard.pre_nms_top_k if hard.per_class else 0
    return dataclasses.replace(hard, score_threshold=threshold, pre_nms_top_k=top_k)


def postprocess_op(postprocess, config):
    """The operation as a function to be traced.

    Args:
        postprocess: `Postprocess`, from `hard_postprocess`.
        config: `EfficientDetConfig`.

    Returns:
        Function of `box_deltas` `[1, N, 4]` and `scores` `[1, N, C]`. It returns what
        a LiteRT interpreter puts in its place: `boxes` `[1, D, 4]`, `yxyx` as
        fractions of the input, `classes` `[1, D]`, `scores` `[1, D]`, `count` `[1]`.
        In TensorFlow it returns zeros.
    """
    count = postprocess.max_detections
    anchors = _centers_and_sides(config)

    name = _operation(postprocess, config.num_classes, config.box_scales)

    @tf.function(experimental_implements=name)
    def operation(box_deltas, scores, anchors):
        return (
            tf.zeros((1, count, 4)),
            tf.zeros((1, count)),
            tf.zeros((1, count)),
            tf.zeros((1,)),
        )

    return lambda box_deltas, scores: operation(box_deltas, scores, anchors)


def _operation(postprocess, num_classes, box_scales):
    """Name and attributes, as a `NameAttrList` in protobuf's text form."""
    count = postprocess.max_detections
    attributes = {
        "max_detections": f"i: {count}",
        "max_classes_per_detection": "i: 1",
        "detections_per_class": f"i: {postprocess.max_detections_per_class or count}",
        "num_classes": f"i: {num_classes}",
        "use_regular_nms": f"b: {str(postprocess.per_class).lower()}",
        "nms_score_threshold": f"f: {postprocess.score_threshold}",
        "nms_iou_threshold": f"f: {postprocess.iou_threshold}",
        **{
            name: f"f: {float(scale)}"
            for name, scale in zip(
                ("y_scale", "x_scale", "h_scale", "w_scale"), box_scales
            )
        },
    }
    pairs = (
        f'attr {{ key: "{key}" value {{ {value} }} }}'
        for key, value in attributes.items()
    )
    return f'name: "TFLite_Detection_PostProcess" {" ".join(pairs)}'


def _centers_and_sides(config):
    """Anchors as `(y, x, height, width)`, fractions of the input, `[N, 4]`."""
    low, high = np.split(anchors_of(config), 2, axis=-1)
    anchors = np.concatenate([(low + high) / 2, high - low], axis=-1)
    return (anchors / np.tile(config.image_size, 2)).astype("float32")
