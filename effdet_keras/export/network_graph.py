"""The network as a graph of ONNX operations, traced from the operations of its layers.

This works on JAX and torch. Nothing is computed, and no package except Keras is needed.
Each layer is called with a symbolic input, so that Keras records the operations that
the layer uses. Layers among these are traced in the same way. Only operations of
`keras.ops` remain, and each has a function below. (On TensorFlow, layers call
TensorFlow functions directly. There `network_function` is converted.)

A Keras tensor `[B, H, W, C]` is `[B, C, H, W]` in the graph, as ONNX operations require
it. All other tensors are as in Keras.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
from typing import Any, NamedTuple

import numpy as np

from effdet_keras._internal.optional_imports import keras
from effdet_keras.detect.postprocess import class_map_of
from effdet_keras.errors import InvalidStateError, require

TO_PLANES = (0, 3, 1, 2)  # the axes of `[B, H, W, C]` in the order of the graph
_END = 2**63 - 1  # the end of a slice up to the end of the axis


class GraphNode(NamedTuple):
    """An ONNX operation, with the names of its inputs ("" for none) and outputs."""

    op_type: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]


@dataclasses.dataclass
class NetworkGraph:
    """A graph from the input `images`, with nodes in an order of execution.

    `images` is float32 `[B, 3, H, W]`, RGB pixels 0-255. `arrays` are the constants
    that nodes read, by name. `outputs` are shape and dtype by name, with the axis order
    of Keras: `class_logits` `[B, N, C]`, `box_deltas` `[B, N, 4]`,
    `segmentation_logits` `[B, h, w, K]` or `class_map` `[B, H, W]`. `shapes` of the
    input and of all results are also in the axis order of Keras. They are empty for
    graphs that were read from an ONNX file.
    """

    nodes: list[GraphNode]
    arrays: dict[str, np.ndarray]
    outputs: dict[str, tuple[tuple[int | None, ...], str]]
    shapes: dict[str, tuple[int | None, ...]] = dataclasses.field(default_factory=dict)


def network_graph(model, batch_size=None, *, finds_classes=False):
    """Returns the `NetworkGraph` of a model in float32.

    With `finds_classes` it returns a `class_map` instead of the logits of a
    segmentation head.
    """
    from effdet_keras.network.build import copied
    from effdet_keras.network.computing import computing_with

    writer = _Writer()
    images = _Value("images", (batch_size, *model.config.image_size, 3), "float32")
    # A copy, because Keras records in a layer each symbol it is called with.
    network = copied(model)
    with computing_with(repeat=_repeat):
        outputs = network._run_through_graph([images], operation_fn=writer.operation)
        if finds_classes and model.config.has_segmentation:
            logits, size = outputs.pop("segmentation_logits"), model.config.image_size
            outputs["class_map"] = writer.trace(class_map_of, logits, size)
    return _folded(writer.graph(images, dict(sorted(outputs.items()))))


def _repeat(x, times):
    """Repeats rows and columns of `[B, H, W, C]`."""
    size = tuple(length * count for length, count in zip(x.shape[1:3], times))
    return keras.ops.image.resize(
        x, size, interpolation="nearest", data_format="channels_last"
    )


@dataclasses.dataclass(frozen=True)
class _Value:
    """The result of a node: its name, and its shape and dtype as in Keras."""

    name: str
    shape: tuple[int | None, ...]
    dtype: str


class _Writer:
    """Collects nodes and constants while the network is traced."""

    def __init__(self):
        self.nodes, self.arrays, self.shapes = [], {}, {}
        self._names = {}  # names of constants, by their content
        self._scope = ()

    # --- From Keras' operations to nodes.

    def trace(self, function, *args, **kwargs):
        """Traces a function of Keras operations, from `_Value`s to `_Value`s."""
        symbols, values = [], []

        def symbol(x):
            if not isinstance(x, _Value):
                return x
            name = f"input_{len(symbols)}"
            symbols.append(keras.Input(batch_shape=x.shape, dtype=x.dtype, name=name))
            values.append(x)
            return symbols[-1]

        args, kwargs = keras.tree.map_structure(symbol, (args, kwargs))
        traced = keras.Function(symbols, function(*args, **kwargs))
        return traced._run_through_graph(values, operation_fn=self.operation)

    def operation(self, operation):
        """Returns the function that Keras calls instead of an operation or a layer."""
        if isinstance(operation, keras.Layer):
            return functools.partial(self._layer, operation)
        kind = type(operation).__name__
        if kind not in _OPERATIONS:
            raise InvalidStateError(
                f"The network contains the operation {kind} (in "
                f"{'/'.join(self._scope)}), which an export without TensorFlow does "
                "not support. Save the model, and export it in a process with "
                "KERAS_BACKEND=tensorflow: `effdet-keras export MODEL OUT`."
            )
        return functools.partial(_OPERATIONS[kind], self, operation)

    def _layer(self, layer, *args, **kwargs):
        outer, self._scope = self._scope, (*self._scope, layer.name)
        found = self.trace(layer.call, *args, **kwargs)
        self._scope = outer
        return found

    # --- Writing.

    def node(self, op_type, inputs, like, **attributes):
        """Adds a node; returns its result, with the shape and dtype of `like`.

        `inputs` are `_Value`s, arrays, or None for an omitted input.
        """
        name = "/".join([*self._scope, f"{op_type}_{len(self.nodes)}"])
        inputs = tuple(self._name(x, f"{name}/{i}") for i, x in enumerate(inputs))
        self.nodes.append(GraphNode(op_type, name, inputs, (name,), attributes))
        self.shapes[name] = tuple(like.shape)
        return _Value(name, tuple(like.shape), like.dtype)

    def _name(self, x, name):
        """Returns the name of a value or an array; equal arrays are stored once."""
        if x is None:
            return ""
        if isinstance(x, _Value):
            return x.name
        content = x.dtype.name, x.shape, x.tobytes()
        if content not in self._names:
            self._names[content], self.arrays[name] = name, x
        return self._names[content]

    def graph(self, images, outputs):
        """Returns the graph from the input `images` to the outputs `{name: _Value}`."""
        names = {}
        for name, value in outputs.items():
            if len(value.shape) == 4:
                value = self.node("Transpose", [value], value, perm=(0, 2, 3, 1))
            names[value.name] = name
        nodes = [
            node._replace(
                inputs=tuple(names.get(name, name) for name in node.inputs),
                outputs=tuple(names.get(name, name) for name in node.outputs),
            )
            for node in self.nodes
        ]
        about = {name: (value.shape, value.dtype) for name, value in outputs.items()}
        shapes = {names.get(name, name): shape for name, shape in self.shapes.items()}
        shapes[images.name] = images.shape
        return NetworkGraph(nodes, self.arrays, about, shapes)


def _folded(graph):
    """Folds batch norms, and additions of a constant per channel, into convolutions."""
    uses = collections.Counter(name for node in graph.nodes for name in node.inputs)
    uses.update(list(graph.outputs))
    nodes, arrays, places = [], dict(graph.arrays), {}
    for node in graph.nodes:
        place = places.get(node.inputs[0])
        change = _channel_change(node, arrays)
        if place is None or change is None or uses[node.inputs[0]] > 1:
            if node.op_type == "Conv":
                places[node.outputs[0]] = len(nodes)
            nodes.append(node)
            continue
        conv, (scale, shift) = nodes[place], change
        x, kernel, *bias = conv.inputs
        bias = arrays[bias[0]] if bias else np.zeros_like(shift)
        of_kernel, of_bias = kernel, f"{node.name}/bias"
        if scale is not None:  # without scale, levels still share the kernel
            of_kernel, bias = f"{node.name}/kernel", bias * scale
            arrays[of_kernel] = arrays[kernel] * scale.reshape(-1, 1, 1, 1)
        arrays[of_bias] = bias + shift
        inputs = (x, of_kernel, of_bias)
        nodes[place] = conv._replace(inputs=inputs, outputs=node.outputs)
        places[node.outputs[0]] = place
    used = {name for node in nodes for name in node.inputs}
    arrays = {name: array for name, array in arrays.items() if name in used}
    return dataclasses.replace(graph, nodes=nodes, arrays=arrays)


def _channel_change(node, arrays):
    """Returns the scale (or None) and shift `[C]` of a node; None for other nodes."""
    if node.op_type == "BatchNormalization":
        scale, offset, mean, variance = (arrays[name] for name in node.inputs[1:])
        epsilon = np.float32(node.attributes["epsilon"])
        scale = scale / np.sqrt(variance + epsilon)
        return scale, offset - mean * scale
    if node.op_type == "Add" and node.inputs[1] in arrays:
        shift = arrays[node.inputs[1]].reshape(-1)
        return (None, shift) if len(shift) > 1 else None
    return None


# --- The operations of `keras.ops`. Each function takes the writer, the operation and
# the arguments of its call. `operation.output` has the shape of the result.


def _axis(axis, x):
    """Converts the number of a Keras axis to the axis order of the graph."""
    axis = axis % len(x.shape)
    return TO_PLANES.index(axis) if len(x.shape) == 4 else axis


def _array(x):
    """Converts a constant to a float32 array."""
    return np.asarray(keras.ops.convert_to_numpy(x), "float32")


def _elementwise(op_type):
    """Returns a function for binary operations.

    One operand may be a number, or a constant with one number per channel.
    """

    def write(writer, operation, *operands):
        rank = len(operation.output.shape)

        def operand(x):
            if isinstance(x, _Value):
                return x
            x = _array(x)
            rule = "An export without TensorFlow supports constants only per channel"
            is_known = x.ndim == 0 or x.size == x.shape[-1]
            require(is_known, rule, InvalidStateError, shape=x.shape)
            return x.reshape(-1, 1, 1) if x.ndim and rank == 4 else x

        return writer.node(op_type, map(operand, operands), operation.output)

    return write


def _divide(writer, operation, x, divisor):
    """Writes a division by a constant as a product, which every runtime supports."""
    is_known = not isinstance(divisor, _Value)
    rule = "An export without TensorFlow supports division only by constants"
    require(is_known, rule, InvalidStateError, divisor=divisor)
    return _elementwise("Mul")(writer, operation, x, 1 / _array(divisor))


def _unary(op_type):
    return lambda writer, operation, x: writer.node(op_type, [x], x)


def _pads(operation, x, window):
    """Converts Keras' padding to ONNX's `pads`: top, left, bottom, right."""
    if operation.padding != "same":
        return (0, 0, 0, 0)
    return same_padding(x.shape[1:3], _pair(operation.strides), window)


def same_padding(sides, strides, window):
    """Returns the "same" padding at top, left, bottom and right, in pixels.

    Args:
        sides: `(height, width)` of the input.
        strides: ints `(vertical, horizontal)`.
        window: `(height, width)` of the kernel or pooling window.
    """
    lacking = [
        max((math.ceil(side / stride) - 1) * stride + length - side, 0)
        for side, stride, length in zip(sides, strides, window)
    ]
    return (*(n // 2 for n in lacking), *(n - n // 2 for n in lacking))


def _pair(value):
    return (value, value) if isinstance(value, int) else tuple(value)


def _convolution(writer, operation, x, kernel):
    """Writes `Conv` and `DepthwiseConv`, with Keras kernels `[kh, kw, in, out]`."""
    kernel, groups = _array(kernel), 1
    is_plain = _pair(operation.dilation_rate) == (1, 1)
    rule = "An export without TensorFlow does not support dilated convolutions"
    require(is_plain, rule, InvalidStateError, dilation_rate=operation.dilation_rate)
    pads = _pads(operation, x, kernel.shape[:2])
    if type(operation).__name__ == "DepthwiseConv":
        groups = kernel.shape[2]
        kernel = kernel.reshape(*kernel.shape[:2], 1, -1)
    return writer.node(
        "Conv",
        [x, np.ascontiguousarray(kernel.transpose(3, 2, 0, 1))],
        operation.output,
        kernel_shape=kernel.shape[:2],
        strides=_pair(operation.strides),
        pads=pads,
        group=groups,
    )


def _transposed_convolution(writer, operation, x, kernel):
    """Writes `ConvTranspose`; the output's size is the input's times the strides."""
    kernel, strides = _array(kernel), _pair(operation.strides)  # [kh, kw, out, in]
    is_known = operation.padding == "same" and operation.output_padding is None
    rule = (
        "An export without TensorFlow supports transposed convolutions only with 'same'"
    )
    require(is_known, rule, InvalidStateError, padding=operation.padding)
    added = [max(n - stride, 0) for n, stride in zip(kernel.shape, strides)]
    return writer.node(
        "ConvTranspose",
        [x, np.ascontiguousarray(kernel.transpose(3, 2, 0, 1))],
        operation.output,
        kernel_shape=kernel.shape[:2],
        strides=strides,
        pads=(*(n // 2 for n in added), *(n - n // 2 for n in added)),
    )


def _batch_norm(writer, operation, x, mean, variance, offset=None, scale=None):
    arrays = map(_array, (scale, offset, mean, variance))
    epsilon = float(operation.epsilon)
    return writer.node("BatchNormalization", [x, *arrays], x, epsilon=epsilon)


def _max_pool(writer, operation, x):
    window = _pair(operation.pool_size)
    return writer.node(
        "MaxPool",
        [x],
        operation.output,
        kernel_shape=window,
        strides=_pair(operation.strides),
        pads=_pads(operation, x, window),
    )


def _mean(writer, operation, x):
    is_known = tuple(operation.axis) == (1, 2) and operation.keepdims
    rule = "An export without TensorFlow supports only the mean over all pixels"
    require(is_known, rule, InvalidStateError, axis=operation.axis)
    return writer.node("GlobalAveragePool", [x], operation.output)


def _pad(writer, operation, x, constant_values=None):
    of_axes = [operation.pad_width[axis] for axis in (0, 3, 1, 2)]
    pads = np.array([n for side in zip(*of_axes) for n in side], "int64")
    return writer.node("Pad", [x, pads], operation.output, mode="constant")


def _resize(writer, operation, x):
    """Writes `Resize` with factors, so that the batch size may vary."""
    pairs = list(zip(operation.size, x.shape[1:3]))
    if operation.interpolation == "nearest":  # Keras uses half-pixel centers
        rule = "An export without TensorFlow supports only equal repeats of each row"
        is_multiple = all(n % m == 0 for n, m in pairs)
        require(is_multiple, rule, InvalidStateError, size=operation.size)
        how = {
            "mode": "nearest",
            "coordinate_transformation_mode": "asymmetric",
            "nearest_mode": "floor",
        }
    else:
        rule = (
            "An export without TensorFlow supports only bilinear resizing without "
            "antialias"
        )
        is_known = operation.interpolation == "bilinear" and not operation.antialias
        require(is_known, rule, InvalidStateError, how=operation.interpolation)
        how = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
    scales = np.array([1, 1, *(_factor(n, m) for n, m in pairs)], "float32")
    return writer.node("Resize", [x, None, scales], operation.output, **how)


def _factor(length, side):
    """Returns the smallest float32 factor for which `floor(side * factor)` is `length`.

    The product may be computed in float32 or more precisely.
    """
    factor = np.float32(length / side)
    while min(float(np.float32(side) * factor), side * float(factor)) < length:
        factor = np.nextafter(factor, np.float32(np.inf))
    return factor


def _slice(writer, operation, x, key):
    """Writes slices of some axes; axes that are not cut are left out."""
    key = key if isinstance(key, (tuple, list)) else (key,)
    rule = "An export without TensorFlow supports only slices as indices"
    require(all(isinstance(k, slice) for k in key), rule, InvalidStateError, key=key)
    starts, ends, axes, steps = [], [], [], []
    for axis, part in enumerate(key):
        length = x.shape[axis]
        is_cut = part.stop is not None and (length is None or part.stop < length)
        if is_cut or part.start or part.step not in (None, 1):
            starts.append(part.start or 0)
            ends.append(part.stop if is_cut else _END)
            axes.append(_axis(axis, x))
            steps.append(part.step or 1)
    if not axes:
        return x
    limits = (np.array(values, "int64") for values in (starts, ends, axes, steps))
    return writer.node("Slice", [x, *limits], operation.output)


def _take(writer, operation, x, indices):
    indices, axis = np.asarray(indices, "int64"), _axis(operation.axis, x)
    return writer.node("Gather", [x, indices], operation.output, axis=axis)


def _concatenate(writer, operation, xs):
    axis = _axis(operation.axis, xs[0])
    return writer.node("Concat", xs, operation.output, axis=axis)


def _reshape(writer, operation, x):
    if len(x.shape) == 4:  # reshaping needs the element order of Keras
        x = writer.node("Transpose", [x], x, perm=(0, 2, 3, 1))
    shape = np.array(operation.newshape, "int64")
    is_known = len(shape) != 4
    rule = "An export without TensorFlow does not support reshaping to images"
    require(is_known, rule, InvalidStateError, shape=operation.newshape)
    return writer.node("Reshape", [x, shape], operation.output)


def _argmax(writer, operation, x):
    axis = _axis(operation.axis, x)
    keepdims = int(operation.keepdims)
    return writer.node("ArgMax", [x], operation.output, axis=axis, keepdims=keepdims)


_KINDS = {"float32": 1, "uint8": 2}  # data types of `onnx.TensorProto`


def _cast(writer, operation, x):
    dtype = operation.output.dtype
    if dtype == x.dtype:
        return x
    return writer.node("Cast", [x], operation.output, to=_KINDS[dtype])


def _number(value):
    return np.array(value, "float32")


def _swish(writer, operation, x):
    return writer.node("Mul", [x, writer.node("Sigmoid", [x], x)], x)


def _hard_swish(writer, operation, x):
    shifted = writer.node("Add", [x, _number(3)], x)
    clipped = writer.node("Clip", [shifted, _number(0), _number(6)], x)
    sixth = writer.node("Mul", [clipped, _number(1 / 6)], x)
    return writer.node("Mul", [x, sixth], x)


def _relu(writer, operation, x):
    """Writes Keras' ReLU activation, assuming a slope and a threshold of 0."""
    if operation.max_value is None:
        return writer.node("Relu", [x], x)
    return writer.node("Clip", [x, _number(0), _number(operation.max_value)], x)


def _log1p(writer, operation, x):
    return writer.node("Log", [writer.node("Add", [x, _number(1)], x)], x)


_OPERATIONS = {
    "Add": _elementwise("Add"),
    "Argmax": _argmax,
    "BatchNorm": _batch_norm,
    "Cast": _cast,
    "Concatenate": _concatenate,
    "Conv": _convolution,
    "ConvTranspose": _transposed_convolution,
    "DepthwiseConv": _convolution,
    "Divide": _divide,
    "GetItem": _slice,
    "HardSilu": _hard_swish,
    "Log1p": _log1p,
    "MaxPool": _max_pool,
    "Mean": _mean,
    "Multiply": _elementwise("Mul"),
    "Pad": _pad,
    "ReLU": _relu,
    "Relu": _unary("Relu"),
    "Relu6": lambda w, operation, x: w.node("Clip", [x, _number(0), _number(6)], x),
    "Reshape": _reshape,
    "Resize": _resize,
    "Sigmoid": _unary("Sigmoid"),
    "Silu": _swish,
    "Softplus": _unary("Softplus"),
    "Subtract": _elementwise("Sub"),
    "Take": _take,
    "Tanh": _unary("Tanh"),
    "TrueDivide": _divide,
}
