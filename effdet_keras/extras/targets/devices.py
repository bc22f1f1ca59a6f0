"""Targets for programs on devices, with raw outputs: ncnn, MNN, ExecuTorch.

Next to each file are the further files that a program needs, see `detector.py`.
"""

from __future__ import annotations

from effdet_keras.export.registry import FORMATS, Written
from effdet_keras.extras.targets.detector import HEADER_NAME, write_detector
from effdet_keras.extras.targets.tflite import require_detection_alone


def write_ncnn(model, folder, path, *, precision="float16"):
    """Writes `model.ncnn.param` and `.bin`, with labels, anchors and `detector.h`."""
    return _write(model, folder, path, "ncnn", "model.ncnn.param", precision=precision)


def write_mnn(model, folder, path, *, precision="float16"):
    """Writes `model.mnn`, with labels, anchors and `detector.h`."""
    return _write(model, folder, path, "mnn", "model.mnn", precision=precision)


def write_executorch(model, folder, path):
    """Writes `model.pte` for XNNPACK, with labels, anchors and `detector.h`."""
    return _write(model, folder, path, "executorch", "model.pte")


def _write(model, folder, path, format, name, **options):
    require_detection_alone(model, format)
    FORMATS[format].write(model, folder / name, **options)
    write_detector(model, folder)
    note = f"  {path / HEADER_NAME} converts the outputs to detections, in C++"
    return Written(folder / name, format, (note,))
