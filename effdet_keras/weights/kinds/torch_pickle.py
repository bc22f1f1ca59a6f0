"""The pickles inside files of `torch.save`, read as plain data: no code of them runs.

A pickle is a program for a small stack machine. Python's own machine calls whatever
functions the program names; this one knows the names below and nothing else, and makes
plain values of them: dicts, lists, numbers, strings and `StoredTensor`.
"""

import dataclasses
import pickletools
import re

import ml_dtypes
import numpy as np

from effdet_keras.errors import InvalidValueError

# The types of numbers, by the names of torch's storages.
_STORAGES = {
    **{"torch.DoubleStorage": np.float64, "torch.FloatStorage": np.float32},
    **{"torch.HalfStorage": np.float16, "torch.BFloat16Storage": ml_dtypes.bfloat16},
    **{"torch.LongStorage": np.int64, "torch.IntStorage": np.int32},
    **{"torch.ShortStorage": np.int16, "torch.CharStorage": np.int8},
    **{"torch.ByteStorage": np.uint8, "torch.BoolStorage": np.bool_},
    **{"torch.ComplexFloatStorage": np.complex64},
    **{"torch.ComplexDoubleStorage": np.complex128},
}
_DTYPE = re.compile(r"torch\.(b?float|u?int|complex|bool)\d*")
_PLAIN_KEYS = (str, int, float, bytes, type(None))  # bool is an int


class CodeNeededError(Exception):
    """A pickle names a function or class that only its own code could give."""


class Unread:
    """Stands where a file has an object that is of no use here."""


@dataclasses.dataclass(frozen=True)
class Storage:
    """Numbers in the file, of which tensors are views.

    Attributes:
        key: string, the name of the numbers in the file.
        dtype: NumPy dtype.
        count: int, how many numbers there are.
        start: int, the first of them, where a storage is a part of another.
    """

    key: str
    dtype: np.dtype
    count: int
    start: int = 0


@dataclasses.dataclass(frozen=True)
class StoredTensor:
    """Which numbers of a storage a tensor consists of.

    Attributes:
        storage: `Storage`.
        offset: int, its first number.
        shape, strides: tuples of ints, in numbers.
    """

    storage: Storage
    offset: int
    shape: tuple
    strides: tuple


def read_pickle(stream, storages=None):
    """Reads one pickle as plain data.

    Args:
        stream: binary file object, whose place is left behind the pickle.
        storages: dict that gets a `Storage` for each key, or None.

    Returns:
        Dict, list, tuple, set, number, string, bytes, None, `StoredTensor` or
        `Unread`.

    Raises:
        CodeNeededError: If the pickle names a function or class that is not known to
            be harmless.
        ValueError, LookupError, TypeError: If it is damaged.

    Example:
        >>> import io, os, pickle
        >>> read_pickle(io.BytesIO(pickle.dumps({"epoch": 3})))
        {'epoch': 3}
        >>> read_pickle(io.BytesIO(pickle.dumps(os.system)))
        Traceback (most recent call last):
            ...
        effdet_keras.weights.kinds.torch_pickle.CodeNeededError: posix.system
    """
    machine = _Machine({} if storages is None else storages)
    for opcode, argument, _ in pickletools.genops(stream):
        if opcode.name in _VALUES:
            machine.stack.append(argument)
        elif opcode.name in _CONSTANTS:
            machine.stack.append(_CONSTANTS[opcode.name]())
        elif opcode.name == "STOP":
            return machine.stack.pop()
        elif opcode.name not in _IGNORED:
            if opcode.name not in _STEPS:  # such as INST, which makes an object
                raise CodeNeededError(f"{opcode.name} {argument}")
            _STEPS[opcode.name](machine, argument)
    raise InvalidValueError("the pickle has no end")


# What the names in a pickle stand for.


def _tensor(storage, offset, shape, strides, *_):
    """`torch._utils._rebuild_tensor` and `_rebuild_tensor_v2`."""
    numbers = (offset, *shape, *strides)
    if not isinstance(storage, Storage) or len(shape) != len(strides):
        raise InvalidValueError(
            "a tensor without storage, or without a stride per axis"
        )
    if not all(type(n) is int and n >= 0 for n in numbers):
        raise InvalidValueError("a tensor with negative sides")
    last = offset + sum((n - 1) * stride for n, stride in zip(shape, strides))
    if 0 not in shape and last >= storage.count:
        raise InvalidValueError("a tensor that is larger than its storage")
    return StoredTensor(storage, offset, tuple(shape), tuple(strides))


def _parameter(tensor, *_):
    """`torch._utils._rebuild_parameter`: a tensor, and what training needs."""
    return tensor


def _dict(pairs=()):
    """`collections.OrderedDict`."""
    content = {}
    for key, value in pairs.items() if isinstance(pairs, dict) else pairs:
        content[_checked_key(key)] = value
    return content


def _tuple(values=()):
    """`torch.Size`."""
    return tuple(values)


def _unread(*_):
    return Unread()


_BUILDERS = {
    "collections.OrderedDict": _dict,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter,
    "torch.Size": _tuple,
    # What timm and others write into training checkpoints beside the weights.
    **dict.fromkeys(
        (
            *("argparse.Namespace", "torch.device", "collections.Counter"),
            *("numpy.dtype", "numpy.dtypes.Float64DType", "_codecs.encode"),
            *("numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar"),
        ),
        _unread,
    ),
}


@dataclasses.dataclass(frozen=True)
class _Name:
    """A name in a pickle. It is looked up in the tables above, and never imported."""

    name: str

    def build(self, arguments):
        if self.name not in _BUILDERS:
            raise InvalidValueError(f"'{self.name}' is called, and is no function")
        return _BUILDERS[self.name](*arguments)


def _known_name(name):
    if name in _BUILDERS or name in _STORAGES or _DTYPE.fullmatch(name):
        return _Name(name)
    raise CodeNeededError(name)


def _storage(reference):
    """What a reference to numbers outside of the pickle says about them."""
    kind, storage_type, key, _, count, *view = reference
    name = getattr(storage_type, "name", None)
    if kind != "storage" or name not in _STORAGES:
        raise InvalidValueError(f"a reference to something unknown, '{kind}' '{name}'")
    start = 0
    if view and view[0] is not None:
        _, start, count = view[0]
    if not all(type(n) is int and n >= 0 for n in (start, count)):
        raise InvalidValueError("a storage with negative sides")
    return Storage(str(key), np.dtype(_STORAGES[name]), count, start)


def _checked_key(key):
    """A key of a dict, if hashing it is harmless."""
    if isinstance(key, _PLAIN_KEYS):
        return key
    if isinstance(key, tuple) and all(isinstance(k, _PLAIN_KEYS) for k in key):
        return key
    raise InvalidValueError(f"a dict with a key of type {type(key).__name__}")


# The stack machine.


class _Machine:
    """The state while a pickle is read."""

    def __init__(self, storages):
        self.stack, self.marks, self.memo = [], [], {}
        self.storages = storages

    def pop_to_mark(self):
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def pop(self, count):
        """The `count` topmost values, the deepest first."""
        if count > len(self.stack):
            raise InvalidValueError("the pickle takes a value that is not there")
        values = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return values

    def set_items(self, values):
        target = self.stack[-1]
        if isinstance(target, dict):
            target.update(_dict(zip(values[::2], values[1::2], strict=True)))
        elif not isinstance(target, Unread):
            raise InvalidValueError(f"items for a {type(target).__name__}")

    def extend(self, values):
        target = self.stack[-1]
        if isinstance(target, list):
            target.extend(values)
        elif not isinstance(target, Unread):
            raise InvalidValueError(f"entries for a {type(target).__name__}")

    def build(self):
        function, arguments = self.pop(2)
        if not isinstance(function, _Name) or not isinstance(arguments, tuple):
            raise InvalidValueError(f"a {type(function).__name__} is called")
        self.stack.append(function.build(arguments))

    def build_with_keywords(self):
        self.pop(1)
        self.build()

    def refer(self):
        storage = _storage(*self.pop(1))
        self.storages[storage.key] = storage
        self.stack.append(storage)

    def name(self):
        self.stack.append(_known_name(".".join(map(str, self.pop(2)))))


def _push(make):
    def step(machine, argument):
        machine.stack.append(make(machine, argument))

    return step


def _remember(machine, index):
    machine.memo[int(index)] = machine.stack[-1]


# Values that stand in the pickle itself.
_VALUES = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"),
    *("FLOAT", "BINFLOAT", "STRING", "BINSTRING", "SHORT_BINSTRING"),
    *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
}
_CONSTANTS = {
    **{"NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False},
    **{"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple},
    "EMPTY_SET": Unread,
}
_IGNORED = ("PROTO", "FRAME")


_STEPS = {
    "MARK": lambda m, _: m.marks.append(len(m.stack)),
    "POP": lambda m, _: m.pop(1),
    "POP_MARK": lambda m, _: m.pop_to_mark(),
    "DUP": _push(lambda m, _: m.stack[-1]),
    "TUPLE": _push(lambda m, _: tuple(m.pop_to_mark())),
    "TUPLE1": _push(lambda m, _: tuple(m.pop(1))),
    "TUPLE2": _push(lambda m, _: tuple(m.pop(2))),
    "TUPLE3": _push(lambda m, _: tuple(m.pop(3))),
    "LIST": _push(lambda m, _: m.pop_to_mark()),
    "FROZENSET": _push(lambda m, _: m.pop_to_mark() and Unread()),
    "ADDITEMS": lambda m, _: m.pop_to_mark(),
    "SETITEM": lambda m, _: m.set_items(m.pop(2)),
    "SETITEMS": lambda m, _: m.set_items(m.pop_to_mark()),
    "APPEND": lambda m, _: m.extend(m.pop(1)),
    "APPENDS": lambda m, _: m.extend(m.pop_to_mark()),
    "PUT": _remember,
    "BINPUT": _remember,
    "LONG_BINPUT": _remember,
    "MEMOIZE": lambda m, _: _remember(m, len(m.memo)),
    "GET": _push(lambda m, index: m.memo[index]),
    "BINGET": _push(lambda m, index: m.memo[index]),
    "LONG_BINGET": _push(lambda m, index: m.memo[index]),
    "GLOBAL": _push(lambda m, name: _known_name(name.replace(" ", "."))),
    "STACK_GLOBAL": lambda m, _: m.name(),
    "REDUCE": lambda m, _: m.build(),
    "NEWOBJ": lambda m, _: m.build(),
    "NEWOBJ_EX": lambda m, _: m.build_with_keywords(),
    "BUILD": lambda m, _: m.pop(1),  # the state of an object, such as `_metadata`
    "BINPERSID": lambda m, _: m.refer(),
}
