"""Inputs and outputs of a SavedModel as the Object Detection API exports it."""

from __future__ import annotations

import numpy as np

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.box_ops import decode_boxes
from effdet_keras.errors import InvalidValueError
from effdet_keras.labels import category_ids_or_default

INPUTS = (
    "image_tensor",
    "float_image_tensor",
    "encoded_image_string_tensor",
    "tf_example",
)


def decode_as_stored(data):
    """Decodes an image as that exporter does, ignoring the EXIF orientation."""
    pixels = tf.io.decode_image(data, channels=3, expand_animations=False)
    return tf.ensure_shape(pixels, [None, None, 3])


def outputs_of(model):
    """Returns a function from a `Serving` and its inputs to the eight outputs.

    All outputs are float32. Boxes are fractions of the image, except for
    `raw_detection_boxes`: these are fractions of the input with its padding, and not
    clipped. Classes are ids of the label map.
    """
    config, postprocess = model.config, model.postprocess
    if config.has_segmentation:
        raise InvalidValueError(
            "The Object Detection API has no output for classes of pixels. Received: "
            "names='tfod' for a model with a segmentation head. Leave `names` out."
        )
    # Unused rows have label -1. As in that API, they get the first id.
    ids = category_ids_or_default(model.category_ids, model.num_classes)
    ids = np.array([*ids, ids[0]])

    def outputs(serving, images, scales, sizes):
        """Returns the eight outputs by name for a batch of letterboxed images."""
        raw = serving.raw(images)
        found = postprocess(
            raw,
            model.anchors,
            config.image_size,
            box_scales=config.box_scales,
            content_sizes=serving.content_sizes_of(scales, sizes),
            anchor_indices=True,
        )
        found = serving.to_pixels(found, scales, sizes)
        sides = tf.cast(tf.tile(sizes, (1, 2)), tf.float32)
        is_used = found["labels"] >= 0
        places = tf.where(is_used, found["labels"], len(ids) - 1)
        scores, indices = tf.sigmoid(raw["class_logits"]), found["anchor_indices"]
        of_anchors = tf.gather(scores, indices, batch_dims=1)
        boxes = decode_boxes(
            raw["box_deltas"], tf.constant(model.anchors), config.box_scales
        )
        return {
            "detection_boxes": found["boxes"] / sides[:, None],
            "detection_scores": found["scores"],
            "detection_classes": tf.gather(tf.constant(ids, tf.float32), places),
            "num_detections": tf.cast(found["num_detections"], tf.float32),
            "detection_anchor_indices": tf.cast(indices, tf.float32),
            "detection_multiclass_scores": tf.where(is_used[..., None], of_anchors, 0),
            "raw_detection_boxes": boxes
            / tf.constant(config.image_size * 2, tf.float32),
            "raw_detection_scores": scores,
            **serving.additional(raw),
        }

    return outputs
