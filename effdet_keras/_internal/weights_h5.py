"""`.weights.h5` files: atomic writing, checksums, and checks of untrusted files."""

from __future__ import annotations

import errno
import math
import os
import shutil
import warnings

import h5py
import numpy as np
from keras import ops

from effdet_keras._internal.checksum import (
    CHECKSUM_NAME,
    WITHOUT_CHECKSUM,
    verify_checksum,
    write_checksum,
)
from effdet_keras._internal.unpacking import check_unpacked_size
from effdet_keras._internal.whole_files import atomic_write
from effdet_keras.errors import InvalidValueError, NonFiniteLossError


def check_finite(model, what):
    """Raises `NonFiniteLossError` if a weight or moving average is NaN or infinite."""
    fault = _fault(model)
    if fault is not None:
        raise NonFiniteLossError(
            f"{what}: {fault}. Go back to the last good checkpoint, and train with a "
            "lower learning rate."
        )


def warn_unless_finite(model, path):
    """Warns if a loaded weight is NaN or infinite."""
    fault = _fault(model)
    if fault is not None:
        warnings.warn(
            f"A model with the weights of '{path}' finds nothing: {fault}. Load an "
            "earlier checkpoint.",
            stacklevel=3,
        )


def _fault(model):
    averages = getattr(model, "averages", None)
    variables = [*model.weights, *([] if averages is None else averages.variables)]
    # A sum reveals NaN and infinity many times faster than a test of each number.
    sums = (ops.sum(ops.abs(ops.cast(v, "float32"))) for v in variables)
    sums = map(ops.convert_to_numpy, sums)
    bad = [v.path for v, total in zip(variables, sums) if not np.isfinite(total)]
    if not bad:
        return None
    return (
        f"{len(bad)} of its {len(variables)} weights and averages are NaN or infinite, "
        f"such as {', '.join(bad[:3])}"
    )


# --- Atomic writing, with a checksum.

ENDING = ".weights.h5"
_OVERHEAD = 2**12  # upper bound of the bytes that HDF5 adds to an array, for its groups


def write_weights_h5(path, write, variables):
    """Writes a weights file with Keras' function `write`, and adds a checksum.

    Args:
        path: path of the file.
        write: function of a path, which writes the file.
        variables: list of the variables that it writes.

    Raises:
        OSError: If the disk may be too full for these variables.
    """
    size = 0  # upper bound, in bytes
    for variable in variables:
        width = 8 if str(variable.dtype).endswith("64") else 4
        size += width * math.prod(variable.shape) + _OVERHEAD
    with atomic_write(path, ending=ENDING) as partial:
        # HDF5 crashes the process after it has failed to write to a full disk.
        if shutil.disk_usage(partial.parent).free < size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(path))
        write(partial)
        with h5py.File(partial, "a") as file:
            file.attrs[CHECKSUM_NAME] = np.bytes_(WITHOUT_CHECKSUM)
        write_checksum(partial)


def check_weights_h5(path):
    """Returns whether a file has a checksum; raises ValueError if it does not match.

    It also raises if the file refers to data in other files: see `check_hdf5`.
    """
    check_hdf5_file(path, path)
    try:
        with h5py.File(path, "r") as file:
            has_checksum = CHECKSUM_NAME in file.attrs
    except Exception:  # badly damaged: the reader of the file raises a better error
        return False
    return has_checksum and verify_checksum(path)


# --- Untrusted HDF5 files. They can refer to other files, and claim any size.


def check_hdf5(file, path):
    """Raises an error if reading an HDF5 file would read anything outside of it.

    HDF5 can keep the numbers of a dataset in any other file ("external storage"), or
    compose them from datasets of other files ("virtual dataset"). A name can be a link
    to another place ("soft link") or to another file ("external link"). So a stranger's
    file could have every file that its user may read loaded as weights. No weights file
    needs any of these features.

    Args:
        file: `h5py.File`, open for reading.
        path: name of the file in error messages.

    Raises:
        ValueError: If the file uses one of these features, if it is damaged, or if its
            arrays are far larger than the file.
    """
    try:
        unpacked = sum(_own_dataset_sizes(file, path))
    except InvalidValueError:
        raise
    except Exception as error:  # damaged bytes can raise almost any error
        raise damaged_hdf5(path, error) from error
    check_unpacked_size(path, unpacked, file.id.get_filesize())


def check_hdf5_file(file, path):
    """Checks a path or an open file with `check_hdf5`; ignores unreadable files."""
    try:
        opened = h5py.File(file, "r")
    except Exception:  # badly damaged: the reader of the file raises a better error
        return
    with opened:
        check_hdf5(opened, path)


def damaged_hdf5(path, reason):
    return InvalidValueError(
        f"'{path}' is damaged, or not an HDF5 file ({reason}). Was the download "
        "or the copy complete? Fetch it again."
    )


def _own_dataset_sizes(file, path):
    """Yields the size of each dataset in bytes; all must be in the file itself."""
    seen, groups = set(), [file]
    while groups:
        group = groups.pop()
        identity = h5py.h5o.get_info(group.id).addr
        if identity in seen:  # hard links may form a circle
            continue
        seen.add(identity)
        for name in group:
            shown = f"{group.name.rstrip('/')}/{name}"
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                raise UntrustedFileError(path, shown, "a link to another place or file")
            item = group[name]
            if isinstance(item, h5py.Group):
                groups.append(item)
            elif isinstance(item, h5py.Dataset):
                if item.external:
                    what = f"stored in another file, {item.external[0][0]!r}"
                    raise UntrustedFileError(path, shown, what)
                if item.is_virtual:
                    what = "a virtual dataset, composed of others"
                    raise UntrustedFileError(path, shown, what)
                yield item.nbytes


class UntrustedFileError(InvalidValueError):
    """Raised for an HDF5 file that would have other files read as weights."""

    def __init__(self, path, name, what):
        super().__init__(
            f"'{path}' is not read: its entry {name!r} is {what}. A file of weights "
            "holds its numbers itself, and this one would read other files of this "
            "machine. Fetch the weights from a source that you trust; of a file of "
            "your own, copy the entries into a new one (`h5py.File.copy` with "
            "`expand_soft=True, expand_external=True`)."
        )
