"""The network as other tools' converters read it: ONNX, planes in, raw outputs out."""

from __future__ import annotations

import pathlib
import tempfile

from effdet_keras._internal.optional_imports import onnx
from effdet_keras.export.onnx import write_onnx


def network_of_planes(model, batch_size=1):
    """The network as an `onnx.ModelProto`, and its description.

    The input `images` is float32 `[B, 3, H, W]`, RGB pixels 0-255: the normalization is
    the first thing in the graph. The outputs are the raw ones, `class_logits`
    `[B, N, C]` and `box_deltas` `[B, N, 4]`, and `segmentation_logits` where the model
    has them. With a `batch_size` of None, `B` is any number.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "network.onnx"
        description = write_onnx(model, path, outputs="raw", batch_size=batch_size)
        file = onnx.load(path)
    _take_planes(file.graph, (batch_size or "batch", 3, *model.config.image_size))
    onnx.checker.check_model(file)
    return file, description


def _take_planes(graph, shape):
    """Removes the transpose with which a graph of `write_onnx` begins."""
    (first,) = (node for node in graph.node if "images" in node.input)
    inner = first.output[0]
    graph.node.remove(first)
    for node in graph.node:
        node.input[:] = ["images" if name == inner else name for name in node.input]
    kind = graph.input[0].type.tensor_type.elem_type
    graph.input[0].CopyFrom(onnx.helper.make_tensor_value_info("images", kind, shape))
