"""Targets that run a `.tflite` file: MediaPipe, Coral, LiteRT on GPUs."""

from __future__ import annotations

import shutil
import subprocess

from effdet_keras.errors import InvalidStateError, InvalidValueError
from effdet_keras.export.registry import FORMATS, Written
from effdet_keras.export.runtime import labels_of

MODEL_NAME, COMPILED_NAME = "model.tflite", "model_edgetpu.tflite"
_COMPILER = "edgetpu_compiler"
_ACTIVATIONS = ("relu", "relu6")
# Lite4 has 15 million parameters: none of them would stay in the 8 MB of the chip.
_BACKBONES = tuple(f"efficientnet-lite{size}" for size in ("0", "1", "2", "3", "-tiny"))


def write_mediapipe(model, folder, path, *, precision=None, **options):
    """Writes `model.tflite`, with labels and metadata inside.

    Without a `precision`, the file is int8 if there is `calibration` or the model was
    trained with `quantize_aware`, else float16.
    """
    require_detection_alone(model, "mediapipe")
    if precision is None:
        has_ranges = options.get("calibration") is not None or model.quantization
        precision = "int8" if has_ranges else "float16"
    file = folder / MODEL_NAME
    FORMATS["litert"].write(model, file, precision=precision, **options)
    height, width = model.config.image_size
    note = (
        f"MediaPipe stretches images to {width}x{height}: give it images with this "
        "aspect ratio"
    )
    return Written(folder / MODEL_NAME, "litert", (f"  {note}",))


def write_coral(model, folder, path, **options):
    """Writes `model.tflite` in int8, `labels.txt`, and the compiled file.

    If `edgetpu_compiler` is installed, it writes `model_edgetpu.tflite` and its log.
    Otherwise a note says how to run it.
    """
    require_edge_tpu_model(model, "coral")
    int8 = {"precision": "int8", "int8_scores": True}
    FORMATS["litert"].write(model, folder / MODEL_NAME, **int8, **options)
    names = labels_of(model)
    (folder / "labels.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    notes = compile_for_edge_tpu(folder, path)
    return Written(folder / MODEL_NAME, "litert", notes)


def require_edge_tpu_model(model, target):
    """Raises ValueError for a model that the Edge TPU cannot run."""
    require_detection_alone(model, target)
    config = model.config
    activations = (config.activation, config.backbone_activation or config.activation)
    if config.backbone not in _BACKBONES or not {*activations} <= {*_ACTIVATIONS}:
        raise InvalidValueError(
            f"`target={target!r}` works only with EfficientDet-Lite0 to Lite3: other "
            "models are too large for the 8 MB of the Edge TPU, or use activations "
            f"that it does not have. Received: backbone={config.backbone!r}, "
            f"activation={config.activation!r}, "
            f"backbone_activation={config.backbone_activation!r}. Train "
            "`efficientdet-lite0`."
        )


def compile_for_edge_tpu(folder, path):
    """Compiles `model.tflite` in a folder if the compiler is here; returns notes."""
    compiler = shutil.which(_COMPILER)
    if compiler is None:
        command = f"{_COMPILER} -s -o {path} {path / MODEL_NAME}"
        return (
            (
                f"  {_COMPILER} is not installed here; on a machine with it, run: "
                f"{command}"
            ),
        )
    done = subprocess.run(
        [compiler, "-s", "-o", str(folder), str(folder / MODEL_NAME)],
        capture_output=True,
        text=True,
    )
    if done.returncode or not (folder / COMPILED_NAME).is_file():
        raise InvalidStateError(
            f"{_COMPILER} could not compile '{MODEL_NAME}' (status "
            f"{done.returncode}):\n{done.stdout}{done.stderr}"
        )
    counts = [
        line for line in done.stdout.splitlines() if "Number of operations" in line
    ]
    return f"  compiled: {COMPILED_NAME}", *(f"  {line}" for line in counts)


def write_gpu(model, folder, path, **options):
    """Writes `model.tflite` in float16, for LiteRT's CompiledModel.

    LiteRT's GPU delegates do not support `TFLite_Detection_PostProcess`, and reject a
    file with it (https://github.com/google-ai-edge/LiteRT/issues/7936). In this file,
    builtin operations of LiteRT decode the boxes, select the best, and suppress them as
    the model does, also with Soft-NMS.
    """
    ours = {"precision": "float16", "postprocess_ops": "builtin"}
    FORMATS["litert"].write(model, folder / MODEL_NAME, **ours, **options)
    return Written(folder / MODEL_NAME, "litert")


# --- A requirement of several targets.


def require_detection_alone(model, target):
    """Raises ValueError for a model with other heads, if a target only detects."""
    if model.config.has_segmentation or not model.config.has_detection:
        raise InvalidValueError(
            f"`target={target!r}` works only with models that have just a detection "
            f"head. Received: heads={model.config.heads!r}. Train a model with "
            "heads='object_detection', or export with `format='litert'`."
        )
