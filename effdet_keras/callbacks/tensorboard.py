"""Numbers and images for TensorBoard."""

from __future__ import annotations

import os
import pathlib
import tempfile

from effdet_keras._internal.optional_imports import OptionalModule
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras._internal.whole_files import is_remote, local_path

_tensorboard = OptionalModule("tensorboard", install="effdet-keras[tensorboard]")


def has_tensorboard():
    """Whether both packages that write files for TensorBoard are installed."""
    return _tensorboard.is_installed() and tf.is_installed()


class TensorBoardWriter:
    """Writes event files with `tf.summary`, opened at the first use."""

    def __init__(self, log_dir):
        for module in (_tensorboard, tf):
            if not module.is_installed():
                module.require("`log_dir`")
        self._is_remote = is_remote(log_dir)
        if self._is_remote:
            # `pathlib` makes one slash of the two.
            address = os.fspath(log_dir)
            is_whole = "://" in address
            self.log_dir = address if is_whole else address.replace(":/", "://", 1)
        else:
            self.log_dir = str(local_path(log_dir, "`log_dir`"))
        self._writer = None

    def require_writable(self):
        """Raises OSError if the folder cannot be written to."""
        if not self._is_remote:
            require_writable(self.log_dir, "`log_dir` of TensorBoard")
            return
        try:
            tf.io.gfile.makedirs(self.log_dir)
        except tf.errors.OpError as error:
            raise OSError(
                "`log_dir` of TensorBoard must be a folder on this machine, or an "
                f"address where TensorFlow can write ({error.message}). Received: "
                f"'{self.log_dir}'"
            ) from error

    def scalars(self, values, step):
        """Writes the numbers of one step, a dict by name."""
        with self._open().as_default(step=step):
            for name, value in values.items():
                tf.summary.scalar(name, value)
        self._writer.flush()

    def images(self, name, images, step):
        """Writes the images of one step: uint8 `[H, W, 3]`, of any sizes."""
        with self._open().as_default(step=step):
            for index, image in enumerate(images):
                tf.summary.image(f"{name}/{index}", image[None])
        self._writer.flush()

    def close(self):
        """Closes the file; a later write opens a new one."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _open(self):
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(self.log_dir)
        return self._writer


# --- Whether a folder can be written to: found out before training, not after it.


def require_writable(folder, caller):
    """Makes a folder and writes a file in it, which is removed again."""
    try:
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise type(error)(
            error.errno,
            f"{caller} must be able to write to its folder ({error.strerror}); name "
            "another one, or change its permissions. Received",
            os.fspath(folder),
        ) from error
