"""Converts a `NetworkGraph` to a LiteRT model, without TensorFlow's converter.

LiteRT's tensors are `[B, H, W, C]`, as are the `shapes` of a `NetworkGraph`. So the
transpositions of the graph are dropped.
"""

from __future__ import annotations

import numpy as np

from effdet_keras._internal.optional_imports import tflite_schema as schema
from effdet_keras.errors import InvalidStateError
from effdet_keras.export.network_graph import TO_PLANES, same_padding

_VERSION = 3  # version of the file's schema
# Versions of operations for features that version 1 lacks: 16-bit numbers, and
# half-pixel centers.
_VERSIONS = {"DEQUANTIZE": 3, "RESIZE_BILINEAR": 3}


def litert_model(graph, *, input_dtype="float32", half=False):
    """Converts a graph to a `LiteRTModel`.

    Args:
        graph: `NetworkGraph`.
        input_dtype: dtype of the input `images` `[B, H, W, 3]`, RGB pixels 0-255.
        half: bool, whether to store kernels in float16.

    Returns:
        The `LiteRTModel`, whose `outputs` are still empty, and a dict from the names of
        the graph's outputs to their tensors.

    Raises:
        RuntimeError: If the graph has an unknown operation.
    """
    model = LiteRTModel(half)
    images = model.tensor("images", graph.shapes["images"], input_dtype)
    model.inputs.append(images)
    if input_dtype != "float32":
        options = schema.CastOptionsT()
        options.inDataType, options.outDataType = _kind(input_dtype), _kind("float32")
        images = model.operation("CAST", [images], graph.shapes["images"], options)
    network = _Network(graph, model, {"images": images})
    for node in graph.nodes:
        if node.op_type not in _OPERATIONS:
            raise InvalidStateError(
                f"The network contains the operation {node.op_type}, which the export "
                f"to LiteRT does not support (node {node.name})"
            )
        network.values[node.outputs[0]] = _OPERATIONS[node.op_type](network, node)
    return model, {name: network.values[name] for name in graph.outputs}


def _kind(dtype):
    return getattr(schema.TensorType, dtype.upper())


class LiteRTModel:
    """A LiteRT model with one graph. Tensors are referred to by their index."""

    def __init__(self, half=False):
        self._half, self._codes, self._constants = half, {}, {}
        self._buffers = [schema.BufferT()]  # buffer 0 is for tensors without constant
        self._tensors, self._operators = [], []
        self.inputs, self.outputs = [], []

    def tensor(self, name, shape, dtype, buffer=0):
        tensor = schema.TensorT()
        tensor.name, tensor.type, tensor.buffer = name.encode(), _kind(dtype), buffer
        tensor.shape = [int(length) for length in shape]
        self._tensors.append(tensor)
        return len(self._tensors) - 1

    def constant(self, array):
        """Returns the tensor of a constant; equal arrays share one tensor."""
        content = array.dtype.name, array.shape, array.tobytes()
        if content not in self._constants:
            halves = self._half and array.ndim == 4  # a kernel
            stored = array.astype("float16") if halves else array
            buffer, place = schema.BufferT(), len(self._buffers)
            buffer.data = np.frombuffer(stored.tobytes(), "uint8")
            self._buffers.append(buffer)
            name, dtype = f"constant_{place}", stored.dtype.name
            tensor = self.tensor(name, array.shape, dtype, place)
            if halves:
                tensor = self.operation("DEQUANTIZE", [tensor], array.shape)
            self._constants[content] = tensor
        return self._constants[content]

    def operation(self, code, inputs, shape, options=None, *, dtype="float32"):
        """Appends a builtin operation of LiteRT; returns the tensor of its result."""
        name = f"{code.lower()}_{len(self._operators)}"
        result = self.tensor(name, shape, dtype)
        operator = self._operator(code, inputs, [result])
        if options is not None:
            kind = type(options).__name__.removesuffix("T")
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, kind)
            operator.builtinOptions = options
        return result

    def custom_operation(self, name, inputs, outputs, options):
        """Appends a custom operation with this name; `options` are bytes."""
        operator = self._operator("CUSTOM", inputs, outputs, name)
        operator.customOptions = np.frombuffer(options, "uint8")

    def _operator(self, code, inputs, outputs, custom=None):
        operator = schema.OperatorT()
        key = code, custom
        operator.opcodeIndex = self._codes.setdefault(key, len(self._codes))
        operator.inputs, operator.outputs = list(inputs), list(outputs)
        self._operators.append(operator)
        return operator

    def packed(self):
        """Returns the model as a `ModelT`, with outputs `output_0`, `output_1`, ..."""
        graph, signature = schema.SubGraphT(), schema.SignatureDefT()
        graph.name, graph.tensors, graph.operators = (
            b"main",
            self._tensors,
            self._operators,
        )
        graph.inputs, graph.outputs = self.inputs, self.outputs
        signature.signatureKey = b"serving_default"
        signature.inputs = [_named("images", self.inputs[0])]
        signature.outputs = [
            _named(f"output_{i}", tensor) for i, tensor in enumerate(self.outputs)
        ]
        model = schema.ModelT()
        model.version, model.description = _VERSION, b"effdet_keras"
        model.operatorCodes = [_operator_code(*key) for key in self._codes]
        model.subgraphs, model.buffers = [graph], self._buffers
        model.signatureDefs = [signature]
        return model


def _named(name, tensor):
    entry = schema.TensorMapT()
    entry.name, entry.tensorIndex = name.encode(), tensor
    return entry


def _operator_code(name, custom):
    code = schema.OperatorCodeT()
    code.builtinCode = getattr(schema.BuiltinOperator, name)
    code.deprecatedBuiltinCode = code.builtinCode  # valid for codes below 127
    code.version = _VERSIONS.get(name, 1)
    code.customCode = None if custom is None else custom.encode()
    return code


# --- Conversion of each node of a graph to one or more LiteRT operations.


class _Network:
    """A graph, the model that is built from it, and the tensors of its values."""

    def __init__(self, graph, model, values):
        self.graph, self.model, self.values = graph, model, values

    def shape(self, node, place=0):
        """Returns the shape of a node's result."""
        return self.graph.shapes[node.outputs[place]]

    def input_shape(self, node, place=0):
        """Returns the shape of a node's input."""
        return self.graph.shapes[node.inputs[place]]

    def array(self, node, place, dtype=None):
        """Returns a constant input of a node as array."""
        array = self.graph.arrays[node.inputs[place]]
        return array if dtype is None else array.astype(dtype)

    def input(self, node, place=0):
        """Returns the tensor of a node's input; constants per channel become `[C]`."""
        name = node.inputs[place]
        if name in self.values:
            return self.values[name]
        array = self.graph.arrays[name]
        return self.model.constant(array.reshape(-1) if array.ndim == 3 else array)

    def write(self, code, inputs, shape, options=None, **more):
        """Appends an operation whose inputs are tensors or arrays."""
        inputs = [
            self.model.constant(x) if isinstance(x, np.ndarray) else x for x in inputs
        ]
        return self.model.operation(code, inputs, shape, options, **more)

    def axis(self, axis, rank=4):
        """Converts the number of an axis of the graph to LiteRT's axis order."""
        return TO_PLANES[axis] if rank == 4 else axis


def _integers(*values):
    return np.array(values, "int32")


def _direct(code):
    """Returns a converter for nodes that are one operation with the same inputs."""

    def write(network, node):
        inputs = [network.input(node, place) for place in range(len(node.inputs))]
        return network.write(code, inputs, network.shape(node))

    return write


def _arithmetic(code, kind):
    """Returns a converter like `_direct`, with an options object of default values."""

    def write(network, node):
        inputs = [network.input(node, place) for place in range(2)]
        return network.write(code, inputs, network.shape(node), getattr(schema, kind)())

    return write


def _padding(network, node, window):
    """Returns the padding option and the input, explicitly padded if necessary."""
    x, shape = network.input(node), network.input_shape(node)
    pads, strides = tuple(node.attributes["pads"]), node.attributes["strides"]
    if pads == same_padding(shape[1:3], strides, window):
        return schema.Padding.SAME, x
    if any(pads):
        x = _padded(network, x, shape, pads)
    return schema.Padding.VALID, x


def _padded(network, x, shape, pads):
    top, left, bottom, right = map(int, pads)
    rows = np.array([[0, 0], [top, bottom], [left, right], [0, 0]], "int32")
    batch, height, width, channels = shape
    shape = batch, height + top + bottom, width + left + right, channels
    return network.write("PAD", [x, rows], shape, schema.PadOptionsT())


def _convolution(network, node):
    kernel = network.array(node, 1)  # [out, in / groups, kh, kw]
    padding, x = _padding(network, node, kernel.shape[2:])
    groups = node.attributes["group"]
    if groups == 1:
        code, options, order = "CONV_2D", schema.Conv2DOptionsT(), (0, 2, 3, 1)
    else:
        code, order = "DEPTHWISE_CONV_2D", (1, 2, 3, 0)
        options = schema.DepthwiseConv2DOptionsT()
        options.depthMultiplier = len(kernel) // groups
    options.padding = padding
    options.strideH, options.strideW = node.attributes["strides"]
    options.dilationHFactor = options.dilationWFactor = 1
    bias = np.zeros(len(kernel), "float32")
    if len(node.inputs) > 2:
        bias = network.array(node, 2)
    inputs = [x, np.ascontiguousarray(kernel.transpose(order)), bias]
    return network.write(code, inputs, network.shape(node), options)


def _transposed_convolution(network, node):
    kernel = network.array(node, 1)  # [in, out, kh, kw]
    options, shape = schema.TransposeConvOptionsT(), network.shape(node)
    options.padding = schema.Padding.SAME
    options.strideH, options.strideW = node.attributes["strides"]
    kernel = np.ascontiguousarray(kernel.transpose(1, 2, 3, 0))
    inputs = [_integers(*shape), kernel, network.input(node)]
    return network.write("TRANSPOSE_CONV", inputs, shape, options)


def _batch_norm(network, node):
    """Converts a batch norm that could not be folded into a convolution."""
    scale, offset, mean, variance = (network.array(node, i) for i in range(1, 5))
    scale = scale / np.sqrt(variance + np.float32(node.attributes["epsilon"]))
    shape = network.shape(node)
    inputs = [network.input(node), scale]
    x = network.write("MUL", inputs, shape, schema.MulOptionsT())
    shift = offset - mean * scale
    return network.write("ADD", [x, shift], shape, schema.AddOptionsT())


def _max_pool(network, node):
    options, window = schema.Pool2DOptionsT(), node.attributes["kernel_shape"]
    options.padding, x = _padding(network, node, window)
    options.filterHeight, options.filterWidth = window
    options.strideH, options.strideW = node.attributes["strides"]
    return network.write("MAX_POOL_2D", [x], network.shape(node), options)


def _mean(network, node):
    options = schema.ReducerOptionsT()
    options.keepDims = True
    inputs = [network.input(node), _integers(1, 2)]
    return network.write("MEAN", inputs, network.shape(node), options)


def _pad(network, node):
    pads = network.array(node, 1)  # of all axes: first all starts, then all ends
    sides = [*pads[2:4], *pads[6:8]]
    return _padded(network, network.input(node), network.input_shape(node), sides)


def _resize(network, node):
    x, shape = network.input(node), network.shape(node)
    if node.attributes["mode"] == "nearest":
        return _repeated(network, x, network.input_shape(node), shape)
    options = schema.ResizeBilinearOptionsT()
    options.halfPixelCenters = True
    inputs = [x, _integers(*shape[1:3])]
    return network.write("RESIZE_BILINEAR", inputs, shape, options)


def _repeated(network, x, shape, target):
    """Repeats rows and columns with operations of XNNPACK, without splitting it."""
    batch, height, width, channels = shape
    rows, columns = target[1] // height, target[2] // width
    x = _concatenated(network, [x] * columns, (*shape[:3], channels * columns), 3)
    shape = batch, height, width * columns, channels
    x = _reshaped(network, x, shape)
    x = _concatenated(network, [x] * rows, (*shape[:2], shape[2] * rows, channels), 2)
    return _reshaped(network, x, target)


def _concatenated(network, xs, shape, axis):
    options = schema.ConcatenationOptionsT()
    options.axis = axis
    return network.write("CONCATENATION", xs, shape, options)


def _concatenate(network, node):
    xs = [network.input(node, place) for place in range(len(node.inputs))]
    shape = network.shape(node)
    axis = network.axis(node.attributes["axis"], len(shape))
    return _concatenated(network, xs, shape, axis)


def _reshaped(network, x, shape):
    options = schema.ReshapeOptionsT()
    options.newShape = list(map(int, shape))
    return network.write("RESHAPE", [x, _integers(*shape)], shape, options)


def _reshape(network, node):
    return _reshaped(network, network.input(node), network.shape(node))


def _slice(network, node):
    shape, sizes = network.input_shape(node), network.shape(node)
    starts = [0] * len(shape)
    for start, axis in zip(network.array(node, 1), network.array(node, 3)):
        axis = network.axis(int(axis), len(shape))
        starts[axis] = int(start) % shape[axis]
    inputs = [network.input(node), _integers(*starts), _integers(*sizes)]
    return network.write("SLICE", inputs, sizes, schema.SliceOptionsT())


def _gather(network, node):
    options, shape = schema.GatherOptionsT(), network.shape(node)
    options.axis = network.axis(node.attributes["axis"], len(shape))
    inputs = [network.input(node), network.array(node, 1, "int32")]
    return network.write("GATHER", inputs, shape, options)


def _argmax(network, node):
    options = schema.ArgMaxOptionsT()
    options.outputType = schema.TensorType.INT32
    axis = network.axis(node.attributes["axis"], len(network.input_shape(node)))
    inputs = [network.input(node), _integers(axis)]
    return network.write("ARG_MAX", inputs, network.shape(node), options, dtype="int32")


def _clip(network, node):
    low, high = (float(network.array(node, place)) for place in (1, 2))
    if (low, high) != (0.0, 6.0):
        raise InvalidStateError(
            "The network contains a Clip with limits that the export to LiteRT does "
            f"not support. Received: low={low}, high={high}"
        )
    return network.write("RELU6", [network.input(node)], network.shape(node))


def _softplus(network, node):
    """Computes softplus as `max(x, 0) + log(1 + exp(-|x|))`."""
    x, shape = network.input(node), network.shape(node)
    size = network.write("ABS", [x], shape, schema.AbsOptionsT())
    minus = network.write("NEG", [size], shape, schema.NegOptionsT())
    small = network.write("EXP", [minus], shape, schema.ExpOptionsT())
    inputs = [small, np.ones((), "float32")]
    larger = network.write("ADD", inputs, shape, schema.AddOptionsT())
    parts = [
        network.write("RELU", [x], shape),
        network.write("LOG", [larger], shape),
    ]
    return network.write("ADD", parts, shape, schema.AddOptionsT())


def _same(network, node):
    """Drops a node that only changes the axis order or the dtype in the graph."""
    return network.input(node)


_OPERATIONS = {
    "Add": _arithmetic("ADD", "AddOptionsT"),
    "ArgMax": _argmax,
    "BatchNormalization": _batch_norm,
    "Cast": _same,  # class numbers are int32 here
    "Clip": _clip,
    "Concat": _concatenate,
    "Conv": _convolution,
    "ConvTranspose": _transposed_convolution,
    "Gather": _gather,
    "GlobalAveragePool": _mean,
    "Log": _direct("LOG"),
    "MaxPool": _max_pool,
    "Mul": _arithmetic("MUL", "MulOptionsT"),
    "Pad": _pad,
    "Relu": _direct("RELU"),
    "Reshape": _reshape,
    "Resize": _resize,
    "Sigmoid": _direct("LOGISTIC"),
    "Slice": _slice,
    "Softplus": _softplus,
    "Sub": _arithmetic("SUB", "SubOptionsT"),
    "Tanh": _direct("TANH"),
    "Transpose": _same,
}
