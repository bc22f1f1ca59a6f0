"""Files of PyTorch, `.pth` and `.safetensors`, read without running code of theirs."""

import functools
import io
import math
import pathlib
import struct
import zipfile
import zlib

import ml_dtypes  # noqa: F401 (gives NumPy the type bfloat16)
import numpy as np

from effdet_keras._internal.optional_imports import safetensors
from effdet_keras.errors import InvalidValueError
from effdet_keras.weights.kinds.torch_pickle import (
    CodeNeededError,
    StoredTensor,
    read_pickle,
)

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
    """Reads a `.safetensors` file, or any other file as one of `torch.save`.

    Args:
        path: `pathlib.Path` of the file.

    Returns:
        Dict of name to NumPy array, or to whatever else there is.

    Raises:
        ValueError, OSError, ImportError: See the readers of both.
    """
    path = pathlib.Path(path)
    is_safetensors = path.suffix == ".safetensors"
    return read_safetensors(path) if is_safetensors else read_torch_pickle(path)


def read_safetensors(path):
    """Reads the arrays of a `.safetensors` file.

    Args:
        path: path of the file.

    Returns:
        Dict of name to NumPy array, or to None where NumPy lacks the type.

    Raises:
        ValueError: If the file is damaged.
        OSError: If it cannot be opened.
        ImportError: If safetensors is not installed.

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

    Args:
        path: path of the file.

    Returns:
        Dict of name to NumPy array, or to whatever else there is. What lies in a
        dict of the file has the name "entry.name".

    Raises:
        ValueError: If the file is damaged, holds no dict, or needs Python code to be
            read.
        OSError: If it cannot be opened.

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
