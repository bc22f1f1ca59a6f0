"""Exports are checked and put in place whole; tested with a stand-in for a file."""

import json
import os
import pathlib
import sys

import keras
import numpy as np
import pytest
from support.tiny import lively_model

from effdet_keras import predictor as in_runtime
from effdet_keras._internal.whole_files import files_in
from effdet_keras.export import export_model as module
from effdet_keras.export.network import evaluated
from effdet_keras.export.registry import FORMATS, ExportFormat
from effdet_keras.export.runtime import describe

pytestmark = pytest.mark.tensorflow
IMAGES = [np.random.default_rng(0).integers(0, 256, (50, 70, 3), "uint8")]


class LiveRuntime:
    """The model itself, with something added to its outputs."""

    input_dtype = "float32"
    other_files = ()

    def __init__(self, model, path, error=0.0, outputs="raw"):
        self.path, self.model, self.error = path, model, error
        self.description = describe(model, outputs=outputs)

    def run(self, images):
        outputs = self.model(images)
        return {name: np.asarray(value) + self.error for name, value in outputs.items()}


@pytest.fixture(scope="module")
def model():
    return lively_model()


@pytest.fixture
def export(model, monkeypatch):
    """Exports into a file of text, by a runtime that may be off by `error`."""

    def run(path, text="new", error=0.0, fail=False, model=model, images=IMAGES):
        def write(model, path, **options):
            run.biases.append(np.array(model.get_layer("class_net").predict_conv.bias))
            if path.suffix:
                path.write_text(text)
            else:
                (path / "1").mkdir(parents=True)
                (path / "1" / f"{text}.pb").write_text(text)
                (path / "labels.txt").write_text(text)
            if fail:
                raise KeyboardInterrupt

        monkeypatch.setattr(ExportFormat, "load_writer", lambda self: write)
        monkeypatch.setattr(
            module, "open_runtime", lambda path: LiveRuntime(model, path, error)
        )
        return model.export(path, images=images, verbose=0)

    run.biases = []  # of the models that were written
    return run


def contents(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.smoke
def test_a_report_lies_beside_the_file(export, tmp_path):
    report = export(tmp_path / "pets.onnx")
    files = contents(tmp_path)
    assert set(files) == {"pets.onnx", "pets.onnx.export_report.json"}
    stored = json.loads(files["pets.onnx.export_report.json"])
    assert stored["path"] == report.path == str(tmp_path / "pets.onnx")
    assert stored["matched"] == stored["live_detections"] > 0
    assert stored["max_output_difference"] == {"box_deltas": 0.0, "class_logits": 0.0}


@pytest.mark.parametrize(
    "how, error",
    [
        ({"error": 0.1}, ValueError),
        ({"error": float("nan")}, ValueError),
        ({"fail": True}, KeyboardInterrupt),
    ],
)
def test_only_a_whole_and_right_export_replaces_an_old_one(
    export, tmp_path, how, error
):
    export(tmp_path / "pets.onnx", text="older")
    export(tmp_path / "pets.onnx", text="old")
    before = contents(tmp_path)
    assert before["pets.onnx"] == "old"
    match = "does not compute the same as the model.*differ"
    with pytest.raises(error, match=match if error is ValueError else None):
        export(tmp_path / "pets.onnx", text="new", **how)
    assert contents(tmp_path) == before


def test_a_folder_of_other_things_is_not_touched(model, tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    (folder / "cat.jpg").write_text("meow")
    with pytest.raises(FileExistsError, match=r"is not an older export.*another path"):
        model.export(folder)
    assert contents(folder) == {"cat.jpg": "meow"}


def files(folder):
    """What a folder holds at any depth, hidden files and the report's text left out."""
    found = {name: (folder / name).read_text() for name in files_in(folder)}
    return {n: text for n, text in found.items() if n != "export_report.json"}


def test_a_second_export_to_a_folder_keeps_what_an_export_did_not_write(
    export, tmp_path
):
    path = tmp_path / "pets"
    assert export(path, "old").files == ("1/old.pb", "labels.txt", "export_report.json")
    for name in ("1/model.plan", "2/model.onnx", "pets.tflite"):
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text("mine")
    report = export(path, "new")
    mine = dict.fromkeys(("1/model.plan", "2/model.onnx", "pets.tflite"), "mine")
    assert files(path) == {"1/new.pb": "new", "labels.txt": "new", **mine}
    assert report.notes[-1].endswith(": 1/model.plan, 2/model.onnx, pets.tflite")
    # A third still knows whose they are; and reports of before had no list.
    written = json.loads((path / "export_report.json").read_text())
    del written["files"]
    (path / "export_report.json").write_text(json.dumps(written))
    export(path, "third")
    kept = {"1/new.pb": "new", **mine}
    assert files(path) == {"1/third.pb": "third", "labels.txt": "third", **kept}
    assert os.listdir(tmp_path) == ["pets"]  # and no hidden folder


def test_files_beside_the_path_are_not_replaced_but_those_of_an_older_export(
    export, tmp_path
):
    (tmp_path / "pets.bin").write_text("mine")
    with pytest.raises(FileExistsError, match="pets.bin', which already exists"):
        export(tmp_path / "pets.xml")
    assert contents(tmp_path) == {"pets.bin": "mine"} and not export.biases
    export(tmp_path / "cats.xml", "old")
    (tmp_path / "cats.bin").write_text("of the export")
    export(tmp_path / "cats.xml", "new")
    (tmp_path / "pets.json").write_text("mine")
    for format, ending, taken in (("ncnn", "param", "bin"), ("mnn", "mnn", "json")):
        path = tmp_path / f"pets.{ending}"
        beside = FORMATS[format].files_beside(path)
        with pytest.raises(
            FileExistsError, match=f"pets.{taken}'.*, which already exists"
        ):
            module._check_replaceable(path, False, beside)


def test_a_link_to_a_folder_stays_one(export, tmp_path):
    export(tmp_path / "v1", "old")
    (tmp_path / "latest").symlink_to("v1")
    export(tmp_path / "latest", "new")
    assert files(tmp_path / "v1") == {"1/new.pb": "new", "labels.txt": "new"}
    assert (tmp_path / "latest").readlink() == pathlib.Path("v1")
    assert sorted(os.listdir(tmp_path)) == ["latest", "v1"]


def test_a_file_is_not_replaced_by_a_folder_nor_the_folder_this_process_is_in(
    export, tmp_path, monkeypatch
):
    (tmp_path / "pets").write_text("mine")
    with pytest.raises(FileExistsError, match="pets' is a file"):
        export(tmp_path / "pets")
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path / "out")
    for path in (".", "../out"):
        with pytest.raises(
            ValueError, match="the current folder of this process.*path="
        ):
            export(pathlib.Path(path))
    assert contents(tmp_path / "out") == {} and not export.biases


def test_no_images_are_no_check(export, tmp_path):
    with pytest.raises(ValueError, match="`images` contains no image"):
        export(tmp_path / "pets.onnx", images=[])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("path", "format", "match"),
    [
        ("pets.pb", None, r"`format` must be one of .*path='.*pets.pb'"),
        ("pets.tflite", "onnx", r"must end in '\.onnx'"),
        ("pets.onnx", "saved_model", "folder without an ending"),
        ("s3://bucket/pets.onnx", None, "on this machine.*s3://bucket/pets.onnx"),
    ],
)
def test_paths_and_formats_that_do_not_fit(
    model, tmp_path, monkeypatch, path, format, match
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=match):
        model.export(path, format)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "ending, package",
    [(".tflite", "ai_edge_litert"), (".onnx", "onnxruntime"), (".xml", "openvino")],
)
def test_a_runtime_that_is_not_installed_is_told_before_any_work(
    model, tmp_path, monkeypatch, ending, package
):
    for name in (package, f"{package}.interpreter"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(module, "atomic_write_all", None)  # nothing is begun
    with pytest.raises(ImportError, match="pip install"):
        model.export(tmp_path / f"pets{ending}")


def test_averages_are_what_is_exported(export, tmp_path, monkeypatch):
    model = lively_model()
    model.compile()
    bias = model.get_layer("class_net").predict_conv.bias
    with model.averages.swapped():
        averaged = np.array(bias)
    bias.assign(averaged + 1.0)
    export(tmp_path / "pets.onnx", model=model)
    np.testing.assert_array_equal(bias, averaged + 1.0)
    with model.averages.swapped():  # as after `fit`
        export(tmp_path / "pets.onnx", model=model)
        np.testing.assert_array_equal(bias, averaged)
    # And what `Predictor(model, runtime="onnx")` writes.
    monkeypatch.setattr(
        in_runtime, "open_runtime", lambda path, *_: LiveRuntime(model, path)
    )
    in_runtime.in_runtime(model, "onnx")
    np.testing.assert_array_equal(bias, averaged + 1.0)
    assert len(export.biases) == 3
    for exported in export.biases:
        np.testing.assert_array_equal(exported, averaged)


def test_mixed_precision_becomes_float32(tmp_path):
    model = lively_model(dtype="mixed_bfloat16")
    with evaluated(model) as copy:
        assert {layer.compute_dtype for layer in copy.layers} == {"float32"}
        for ours, theirs in zip(model.weights, copy.weights, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        assert copy.class_names == model.class_names
    assert model.layers[-1].compute_dtype == "bfloat16"


def test_another_backend_is_refused(model, tmp_path, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(RuntimeError, match="KERAS_BACKEND=tensorflow"):
        model.export(tmp_path / "pets")


def test_a_folder_without_a_model_is_named(tmp_path):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ValueError, match="The folder has no model: no checkpoint"):
        in_runtime.Predictor.load(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", "[" * 100_000])
def test_a_damaged_report_of_an_older_export_is_named(model, tmp_path, text):
    (tmp_path / "saved_model").mkdir()
    (tmp_path / "saved_model" / "export_report.json").write_text(text)
    match = r"export_report\.json' was not written by an export, or is damaged"
    with pytest.raises(ValueError, match=match):
        model.export(tmp_path / "saved_model", "saved_model", verbose=0)
    with pytest.raises(ValueError, match=match):
        in_runtime.Predictor.load(tmp_path / "saved_model")
    assert files_in(tmp_path) == ["saved_model/export_report.json"]
