"""LiteRT on GPUs: a `.tflite` file of built-in operations only."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

from effdet_keras.errors import InvalidStateError
from effdet_keras.export.registry import FORMATS, Written
from effdet_keras.extras.targets.operations import operations_of

if TYPE_CHECKING:
    from effdet_keras.model.efficientdet import EfficientDet


MODEL_NAME = "model.tflite"


def write_gpu(
    model: EfficientDet,
    folder: pathlib.Path,
    path: pathlib.Path,
    *,
    max_detections: int | None = None,
    score_threshold: float | None = None,
    iou_threshold: float | None = None,
) -> Written:
    """Writes `model.tflite` in float16, for LiteRT's CompiledModel.

    Its delegates for GPUs know no `TFLite_Detection_PostProcess`, and a file with it
    is refused (https://github.com/google-ai-edge/LiteRT/issues/7936). Here boxes are
    decoded, the best are chosen, and suppressed as the model does (Soft-NMS too), by
    operations that LiteRT itself has.

    Args:
        model: float32 `EfficientDet`.
        folder: `pathlib.Path` to write into.
        path: `pathlib.Path` that the folder will have.
        max_detections: boxes per image at most; None for the model's own number.
        score_threshold: lowest score to keep; None for the model's own.
        iou_threshold: overlap above which a box suppresses another, where the
            suppression is hard; None for the model's own.

    Raises:
        ValueError: If the model's postprocess limits the detections of one class.
    """
    FORMATS["litert"].write(
        model,
        folder / MODEL_NAME,
        precision="float16",
        postprocess_ops="builtin",
        max_detections=max_detections,
        score_threshold=score_threshold,
        iou_threshold=iou_threshold,
    )
    custom = [op.name for op in operations_of(folder / MODEL_NAME) if op.is_custom]
    if custom:
        raise InvalidStateError(
            f"The converter left custom operations in the file: {', '.join(custom)}. "
            "Nothing was written. Another version of TensorFlow may do better."
        )
    return Written(folder / MODEL_NAME, "litert")
