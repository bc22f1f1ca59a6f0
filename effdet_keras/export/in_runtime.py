"""A live model in the runtime of an export, without a file that stays."""

from __future__ import annotations

import pathlib
import tempfile
from typing import TYPE_CHECKING

from effdet_keras._internal.backend import require_tensorflow
from effdet_keras.errors import InvalidValueError
from effdet_keras.export.exported_detector import ExportedDetector
from effdet_keras.export.registry import FORMATS
from effdet_keras.export.runtime import open_runtime

if TYPE_CHECKING:
    from effdet_keras.models import EfficientDet

RUNTIMES = ("openvino", "onnx", "litert")


def in_runtime(
    model: EfficientDet,
    runtime: str,
    *,
    num_threads: int | None = None,
    precision: str = "float32",
) -> ExportedDetector:
    """Writes the network of a model for a runtime, opens it there, removes the file.

    The postprocess is the model's own, in NumPy. What is trained later is not in it.

    Args:
        model: `EfficientDet`.
        runtime: string, one of `RUNTIMES`.
        num_threads, precision: as of `open_runtime`.

    Returns:
        `ExportedDetector`, with the moving averages as weights where there are any.

    Raises:
        ValueError: If there is no such runtime, or it has not this precision.
        ImportError: If a package that writes or runs the format is not installed.
        RuntimeError: If Keras runs on another backend than TensorFlow.
    """
    if runtime not in RUNTIMES:
        raise InvalidValueError(
            f"`runtime` must be one of {', '.join(map(repr, RUNTIMES))}, or None for "
            f"Keras. Received: runtime={runtime!r}"
        )
    require_tensorflow(
        "A model goes into another runtime by way of a TensorFlow graph",
        "Set KERAS_BACKEND=tensorflow, or leave `runtime` out. "
        f"Received: runtime={runtime!r}",
    )
    from effdet_keras.export.network import evaluated

    chosen = FORMATS[runtime]
    chosen.load_runtime().package.require(f"Running a model in {chosen.title}")
    fixed = {"batch_size": 1} if runtime == "litert" else {}  # it has no other
    # A system may keep an open file: then the folder is left to it.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = pathlib.Path(folder) / f"model{chosen.ending}"
        with evaluated(model) as ready:
            chosen.load_writer()(ready, path, outputs="raw", **fixed)
        return ExportedDetector(open_runtime(path, num_threads, precision))
