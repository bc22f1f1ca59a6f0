"""Targets that run a `.tflite` file: MediaPipe, Coral, Frigate, LiteRT on GPUs."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess

from effdet_keras._internal.optional_imports import OptionalModule
from effdet_keras.errors import InvalidStateError, InvalidValueError
from effdet_keras.export.registry import FORMATS, Written
from effdet_keras.export.runtime import labels_of

_schema = OptionalModule(
    "tensorflow.lite.python.schema_py_generated", install="tensorflow"
)
_flatbuffer_utils = OptionalModule(
    "tensorflow.lite.tools.flatbuffer_utils", install="tensorflow"
)
MODEL_NAME, COMPILED_NAME = "model.tflite", "model_edgetpu.tflite"
_COMPILER = "edgetpu_compiler"
# Lite4 has 15 million parameters: nothing of it would stay in the 8 MB of the chip.
_BACKBONES = tuple(f"efficientnet-lite{size}" for size in ("0", "1", "2", "3", "-tiny"))
LABELMAP_NAME = "labelmap.txt"
# Both of Frigate's detectors on TFLite files, frigate/detectors/plugins/cpu_tfl.py and
# edgetpu_tfl.py: they read no more detections, and none below a score of 0.4.
_MAX_DETECTIONS = 20


def write_mediapipe(model, folder, path, *, precision=None, **options):
    """Writes `model.tflite`, with labels and metadata inside.

    Without a `precision` it is int8 where there is `calibration`, or the model was
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
        f"MediaPipe stretches images to {width}x{height}: give it images of that shape"
    )
    return Written(folder / MODEL_NAME, "litert", (f"  {note}",))


def write_coral(model, folder, path, **options):
    """Writes `model.tflite` in int8, `labels.txt`, and the compiled file.

    `edgetpu_compiler` runs where it is installed, and leaves `model_edgetpu.tflite`
    and its log. Otherwise a note says how to run it.
    """
    require_edge_tpu_model(model, "coral")
    require_calibration(model, "coral", options.get("calibration"))
    int8 = {"precision": "int8", "int8_scores": True}
    FORMATS["litert"].write(model, folder / MODEL_NAME, **int8, **options)
    names = labels_of(model)
    (folder / "labels.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    notes = compile_for_edge_tpu(folder, path)
    return Written(folder / MODEL_NAME, "litert", notes)


def require_edge_tpu_model(model, target):
    """Refuses what the Edge TPU cannot run."""
    require_detection_alone(model, target)
    if model.config.backbone not in _BACKBONES:
        raise InvalidValueError(
            f"`target={target!r}` takes EfficientDet-Lite0 to Lite3: others do not fit "
            "the Edge TPU's 8 MB, or use activations that it does not have. Received: "
            f"backbone={model.config.backbone!r}. Train `efficientdet-lite0`."
        )


def compile_for_edge_tpu(folder, path):
    """Checks `model.tflite` of a folder, and compiles it where that can be done.

    Returns notes: what stays on the CPU, and what happened or is to be done.
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


def write_frigate(
    model, folder, path, *, detector="edgetpu", score_threshold=0.4, **options
):
    """Writes `model.tflite`, `labelmap.txt` and `frigate.yml`.

    The file takes uint8 pixels `[1, size, size, 3]`, RGB, and returns boxes, classes,
    scores and count in the order in which Frigate reads them, 20 detections at most.
    For a Coral it is checked and compiled as `target="coral"` does.
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
    require_calibration(model, "frigate", options.get("calibration"))
    FORMATS["litert"].write(
        model,
        folder / MODEL_NAME,
        precision="int8",
        max_detections=_MAX_DETECTIONS,
        score_threshold=score_threshold,
        int8_scores=detector == "edgetpu",
        **options,
    )
    names = labels_of(model)
    # With numbers: a class whose name begins with a digit is else taken for a number.
    lines = "".join(f"{i} {name}\n" for i, name in enumerate(names))
    (folder / LABELMAP_NAME).write_text(lines, encoding="utf-8")
    notes = compile_for_edge_tpu(folder, path) if detector == "edgetpu" else ()
    text = _frigate_configuration(path.name, detector, model.config.image_size, names)
    (folder / "frigate.yml").write_text(text, encoding="utf-8")
    notes = (
        *notes,
        f"  copy the folder to Frigate's /config/{path.name}, and add:",
        text,
    )
    return Written(folder / MODEL_NAME, "litert", notes)


def _frigate_configuration(name, detector, image_size, class_names):
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
  labelmap_path: {_quoted(f"/config/{name}/{LABELMAP_NAME}")}
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


def write_gpu(model, folder, path, **options):
    """Writes `model.tflite` in float16, for LiteRT's CompiledModel.

    Its delegates for GPUs know no `TFLite_Detection_PostProcess`, and a file with it
    is refused (https://github.com/google-ai-edge/LiteRT/issues/7936). Here boxes are
    decoded, the best are chosen, and suppressed as the model does (Soft-NMS too), by
    operations that LiteRT itself has.
    """
    ours = {"precision": "float16", "postprocess_ops": "builtin"}
    FORMATS["litert"].write(model, folder / MODEL_NAME, **ours, **options)
    custom = [op.name for op in operations_of(folder / MODEL_NAME) if op.is_custom]
    if custom:
        raise InvalidStateError(
            f"The converter left custom operations in the file: {', '.join(custom)}. "
            "Nothing was written. Another version of TensorFlow may do better."
        )
    return Written(folder / MODEL_NAME, "litert")


# --- What several of them ask of a model.


def require_detection_alone(model, target):
    """Refuses a segmentation head, where a target knows the four outputs only."""
    if model.config.has_segmentation or not model.config.has_detection:
        raise InvalidValueError(
            f"`target={target!r}` takes models that detect and nothing else. Received: "
            f"heads={model.config.heads!r}. Train one with heads='object_detection', "
            "or export with `format='litert'`."
        )


def require_calibration(model, target, calibration):
    """Refuses int8 without images to calibrate with, or learned ranges."""
    if calibration is None and model.quantization is None:
        raise InvalidValueError(
            f"`target={target!r}` is int8, which needs images of the kind the model "
            "will see, to find the range of every activation. Received: "
            "calibration=None. Give a dataset, a folder or a list of images, such as "
            "`calibration=train`; or train the model with `quantize_aware`."
        )


# --- The operations of a `.tflite` file: their names, versions and types.


@dataclasses.dataclass(frozen=True)
class Operation:
    """One kind of operation in a file, such as "CONV_2D"."""

    name: str
    version: int
    is_custom: bool
    types: frozenset[str]  # of all its tensors that are no constants, such as "INT8"
    is_static: bool  # whether every tensor of it has a fixed shape
    count: int  # how often it is there


def operations_of(path):
    """The operations of a `.tflite` file, each kind once, in the order of the first."""
    model = _flatbuffer_utils.convert_bytearray_to_object(bytearray(path.read_bytes()))
    names, type_names = map(_by_number, (_schema.BuiltinOperator, _schema.TensorType))
    found: dict = {}
    for graph in model.subgraphs:
        for operator in graph.operators:
            code = model.operatorCodes[operator.opcodeIndex]
            is_custom = code.customCode is not None
            number = max(code.builtinCode, code.deprecatedBuiltinCode)
            name = code.customCode.decode() if is_custom else names[number]
            tensors = [graph.tensors[i] for i in operator.inputs if i >= 0]
            tensors = [t for t in tensors if not _is_constant(model, t)]
            tensors += [graph.tensors[i] for i in operator.outputs]
            types = frozenset(type_names[tensor.type] for tensor in tensors)
            is_static = not any(_is_dynamic(tensor) for tensor in tensors)
            key = (name, code.version, is_custom, types)
            found.setdefault(key, []).append(is_static)
    return [Operation(*key, all(are), len(are)) for key, are in found.items()]


def _is_constant(model, tensor):
    data = model.buffers[tensor.buffer].data
    return data is not None and len(data) > 0


def _is_dynamic(tensor):
    return tensor.shapeSignature is not None and -1 in tensor.shapeSignature


def _by_number(enumeration):
    return {v: n for n, v in vars(enumeration).items() if isinstance(v, int)}


# --- What `edgetpu_compiler` 16 takes, and what of it the Edge TPU runs.

# Operation to its newest version that the compiler parses.
NEWEST_VERSIONS = {
    "ADD": 3,
    "AVERAGE_POOL_2D": 3,
    "CONCATENATION": 3,
    "CONV_2D": 5,
    "DEPTHWISE_CONV_2D": 6,
    "DEQUANTIZE": 4,
    "EXPAND_DIMS": 1,
    "FULLY_CONNECTED": 9,
    "HARD_SWISH": 1,
    "LOGISTIC": 3,
    "MAXIMUM": 4,
    "MAX_POOL_2D": 3,
    "MEAN": 3,
    "MINIMUM": 4,
    "MUL": 4,
    "PACK": 3,
    "PAD": 3,
    "PADV2": 3,
    "QUANTIZE": 2,
    "RELU": 3,
    "RELU6": 3,
    "RESHAPE": 1,
    "RESIZE_BILINEAR": 4,
    "RESIZE_NEAREST_NEIGHBOR": 4,
    "SLICE": 5,
    "SPLIT": 4,
    "STRIDED_SLICE": 5,
    "SUB": 5,
    "SUM": 2,
    "TRANSPOSE": 5,
}

# Of these, what the Edge TPU runs itself, in 8 bits.
_ON_THE_CHIP = frozenset(NEWEST_VERSIONS) - {"DEQUANTIZE", "HARD_SWISH", "PADV2"}
_CUSTOM = "TFLite_Detection_PostProcess"  # the compiler leaves it to the CPU
# An operation on these is one in 8 bits: INT32 are biases and sizes.
_QUANTIZED = frozenset(("INT8", "UINT8", "INT32"))


def require_compilable(operations):
    """Refuses a file that `edgetpu_compiler` 16 would refuse as a whole."""
    problems = []
    for operation in operations:
        known = {_CUSTOM: 1} if operation.is_custom else NEWEST_VERSIONS
        newest = known.get(operation.name)
        if newest is None:
            problems.append(f"{operation.name} is unknown to it")
        elif operation.version > newest:
            problems.append(
                f"{operation.name} is of version {operation.version}, above {newest}"
            )
        elif not operation.is_static:
            problems.append(f"{operation.name} has a shape that is not fixed")
    if problems:
        raise InvalidValueError(
            f"edgetpu_compiler 16 would refuse the file: {'; '.join(problems)}. "
            "Nothing was written. Train a plain `efficientdet-lite0` to `-lite3`, or "
            "export with an older TensorFlow."
        )


def operations_on_cpu(operations):
    """What the compiler leaves to the CPU, such as "DEQUANTIZE (2)"."""
    counts: dict = {}
    for operation in operations:
        runs = operation.name in _ON_THE_CHIP and operation.types <= _QUANTIZED
        if not runs:
            counts[operation.name] = counts.get(operation.name, 0) + operation.count
    return [f"{name} ({count})" for name, count in counts.items()]
