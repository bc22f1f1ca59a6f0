"""Numbers and images for TensorBoard."""

from __future__ import annotations

import os
import pathlib
import tempfile

from effdet_keras._internal.optional_imports import OptionalModule
from effdet_keras._internal.optional_imports import tensorflow as tf

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
        self.log_dir = os.fspath(log_dir)
        self._writer = None

    def require_writable(self):
        """Raises where the folder cannot be written to: before training, not after."""
        if "://" in self.log_dir:
            tf.io.gfile.makedirs(self.log_dir)
        else:
            require_writable(self.log_dir)

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


def require_writable(folder):
    """Makes a folder and writes a file in it, which is removed again."""
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass
