"""Files of PyTorch, `.pth` and `.safetensors`, read without running code of theirs."""

import pickle
import re
import struct
import zipfile
import zlib

import ml_dtypes  # noqa: F401 (gives NumPy the type bfloat16)

from effdet_keras._internal.optional_imports import safetensors
from effdet_keras._internal.optional_imports import torch as optional_torch
from effdet_keras.errors import InvalidValueError, MissingPackageError

PICKLE_ENDINGS = (".pth", ".pt")
ZIP_MAGIC, PICKLE_MAGIC = b"PK\x03\x04", b"\x80"  # how files of `torch.save` begin

# What torch's restricted unpickler raises on damaged bytes.
_DAMAGES = (
    *(zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError),
    *(LookupError, TypeError, AttributeError, OverflowError, MemoryError),
    *(AssertionError, NotImplementedError, struct.error, pickle.UnpicklingError),
)

# What timm writes into training checkpoints beside the weights.
_UNREAD = (
    *("argparse.Namespace", "numpy.dtype", "numpy.dtypes.Float64DType"),
    *("numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar"),
)


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
    """Reads a file of `torch.save`, tensors and plain values alone.

    Args:
        path: path of the file.

    Returns:
        Dict of name to tensor, or to whatever else there is. What lies in a dict of
        the file has the name "entry.name".

    Raises:
        ValueError: If the file is damaged, holds no dict, or needs Python code to be
            read.
        OSError: If it cannot be opened.
        ImportError: If torch is not installed, or is too old to read files safely.
    """
    torch = require_safe_torch()
    with open(path, "rb") as file:
        is_zip = file.read(2) == b"PK"
    unread = [(_Unread, name) for name in _UNREAD]
    try:
        if is_zip:
            _check_sums(path)  # torch itself skips them
        with torch.serialization.safe_globals(unread):
            content = torch.load(path, map_location="cpu", weights_only=True)
        return _flat(content)
    except _DAMAGES as error:
        code = re.search(r"GLOBAL ([\w.]+)", str(error))
        text = _needs_code(path, code[1]) if code else damaged(path, error)
        raise InvalidValueError(text) from error


def _check_sums(path):
    with zipfile.ZipFile(path) as archive:
        broken = archive.testzip()
    if broken is not None:
        raise InvalidValueError(f"bad checksum of '{broken}'")


class _Unread:
    """Stands where a checkpoint has an object that is of no use here."""

    def __new__(cls, *args):
        return super().__new__(cls)

    def __setstate__(self, state):
        pass


def _flat(content):
    """The entries of a checkpoint and of the dicts in it, as "entry.name"."""
    if not hasattr(content, "items"):
        raise InvalidValueError(
            f"it holds a {type(content).__name__}, not a state dict"
        )
    flat = {}
    for name, value in content.items():
        if hasattr(value, "items"):
            flat.update({f"{name}.{inner}": v for inner, v in value.items()})
        else:
            flat[str(name)] = value
    return flat


def require_safe_torch():
    """Imports torch, or raises `MissingPackageError` with the cure."""
    torch = optional_torch.require(
        "A file of `torch.save` (a `.safetensors` file of the same weights does not)"
    )
    if not hasattr(torch.serialization, "safe_globals"):
        # Before 2.6 `weights_only` could be made to run code (CVE-2025-32434).
        raise MissingPackageError(
            f"torch {torch.__version__} does not read files safely: "
            '`pip install "torch>=2.6"`.'
        )
    return torch


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
        f"'{path}' is damaged, or not a state dict of PyTorch effdet ({reason}). "
        "Fetch it again, or save it again with "
        "`torch.save(model.state_dict(), 'plain.pth')`."
    )
