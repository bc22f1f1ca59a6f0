"""Reads PyTorch files, `.pth` and `.safetensors`, without running code from them."""

from __future__ import annotations

import functools
import io
import math
import os
import pathlib
import pickle
import re
import struct
import zipfile
from collections import OrderedDict
from typing import NamedTuple

import ml_dtypes  # adds the dtype bfloat16 to NumPy
import numpy as np

from effdet_keras._internal.optional_imports import safetensors
from effdet_keras._internal.unpacking import (
    UnpackedSizeError,
    check_unpacked_size,
    open_zip,
)
from effdet_keras.errors import InvalidValueError, first_line

_MAGIC_NUMBER = 0x1950A86A20F9469CFC6C  # of the format before zip archives


def read_torch_file(path):
    """Reads a `.safetensors` file, or any other file as a file of `torch.save`."""
    path = pathlib.Path(path)
    is_safetensors = path.suffix == ".safetensors"
    return read_safetensors(path) if is_safetensors else read_torch_pickle(path)


def read_safetensors(path):
    safetensors.require("Reading `.safetensors` files")
    try:
        with safetensors.safe_open(path, framework="np") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (safetensors.SafetensorError, ValueError, OverflowError) as error:
        raise InvalidValueError(damaged(path, error)) from error


def read_torch_pickle(path):
    """Reads tensors and plain values of a file of `torch.save`, without torch.

    Raises:
        ValueError: If the file is damaged, or needs other code to be read.
    """
    with open(path, "rb") as file:
        try:
            is_zip = zipfile.is_zipfile(file)
            file.seek(0)
            return _read_zip(file, path) if is_zip else _read_before_zip(file, path)
        except _CodeNeededError as error:
            raise InvalidValueError(
                f"'{path}' was not loaded: it is a pickle that needs Python code "
                f"('{error}') to be read, and such code can do anything. If you trust "
                "its author, write a plain state dict where the file was made: "
                "`torch.save(model.state_dict(), 'plain.pth')`."
            ) from error
        except UnpackedSizeError:
            raise
        except Exception as error:  # damaged files can cause almost any exception
            raise InvalidValueError(damaged(path, error)) from error


def damaged(path, reason):
    return (
        f"'{path}' is damaged, or is not a state dict of PyTorch "
        f"({first_line(reason)}). Download it again, or save it again with "
        "`torch.save(model.state_dict(), 'plain.pth')`."
    )


def _read_zip(file, path):
    """Reads a zip archive: `<any>/data.pkl`, and the numbers in `<any>/data/<key>`."""
    with open_zip(file, path) as archive:
        names = archive.namelist()
        pickles = [name for name in names if name.endswith("data.pkl")]
        if not pickles:
            raise InvalidValueError("it is a zip file without a data.pkl")
        root = pickles[0].removesuffix("data.pkl")
        reader = _Unpickler(io.BytesIO(archive.read(f"{root}data.pkl")))
        content = reader.load()
        is_swapped = _is_big_endian(archive, f"{root}byteorder")

        @functools.cache
        def read(key):
            numbers = archive.read(f"{root}data/{key}")
            return _swapped(numbers, reader.dtypes[key]) if is_swapped else numbers

        return _flat(content, read, _Limit(file, path))


def _is_big_endian(archive, entry):
    """Returns whether the numbers of a zip archive are big-endian.

    The entry states the byte order of the machine that wrote the file. Files written
    before torch 2.1 do not have it, and are read as little-endian, as torch does.
    """
    order = archive.read(entry) if entry in archive.namelist() else b"little"
    if order not in (b"little", b"big"):
        raise InvalidValueError(f"its byte order is {order[:20]!r}")
    return order == b"big"


def _swapped(numbers, dtype):
    """Returns the numbers with their bytes in reverse order."""
    return np.frombuffer(numbers, f"u{dtype.itemsize}").byteswap()


def _read_before_zip(file, path):
    """Reads the format before zip archives.

    It consists of pickles of the magic number, version, machine, content and keys,
    followed by the numbers. These are little-endian, whatever machine wrote the file.
    """
    data = file.read()
    stream = io.BytesIO(data)
    if _Unpickler(stream).load() != _MAGIC_NUMBER:
        raise InvalidValueError("it is a pickle that `torch.save` did not write")
    _, _ = _Unpickler(stream).load(), _Unpickler(stream).load()
    reader = _Unpickler(stream)
    content, keys = reader.load(), _Unpickler(stream).load()
    numbers, place = {}, stream.tell()
    for key in keys:  # the numbers of each key follow their count
        (count,) = struct.unpack_from("<Q", data, place)
        end = place + 8 + count * reader.dtypes[key].itemsize
        numbers[key] = memoryview(data)[place + 8 : end]
        place = end
    return _flat(content, numbers.__getitem__, _Limit(file, path))


class _Limit:
    """Limits the bytes of tensors, which may use each number in a file many times."""

    def __init__(self, file, path):
        self._path, self._unpacked = path, 0
        self._packed = file.seek(0, os.SEEK_END)

    def count(self, tensor):
        self._unpacked += math.prod(tensor.shape) * tensor.storage[0].itemsize
        check_unpacked_size(self._path, self._unpacked, self._packed)


def _flat(content, numbers_of, limit):
    """Returns the entries of a checkpoint, and those of dicts in it as "entry.name"."""
    if not isinstance(content, dict):
        kind = type(content).__name__.removeprefix("_")
        raise InvalidValueError(f"it contains a {kind}, not a state dict")
    flat = {}
    for name, value in content.items():
        if isinstance(value, dict):
            flat.update({f"{name}.{inner}": v for inner, v in value.items()})
        else:
            flat[str(name)] = value
    for value in flat.values():
        if isinstance(value, _Tensor):
            limit.count(value)
    return {
        name: _array(value, numbers_of) if isinstance(value, _Tensor) else value
        for name, value in flat.items()
    }


def _array(tensor, numbers_of):
    """Returns a tensor as array; NumPy rejects reads outside of its storage."""
    dtype, key = tensor.storage
    strides = [stride * dtype.itemsize for stride in tensor.strides]
    offset = tensor.offset * dtype.itemsize
    return np.ndarray(tensor.shape, dtype, numbers_of(key), offset, strides)


# --- The pickles inside files of `torch.save`, read as plain data: no code runs.


class _CodeNeededError(Exception):
    """A pickle needs a function or class that is not in `_MEANINGS`."""


class _Tensor(NamedTuple):
    """A view of a storage, whose numbers are read later, when they are needed."""

    storage: tuple  # dtype of the numbers, and their key in the file
    offset: int
    shape: tuple
    strides: tuple  # counted in numbers, not in bytes


class _Unread:
    """Replaces an object in a file that is not needed here."""

    def _ignore(self, *_, **__):
        pass

    __init__ = __setstate__ = __setitem__ = append = extend = _ignore


def _tensor(storage, offset, shape, strides, *_):
    return _Tensor(storage, offset, shape, strides)


def _parameter(tensor, *_):
    return tensor


# The replacements for the functions and classes that a pickle names.
_MEANINGS = {
    **{
        f"torch.{name}Storage": np.dtype(dtype)
        for name, dtype in {
            "Double": "float64",
            "Float": "float32",
            "Half": "float16",
            "BFloat16": ml_dtypes.bfloat16,
            "Bool": "bool",
            "Byte": "uint8",
            "Long": "int64",
            "Int": "int32",
            "Short": "int16",
            "Char": "int8",
        }.items()
    },
    "collections.OrderedDict": OrderedDict,
    "torch.Size": tuple,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_parameter": _parameter,
    # Objects that timm and others store in training checkpoints besides the weights.
    **dict.fromkeys(
        (
            "argparse.Namespace",
            "torch.device",
            "collections.Counter",
            "numpy.dtype",
            "numpy.dtypes.Float64DType",
            "_codecs.encode",
            "numpy.core.multiarray.scalar",
            "numpy._core.multiarray.scalar",
        ),
        _Unread,
    ),
}
_TORCH_DTYPE = re.compile(r"torch\.(b?float|u?int|complex|bool)\d*")


class _Unpickler(pickle.Unpickler):
    """An unpickler that resolves names only with the table `_MEANINGS`."""

    def __init__(self, stream):
        super().__init__(stream)
        self.dtypes = {}  # dtype of each storage, by its key

    def find_class(self, module, name):
        name = f"{module}.{name}"
        if _TORCH_DTYPE.fullmatch(name):
            return _Unread
        if name not in _MEANINGS:
            raise _CodeNeededError(name)
        return _MEANINGS[name]

    def persistent_load(self, reference):
        _, dtype, key, *_ = reference
        self.dtypes[key] = dtype
        return dtype, key
