"""`eval` and others take images that a run did not train on, or say so."""

import dataclasses
import json
import shutil

import pytest
from support.tiny_run import tiny_run

import effdet_keras as ek
from effdet_keras import cli
from effdet_keras.cli.evaluation_images import evaluation_images, read_as_trained
from effdet_keras.cli.files import DatasetSource
from effdet_keras.data import write_shapes
from effdet_keras.runs.components import choose_splits
from effdet_keras.runs.run_folder import RunFolder, describe_data
from effdet_keras.runs.training_images import run_of_model, splits_of_run

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def undivided(tmp_path_factory):
    """Ten images in VOC's format, in one folder, as LabelImg writes them."""
    folder = tmp_path_factory.mktemp("undivided")
    write_shapes(folder / "coco", num_train=10, num_valid=1, image_size=64, seed=5)
    ek.data.convert(folder / "coco", folder / "voc", "voc", split="train")
    images = folder / "images"
    images.mkdir()
    for pattern in ("*.xml", "*.jpg", "*.png"):
        for file in (folder / "voc").rglob(pattern):
            shutil.copy(file, images)
    return images


def begun(path, data, **fields):
    """The folder of a run that was divided, and not trained."""
    folder = RunFolder(path)
    configuration = ek.RunConfiguration(data=str(data), **fields)
    splits = choose_splits(configuration)
    folder.begin(configuration)
    folder.write_json("data", {"path": str(data), **describe_data(splits.by_role())})
    return splits


def chosen(data, *models, split=None):
    return evaluation_images(DatasetSource("DATA", str(data), split), models)


def ids(dataset):
    return sorted(record.image_id for record in dataset.records)


def test_data_without_splits_is_evaluated_where_the_run_did_not_train(
    undivided, tmp_path, capsys
):
    splits = begun(tmp_path / "run", undivided, seed=3)
    for model in ("run", "run/archive/best.keras", "run/export/model.tflite"):
        capsys.readouterr()
        found = chosen(undivided, str(tmp_path / model))
        said = capsys.readouterr().out
        assert ids(found.dataset) == ids(splits.validation)
        assert ids(found.trained_on) == ids(splits.train)
        assert (found.split, found.caution) == ("validation", None)
        count = len(splits.validation)
        assert f"The evaluation uses the {count} images that" in said
        assert f"and not the {10 - count} that it was trained on." in said
        assert "There is no validation split" not in said


def test_images_that_were_trained_on_are_counted(undivided, tmp_path, capsys):
    splits = begun(tmp_path / "run", undivided)
    found = chosen(undivided, str(tmp_path / "run"), split="train")
    assert (len(found.dataset), found.trained_on) == (10, None)
    expected = f"{len(splits.train)} of these 10 images were trained on"
    assert found.caution.startswith(expected)
    assert expected in capsys.readouterr().out


def test_other_data_of_a_run_is_compared_with_what_it_was_trained_on(
    undivided, data, tmp_path
):
    begun(tmp_path / "run", data)  # which has train and valid
    assert chosen(undivided, str(tmp_path / "run")).caution is None
    assert chosen(data, str(tmp_path / "run")).split == "valid"
    assert chosen(data, str(tmp_path / "run")).caution is None
    two = chosen(data, str(tmp_path / "run"), split="train").caution
    assert two.startswith("2 of these 2 images were trained on")


def test_a_model_of_unknown_training_is_doubted_on_training_images_alone(
    undivided, data, tmp_path
):
    doubted = chosen(undivided, "a.keras")
    assert len(doubted.dataset) == 10
    assert "if 'a.keras' was trained on these images" in doubted.caution
    assert chosen(data, "a.keras").caution is None
    assert chosen(undivided, "efficientdet-d0").caution is None
    assert chosen(undivided).caution is None  # a file of detections


def test_a_run_whose_data_has_changed_is_of_unknown_training(undivided, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(undivided, copy)
    begun(tmp_path / "run", copy)
    folder = run_of_model(tmp_path / "run")
    assert splits_of_run(folder) is not None
    next(copy.glob("*.xml")).unlink()
    assert splits_of_run(folder) is None
    run = str(tmp_path / "run")
    assert f"if '{run}' was trained" in chosen(copy, run).caution


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("data.json", None),  # of a run that was stopped before it was written
        ("data.json", "{"),
        ("data.json", '{"splits": {}}'),
        ("configuration.yaml", "a_field_of_another_version: 1"),
    ],
)
def test_a_damaged_run_is_evaluated_as_a_model_of_unknown_training(
    undivided, tmp_path, name, content
):
    begun(tmp_path / "run", undivided)
    path = tmp_path / "run" / name
    path.unlink() if content is None else path.write_text(content)
    found = chosen(undivided, str(tmp_path / "run"))
    assert len(found.dataset) == 10 and "was trained on these" in found.caution


def test_images_without_annotations_are_what_they_were_in_training(
    data, tmp_path, capsys
):
    yolo = tmp_path / "yolo"
    ek.data.convert(data, yolo, "yolo")
    next(p for p in yolo.rglob("*.txt") if "valid" in str(p)).unlink()
    begun(tmp_path / "run", yolo, unlabelled="skip")
    assert len(chosen(yolo, str(tmp_path / "run")).dataset) == 3
    assert "unlabelled='skip'" in capsys.readouterr().out
    source = DatasetSource("DATA", str(yolo), unlabelled="negative")
    assert len(evaluation_images(source, [str(tmp_path / "run")]).dataset) == 4
    assert len(chosen(data, str(tmp_path / "run")).dataset) == 4  # no YOLO data


def test_what_is_wrong_is_left_out_as_it_was_in_training(data, tmp_path, capsys):
    coco = tmp_path / "coco"
    shutil.copytree(data, coco)
    next((coco / "valid").iterdir()).unlink()
    with pytest.warns(UserWarning, match="1 missing image"):
        begun(tmp_path / "run", coco, on_error="skip")
    begun(tmp_path / "other", data)
    with pytest.warns(UserWarning, match="1 missing image"):
        found = chosen(coco, str(tmp_path / "run"))
    assert len(found.dataset) == 3
    said = f"as in the training of '{tmp_path / 'run'}': on_error='skip'."
    assert said in capsys.readouterr().out
    with pytest.raises(FileNotFoundError, match=r"on_error=\"skip\" \(--skip-errors\)"):
        chosen(coco, str(tmp_path / "other"))
    for on_error, error in (("skip", UserWarning), ("raise", FileNotFoundError)):
        source = DatasetSource("DATA", str(coco), on_error=on_error)
        raised = pytest.warns if on_error == "skip" else pytest.raises
        with raised(error, match="1 missing image"):
            evaluation_images(source, [str(tmp_path / "other")])


def test_options_of_the_reader_are_those_of_the_training(
    undivided, data, tmp_path, capsys
):
    run = str(tmp_path / "run")
    counted = begun(tmp_path / "other", undivided).validation[0]["boxes"]
    zero_based = begun(tmp_path / "run", undivided, reader_options={"one_based": False})
    first = zero_based.validation[0]["boxes"]
    assert (first[:, :2] == counted[:, :2] + 1).all()  # the corner of each
    capsys.readouterr()
    found = chosen(undivided, run)
    assert found.dataset[0]["boxes"].tolist() == first.tolist()
    said = f"as in the training of '{run}': reader_options={{'one_based': False}}."
    assert said in capsys.readouterr().out
    assert len(chosen(data, run).dataset) == 4  # COCO's reader has no such option
    assert "reader_options" not in capsys.readouterr().out
    source = DatasetSource(
        "DATA", str(data), reader_options={"class_attribute": "kind"}
    )
    with pytest.raises(ValueError, match="reader of COCO json does not take"):
        evaluation_images(source, [run])


@pytest.mark.slow
def test_a_run_is_evaluated_on_what_it_held_out(undivided, tmp_path, capsys):
    run, out = tmp_path / "run", tmp_path / "out"
    trained = ek.fine_tune(undivided, out=run, one_batch=False, **tiny_run(epochs=1))
    command = ["eval", str(run), str(undivided), "--out", str(out)]
    assert cli.main(command) == 0
    numbers = json.loads((out / "numbers.json").read_text())
    assert numbers["coco"]["AP"] == pytest.approx(trained.numbers["AP"], abs=1e-6)
    assert (numbers["split"], numbers["images"]) == ("validation", 2)
    capsys.readouterr()
    assert cli.main([*command, "--overwrite", "--split", "train"]) == 0
    said = capsys.readouterr().out
    assert said.count("8 of these 10 images were trained on") == 2
    assert "images were trained on" in (out / "report.html").read_text()
    assert "trained on" in json.loads((out / "numbers.json").read_text())["caution"]


def test_images_are_read_as_the_run_read_them(undivided, tmp_path, capsys):
    """Calibration images of `benchmark` and `export` were read by the default."""
    begun(tmp_path / "run", undivided, on_error="skip")
    source = DatasetSource("--calibration", str(undivided))
    models = ["efficientdet-d0", str(tmp_path / "run/archive/best.keras")]
    assert read_as_trained(source, models).on_error == "skip"
    assert "on_error='skip'" in capsys.readouterr().out
    strict = dataclasses.replace(source, on_error="raise")
    assert read_as_trained(strict, models) == strict  # a flag of the command
    assert read_as_trained(source, models[:1]) == source
