"""Exported files of every format behind one call."""

import abc
import importlib
import pathlib

from effdet_keras.errors import InvalidValueError
from effdet_keras.export.description import Description

# What a path ends in: where its runtime is. A folder is a SavedModel.
_RUNTIMES = {
    "": "effdet_keras.export.saved_model.run.SavedModelRuntime",
    ".tflite": "effdet_keras.export.litert.run.LiteRTRuntime",
    ".onnx": "effdet_keras.export.onnx.run.ONNXRuntime",
    ".xml": "effdet_keras.export.openvino.run.OpenVINORuntime",
}


class Runtime(abc.ABC):
    """An exported network in the runtime of its format.

    Attributes:
        path: `pathlib.Path` of the file or folder.
        description: `Description`, read from inside the file.
    """

    path: pathlib.Path
    description: Description

    @staticmethod
    @abc.abstractmethod
    def require_installed():
        """Raises ImportError with the cure where the format's package is missing."""

    @abc.abstractmethod
    def run(self, images):
        """Runs the network.

        Args:
            images: float32 array `[B, H, W, 3]`, letterboxed pixels 0-255. Where
                `description.batch_size` is a number, `B` must be it.

        Returns:
            Dict of float32 arrays, as `description.outputs` says:

            - "raw": `class_logits` `[B, N, C]` and `box_deltas` `[B, N, 4]`
            - "detections": as `Postprocess` returns, boxes in pixels of the input
        """


def open_runtime(path, num_threads=None):
    """Opens an exported file in the runtime of its format.

    Args:
        path: folder of a SavedModel, or a `.tflite`, `.onnx` or `.xml` (OpenVINO)
            file.
        num_threads: int, or None for the runtime's own choice.

    Returns:
        `Runtime`.

    Raises:
        FileNotFoundError: If there is nothing at `path`.
        ValueError: If the file is of no known format, damaged, or not one that
            `EfficientDet.export` wrote.
        ImportError: If the runtime is not installed.
    """
    path = pathlib.Path(path)
    if not path.exists():
        raise FileNotFoundError(f"There is no exported model '{path}'")
    ending = "" if path.is_dir() else path.suffix.lower()
    if ending not in _RUNTIMES or (not ending and path.is_file()):
        raise InvalidValueError(
            "An exported model is a folder (SavedModel), or a file that ends in "
            f"{', '.join(filter(None, _RUNTIMES))}. Received: path='{path}'"
        )
    return runtime_class(ending)(path, num_threads=num_threads)


def runtime_class(ending):
    """The `Runtime` of files that end so; "" is for a folder, a SavedModel."""
    module, _, name = _RUNTIMES[ending].rpartition(".")
    return getattr(importlib.import_module(module), name)
