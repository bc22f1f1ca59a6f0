"""Arrays of an HDF5 file, read so that a damaged one is an error in words."""

import h5py
import ml_dtypes
import numpy as np

from effdet_keras.errors import InvalidValueError
from effdet_keras.weights.unpacked_size import largest_unpacked

HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"  # an HDF5 file begins with it

# What h5py raises on bytes that make no sense, depending on which they are.
_DAMAGES = (
    *(OSError, ValueError, KeyError, TypeError, RuntimeError, AttributeError),
    *(OverflowError, MemoryError, NotImplementedError),
)
_BEST_COMPRESSION = 1032  # of deflate: 258 bytes for two bits
_NOT_DAMAGES = (FileNotFoundError, PermissionError, IsADirectoryError)


def read_h5_arrays(file, path, is_wanted):
    """Reads the datasets of an HDF5 file that are wanted.

    Links to other files are not followed, and a dataset that keeps its numbers
    in another file is refused.

    Args:
        file: path, or binary file object.
        path: string, what to call the file in messages.
        is_wanted: function of a dataset's name to bool.

    Returns:
        Dict of name to NumPy array, and the list of the other datasets' names.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is damaged, or is no HDF5 file.

    Example:
        >>> import io
        >>> file = io.BytesIO()
        >>> with h5py.File(file, "w") as group:
        ...     group["dense/bias"], group["step"] = np.ones(2), 7
        >>> read_h5_arrays(file, "x.h5", lambda name: name != "step")
        ({'dense/bias': array([1., 1.])}, ['step'])
    """
    try:
        with h5py.File(file, "r") as root:
            names = _dataset_names(root)
            arrays = {name: _read(root[name]) for name in names if is_wanted(name)}
    except _NOT_DAMAGES:
        raise
    except _DAMAGES as error:
        raise InvalidValueError(
            f"'{path}' is damaged, or not an HDF5 file ({error}). Was the download "
            "or the copy complete? Fetch it again."
        ) from error
    return arrays, [name for name in names if name not in arrays]


def _dataset_names(root):
    names = []

    def note(name, item):
        if isinstance(item, h5py.Dataset):
            names.append(name)

    root.visititems(note)
    return names


def _read(dataset):
    if dataset.external or dataset.is_virtual:
        raise InvalidValueError(f"'{dataset.name}' keeps its numbers in another file")
    # HDF5 believes any shape, and fills with zeros what was never written.
    stored = dataset.id.get_storage_size()
    most = stored
    if dataset.chunks is not None:
        most = min(_BEST_COMPRESSION * stored, largest_unpacked(stored))
    if dataset.nbytes > most:
        raise InvalidValueError(
            f"'{dataset.name}' is shorter than its shape {dataset.shape}"
        )
    if dataset.attrs.get("dtype") == "bfloat16":  # Keras' mark: HDF5 has no such type
        return np.asarray(dataset[()]).view(ml_dtypes.bfloat16)
    if dataset.dtype.kind not in "fiu":
        raise InvalidValueError(f"'{dataset.name}' holds no numbers: {dataset.dtype}")
    return np.asarray(dataset[()])
