"""The functions of a SavedModel: one way of detecting behind every kind of input."""

import numpy as np

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.category_ids import category_ids_or_default
from effdet_keras.errors import InvalidValueError
from effdet_keras.export.network import frozen, network_function, output_names
from effdet_keras.export.saved_model.folding import folded
from effdet_keras.export.saved_model.image_decoding import decode_image
from effdet_keras.geometry.anchors import level_sizes
from effdet_keras.geometry.letterbox import letterbox
from effdet_keras.postprocess import finished_outputs


def serving_signatures(model, names="effdet"):
    """What a server calls, by name.

    All of them run one network, whose weights are constants and whose batch norms are
    folded into convolutions. The batch is free in each.

    Args:
        model: float32 `EfficientDet`.
        names: "effdet" or "tfod", see `write_saved_model`.

    Returns:
        Dict of name to `tf.function` of one signature.
    """
    if names == "tfod" and model.config.has_segmentation:
        raise InvalidValueError(
            "The Object Detection API has no output for classes of pixels. Received: "
            "names='tfod' for a model with a segmentation head. Leave `names` out."
        )
    serving = _Serving(model)
    in_pixels = serving.in_pixels if names == "effdet" else serving.as_tfod
    images = "images" if names == "effdet" else "input_tensor"
    shape = (None, *model.config.image_size, 3)
    inputs = {
        "serving_default": ((None, None, None, 3), tf.uint8, serving.boxed_pixels),
        "image_bytes": ((None,), tf.string, serving.boxed_files),
        "tf_example": ((None,), tf.string, serving.boxed_examples),
    }
    signatures = {
        name: _signature(images, shape, dtype, _then(boxed, in_pixels))
        for name, (shape, dtype, boxed) in inputs.items()
    }
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
    def __init__(self, model):
        self._config = model.config
        self._postprocess = model.postprocess
        self._anchors = model.anchors
        self._ids = category_ids_or_default(model.category_ids, model.num_classes)
        self._names = output_names(model.config)
        self._network = folded(frozen(network_function(model)))

    # Kinds of input: each to letterboxed images, their scales and their sizes.

    def boxed_pixels(self, images):
        return self._boxed(lambda image: image, images)

    def boxed_files(self, files):
        return self._boxed(decode_image, files)

    def boxed_examples(self, examples):
        feature = {"image/encoded": tf.io.FixedLenFeature([], tf.string)}
        return self.boxed_files(tf.io.parse_example(examples, feature)["image/encoded"])

    def _boxed(self, decode, inputs):
        config = self._config

        def one(value):
            image = decode(value)
            boxed, scale = letterbox(image, config.image_size, config.padding_rgb)
            boxed = tf.ensure_shape(boxed, (*config.image_size, 3))
            return boxed, scale, tf.shape(image)[:2]

        dtypes = (tf.float32, tf.float32, tf.int32)
        return tf.map_fn(one, inputs, fn_output_signature=dtypes)

    # Kinds of output.

    def raw(self, images):
        return dict(zip(self._names, self._network(images)))

    def raw_levels(self, images):
        config = self._config
        sizes = level_sizes(config.image_size, config.min_level, config.max_level)
        counts = [height * width * config.num_anchors for height, width in sizes]
        outputs = {}
        for name, value in self.raw(images).items():
            if name == "segmentation_logits":  # which has one level
                outputs[name] = value
                continue
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
        raw = self.raw(images)
        return finished_outputs(raw, self._postprocess, self._anchors, self._config)

    def in_pixels(self, images, scales, sizes):
        found = self.letterboxed(images)
        boxes = found["boxes"] * scales[:, None, None]
        limits = tf.cast(tf.tile(sizes, (1, 2)), tf.float32)[:, None]
        # The padding of the input is no part of the image.
        boxes = tf.minimum(tf.maximum(boxes, 0.0), limits)
        return {**found, "boxes": boxes}

    def as_tfod(self, images, scales, sizes):
        """Fractions of the image, ids of the label map, all in float32."""
        found = self.in_pixels(images, scales, sizes)
        sides = tf.cast(tf.tile(sizes, (1, 2)), tf.float32)
        # Unused places have label -1; there, as in that API, the first id stands.
        ids = tf.constant(np.array([*self._ids, self._ids[0]]), tf.float32)
        places = tf.where(found["labels"] < 0, len(self._ids), found["labels"])
        return {
            "detection_boxes": found["boxes"] / sides[:, None],
            "detection_scores": found["scores"],
            "detection_classes": tf.gather(ids, places),
            "num_detections": tf.cast(found["num_detections"], tf.float32),
        }
