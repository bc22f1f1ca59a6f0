"""Targets with raw outputs: their files run in their runtimes, as the model does."""

import json
import shutil
import subprocess
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from support.target_pages import blocks_of
from support.tiny import BOTH_HEADS, tiny_model

import effdet_keras as ek
from effdet_keras.export import mnn as mnn_format
from effdet_keras.export import ncnn as ncnn_format
from effdet_keras.export.registry import FORMATS
from effdet_keras.export.runtime import open_runtime
from effdet_keras.extras.targets.detector import write_detector

pytestmark = pytest.mark.tensorflow

# What the programs of the pages use of their libraries.
STUBS = {
    "ncnn/net.h": """
#pragma once
namespace ncnn {
struct Mat {
  Mat() {}
  Mat(int, int, int) {}
  Mat channel(int) { return {}; }
  operator float*() { return nullptr; }
  operator const float*() const { return nullptr; }
};
struct Extractor {
  int input(const char*, const Mat&) { return 0; }
  int extract(const char*, Mat&) { return 0; }
};
struct Net {
  int load_param(const char*) { return 0; }
  int load_model(const char*) { return 0; }
  Extractor create_extractor() { return {}; }
};
}  // namespace ncnn
""",
    "MNN/expr/Module.hpp": """
#pragma once
#include <string>
#include <vector>
#include "MNN/expr/ExprCreator.hpp"
namespace MNN { namespace Express {
struct Module {
  static Module* load(const std::vector<std::string>&, const std::vector<std::string>&,
                      const char*) { return nullptr; }
  static void destroy(Module*) {}
  std::vector<VARP> onForward(const std::vector<VARP>&) { return {}; }
};
}}
""",
    "MNN/expr/ExprCreator.hpp": """
#pragma once
#include <vector>
namespace MNN { namespace Express {
struct Variable {
  template <class T> const T* readMap() { return nullptr; }
};
struct VARP { Variable* operator->() const { return nullptr; } };
enum Dimensionformat { NHWC, NC4HW4, NCHW };
inline VARP _Const(const void*, std::vector<int>, Dimensionformat) { return {}; }
}}
""",
    "executorch/extension/tensor/tensor.h": """
#pragma once
#include <vector>
namespace executorch { namespace extension {
struct Tensor {
  template <class T> const T* const_data_ptr() const { return nullptr; }
};
inline Tensor from_blob(float*, std::vector<int>) { return {}; }
}}
""",
    "executorch/extension/module/module.h": """
#pragma once
#include <string>
#include "executorch/extension/tensor/tensor.h"
namespace executorch { namespace extension {
struct Value { Tensor toTensor() const { return {}; } };
struct Result {
  bool ok() const { return true; }
  const std::vector<Value>* operator->() const { return &values; }
  std::vector<Value> values;
};
struct Module {
  explicit Module(const std::string&) {}
  Result forward(const Tensor&) { return {}; }
};
}}
""",
}


def images(count=2):
    rng = np.random.default_rng(1)
    return rng.integers(0, 256, (count, 40, 60, 3), "uint8")


def assert_finds_the_same(path, model, tolerance):
    """An exported file, opened as any other, finds what the model finds."""
    predictor = ek.Predictor.load(path)
    assert predictor.class_names == model.class_names
    for image in images():
        found, expected = predictor.detect(image, 0.3), model.detect(image, 0.3)
        assert len(expected) > 5
        np.testing.assert_allclose(
            found.scores[:5], expected.scores[:5], atol=tolerance
        )
        if tolerance < 1e-3:
            np.testing.assert_allclose(found.boxes, expected.boxes, atol=0.05)
            np.testing.assert_array_equal(found.labels, expected.labels)


def assert_raw_outputs(path, model, tolerance):
    """Raw outputs, as shares of their largest values."""
    inputs = np.random.default_rng(0).uniform(0, 255, (1, 64, 64, 3)).astype("float32")
    found = open_runtime(path).run(inputs)
    for name, value in model(inputs).items():
        value = keras.ops.convert_to_numpy(value)
        assert found[name].shape == value.shape
        assert np.abs(found[name] - value).max() < tolerance * np.abs(value).max()


def report_of(folder):
    return json.loads((folder / "export_report.json").read_text())


@pytest.mark.extra_packages
@pytest.mark.parametrize("precision", ["float16", "float32"])
def test_ncnn_runs_the_file_as_the_model(exported, model, precision):
    pytest.importorskip("ncnn")
    pytest.importorskip("pnnx")
    folder = exported("ncnn", "--precision", precision)
    report, path = report_of(folder), folder / "model.ncnn.param"
    assert (report["precision"], report["outputs"]) == (precision, "raw")
    weights = (folder / "model.ncnn.bin").stat().st_size
    assert weights < report["size_bytes"] < 2 * weights
    assert (folder / "labels.txt").read_text() == "cat\ndog\nbird\n"
    assert_raw_outputs(path, model, 1e-4 if precision == "float32" else 5e-3)
    assert_finds_the_same(path, model, 1e-4 if precision == "float32" else 0.01)


@pytest.mark.extra_packages
def test_a_damaged_ncnn_file_is_told(exported, tmp_path):
    pytest.importorskip("ncnn")
    pytest.importorskip("pnnx")
    folder = exported("ncnn", "--precision", "float16")
    copied = shutil.copytree(folder, tmp_path / "copied")
    weights = copied / "model.ncnn.bin"
    content = bytearray(weights.read_bytes())
    content[1000] ^= 1
    weights.write_bytes(content)
    with pytest.raises(ValueError, match=r"model\.ncnn\.bin' is damaged"):
        open_runtime(copied / "model.ncnn.param")


def test_a_failure_of_pnnx_is_told(tmp_path, monkeypatch):
    script = tmp_path / "pnnx"
    script.write_text("#!/bin/sh\necho unknown operation $1 $2\n")
    script.chmod(0o755)
    monkeypatch.setattr(ncnn_format, "pnnx", SimpleNamespace(EXEC_PATH=str(script)))
    message = r"status 0\):\nunknown operation network.onnx fp16=1"
    with pytest.raises(ek.errors.InvalidStateError, match=message):
        ncnn_format._run_pnnx(tmp_path, "float16")


def test_names_of_pnnx_become_ours():
    param = "7767517\n2 2\nInput in0 0 1 in0\nReLU relu_in0x 1 1 in0 out0\n"
    named = ncnn_format._with_names(param, ["box_deltas"])
    assert named.splitlines()[2:] == [
        "Input images 0 1 images",
        "ReLU relu_in0x 1 1 images box_deltas",
    ]


@pytest.mark.extra_packages
@pytest.mark.parametrize("precision", ["float16", "float32"])
def test_mnn_runs_the_file_as_the_model(exported, model, precision):
    pytest.importorskip("MNN")
    folder = exported("mnn", "--precision", precision)
    report, path = report_of(folder), folder / "model.mnn"
    assert (report["precision"], report["outputs"]) == (precision, "raw")
    sizes = [file.stat().st_size for file in (path, path.with_suffix(".json"))]
    assert report["size_bytes"] == sum(sizes)
    assert (folder / "labels.txt").read_text() == "cat\ndog\nbird\n"
    # In float16 biases are rounded too.
    assert_raw_outputs(path, model, 1e-4 if precision == "float32" else 0.02)
    assert_finds_the_same(path, model, 1e-4 if precision == "float32" else 0.01)


@pytest.mark.extra_packages
def test_mnn_stores_half_the_bytes_in_float16(exported):
    pytest.importorskip("MNN")
    half, whole = (
        exported("mnn", "--precision", precision) / "model.mnn"
        for precision in ("float16", "float32")
    )
    assert half.stat().st_size < 0.7 * whole.stat().st_size


@pytest.mark.extra_packages
def test_a_damaged_mnn_file_is_told(exported, tmp_path):
    pytest.importorskip("MNN")
    folder = exported("mnn", "--precision", "float16")
    copied = shutil.copytree(folder, tmp_path / "copied")
    content = bytearray((copied / "model.mnn").read_bytes())
    content[1000] ^= 1
    (copied / "model.mnn").write_bytes(content)
    with pytest.raises(ValueError, match=r"model\.\w+' is .*damaged"):
        open_runtime(copied / "model.mnn")


@pytest.mark.extra_packages
def test_a_segmentation_head_is_an_output_of_mnn(tmp_path):
    pytest.importorskip("MNN")
    model = tiny_model(heads=BOTH_HEADS)
    report = model.export(tmp_path / "both.mnn", verbose=0)
    beside = [path.name for path in FORMATS["mnn"].files_beside(tmp_path / "both.mnn")]
    assert sorted(report.files)[:2] == sorted(["both.mnn", *beside])
    assert_raw_outputs(tmp_path / "both.mnn", model, 1e-4)


@pytest.mark.extra_packages
def test_a_failure_of_mnn_is_told(tmp_path):
    pytest.importorskip("MNN")
    (tmp_path / "network.onnx").write_bytes(b"no network")
    message = r"status 0\):\n(.*\n)*.*read onnx model failed"
    with pytest.raises(ek.errors.InvalidStateError, match=message):
        mnn_format._convert(tmp_path / "network.onnx", tmp_path / "network.mnn", [])


@pytest.mark.extra_packages
def test_executorch_runs_the_file_as_the_model(exported, model, tmp_path):
    pytest.importorskip("executorch")
    folder = exported("executorch")
    path = folder / "model.pte"
    assert report_of(folder)["size_bytes"] == path.stat().st_size
    assert_raw_outputs(path, model, 1e-4)
    assert_finds_the_same(path, model, 1e-4)
    content = bytearray(path.read_bytes())
    content[-1000] ^= 1
    (tmp_path / "pets.pte").write_bytes(content)
    with pytest.raises(ValueError, match="is damaged"):
        open_runtime(tmp_path / "pets.pte")


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ here")
@pytest.mark.parametrize("target", ["ncnn", "mnn", "executorch"])
def test_the_program_of_a_page_can_be_compiled(target, model, tmp_path):
    """Against stand-ins for the libraries: it fits `detector.h`, and is C++."""
    for name, text in STUBS.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    write_detector(model, tmp_path)
    (program,) = blocks_of(target, "cpp")
    (tmp_path / "program.cpp").write_text(program)
    flags = ["-std=c++17", "-fsyntax-only", "-I.", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["g++", *flags, "program.cpp"], cwd=tmp_path, check=True)
