"""An ONNX file for TensorRT: the plugin, the servers' files, and what it computes."""

import configparser
import re
import shutil
import subprocess

import keras
import numpy as np
import pytest

from effdet_keras.extras.targets import tensorrt

pytestmark = pytest.mark.tensorflow
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("tf2onnx")

# What the parser uses of DeepStream, as nvdsinfer_custom_impl.h declares it.
STUB = """
#pragma once
#include <vector>
struct NvDsInferLayerInfo { const char* layerName; void* buffer; };
struct NvDsInferNetworkInfo { unsigned int width, height, channels; };
struct NvDsInferParseDetectionParams {
  unsigned int numClassesConfigured;
  std::vector<float> perClassPreclusterThreshold;
};
struct NvDsInferObjectDetectionInfo {
  unsigned int classId;
  float left, top, width, height, detectionConfidence;
};
#define CHECK_CUSTOM_PARSE_FUNC_PROTOTYPE(name) static_assert(true, "")
"""
PROGRAM = """
#include "deepstream_parser.cpp"
#include <cstdio>
int main() {
  std::int32_t count = 4, classes[] = {2, 0, 5, 1};
  float boxes[] = {-3, 2, 10, 20, 1, 2, 3, 4, 0, 0, 9, 9, 90, 0, 99, 9};
  float scores[] = {0.9f, 0.2f, 0.8f, 0.7f};
  std::vector<NvDsInferLayerInfo> layers = {{"detection_classes", classes},
                                            {"detection_boxes", boxes},
                                            {"detection_scores", scores},
                                            {"num_detections", &count}};
  NvDsInferParseDetectionParams params = {3, {0.3f, 0.3f, 0.3f}};
  std::vector<NvDsInferObjectDetectionInfo> found;
  if (!NvDsInferParseEffdet(layers, {64, 48, 3}, params, found)) return 1;
  for (auto& o : found) {
    std::printf("%u %g %g %g %g\\n", o.classId, o.left, o.top, o.width, o.height);
  }
  layers.pop_back();
  return NvDsInferParseEffdet(layers, {64, 48, 3}, params, found) ? 1 : 0;
}
"""


@pytest.fixture(scope="module")
def folder(exported):
    return exported("tensorrt")


@pytest.mark.smoke
def test_the_file_ends_in_the_plugin_with_the_parameters_of_its_page(folder, model):
    file = onnx.load(folder / "model.onnx")
    plugin = file.graph.node[-1]
    options = {a.name: onnx.helper.get_attribute_value(a) for a in plugin.attribute}
    assert (plugin.op_type, plugin.domain) == ("EfficientNMS_TRT", "TRT")
    assert options == {
        "plugin_version": b"1",
        "score_threshold": pytest.approx(0.01),
        "iou_threshold": 0.5,
        "max_output_boxes": 100,
        "background_class": -1,
        "score_activation": 1,
        "class_agnostic": 0,
        "box_coding": 0,
    }
    (images,) = file.graph.input
    dims = [d.dim_value or d.dim_param for d in images.type.tensor_type.shape.dim]
    assert (images.name, dims) == ("images", ["batch", 3, 64, 64])


def test_what_the_plugin_gets_are_the_models_boxes_in_pixels(folder, model):
    check = tensorrt.TensorRTCheck(folder / "model.onnx")
    images = np.random.default_rng(0).uniform(0, 255, (3, 64, 64, 3)).astype("float32")
    raw = {k: keras.ops.convert_to_numpy(v) for k, v in model(images).items()}
    postprocess = check.description.postprocess
    assert (postprocess.method, postprocess.clip) == ("hard", False)
    expected = postprocess(raw, model.anchors, (64, 64))
    found = check.run(images)
    assert expected["num_detections"].min() > 20
    for name in ("scores", "boxes"):
        np.testing.assert_allclose(found[name], expected[name], atol=2e-3)
    np.testing.assert_array_equal(found["labels"], expected["labels"])


@pytest.mark.parametrize(
    "change", [{"score_activation": 0}, {"box_coding": 1}, {"max_output_boxes": 7}]
)
def test_a_plugin_with_other_parameters_is_told(folder, change, tmp_path):
    file = onnx.load(folder / "model.onnx")
    for attribute in file.graph.node[-1].attribute:
        attribute.i = change.get(attribute.name, attribute.i)
    onnx.save(file, tmp_path / "model.onnx")
    with pytest.raises(ValueError, match="does not end in EfficientNMS_TRT"):
        tensorrt.TensorRTCheck(tmp_path / "model.onnx")


@pytest.mark.slow
def test_options_are_in_the_file(model, tmp_path):
    options = {"score_threshold": 0.25, "iou_threshold": 0.7, "max_detections": 20}
    folder = tmp_path / "pets"
    report = model.export(
        folder, target="tensorrt", max_batch_size=2, verbose=0, **options
    )
    assert report.matched == report.live_detections > 20
    plugin = onnx.load(folder / "model.onnx").graph.node[-1]
    found = {a.name: onnx.helper.get_attribute_value(a) for a in plugin.attribute}
    assert found["max_output_boxes"] == 20
    assert found["iou_threshold"] == pytest.approx(0.7)
    assert found["score_threshold"] == 0.25
    assert "--maxShapes=images:2x3x64x64" in report.notes[0]
    assert "max_batch_size: 2\n" in (folder / "config.pbtxt").read_text()


def test_triton_and_deepstream_get_what_fits_the_file(folder):
    text = (folder / "config.pbtxt").read_text()
    assert 'name: "pets"' in text and 'platform: "tensorrt_plan"' in text
    told = re.findall(
        r'name: "(\w+)"\n  data_type: (\w+)\n  dims: \[ ([\d, ]+) \]', text
    )
    graph = onnx.load(folder / "model.onnx").graph
    kinds = {onnx.TensorProto.FLOAT: "TYPE_FP32", onnx.TensorProto.INT32: "TYPE_INT32"}
    assert told == [
        (
            value.name,
            kinds[value.type.tensor_type.elem_type],
            ", ".join(str(d.dim_value) for d in value.type.tensor_type.shape.dim[1:]),
        )
        for value in [*graph.input, *graph.output]
    ]
    assert (folder / "1").is_dir()
    read = configparser.ConfigParser()
    read.read(folder / "config_infer.txt")
    settings = read["property"]
    assert settings["infer-dims"] == "3;64;64"
    assert settings["num-detected-classes"] == "3"
    for key in ("onnx-file", "labelfile-path"):
        assert (folder / settings[key]).is_file()
    parser = (folder / "deepstream_parser.cpp").read_text()
    assert f"bool {settings['parse-bbox-func-name']}(" in parser
    assert settings["custom-lib-path"] in parser


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ here")
def test_the_parser_of_deepstream_reads_whole_classes_and_clips(folder, tmp_path):
    shutil.copy(folder / "deepstream_parser.cpp", tmp_path)
    (tmp_path / "nvdsinfer_custom_impl.h").write_text(STUB)
    (tmp_path / "main.cpp").write_text(PROGRAM)
    flags = ["-std=c++14", "-Wall", "-Wextra", "-Werror", "-I."]
    command = ["g++", *flags, "main.cpp", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "main"], check=True, capture_output=True)
    # The others: a low score, a class that is not configured, a box beside the image.
    assert done.stdout.decode().splitlines() == ["2 0 2 10 18"]
