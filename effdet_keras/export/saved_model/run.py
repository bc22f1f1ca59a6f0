"""A SavedModel in TensorFlow."""

import os

import numpy as np

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras._internal.seal import check_seal
from effdet_keras.errors import InvalidStateError, InvalidValueError, first_line
from effdet_keras.export.description import DESCRIPTION_NAME, Description
from effdet_keras.export.runtime import Runtime

_SIGNATURE = "letterboxed"
_SEAL = "effdet_keras.sha256"


def sealed_files(path):
    """The file with the seal, and those that it is of.

    Of the variables TensorFlow itself checks what it reads.
    """
    assets = path / "assets"
    return assets / _SEAL, [path / "saved_model.pb", assets / DESCRIPTION_NAME]


class SavedModelRuntime(Runtime):
    """Runs a SavedModel that `EfficientDet.export` wrote.

    Args:
        num_threads: int or None. TensorFlow's threads are those of the process, so
            a number has an effect only before anything else has run.
    """

    package = tf

    def __init__(self, path, num_threads=None):
        self.path = path
        notes = path / "assets" / DESCRIPTION_NAME
        if not notes.is_file():
            raise InvalidValueError(
                f"The folder '{path}' is not a SavedModel that `EfficientDet.export` "
                f"wrote: there is no '{notes.relative_to(path)}' in it."
            )
        seal_path, sealed = sealed_files(path)
        if seal_path.is_file():  # before there were seals, exports had none
            check_seal(seal_path, sealed)
        self.description = Description.from_json(notes.read_bytes(), notes)
        if num_threads is not None:
            _set_threads(num_threads)
        try:
            self._module = tf.saved_model.load(os.fspath(path))
            self._function = self._module.signatures[_SIGNATURE]
        except Exception as error:  # a damaged file makes it raise almost anything
            raise InvalidValueError(
                f"The SavedModel '{path}' cannot be loaded: it is damaged or "
                f"incomplete ({first_line(error)}). Export the model again."
            ) from error

    def run(self, images):
        """See `Runtime.run`."""
        outputs = self._function(images=np.asarray(images, "float32"))
        return {name: value.numpy() for name, value in outputs.items()}


def _set_threads(num_threads):
    try:
        tf.config.threading.set_intra_op_parallelism_threads(num_threads)
    except RuntimeError as error:
        raise InvalidStateError(
            f"TensorFlow has begun to run, and its number of threads cannot change. "
            f"Received: num_threads={num_threads}. Open the SavedModel first thing in "
            "the process, or leave `num_threads` at None."
        ) from error
