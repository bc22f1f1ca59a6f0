"""Files of PyTorch, `.pth` and `.safetensors`, read without running code of theirs."""

from __future__ import annotations

import dataclasses
import functools
import io
import math
import pathlib
import pickle
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
    *(AssertionError, NotImplementedError, struct.error, pickle.UnpicklingError),
)

_MAGIC_NUMBER = 0x1950A86A20F9469CFC6C  # of files before the zip archive
_MOST_REPEATED = 1 << 20  # numbers, of a tensor larger than its storage


def read_torch_file(path):
    """Reads a `.safetensors` file, or any other file as one of `torch.save`."""
    path = pathlib.Path(path)
    is_safetensors = path.suffix == ".safetensors"
    return read_safetensors(path) if is_safetensors else read_torch_pickle(path)


def read_safetensors(path):
    """Reads the arrays of a `.safetensors` file."""
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
    """Reads a file of `torch.save`, tensors and plain values alone, without torch."""
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
        content = _Unpickler(io.BytesIO(_entry(archive, pickles[0]))).load()
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
    stream = io.BytesIO(data)
    if _Unpickler(stream).load() != _MAGIC_NUMBER:
        raise InvalidValueError("it is a pickle, and not of `torch.save`")
    _, machine = _Unpickler(stream).load(), _Unpickler(stream).load()
    _check_order(machine["little_endian"])
    reader = _Unpickler(stream)
    content, keys = reader.load(), _Unpickler(stream).load()
    numbers, place = {}, stream.tell()
    for key in keys:  # before the numbers of each stands how many there are
        dtype = reader.storages[key].dtype
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
        kind = type(content).__name__.removeprefix("_")
        raise InvalidValueError(f"it holds a {kind}, not a state dict")
    flat = {}
    for name, value in content.items():
        if isinstance(value, dict):
            flat.update({f"{name}.{inner}": v for inner, v in value.items()})
        else:
            flat[str(name)] = value
    return {
        name: _array(value, numbers_of) if isinstance(value, _Tensor) else value
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
    f"torch.{name}Storage": np.dtype(dtype)
    for name, dtype in {
        **{"Double": "float64", "Float": "float32", "Half": "float16"},
        **{"BFloat16": ml_dtypes.bfloat16, "Bool": "bool", "Byte": "uint8"},
        **{"Long": "int64", "Int": "int32", "Short": "int16", "Char": "int8"},
        **{"ComplexFloat": "complex64", "ComplexDouble": "complex128"},
    }.items()
}
_TORCH_DTYPE = re.compile(r"torch\.(b?float|u?int|complex|bool)\d*")
_PLAIN_KEYS = (str, int, float, bytes, type(None))  # bool is an int


class CodeNeededError(Exception):
    """A pickle names a function or class that only its own code could give."""


@dataclasses.dataclass(frozen=True)
class _Storage:
    """Numbers in the file, of which tensors are views."""

    key: str  # their name in the file
    dtype: np.dtype
    count: int
    start: int  # the first of them, where a storage is a part of another


@dataclasses.dataclass(frozen=True)
class _Tensor:
    """A view of a storage, whose numbers are read when they are wanted."""

    storage: _Storage
    offset: int
    shape: tuple
    strides: tuple  # in numbers


class _Dict(dict):
    """A dict that takes only keys which are harmless to hash."""

    def __init__(self, pairs=()):
        super().__init__()
        for key, value in pairs.items() if isinstance(pairs, dict) else pairs:
            self[key] = value

    def __setitem__(self, key, value):
        parts = key if isinstance(key, tuple) else (key,)
        if not all(isinstance(part, _PLAIN_KEYS) for part in parts):
            raise InvalidValueError(f"a dict with a key of type {type(key).__name__}")
        super().__setitem__(key, value)


class _Unread:
    """Stands where a file has an object that is of no use here."""

    def _ignore(self, *_, **__):
        pass

    __init__ = __setitem__ = append = extend = _ignore


def _tensor(storage, offset, shape, strides, *_):
    numbers = (offset, *shape, *strides)
    if not isinstance(storage, _Storage) or len(shape) != len(strides):
        raise InvalidValueError(
            "a tensor without storage, or without a stride per axis"
        )
    if not all(type(n) is int and n >= 0 for n in numbers):
        raise InvalidValueError("a tensor with negative sides")
    last = offset + sum((n - 1) * stride for n, stride in zip(shape, strides))
    if 0 not in shape and last >= storage.count:
        raise InvalidValueError("a tensor that is larger than its storage")
    return _Tensor(storage, offset, tuple(shape), tuple(strides))


def _parameter(tensor, *_):
    return tensor


# What the names in a pickle stand for.
_MEANINGS = {
    **_STORAGES,
    "collections.OrderedDict": _Dict,
    "torch.Size": tuple,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter,
    # What timm and others write into training checkpoints beside the weights.
    **dict.fromkeys(
        (
            *("argparse.Namespace", "torch.device", "collections.Counter"),
            *("numpy.dtype", "numpy.dtypes.Float64DType", "_codecs.encode"),
            *("numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar"),
        ),
        _Unread,
    ),
}


class _Unpickler(pickle._Unpickler):
    """Python's own reader, which takes the meaning of names from a table alone.

    The one that is written in C hashes any key and believes any index.
    """

    def __init__(self, stream):
        super().__init__(stream)
        self.storages = {}

    def find_class(self, module, name):
        name = f"{module}.{name}"
        if _TORCH_DTYPE.fullmatch(name):
            return _Unread
        if name not in _MEANINGS:
            raise CodeNeededError(name)
        return _MEANINGS[name]

    def get_extension(self, code):
        raise CodeNeededError(f"extension {code}")

    def persistent_load(self, reference):
        kind, dtype, key, _, count, *view = reference
        if kind != "storage" or not isinstance(dtype, np.dtype):
            raise InvalidValueError("a reference to something unknown")
        start = 0
        if view and view[0] is not None:
            _, start, count = view[0]
        if not all(type(n) is int and n >= 0 for n in (start, count)):
            raise InvalidValueError("a storage with negative sides")
        storage = _Storage(str(key), dtype, count, start)
        self.storages[storage.key] = storage
        return storage

    def _push_dict(self):
        self.append(_Dict())

    def _push_dict_of_items(self):
        items = self.pop_mark()
        self.append(_Dict(zip(items[::2], items[1::2], strict=True)))

    def _drop_state(self):  # of an object, such as `_metadata`
        self.stack.pop()

    dispatch = {
        **pickle._Unpickler.dispatch,
        pickle.EMPTY_DICT[0]: _push_dict,
        pickle.DICT[0]: _push_dict_of_items,
        pickle.BUILD[0]: _drop_state,
    }
    # No file of torch has a set, nor bytes that take as much memory as they are told.
    for opcode in (pickle.BYTEARRAY8, pickle.EMPTY_SET, pickle.FROZENSET):
        del dispatch[opcode[0]]
