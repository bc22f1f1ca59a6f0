"""`effdet-keras eval --store-thresholds`, and `predict` with what it stored."""

import dataclasses
import json

import numpy as np
import pytest
from support.tiny import lively_model

import effdet_keras as ek
from effdet_keras import cli
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
        (["A", "A"], [], "--store-thresholds take only one"),
        (["efficientdet-d0"], [], "stored in a `.keras` file"),
        (["pets.tflite"], [], "stored in a `.keras` file"),
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
