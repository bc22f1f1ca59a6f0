"""The functions of a SavedModel: one way of detecting behind every kind of input."""

import numpy as np

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.category_ids import category_ids_or_default
from effdet_keras.export.network import frozen, network_function
from effdet_keras.export.saved_model.folding import folded
from effdet_keras.export.saved_model.image_decoding import (
    decode_as_stored,
    decode_image,
)
from effdet_keras.geometry.anchors import level_sizes
from effdet_keras.geometry.box_ops import decode_boxes
from effdet_keras.geometry.letterbox import letterbox

TFOD_INPUTS = (
    "image_tensor",
    "float_image_tensor",
    "encoded_image_string_tensor",
    "tf_example",
)


def serving_signatures(model, names="effdet", input_type=None):
    """What a server calls, by name.

    All of them run one network, whose weights are constants and whose batch norms are
    folded into convolutions. The batch is free in each.

    Args:
        model: float32 `EfficientDet`.
        names: "effdet" or "tfod", see `write_saved_model`.
        input_type: with "tfod" one of `TFOD_INPUTS`, that of `serving_default`.

    Returns:
        Dict of name to `tf.function` of one signature.
    """
    is_tfod = names == "tfod"
    decode = decode_as_stored if is_tfod else decode_image
    serving = _Serving(model, decode)
    images = "input_tensor" if is_tfod else "images"
    finish = serving.as_tfod if is_tfod else serving.in_pixels
    shape = (None, *model.config.image_size, 3)
    pixels, strings = (None, None, None, 3), (None,)
    kinds = {
        "image_tensor": (pixels, tf.uint8, serving.boxed_pixels),
        "float_image_tensor": (pixels, tf.float32, serving.boxed_pixels),
        "encoded_image_string_tensor": (strings, tf.string, serving.boxed_files),
        "tf_example": (strings, tf.string, serving.boxed_examples),
    }
    chosen = {
        "serving_default": input_type or "image_tensor",
        "image_bytes": "encoded_image_string_tensor",
        "tf_example": "tf_example",
        **({name: name for name in TFOD_INPUTS} if is_tfod else {}),
    }
    of_kind = {
        kind: _signature(images, shape, dtype, _then(boxed, finish))
        for kind, (shape, dtype, boxed) in kinds.items()
        if kind in chosen.values()
    }
    signatures = {name: of_kind[kind] for name, kind in chosen.items()}
    for name in ("letterboxed", "raw", "raw_levels"):
        method = getattr(serving, name)
        signatures[name] = _signature("images", shape, tf.float32, method)
    return signatures


def _signature(name, shape, dtype, function):
    return tf.function(
        function, input_signature=[tf.TensorSpec(shape, dtype, name=name)]
    )


def _then(boxed, finish):
    return lambda inputs: finish(*boxed(inputs))


class _Serving:
    def __init__(self, model, decode):
        self._decode = decode
        self._config = model.config
        self._postprocess = model.postprocess
        self._anchors = model.anchors
        self._ids = category_ids_or_default(model.category_ids, model.num_classes)
        self._network = folded(frozen(network_function(model)))

    # Kinds of input: each to letterboxed images, their scales and their sizes.

    def boxed_pixels(self, images):
        return self._boxed(lambda image: image, images)

    def boxed_files(self, files):
        return self._boxed(self._decode, files)

    def boxed_examples(self, examples):
        feature = {"image/encoded": tf.io.FixedLenFeature([], tf.string)}
        return self.boxed_files(tf.io.parse_example(examples, feature)["image/encoded"])

    def _boxed(self, decode, inputs):
        config = self._config

        def one(value):
            image = decode(value)
            boxed, scale = letterbox(
                image, config.image_size, config.padding_rgb, config.resize_method
            )
            boxed = tf.ensure_shape(boxed, (*config.image_size, 3))
            scales = tf.broadcast_to(scale, (2,))  # of y and x
            return boxed, scales, tf.shape(image)[:2]

        dtypes = (tf.float32, tf.float32, tf.int32)
        return tf.map_fn(one, inputs, fn_output_signature=dtypes)

    # Kinds of output.

    def raw(self, images):
        box_deltas, class_logits = self._network(images)  # in the order of the names
        return {"class_logits": class_logits, "box_deltas": box_deltas}

    def raw_levels(self, images):
        config = self._config
        sizes = level_sizes(config.image_size, config.min_level, config.max_level)
        counts = [height * width * config.num_anchors for height, width in sizes]
        outputs = {}
        for name, value in self.raw(images).items():
            channels = config.num_anchors * value.shape[-1]
            for level, (height, width), part in zip(
                range(config.min_level, config.max_level + 1),
                sizes,
                tf.split(value, counts, axis=1),
            ):
                part = tf.reshape(part, (-1, height, width, channels))
                outputs[f"{name}_p{level}"] = part
        return outputs

    def letterboxed(self, images):
        found = self._found(self.raw(images))
        del found["anchor_indices"]
        return found

    def in_pixels(self, images, scales, sizes):
        found = self._in_pixels(self.raw(images), scales, sizes)
        del found["anchor_indices"]
        return found

    def _found(self, outputs, content_sizes=None):
        return self._postprocess.with_anchors(
            outputs,
            self._anchors,
            self._config.image_size,
            box_scales=self._config.box_scales,
            content_sizes=content_sizes,
        )

    def _in_pixels(self, outputs, scales, sizes):
        found = self._found(outputs, self._content_sizes(scales, sizes))
        boxes = found["boxes"] * tf.tile(scales, (1, 2))[:, None]
        limits = tf.cast(tf.tile(sizes, (1, 2)), tf.float32)[:, None]
        # The padding of the input is no part of the image.
        boxes = tf.minimum(tf.maximum(boxes, 0.0), limits)
        return {**found, "boxes": boxes}

    def _content_sizes(self, scales, sizes):
        """What the images measure in the input, for a postprocess that asks."""
        if not self._postprocess.drop_empty:
            return None
        exact = tf.cast(sizes, tf.float32) / scales
        is_asymmetric = self._config.resize_method == "asymmetric"
        return tf.round(exact) if is_asymmetric else tf.maximum(tf.floor(exact), 1.0)

    def as_tfod(self, images, scales, sizes):
        """The eight outputs of the TF Object Detection API, all in float32.

        Boxes are fractions of the image, but for `raw_detection_boxes`: fractions of
        the input, with its padding, not clipped. Classes are ids of the label map.
        """
        config, outputs = self._config, self.raw(images)
        found = self._in_pixels(outputs, scales, sizes)
        sides = tf.cast(tf.tile(sizes, (1, 2)), tf.float32)
        # Unused places have label -1; there, as in that API, the first id stands.
        ids = tf.constant(np.array([*self._ids, self._ids[0]]), tf.float32)
        is_used = found["labels"] >= 0
        places = tf.where(is_used, found["labels"], len(self._ids))
        scores, indices = tf.sigmoid(outputs["class_logits"]), found["anchor_indices"]
        of_anchors = tf.gather(scores, indices, batch_dims=1)
        raw_boxes = decode_boxes(
            outputs["box_deltas"], tf.constant(self._anchors), config.box_scales
        )
        return {
            "detection_boxes": found["boxes"] / sides[:, None],
            "detection_scores": found["scores"],
            "detection_classes": tf.gather(ids, places),
            "num_detections": tf.cast(found["num_detections"], tf.float32),
            "detection_anchor_indices": tf.cast(indices, tf.float32),
            "detection_multiclass_scores": tf.where(is_used[..., None], of_anchors, 0),
            "raw_detection_boxes": raw_boxes
            / tf.constant(config.image_size * 2, tf.float32),
            "raw_detection_scores": scores,
        }
