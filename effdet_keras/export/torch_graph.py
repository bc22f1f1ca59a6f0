"""Converts the network's graph to a torch module, for `torch.export` and its users."""

from __future__ import annotations

import functools

from effdet_keras._internal.backend import runs_on_tensorflow
from effdet_keras._internal.optional_imports import torch
from effdet_keras.export.network_graph import network_graph
from effdet_keras.export.onnx_network import (
    LOWEST,
    graph_of_onnx,
    network_of_planes,
    require_kind,
    require_operations,
)
from effdet_keras.export.runtime import describe

# The positions of node inputs that are Python values in torch instead of tensors.
_PLAIN = {
    "Clip": (1, 2),
    "Pad": (1, 2, 3),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "Slice": (1, 2, 3, 4),
}


def torch_network(model, batch_size=1):
    """Returns the network as a torch module, its output names, and its description.

    The module is a `torch.fx.GraphModule` from `images` `[B, 3, H, W]`, float32, RGB
    pixels 0-255, to the raw outputs. With `batch_size=None`, `B` is any number.
    """
    if runs_on_tensorflow():
        file, description = network_of_planes(model, batch_size)
        graph = graph_of_onnx(file.graph)
    else:
        graph = network_graph(model, batch_size)
        description = describe(model, outputs="raw", batch_size=batch_size)
    return torch_module(graph), list(graph.outputs), description


def torch_module(graph):
    """Converts a graph to a `torch.fx.GraphModule` of images `[B, 3, H, W]`."""
    root, written = torch.nn.Module(), torch.fx.Graph()
    tracer = torch.fx.proxy.GraphAppendingTracer(written)
    values = {"images": torch.fx.Proxy(written.placeholder("images"), tracer)}

    def tensor(name):
        if name not in values:
            attribute = f"constant_{len(values)}"
            root.register_buffer(attribute, torch.tensor(graph.arrays[name]))
            values[name] = torch.fx.Proxy(written.get_attr(attribute), tracer)
        return values[name]

    def argument(node, place, name):
        if not name:
            return None
        plain = place in _PLAIN.get(node.op_type, ())
        return graph.arrays[name].tolist() if plain else tensor(name)

    require_operations(graph.nodes, _OPERATIONS, "torch")
    for node in graph.nodes:
        inputs = [argument(node, i, name) for i, name in enumerate(node.inputs)]
        values[node.outputs[0]] = _OPERATIONS[node.op_type](node.attributes, *inputs)
    written.output(tuple(values[name].node for name in graph.outputs))
    written.eliminate_dead_code()
    return torch.fx.GraphModule(root, written).eval()


# --- The operations, as functions of the node's attributes and inputs.

_require = functools.partial(require_kind, tool="torch")


def _padded(x, pads, value=0.0):
    """Pads `[B, C, H, W]` with ONNX's `pads`: top, left, bottom, right."""
    top, left, bottom, right = pads
    if not any(pads):
        return x
    return torch.nn.functional.pad(x, (left, right, top, bottom), value=value)


def _convolution(options, x, kernel, bias=None):
    x = _padded(x, options.get("pads", (0, 0, 0, 0)))
    strides, dilations = options.get("strides", (1, 1)), options.get("dilations", 1)
    groups = options.get("group", 1)
    return torch.nn.functional.conv2d(x, kernel, bias, strides, 0, dilations, groups)


def _transposed_convolution(options, x, kernel, bias=None):
    """Computes a transposed convolution, and cuts the `pads` off at the borders."""
    strides, groups = options.get("strides", (1, 1)), options.get("group", 1)
    top, left, bottom, right = options.get("pads", (0, 0, 0, 0))
    x = torch.nn.functional.conv_transpose2d(
        x, kernel, bias, strides, 0, options.get("output_padding", 0), groups
    )
    return x[:, :, top : x.shape[2] - bottom, left : x.shape[3] - right]


def _batch_norm(options, x, scale, offset, mean, variance):
    epsilon = options.get("epsilon", 1e-5)
    return torch.nn.functional.batch_norm(
        x, mean, variance, scale, offset, training=False, eps=epsilon
    )


def _max_pool(options, x):
    x = _padded(x, options.get("pads", (0, 0, 0, 0)), LOWEST)
    kernel, strides = options["kernel_shape"], options.get("strides", (1, 1))
    return torch.nn.functional.max_pool2d(x, kernel, strides)


def _pad(options, x, pads, value=None, axes=None):
    """Pads the last two axes with a constant, the only kind that networks have."""
    _require(options.get("mode", "constant") == "constant" and axes is None, "Pad")
    top, left, bottom, right = *pads[2:4], *pads[6:8]
    return _padded(x, (top, left, bottom, right), value or 0.0)


def _resize(options, x, _, scales=None, sizes=None):
    mode, places = options["mode"], options["coordinate_transformation_mode"]
    size = {"size": sizes[2:]} if sizes else {"scale_factor": scales[2:]}
    if mode == "linear":
        _require(places == "half_pixel", "Resize")
        return torch.nn.functional.interpolate(x, **size, mode="bilinear")
    nearest = mode == "nearest" and places == "asymmetric"
    _require(nearest and options["nearest_mode"] == "floor", "Resize")
    return torch.nn.functional.interpolate(x, **size, mode="nearest")


def _slice(options, x, starts, ends, axes=None, steps=None):
    _require(axes is not None, "Slice")
    for start, end, axis, step in zip(starts, ends, axes, steps or [1] * len(axes)):
        x = x[(slice(None),) * axis + (slice(start, end, step),)]
    return x


_OPERATIONS = {
    "Add": lambda options, x, y: x + y,
    "BatchNormalization": _batch_norm,
    "Clip": lambda options, x, low=None, high=None: torch.clamp(x, low, high),
    "Concat": lambda options, *xs: torch.cat(xs, options["axis"]),
    "Conv": _convolution,
    "ConvTranspose": _transposed_convolution,
    "GlobalAveragePool": lambda options, x: torch.mean(x, (2, 3), keepdim=True),
    "MaxPool": _max_pool,
    "Mul": lambda options, x, y: x * y,
    "Pad": _pad,
    "Relu": lambda options, x: torch.relu(x),
    "Reshape": lambda options, x, shape: torch.reshape(x, shape),
    "Resize": _resize,
    "Sigmoid": lambda options, x: torch.sigmoid(x),
    "Slice": _slice,
    "Softplus": lambda options, x: torch.nn.functional.softplus(x),
    "Sub": lambda options, x, y: x - y,
    "Tanh": lambda options, x: torch.tanh(x),
    "Transpose": lambda options, x: torch.permute(x, options["perm"]),
}
