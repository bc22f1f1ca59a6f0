"""A profile of where the time goes in a network, by the runtime's own profiler."""

from __future__ import annotations

import pathlib

import keras
import numpy as np

from effdet_keras._internal.optional_imports import onnxruntime
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.errors import InvalidValueError
from effdet_keras.export.exported_detector import ExportedDetector
from effdet_keras.models import EfficientDet

_BATCHES = 3


def write_trace(
    detector: EfficientDet | ExportedDetector,
    images: np.ndarray,
    folder: pathlib.Path,
) -> str:
    """Runs some batches in the profiler of the detector's runtime.

    - Keras on TensorFlow, SavedModel: TensorFlow's profile, for TensorBoard
      (`pip install tensorboard-plugin-profile`, `tensorboard --logdir FOLDER`)
    - ONNX: onnxruntime's, a JSON file for `chrome://tracing` or ui.perfetto.dev

    LiteRT and OpenVINO have no profiler in Python that says more than the benchmark
    does. For Keras on JAX or torch, use the profiler of that framework.

    Args:
        detector: `EfficientDet` or `ExportedDetector`, warmed up.
        images: float32 array `[B, H, W, 3]`, letterboxed.
        folder: `pathlib.Path`, made if need be.

    Returns:
        string, the file or folder that was written.

    Raises:
        ValueError: If the runtime has no profiler.
    """
    check_traceable(detector)
    folder.mkdir(parents=True, exist_ok=True)
    if _is_onnx(detector):
        return _trace_onnx(detector.runtime.path, images, folder)
    return _trace_tensorflow(detector, images, folder)


def check_traceable(detector: EfficientDet | ExportedDetector) -> None:
    """Raises a ValueError if the detector's runtime has no profiler."""
    if not isinstance(detector, ExportedDetector):
        name = f"Keras on {keras.backend.backend()}"
        is_traceable = keras.backend.backend() == "tensorflow"
    else:
        name = f"'{detector.runtime.path}'"
        is_traceable = _is_onnx(detector) or detector.runtime.path.is_dir()
    if not is_traceable:
        raise InvalidValueError(
            "`trace` (`--trace`) works for Keras on TensorFlow, SavedModel and ONNX. "
            f"Received: a model in {name}"
        )


def _is_onnx(detector):
    is_exported = isinstance(detector, ExportedDetector)
    return is_exported and detector.runtime.path.suffix == ".onnx"


def _trace_tensorflow(detector, images, folder):
    tf.profiler.experimental.start(str(folder))
    try:
        for step in range(_BATCHES):
            with tf.profiler.experimental.Trace("detect", step_num=step, _r=1):
                detector.predict_on_batch(images)
    finally:
        tf.profiler.experimental.stop()
    return str(folder)


def _trace_onnx(path, images, folder):
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / path.stem)
    session = onnxruntime.InferenceSession(
        str(path), options, providers=["CPUExecutionProvider"]
    )
    for _ in range(_BATCHES):
        session.run(None, {session.get_inputs()[0].name: images})
    return session.end_profiling()
