"""Writes scalars and images for TensorBoard."""

from __future__ import annotations

import os
import pathlib
import tempfile

from effdet_keras._internal.optional_imports import OptionalModule
from effdet_keras._internal.optional_imports import tensorflow as tf

_tensorboard = OptionalModule("tensorboard", install="effdet-keras[tensorboard]")


def has_tensorboard():
    """Returns whether both packages that write TensorBoard files are installed."""
    return _tensorboard.is_installed() and tf.is_installed()


class TensorBoardWriter:
    """Writes event files with `tf.summary`. A file is opened at the first write.

    Args:
        log_dir: path or address of the folder.

    Raises:
        ImportError: If TensorBoard or TensorFlow is not installed.
    """

    def __init__(self, log_dir):
        for module in (_tensorboard, tf):
            if not module.is_installed():
                module.require("`log_dir`")
        self.log_dir = os.fspath(log_dir)
        self._writer = None

    def require_writable(self):
        """Raises OSError if the folder cannot be written to, before training starts."""
        if "://" in self.log_dir:
            tf.io.gfile.makedirs(self.log_dir)
        else:
            require_writable(self.log_dir)

    def scalars(self, values, step):
        """Writes the scalars of one step, a dict of floats by name."""
        with self._open().as_default(step=step):
            for name, value in values.items():
                tf.summary.scalar(name, value)
        self._writer.flush()

    def images(self, name, images, step):
        """Writes the images of one step, a list of uint8 `[H, W, 3]` of any sizes."""
        with self._open().as_default(step=step):
            for index, image in enumerate(images):
                tf.summary.image(f"{name}/{index}", image[None])
        self._writer.flush()

    def close(self):
        """Closes the file. A later write opens a new one."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _open(self):
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(self.log_dir)
        return self._writer


def require_writable(folder):
    """Creates a folder, and a temporary file in it, or raises OSError."""
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass
