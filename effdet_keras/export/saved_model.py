"""SavedModel: from images in several formats to detections, without this package."""

from __future__ import annotations

import functools
import os
import pathlib
import tempfile
import warnings

from effdet_keras._internal.checksum import WITHOUT_CHECKSUM, write_checksum
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.data.pipeline.transforms import Window, letterbox
from effdet_keras.detect.postprocess import postprocess_outputs
from effdet_keras.export.network import (
    frozen,
    layer_outputs,
    network_function,
    output_names,
    save_function,
)
from effdet_keras.export.runtime import (
    DESCRIPTION_NAME,
    Description,
    Runtime,
    as_input,
    damaged,
    describe,
    labels_of,
    require_sealed,
)

LABELS_NAME = "labels.txt"
FROZEN_GRAPH_NAME = "frozen_graph.pb"


def write_saved_model(
    model,
    path,
    *,
    names="effdet",
    input_type="image_tensor",
    input_dtype="float32",
    additional_outputs=None,
    frozen_graph=False,
):
    """Writes a SavedModel; docs/export.md explains options and signatures."""
    signatures = _signatures(
        model,
        names,
        input_type,
        input_dtype=input_dtype,
        additional_outputs=additional_outputs,
    )
    module = tf.Module()
    module.__call__ = signatures["serving_default"]
    with tempfile.TemporaryDirectory() as folder:
        module.assets = [
            _asset(folder, DESCRIPTION_NAME, describe(model).to_json()),
            _asset(folder, LABELS_NAME, "\n".join(labels_of(model)) + "\n"),
        ]
        save_function(module, path, signatures)
    if frozen_graph:
        # The names of the placeholders in the API's exporter for TensorFlow 1.
        input_name = input_type if names == "tfod" else "images"
        graph = _frozen_graph(signatures["serving_default"], input_name)
        (path / FROZEN_GRAPH_NAME).write_bytes(graph.SerializeToString())
    if names == "tfod":
        from effdet_keras.extras.tfod.write_pipeline_config import write_pipeline_config

        write_pipeline_config(model, path)
    seal_path, sealed = sealed_files(path)
    seal_path.write_text(WITHOUT_CHECKSUM + "\n", encoding="utf-8")
    write_checksum(seal_path, sealed)


def _asset(folder, name, text):
    path = pathlib.Path(folder, name)
    path.write_text(text, encoding="utf-8")
    return tf.saved_model.Asset(os.fspath(path))


def _frozen_graph(function, input_name):
    """Returns a graph for TensorFlow 1, with the signature's output names."""
    names = sorted(function.get_concrete_function().structured_outputs)
    constant = frozen(function)
    (source,) = constant.inputs
    nodes = constant.graph.as_graph_def()
    # Loops and branches become operations of TensorFlow 1. Each leaves placeholders
    # that no node reads.
    kept = [node for node in nodes.node if node.op != "Placeholder"]
    del nodes.node[:]
    nodes.node.extend(kept)
    with tf.Graph().as_default() as graph:
        inputs = tf.compat.v1.placeholder(source.dtype, source.shape, input_name)
        tensors = tf.import_graph_def(
            nodes,
            input_map={source.name: inputs},
            return_elements=[tensor.name for tensor in constant.outputs],
            name="",
        )
        for name, tensor in zip(names, tensors):
            tf.identity(tensor, name=name)
    return graph.as_graph_def()


# --- The functions of a SavedModel: the same detection for every kind of input.


def _signatures(
    model,
    names,
    input_type="image_tensor",
    *,
    input_dtype="float32",
    additional_outputs=None,
):
    """Returns the signatures for servers, by name, each as a `tf.function`."""
    images, own_names, decode, outputs = "images", (), decode_image, Serving.in_pixels
    if names == "tfod":
        from effdet_keras.extras.tfod import saved_model as tfod

        images, own_names, decode = "input_tensor", tfod.INPUTS, tfod.decode_as_stored
        outputs = tfod.outputs_of(model)
    serving = Serving(model, decode, additional_outputs)
    finish = functools.partial(outputs, serving)
    shape = (None, *model.config.image_size, 3)
    pixels, strings = (None, None, None, 3), (None,)
    kinds = {
        "image_tensor": (pixels, tf.uint8, serving.boxed_pixels),
        "float_image_tensor": (pixels, tf.float32, serving.boxed_pixels),
        "encoded_image_string_tensor": (strings, tf.string, serving.boxed_files),
        "tf_example": (strings, tf.string, serving.boxed_examples),
    }
    chosen = {
        "serving_default": input_type,
        "image_bytes": "encoded_image_string_tensor",
        "tf_example": "tf_example",
        **{name: name for name in own_names},
    }
    of_kind = {
        kind: _signature(images, shape, dtype, _then(boxed, finish))
        for kind, (shape, dtype, boxed) in kinds.items()
        if kind in chosen.values()
    }
    signatures = {name: of_kind[kind] for name, kind in chosen.items()}
    for name in ("letterboxed", "raw"):
        method = getattr(serving, name)
        signatures[name] = _signature("images", shape, tf.as_dtype(input_dtype), method)
    return signatures


def _signature(name, shape, dtype, function):
    return tf.function(
        function, input_signature=[tf.TensorSpec(shape, dtype, name=name)]
    )


def _then(boxed, finish):
    return lambda inputs: finish(*boxed(inputs))


class Serving:
    """The building blocks of signatures: functions for kinds of inputs and outputs."""

    def __init__(self, model, decode, additional_outputs=None):
        layers = layer_outputs(model, additional_outputs)
        self._decode = decode
        self._config = model.config
        self._postprocess = model.postprocess
        self._anchors = model.anchors
        self._additional_names = tuple(layers)
        self._names = sorted([*output_names(model.config), *layers])
        self._network = frozen(network_function(model, folds=True, layers=layers))

    # Kinds of input. Each returns letterboxed images, their scales and their sizes.

    def boxed_pixels(self, images):
        return self._boxed(lambda image: image, images)

    def boxed_files(self, files):
        return self._boxed(self._decode, files)

    def boxed_examples(self, examples):
        feature = {"image/encoded": tf.io.FixedLenFeature([], tf.string)}
        return self.boxed_files(tf.io.parse_example(examples, feature)["image/encoded"])

    def _boxed(self, decode, inputs):
        """Returns letterboxed images `[B, H, W, 3]`, scales and sizes `[B, 2]`."""
        config = self._config
        window = Window(config.image_size, config.padding_rgb, config.resize_method)
        no_boxes = {"boxes": tf.zeros((0, 4)), "labels": tf.zeros((0,), tf.int32)}
        limits = tf.constant(config.image_size, tf.float32)

        def one(value):
            image = decode(value)
            placed = letterbox({**no_boxes, "image": image}, window)
            size = tf.cast(tf.shape(image)[:2], tf.float32)
            scale = tf.reduce_min(limits / size)
            scales = tf.fill([2], 1.0 / scale)  # of y and x
            if config.resize_method == "asymmetric":
                scales = size / tf.maximum(tf.round(size * scale), 1.0)
            return placed["image"], scales, tf.shape(image)[:2]

        dtypes = (tf.float32, tf.float32, tf.int32)
        return tf.map_fn(one, inputs, fn_output_signature=dtypes)

    # Kinds of output.

    def raw(self, images):
        images = tf.cast(images, tf.float32)
        return dict(zip(self._names, self._network(images)))

    def additional(self, raw):
        """Returns the raw outputs that were requested with `additional_outputs`."""
        return {name: raw[name] for name in self._additional_names}

    def letterboxed(self, images):
        return self._found(self.raw(images))

    def _found(self, raw, content_sizes=None):
        return postprocess_outputs(
            raw, self._postprocess, self._anchors, self._config, content_sizes
        )

    def in_pixels(self, images, scales, sizes):
        raw = self.raw(images)
        found = self._found(raw, self.content_sizes_of(scales, sizes))
        return {**self.to_pixels(found, scales, sizes), **self.additional(raw)}

    def to_pixels(self, found, scales, sizes):
        boxes = found["boxes"] * tf.tile(scales, (1, 2))[:, None]
        limits = tf.cast(tf.tile(sizes, (1, 2)), tf.float32)[:, None]
        # Boxes are clipped to the image, which does not include the padding.
        boxes = tf.minimum(tf.maximum(boxes, 0.0), limits)
        return {**found, "boxes": boxes}

    def content_sizes_of(self, scales, sizes):
        """Returns the sizes of images in the input; None if `drop_empty` is off."""
        if not self._postprocess.drop_empty:
            return None
        exact = tf.cast(sizes, tf.float32) / scales
        is_asymmetric = self._config.resize_method == "asymmetric"
        return tf.round(exact) if is_asymmetric else tf.maximum(tf.floor(exact), 1.0)


# --- Decoding of images inside a TensorFlow graph, equal to `images.read_image`.

_EXIF_HEAD = b"Exif\x00\x00"
_EXIF_REACH = 128 * 1024  # bytes to search; the entry is in one of the first segments
_ORIENTATION_TAG = 0x0112


def decode_image(data):
    """Decodes the bytes of one JPEG, PNG, GIF or BMP file to uint8 `[H, W, 3]`."""
    pixels = tf.cond(
        tf.io.is_jpeg(data),
        lambda: _decode_jpeg(data),
        lambda: tf.io.decode_image(data, channels=3, expand_animations=False),
    )
    return tf.ensure_shape(pixels, [None, None, 3])


def _decode_jpeg(data):
    # Pillow uses the accurate transform too.
    pixels = tf.io.decode_jpeg(data, channels=3, dct_method="INTEGER_ACCURATE")
    return _upright(pixels, _exif_orientation(data))


def _exif_orientation(data):
    """Reads the EXIF orientation, 1 to 8 (EXIF 2.3, section 4.6.4 A); 1 is upright."""
    head = tf.io.decode_raw(tf.strings.substr(data, 0, _EXIF_REACH), tf.uint8)
    head = tf.cast(head, tf.int32)
    count = tf.size(head)

    def byte(place):  # zero outside of the data, to which a damaged file may point
        inside = (place >= 0) & (place < count)
        value = tf.gather(head, tf.clip_by_value(place, 0, count - 1))
        return tf.where(inside, value, 0)

    start = tf.range(count)
    found = tf.reduce_all(
        [byte(start + i) == value for i, value in enumerate(_EXIF_HEAD)], axis=0
    )
    tiff = tf.cast(tf.argmax(found), tf.int32) + len(_EXIF_HEAD)
    is_little = byte(tiff) == ord("I")

    def number(place, length):
        order = range(length)
        values = [256**i * byte(place + i) for i in order]
        of_big = [256**i * byte(place + length - 1 - i) for i in order]
        return tf.where(is_little, sum(values), sum(of_big))

    directory = tiff + number(tiff + 4, 4)
    entries = directory + 2 + 12 * tf.range(number(directory, 2))
    values = tf.where(number(entries, 2) == _ORIENTATION_TAG, number(entries + 8, 2), 0)
    value = tf.reduce_max(tf.concat([values, [0]], 0))
    is_known = tf.reduce_any(found) & (value >= 1) & (value <= 8)
    return tf.where(is_known, value, 1)


def _upright(pixels, orientation):
    """Turns an image upright: first a transposition, then flips."""

    def among(*values):
        return tf.reduce_any(orientation == tf.constant(values))

    pixels = tf.cond(
        among(5, 6, 7, 8), lambda: tf.transpose(pixels, [1, 0, 2]), lambda: pixels
    )
    pixels = tf.cond(among(2, 3, 6, 7), lambda: pixels[:, ::-1], lambda: pixels)
    return tf.cond(among(3, 4, 7, 8), lambda: pixels[::-1], lambda: pixels)


# --- The runtime, TensorFlow.

_SIGNATURE = "letterboxed"
_CHECKSUM = "effdet_keras.sha256"


def sealed_files(path):
    """Returns the path of the checksum, and the files that it covers.

    Variables are not covered, because TensorFlow checks them.
    """
    assets = path / "assets"
    return assets / _CHECKSUM, [path / "saved_model.pb", assets / DESCRIPTION_NAME]


def _set_threads(num_threads):
    """Sets TensorFlow's number of threads, which applies to the whole process."""
    try:
        tf.config.threading.set_intra_op_parallelism_threads(num_threads)
    except RuntimeError:  # TensorFlow has been initialized already
        now = tf.config.threading.get_intra_op_parallelism_threads()
        if now != num_threads:
            warnings.warn(
                "The number of TensorFlow's threads cannot be changed any more, "
                "because TensorFlow has already computed in this process: it stays "
                f"{now or 'the number of cores'}. Received: num_threads={num_threads}. "
                "Open the SavedModel before anything else computes, or in a process "
                "of its own.",
                stacklevel=4,
            )


class SavedModelRuntime(Runtime):
    """Runs a SavedModel that `EfficientDet.export` wrote."""

    package = tf

    def __init__(self, path, num_threads=None):
        self.path = path
        require_sealed(*sealed_files(path))
        notes = path / "assets" / DESCRIPTION_NAME
        self.description = Description.from_json(notes.read_bytes())
        if num_threads is not None:
            _set_threads(num_threads)
        try:
            self._module = tf.saved_model.load(os.fspath(path))
        except Exception as error:  # TensorFlow's errors for variables have many types
            raise damaged(path) from error
        self._function = self._module.signatures[_SIGNATURE]
        (spec,) = self._function.structured_input_signature[1].values()
        self.input_dtype = spec.dtype.name

    def run(self, images):
        """See `Runtime.run`."""
        images = tf.constant(as_input(images, self.input_dtype))
        outputs = self._function(images=images)
        return {name: value.numpy() for name, value in outputs.items()}
