"""Converts an ONNX graph of `network_of_planes` to MIL, Core ML's language, and back.

`onnx_of_program` converts a stored file back, so that it can be computed without Core
ML. Both directions support only the operations that our networks have.
"""

from __future__ import annotations

import functools

import numpy as np

from effdet_keras._internal.optional_imports import mil, onnx
from effdet_keras.errors import InvalidStateError
from effdet_keras.export.onnx_network import constants_of, nodes_of, require_kind

_LAST_AXES = [0, 0, 0, 0]  # no padding of the batch axis and the channels


def add_network(graph, images):
    """Adds a graph's operations to the MIL program that is being built.

    `images` is the MIL variable `[1, 3, H, W]`. Returns a dict of the outputs by name.
    """
    values = {"images": images, **constants_of(graph)}
    for node, options in nodes_of(graph, _TO_MIL, "Core ML"):
        inputs = [values.get(name) for name in node.input]
        values[node.output[0]] = _TO_MIL[node.op_type](options, *inputs)
    return {output.name: values[output.name] for output in graph.output}


# --- ONNX to MIL, with a function of a node's attributes and inputs for each operation.

_require = functools.partial(require_kind, tool="Core ML")


def _convolution(options, x, kernel, bias=None):
    more = {} if bias is None else {"bias": bias}
    return mil.Builder.conv(
        x=x,
        weight=kernel,
        strides=options.get("strides", [1, 1]),
        dilations=options.get("dilations", [1, 1]),
        groups=options.get("group", 1),
        pad_type="custom",
        pad=_pads_of_sides(options),
        **more,
    )


def _pads_of_sides(options):
    """Converts ONNX's top, left, bottom, right to MIL's top, bottom, left, right."""
    top, left, bottom, right = options.get("pads", [0, 0, 0, 0])
    return [top, bottom, left, right]


def _batch_norm(options, x, scale, offset, mean, variance):
    return mil.Builder.batch_norm(
        x=x,
        mean=mean,
        variance=variance,
        gamma=scale,
        beta=offset,
        epsilon=np.float32(options.get("epsilon", 1e-5)),
    )


def _clip(options, x, low=None, high=None):
    low, high = (
        np.float32(value if value is not None else limit)
        for value, limit in ((low, -np.inf), (high, np.inf))
    )
    return mil.Builder.clip(x=x, alpha=low, beta=high)


def _max_pool(options, x):
    return mil.Builder.max_pool(
        x=x,
        kernel_sizes=options["kernel_shape"],
        strides=options.get("strides", [1, 1]),
        pad_type="custom",
        pad=_pads_of_sides(options),
    )


def _pad(options, x, pads, value=None, axes=None):
    _require(options.get("mode", b"constant") == b"constant" and axes is None, "Pad")
    top, left, bottom, right = *pads[2:4], *pads[6:8]
    return mil.Builder.pad(
        x=x,
        pad=np.int32([*_LAST_AXES, top, bottom, left, right]),
        mode="constant",
        constant_val=np.float32(value if value is not None else 0),
    )


def _resize(options, x, _, scales=None, sizes=None):
    mode, places = options["mode"], options["coordinate_transformation_mode"]
    height, width = x.shape[2:]
    if sizes is not None and len(sizes):
        rows, columns = (int(size) for size in sizes[2:])
    else:
        rows, columns = int(height * scales[2]), int(width * scales[3])
    if mode == b"linear":
        _require(places == b"half_pixel", "Resize")
        return mil.Builder.resize_bilinear(
            x=x,
            target_size_height=rows,
            target_size_width=columns,
            sampling_mode="UNALIGN_CORNERS",
        )
    is_repeated = rows % height == 0 and columns % width == 0
    nearest = mode == b"nearest" and places == b"asymmetric" and is_repeated
    _require(nearest and options["nearest_mode"] == b"floor", "Resize")
    return mil.Builder.upsample_nearest_neighbor(
        x=x,
        scale_factor_height=rows // height,
        scale_factor_width=columns // width,
    )


def _slice(options, x, starts, ends, axes=None, steps=None):
    _require(axes is not None and x is not None, "Slice")
    begin, end, stride = [0] * x.rank, list(x.shape), [1] * x.rank
    steps = [1] * len(axes) if steps is None else steps
    for axis, first, last, step in zip(axes, starts, ends, steps):
        begin[axis], end[axis], _ = slice(first, last).indices(x.shape[axis])
        stride[axis] = int(step)
    return mil.Builder.slice_by_index(x=x, begin=begin, end=end, stride=stride)


_TO_MIL = {
    "Add": lambda options, x, y: mil.Builder.add(x=x, y=y),
    "BatchNormalization": _batch_norm,
    "Clip": _clip,
    "Concat": lambda options, *xs: mil.Builder.concat(values=xs, axis=options["axis"]),
    "Conv": _convolution,
    "GlobalAveragePool": lambda options, x: mil.Builder.reduce_mean(
        x=x, axes=[2, 3], keep_dims=True
    ),
    "MaxPool": _max_pool,
    "Mul": lambda options, x, y: mil.Builder.mul(x=x, y=y),
    "Pad": _pad,
    "Relu": lambda options, x: mil.Builder.relu(x=x),
    "Reshape": lambda options, x, shape: mil.Builder.reshape(
        x=x, shape=np.int32(shape)
    ),
    "Resize": _resize,
    "Sigmoid": lambda options, x: mil.Builder.sigmoid(x=x),
    "Slice": _slice,
    "Softplus": lambda options, x: mil.Builder.softplus(x=x),
    "Sub": lambda options, x, y: mil.Builder.sub(x=x, y=y),
    "Tanh": lambda options, x: mil.Builder.tanh(x=x),
    "Transpose": lambda options, x: mil.Builder.transpose(x=x, perm=options["perm"]),
}


# --- MIL to ONNX, for the check, which computes 16-bit numbers in 32 bits.


def onnx_of_program(program):
    """Converts a MIL program that was read from a file to an `onnx.ModelProto`."""
    function = program.functions["main"]
    (image,) = function.inputs.values()
    nodes, constants = [], {}
    for operation in function.operations:
        if operation.op_type == "const":
            continue
        if operation.op_type not in _TO_ONNX:
            raise InvalidStateError(
                f"The Core ML file contains the operation {operation.op_type}, which "
                "the check cannot compute"
            )
        written = _Writer(operation, nodes, constants)
        _TO_ONNX[operation.op_type](written)
    kind = onnx.TensorProto.FLOAT
    inputs = [onnx.helper.make_tensor_value_info(image.name, kind, image.shape)]
    outputs = [
        onnx.helper.make_tensor_value_info(value.name, kind, value.shape)
        for value in function.outputs
    ]
    initializers = [
        onnx.numpy_helper.from_array(np.ascontiguousarray(value), name)
        for name, value in constants.items()
    ]
    graph = onnx.helper.make_graph(nodes, "check", inputs, outputs, initializers)
    opset = onnx.helper.make_opsetid("", 17)
    return onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8)


class _Writer:
    """Adds the nodes of one MIL operation."""

    def __init__(self, operation, nodes, constants):
        self.inputs, self.nodes, self.constants = operation.inputs, nodes, constants
        self.outputs = [value.name for value in operation.outputs]

    def value(self, name, otherwise=None):
        """Returns the NumPy value of a constant input, or `otherwise`."""
        given = self.inputs.get(name)
        return otherwise if given is None or given.val is None else given.val

    def numbers(self, name, otherwise=None):
        """Returns a constant input as a list of integers."""
        given = self.value(name, otherwise)
        return None if given is None else [int(item) for item in np.ravel(given)]

    def name(self, name):
        """Returns an input's name in the ONNX graph; float constants become float32."""
        return self.name_of(self.inputs[name])

    def name_of(self, variable):
        """Returns a variable's name in the ONNX graph."""
        if variable.val is not None and variable.name not in self.constants:
            value = np.asarray(variable.val)
            is_float = np.issubdtype(value.dtype, np.floating)
            self.constants[variable.name] = value.astype(
                "float32" if is_float else "i8"
            )
        return variable.name

    def constant(self, suffix, value):
        """Adds a constant of this operation; returns its name."""
        name = f"{self.outputs[0]}/{suffix}"
        self.constants[name] = np.asarray(value)
        return name

    def node(self, kind, inputs, outputs=None, **options):
        outputs = outputs or self.outputs
        self.nodes.append(onnx.helper.make_node(kind, inputs, outputs, **options))


def _same(kind, *names, **options):
    """Returns a converter to one operation with these inputs, in this order."""
    return lambda o: o.node(kind, [o.name(name) for name in names], **options)


def _onnx_convolution(o):
    inputs = [o.name("x"), o.name("weight")]
    if "bias" in o.inputs and o.inputs["bias"] is not None:
        inputs.append(o.name("bias"))
    o.node(
        "Conv",
        inputs,
        strides=o.numbers("strides", [1, 1]),
        dilations=o.numbers("dilations", [1, 1]),
        group=int(o.value("groups", 1)),
        pads=_onnx_pads(o),
    )


def _onnx_pads(o):
    kind = o.value("pad_type", "valid")
    if kind == "valid":
        return [0, 0, 0, 0]
    if kind != "custom":
        raise InvalidStateError(
            f"The Core ML file contains padding of the kind {kind!r}, which the check "
            "cannot compute"
        )
    top, bottom, left, right = o.numbers("pad")
    return [top, left, bottom, right]


def _onnx_clip(o, low=None, high=None):
    limits = o.value("alpha", low), o.value("beta", high)
    names = [o.constant(f"limit{i}", np.float32(v)) for i, v in enumerate(limits)]
    o.node("Clip", [o.name("x"), *names])


def _onnx_max_pool(o):
    o.node(
        "MaxPool",
        [o.name("x")],
        kernel_shape=o.numbers("kernel_sizes"),
        strides=o.numbers("strides", [1, 1]),
        pads=_onnx_pads(o),
    )


def _onnx_batch_norm(o):
    names = [o.name(name) for name in ("x", "gamma", "beta", "mean", "variance")]
    o.node("BatchNormalization", names, epsilon=float(o.value("epsilon", 1e-5)))


def _onnx_reshape(o):
    shape = np.int64(o.inputs["shape"].val)
    o.node("Reshape", [o.name("x"), o.constant("shape", shape)])


def _onnx_repeated(o):
    factors = o.value("scale_factor_height", 1), o.value("scale_factor_width", 1)
    scales = o.constant("scales", np.float32([1, 1, *factors]))
    o.node(
        "Resize",
        [o.name("x"), "", scales],
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


def _onnx_bilinear(o):
    if o.value("sampling_mode") != "UNALIGN_CORNERS":
        raise InvalidStateError(
            "The Core ML file resizes in another way than the model"
        )
    x = o.inputs["x"]
    size = [o.value(f"target_size_{side}") for side in ("height", "width")]
    sizes = o.constant("sizes", np.int64([*x.shape[:2], *size]))
    mode = "half_pixel"
    names = [o.name("x"), "", "", sizes]
    o.node("Resize", names, mode="linear", coordinate_transformation_mode=mode)


def _onnx_slice(o):
    x = o.inputs["x"]
    begins, ends = o.numbers("begin"), o.numbers("end")
    strides = o.numbers("stride", [1] * x.rank)
    for name, limits, whole in (("begin_mask", begins, 0), ("end_mask", ends, None)):
        mask = o.value(name)
        for axis in np.flatnonzero([] if mask is None else mask):
            limits[axis] = x.shape[axis] if whole is None else whole
    values = [begins, ends, list(range(x.rank)), strides]
    names = [o.constant(f"slice{i}", np.int64(v)) for i, v in enumerate(values)]
    o.node("Slice", [o.name("x"), *names])


def _onnx_pad(o):
    before, after = np.reshape(o.numbers("pad"), (-1, 2)).T
    missing = [0] * (o.inputs["x"].rank - len(before))
    pads = o.constant("pads", np.int64([*missing, *before, *missing, *after]))
    value = o.constant("value", np.float32(o.value("constant_val", 0)))
    o.node("Pad", [o.name("x"), pads, value], mode=str(o.value("mode", "constant")))


def _onnx_reduced(kind):
    """Returns a converter for reductions, whose axes are an attribute in opset 17."""

    def write(o):
        keep = int(bool(o.value("keep_dims", False)))
        o.node(kind, [o.name("x")], axes=o.numbers("axes"), keepdims=keep)

    return write


def _onnx_concat(o):
    names = [o.name_of(value) for value in o.inputs["values"]]
    o.node("Concat", names, axis=int(o.value("axis")))


def _onnx_silu(o):
    inner = f"{o.outputs[0]}/sigmoid"
    o.node("Sigmoid", [o.name("x")], [inner])
    o.node("Mul", [o.name("x"), inner])


def _onnx_argmax(o):
    keep = int(bool(o.value("keep_dims", True)))
    o.node("ArgMax", [o.name("x")], axis=int(o.value("axis", -1)), keepdims=keep)


def _onnx_one_hot(o):
    depth = o.constant("depth", np.int64(o.value("one_hot_vector_size")))
    limits = o.value("off_value", 0), o.value("on_value", 1)
    values = o.constant("values", np.float32(limits))
    axis = int(o.value("axis", -1))
    o.node("OneHot", [o.name("indices"), depth, values], axis=axis)


_TO_ONNX = {
    "add": _same("Add", "x", "y"),
    "batch_norm": _onnx_batch_norm,
    "cast": _same("Identity", "x"),
    "clip": _onnx_clip,
    "concat": _onnx_concat,
    "conv": _onnx_convolution,
    "exp": _same("Exp", "x"),
    "max_pool": _onnx_max_pool,
    "minimum": _same("Min", "x", "y"),
    "mul": _same("Mul", "x", "y"),
    "one_hot": _onnx_one_hot,
    "pad": _onnx_pad,
    "real_div": _same("Div", "x", "y"),
    "reduce_argmax": _onnx_argmax,
    "reduce_mean": _onnx_reduced("ReduceMean"),
    "relu": _same("Relu", "x"),
    "relu6": lambda o: _onnx_clip(o, 0, 6),
    "reshape": _onnx_reshape,
    "resize_bilinear": _onnx_bilinear,
    "sigmoid": _same("Sigmoid", "x"),
    "silu": _onnx_silu,
    "slice_by_index": _onnx_slice,
    "softplus": _same("Softplus", "x"),
    "sub": _same("Sub", "x", "y"),
    "tanh": _same("Tanh", "x"),
    "transpose": lambda o: o.node("Transpose", [o.name("x")], perm=o.numbers("perm")),
    "upsample_nearest_neighbor": _onnx_repeated,
}
