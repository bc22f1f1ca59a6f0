"""Files for NPUs by LiteRT: maps of each level, int8 alone, known operations."""

import json
import shutil
import subprocess
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from support.target_pages import blocks_of
from support.tiny import tiny_model

import effdet_keras as ek
from effdet_keras._internal.optional_imports import tflite_files, tflite_schema
from effdet_keras.export.litert import network_of_file
from effdet_keras.export.registry import NPU_VENDORS
from effdet_keras.export.runtime import open_runtime
from effdet_keras.extras.targets import npu
from effdet_keras.extras.targets.detector import write_detector
from effdet_keras.extras.targets.tflite_levels import cut_levels

pytestmark = pytest.mark.tensorflow
Interpreter = pytest.importorskip("ai_edge_litert.interpreter").Interpreter

# Of a model of 64 pixels, three classes and nine anchors: cells of each level.
CELLS = {3: 8, 4: 4, 5: 2}
SHAPES = {
    f"{name}_{level}": [1, cells, cells, 9 * columns]
    for level, cells in CELLS.items()
    for name, columns in (("box_deltas", 4), ("class_logits", 3))
}
# What the program of the page uses of LiteRT's C++ library.
LITERT_API = {
    "tensorflow/lite/interpreter.h": """
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>
enum TfLiteType { kTfLiteFloat32, kTfLiteInt8 };
struct TfLiteTensor {
  TfLiteType type;
  union { float* f; int8_t* int8; } data;
  struct { float scale; int32_t zero_point; } params;
  std::size_t bytes;
};
struct TfLiteDelegate;
namespace tflite {
struct Interpreter {
  TfLiteTensor* input_tensor(std::size_t) { return nullptr; }
  TfLiteTensor* output_tensor(std::size_t) { return nullptr; }
  const std::vector<int>& outputs() const { static std::vector<int> all; return all; }
  int Invoke() { return 0; }
  int AllocateTensors() { return 0; }
  int ModifyGraphWithDelegate(TfLiteDelegate*) { return 0; }
};
}  // namespace tflite
""",
    "tensorflow/lite/model_builder.h": """
#pragma once
#include <memory>
namespace tflite {
struct FlatBufferModel {
  static std::unique_ptr<FlatBufferModel> BuildFromFile(const char*) { return {}; }
};
}  // namespace tflite
""",
    "tensorflow/lite/kernels/register.h": """
#pragma once
namespace tflite { namespace ops { namespace builtin {
struct BuiltinOpResolver {};
}}}
""",
    "tensorflow/lite/interpreter_builder.h": """
#pragma once
#include "tensorflow/lite/interpreter.h"
#include "tensorflow/lite/kernels/register.h"
#include "tensorflow/lite/model_builder.h"
namespace tflite {
struct InterpreterBuilder {
  InterpreterBuilder(const FlatBufferModel&, const ops::builtin::BuiltinOpResolver&) {}
  int operator()(std::unique_ptr<Interpreter>*) { return 0; }
};
}  // namespace tflite
""",
    "tensorflow/lite/delegates/external/external_delegate.h": """
#pragma once
struct TfLiteDelegate;
struct TfLiteExternalDelegateOptions {
  int (*insert)(TfLiteExternalDelegateOptions*, const char*, const char*);
};
inline TfLiteExternalDelegateOptions TfLiteExternalDelegateOptionsDefault(const char*) {
  return {};
}
inline TfLiteDelegate* TfLiteExternalDelegateCreate(
    const TfLiteExternalDelegateOptions*) {
  return nullptr;
}
""",
}


def report_of(folder):
    return json.loads((folder / "export_report.json").read_text())


def network_of(folder):
    content = network_of_file(folder / "model.tflite")
    return tflite_files.convert_bytearray_to_object(content)


@pytest.fixture(scope="module")
def int8(exported):
    return exported("litert-npu")


@pytest.fixture(scope="module")
def float16(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("npu") / "half"
    model.export(folder, target="litert-npu", verbose=0)
    return folder


@pytest.fixture
def images():
    return np.random.default_rng(0).integers(0, 256, (1, 64, 64, 3)).astype("float32")


@pytest.mark.smoke
def test_all_numbers_of_the_file_are_int8(int8):
    interpreter = Interpreter(model_path=str(int8 / "model.tflite"))
    interpreter.allocate_tensors()
    (source,) = interpreter.get_input_details()
    assert source["dtype"] == np.int8 and source["quantization"] == (1.0, -128)
    outputs = interpreter.get_output_details()
    assert {o["name"]: o["shape"].tolist() for o in outputs} == SHAPES
    assert {o["dtype"] for o in outputs} == {np.int8}
    kinds = {
        tflite_files.type_to_name(t.type) for t in network_of(int8).subgraphs[0].tensors
    }
    assert kinds == {"INT8", "INT32"}
    graph = network_of(int8).subgraphs[0]  # in which everything is used
    read = {*graph.outputs, *(x for op in graph.operators for x in op.inputs)}
    assert all(read & set(op.outputs) for op in graph.operators)
    made = {*graph.inputs, *(x for op in graph.operators for x in op.outputs)}
    assert set(range(len(graph.tensors))) <= read | made
    report = report_of(int8)
    assert (report["precision"], report["outputs"]) == ("int8", "levels")
    assert "are in the tables of qualcomm, mediatek" in report["notes"][0]


def test_float16_stores_weights_as_such(float16, model, images):
    interpreter = Interpreter(model_path=str(float16 / "model.tflite"))
    interpreter.allocate_tensors()
    outputs = interpreter.get_output_details()
    assert {o["name"]: o["shape"].tolist() for o in outputs} == SHAPES
    tensors = network_of(float16).subgraphs[0].tensors
    kinds = {tflite_files.type_to_name(t.type) for t in tensors}
    assert kinds == {"FLOAT16", "FLOAT32", "INT32"}
    found = open_runtime(float16 / "model.tflite").run(images)
    for name, value in model(images).items():
        value = keras.ops.convert_to_numpy(value)
        assert found[name].shape == value.shape
        np.testing.assert_allclose(found[name], value, atol=5e-3 * np.abs(value).max())


def test_int8_outputs_are_numbers_times_their_scale_in_the_anchors_order(int8, images):
    """Anchor `a` of row `y` and column `x` of level 4 is behind those of level 3."""
    interpreter = Interpreter(model_path=str(int8 / "model.tflite"))
    interpreter.allocate_tensors()
    interpreter.set_tensor(
        interpreter.get_input_details()[0]["index"], (images - 128).astype("int8")
    )
    interpreter.invoke()
    details = {o["name"]: o for o in interpreter.get_output_details()}
    found = open_runtime(int8 / "model.tflite").run(images)
    y, x, a = 1, 2, 3
    anchor = 8 * 8 * 9 + (y * 4 + x) * 9 + a
    for name, columns in (("box_deltas", 4), ("class_logits", 3)):
        detail = details[f"{name}_4"]
        scale, zero = detail["quantization"]
        stored = interpreter.get_tensor(detail["index"])[0, y, x]
        expected = [(int(v) - zero) * scale for v in stored]
        expected = expected[a * columns : (a + 1) * columns]
        np.testing.assert_allclose(found[name][0, anchor], expected, rtol=1e-6)


def test_the_file_finds_what_the_model_finds(float16, int8, model):
    assert report_of(int8)["matched"] > 0.7 * report_of(int8)["live_detections"] > 20
    predictor = ek.Predictor.load(float16 / "model.tflite")
    image = np.random.default_rng(1).integers(0, 256, (40, 60, 3), "uint8")
    found, expected = predictor.detect(image, 0.3), model.detect(image, 0.3)
    assert len(expected) > 5
    np.testing.assert_allclose(found.scores[:5], expected.scores[:5], atol=0.01)


@pytest.mark.parametrize(("given", "expected"), [(7, 7), (None, 100)])
def test_as_many_images_calibrate_as_are_asked_for(
    monkeypatch, tmp_path, given, expected
):
    class Written(Exception):
        pass

    def write(model, path, **options):
        assert options == {
            "outputs": "levels",
            "precision": "int8",
            "input_dtype": "int8",
            "calibration": ["x.jpg"],
            "calibration_images": expected,
        }
        raise Written

    monkeypatch.setattr(npu, "FORMATS", {"litert": SimpleNamespace(write=write)})
    model = SimpleNamespace(config=tiny_model().config, quantization=None)
    options = {"calibration": ["x.jpg"], "calibration_images": given}
    with pytest.raises(Written):
        npu.write_litert_npu(model, tmp_path, tmp_path, **options)


def test_a_quantization_aware_model_needs_no_images(tmp_path):
    learned = tiny_model().quantize_aware()
    pixels = np.random.default_rng(0).integers(0, 256, (1, 64, 64, 3))
    learned(pixels.astype("float32"), training=True)
    report = learned.export(tmp_path / "pets", target="litert-npu", verbose=0)
    assert report.precision == "int8"
    tensors = network_of(tmp_path / "pets").subgraphs[0].tensors
    kinds = {tflite_files.type_to_name(t.type) for t in tensors}
    assert kinds == {"INT8", "INT32"}


def test_an_operation_that_a_vendor_has_not_is_refused(float16):
    network = network_of(float16)
    npu.require_npu_network(network, NPU_VENDORS, is_int8=False)
    code = network.operatorCodes[network.subgraphs[0].operators[-1].opcodeIndex]
    code.builtinCode = tflite_schema.BuiltinOperator.GATHER
    code.deprecatedBuiltinCode = code.builtinCode
    npu.require_npu_network(network, ("qualcomm",), is_int8=False)
    with pytest.raises(
        ValueError, match="does not support GATHER on the NPUs of mediatek"
    ):
        npu.require_npu_network(network, NPU_VENDORS, is_int8=False)
    code.builtinCode = tflite_schema.BuiltinOperator.NON_MAX_SUPPRESSION_V5
    with pytest.raises(ValueError, match="NON_MAX_SUPPRESSION_V5.*of google-tensor"):
        npu.require_npu_network(network, ("google-tensor",), is_int8=False)


@pytest.mark.parametrize("fault", ["rank", "any size", "number"])
def test_a_tensor_that_no_npu_takes_is_refused(float16, fault):
    network = network_of(float16)
    tensor = network.subgraphs[0].tensors[-1]
    if fault == "rank":
        tensor.shape = [1, 1, 2, 2, 9]
    elif fault == "any size":
        tensor.shapeSignature = [-1, 2, 2, 27]
    with pytest.raises(ValueError, match="NPUs need tensors with a fixed shape"):
        npu.require_npu_network(network, NPU_VENDORS, is_int8=fault == "number")


def test_outputs_that_are_not_joined_levels_are_told(int8):
    network = network_of(int8)  # whose outputs are maps already
    graph = network.subgraphs[0]
    names = [graph.tensors[output].name.decode() for output in graph.outputs]
    with pytest.raises(ek.errors.InvalidStateError, match="is not a concatenation"):
        cut_levels(network, names)


def test_the_tables_have_names_of_the_schema():
    known = set(vars(tflite_schema.BuiltinOperator))
    tables = {**npu._TAKEN, **npu._REFUSED}
    assert set(tables) == set(NPU_VENDORS)
    for vendor, table in tables.items():
        assert set(table.split()) <= known, vendor
        assert table.split() == sorted(table.split()), vendor


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ here")
def test_the_program_of_the_page_can_be_compiled(model, tmp_path):
    """Against stand-ins for LiteRT's headers: it fits `detector.h`, and is C++."""
    for name, text in LITERT_API.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    write_detector(model, tmp_path)
    (program,) = blocks_of("litert-npu", "cpp")
    (tmp_path / "program.cpp").write_text(program)
    flags = ["-std=c++17", "-fsyntax-only", "-I.", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["g++", *flags, "program.cpp"], cwd=tmp_path, check=True)
