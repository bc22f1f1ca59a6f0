"""Files of PyTorch, `.pth` and `.safetensors`, read without running code of theirs."""

from __future__ import annotations

import dataclasses
import functools
import io
import math
import pathlib
import pickletools
import re
import struct
import zipfile
import zlib

import ml_dtypes  # gives NumPy the type bfloat16
import numpy as np

from effdet_keras._internal.optional_imports import safetensors
from effdet_keras.errors import InvalidValueError

PICKLE_ENDINGS = (".pth", ".pt")
ZIP_MAGIC, PICKLE_MAGIC = b"PK\x03\x04", b"\x80"  # how files of `torch.save` begin

# What the readers below raise on damaged bytes.
_DAMAGES = (
    *(zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError),
    *(LookupError, TypeError, AttributeError, OverflowError, MemoryError),
    *(AssertionError, NotImplementedError, struct.error),
)

_MAGIC_NUMBER = 0x1950A86A20F9469CFC6C  # of files before the zip archive
_MOST_REPEATED = 1 << 20  # numbers, of a tensor larger than its storage


def read_torch_file(path):
    """Reads a `.safetensors` file, or any other file as one of `torch.save`."""
    path = pathlib.Path(path)
    is_safetensors = path.suffix == ".safetensors"
    return read_safetensors(path) if is_safetensors else read_torch_pickle(path)


def read_safetensors(path):
    """Reads the arrays of a `.safetensors` file.

    Example:
        >>> import numpy as np, tempfile
        >>> from safetensors.numpy import save_file
        >>> path = f"{tempfile.mkdtemp()}/some.safetensors"
        >>> save_file({"bias": np.ones(2)}, path)
        >>> read_safetensors(path)
        {'bias': array([1., 1.])}
    """
    safetensors.require("Reading `.safetensors` files")
    with open(path, "rb"):  # what cannot be opened is not damaged
        pass
    content = {}
    try:
        with safetensors.safe_open(path, framework="np") as file:
            for name in file.keys():  # noqa: SIM118, it is not a dict
                content[name] = _safetensor(file, name)
    except (safetensors.SafetensorError, ValueError, OverflowError) as error:
        raise InvalidValueError(damaged(path, error)) from error
    return content


def _safetensor(file, name):
    """A tensor as NumPy array, or None if NumPy has no such type of numbers."""
    try:
        return file.get_tensor(name)
    except (TypeError, AttributeError, KeyError):
        return None


def read_torch_pickle(path):
    """Reads a file of `torch.save`, tensors and plain values alone, without torch.

    The file is a zip archive, or as torch before 1.6 wrote it: several pickles, and
    then the numbers. Tensors in dicts that lie deeper than one are not read.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "some.pth")
        >>> _ = path.write_bytes(b"PK and no more")
        >>> read_torch_pickle(path)
        Traceback (most recent call last):
            ...
        effdet_keras.errors.InvalidValueError: '...some.pth' is damaged, ...
    """
    with open(path, "rb") as file:
        is_zip = file.read(2) == b"PK"
        file.seek(0)
        try:
            return _read_zip(file) if is_zip else _read_before_zip(file.read())
        except CodeNeededError as error:
            raise InvalidValueError(_needs_code(path, error)) from error
        except _DAMAGES as error:
            raise InvalidValueError(damaged(path, error)) from error


def _read_zip(file):
    """A zip archive: `<any>/data.pkl`, and the numbers in `<any>/data/<key>`."""
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        pickles = [name for name in names if name.split("/")[-1] == "data.pkl"]
        if len(pickles) != 1:
            raise InvalidValueError("it is a zip archive, and not of `torch.save`")
        root = pickles[0].removesuffix("data.pkl")
        if f"{root}constants.pkl" in names:
            raise InvalidValueError("it is a TorchScript program")
        order = f"{root}byteorder"
        _check_order(order not in names or _entry(archive, order) == b"little")
        content = read_pickle(io.BytesIO(_entry(archive, pickles[0])))
        read = functools.cache(lambda key: _entry(archive, f"{root}data/{key}"))
        return _flat(content, lambda s: np.frombuffer(read(s.key), s.dtype))


def _entry(archive, name):
    if archive.getinfo(name).compress_type != zipfile.ZIP_STORED:
        raise InvalidValueError(f"'{name}' is compressed")
    try:
        return archive.read(name)
    except zipfile.BadZipFile as error:
        raise InvalidValueError(f"bad checksum of '{name}'") from error


def _read_before_zip(data):
    """Pickles of magic number, version, machine, content and keys; then the numbers."""
    stream, storages = io.BytesIO(data), {}
    if read_pickle(stream) != _MAGIC_NUMBER:
        raise InvalidValueError("it is a pickle, and not of `torch.save`")
    _, machine = read_pickle(stream), read_pickle(stream)
    _check_order(machine["little_endian"])
    content, keys = read_pickle(stream, storages), read_pickle(stream)
    numbers, place = {}, stream.tell()
    for key in keys:  # before the numbers of each stands how many there are
        dtype = storages[key].dtype
        (count,) = struct.unpack_from("<Q", data, place)
        numbers[key] = np.frombuffer(data, dtype, count, place + 8)
        place += 8 + numbers[key].nbytes
    return _flat(content, lambda storage: numbers[storage.key])


def _check_order(is_little):
    if not is_little:
        raise InvalidValueError("it is of a machine with another order of bytes")


def _flat(content, numbers_of):
    """The entries of a checkpoint and of the dicts in it, as "entry.name"."""
    if not isinstance(content, dict):
        kind = type(content).__name__.removeprefix("Stored")
        raise InvalidValueError(f"it holds a {kind}, not a state dict")
    flat = {}
    for name, value in content.items():
        if isinstance(value, dict):
            flat.update({f"{name}.{inner}": v for inner, v in value.items()})
        else:
            flat[str(name)] = value
    return {
        name: _array(value, numbers_of) if isinstance(value, StoredTensor) else value
        for name, value in flat.items()
    }


def _array(tensor, numbers_of):
    storage = tensor.storage
    numbers = numbers_of(storage)[storage.start : storage.start + storage.count]
    if len(numbers) != storage.count:
        raise InvalidValueError(f"numbers are missing in '{storage.key}'")
    if math.prod(tensor.shape) > max(storage.count, _MOST_REPEATED):
        raise InvalidValueError("a tensor repeats its numbers without end")
    strides = [stride * storage.dtype.itemsize for stride in tensor.strides]
    return np.lib.stride_tricks.as_strided(
        numbers[tensor.offset :], tensor.shape, strides, writeable=False
    )


def _needs_code(path, name):
    return (
        f"'{path}' is a pickle that needs Python code to be read ('{name}'), which can "
        "do anything: it is not loaded. If you trust its author, make a plain state "
        "dict of it where it was written: "
        "`torch.save(model.state_dict(), 'plain.pth')`."
    )


def damaged(path, reason):
    """The message about a file that cannot be what its name says."""
    reason = str(reason).strip().split("\n")[0][:200]
    return (
        f"'{path}' is damaged, or not a state dict of PyTorch ({reason}). "
        "Fetch it again, or save it again with "
        "`torch.save(model.state_dict(), 'plain.pth')`."
    )


# --- The pickles inside files of `torch.save`, as plain data: no code of them runs.

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

    Example:
        >>> import io, os, pickle
        >>> read_pickle(io.BytesIO(pickle.dumps({"epoch": 3})))
        {'epoch': 3}
        >>> read_pickle(io.BytesIO(pickle.dumps(os.system)))
        Traceback (most recent call last):
            ...
        effdet_keras.weights.kinds.torch_files.CodeNeededError: posix.system
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
