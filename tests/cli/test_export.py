"""`effdet-keras export` hands its options to `EfficientDet.export`."""

import dataclasses
import json

import numpy as np
import pytest
from support.tiny import LITE0, lively_model

import effdet_keras as ek
from effdet_keras import cli
from effdet_keras.export import check, export_model
from effdet_keras.export.registry import FORMATS, OPTIONS, TARGETS, ExportFormat
from effdet_keras.export.runtime import describe
from effdet_keras.weights.archive import write_archive

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    path = tmp_path_factory.mktemp("archive") / "pets.keras"
    write_archive(lively_model(), path)
    return str(path)


@pytest.fixture
def exported(monkeypatch):
    """The arguments of calls of `EfficientDet.export`, which does nothing."""
    calls = []

    def export(self, path, format=None, **options):
        calls.append({"path": path, "format": format, **options})

    monkeypatch.setattr(ek.EfficientDet, "export", export)
    return calls


@pytest.mark.smoke
def test_every_option_of_formats_and_targets_has_a_flag(archive, exported, monkeypatch):
    # No target has all the options that are given here.
    monkeypatch.setattr("effdet_keras.cli.export.target_to_write", lambda *_: None)
    words, expected = [], {}
    for name, (kind, _) in OPTIONS.items():
        owners = [o for o in {**FORMATS, **TARGETS}.values() if name in o.options]
        value = {bool: True, int: 7, float: 0.25, str: "word"}.get(kind)
        value = next((choice for o in owners for choice in o.options[name]), value)
        if owners and kind is not None:  # else it is an object of Python
            words += [
                f"--{name.replace('_', '-')}",
                *([str(value)] * (kind is not bool)),
            ]
            expected[name] = value
    more = ["--format", "onnx", "--target", "triton", "--images", "checks"]
    assert cli.main(["export", archive, "pets", *words, *more]) == 0
    expected |= {"path": "pets", "format": "onnx", "target": "triton"}
    assert exported == [{**expected, "images": "checks"}]
    assert {"precision", "int8_scores", "batch_size", "runtime_address"} <= set(
        expected
    )


def test_calibration_is_a_folder_of_images_or_a_dataset(archive, exported, shapes):
    for source in (shapes, shapes / "valid"):
        arguments = ["export", archive, "pets.tflite", "--calibration", str(source)]
        assert cli.main(arguments) == 0
    dataset, images = (call["calibration"] for call in exported)
    assert len(dataset) == 4 and images == shapes / "valid"


def test_it_calibrates_on_the_training_split_and_evaluates_on_another(
    archive, exported, shapes
):
    data = ["--calibration", str(shapes), "--evaluate", str(shapes)]
    assert cli.main(["export", archive, "pets.tflite", *data]) == 0
    splits = ["--calibration-split", "valid", "--evaluation-split", "train"]
    assert cli.main(["export", archive, "pets.tflite", *data, *splits]) == 0
    sizes = [(len(call["calibration"]), len(call["evaluate"])) for call in exported]
    assert sizes == [(4, 2), (2, 4)]  # 4 images in "train", 2 in "valid"


def test_a_split_needs_a_dataset_that_has_it(
    archive, exported, shapes, tmp_path, capsys
):
    export = ["export", archive, "pets.tflite"]
    assert cli.main([*export, "--evaluation-split", "test"]) == 1
    assert "add `--evaluate DATA`" in capsys.readouterr().err
    data = ["--calibration", str(shapes), "--calibration-split", "test"]
    assert cli.main([*export, *data]) == 1
    assert "['train', 'valid']" in capsys.readouterr().err
    for name, time in (("train", "morning"), ("valid", "evening")):
        text = (shapes / f"{name}.json").read_text()
        (tmp_path / f"{time}.json").write_text(text)
    assert cli.main([*export, "--evaluate", str(tmp_path)]) == 1
    assert "has the splits evening, morning" in capsys.readouterr().err
    assert not exported


def test_errors_of_the_export_are_told_in_one_line(archive, tmp_path, capsys):
    assert cli.main(["export", archive, str(tmp_path / "pets.gguf")]) == 1
    assert "`format` must be one of" in capsys.readouterr().err
    out = str(tmp_path / "pets")
    assert cli.main(["export", archive, out, "--precision", "int8"]) == 1
    assert "A saved_model export has the options" in capsys.readouterr().err
    assert cli.main(["export", str(tmp_path / "no.keras"), out]) == 1
    assert "There is no checkpoint" in capsys.readouterr().err


@pytest.mark.slow
def test_the_ap_of_the_export_is_compared_with_the_models(
    tmp_path, capsys, monkeypatch
):
    """With the model's own findings as truth, and an export that loses a class."""
    model = lively_model(backbone=LITE0)
    rng = np.random.default_rng(2)
    images = [rng.integers(0, 256, (64, 64, 3), "uint8") for _ in range(3)]
    found = model.detect(images, 0.5, verbose=0)
    dataset = ek.data.from_arrays(
        images,
        [detections.boxes for detections in found],
        [detections.labels for detections in found],
        model.class_names,
    )
    labels = np.concatenate([detections.labels for detections in found])
    lost = int(np.bincount(labels).argmax())
    ek.data.write_coco(dataset, tmp_path / "data")
    write_archive(model, tmp_path / "pets.keras")

    class Forgetful:
        path, description = tmp_path / "pets.onnx", describe(model, outputs="raw")
        input_dtype, other_files = "float32", ()
        description = dataclasses.replace(description, precision="float16")

        def run(self, images):
            outputs = {n: np.array(v) for n, v in model(images).items()}
            outputs["class_logits"][..., lost] -= 50
            return outputs

    def write(model, path):
        path.write_text("onnx")

    limits = check.Limits(outputs=100.0, scores=1.0, matched=0.0, pixels=0.0)
    monkeypatch.setitem(check.LIMITS, "float16", limits)
    monkeypatch.setattr(ExportFormat, "load_writer", lambda self: write)
    monkeypatch.setattr(export_model, "open_runtime", lambda path: Forgetful())
    arguments = ["export", str(tmp_path / "pets.keras"), str(tmp_path / "pets.onnx")]
    assert cli.main([*arguments, "--evaluate", str(tmp_path / "data")]) == 0
    text = capsys.readouterr().out
    assert "AP of the model: " in text and "AP of the export: " in text
    report = json.loads((tmp_path / "pets.onnx.export_report.json").read_text())
    live, exported = report["metrics"]["model"], report["metrics"]["export"]
    name = f"AP/{model.class_names[lost]}"
    assert live[name] > 0.5 and exported[name] == 0
    assert live["AP"] > exported["AP"] and live.keys() == exported.keys()


def test_an_unknown_ending_is_told_before_the_model_is_opened(capsys):
    unfit = ["x.xyz"], ["x.tflite", "--opset", "13"], ["x.onnx", "--target", "coral"]
    for flags in unfit:
        assert cli.main(["export", "missing.keras", *flags]) == 1
        assert "missing.keras" not in capsys.readouterr().err
