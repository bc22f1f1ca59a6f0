"""Frigate: files for its detectors for Corals, CPUs, OpenVINO and ONNX Runtime.

Based on frigate/detectors/plugins/ as of 0.18: `edgetpu_tfl.py`, `cpu_tfl.py`,
`openvino.py` and `onnx.py`. Each reads at most 20 detections. Frigate drops detections
with a score below 0.4 (frigate/object_detection/base.py).
"""

from __future__ import annotations

import abc
import dataclasses
import os
import pathlib
import tempfile

import numpy as np

from effdet_keras._internal.optional_imports import (
    onnx,
    onnxruntime,
    openvino,
    openvino_ops,
)
from effdet_keras.errors import InvalidValueError
from effdet_keras.export.onnx import rename_values
from effdet_keras.export.registry import FORMATS, Written
from effdet_keras.export.runtime import (
    DESCRIPTION_NAME,
    Description,
    Runtime,
    as_input,
    labels_of,
)
from effdet_keras.extras.targets.tflite import (
    COMPILED_NAME,
    MODEL_NAME,
    compile_for_edge_tpu,
    require_detection_alone,
    require_edge_tpu_model,
)
from effdet_keras.labels import BACKGROUND

LABELMAP_NAME = "labelmap.txt"
_ONNX_NAME, _OPENVINO_NAME = "model.onnx", "model.xml"
_MAX_DETECTIONS, _SCORE_THRESHOLD = 20, 0.4
_ROW = 7  # numbers per detection in OpenVINO and ONNX files


@dataclasses.dataclass(frozen=True)
class _Detector:
    """The entries of a detector and its file in Frigate's configuration."""

    file: str
    device: str | None
    model_type: str


_DETECTORS = {
    "edgetpu": _Detector(COMPILED_NAME, "usb", "ssd"),
    "cpu": _Detector(MODEL_NAME, None, "ssd"),
    "openvino": _Detector(_OPENVINO_NAME, "CPU", "ssd"),
    "onnx": _Detector(_ONNX_NAME, None, "yolonas"),
}


def write_frigate(
    model,
    folder,
    path,
    *,
    detector="edgetpu",
    score_threshold=_SCORE_THRESHOLD,
    **options,
):
    """Writes the model, `labelmap.txt` and `frigate.yml`.

    The file takes uint8 RGB pixels `[1, size, size, 3]`. It returns at most 20
    detections, in the layout that Frigate reads:

        edgetpu, cpu   model.tflite in int8: boxes, classes, scores and count
        openvino       model.xml: [1, 1, 20, 7], a row of the model type "ssd"
        onnx           model.onnx: [20, 7], a row of the model type "yolonas"

    For a Coral, the model is checked and compiled as with `target="coral"`.

    Args:
        model: `EfficientDet` with a square input.
        folder: path of the folder to write.
        path: the later path of that folder.
        detector: "edgetpu", "cpu", "openvino" or "onnx".
        score_threshold: float, the lowest score to keep.
        **options: `calibration` and `calibration_images`, for int8 files.

    Raises:
        ValueError: If the model or an option does not fit the detector.
    """
    require_detection_alone(model, "frigate")
    height, width = model.config.image_size
    if height != width:
        raise InvalidValueError(
            "`target='frigate'` needs a model with a square input, because Frigate "
            f"cuts squares out of its images. Received: image_size={(height, width)}. "
            "Train with an `image_size` of one number, such as 320."
        )
    if detector in ("edgetpu", "cpu"):
        written = _write_int8(model, folder, path, detector, score_threshold, options)
    else:
        _refuse_calibration(detector, options)
        write = {"openvino": _write_openvino, "onnx": _write_onnx}[detector]
        written = write(model, folder, score_threshold)
    names = labels_of(model)
    # Lines start with the label, because otherwise Frigate would read a class name that
    # starts with a digit as a label.
    lines = "".join(f"{i} {name}\n" for i, name in enumerate(names))
    (folder / LABELMAP_NAME).write_text(lines, encoding="utf-8")
    text = _configuration(path.name, detector, model.config.image_size, names)
    (folder / "frigate.yml").write_text(text, encoding="utf-8")
    where = (
        f"  copy the folder to Frigate's /config/{path.name}, and add this to "
        "Frigate's configuration:"
    )
    return written._replace(notes=(*written.notes, where, text))


def _write_int8(model, folder, path, detector, score_threshold, options):
    """Writes `model.tflite`, for the detectors of TFLite files."""
    is_edge_tpu = detector == "edgetpu"
    if is_edge_tpu:
        require_edge_tpu_model(model, "frigate")
    FORMATS["litert"].write(
        model,
        folder / MODEL_NAME,
        precision="int8",
        max_detections=_MAX_DETECTIONS,
        score_threshold=score_threshold,
        int8_scores=is_edge_tpu,
        # Frigate's interpreters have several threads. With these, LiteRT's per-class
        # suppression loses a class.
        per_class=False,
        **options,
    )
    notes = compile_for_edge_tpu(folder, path) if is_edge_tpu else ()
    note = (
        "a box suppresses overlapping boxes of all classes; with 'openvino' and "
        "'onnx' only those of its own class"
    )
    return Written(folder / MODEL_NAME, "litert", (*notes, f"  {note}"))


def _refuse_calibration(detector, options):
    """Raises an error if there is calibration for a file that is not int8."""
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise InvalidValueError(
            f"`detector={detector!r}` writes a float32 file, which needs no "
            f"`calibration`. Received: {', '.join(given)}. Leave this out, or give "
            "`detector='edgetpu'` or 'cpu', whose files are int8."
        )


def _configuration(name, detector, image_size, class_names):
    """Returns the part of Frigate's configuration for the model, as YAML."""
    height, width = image_size
    facts = _DETECTORS[detector]
    device = f"\n    device: {facts.device}" if facts.device else ""
    tracked = "\n".join(f"    - {_quoted(label)}" for label in class_names)
    return f"""\
detectors:
  {detector}_detector:
    type: {detector}{device}
model:
  path: {_quoted(f"/config/{name}/{facts.file}")}
  labelmap_path: {_quoted(f"/config/{name}/{LABELMAP_NAME}")}
  width: {width}
  height: {height}
  input_tensor: nhwc
  input_pixel_format: rgb
  model_type: {facts.model_type}
objects:
  track:
{tracked}
"""


def _quoted(text):
    """Formats text as a single-quoted YAML string, which has only one escape."""
    return "'" + text.replace("'", "''") + "'"


def _hard_postprocess(model, score_threshold):
    """Returns the model's postprocess as in OpenVINO's DetectionOutput.

    It is hard NMS per class.
    """
    return dataclasses.replace(
        model.postprocess,
        method="hard",
        per_class=True,
        pre_nms_top_k=None,
        max_detections=_MAX_DETECTIONS,
        max_detections_per_class=None,
        clip=True,
        drop_empty=False,
        score_threshold=_SCORE_THRESHOLD
        if score_threshold is None
        else score_threshold,
    )


# --- OpenVINO. All shapes are fixed. The suppression is one operation, which GPUs also
# support. Frigate's own model of this type ends in it too.


def _write_openvino(model, folder, score_threshold):
    """Writes `model.xml` and `model.bin`.

    A row of the output is image, class, score, x0, y0, x1, y1.
    """
    openvino.require("OpenVINO export")
    with tempfile.TemporaryDirectory() as temporary:
        path = pathlib.Path(temporary) / "network.xml"
        given = {"outputs": "raw", "batch_size": 1, "input_dtype": "uint8"}
        FORMATS["openvino"].write(model, path, **given)
        network = openvino.Core().read_model(path)
        text = network.get_rt_info([DESCRIPTION_NAME]).astype(str)
        description = dataclasses.replace(
            Description.from_json(text),
            outputs="detections",
            postprocess=_hard_postprocess(model, score_threshold),
        )
        rows = _detection_output(network, model, description.postprocess)
        whole = openvino.Model([rows], network.get_parameters(), model.config.name)
        whole.set_rt_info(description.to_json(), [DESCRIPTION_NAME])
        # Weights are still read from the temporary folder while they are written.
        openvino.save_model(whole, folder / _OPENVINO_NAME, compress_to_fp16=False)
    runtime = OpenVINOCheck(folder / _OPENVINO_NAME)
    return Written(folder / _OPENVINO_NAME, "openvino", runtime=runtime)


def _detection_output(network, model, postprocess):
    """Appends decoding and NMS to raw outputs: rows `[1, 1, 20, 7]`, best first."""
    ops, config = openvino_ops, model.config
    logits, deltas = (network.output(n) for n in ("class_logits", "box_deltas"))
    logits, deltas = (x.get_node().input_value(0) for x in (logits, deltas))
    # OpenVINO has x before y, in the deltas as well as in the boxes.
    order, axis = np.int64([1, 0, 3, 2]), np.int64(2)
    deltas = ops.divide(
        ops.gather(deltas, order, axis), np.float32(config.box_scales)[order]
    )
    side = np.float32(config.image_size * 2)
    anchors = (np.asarray(model.anchors, "float32") / side)[:, order]
    flat = np.int64([1, -1])
    rows = ops.detection_output(
        ops.reshape(deltas, flat, special_zero=False),
        ops.reshape(ops.sigmoid(logits), flat, special_zero=False),
        anchors.reshape(1, 1, -1),
        {
            "background_label_id": -1,
            "top_k": -1,
            "keep_top_k": [postprocess.max_detections],
            "code_type": "caffe.PriorBoxParameter.CENTER_SIZE",
            "variance_encoded_in_target": True,
            "share_location": True,
            "normalized": True,
            "clip_after_nms": postprocess.clip,
            "nms_threshold": postprocess.iou_threshold,
            "confidence_threshold": postprocess.lowest_score,
        },
    )
    # The operation sorts by class, but Frigate stops reading at the first low score.
    scores = ops.reshape(
        ops.gather(rows, np.int64([2]), np.int64(3)), np.int64([-1]), special_zero=False
    )
    count = np.int64(postprocess.max_detections)
    best = ops.topk(scores, count, axis=0, mode="max", sort="value")
    rows = ops.gather(rows, best.output(1), axis)
    is_used = ops.greater(ops.gather(rows, np.int64([2]), np.int64(3)), np.float32(0))
    return ops.select(is_used, rows, np.float32(0))


# --- ONNX. "yolonas" is the only model type of Frigate's detector without a further
# suppression of boxes. The file itself suppresses boxes.


def _write_onnx(model, folder, score_threshold):
    """Writes `model.onnx`; a row is image, x0, y0, x1, y1 in pixels, score, class."""
    path = folder / _ONNX_NAME
    FORMATS["onnx"].write(
        model,
        path,
        batch_size=1,
        input_dtype="uint8",
        postprocess=_hard_postprocess(model, score_threshold),
    )
    file = onnx.load(path)
    (text,) = (x.value for x in file.metadata_props if x.key == DESCRIPTION_NAME)
    _append_rows(file.graph)
    onnx.helper.set_model_props(file, {DESCRIPTION_NAME: text})
    onnx.checker.check_model(file)
    path.write_bytes(file.SerializeToString())
    return Written(path, "onnx", runtime=ONNXCheck(path))


_ROWS = """
rows (float[1, D, 4] boxes, float[1, D] scores, int32[1, D] labels)
  => (float[D, 7] detections) {
  y_min, x_min, y_max, x_max = Split <axis: int = 2> (boxes, rows_sides)
  score = Unsqueeze (scores, rows_last)
  image = Sub (score, score)
  real_labels = Cast <to: int = 1> (labels)
  label = Unsqueeze (real_labels, rows_last)
  all = Concat <axis: int = 2> (image, x_min, y_min, x_max, y_max, score, label)
  detections = Squeeze (all, rows_first)
}
"""


def _append_rows(graph):
    """Replaces the outputs of a graph by one tensor of rows."""
    tail = onnx.parser.parse_graph(_ROWS)
    constants = {
        "rows_sides": np.int64([1, 1, 1, 1]),
        "rows_last": np.int64([2]),
        "rows_first": np.int64([0]),
    }
    names = {value.name for value in [*tail.input, *tail.output]} | set(constants)
    # The prefix avoids names of the network.
    rename_values(tail, lambda name: name if name in names else f"rows/{name}")
    graph.node.extend(tail.node)
    for name, value in constants.items():
        graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    del graph.output[:]
    kind, shape = onnx.TensorProto.FLOAT, [_MAX_DETECTIONS, _ROW]
    graph.output.append(onnx.helper.make_tensor_value_info("detections", kind, shape))


# --- The check, which runs and reads each file as Frigate does.


class _FrigateCheck(Runtime):
    """Runs a file from one uint8 image to rows, and reads the rows as Frigate does."""

    input_dtype = "uint8"

    def run(self, images):
        """See `Runtime.run`."""
        config = self.description.config
        size = np.float32(config.image_size * 2)
        found = []
        for image in as_input(images, self.input_dtype):
            rows = _tracked(self.rows(image[None]), self.description)
            count = len(rows)
            empty = (0, _MAX_DETECTIONS - count)
            boxes, labels = rows[:, 2:] * size, rows[:, 0].astype("int32")
            found.append(
                {
                    "boxes": np.pad(boxes, (empty, (0, 0))),
                    "scores": np.pad(rows[:, 1], empty),
                    "labels": np.pad(labels, empty, constant_values=BACKGROUND),
                    "num_detections": np.int32(count),
                }
            )
        return {name: np.stack([one[name] for one in found]) for name in found[0]}

    @abc.abstractmethod
    def rows(self, image):
        """Returns rows `[20, 6]`: class, score, y0, x0, y1, x1 as image fractions."""


def _tracked(rows, description):
    """Returns the rows that Frigate uses: all before the first with a low score."""
    is_low = rows[:, 1] < max(description.postprocess.lowest_score, 1e-6)
    kept = rows[: int(is_low.argmax()) if is_low.any() else len(rows)]
    labels = kept[:, 0].astype(int)
    if ((labels < 0) | (labels >= description.config.num_classes)).any():
        raise InvalidValueError(
            f"The file returns classes that the model does not have. Received: {labels}"
        )
    return kept


class OpenVINOCheck(_FrigateCheck):
    """Runs the file of Frigate's OpenVINO detector, on the CPU."""

    package = openvino

    def __init__(self, path, num_threads=None):
        self.path, self.other_files = path, (path.with_suffix(".bin"),)
        # OpenVINO's default, bfloat16 on processors that support it, is so inexact that
        # a check could not distinguish its errors from a fault.
        options = {"INFERENCE_PRECISION_HINT": "f32"}
        if num_threads is not None:
            options["INFERENCE_NUM_THREADS"] = num_threads
        core = openvino.Core()
        network = core.read_model(os.fspath(path))
        text = network.get_rt_info([DESCRIPTION_NAME]).astype(str)
        self.description = Description.from_json(text)
        compiled = core.compile_model(network, "CPU", options)
        (source,), (output,) = compiled.inputs, compiled.outputs
        shape = tuple(output.get_shape())  # raises an error if a side is not fixed
        if shape != (1, 1, _MAX_DETECTIONS, _ROW):
            raise InvalidValueError(
                "The output of the file is not that of Frigate's model type 'ssd'. "
                f"Received: shape={shape}"
            )
        self._input = openvino.Tensor(source.get_element_type(), source.get_shape())
        self._request = compiled.create_infer_request()

    def rows(self, image):
        np.copyto(self._input.data, image)
        self._request.infer(self._input)
        rows = np.array(self._request.get_output_tensor(0).data[0, 0])
        return rows[:, [1, 2, 4, 3, 6, 5]]


class ONNXCheck(_FrigateCheck):
    """Runs the file of Frigate's ONNX detector, in ONNX Runtime on the CPU."""

    package = onnxruntime

    def __init__(self, path, num_threads=None):
        self.path = path
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = num_threads or 0
        self._session = onnxruntime.InferenceSession(
            os.fspath(path), options, providers=["CPUExecutionProvider"]
        )
        properties = self._session.get_modelmeta().custom_metadata_map
        self.description = Description.from_json(properties[DESCRIPTION_NAME])

    def rows(self, image):
        (source,) = self._session.get_inputs()
        (found,) = self._session.run(None, {source.name: image})
        is_end = found[:, 6] < 0  # Frigate stops at a class of -1
        found = found[: int(is_end.argmax()) if is_end.any() else len(found)]
        rows = np.zeros((_MAX_DETECTIONS, 6), "float32")
        height, width = self.description.config.image_size
        share = np.float32([1, 1, height, width, height, width])
        rows[: len(found)] = found[:, [6, 5, 2, 1, 4, 3]] / share
        return rows


# The detectors that take a float file, with the class that runs such a file here.
FLOAT_DETECTORS = {"openvino": OpenVINOCheck, "onnx": ONNXCheck}
