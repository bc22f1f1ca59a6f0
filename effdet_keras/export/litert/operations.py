"""The operations of a `.tflite` file: their names, versions and types."""

from __future__ import annotations

import dataclasses

from effdet_keras._internal.optional_imports import OptionalModule

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
