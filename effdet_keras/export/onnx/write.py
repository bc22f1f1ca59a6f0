"""An ONNX file: letterboxed images in, detections or raw outputs out."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Literal

from effdet_keras._internal.optional_imports import onnx, tf2onnx
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras._internal.seal import SEAL_NAME, UNSEALED, seal
from effdet_keras._version import __version__
from effdet_keras.errors import InvalidValueError
from effdet_keras.export.description import DESCRIPTION_NAME, describe
from effdet_keras.export.network import network_function
from effdet_keras.export.onnx.postprocess import exportable, onnx_postprocess

if TYPE_CHECKING:
    import pathlib

    from effdet_keras.models import EfficientDet
    from effdet_keras.postprocess import Postprocess

_OPSETS = range(13, 19)  # those that tf2onnx and `onnx_postprocess` both write


def write_onnx(
    model: EfficientDet,
    path: pathlib.Path,
    *,
    outputs: Literal["detections", "raw"] = "detections",
    batch_size: int | None = None,
    opset: int = 17,
    postprocess: Postprocess | None = None,
) -> None:
    """Writes an ONNX file.

    Its input is `images`, float32 `[B, H, W, 3]`, letterboxed pixels 0-255, RGB. Its
    outputs have the names of `Postprocess`, or of the raw outputs of the network.

    Args:
        model: float32 `EfficientDet`.
        path: `pathlib.Path` of the file to write.
        outputs: what the file returns: "detections", with NMS inside: a `Loop` for the
            Gaussian one, a `NonMaxSuppression` node for `method="hard"`, which more
            runtimes have and run faster; "raw", class logits and box deltas of all
            anchors.
        batch_size: images at once, or None for a file that takes any number.
        opset: version of the ONNX standard, 13 to 18. Raise it, or lower it, where a
            runtime asks for it.
        postprocess: `Postprocess` of the file, or None for the model's own.

    Raises:
        ValueError: If `batch_size` or `opset` is out of its range.
        ImportError: If onnx or tf2onnx is not installed.
    """
    _check_options(batch_size, opset)
    file = onnx_model(
        model,
        outputs=outputs,
        batch_size=batch_size,
        opset=opset,
        postprocess=postprocess,
    )
    onnx.helper.set_model_props(file, {**_properties(file), SEAL_NAME: UNSEALED})
    path.write_bytes(file.SerializeToString())
    seal(path)


def postprocess_of_file(postprocess, outputs):
    """What the file says of its postprocess: with raw outputs, that of its reader."""
    return exportable(postprocess) if outputs == "detections" else postprocess


def _properties(file):
    return {entry.key: entry.value for entry in file.metadata_props}


def onnx_model(model, *, outputs, batch_size, opset, postprocess):
    """What `write_onnx` writes, as `onnx.ModelProto`. Arguments are as there."""
    for package in (onnx, tf2onnx):
        package.require("ONNX export")
    description = describe(
        model,
        outputs=outputs,
        batch_size=batch_size,
        postprocess=postprocess_of_file(postprocess or model.postprocess, outputs),
    )
    network = network_function(model, batch_size, repeat=_resize)
    with _quiet("tf2onnx"):
        file, _ = tf2onnx.convert.from_function(
            network,
            input_signature=network.input_signature,
            opset=opset,
            inputs_as_nchw=["images"],
        )
    _prepend_transpose(file.graph)
    if outputs == "detections":
        _append_postprocess(file.graph, description.postprocess, model, opset)
    _set_shapes(file.graph, description)
    file.producer_name, file.producer_version = "effdet_keras", __version__
    file.graph.name = model.config.name
    properties = {DESCRIPTION_NAME: description.to_json()}
    if model.class_names is not None:
        properties["names"] = str(dict(enumerate(model.class_names)))
    onnx.helper.set_model_props(file, properties)
    onnx.checker.check_model(file)
    return file


def _check_options(batch_size, opset):
    if batch_size is not None and batch_size < 1:
        raise InvalidValueError(
            "`batch_size` must be 1 or more, or None for any. "
            f"Received: batch_size={batch_size}"
        )
    if opset not in _OPSETS:
        raise InvalidValueError(
            f"`opset` must be {_OPSETS[0]} to {_OPSETS[-1]}. Received: opset={opset}"
        )


@contextlib.contextmanager
def _quiet(name):
    """No word below an error from a logger, inside the block."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _resize(x, times):
    """Rows and columns repeated by a resize that is ONNX's own, of whole pixels.

    `keras.ops.image.resize` has half-pixel centers, for which ONNX has but a deprecated
    attribute.
    """
    size = [length * count for length, count in zip(x.shape[1:3], times)]
    return tf.raw_ops.ResizeNearestNeighbor(images=x, size=size)


def _prepend_transpose(graph):
    """Lets a graph of images `[B, 3, H, W]` take them as `[B, H, W, 3]`.

    With the transpose first, mean and deviation are a number for a whole plane, not one
    for every third pixel: 6 ms of D0's 86 at 512 pixels in onnxruntime.
    """
    inner = "images_nchw"
    for node in graph.node:
        node.input[:] = [inner if name == "images" else name for name in node.input]
    transpose = onnx.helper.make_node(
        "Transpose", ["images"], [inner], name="transpose_images", perm=[0, 3, 1, 2]
    )
    graph.node.insert(0, transpose)


def _append_postprocess(graph, postprocess, model, opset):
    """Puts the nodes of a `Postprocess` behind those of the network."""
    tail = onnx_postprocess(postprocess, model.anchors, model.config, opset)
    graph.node.extend(tail.node)
    graph.initializer.extend(tail.initializer)
    del graph.output[:]
    graph.output.extend(tail.output)


def _set_shapes(graph, description):
    """Says of input and outputs what is known, and gives their first axis its name."""
    config, post = description.config, description.postprocess
    batch = description.batch_size or "batch"
    shapes = {
        "images": (*config.image_size, 3),
        "boxes": (post.max_detections, 4),
        "scores": (post.max_detections,),
        "labels": (post.max_detections,),
        "num_detections": (),
    }
    for value in [*graph.input, *graph.output]:
        kind = value.type.tensor_type
        known = [axis.dim_value for axis in kind.shape.dim][1:]
        shape = (batch, *shapes.get(value.name, known))
        value.CopyFrom(
            onnx.helper.make_tensor_value_info(value.name, kind.elem_type, shape)
        )
