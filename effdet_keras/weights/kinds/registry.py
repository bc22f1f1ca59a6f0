"""The kinds of weights files there are: which one a file is of, and its reader.

A new kind is one file beside this one, with a `Kind`, and one line in `KINDS`.
"""

import pathlib

from effdet_keras.errors import InvalidValueError
from effdet_keras.weights.kinds import automl, keras_h5, own, torch_state_dict

# Asked in this order: our own HDF5 files before those of Keras 2.
KINDS = (automl.KIND, own.KIND, keras_h5.KIND, torch_state_dict.KIND)
_HEAD = 16  # bytes, enough to tell the formats apart


def open_weights(path, averages=True):
    """Reads a file of weights, of whatever kind it is.

    The content tells the kind; the ending of the name decides only between files
    that begin alike.

    Args:
        path: path of one file, or the prefix of a TensorFlow checkpoint; what
            `locate.located` yields.
        averages: bool, whether to take moving averages where there are any.

    Returns:
        `WeightSource`.

    Raises:
        FileNotFoundError: If there is no such file.
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
    head = _head(path)
    for kind in KINDS:
        if kind.is_of(path, head):
            return kind.read(path, averages)
    if not path.exists():
        raise FileNotFoundError(f"There is no file of weights '{path}'")
    titles = "; ".join(kind.title for kind in KINDS)
    raise InvalidValueError(
        f"'{path}' holds no weights of a known kind. Known are {titles}; a "
        "`.tar.gz` of any of these; and the http(s) address of one."
    )


def _head(path):
    if not path.is_file():
        return b""
    with open(path, "rb") as file:
        return file.read(_HEAD)
