"""MediaPipe Tasks: a `.tflite` file with metadata that its object detector opens."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Literal

from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.detect.detect import Images
from effdet_keras.export.registry import FORMATS, Written
from effdet_keras.extras.targets.detectors import require_detection_alone

if TYPE_CHECKING:
    from effdet_keras.model.efficientdet import EfficientDet


MODEL_NAME = "model.tflite"


def write_mediapipe(
    model: EfficientDet,
    folder: pathlib.Path,
    path: pathlib.Path,
    *,
    precision: Literal["float32", "float16", "int8"] | None = None,
    calibration: DetectionDataset | Images | None = None,
    calibration_images: int = 100,
    max_detections: int | None = None,
    score_threshold: float | None = None,
) -> Written:
    """Writes `model.tflite`, with labels and metadata inside.

    Args:
        model: float32 `EfficientDet`.
        folder: `pathlib.Path` to write into.
        path: `pathlib.Path` that the folder will have.
        precision: of the weights; None for int8 where there is `calibration`, or the
            model was trained with `quantize_aware`, else float16.
        calibration: images of the kind the model will see, for int8.
        calibration_images: how many of them are used at most, evenly spread.
        max_detections: boxes per image at most; None for the model's own number.
        score_threshold: lowest score to keep; None for the model's own.

    Raises:
        ValueError: If the model has a segmentation head, or options contradict each
            other.
    """
    require_detection_alone(model, "mediapipe")
    if precision is None:
        is_int8 = calibration is not None or model.quantization is not None
        precision = "int8" if is_int8 else "float16"
    FORMATS["litert"].write(
        model,
        folder / MODEL_NAME,
        precision=precision,
        calibration=calibration,
        calibration_images=calibration_images,
        max_detections=max_detections,
        score_threshold=score_threshold,
    )
    height, width = model.config.image_size
    note = (
        f"MediaPipe stretches images to {width}x{height}: give it images of that shape"
    )
    return Written(folder / MODEL_NAME, "litert", (f"  {note}",))
