"""TensorRT: an ONNX file that ends in EfficientNMS_TRT, and configs for its servers."""

from __future__ import annotations

import dataclasses
import importlib.resources
import os

import numpy as np

from effdet_keras._internal.optional_imports import onnx, onnxruntime
from effdet_keras._version import __version__
from effdet_keras.errors import InvalidValueError
from effdet_keras.export.onnx import decoding_constants, decoding_nodes, rename_values
from effdet_keras.export.onnx_network import network_of_planes
from effdet_keras.export.registry import Written
from effdet_keras.export.runtime import (
    DESCRIPTION_NAME,
    Description,
    Runtime,
    labels_of,
)
from effdet_keras.extras.targets.servers import triton_tensor
from effdet_keras.extras.targets.tflite import require_detection_alone

MODEL_NAME, PLAN_NAME = "model.onnx", "model.plan"
_PARSER_NAME = "deepstream_parser.cpp"
_PLUGIN, _DOMAIN = "EfficientNMS_TRT", "TRT"
_OUTPUTS = (
    "num_detections",
    "detection_boxes",
    "detection_scores",
    "detection_classes",
)
# Limits from the plugin's page (plugin/efficientNMSPlugin/README.md of TensorRT): the
# number of pairs of box and class that it considers, and the score threshold below
# which it is slow.
_MAX_CANDIDATES, _LOWEST_SCORE = 4096, 0.01


def write_tensorrt(
    model,
    folder,
    path,
    *,
    max_batch_size=8,
    score_threshold=None,
    iou_threshold=None,
    max_detections=None,
):
    """Writes `model.onnx`, and the configurations of Triton and DeepStream.

    `trtexec` builds an engine from the file on the machine where it will run. `path` is
    `REPOSITORY/MODEL`, as for `target="triton"`.
    """
    require_detection_alone(model, "tensorrt")
    own = model.postprocess
    given = {
        "score_threshold": score_threshold,
        "iou_threshold": iou_threshold,
        "max_detections": max_detections,
    }
    postprocess = dataclasses.replace(
        own,
        **{
            "method": "hard",
            "pre_nms_top_k": _MAX_CANDIDATES,
            "max_detections_per_class": None,
            "clip": False,
            "drop_empty": False,
            "score_threshold": max(own.lowest_score, _LOWEST_SCORE),
            **{name: value for name, value in given.items() if value is not None},
        },
    )
    file, description = network_of_planes(model, batch_size=None)
    description = dataclasses.replace(
        description, outputs="detections", postprocess=postprocess
    )
    _append_plugin(file, model, description)
    onnx.save(file, folder / MODEL_NAME)
    (folder / "1").mkdir()  # the folder for the engine
    for name, text in _texts(path.name, description, max_batch_size).items():
        (folder / name).write_text(text, encoding="utf-8")
    shapes = [
        f"--{name}Shapes=images:{count}x3x{'x'.join(map(str, model.config.image_size))}"
        for name, count in (("min", 1), ("opt", 1), ("max", max_batch_size or 1))
    ]
    note = (
        f"  trtexec --onnx={path / MODEL_NAME} --saveEngine={path / '1' / PLAN_NAME} "
        f"--fp16 {' '.join(shapes)}"
    )
    runtime = TensorRTCheck(folder / MODEL_NAME)
    return Written(folder / MODEL_NAME, "tensorrt", (note,), runtime)


# --- The graph, with decoded boxes and logits as inputs of the plugin.

_GRAPH = "decoding (float[B, N, 4] box_deltas) => (float[B, N, 4] plugin_boxes)"
_CORNERS = """
  y_min, x_min = Split <axis: int = -1> (lows, ones)
  y_max, x_max = Split <axis: int = -1> (highs, ones)
  plugin_boxes = Concat <axis: int = -1> (x_min, y_min, x_max, y_max)
"""
# Larger sides than e**8 anchors do not occur in images, and float16 cannot hold them.
_MAX_LOG_SIDE = 8.0


def _append_plugin(file, model, description):
    """Appends the decoding of boxes and the plugin to a network's file."""
    graph, post = file.graph, description.postprocess
    nodes = decoding_nodes("box_deltas", "anchor_centers", "anchor_sides")
    tail = onnx.parser.parse_graph(f"{_GRAPH}{{{nodes}{_CORNERS}}}")
    names = {value.name for value in [*tail.input, *tail.output]}
    constants = decoding_constants(model.anchors, model.config, _MAX_LOG_SIDE)
    constants["ones"] = np.int64([1, 1])
    # The prefix avoids names of the network.
    rename_values(tail, lambda name: name if name in names else f"decoding/{name}")
    graph.node.extend(tail.node)
    for name, value in constants.items():
        array = onnx.numpy_helper.from_array(value, f"decoding/{name}")
        graph.initializer.append(array)
    graph.node.append(
        onnx.helper.make_node(
            _PLUGIN,
            ["plugin_boxes", "class_logits"],
            list(_OUTPUTS),
            name="detections",
            domain=_DOMAIN,
            plugin_version="1",
            score_threshold=float(post.lowest_score),
            iou_threshold=float(post.iou_threshold),
            max_output_boxes=post.max_detections,
            background_class=-1,
            score_activation=1,  # the scores are logits
            class_agnostic=int(not post.per_class),
            box_coding=0,  # corners
        )
    )
    real, whole, count = (
        onnx.TensorProto.FLOAT,
        onnx.TensorProto.INT32,
        post.max_detections,
    )
    shapes = ((whole, [1]), (real, [count, 4]), (real, [count]), (whole, [count]))
    del graph.output[:]
    graph.output.extend(
        onnx.helper.make_tensor_value_info(name, kind, ["batch", *shape])
        for name, (kind, shape) in zip(_OUTPUTS, shapes)
    )
    file.opset_import.append(onnx.helper.make_opsetid(_DOMAIN, 1))
    file.producer_name, file.producer_version = "effdet_keras", __version__
    onnx.helper.set_model_props(file, {DESCRIPTION_NAME: description.to_json()})
    onnx.checker.check_model(file)


# --- The files of the servers.


def _texts(name, description, max_batch_size):
    """Returns the texts of the files next to the model, by name."""
    parser = importlib.resources.files(__package__).joinpath(_PARSER_NAME)
    return {
        "labels.txt": "\n".join(labels_of(description)) + "\n",
        "config.pbtxt": _triton_configuration(name, description, max_batch_size),
        "config_infer.txt": _deepstream_configuration(description),
        _PARSER_NAME: parser.read_text(encoding="utf-8"),
    }


def _triton_configuration(name, description, max_batch_size):
    """Returns the text of `config.pbtxt`, for the engine."""
    count = description.postprocess.max_detections
    images = ("images", "TYPE_FP32", (3, *description.config.image_size))
    outputs = zip(
        _OUTPUTS,
        ("TYPE_INT32", "TYPE_FP32", "TYPE_FP32", "TYPE_INT32"),
        ((1,), (count, 4), (count,), (count,)),
    )
    return (
        f'name: "{name}"\n'
        'platform: "tensorrt_plan"\n'
        f"max_batch_size: {max_batch_size or 1}\n"
        f"input [{triton_tensor(*images)}]\n"
        + "".join(f"output [{triton_tensor(*output)}]\n" for output in outputs)
        + "dynamic_batching { max_queue_delay_microseconds: 1000 }\n"
    )


def _deepstream_configuration(description):
    """Returns the text of `config_infer.txt`, for the element nvinfer."""
    height, width = description.config.image_size
    return f"""\
[property]
gpu-id=0
onnx-file={MODEL_NAME}
model-engine-file={MODEL_NAME}_b1_gpu0_fp16.engine
labelfile-path=labels.txt
batch-size=1
network-mode=2
network-type=0
num-detected-classes={description.config.num_classes}
infer-dims=3;{height};{width}
net-scale-factor=1
model-color-format=0
maintain-aspect-ratio=1
symmetric-padding=0
cluster-mode=4
parse-bbox-func-name=NvDsInferParseEffdet
custom-lib-path=libeffdet_parser.so

[class-attrs-all]
pre-cluster-threshold=0.3
"""


# --- The check, which computes the graph before the plugin, and the plugin in NumPy.


class TensorRTCheck(Runtime):
    """Runs a file in ONNX Runtime, and the plugin, as documented, in NumPy."""

    package = onnxruntime

    def __init__(self, path):
        self.path = path
        file = onnx.load(os.fspath(path))
        texts = {item.key: item.value for item in file.metadata_props}
        self.description = Description.from_json(texts[DESCRIPTION_NAME])
        plugin = file.graph.node.pop()
        self._options = _checked_plugin(plugin, file.graph)
        del file.graph.output[:]
        file.graph.output.extend(
            onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
            for name in plugin.input
        )
        self._session = onnxruntime.InferenceSession(
            file.SerializeToString(), providers=["CPUExecutionProvider"]
        )

    def run(self, images):
        """See `Runtime.run`."""
        planes = np.ascontiguousarray(images.transpose(0, 3, 1, 2), "float32")
        boxes, logits = self._session.run(None, {"images": planes})
        options, config = self._options, self.description.config
        postprocess = dataclasses.replace(
            self.description.postprocess,
            score_threshold=options["score_threshold"],
            iou_threshold=options["iou_threshold"],
            max_detections=options["max_output_boxes"],
            per_class=not options["class_agnostic"],
        )
        # The boxes are passed as anchors with deltas of 0, which leaves them unchanged.
        # The rest is what the plugin does.
        found = [
            postprocess(
                {
                    "class_logits": logits[i : i + 1],
                    "box_deltas": np.zeros_like(boxes[i : i + 1]),
                },
                boxes[i][:, [1, 0, 3, 2]],
                config.image_size,
            )
            for i in range(len(boxes))
        ]
        return {name: np.concatenate([one[name] for one in found]) for name in found[0]}


def _checked_plugin(plugin, graph):
    """Returns the plugin's parameters; raises an error if they or shapes are wrong."""
    options = {a.name: onnx.helper.get_attribute_value(a) for a in plugin.attribute}
    wanted = {"plugin_version": b"1", "background_class": -1, "box_coding": 0}
    wanted["score_activation"] = 1
    shapes = {
        value.name: [axis.dim_value or axis.dim_param for axis in shape.dim]
        for value in graph.output
        for shape in [value.type.tensor_type.shape]
    }
    count = options.get("max_output_boxes")
    expected = [["batch", 1], ["batch", count, 4], ["batch", count], ["batch", count]]
    is_right = (
        (plugin.op_type, list(plugin.output)) == (_PLUGIN, list(_OUTPUTS))
        and wanted.items() <= options.items()
        and shapes == dict(zip(_OUTPUTS, expected))
        and 0 <= options["score_threshold"] <= 1
        and 0 <= options["iou_threshold"] <= 1
    )
    if not is_right:
        raise InvalidValueError(
            f"The file does not end in {_PLUGIN} with the outputs and options that "
            f"TensorRT needs. Received: {plugin.op_type}, {options}, outputs={shapes}"
        )
    return options
