"""Triton: a model of a repository, with its `config.pbtxt`."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Literal

from effdet_keras.errors import InvalidValueError
from effdet_keras.export.registry import FORMATS, Written
from effdet_keras.extras.targets.detectors import class_names_of

if TYPE_CHECKING:
    from effdet_keras.model.efficientdet import EfficientDet


CONFIGURATION_NAME, LABELS_NAME, VERSION = "config.pbtxt", "labels.txt", "1"


def write_triton(
    model: EfficientDet,
    folder: pathlib.Path,
    path: pathlib.Path,
    *,
    backend: Literal["onnxruntime", "tensorflow"] = "onnxruntime",
    max_batch_size: int = 8,
) -> Written:
    """Writes one model of a Triton model repository.

    `path` is `REPOSITORY/MODEL`: its last part is the model's name. It gets
    `config.pbtxt`, `labels.txt` and version 1. Triton puts requests that come together
    into one batch.

    Args:
        model: float32 `EfficientDet`.
        folder: `pathlib.Path` to write into.
        path: `pathlib.Path` that the folder will have.
        backend: Triton's backend: "onnxruntime" takes letterboxed float32 images and
            returns boxes in pixels of them; "tensorflow" takes uint8 images of any
            size, with boxes in pixels of these.
        max_batch_size: images at once, at most.

    Raises:
        ValueError: If `max_batch_size` is below 1.
    """
    if max_batch_size < 1:
        raise InvalidValueError(
            f"`max_batch_size` must be 1 or more. Received: {max_batch_size}"
        )
    is_onnx = backend == "onnxruntime"
    format = "onnx" if is_onnx else "saved_model"
    version = folder / VERSION
    version.mkdir()
    file = version / ("model.onnx" if is_onnx else "model.savedmodel")
    FORMATS[format].write(model, file)
    names = class_names_of(model)
    (folder / LABELS_NAME).write_text("\n".join(names) + "\n", encoding="utf-8")
    text = _configuration(path.name, backend, model, max_batch_size)
    (folder / CONFIGURATION_NAME).write_text(text, encoding="utf-8")
    note = f"  tritonserver --model-repository={path.parent.absolute()}"
    return Written(file, format, (note,))


def _configuration(name, backend, model, max_batch_size):
    """The text of `config.pbtxt`; shapes are without the batch, which is free."""
    is_onnx = backend == "onnxruntime"
    platform = "onnxruntime_onnx" if is_onnx else "tensorflow_savedmodel"
    size = model.config.image_size if is_onnx else (-1, -1)
    images = ("images", "TYPE_FP32" if is_onnx else "TYPE_UINT8", (*size, 3))
    outputs = "".join(f"output [{_tensor(*o)}]\n" for o in _outputs(model))
    return (
        f'name: "{name}"\n'
        f'platform: "{platform}"\n'
        f"max_batch_size: {max_batch_size}\n"
        f"input [{_tensor(*images)}]\n"
        f"{outputs}"
        "dynamic_batching { max_queue_delay_microseconds: 1000 }\n"
    )


def _outputs(model):
    """Name, type and shape of each."""
    config, count = model.config, model.postprocess.max_detections
    found = []
    if config.has_detection:
        found += [
            ("boxes", "TYPE_FP32", (count, 4)),
            ("scores", "TYPE_FP32", (count,)),
            ("labels", "TYPE_INT32", (count,)),
            ("num_detections", "TYPE_INT32", ()),
        ]
    if config.has_segmentation:
        found.append(("class_map", "TYPE_UINT8", config.image_size))
    return found


def _tensor(name, kind, shape):
    dims = ", ".join(map(str, shape))
    lines = f'  name: "{name}"\n  data_type: {kind}\n'
    if shape:
        return f"{{\n{lines}  dims: [ {dims} ]\n}}"
    # One number per image: Triton knows no empty `dims`, but an empty shape.
    return f"{{\n{lines}  dims: [ 1 ]\n  reshape: {{ shape: [ ] }}\n}}"
