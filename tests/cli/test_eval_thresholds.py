"""`effdet-keras eval --store-thresholds`, and `predict` with what it stored."""

import dataclasses
import json
import os

import numpy as np
import pytest
from support.tiny import lively_model

import effdet_keras as ek
from effdet_keras import cli
from effdet_keras._internal.folder_lock import FolderLock
from effdet_keras.cli import evaluate_files
from effdet_keras.data import write_shapes
from effdet_keras.evaluate.thresholds import apply_temperature
from effdet_keras.weights.archive import store_score_settings, write_archive

pytestmark = pytest.mark.tensorflow

NAMES = ("triangle", "circle", "square")  # not the order of the dataset


@pytest.fixture(scope="module")
def model():
    model = lively_model(
        class_names=NAMES, postprocess=ek.Postprocess(max_detections=20)
    )
    for weight in model.weights:  # not so sure that all scores are 1
        if "class-predict/" in weight.path and weight.path.endswith("kernel"):
            weight.assign(weight * 0.5)
    return model


@pytest.fixture(scope="module")
def data(model, tmp_path_factory):
    """A dataset whose objects are what the model is surest of in each class."""
    folder = tmp_path_factory.mktemp("data")
    write_shapes(folder, num_train=1, num_valid=4, image_size=64)
    path = folder / "valid.json"
    content = json.loads(path.read_text())
    id_of = {category["name"]: category["id"] for category in content["categories"]}
    annotations = []
    for image in content["images"]:
        file = next(folder.rglob(image["file_name"]))
        found = model.detect(file, 0.3)
        for one in (found[found.labels == i][:1] for i in range(3)):
            if not len(one):
                continue
            top, left, bottom, right = one.boxes[0].tolist()
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": image["id"],
                    "category_id": id_of[one.names[0]],
                    "bbox": [left, top, right - left, bottom - top],
                }
            )
    path.write_text(json.dumps({**content, "annotations": annotations}))
    return folder


@pytest.fixture
def archive(model, tmp_path):
    path = tmp_path / "shapes.keras"
    write_archive(model, path)
    return path


def run(*arguments):
    return cli.main(["eval", *map(str, arguments)])


def test_thresholds_are_stored_and_predict_uses_them(
    archive, model, data, tmp_path, capsys
):
    out = tmp_path / "out"
    assert run(archive, data, "--store-thresholds", "--out", out) == 0
    said = capsys.readouterr().out
    assert f"Stored in '{archive}': a threshold for each of 3 classes" in said
    settings = ek.EfficientDet.from_archive(archive).score_settings
    content = json.loads((out / "numbers.json").read_text())
    best = {one["name"]: one["threshold"] for one in content["classes"]}
    assert settings.thresholds == tuple(best[name] for name in NAMES)
    settings = dataclasses.replace(settings, temperature=2.0)
    store_score_settings(archive, settings)
    image = next((data / "valid").iterdir())
    raw = model.detect(image, 0.0)
    kept = raw.scores >= np.array(settings.thresholds)[raw.labels]
    assert 0 < kept.sum() < len(raw)
    shown = apply_temperature(raw.scores[kept], settings.temperature)
    found = tmp_path / "found.json"
    arguments = [str(archive), str(image), "--score-threshold", "best", "--calibrated"]
    assert cli.main(["predict", *arguments, "--json", str(found)]) == 0
    scores = [a["score"] for a in json.loads(found.read_text())["annotations"]]
    np.testing.assert_allclose(scores, shown, atol=1e-3)


@pytest.mark.parametrize(
    ("models", "flags", "message"),
    [
        (["A", "A"], [], "--store-thresholds work with one only"),
        (["efficientdet-d0"], [], "stored only in a `.keras` file"),
        (["pets.tflite"], [], "stored only in a `.keras` file"),
    ],
    ids=str,
)
def test_other_models_are_refused_before_any_work(
    models, flags, message, archive, data, capsys
):
    arguments = [*models, data, *flags, "--store-thresholds"]
    assert run(*(archive if word == "A" else word for word in arguments)) == 1
    said = capsys.readouterr()
    assert message in said.err and len(said.err.splitlines()) == 1 and not said.out


@pytest.fixture
def evaluated(monkeypatch):
    """Lets something happen while the model is evaluated, which takes no time then."""
    happens = []
    real = evaluate_files._Model.evaluate

    def evaluate(source, dataset, columns):
        real(source, dataset, columns)
        for action in happens:
            action()

    monkeypatch.setattr(evaluate_files._Model, "evaluate", evaluate)
    return happens


def test_thresholds_of_other_weights_are_not_stored(
    archive, model, data, evaluated, capsys
):
    """A training puts a better checkpoint in the place of the one under evaluation."""

    def replace():
        bias = next(v for v in model.weights if v.path.endswith("class-predict/bias"))
        before = np.array(bias)
        bias.assign(before + 0.125)
        write_archive(model, archive)
        bias.assign(before)

    evaluated.append(replace)
    assert run(archive, data, "--store-thresholds") == 1
    assert "was replaced while it was evaluated" in capsys.readouterr().err
    assert ek.EfficientDet.from_archive(archive).score_settings is None
    assert [path.name for path in archive.parent.iterdir()] == [archive.name]


def test_a_file_that_is_replaced_while_it_is_copied_stays(archive, model, monkeypatch):
    """In the last moment, by an equal one even: the newer file is never replaced."""
    newer = archive.with_name("newer.keras")
    write_archive(model, newer, {"epoch": 7})
    check = "effdet_keras.weights.archive._check_number"
    monkeypatch.setattr(check, lambda *_: os.replace(newer, archive))
    with pytest.raises(RuntimeError, match="was replaced while"):
        store_score_settings(archive, ek.metrics.ScoreSettings((0.5, 0.5, 0.5)))
    assert ek.read_archive_info(archive)["epoch"] == 7


def test_nothing_is_stored_where_a_training_writes(
    archive, data, evaluated, capsys, monkeypatch
):
    training = FolderLock(archive.parent)
    training.acquire("A training")
    assert run(archive, data, "--store-thresholds") == 1
    said = capsys.readouterr()
    assert "A training is writing to" in said.err and "images of" not in said.out
    training.release()
    evaluated.append(lambda: training.acquire("A training"))
    assert run(archive, data, "--store-thresholds") == 1
    assert "Storing thresholds needs a folder" in capsys.readouterr().err
    training.release()
    assert ek.EfficientDet.from_archive(archive).score_settings is None


def test_thresholds_may_be_stored_again_meanwhile(archive, data, evaluated):
    """Which changes no weights."""
    others = ek.metrics.ScoreSettings((0.5, 0.5, 0.5))
    evaluated.append(lambda: store_score_settings(archive, others))
    assert run(archive, data, "--store-thresholds") == 0
    assert ek.EfficientDet.from_archive(archive).score_settings != others
