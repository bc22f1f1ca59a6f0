"""Coral: a fully quantised `.tflite` file that the Edge TPU's compiler takes."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
from typing import TYPE_CHECKING

from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.detect.detect import Images
from effdet_keras.errors import InvalidStateError, InvalidValueError
from effdet_keras.export.registry import FORMATS, Written
from effdet_keras.extras.targets.detectors import (
    class_names_of,
    require_calibration,
    require_detection_alone,
)
from effdet_keras.extras.targets.operations import (
    operations_of,
    operations_on_cpu,
    require_compilable,
)

if TYPE_CHECKING:
    from effdet_keras.model.efficientdet import EfficientDet


MODEL_NAME, COMPILED_NAME = "model.tflite", "model_edgetpu.tflite"
LABELS_NAME = "labels.txt"
_COMPILER = "edgetpu_compiler"
# Lite4 has 15 million parameters: nothing of it would stay in the 8 MB of the chip.
_BACKBONES = tuple(f"efficientnet-lite{size}" for size in ("0", "1", "2", "3", "-tiny"))


def write_coral(
    model: EfficientDet,
    folder: pathlib.Path,
    path: pathlib.Path,
    *,
    calibration: DetectionDataset | Images | None = None,
    calibration_images: int = 100,
    max_detections: int | None = None,
    score_threshold: float | None = None,
) -> Written:
    """Writes `model.tflite` in int8, `labels.txt`, and the compiled file.

    `edgetpu_compiler` runs where it is installed, and leaves `model_edgetpu.tflite`
    and its log. Otherwise a note says how to run it.

    Args:
        model: float32 `EfficientDet`, Lite0 to Lite3.
        folder: `pathlib.Path` to write into.
        path: `pathlib.Path` that the folder will have.
        calibration: images of the kind the model will see: int8 needs them, unless
            the model was trained with `quantize_aware`.
        calibration_images: how many of them are used at most, evenly spread.
        max_detections: boxes per image at most; None for the model's own number.
        score_threshold: lowest score to keep; None for the model's own.

    Raises:
        ValueError: If the model is none that the Edge TPU takes, or there is no
            `calibration`.
        RuntimeError: If the compiler fails.
    """
    require_edge_tpu_model(model, "coral")
    require_calibration(model, "coral", calibration)
    FORMATS["litert"].write(
        model,
        folder / MODEL_NAME,
        precision="int8",
        calibration=calibration,
        calibration_images=calibration_images,
        max_detections=max_detections,
        score_threshold=score_threshold,
        int8_scores=True,
    )
    names = class_names_of(model)
    (folder / LABELS_NAME).write_text("\n".join(names) + "\n", encoding="utf-8")
    notes = compile_for_edge_tpu(folder, path)
    return Written(folder / MODEL_NAME, "litert", notes)


def require_edge_tpu_model(model, target):
    """Refuses what the Edge TPU cannot run.

    Args:
        model: `EfficientDet`.
        target: string, the name of the target.

    Raises:
        ValueError: If the backbone is another one, or the model does more than detect.
    """
    require_detection_alone(model, target)
    if model.config.backbone not in _BACKBONES:
        raise InvalidValueError(
            f"`target={target!r}` takes EfficientDet-Lite0 to Lite3: others do not fit "
            "the Edge TPU's 8 MB, or use activations that it does not have. Received: "
            f"backbone={model.config.backbone!r}. Train `efficientdet-lite0`."
        )


def compile_for_edge_tpu(folder, path):
    """Checks `model.tflite` of a folder, and compiles it where that can be done.

    Args:
        folder: `pathlib.Path` that has it.
        path: `pathlib.Path` that the folder will have, for the notes.

    Returns:
        Tuple of strings: what stays on the CPU, and what happened or is to be done.

    Raises:
        ValueError: If the compiler would refuse the file.
        RuntimeError: If it fails.
    """
    operations = operations_of(folder / MODEL_NAME)
    require_compilable(operations)
    on_cpu = ", ".join(operations_on_cpu(operations)) or "nothing"
    notes = [f"  stays on the CPU: {on_cpu}"]
    compiler = shutil.which(_COMPILER)
    if compiler is None:
        command = f"{_COMPILER} -s -o {path} {path / MODEL_NAME}"
        return *notes, f"  {_COMPILER} is not installed here; where it is: {command}"
    done = subprocess.run(
        [compiler, "-s", "-o", str(folder), str(folder / MODEL_NAME)],
        capture_output=True,
        text=True,
    )
    if done.returncode or not (folder / COMPILED_NAME).is_file():
        raise InvalidStateError(
            f"{_COMPILER} did not compile '{MODEL_NAME}' (status {done.returncode}):\n"
            f"{done.stdout}{done.stderr}"
        )
    counts = [
        line for line in done.stdout.splitlines() if "Number of operations" in line
    ]
    return *notes, f"  compiled: {COMPILED_NAME}", *(f"  {line}" for line in counts)
