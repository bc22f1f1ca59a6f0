"""Chips whose compilers take an ONNX file cut before decoding: Hailo, Rockchip, Sony.

The compilers run elsewhere. So these targets write the file, the calibration images and
a script for the compiler.
"""

from __future__ import annotations

import importlib.resources
import json
import os

import numpy as np
from PIL import Image

from effdet_keras._internal.optional_imports import onnx, onnxruntime
from effdet_keras.errors import InvalidStateError, InvalidValueError, require
from effdet_keras.export.network import (
    CALIBRATION_IMAGES,
    calibration_inputs,
    check_calibration,
)
from effdet_keras.export.onnx_network import network_of_planes, require_operations
from effdet_keras.export.registry import Written
from effdet_keras.export.runtime import (
    DESCRIPTION_NAME,
    Description,
    Runtime,
    join_levels,
)
from effdet_keras.extras.targets.detector import write_detector
from effdet_keras.extras.targets.tflite import require_detection_alone
from effdet_keras.network.anchors import level_sizes

MODEL_NAME = "model.onnx"
_MAPS = ("box_deltas", "class_logits")  # the maps of each level, in this order
# The operations that imx500_compile.py.txt converts to layers of torch.
IMX500_OPERATIONS = (
    "Add",
    "BatchNormalization",
    "Clip",
    "Conv",
    "GlobalAveragePool",
    "MaxPool",
    "Mul",
    "Relu",
    "Resize",
    "Sigmoid",
    "Slice",
)


def write_hailo(
    model,
    folder,
    path,
    *,
    chip="hailo8",
    calibration=None,
    calibration_images=CALIBRATION_IMAGES,
    score_threshold=None,
    iou_threshold=None,
):
    """Writes `model.onnx`, `nms_config.json`, `calibration.npy` and `compile.py`.

    `compile.py` runs on a machine with Hailo's Dataflow Compiler. Hailo's suppression
    is hard NMS per class.
    """
    require_detection_alone(model, "hailo")
    pixels = _calibration_pixels(model, calibration, calibration_images)
    _write_cut_network(model, folder)
    post = model.postprocess
    if score_threshold is None:
        score_threshold = max(post.lowest_score, 0.0)
    if iou_threshold is None:
        iou_threshold = post.iou_threshold
    settings = _hailo_settings(model, score_threshold, iou_threshold)
    text = json.dumps(settings, indent=1) + "\n"
    (folder / "nms_config.json").write_text(text, encoding="utf-8")
    np.save(folder / "calibration.npy", pixels)
    levels = list(range(model.config.min_level, model.config.max_level + 1))
    settings = {"CHIP": chip, "LEVELS": levels}
    compiler = "Hailo's Dataflow Compiler"
    return _written(model, folder, path, "hailo", compiler, settings)


def write_rknn(
    model,
    folder,
    path,
    *,
    chip="rk3588",
    calibration=None,
    calibration_images=CALIBRATION_IMAGES,
):
    """Writes `model.onnx` and `compile.py`, and for int8 images in `calibration/`.

    `compile.py` runs on a machine with rknn-toolkit2. Without `calibration`, it
    compiles in float16. With it, `dataset.txt` lists the images.
    """
    require_detection_alone(model, "rknn")
    _write_cut_network(model, folder)
    if calibration is not None:
        (folder / "calibration").mkdir()
        lines = []
        pixels = _calibration_pixels(model, calibration, calibration_images)
        for i, image in enumerate(pixels):
            lines.append(f"calibration/{i:04}.png")
            Image.fromarray(image).save(folder / lines[-1])
        (folder / "dataset.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return _written(model, folder, path, "rknn", "rknn-toolkit2", {"CHIP": chip})


def write_imx500(
    model,
    folder,
    path,
    *,
    calibration=None,
    calibration_images=CALIBRATION_IMAGES,
):
    """Writes `model.onnx`, `calibration.npy` and `compile.py`.

    `compile.py` runs on a machine with Sony's converter and its quantizer.
    """
    require_detection_alone(model, "imx500")
    config = model.config
    rule = (
        "The compile script for the IMX500 can only repeat rows and columns, and "
        "cannot interpolate"
    )
    require(
        "bilinear" not in (config.fpn_upsampling, config.fpn_downsampling),
        rule,
        fpn_upsampling=config.fpn_upsampling,
        fpn_downsampling=config.fpn_downsampling,
    )
    pixels = _calibration_pixels(model, calibration, calibration_images)
    _write_cut_network(model, folder)
    graph = onnx.load(folder / MODEL_NAME).graph
    require_operations(graph.node, IMX500_OPERATIONS, "the IMX500")
    np.save(folder / "calibration.npy", pixels)
    return _written(model, folder, path, "imx500", "imx500-converter", {})


def _calibration_pixels(model, calibration, limit):
    """Returns the calibration images, letterboxed, uint8 `[n, H, W, 3]`."""
    if calibration is None:
        raise InvalidValueError(
            "This chip computes in int8, so the export needs images of the kind the "
            "model will see. Received: calibration=None. Pass a dataset, a folder or "
            "a list of images, such as `calibration=train`"
        )
    limit = CALIBRATION_IMAGES if limit is None else limit
    check_calibration(calibration, limit)
    inputs = calibration_inputs(model.config, calibration, limit)
    pixels = np.empty((len(inputs), *model.config.image_size, 3), "uint8")
    for place, read in enumerate(inputs):
        pixels[place] = read().round()
    return pixels


def _written(model, folder, path, target, compiler, settings):
    """Writes `compile.py`, a script with the settings, and the files of a detector."""
    config, template = model.config, f"{target}_compile.py.txt"
    means = {"MEAN": list(config.mean_rgb), "STDDEV": list(config.stddev_rgb)}
    text = importlib.resources.files(__package__).joinpath(template).read_text("utf-8")
    lines = [f"{key} = {json.dumps(v)}" for key, v in {**settings, **means}.items()]
    text = text.replace("# SETTINGS", "\n".join(lines))
    (folder / "compile.py").write_text(text, encoding="utf-8")
    write_detector(model, folder)
    note = f"  on a machine with {compiler}, run: python {path / 'compile.py'}"
    runtime = LevelsCheck(folder / MODEL_NAME)
    return Written(folder / MODEL_NAME, target, (note,), runtime)


# --- The graph, without normalization, which the compiler adds; an output per map.


def _write_cut_network(model, folder):
    """Writes the network from normalized planes to the maps of each level."""
    file, description = network_of_planes(model)
    _remove_normalization(file.graph)
    levels = range(model.config.min_level, model.config.max_level + 1)
    _cut_levels(file.graph, levels)
    texts = {DESCRIPTION_NAME: description.to_json()}
    onnx.helper.set_model_props(file, texts)
    onnx.checker.check_model(onnx.shape_inference.infer_shapes(file))
    onnx.save(file, folder / MODEL_NAME)


def _remove_normalization(graph):
    """Removes the nodes that subtract the mean and divide by the standard deviation."""
    constants = {tensor.name for tensor in graph.initializer}
    name = "images"
    for wanted in (("Sub", "Add"), ("Mul", "Div")):
        users = [node for node in graph.node if name in node.input]
        others = [n for node in users for n in node.input if n != name]
        is_known = len(users) == 1 and users[0].op_type in wanted
        if not (is_known and set(others) <= constants):
            raise InvalidStateError(
                "The network does not begin with its normalization. Received: "
                f"{[node.op_type for node in users]}"
            )
        name = users[0].output[0]
        graph.node.remove(users[0])
    for node in graph.node:
        node.input[:] = ["images" if given == name else given for given in node.input]


def _cut_levels(graph, levels):
    """Makes the maps of the levels, `[1, channels, h, w]`, the outputs of a graph."""
    made_by = {name: node for node in graph.node for name in node.output}
    shapes = _shapes(graph)
    names, outputs = {}, []
    for output in _MAPS:
        concat = made_by[output]
        if concat.op_type != "Concat" or len(concat.input) != len(levels):
            raise InvalidStateError(
                f"`{output}` is not a concatenation of the levels. Received: "
                f"{concat.op_type}"
            )
        for level, name in zip(levels, concat.input):
            while made_by[name].op_type in ("Reshape", "Transpose"):
                name = made_by[name].input[0]
            names[name] = f"{output}_{level}"
            outputs.append((level, names[name], shapes[name]))
    for node in graph.node:
        for values in (node.input, node.output):
            values[:] = [names.get(value, value) for value in values]
        if node.output[0] in names.values():
            node.name = node.output[0]
    del graph.output[:]
    kind = onnx.TensorProto.FLOAT
    graph.output.extend(
        onnx.helper.make_tensor_value_info(name, kind, shape)
        for _, name, shape in sorted(outputs)
    )
    _remove_unused(graph)


def _shapes(graph):
    """Returns the shapes of all values, by name."""
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 17)]
    )
    inferred = onnx.shape_inference.infer_shapes(model).graph
    return {
        value.name: [axis.dim_value for axis in value.type.tensor_type.shape.dim]
        for value in inferred.value_info
    }


def _remove_unused(graph):
    """Removes nodes and constants that no output depends on."""
    needed = {output.name for output in graph.output}
    kept = []
    for node in reversed(graph.node):
        if needed & set(node.output):
            needed |= set(node.input)
            kept.append(node)
    del graph.node[:]
    graph.node.extend(reversed(kept))
    constants = [tensor for tensor in graph.initializer if tensor.name in needed]
    del graph.initializer[:]
    graph.initializer.extend(constants)


# --- Hailo's description of the boxes.


def _hailo_settings(model, score_threshold, iou_threshold):
    """Returns `nms_config.json`, as in Hailo's model zoo for EfficientDet-Lite0.

    The names of layers are those of outputs. `compile.py` replaces them by the names
    that the compiler gives to the layers.
    """
    config = model.config
    y, x, height, width = config.box_scales
    if y != x or height != width:
        raise InvalidValueError(
            "Hailo needs one box scale for both coordinates of the center, and one "
            f"for height and width. Received: box_scales={config.box_scales}"
        )
    return {
        "nms_scores_th": score_threshold,
        "nms_iou_th": iou_threshold,
        "image_dims": list(config.image_size),
        "max_proposals_per_class": model.postprocess.max_detections,
        "centers_scale_factor": y,
        "bbox_dimensions_scale_factor": height,
        "classes": config.num_classes,
        "background_removal": False,
        "background_removal_index": 0,
        "bbox_decoders": _decoders(model),
    }


def _decoders(model):
    """Returns the anchors of each level, with sides as fractions of the input.

    They are in the order of the maps' channels.
    """
    config = model.config
    size = np.float32(config.image_size)
    anchors, start, found = np.asarray(model.anchors, "float32"), 0, []
    sizes = level_sizes(config.image_size, config.min_level, config.max_level)
    for level, (rows, columns) in enumerate(sizes, config.min_level):
        count = rows * columns * config.num_anchors
        of_level = anchors[start : start + count]
        start += count
        of_level = of_level.reshape(rows, columns, config.num_anchors, 4) / np.tile(
            size, 2
        )
        sides = of_level[..., 2:] - of_level[..., :2]
        centers = (of_level[..., 2:] + of_level[..., :2]) / 2
        grid = np.stack(
            np.meshgrid(
                (np.arange(rows) + 0.5) / rows,
                (np.arange(columns) + 0.5) / columns,
                indexing="ij",
            ),
            axis=-1,
        )
        if np.abs(centers - grid[:, :, None]).max() > 1e-3:
            raise InvalidValueError(
                "Hailo puts anchors into the middle of cells of equal size, but the "
                f"anchors of level {level} are not there. Received: "
                f"image_size={config.image_size}. Train with multiples of "
                f"{2**config.max_level}, such as 320 with max_level=6"
            )
        found.append(
            {
                "w": [round(float(side), 8) for side in sides[0, 0, :, 1]],
                "h": [round(float(side), 8) for side in sides[0, 0, :, 0]],
                "reg_layer": f"box_deltas_{level}",
                "cls_layer": f"class_logits_{level}",
            }
        )
    return found


# --- The check, which computes the maps in ONNX Runtime, and joins them to raw outputs.


class LevelsCheck(Runtime):
    """Runs a cut file in float32, with the normalization that the compiler adds."""

    package = onnxruntime

    def __init__(self, path):
        self.path = path
        self._session = onnxruntime.InferenceSession(
            os.fspath(path), providers=["CPUExecutionProvider"]
        )
        texts = self._session.get_modelmeta().custom_metadata_map
        self.description = Description.from_json(texts[DESCRIPTION_NAME])

    def run(self, images):
        """See `Runtime.run`."""
        config = self.description.config
        mean, deviation = np.float32(config.mean_rgb), np.float32(config.stddev_rgb)
        planes = ((images - mean) / deviation).astype("float32").transpose(0, 3, 1, 2)
        names = [output.name for output in self._session.get_outputs()]
        maps = dict(zip(names, self._session.run(None, {"images": planes})))
        maps = {name: value.transpose(0, 2, 3, 1) for name, value in maps.items()}
        return join_levels(maps, config)
