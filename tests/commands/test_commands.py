"""The command, and the demo behind it."""

import json
import re
import sys

import pytest

from effdet_keras import cli

pytestmark = pytest.mark.tensorflow


def test_the_demo_goes_the_whole_way(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    out = tmp_path / "demo"
    status = cli.main(["demo", "--out", str(out), "--epochs", "1", "--images", "16"])
    text = capsys.readouterr().out
    assert status == 0
    for line in ("AP50", "ARmax100", "best checkpoint", "16 images of"):
        assert line in text
    assert (out / "archive" / "best.keras").stat().st_size > 1e6
    assert (out / "curves.png").exists()
    assert len(list((out / "images").glob("*.png"))) == 9
    assert list((out / "logs").rglob("events*"))
    truth = json.loads((out / "data" / "valid.json").read_text())
    assert {"images", "annotations", "categories"} <= set(truth)


@pytest.mark.slow
def test_the_demo_learns(tmp_path):
    from effdet_keras.commands.run_demo import run_demo

    assert run_demo(tmp_path)["AP50"] >= 0.75


def test_wrong_arguments_are_told_without_a_traceback(tmp_path, capsys):
    assert cli.main(["demo", "--out", str(tmp_path), "--epochs", "0"]) == 1
    assert "`epochs` must be 1 or more" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert cli.main(["demo", "--out", str(tmp_path / "file")]) == 1
    assert "file" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["paint"])


def test_version_is_told(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", capsys.readouterr().out)


def test_the_installed_command_tunes_the_allocator(monkeypatch):
    order = []
    monkeypatch.setattr(cli, "tune_allocator", lambda: order.append("tune"))
    monkeypatch.setattr(cli, "main", lambda: order.append("main") or 7)
    assert cli.console() == 7
    assert order == ["tune", "main"]


def test_a_missing_matplotlib_is_told_before_the_training(
    monkeypatch, tmp_path, capsys
):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert cli.main(["demo", "--out", str(tmp_path / "demo")]) == 1
    assert "pip install" in capsys.readouterr().err
    assert not (tmp_path / "demo").exists()


def test_inspect_says_by_its_status_whether_there_are_errors(tmp_path, capsys):
    from effdet_keras.data import write_shapes

    write_shapes(tmp_path / "set", num_train=24, num_valid=24, image_size=64)
    page = tmp_path / "report.html"
    inspect = ["inspect", str(tmp_path / "set"), "--split", "train"]
    assert cli.main([*inspect, "--image-size", "128", "--html", str(page)]) == 0
    text = capsys.readouterr().out
    assert "efficientdet-d0 at 128x128" in text and "Fit to train on" in text
    assert page.read_text().startswith("<!doctype html>")

    broken = tmp_path / "set" / "train" / "00005.jpg"
    broken.write_bytes(broken.read_bytes()[:900])
    assert cli.main([*inspect, "--model", "efficientdet-lite0"]) == 1
    text = capsys.readouterr().out
    assert "efficientdet-lite0 at 320x320" in text
    assert "00005.jpg: image file is truncated" in text
    assert cli.main([*inspect, "--no-decode", "--image-size", "128", "256"]) == 0
    assert "at 128x256" in capsys.readouterr().out


def test_inspect_checks_all_splits_and_what_they_share(tmp_path, capsys):
    from effdet_keras.data import write_shapes

    data, page = tmp_path / "set", tmp_path / "report.html"
    write_shapes(data, num_train=3, num_valid=2, image_size=64)
    shared = (data / "train" / "00002.jpg").read_bytes()
    (data / "valid" / "00001.jpg").write_bytes(shared)
    assert cli.main(["inspect", str(data), "--html", str(page)]) == 0
    train, valid = capsys.readouterr().out.split("== valid ==")
    assert "== train ==" in train and "shared image" not in train
    assert "00001.jpg: same image as 00002.jpg of split 'train'" in valid
    assert (tmp_path / "report-train.html").exists()
    assert (tmp_path / "report-valid.html").exists()


def test_inspect_names_the_splits_there_are(tmp_path, capsys):
    from effdet_keras.data import write_shapes

    write_shapes(tmp_path, num_train=1, num_valid=1, image_size=64)
    assert cli.main(["inspect", str(tmp_path), "--split", "test"]) == 1
    assert "['train', 'valid']" in capsys.readouterr().err
    assert cli.main(["inspect", str(tmp_path / "nothing")]) == 1
    assert "nothing" in capsys.readouterr().err


def test_convert_writes_another_form_and_says_what(tmp_path, capsys):
    from effdet_keras.data import load_splits, write_shapes

    write_shapes(tmp_path / "coco", num_train=3, num_valid=2)
    source, out = str(tmp_path / "coco"), str(tmp_path / "csv")
    options = ["--to", "csv", "--csv-form", "automl"]
    assert cli.main(["convert", source, out, *options]) == 0
    text = capsys.readouterr().out
    assert "is COCO json: splits train, valid" in text
    assert "train: DetectionDataset(3 images" in text
    assert list(load_splits(out)) == ["train", "validation"]
    records = str(tmp_path / "records")
    options = ["--to", "tfrecord", "--split", "validation", "--num-shards", "2"]
    assert cli.main(["convert", out, records, *options]) == 0
    names = {path.name for path in (tmp_path / "records").glob("*.tfrecord")}
    assert names == {f"validation-0000{i}-of-00002.tfrecord" for i in (0, 1)}


def test_convert_tells_errors_in_one_line_or_skips_them(tmp_path, capsys):
    from effdet_keras.data import write_shapes

    write_shapes(tmp_path / "coco", num_train=3, num_valid=2)
    next((tmp_path / "coco" / "train").iterdir()).unlink()
    arguments = ["convert", str(tmp_path / "coco"), str(tmp_path / "yolo")]
    assert cli.main([*arguments, "--to", "yolo"]) == 1
    assert "1 missing image" in capsys.readouterr().err
    assert not (tmp_path / "yolo").exists()
    assert cli.main([*arguments, "--to", "yolo", "--skip-errors"]) == 0
    said = capsys.readouterr().err
    assert "1 missing image" in said and "UserWarning" not in said
    assert len(list((tmp_path / "yolo" / "images" / "train").iterdir())) == 2
    assert cli.main([*arguments, "--to", "yolo"]) == 1
    assert "never written over" in capsys.readouterr().err


@pytest.fixture
def lite0(tmp_path):
    """A TF1 checkpoint of Lite0 with three classes, of the names alone."""
    import numpy as np

    from effdet_keras.config import EfficientDetConfig
    from effdet_keras.weights.kinds.automl import write_tf1_checkpoint
    from effdet_keras.weights.network_arrays import network_arrays

    config = EfficientDetConfig.from_name("efficientdet-lite0", num_classes=3)
    arrays = {a.name: np.ones(a.shape, "float32") for a in network_arrays(config)}
    write_tf1_checkpoint(tmp_path / "lite0" / "model", arrays)
    return tmp_path / "lite0"


def test_inspect_says_which_model_weights_are_of(lite0, capsys):
    assert cli.main(["inspect", str(lite0)]) == 0
    text = capsys.readouterr().out
    assert "efficientdet-lite0, 3 classes" in text
    assert "Would load into efficientdet-lite0: 588 of 588" in text
    assert "588 of them moving averages" in text
    model = ["--model", "efficientdet-lite1"]
    assert cli.main(["inspect", str(lite0 / "model"), *model, "--all", "--raw"]) == 0
    text = capsys.readouterr().out
    assert "Would load into efficientdet-lite1" in text and "averages" not in text
    assert re.search(r"^box_net/box-0-bn-3/beta +64$", text, re.MULTILINE)
    assert cli.main(["inspect", str(lite0 / "modle.index")]) == 1
    assert "Did you mean: model.index" in capsys.readouterr().err


def test_import_writes_weights_in_another_form(lite0, tmp_path, capsys):
    from effdet_keras.weights.archive import read_archive_info

    out = str(tmp_path / "lite0.keras")
    arguments = ["import", str(lite0), out, "--class-names", "cat", "dog", "fox"]
    assert cli.main(arguments) == 0
    assert "Loaded 588 of 588 weights" in capsys.readouterr().out
    info = read_archive_info(out)
    assert info["class_names"] == ["cat", "dog", "fox"]
    assert info["config"]["name"] == "efficientdet-lite0"
    assert cli.main(arguments) == 1
    assert "nothing is overwritten" in capsys.readouterr().err
    other = ["import", str(lite0), str(tmp_path / "d0.keras")]
    assert cli.main([*other, "--model", "efficientdet-d0"]) == 1
    assert "they are of efficientdet-lite0" in capsys.readouterr().err
    assert not (tmp_path / "d0.keras").exists()
