"""`Postprocess` with builtin operations, which every LiteRT runtime supports."""

import dataclasses

import numpy as np

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.box_ops import decode_boxes
from effdet_keras.errors import InvalidValueError
from effdet_keras.network.anchors import anchors_of

_TOP_K = 5000  # pairs of anchor and class, if a postprocess has no limit
_LOWEST = -3e38  # a finite threshold below all scores
_ROW = 10  # classes per row of the grid in `_kept_apart`


def nearest_postprocess(postprocess, **options):
    """Returns the nearest equivalent of a postprocess for `NON_MAX_SUPPRESSION_V5`.

    The operation also supports Soft-NMS. Boxes outside of the input are kept, whatever
    `drop_empty` is.

    Raises:
        ValueError: If the postprocess has a limit of detections per class.
    """
    if postprocess.max_detections_per_class is not None:
        raise InvalidValueError(
            "LiteRT's built-in suppression cannot limit the detections per class. "
            "Received: "
            f"max_detections_per_class={postprocess.max_detections_per_class}. Set "
            "`model.postprocess` to one without this limit."
        )
    top_k = postprocess.pre_nms_top_k
    top_k = _TOP_K if top_k is None else top_k
    options = {"pre_nms_top_k": top_k, "drop_empty": False, **options}
    return dataclasses.replace(postprocess, **options)


def builtin_operations(postprocess, config):
    """Returns the postprocess as a function of `box_deltas`, `class_logits` to trace.

    The function has the same outputs as the custom operation, with zeros in unused
    rows.
    """
    anchors = anchors_of(config)
    size = np.tile(config.image_size, 2).astype("float32")

    def operations(box_deltas, class_logits):
        """Returns boxes `[1, D, 4]`, labels and scores `[1, D]`, and a count `[1]`."""
        logits, rows, labels = _candidates(class_logits[0], postprocess.pre_nms_top_k)
        labels = tf.cast(labels, tf.float32)
        boxes = decode_boxes(
            tf.gather(box_deltas[0], rows),
            tf.gather(tf.constant(anchors), rows),
            config.box_scales,
        )
        boxes = boxes / size
        picked, scores, count = _suppressed(
            postprocess,
            _kept_apart(boxes, labels) if postprocess.per_class else boxes,
            tf.sigmoid(logits),
        )
        places = tf.range(postprocess.max_detections)
        used = tf.cast(places < count, tf.float32)
        found = (
            tf.gather(boxes, picked) * used[:, None],
            tf.gather(labels, picked) * used,
            scores * used,
        )
        return (*(value[None] for value in found), tf.cast(count, tf.float32)[None])

    return operations


def _candidates(logits, top_k):
    """Returns logits, anchor indices, labels of the best pairs, like `Postprocess`."""
    num_anchors, num_classes = logits.shape
    best = tf.reduce_max(logits, axis=-1)
    if top_k == 0:
        rows = tf.range(num_anchors)
        return best, rows, tf.argmax(logits, axis=-1, output_type=tf.int32)
    _, rows = tf.math.top_k(best, min(top_k, num_anchors))
    pairs = tf.reshape(tf.gather(logits, rows), (-1,))
    values, places = tf.math.top_k(pairs, min(top_k, pairs.shape[0]))
    labels = tf.math.floormod(places, num_classes)
    return values, tf.gather(rows, places // num_classes), labels


def _kept_apart(boxes, labels):
    """Moves boxes so far that boxes of different classes never overlap.

    Classes are arranged in a grid with ten per row. In a single row, coordinates would
    be larger, and have fewer digits left for the boxes.
    """
    step = tf.reduce_max(boxes) - tf.reduce_min(boxes)
    down = tf.math.floor(labels / _ROW)
    move = tf.stack([down, labels - down * _ROW], axis=-1) * step
    return boxes + tf.concat([move, move], axis=-1)


def _suppressed(postprocess, boxes, scores):
    is_soft = postprocess.method == "gaussian"
    return tf.raw_ops.NonMaxSuppressionV5(
        boxes=boxes,
        scores=scores,
        max_output_size=postprocess.max_detections,
        iou_threshold=1.0 if is_soft else postprocess.iou_threshold,
        score_threshold=max(postprocess.lowest_score, _LOWEST),
        # Its weight is exp(-iou^2 / (2 sigma)), ours is exp(-iou^2 / sigma).
        soft_nms_sigma=postprocess.sigma / 2 if is_soft else 0.0,
        pad_to_max_output_size=True,
    )
