"""`.weights.h5` files: written whole or not at all, and sealed."""

import pathlib

import h5py
import numpy as np

from effdet_keras._internal.seal import SEAL_NAME, UNSEALED, check_seal, seal
from effdet_keras._internal.whole_files import replacing

ENDING = ".weights.h5"


def write_weights_h5(path, write):
    """Writes a file of weights by Keras, and seals it.

    Args:
        path: string or path of this machine that ends in `.weights.h5`.
        write: function of a path, which writes the file there.

    Example:
        >>> import tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "a.weights.h5")
        >>> def write(path):
        ...     h5py.File(path, "w").close()
        >>> write_weights_h5(path, write)
        >>> h5py.File(path).attrs["effdet_keras_seal"][:12]
        b'effdet_keras'
    """
    path = pathlib.Path(path)
    with replacing(path, ending=ENDING) as partial:
        write(partial)
        with h5py.File(partial, "a") as file:
            file.attrs[SEAL_NAME] = np.bytes_(UNSEALED)
        seal(partial)


def check_weights_h5(path):
    """Whether a file is sealed; raises ValueError where it is, and damaged.

    Whoever changes one on purpose takes the seal off: `del file.attrs[...]` of h5py.

    Args:
        path: string or path of a file; one of another format has no seal.
    """
    try:
        with h5py.File(path, "r") as file:
            is_sealed = SEAL_NAME in file.attrs
    except Exception:  # of damage that goes this deep, readers have words of their own
        return False
    return is_sealed and check_seal(path)
