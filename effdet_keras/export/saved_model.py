"""SavedModel: images in, in any form; detections out; no package of ours needed."""

from __future__ import annotations

import functools
import os
import pathlib
import tempfile

import numpy as np

from effdet_keras._internal.extras import extra
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras._internal.seal import UNSEALED, check_seal, seal
from effdet_keras.detect.letterbox import letterbox
from effdet_keras.detect.postprocess import finished_outputs
from effdet_keras.errors import (
    InvalidStateError,
    InvalidValueError,
    first_line,
    require,
)
from effdet_keras.export.network import (
    frozen,
    network_function,
    output_names,
    save_function,
)
from effdet_keras.export.runtime import (
    DESCRIPTION_NAME,
    Description,
    Runtime,
    describe,
    labels_of,
)
from effdet_keras.model.anchors import level_sizes

FROZEN_GRAPH_NAME = "frozen_graph.pb"
LABELS_NAME = "labels.txt"


def write_saved_model(
    model, path, *, names="effdet", input_type=None, frozen_graph=False
):
    """Writes a SavedModel; docs/export.md has its options and signatures."""
    is_right = input_type is None or names == "tfod"
    rule = "`input_type` is of the Object Detection API: it goes with `names='tfod'`"
    require(is_right, rule, input_type=input_type, names=names)
    signatures = serving_signatures(model, names, input_type)
    module = tf.Module()
    module.__call__ = signatures["serving_default"]
    with tempfile.TemporaryDirectory() as folder:
        module.assets = [
            _asset(folder, DESCRIPTION_NAME, describe(model).to_json()),
            _asset(folder, LABELS_NAME, "\n".join(labels_of(model)) + "\n"),
        ]
        save_function(module, path, signatures)
    seal_path, sealed = sealed_files(path)
    seal_path.write_text(UNSEALED + "\n", encoding="utf-8")
    seal(seal_path, sealed)
    if frozen_graph:
        graph = _frozen_graph(signatures["serving_default"])
        (path / FROZEN_GRAPH_NAME).write_bytes(graph.SerializeToString())


def _asset(folder, name, text):
    path = pathlib.Path(folder, name)
    path.write_text(text, encoding="utf-8")
    return tf.saved_model.Asset(os.fspath(path))


def _frozen_graph(function):
    """A graph whose outputs have the names of the signature's."""
    names = sorted(function.get_concrete_function().structured_outputs)
    constant = frozen(function)
    with tf.Graph().as_default() as graph:
        tensors = tf.import_graph_def(
            constant.graph.as_graph_def(),
            return_elements=[tensor.name for tensor in constant.outputs],
            name="",
        )
        for name, tensor in zip(names, tensors):
            tf.identity(tensor, name=name)
    return graph.as_graph_def()


# --- The functions of a SavedModel: one way of detecting behind every kind of input.


def serving_signatures(model, names="effdet", input_type=None):
    """What a server calls, by name: each a `tf.function` of one signature."""
    images, own_names, decode, outputs = "images", (), decode_image, Serving.in_pixels
    if names == "tfod":
        tfod = extra("tfod.saved_model")
        images, own_names, decode = "input_tensor", tfod.INPUTS, tfod.decode_as_stored
        outputs = tfod.outputs_of(model)
    serving = Serving(model, decode)
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
        "serving_default": input_type or "image_tensor",
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


class Serving:
    """What signatures are made of: kinds of input, and kinds of output."""

    def __init__(self, model, decode):
        self._decode = decode
        self._config = model.config
        self._postprocess = model.postprocess
        self._anchors = model.anchors
        self._names = output_names(model.config)
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

    def letterboxed(self, images, content_sizes=None):
        return finished_outputs(
            self.raw(images),
            self._postprocess,
            self._anchors,
            self._config,
            content_sizes=content_sizes,
        )

    def in_pixels(self, images, scales, sizes):
        found = self.letterboxed(images, self.content_sizes_of(scales, sizes))
        return self.to_pixels(found, scales, sizes)

    def to_pixels(self, found, scales, sizes):
        boxes = found["boxes"] * tf.tile(scales, (1, 2))[:, None]
        limits = tf.cast(tf.tile(sizes, (1, 2)), tf.float32)[:, None]
        # The padding of the input is no part of the image.
        boxes = tf.minimum(tf.maximum(boxes, 0.0), limits)
        return {**found, "boxes": boxes}

    def content_sizes_of(self, scales, sizes):
        """What the images measure in the input, for a postprocess that asks."""
        if not self._postprocess.drop_empty:
            return None
        exact = tf.cast(sizes, tf.float32) / scales
        is_asymmetric = self._config.resize_method == "asymmetric"
        return tf.round(exact) if is_asymmetric else tf.maximum(tf.floor(exact), 1.0)


# --- Encoded images to pixels inside a TensorFlow graph, as `images.read_image` does.

_EXIF_HEAD = b"Exif\x00\x00"
_EXIF_REACH = 128 * 1024  # bytes; the entry is in one of the first segments
_ORIENTATION_TAG = 0x0112
_PNG_DEPTH, _PNG_COLOR = 24, 25  # places of these bytes in a PNG file


def decode_image(data):
    """Decodes the bytes of one JPEG, PNG, GIF or BMP file to uint8 `[H, W, 3]`."""
    is_jpeg = tf.io.is_jpeg(data)
    pixels = tf.cond(is_jpeg, lambda: _decode_jpeg(data), lambda: _decode_other(data))
    pixels.set_shape([None, None, 3])
    return pixels


def _decode_jpeg(data):
    # The accurate transform is the one that Pillow takes.
    pixels = tf.io.decode_jpeg(data, channels=3, dct_method="INTEGER_ACCURATE")
    return _upright(pixels, exif_orientation(data))


def _decode_other(data):
    header = tf.cast(
        tf.io.decode_raw(tf.strings.substr(data, 0, 32), tf.uint8), "int32"
    )
    header = tf.pad(header, [[0, 32]])
    is_png = tf.strings.substr(data, 1, 3) == b"PNG"
    # Of 16 bits of colour both decoders take the upper eight; grey is rounded.
    is_deep_grey = is_png & (header[_PNG_DEPTH] == 16) & (header[_PNG_COLOR] == 0)
    return tf.cond(
        is_deep_grey,
        lambda: _decode_deep_grey(data),
        lambda: tf.io.decode_image(data, channels=3, expand_animations=False),
    )


def _decode_deep_grey(data):
    grey = tf.cast(tf.io.decode_png(data, channels=3, dtype=tf.uint16), tf.int32)
    return tf.cast((grey + 128) // 257, tf.uint8)


def exif_orientation(data):
    """How a camera was turned, 1 to 8 (EXIF 2.3, section 4.6.4 A); 1 is upright."""
    head = tf.io.decode_raw(tf.strings.substr(data, 0, _EXIF_REACH), tf.uint8)
    head = tf.cast(head, tf.int32)
    count = tf.size(head)

    def byte(place):  # zero behind the end, whatever a damaged file points at
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
        value = tf.zeros_like(place)
        for i in range(length):
            value = value * 256 + byte(
                tf.where(is_little, place + length - 1 - i, place + i)
            )
        return value

    directory = tiff + number(tiff + 4, 4)
    entries = directory + 2 + 12 * tf.range(number(directory, 2))
    values = tf.where(number(entries, 2) == _ORIENTATION_TAG, number(entries + 8, 2), 0)
    value = tf.reduce_max(tf.concat([values, [0]], 0))
    is_known = tf.reduce_any(found) & (value >= 1) & (value <= 8)
    return tf.where(is_known, value, 1)


def _upright(pixels, orientation):
    """Turns what was stored lying: a transposition, then flips."""

    def among(*values):
        return tf.reduce_any(orientation == tf.constant(values))

    pixels = tf.cond(
        among(5, 6, 7, 8), lambda: tf.transpose(pixels, [1, 0, 2]), lambda: pixels
    )
    pixels = tf.cond(among(2, 3, 6, 7), lambda: pixels[:, ::-1], lambda: pixels)
    return tf.cond(among(3, 4, 7, 8), lambda: pixels[::-1], lambda: pixels)


# --- Batch norms folded into the convolutions before them, in a graph of constants.

_PASSED_ON = ("Identity", "IdentityN")  # outputs are the inputs, one by one
_RESHAPED = ("Reshape", "Squeeze")  # what Keras makes of a bias
_CONVOLUTIONS = ("Conv2D", "DepthwiseConv2dNative")


def folded(function):
    """The same function with batch norms folded into kernels and biases."""
    # TensorFlow does so itself when it runs a graph, but not behind a bias or a
    # depthwise convolution. And swish it computes together with a convolution only
    # where nothing but a bias is between the two. With both, D0 takes 0.9 of its time.
    graph_def = function.graph.as_graph_def()
    graph_def.node.extend(_Folding(graph_def).run())
    imported = tf.compat.v1.wrap_function(
        lambda: tf.import_graph_def(graph_def, name=""), []
    )
    inputs, outputs = (
        [imported.graph.as_graph_element(tensor.name) for tensor in tensors]
        for tensors in (function.inputs, function.outputs)
    )
    return imported.prune(inputs, outputs)


class _Folding:
    """Turns each batch norm that it can into the bias of a new convolution."""

    def __init__(self, graph_def):
        self._nodes = {node.name: node for node in graph_def.node}

    def run(self):
        """Changes batch norms in their place; returns the nodes to add."""
        added = []
        for node in self._nodes.values():
            node.input[:] = [self._origin(tensor) for tensor in node.input]
        for node in self._nodes.values():
            if node.op == "FusedBatchNormV3" and not node.attr["is_training"].b:
                added += self._fold(node)
        return added

    def _fold(self, norm):
        convolution, bias = self._node(norm.input[0]), 0.0
        if convolution.op == "BiasAdd":
            bias = self._bias(convolution.input[1])
            convolution = self._node(convolution.input[0])
        if convolution.op not in _CONVOLUTIONS:
            return []
        kernel = self._value(convolution.input[1])
        gamma, beta, mean, variance = map(self._value, norm.input[1:5])
        if any(x is None for x in (bias, kernel, gamma, beta, mean, variance)):
            return []
        scale = gamma / np.sqrt(variance + norm.attr["epsilon"].f)
        # [h, w, in, out]; of a depthwise convolution [h, w, in, out / in]
        is_depthwise = convolution.op == "DepthwiseConv2dNative"
        by_channel = scale.reshape(kernel.shape[2:]) if is_depthwise else scale
        name = norm.name
        kernel = _constant(f"{name}/kernel", kernel * by_channel)
        bias = _constant(f"{name}/bias", (bias - mean) * scale + beta)
        new = tf.compat.v1.NodeDef()
        new.CopyFrom(convolution)
        new.name = f"{name}/convolution"
        new.input[1] = kernel.name
        norm.CopyFrom(
            tf.compat.v1.NodeDef(
                name=name,
                op="BiasAdd",
                input=[new.name, bias.name],
                attr={"T": norm.attr["T"], "data_format": norm.attr["data_format"]},
            )
        )
        return [kernel, bias, new]

    def _origin(self, tensor):
        """A tensor as the node names it that does not just pass it on."""
        if tensor.startswith("^"):  # no tensor: what has to run before
            return tensor
        name, _, output = tensor.partition(":")
        node = self._nodes[name]
        if node.op in _PASSED_ON:
            return self._origin(node.input[int(output or 0)])
        if node.op == "Mul" and self._is_one(node.input[0]):  # swish's beta
            return self._origin(node.input[1])
        return tensor

    def _is_one(self, tensor):
        value = self._value(tensor)
        return value is not None and value.shape == () and value == 1

    def _node(self, tensor):
        """What computes a tensor."""
        return self._nodes[self._origin(tensor).partition(":")[0]]

    def _bias(self, tensor):
        """As `_value`, of a constant that was put into another shape too."""
        node = self._node(tensor)
        if node.op in _RESHAPED:
            value = self._bias(node.input[0])
            return None if value is None else value.reshape(-1)
        return self._value(tensor)

    def _value(self, tensor):
        """A constant as a float64 array; None for anything else."""
        node = self._node(tensor)
        if node.op != "Const":
            return None
        return tf.make_ndarray(node.attr["value"].tensor).astype("float64")


def _constant(name, value):
    value = tf.make_tensor_proto(value.astype("float32"))
    attributes = {
        "dtype": tf.compat.v1.AttrValue(type=value.dtype),
        "value": tf.compat.v1.AttrValue(tensor=value),
    }
    return tf.compat.v1.NodeDef(name=name, op="Const", attr=attributes)


# --- The runtime: TensorFlow.

_SIGNATURE = "letterboxed"
_SEAL = "effdet_keras.sha256"


def sealed_files(path):
    """The file with the seal, and those that it is of: TensorFlow checks variables."""
    assets = path / "assets"
    return assets / _SEAL, [path / "saved_model.pb", assets / DESCRIPTION_NAME]


class SavedModelRuntime(Runtime):
    """Runs a SavedModel that `EfficientDet.export` wrote."""

    package = tf

    def __init__(self, path, num_threads=None):
        self.path = path
        notes = path / "assets" / DESCRIPTION_NAME
        if not notes.is_file():
            raise InvalidValueError(
                f"The folder '{path}' is not a SavedModel that `EfficientDet.export` "
                f"wrote: there is no '{notes.relative_to(path)}' in it."
            )
        seal_path, sealed = sealed_files(path)
        if seal_path.is_file():  # before there were seals, exports had none
            check_seal(seal_path, sealed)
        self.description = Description.from_json(notes.read_bytes(), notes)
        if num_threads is not None:
            _set_threads(num_threads)
        try:
            self._module = tf.saved_model.load(os.fspath(path))
            self._function = self._module.signatures[_SIGNATURE]
        except Exception as error:  # a damaged file makes it raise almost anything
            raise InvalidValueError(
                f"The SavedModel '{path}' cannot be loaded: it is damaged or "
                f"incomplete ({first_line(error)}). Export the model again."
            ) from error

    def run(self, images):
        """See `Runtime.run`."""
        outputs = self._function(images=np.asarray(images, "float32"))
        return {name: value.numpy() for name, value in outputs.items()}


def _set_threads(num_threads):
    try:
        tf.config.threading.set_intra_op_parallelism_threads(num_threads)
    except RuntimeError as error:
        raise InvalidStateError(
            f"TensorFlow has begun to run, and its number of threads cannot change. "
            f"Received: num_threads={num_threads}. Open the SavedModel first thing in "
            "the process, or leave `num_threads` at None."
        ) from error
