"""Frigate: an int8 `.tflite` file, its label map, and a block of its configuration."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Literal

from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.detect.detect import Images
from effdet_keras.errors import InvalidValueError
from effdet_keras.export.registry import FORMATS, Written
from effdet_keras.extras.targets.coral import (
    COMPILED_NAME,
    MODEL_NAME,
    compile_for_edge_tpu,
    require_edge_tpu_model,
)
from effdet_keras.extras.targets.detectors import (
    class_names_of,
    require_calibration,
    require_detection_alone,
)

if TYPE_CHECKING:
    from effdet_keras.model.efficientdet import EfficientDet


LABELS_NAME, CONFIGURATION_NAME = "labelmap.txt", "frigate.yml"
# Both of Frigate's detectors on TFLite files, frigate/detectors/plugins/cpu_tfl.py and
# edgetpu_tfl.py: they read no more detections, and none below a score of 0.4.
_MAX_DETECTIONS = 20


def write_frigate(
    model: EfficientDet,
    folder: pathlib.Path,
    path: pathlib.Path,
    *,
    detector: Literal["edgetpu", "cpu"] = "edgetpu",
    calibration: DetectionDataset | Images | None = None,
    calibration_images: int = 100,
    score_threshold: float = 0.4,
) -> Written:
    """Writes `model.tflite`, `labelmap.txt` and `frigate.yml`.

    The file takes uint8 pixels `[1, size, size, 3]`, RGB, and returns boxes, classes,
    scores and count in the order in which Frigate reads them, 20 detections at most.
    For a Coral it is checked and compiled as `target="coral"` does.

    Args:
        model: float32 `EfficientDet` of a square input.
        folder: `pathlib.Path` to write into.
        path: `pathlib.Path` that the folder will have.
        detector: the kind of Frigate's detector: "edgetpu" (a Coral) or "cpu".
        calibration: images of the kind the cameras see: int8 needs them, unless the
            model was trained with `quantize_aware`.
        calibration_images: how many of them are used at most, evenly spread.
        score_threshold: lowest score to keep. Frigate itself drops what is below the
            default.

    Raises:
        ValueError: If the input is not square, or as `target="coral"`.
    """
    require_detection_alone(model, "frigate")
    height, width = model.config.image_size
    if height != width:
        raise InvalidValueError(
            "Frigate cuts squares out of its images, and `target='frigate'` takes "
            f"models of a square input. Received: image_size={(height, width)}. Train "
            "with an `image_size` of one number, such as 320."
        )
    if detector == "edgetpu":
        require_edge_tpu_model(model, "frigate")
    require_calibration(model, "frigate", calibration)
    FORMATS["litert"].write(
        model,
        folder / MODEL_NAME,
        precision="int8",
        calibration=calibration,
        calibration_images=calibration_images,
        max_detections=_MAX_DETECTIONS,
        score_threshold=score_threshold,
        int8_scores=detector == "edgetpu",
    )
    names = class_names_of(model)
    # With numbers: a class whose name begins with a digit is else taken for a number.
    lines = "".join(f"{i} {name}\n" for i, name in enumerate(names))
    (folder / LABELS_NAME).write_text(lines, encoding="utf-8")
    notes = compile_for_edge_tpu(folder, path) if detector == "edgetpu" else ()
    text = _configuration(path.name, detector, model.config.image_size, names)
    (folder / CONFIGURATION_NAME).write_text(text, encoding="utf-8")
    notes = (
        *notes,
        f"  copy the folder to Frigate's /config/{path.name}, and add:",
        text,
    )
    return Written(folder / MODEL_NAME, "litert", notes)


def _configuration(name, detector, image_size, class_names):
    """The part of Frigate's configuration that is about the model."""
    height, width = image_size
    model = COMPILED_NAME if detector == "edgetpu" else MODEL_NAME
    device = "\n    device: usb" if detector == "edgetpu" else ""
    tracked = "\n".join(f"    - {_quoted(label)}" for label in class_names)
    return f"""\
detectors:
  {detector}_detector:
    type: {detector}{device}
model:
  path: {_quoted(f"/config/{name}/{model}")}
  labelmap_path: {_quoted(f"/config/{name}/{LABELS_NAME}")}
  width: {width}
  height: {height}
  input_tensor: nhwc
  input_pixel_format: rgb
  model_type: ssd
objects:
  track:
{tracked}
"""


def _quoted(text):
    """As YAML's string in single quotes, which has one escape alone."""
    return "'" + text.replace("'", "''") + "'"
