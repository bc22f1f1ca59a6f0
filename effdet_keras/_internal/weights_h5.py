"""`.weights.h5` files: whole, sealed, and of finite numbers alone."""

from __future__ import annotations

import errno
import math
import os
import shutil
import warnings

import h5py
import numpy as np
from keras import ops

from effdet_keras._internal.seal import SEAL_NAME, UNSEALED, check_seal, seal
from effdet_keras._internal.whole_files import replacing
from effdet_keras.errors import NonFiniteLossError


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


# --- `.weights.h5` files: written whole or not at all, and sealed.

ENDING = ".weights.h5"
_OVERHEAD = 2**12  # bytes at most that HDF5 adds to an array, for its groups


def write_weights_h5(path, write, variables):
    """Writes a file of weights by Keras, of these variables, and seals it."""
    size = 0  # at most
    for variable in variables:
        width = 8 if str(variable.dtype).endswith("64") else 4
        size += width * math.prod(variable.shape) + _OVERHEAD
    with replacing(path, ending=ENDING) as partial:
        # Once HDF5 could not write to a full disk, it crashes the process.
        if shutil.disk_usage(partial.parent).free < size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(path))
        write(partial)
        with h5py.File(partial, "a") as file:
            file.attrs[SEAL_NAME] = np.bytes_(UNSEALED)
        seal(partial)


def check_weights_h5(path):
    """Whether a file is sealed; raises ValueError where it is, and damaged."""
    try:
        with h5py.File(path, "r") as file:
            is_sealed = SEAL_NAME in file.attrs
    except Exception:  # of damage that goes this deep, readers have words of their own
        return False
    return is_sealed and check_seal(path)
