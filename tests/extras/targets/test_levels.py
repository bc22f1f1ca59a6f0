"""Files for Hailo, Rockchip and Sony: maps of each level, anchors, images, scripts."""

import ast
import json
import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from PIL import Image
from support.target_pages import blocks_of
from support.tiny import tiny_model

from effdet_keras.box_ops import decode_boxes
from effdet_keras.detect.detect import letterboxed
from effdet_keras.detect.postprocess import Postprocess
from effdet_keras.errors import InvalidStateError
from effdet_keras.export.runtime import join_levels
from effdet_keras.extras.targets import levels
from effdet_keras.extras.targets.detector import write_detector
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.network.anchors import anchors_of

pytestmark = pytest.mark.tensorflow
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("tf2onnx")

# What the program of the page uses of Rockchip's library.
RKNN_API = """
#pragma once
#include <cstdint>
typedef uint64_t rknn_context;
enum { RKNN_TENSOR_UINT8, RKNN_TENSOR_NHWC, RKNN_QUERY_IN_OUT_NUM };
enum { RKNN_QUERY_OUTPUT_ATTR = 7 };
struct rknn_input { uint32_t index; void* buf; uint32_t size; int type, fmt; };
struct rknn_output { uint8_t want_float; void* buf; };
struct rknn_input_output_num { uint32_t n_input, n_output; };
struct rknn_tensor_attr { uint32_t index, dims[16]; char name[256]; };
inline int rknn_inputs_set(rknn_context, uint32_t, rknn_input*) { return 0; }
inline int rknn_run(rknn_context, void*) { return 0; }
inline int rknn_query(rknn_context, int, void*, uint32_t) { return 0; }
inline int rknn_outputs_get(rknn_context, uint32_t, rknn_output*, void*) { return 0; }
inline int rknn_outputs_release(rknn_context, uint32_t, rknn_output*) { return 0; }
"""
# A compiler that keeps what it was given.
HAILO = """
import json, pathlib
class _Layer:
    def __init__(self, name): self.inputs = [name]
class ClientRunner:
    def __init__(self, hw_arch): self.told = {"chip": hw_arch}
    def translate_onnx_model(self, path, name, start_node_names, end_node_names):
        self.ends = end_node_names
    def get_hn_model(self): return self
    def get_output_layers(self):
        return [_Layer(f"model/conv{i}") for i, _ in enumerate(self.ends)]
    def load_model_script(self, text): self.told["script"] = text
    def optimize(self, images): self.told["images"] = list(images.shape)
    def compile(self): return json.dumps({**self.told, "ends": self.ends}).encode()
"""
RKNN = """
import json, pathlib
class RKNN:
    def __init__(self): self.told = {}
    def config(self, **given): self.told.update(given); return 0
    def load_onnx(self, model): return 0 if pathlib.Path(model).is_file() else -1
    def build(self, **given): self.told.update(given); return 0
    def export_rknn(self, path):
        pathlib.Path(path).write_text(json.dumps(self.told))
        return 0
"""


# A quantizer that keeps what the network computes of the first image, and a converter.
MCT = """
import pathlib, sys
import numpy as np
import torch
class ptq:
    @staticmethod
    def pytorch_post_training_quantization(network, representative):
        with torch.no_grad():
            maps = [network(*planes) for planes in representative()]
        return maps, None
class exporter:
    @staticmethod
    def pytorch_export_model(maps, save_model_path, repr_dataset):
        np.savez(pathlib.Path(save_model_path).with_name("maps.npz"), *maps[0])
        pathlib.Path(save_model_path).write_text(str(len(maps)))
"""
IMXCONV = """#!/bin/sh
mkdir -p "$4" && cp "$2" "$4/packerOut.zip"
"""


def run_script(folder, module, text, tmp_path):
    """Runs `compile.py` of a folder with a stand-in for its compiler."""
    path = (tmp_path / module).with_suffix(".py")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    command = [sys.executable, folder / "compile.py"]
    environ = {"PYTHONPATH": f"{tmp_path}:{':'.join(filter(None, sys.path))}"}
    environ["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    subprocess.run(command, check=True, env=environ, timeout=300)


@pytest.fixture(scope="module")
def hailo(exported):
    return exported("hailo")


@pytest.mark.smoke
def test_each_level_has_its_maps_and_no_normalization_is_left(hailo):
    graph = onnx.load(hailo / "model.onnx").graph
    shapes = {
        o.name: [d.dim_value for d in o.type.tensor_type.shape.dim]
        for o in graph.output
    }
    assert shapes == {
        "box_deltas_3": [1, 36, 8, 8],
        "class_logits_3": [1, 27, 8, 8],
        "box_deltas_4": [1, 36, 4, 4],
        "class_logits_4": [1, 27, 4, 4],
        "box_deltas_5": [1, 36, 2, 2],
        "class_logits_5": [1, 27, 2, 2],
    }
    assert set(shapes) <= {node.name for node in graph.node}
    kinds = {node.op_type for node in graph.node}
    assert not kinds & {"Sub", "Mul", "Div", "Transpose", "Reshape"}
    (first,) = (node for node in graph.node if "images" in node.input)
    assert first.op_type == "Conv"


def test_the_anchors_of_hailo_decode_to_the_models_boxes(hailo, model):
    """By the rule of SSD: cells of equal size, sides as shares of the input."""
    settings = json.loads((hailo / "nms_config.json").read_text())
    assert (settings["classes"], settings["image_dims"]) == (3, [64, 64])
    assert settings["nms_iou_th"] == 0.5 and settings["nms_scores_th"] == 0.001
    rng = np.random.default_rng(0)
    deltas = rng.normal(0, 0.5, (len(model.anchors), 4)).astype("float32")
    boxes, start = [], 0
    for decoder, cells in zip(settings["bbox_decoders"], (8, 4, 2), strict=True):
        for y in range(cells):
            for x in range(cells):
                for width, height in zip(decoder["w"], decoder["h"]):
                    ty, tx, th, tw = deltas[start]
                    center = (
                        (y + 0.5) / cells + ty * height,
                        (x + 0.5) / cells + tx * width,
                    )
                    sides = np.exp(th) * height, np.exp(tw) * width
                    low = [c - s / 2 for c, s in zip(center, sides)]
                    high = [c + s / 2 for c, s in zip(center, sides)]
                    boxes.append([64 * v for v in (*low, *high)])
                    start += 1
    expected = decode_boxes(deltas, np.asarray(model.anchors))
    np.testing.assert_allclose(boxes, expected, atol=1e-3)


def test_the_maps_are_the_models_outputs(hailo, model):
    images = np.random.default_rng(0).uniform(0, 255, (1, 64, 64, 3)).astype("float32")
    found = levels.LevelsCheck(hailo / "model.onnx").run(images)
    for name, value in model(images).items():
        value = keras.ops.convert_to_numpy(value)
        np.testing.assert_allclose(found[name], value, atol=2e-4 * np.abs(value).max())


def test_hailos_script_uses_the_compilers_own_names(hailo, tmp_path):
    folder = shutil.copytree(hailo, tmp_path / "pets")
    run_script(folder, "hailo_sdk_client", HAILO, tmp_path)
    told = json.loads((folder / "model.hef").read_bytes())
    assert told["chip"] == "hailo8" and told["images"] == [3, 64, 64, 3]
    assert told["ends"][:3] == ["box_deltas_3", "class_logits_3", "box_deltas_4"]
    compiled = json.loads((folder / "nms_config_compiled.json").read_text())
    names = [(d["reg_layer"], d["cls_layer"]) for d in compiled["bbox_decoders"]]
    assert names == [(f"model/conv{i}", f"model/conv{i + 1}") for i in (0, 2, 4)]
    lines = told["script"].splitlines()
    assert lines[0] == (
        "normalization1 = normalization([127.0, 127.0, 127.0], [128.0, 128.0, 128.0])"
    )
    assert lines[1] == "change_output_activation(model/conv1, sigmoid)"
    assert lines[-1].endswith('nms_config_compiled.json", meta_arch=ssd, engine=cpu)')


def test_anchors_beside_the_middle_of_equal_cells_are_refused(model):
    moved = SimpleNamespace(config=model.config, anchors=model.anchors + np.float32(4))
    with pytest.raises(ValueError, match="into the middle of cells of equal size"):
        levels._decoders(moved)


def test_hailos_description_of_an_oblong_input_and_of_its_own_thresholds():
    """Sides are shares of the input: heights of its height, widths of its width."""
    config = tiny_model().config.replace(
        image_size=(64, 128), box_scales=(10.0, 10.0, 5.0, 5.0)
    )
    anchors = anchors_of(config)
    post = Postprocess(score_threshold=0.2, iou_threshold=0.4, max_detections=7)
    model = SimpleNamespace(config=config, anchors=anchors, postprocess=post)
    settings = levels._hailo_settings(model, 0.2, 0.4)
    assert settings["image_dims"] == [64, 128]
    assert settings["centers_scale_factor"] == 10.0
    assert settings["bbox_dimensions_scale_factor"] == 5.0
    assert (settings["nms_scores_th"], settings["nms_iou_th"]) == (0.2, 0.4)
    assert settings["max_proposals_per_class"] == 7
    start = 0
    for decoder, cells in zip(settings["bbox_decoders"], (8 * 16, 4 * 8, 2 * 4)):
        low, high = np.split(anchors[start : start + config.num_anchors], 2, axis=1)
        heights, widths = (high - low).T
        np.testing.assert_allclose(decoder["h"], heights / 64, atol=1e-6)
        np.testing.assert_allclose(decoder["w"], widths / 128, atol=1e-6)
        start += cells * config.num_anchors


@pytest.fixture
def only_images(monkeypatch):
    """Nothing is written of the network; gives the settings of each script."""
    told = []
    monkeypatch.setattr(levels, "_write_cut_network", lambda *_: None)
    monkeypatch.setattr(levels, "_written", lambda *given: told.append(given[-1]))
    return told


def test_thresholds_of_hailo_are_the_models_unless_given(only_images, tmp_path):
    config = tiny_model().config
    post = Postprocess(score_threshold=0.2, iou_threshold=0.4)
    model = SimpleNamespace(config=config, anchors=anchors_of(config), postprocess=post)
    image = np.random.default_rng(0).integers(0, 256, (64, 64, 3), "uint8")
    for given, expected in (
        ({}, (0.2, 0.4)),
        ({"score_threshold": 0.0, "iou_threshold": 0.0}, (0.0, 0.0)),
    ):
        levels.write_hailo(model, tmp_path, tmp_path, calibration=[image], **given)
        text = json.loads((tmp_path / "nms_config.json").read_text())
        assert (text["nms_scores_th"], text["nms_iou_th"]) == expected
    assert only_images[0] == {"CHIP": "hailo8", "LEVELS": [3, 4, 5]}


def test_images_to_calibrate_with_are_rounded_and_rgb(only_images, tmp_path):
    config = tiny_model().config
    model = SimpleNamespace(config=config)
    image = np.random.default_rng(0).integers(0, 256, (40, 60, 3), "uint8")
    image[..., 2] = 0
    levels.write_rknn(model, tmp_path, tmp_path, calibration=[image])
    wanted = letterboxed(config, image)[0]
    assert np.abs(wanted - np.trunc(wanted)).max() > 0.6  # what truncation would lose
    with Image.open(tmp_path / "calibration" / "0000.png") as stored:
        np.testing.assert_array_equal(np.asarray(stored), np.rint(wanted))


def test_hailo_needs_images(model, tmp_path):
    with pytest.raises(ValueError, match="images of the kind the model will see"):
        model.export(tmp_path / "pets", target="hailo")


def test_rockchip_gets_a_list_of_images_and_a_script(exported, model, tmp_path):
    folder = shutil.copytree(exported("rknn"), tmp_path / "pets")
    lines = (folder / "dataset.txt").read_text().splitlines()
    assert lines == [f"calibration/000{i}.png" for i in range(3)]
    with Image.open(folder / lines[0]) as image:
        assert image.size == (64, 64) and image.mode == "RGB"
    run_script(folder, "rknn/api", RKNN, tmp_path)
    assert json.loads((folder / "model.rknn").read_text()) == {
        "mean_values": [[127.0, 127.0, 127.0]],
        "std_values": [[128.0, 128.0, 128.0]],
        "target_platform": "rk3588",
        "do_quantization": True,
        "dataset": "dataset.txt",
    }


@pytest.mark.extra_packages
def test_the_script_for_the_imx500_quantizes_the_models_network(
    exported, model, tmp_path
):
    pytest.importorskip("torch")
    folder = shutil.copytree(exported("imx500"), tmp_path / "pets")
    converter = tmp_path / "imxconv-pt"
    converter.write_text(IMXCONV)
    converter.chmod(0o755)
    run_script(folder, "model_compression_toolkit", MCT, tmp_path)
    assert (folder / "compiled" / "packerOut.zip").read_text() == "3"  # images
    images = np.load(folder / "calibration.npy")[:1].astype("float32")
    graph = onnx.load(folder / "model.onnx").graph
    names = [output.name for output in graph.output]
    with np.load(folder / "maps.npz") as stored:
        maps = dict(zip(names, stored.values(), strict=True))
    maps = {name: value.transpose(0, 2, 3, 1) for name, value in maps.items()}
    found = join_levels(maps, model.config)
    for name, value in model(images).items():
        value = keras.ops.convert_to_numpy(value)
        np.testing.assert_allclose(found[name], value, atol=2e-4 * np.abs(value).max())


def test_the_imx500_takes_the_operations_that_its_script_knows():
    text = levels.importlib.resources.files("effdet_keras.extras.targets")
    tree = ast.parse(text.joinpath("imx500_compile.py.txt").read_text("utf-8"))
    tables = {
        node.targets[0].id: [key.value for key in node.value.keys]
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)
    }
    known = {*tables["FUNCTIONS"], *tables["LAYERS"]}
    assert known == set(levels.IMX500_OPERATIONS)


@pytest.mark.parametrize("field", ["fpn_upsampling", "fpn_downsampling"])
def test_the_imx500_refuses_bilinear_interpolation(tmp_path, field):
    config = tiny_model().config.replace(**{field: "bilinear"})
    model = EfficientDet(config, class_names=tiny_model().class_names)
    image = np.random.default_rng(0).integers(0, 256, (64, 64, 3), "uint8")
    with pytest.raises(ValueError, match=f"cannot interpolate.*{field}='bilinear'"):
        levels.write_imx500(model, tmp_path, tmp_path, calibration=[image])


def test_the_imx500_refuses_an_operation_that_its_script_does_not_know(
    model, tmp_path, monkeypatch
):
    known = set(levels.IMX500_OPERATIONS) - {"MaxPool"}
    monkeypatch.setattr(levels, "IMX500_OPERATIONS", known)
    image = np.random.default_rng(0).integers(0, 256, (64, 64, 3), "uint8")
    message = "operation MaxPool, which the export to the IMX500"
    with pytest.raises(InvalidStateError, match=message):
        levels.write_imx500(model, tmp_path, tmp_path, calibration=[image])


def test_scripts_are_python():
    for name in (
        "hailo_compile.py.txt",
        "imx500_compile.py.txt",
        "rknn_compile.py.txt",
    ):
        text = levels.importlib.resources.files("effdet_keras.extras.targets")
        tree = ast.parse(text.joinpath(name).read_text("utf-8"))
        assert ast.get_docstring(tree)


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ here")
def test_the_program_for_rockchip_can_be_compiled(model, tmp_path):
    write_detector(model, tmp_path)
    (tmp_path / "rknn_api.h").write_text(RKNN_API)
    (tmp_path / "program.cpp").write_text(*blocks_of("rknn", "cpp"))
    flags = ["-std=c++14", "-fsyntax-only", "-I.", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["g++", *flags, "program.cpp"], cwd=tmp_path, check=True)
