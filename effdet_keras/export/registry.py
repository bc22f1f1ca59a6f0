"""Tables of the export formats, the export targets and their options.

The tables import no writer, so that `effdet-keras export --help` needs neither Keras
nor TensorFlow. A new format needs one module, `export/<format>.py`, with a function
`write_<format>` and a `Runtime`, and one entry in `FORMATS`. A target is the platform
where a model will run: it chooses format and options, and writes the files that its
tools need in addition to the model.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from effdet_keras._internal.extras import extra
from effdet_keras._internal.number_ranges import NumberRange
from effdet_keras.errors import InvalidTypeError, check_choice, require

# The type and the help text of each option. A type of None means an object that cannot
# be given on a command line.
OPTIONS: dict[str, tuple[type | None, str]] = {
    "names": (
        str,
        'names of the inputs and outputs: "effdet" for the names of this package, '
        '"tfod" for those of the exporter of the TensorFlow Object Detection API',
    ),
    "input_type": (
        str,
        "the input of serving_default and of the frozen graph: pixels as uint8 or as "
        "floats, encoded image files, or serialized tf.train.Examples",
    ),
    "input_dtype": (
        str,
        "type of the numbers of the input: float32, uint8 (pixels), or int8 (pixels "
        "minus 128); by default uint8 for precision int8, otherwise float32",
    ),
    "opset": (int, "version of the ONNX operations, from 13 to 18 (default: 17)"),
    "additional_outputs": (
        str,
        "names of layers, separated by commas, whose outputs the export also returns, "
        "such as fpn_cells",
    ),
    "frozen_graph": (bool, "also write a frozen_graph.pb for TensorFlow 1"),
    "precision": (
        str,
        'precision of the weights: "float32"; "float16", which halves the size, and '
        'computes in float32 on CPUs; "dynamic", with weights in 8 bits and '
        'activations that are rounded at run time; "int8", with weights and '
        "activations in 8 bits",
    ),
    "outputs": (
        str,
        'outputs of the file: "detections", or "raw" for the class logits and box '
        'deltas of all anchors; litert also has "levels" for the same numbers as one '
        "map per level",
    ),
    "calibration": (None, "images like those that the model will see, for int8"),
    "calibration_images": (
        int,
        "the most calibration images to use, evenly spread over all of them",
    ),
    "batch_size": (
        int,
        'number of images per batch; for litert, more than 1 works only with "raw" '
        "outputs",
    ),
    "max_detections": (int, "the most boxes per image; by default, the model's number"),
    "score_threshold": (
        float,
        "lowest score to keep; by default, the model's threshold, or 0.01 in litert "
        "files if the model has none",
    ),
    "iou_threshold": (float, "IoU above which a box suppresses another"),
    "per_class": (bool, "let a box suppress only boxes of its own class"),
    "max_classes_per_detection": (
        int,
        "number of classes per box that TFLite_Detection_PostProcess returns, each as "
        "a row (default: 1)",
    ),
    "detections_per_class": (
        int,
        "with --per-class: the most boxes of one class; by default, the model's number",
    ),
    "postprocess_ops": (
        str,
        'operations of the postprocess in the file: "custom" for the one operation '
        'TFLite_Detection_PostProcess, "builtin" for built-in operations of LiteRT',
    ),
    "int8_scores": (bool, "compute scores in steps of 1/256, as Edge TPUs require"),
    "postprocess": (None, "`Postprocess` of the file; None for the model's own"),
    "vendor": (
        str,
        "vendor of the NPU; the operations of the file are compared with the vendor's "
        "table, or by default with the tables of all vendors",
    ),
    "detector": (
        str,
        'the type of Frigate\'s detector: "edgetpu" (a Coral), "cpu", "openvino" or '
        '"onnx"',
    ),
    "chip": (str, "the chip for which the compiler builds the file"),
    "max_batch_size": (int, "the most images per batch"),
    "runtime_address": (
        str,
        "address of the folder dist of the npm package onnxruntime-web; by default, a "
        "public one",
    ),
}

# The ranges of numeric options. None is the default, and may be given as well.
_COUNT = NumberRange("[1, inf)", whole=True, others=(None,))
_SHARE = NumberRange("[0, 1]", others=(None,))
RANGES = {
    "calibration_images": _COUNT,
    "batch_size": _COUNT,
    "max_detections": _COUNT,
    "score_threshold": _SHARE,
    "iou_threshold": _SHARE,
    "max_batch_size": _COUNT,
    "max_classes_per_detection": _COUNT,
    "detections_per_class": _COUNT,
    "opset": NumberRange("[13, 18]", whole=True, others=(None,)),
}

# The options of a format or target, with their allowed values; () allows any value.
_Choices = Mapping[str, tuple[str, ...]]
_ANY: tuple[str, ...] = ()
_NAMES = {"names": ("effdet", "tfod")}
_INPUT = {"input_dtype": ("float32", "uint8")}
_SAVED_MODEL = {
    **_NAMES,
    **_INPUT,
    "input_type": (
        "image_tensor",
        "float_image_tensor",
        "encoded_image_string_tensor",
        "tf_example",
    ),
    "additional_outputs": _ANY,
    "frozen_graph": _ANY,
}
_OUTPUTS = {"outputs": ("detections", "raw")}
_CALIBRATION = {"calibration": _ANY, "calibration_images": _ANY}
_NMS = {"max_detections": _ANY, "score_threshold": _ANY, "iou_threshold": _ANY}
_THRESHOLDS = {"score_threshold": _ANY, "iou_threshold": _ANY}
_DETECTIONS = {"max_detections": _ANY, "score_threshold": _ANY}
_LITERT = {
    "precision": ("float32", "float16", "dynamic", "int8"),
    "outputs": ("detections", "raw", "levels"),
    **_CALIBRATION,
    "batch_size": _ANY,
    **_NMS,
    "per_class": _ANY,
    "max_classes_per_detection": _ANY,
    "detections_per_class": _ANY,
    "postprocess_ops": ("custom", "builtin"),
    "int8_scores": _ANY,
    "input_dtype": ("float32", "uint8", "int8"),
}
_HALF = {"precision": ("float32", "float16")}
_ONNX = {**_OUTPUTS, "batch_size": _ANY, "postprocess": _ANY, **_INPUT}


@dataclasses.dataclass(frozen=True)
class ExportFormat:
    """An export format; `ending` is that of its files, or "" for a folder."""

    name: str
    title: str
    ending: str
    runtime: str  # the class in `export/<name>.py`
    options: _Choices
    traces_tensorflow: bool = False  # if so, it cannot be written on JAX and torch
    endings_beside: tuple[str, ...] = ()  # endings of files next to the one at the path

    def files_beside(self, path: pathlib.Path) -> list[pathlib.Path]:
        """Returns the files that an export writes next to `path`, except the report.

        Example:
            >>> FORMATS["openvino"].files_beside(pathlib.Path("pets.xml"))[0].name
            'pets.bin'
        """
        return [path.with_suffix(ending) for ending in self.endings_beside]

    def needs_tensorflow(self, options: Mapping[str, Any]) -> bool:
        """Returns whether the format needs TensorFlow with these options."""
        return self.traces_tensorflow

    def without_tensorflow(self) -> str:
        """Returns a sentence with the options without TensorFlow; "" if none."""
        return ""

    def load_writer(self) -> Callable[..., None]:
        """Returns the writer, a function of model, path, and options by keyword."""
        return getattr(self._module(), f"write_{self.name}")

    def load_runtime(self) -> type:
        """Returns the `Runtime` class of the format."""
        return getattr(self._module(), self.runtime)

    def write(self, model: Any, path: pathlib.Path, **options: Any) -> None:
        """Writes a model, if the package that runs the format is installed."""
        self.require_runtime()
        self.load_writer()(model, path, **options)

    def require_runtime(self) -> None:
        """Raises ImportError if the package that runs the format is not installed."""
        package = self.load_runtime().package  # type: ignore[attr-defined]
        package.require(f"The check of a {self.title} export")

    def _module(self):
        return importlib.import_module(f"effdet_keras.export.{self.name}")


_FORMATS = (
    ExportFormat(
        "saved_model", "SavedModel", "", "SavedModelRuntime", _SAVED_MODEL, True
    ),
    ExportFormat("litert", "LiteRT (TFLite)", ".tflite", "LiteRTRuntime", _LITERT),
    ExportFormat("onnx", "ONNX", ".onnx", "ONNXRuntime", {**_ONNX, "opset": _ANY}),
    ExportFormat(
        "openvino",
        "OpenVINO",
        ".xml",
        "OpenVINORuntime",
        {**_ONNX, **_HALF},
        endings_beside=(".bin",),
    ),
    ExportFormat(
        "ncnn",
        "ncnn",
        ".param",
        "NcnnRuntime",
        _HALF,
        endings_beside=(".bin", ".json"),
    ),
    ExportFormat("mnn", "MNN", ".mnn", "MNNRuntime", _HALF, endings_beside=(".json",)),
    ExportFormat("executorch", "ExecuTorch", ".pte", "ExecuTorchRuntime", {}),
    ExportFormat("torch", "PyTorch", ".pt2", "TorchRuntime", {"batch_size": _ANY}),
)
FORMATS = {item.name: item for item in _FORMATS}


class Written(NamedTuple):
    """The result of a target's writer, with notes on what users should know or copy.

    `runtime` runs the file for the check if `format` is not one of `FORMATS`.
    """

    path: pathlib.Path
    format: str
    notes: tuple[str, ...] = ()
    runtime: Any = None


@dataclasses.dataclass(frozen=True)
class ExportTarget:
    """A platform on which exported models run.

    With `takes_int8`, a quantization-aware model becomes int8, unless the value of an
    option is one of `float_choices`. With such a value TensorFlow is not needed either.
    With `needs_device`, its files only run on the device, and not here.
    """

    name: str
    writer: str  # module and function in `extras/targets`
    options: _Choices
    takes_int8: bool = False
    # If so, the target cannot be written on JAX and torch, unless the value of an
    # option is one of `float_choices`.
    traces_tensorflow: bool = False
    float_choices: _Choices = dataclasses.field(default_factory=dict)
    needs_device: bool = False

    def is_int8(self, options: Mapping[str, Any]) -> bool:
        """Whether a quantization-aware model becomes int8 with these options."""
        return self.takes_int8 and not self._is_float(options)

    def needs_tensorflow(self, options: Mapping[str, Any]) -> bool:
        """Returns whether the target needs TensorFlow with these options."""
        return self.traces_tensorflow and not self._is_float(options)

    def without_tensorflow(self) -> str:
        """Returns a sentence with the options without TensorFlow; "" if none."""
        choices = [
            f"`{name}={known[0]!r}`" + "".join(f" or {value!r}" for value in known[1:])
            for name, known in self.float_choices.items()
        ]
        return (
            f" This target also works without TensorFlow, with {', '.join(choices)}."
            if choices
            else ""
        )

    def _is_float(self, options):
        return any(options.get(n) in known for n, known in self.float_choices.items())

    def load_writer(self) -> Callable[..., Written]:
        """Returns the writer, a function that returns `Written`.

        Its arguments are the model, the folder to write, the later path of that folder,
        and the options by keyword. The folder is hidden until it is complete.
        """
        return extra(f"targets.{self.writer}")


_MEDIAPIPE = {"precision": ("float32", "float16", "int8")}
_FRIGATE_DETECTORS = ("edgetpu", "cpu", "openvino", "onnx")
_FRIGATE = {
    "detector": _FRIGATE_DETECTORS,
    **_CALIBRATION,
    "score_threshold": _ANY,
}
_INT8 = {**_CALIBRATION, **_DETECTIONS}
_BATCHES = {"max_batch_size": _ANY}
# The names are those of Hailo's Dataflow Compiler and of rknn-toolkit2.
_HAILO = {"chip": ("hailo8", "hailo8l", "hailo8r", "hailo15h", "hailo15m", "hailo10h")}
_ROCKCHIP = {"chip": ("rk3588", "rk3576", "rk3568", "rk3566", "rk3562")}
NPU_VENDORS = ("qualcomm", "mediatek", "google-tensor", "samsung")
_NPU = {"vendor": NPU_VENDORS, **_CALIBRATION}
_TARGETS = (
    ExportTarget(
        "mediapipe", "tflite:write_mediapipe", {**_MEDIAPIPE, **_INT8}, True, True
    ),
    ExportTarget("coral", "tflite:write_coral", _INT8, True, True),
    ExportTarget(
        "frigate",
        "frigate:write_frigate",
        _FRIGATE,
        takes_int8=True,
        traces_tensorflow=True,
        float_choices={"detector": _FRIGATE_DETECTORS[2:]},
    ),
    ExportTarget("litert-gpu", "tflite:write_gpu", _NMS, traces_tensorflow=True),
    ExportTarget("litert-npu", "npu:write_litert_npu", _NPU, True, True),
    ExportTarget(
        "tf-serving", "servers:write_tf_serving", _NAMES, traces_tensorflow=True
    ),
    ExportTarget("triton", "servers:write_triton", _BATCHES),
    ExportTarget(
        "browser",
        "servers:write_browser",
        {"runtime_address": _ANY, "score_threshold": _ANY},
    ),
    ExportTarget("ncnn", "devices:write_ncnn", _HALF),
    ExportTarget("mnn", "devices:write_mnn", _HALF),
    ExportTarget("executorch", "devices:write_executorch", {}),
    ExportTarget(
        "coreml",
        "coreml:write_coreml",
        {**_HALF, **_THRESHOLDS},
        needs_device=True,
    ),
    ExportTarget(
        "hailo",
        "levels:write_hailo",
        {**_HAILO, **_CALIBRATION, **_THRESHOLDS},
        needs_device=True,
    ),
    ExportTarget("imx500", "levels:write_imx500", _CALIBRATION, needs_device=True),
    ExportTarget(
        "rknn", "levels:write_rknn", {**_ROCKCHIP, **_CALIBRATION}, needs_device=True
    ),
    ExportTarget(
        "tensorrt",
        "tensorrt:write_tensorrt",
        {**_NMS, **_BATCHES},
        needs_device=True,
    ),
)
TARGETS = {item.name: item for item in _TARGETS}


def format_to_write(
    path: str | os.PathLike[str], name: str | None, options: Mapping[str, Any]
) -> ExportFormat:
    """Returns the format to write, from its name or the path's ending.

    Raises:
        ValueError: If the format is unknown, the path does not fit the format, or the
            value of an option is wrong.
        TypeError: If the format does not have an option.
    """
    path = pathlib.Path(path)
    by_ending = _by_ending(path.suffix)
    chosen = by_ending if name is None else FORMATS.get(name)
    rule = (
        f"`format` must be one of {', '.join(FORMATS)}, or `path` must end in "
        f"{_endings()}"
    )
    require(chosen is not None, rule, format=name, path=str(path))
    # A folder may have any name that does not end like another format's files.
    fits = by_ending is chosen or not (by_ending or chosen.ending)
    ending = chosen.ending
    needed = f"end in {ending!r}" if ending else "be a folder without an ending"
    rule = f"The path of a {chosen.name} export must {needed}"
    require(fits, rule, path=str(path))
    _check_options(chosen, f"A {chosen.name} export", options)
    return chosen


def target_to_write(
    path: pathlib.Path, name: str, format: str | None, options: Mapping[str, Any]
) -> ExportTarget:
    """Returns the target of this name.

    Raises:
        ValueError: If the target is unknown, a `format` is given too, the path is that
            of a file, or the value of an option is wrong.
        TypeError: If the target does not have an option.
    """
    check_choice("target", name, TARGETS)
    rule = (
        f"`target={name!r}` chooses the format itself: leave `format` or `target` out"
    )
    require(format is None, rule, format=format)
    is_file = path.suffix and _by_ending(path.suffix)
    rule = f"`target={name!r}` writes a folder: give a path without the ending"
    require(not is_file, rule, path=str(path))
    _check_options(TARGETS[name], f"`target={name!r}`", options)
    return TARGETS[name]


def _check_options(owner, title, options):
    for name, value in options.items():
        known = ", ".join(owner.options)
        rule = f"{title} has " + (f"the options {known}" if known else "no options")
        require(name in owner.options, rule, InvalidTypeError, **{name: value})
        choices = owner.options[name]
        if choices:
            check_choice(name, value, choices)
        if name in RANGES:
            RANGES[name].check(name, value)


def format_of_file(path: str | os.PathLike[str]) -> ExportFormat:
    """Returns the format of an existing file or folder.

    Raises:
        FileNotFoundError: If there is no such file or folder.
        ValueError: If the format is unknown.
    """
    path = pathlib.Path(path)
    if not path.exists():
        raise FileNotFoundError(f"There is no exported model '{path}'")
    is_folder = path.is_dir()
    found = _by_ending("" if is_folder else path.suffix)
    is_ours = found is not None and is_folder == (found.ending == "")
    rule = (
        "A model must be a `.keras` file, a folder, or a file that ends in "
        f"{_endings()}"
    )
    require(is_ours, rule, path=str(path))
    rule = (
        "The folder has no model: no checkpoint (a '.keras' file in it or in its "
        "'archive') and no export ('saved_model.pb'). Give the folder of a run that "
        "has saved a checkpoint, of a `CheckpointArchive`, or of an export"
    )
    has_model = not is_folder or (path / "saved_model.pb").is_file()
    require(has_model, rule, path=str(path))
    return found


def _by_ending(ending: str) -> ExportFormat | None:
    known = (item for item in FORMATS.values() if item.ending == ending.lower())
    return next(known, None)


def _endings() -> str:
    return ", ".join(item.ending for item in FORMATS.values() if item.ending)
