"""Numbers and images to TensorBoard."""

import importlib.util

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.callbacks.writable import require_writable
from effdet_keras.errors import MissingPackageError


class TensorBoardWriter:
    """Writes event files, in the form of `tf.summary`; opened at the first use.

    Args:
        log_dir: path of the folder.

    Raises:
        ImportError: If tensorboard is not installed.

    Example:
        >>> import os, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     writer = TensorBoardWriter(folder)
        ...     writer.scalars({"coco/AP": 0.5}, step=1)
        ...     writer.close()
        ...     len(os.listdir(folder))
        1
    """

    def __init__(self, log_dir):
        if importlib.util.find_spec("tensorboard") is None:
            raise MissingPackageError(
                "`log_dir` needs TensorBoard: pip install 'effdet-keras[tensorboard]'"
            )
        self.log_dir = str(log_dir)
        self._writer = None

    def require_writable(self):
        """Raises OSError if the folder cannot be written to."""
        require_writable(self.log_dir, "`log_dir` of TensorBoard")

    def scalars(self, values, step):
        """Writes numbers, a dict by name, of one step."""
        with self._open().as_default(step=step):
            for name, value in values.items():
                tf.summary.scalar(name, value)
        self._writer.flush()

    def images(self, name, images, step):
        """Writes images, uint8 `[H, W, 3]` of any sizes, of one step."""
        with self._open().as_default(step=step):
            for index, image in enumerate(images):
                tf.summary.image(f"{name}/{index}", image[None])
        self._writer.flush()

    def close(self):
        """Closes the file; a later write opens another one."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _open(self):
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(self.log_dir)
        return self._writer
