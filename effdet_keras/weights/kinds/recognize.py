"""Finds out what kind of weights a file holds, and reads it."""

import pathlib

import h5py

from effdet_keras.errors import InvalidValueError
from effdet_keras.weights.kinds.automl import read_tensorflow_checkpoint
from effdet_keras.weights.kinds.keras_h5 import read_keras2_h5
from effdet_keras.weights.kinds.own import read_own_weights
from effdet_keras.weights.kinds.torch_effdet import ENDINGS, read_torch_effdet

KINDS = """\
google/automl's TF1 checkpoint or tf2 (object graph) checkpoint: `name.index` and
`name.data-...`, in a folder or named without the ending; its `.h5` file; PyTorch
effdet's `.pth` or `.safetensors`; Keras Applications' EfficientNet `_notop.h5`; our
own `.weights.h5`, `.keras` and archive folders; a `.tar.gz` of any of these; or an
http(s) address of one"""

_HDF5, _ZIP, _PICKLE = b"\x89HDF\r\n\x1a\n", b"PK\x03\x04", b"\x80"


def open_weights(path, averages=True):
    """Reads a file of weights, of whatever kind it is.

    The kind is told by the content; the name's ending decides only between
    PyTorch's forms.

    Args:
        path: path of one file, or the prefix of a TensorFlow checkpoint; what
            `locate.located` yields.
        averages: bool, whether to take moving averages where there are any.

    Returns:
        `WeightSource`.

    Raises:
        ValueError: If the file is damaged or of no known kind.
        ImportError: If a package is missing that reads this kind.

    Example:
        >>> import tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "notes.txt")
        >>> _ = path.write_text("no weights")
        >>> open_weights(path)
        Traceback (most recent call last):
            ...
        effdet_keras.errors.InvalidValueError: '...notes.txt' holds no weights ...
    """
    path = pathlib.Path(path)
    if path.with_name(path.name + ".index").exists():
        return read_tensorflow_checkpoint(path, averages)
    with open(path, "rb") as file:
        head = file.read(16)
    if head.startswith(_HDF5):
        read = read_own_weights if _is_own_h5(path) else read_keras2_h5
        return read(path, averages)
    if path.suffix == ".keras":
        return read_own_weights(path, averages)
    if path.suffix in ENDINGS or head.startswith((_ZIP, _PICKLE)):
        return read_torch_effdet(path, averages)
    raise InvalidValueError(
        f"'{path}' holds no weights of a known kind. Known are {KINDS}."
    )


def _is_own_h5(path):
    try:
        with h5py.File(path, "r") as root:
            return "layers" in root  # as Keras 3 arranges a model's weights
    except (OSError, RuntimeError, KeyError):  # damaged: the reader says how
        return path.name.endswith(".weights.h5")
