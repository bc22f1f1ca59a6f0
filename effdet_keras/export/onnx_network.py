"""The network as ONNX for converters: planes `[B, 3, H, W]` to raw outputs.

Other tools' converters read the file. Our own converters read its graph with
`constants_of` and `nodes_of`.
"""

from __future__ import annotations

import pathlib
import tempfile

from effdet_keras._internal.optional_imports import onnx
from effdet_keras.errors import InvalidStateError
from effdet_keras.export.network_graph import GraphNode, NetworkGraph
from effdet_keras.export.onnx import write_onnx

LOWEST = -3.4e38  # padding for max-pooling, as some converters do not accept infinity


def network_of_planes(model, batch_size=1):
    """Returns the network as an `onnx.ModelProto`, and its description.

    The input `images` is float32 `[B, 3, H, W]`, RGB pixels 0-255. The graph starts
    with the normalization. The outputs are the raw outputs of the model's heads:
    `class_logits` `[B, N, C]`, `box_deltas` `[B, N, 4]` and `segmentation_logits`. With
    `batch_size=None`, `B` is any number.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "network.onnx"
        description = write_onnx(model, path, outputs="raw", batch_size=batch_size)
        file = onnx.load(path)
    _take_planes(file.graph, (batch_size or "batch", 3, *model.config.image_size))
    onnx.checker.check_model(file)
    return file, description


def _take_planes(graph, shape):
    """Removes the transposition at the start of a graph of `write_onnx`."""
    (first,) = (node for node in graph.node if "images" in node.input)
    inner = first.output[0]
    graph.node.remove(first)
    for node in graph.node:
        node.input[:] = ["images" if name == inner else name for name in node.input]
    kind = graph.input[0].type.tensor_type.elem_type
    graph.input[0].CopyFrom(onnx.helper.make_tensor_value_info("images", kind, shape))


# --- Reading a graph, node by node.


def constants_of(graph):
    """Returns the constants of a graph, a dict of arrays by name."""
    return {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}


def nodes_of(graph, known, tool):
    """Yields each node of a graph in execution order, with its attributes.

    The attributes are a dict of Python values. An operation that is not `known` raises
    the error of `require_operations`.
    """
    require_operations(graph.node, known, tool)
    for node in graph.node:
        yield node, {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


def require_operations(nodes, known, tool):
    """Raises `InvalidStateError` if a node has an operation that is not in `known`.

    `known` are the operations that the export to a `tool` supports.
    """
    for node in nodes:
        if node.op_type not in known:
            raise InvalidStateError(
                f"The network contains the operation {node.op_type}, which the export "
                f"to {tool} does not support (node {node.name})"
            )


def require_kind(is_known, operation, tool):
    """Raises `InvalidStateError` if attributes of an operation are not supported."""
    if not is_known:
        raise InvalidStateError(
            f"The network contains a {operation} of a kind that the export to {tool} "
            "does not support"
        )


def graph_of_onnx(graph):
    """Converts the graph of `network_of_planes` to a `NetworkGraph`."""
    nodes = [
        GraphNode(
            node.op_type,
            node.name,
            tuple(node.input),
            tuple(node.output),
            {attribute.name: _value_of(attribute) for attribute in node.attribute},
        )
        for node in graph.node
    ]
    outputs = {}
    for output in graph.output:
        kind = output.type.tensor_type
        shape = tuple(axis.dim_value or None for axis in kind.shape.dim)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        outputs[output.name] = shape, dtype.name
    return NetworkGraph(nodes, constants_of(graph), outputs)


def _value_of(attribute):
    value = onnx.helper.get_attribute_value(attribute)
    return value.decode() if isinstance(value, bytes) else value
