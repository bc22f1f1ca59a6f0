"""`effdet-keras selftest`: at which stage a training loses its boxes."""

import json
import shutil

import pytest
from support.tiny import LITE0, tiny_model
from support.tiny_run import MODEL_CONFIG

import effdet_keras as ek
from effdet_keras import cli
from effdet_keras.runs import components

pytestmark = pytest.mark.tensorflow


def selftest(data, *flags):
    """The command with a small new model."""
    settings = {f"model_config.{n}": v for n, v in MODEL_CONFIG.items()}
    settings |= {"run_eagerly": "true", "weights": "null"}
    arguments = [f"--set={name}={value}" for name, value in settings.items()]
    size = ["--image-size", "64"]
    return cli.main(["selftest", str(data), *map(str, flags), *size, *arguments])


def test_sound_data_passes(shapes, capsys):
    assert selftest(shapes, "--no-training") == 0
    said = capsys.readouterr().out
    assert "efficientdet-lite0 at 64x64 on DetectionDataset(4 images" in said
    assert said.count("passed  ") == 9 and "All 9 stages passed." in said


@pytest.mark.parametrize("flag", ["--num-images", "--steps"])
def test_a_number_of_zero_is_refused_before_a_model_is_made(
    shapes, monkeypatch, capsys, flag
):
    monkeypatch.setattr(components, "make_model", lambda *_: pytest.fail("made"))
    assert selftest(shapes, flag, 0) == 1
    name = flag[2:].replace("-", "_")
    assert f"Received: {name}=0" in capsys.readouterr().err


def test_broken_data_fails_with_its_stage_and_status(shapes, tmp_path, capsys):
    data = tmp_path / "data"
    shutil.copytree(shapes, data)
    path = next(data.glob("*valid*.json"))
    content = json.loads(path.read_text())
    for annotation in content["annotations"]:
        annotation["bbox"] = [number / 64 for number in annotation["bbox"]]
    path.write_text(json.dumps(content))
    assert selftest(data, "--no-training", "--split", "valid") == 1
    said = capsys.readouterr().out
    assert "FAILED  scoring" in said and "'normalized box'" in said
    assert "1 of 1 stages failed: scoring" in said
    assert selftest(data, "--no-training") == 0  # the other split


@pytest.mark.parametrize(
    ("flags", "count"), [((), 4), (("--split", "train"), 4), (("--split", "valid"), 2)]
)
def test_splits_may_be_called_as_those_of_coco(shapes, tmp_path, flags, count, capsys):
    data = tmp_path / "data"
    shutil.copytree(shapes, data)
    for name in ("train", "valid"):
        path = next(data.glob(f"*{name}*.json"))
        path.rename(path.with_name(f"instances_{name.removesuffix('id')}2017.json"))
    selftest(data, "--no-training", *flags)
    assert f"on DetectionDataset({count} images" in capsys.readouterr().out


def test_a_training_that_is_too_short_fails_at_the_last_stage(shapes, capsys):
    assert selftest(shapes, "--steps", 2, "--num-images", 2) == 1
    said = capsys.readouterr().out
    assert "Memorizing 2 images" in said and "FAILED  overfitting" in said


def test_the_model_of_a_run_is_tested_and_looked_into(shapes, tmp_path, capsys):
    run = tmp_path / "runs" / "shapes"
    (run / "archive").mkdir(parents=True)
    names = ek.data.load(shapes, "train").class_names
    tiny_model(backbone=LITE0, class_names=names).save(run / "archive" / "best.keras")
    assert cli.main(["selftest", str(shapes), str(run), "--no-training"]) == 0
    assert cli.main(["inspect-weights", str(run)]) == 0
    assert "3 classes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["cats.keras", "--model", "efficientdet-d0"], "--model describes a new model"),
        (["--split", "test"], "['train', 'valid']"),
        (["--set", "epoch=3"], "Did you mean 'epochs'"),
        (["nowhere.keras"], "nowhere.keras"),
    ],
    ids=str,
)
def test_what_is_wrong_is_one_line(shapes, flags, message, capsys):
    assert cli.main(["selftest", str(shapes), *flags]) == 1
    said = capsys.readouterr().err
    assert message in said and said.startswith("effdet-keras: ")
