"""`.weights.h5` files: written atomically, with a checksum, of finite numbers alone."""

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
    """Raises where a weight or an average of a model is NaN or infinite."""
    fault = _fault(model)
    if fault is not None:
        raise NonFiniteLossError(
            f"{what}: {fault}. Go back to the last good checkpoint, and train with a "
            "lower learning rate."
        )


def warn_unless_finite(model, path):
    """Warns where a weight that was loaded is NaN or infinite."""
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
    # A sum shows NaN and infinity many times faster than a look at each number.
    sums = (ops.sum(ops.abs(ops.cast(v, "float32"))) for v in variables)
    sums = map(ops.convert_to_numpy, sums)
    bad = [v.path for v, total in zip(variables, sums) if not np.isfinite(total)]
    if not bad:
        return None
    return (
        f"{len(bad)} of its {len(variables)} weights and averages are NaN or infinite, "
        f"such as {', '.join(bad[:3])}"
    )


# --- `.weights.h5` files: written atomically, with a checksum.

ENDING = ".weights.h5"
_OVERHEAD = 2**12  # bytes at most that HDF5 adds to an array, for its groups


def write_weights_h5(path, write, variables):
    """Writes a file of weights by Keras, of these variables, and its checksum."""
    size = 0  # at most
    for variable in variables:
        width = 8 if str(variable.dtype).endswith("64") else 4
        size += width * math.prod(variable.shape) + _OVERHEAD
    with atomic_write(path, ending=ENDING) as partial:
        # Once HDF5 could not write to a full disk, it crashes the process.
        if shutil.disk_usage(partial.parent).free < size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(path))
        write(partial)
        with h5py.File(partial, "a") as file:
            file.attrs[CHECKSUM_NAME] = np.bytes_(WITHOUT_CHECKSUM)
        write_checksum(partial)


def check_weights_h5(path):
    """Whether a file has a checksum; raises ValueError where it does not match.

    It also raises where data of the file are in other files: see `check_hdf5`.
    """
    check_hdf5_file(path, path)
    try:
        with h5py.File(path, "r") as file:
            has_checksum = CHECKSUM_NAME in file.attrs
    except Exception:  # of damage that goes this deep, readers have words of their own
        return False
    return has_checksum and verify_checksum(path)


# --- HDF5 files of unknown origin: they can name other files, and claim any size.


def check_hdf5(file, path):
    """Raises where a reader of an HDF5 file would read anything but this file.

    HDF5 can keep the numbers of a dataset in any other file ("external storage"), or
    compose them of datasets of other files ("virtual dataset"), and a name can be a
    link to another place ("soft link") or file ("external link"). A file of a stranger
    would so read every file that its user may read, as weights. No file of weights
    needs any of them.

    Args:
        file: `h5py.File`, open for reading.
        path: the file's name in messages.

    Raises:
        ValueError: If the file has one of these, or its arrays are far larger than
            the file.
    """
    try:
        unpacked = sum(_own_dataset_sizes(file, path))
    except InvalidValueError:
        raise
    except Exception as error:  # of damaged bytes, almost any
        raise damaged_hdf5(path, error) from error
    check_unpacked_size(path, unpacked, file.id.get_filesize())


def check_hdf5_file(file, path):
    """`check_hdf5` of a path or an open file; what cannot be opened is left alone."""
    try:
        opened = h5py.File(file, "r")
    except Exception:  # of damage that goes this deep, readers have words of their own
        return
    with opened:
        check_hdf5(opened, path)


def damaged_hdf5(path, reason):
    return InvalidValueError(
        f"'{path}' is damaged, or not an HDF5 file ({reason}). Was the download "
        "or the copy complete? Fetch it again."
    )


def _own_dataset_sizes(file, path):
    """The bytes of each dataset, all of which must be in the file itself."""
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
    """An HDF5 file would have other files of this machine read as weights."""

    def __init__(self, path, name, what):
        super().__init__(
            f"'{path}' is not read: its entry {name!r} is {what}. A file of weights "
            "holds its numbers itself, and this one would read other files of this "
            "machine. Fetch the weights from a source that you trust; of a file of "
            "your own, copy the entries into a new one (`h5py.File.copy` with "
            "`expand_soft=True, expand_external=True`)."
        )
