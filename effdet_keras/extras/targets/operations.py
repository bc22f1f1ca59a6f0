"""The operations of a `.tflite` file: their names, versions and types."""

from __future__ import annotations

import dataclasses

from effdet_keras._internal.optional_imports import OptionalModule
from effdet_keras.errors import InvalidValueError

_schema = OptionalModule(
    "tensorflow.lite.python.schema_py_generated", install="tensorflow"
)
_flatbuffer_utils = OptionalModule(
    "tensorflow.lite.tools.flatbuffer_utils", install="tensorflow"
)


@dataclasses.dataclass(frozen=True)
class Operation:
    """One kind of operation in a file.

    Attributes:
        name: string, such as "CONV_2D", or the name of a custom operation.
        version: int.
        is_custom: bool.
        types: frozenset of strings, of all its tensors that are no constants, such as
            "INT8".
        is_static: bool, whether every tensor of it has a fixed shape.
        count: int, how often it is there.
    """

    name: str
    version: int
    is_custom: bool
    types: frozenset[str]
    is_static: bool
    count: int


def operations_of(path):
    """The operations of a file, each kind once.

    Args:
        path: of a `.tflite` file.

    Returns:
        List of `Operation`, in the order of the first of each kind.
    """
    model = _flatbuffer_utils.convert_bytearray_to_object(bytearray(path.read_bytes()))
    found: dict = {}
    for graph in model.subgraphs:
        for operator in graph.operators:
            code = model.operatorCodes[operator.opcodeIndex]
            tensors = [graph.tensors[i] for i in operator.inputs if i >= 0]
            tensors = [t for t in tensors if not _is_constant(model, t)]
            tensors += [graph.tensors[i] for i in operator.outputs]
            types = frozenset(_type_names()[tensor.type] for tensor in tensors)
            key = (operator.opcodeIndex, types)
            is_static = not any(_is_dynamic(tensor) for tensor in tensors)
            found.setdefault(key, []).append((code, is_static))
    return [_operation(types, found) for (_, types), found in found.items()]


def _operation(types, found):
    code = found[0][0]
    is_custom = code.customCode is not None
    return Operation(
        name=code.customCode.decode() if is_custom else _names()[_builtin(code)],
        version=code.version,
        is_custom=is_custom,
        types=types,
        is_static=all(is_static for _, is_static in found),
        count=len(found),
    )


def _builtin(code):
    """Numbers above 127 are in a second field."""
    return max(code.builtinCode, code.deprecatedBuiltinCode)


def _is_constant(model, tensor):
    data = model.buffers[tensor.buffer].data
    return data is not None and len(data) > 0


def _is_dynamic(tensor):
    return tensor.shapeSignature is not None and -1 in tensor.shapeSignature


def _names():
    return _by_number(_schema.BuiltinOperator)


def _type_names():
    return _by_number(_schema.TensorType)


def _by_number(enumeration):
    return {v: n for n, v in vars(enumeration).items() if isinstance(v, int)}


# --- What `edgetpu_compiler` 16 takes, and what of it the Edge TPU runs.

# Operation to its newest version that the compiler parses.
NEWEST_VERSIONS = {
    "ADD": 3,
    "AVERAGE_POOL_2D": 3,
    "CONCATENATION": 3,
    "CONV_2D": 5,
    "DEPTHWISE_CONV_2D": 6,
    "DEQUANTIZE": 4,
    "EXPAND_DIMS": 1,
    "FULLY_CONNECTED": 9,
    "HARD_SWISH": 1,
    "LOGISTIC": 3,
    "MAXIMUM": 4,
    "MAX_POOL_2D": 3,
    "MEAN": 3,
    "MINIMUM": 4,
    "MUL": 4,
    "PACK": 3,
    "PAD": 3,
    "PADV2": 3,
    "QUANTIZE": 2,
    "RELU": 3,
    "RELU6": 3,
    "RESHAPE": 1,
    "RESIZE_BILINEAR": 4,
    "RESIZE_NEAREST_NEIGHBOR": 4,
    "SLICE": 5,
    "SPLIT": 4,
    "STRIDED_SLICE": 5,
    "SUB": 5,
    "SUM": 2,
    "TRANSPOSE": 5,
}

# Of these, what the Edge TPU runs itself, in 8 bits.
_ON_THE_CHIP = frozenset(NEWEST_VERSIONS) - {"DEQUANTIZE", "HARD_SWISH", "PADV2"}
_CUSTOM = "TFLite_Detection_PostProcess"  # the compiler leaves it to the CPU
# An operation on these is one in 8 bits: INT32 are biases and sizes.
_QUANTIZED = frozenset(("INT8", "UINT8", "INT32"))


def require_compilable(operations):
    """Refuses a file that `edgetpu_compiler` 16 would refuse as a whole.

    Args:
        operations: list of `Operation`.

    Raises:
        ValueError: If one is unknown or too new, or has a shape that is not fixed. It
            names all of them.
    """
    problems = []
    for operation in operations:
        known = {_CUSTOM: 1} if operation.is_custom else NEWEST_VERSIONS
        newest = known.get(operation.name)
        if newest is None:
            problems.append(f"{operation.name} is unknown to it")
        elif operation.version > newest:
            problems.append(
                f"{operation.name} is of version {operation.version}, above {newest}"
            )
        elif not operation.is_static:
            problems.append(f"{operation.name} has a shape that is not fixed")
    if problems:
        raise InvalidValueError(
            f"edgetpu_compiler 16 would refuse the file: {'; '.join(problems)}. "
            "Nothing was written. Train a plain `efficientdet-lite0` to `-lite3`, or "
            "export with an older TensorFlow."
        )


def operations_on_cpu(operations):
    """What the compiler leaves to the CPU.

    Args:
        operations: list of `Operation`.

    Returns:
        List of strings, such as "DEQUANTIZE (2)".
    """
    counts: dict = {}
    for operation in operations:
        runs = operation.name in _ON_THE_CHIP and operation.types <= _QUANTIZED
        if not runs:
            counts[operation.name] = counts.get(operation.name, 0) + operation.count
    return [f"{name} ({count})" for name, count in counts.items()]
