"""`effdet-keras inspect`: what is wrong with a dataset."""

import typing

import numpy as np
import pytest
from PIL import Image

from effdet_keras import cli
from effdet_keras.cli.arguments import DatasetFormat
from effdet_keras.data import write_shapes
from effdet_keras.data.load import FORMATS

pytestmark = pytest.mark.tensorflow


def test_inspect_says_by_its_status_whether_there_are_errors(tmp_path, capsys):
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
    data, page = tmp_path / "set", tmp_path / "report.html"
    write_shapes(data, num_train=3, num_valid=2, image_size=64)
    shared = (data / "train" / "00002.jpg").read_bytes()
    (data / "valid" / "00001.jpg").write_bytes(shared)
    assert cli.main(["inspect", str(data), "--html", str(page)]) == 0
    train, valid = capsys.readouterr().out.split("== valid ==")
    assert "== train ==" in train and "shared image" not in train
    assert "00001.jpg: same image as 00002.jpg of split 'train'" in valid
    assert [path.name for path in tmp_path.glob("*.html")] == ["report.html"]
    text = page.read_text(encoding="utf-8")
    assert text.count("<!doctype html>") == text.count("</html>") == 1
    train, valid = text.split('<h1 id="split-valid">')
    assert '<h1 id="split-train">' in train and '<a href="#split-valid">' in train
    assert "shared image" in valid and "shared image" not in train
    assert cli.main(["inspect", str(data), "--html", str(page)]) == 1
    assert "report.html" in capsys.readouterr().err


def test_inspect_names_the_splits_there_are(tmp_path, capsys):
    write_shapes(tmp_path, num_train=1, num_valid=1, image_size=64)
    assert cli.main(["inspect", str(tmp_path), "--split", "test"]) == 1
    assert "['train', 'valid']" in capsys.readouterr().err
    assert cli.main(["inspect", str(tmp_path / "nothing")]) == 1
    assert "nothing" in capsys.readouterr().err


def test_the_format_of_a_folder_with_several_is_picked_by_its_name(tmp_path, capsys):
    write_shapes(tmp_path / "data", num_train=2, num_valid=1, image_size=64)
    data = str(tmp_path / "data")
    assert cli.main(["convert", data, str(tmp_path / "yolo"), "--to", "yolo"]) == 0
    for path in (tmp_path / "yolo").iterdir():
        path.rename(tmp_path / "data" / path.name)
    for arguments in (["inspect", data], ["convert", data, str(tmp_path), "--to=csv"]):
        assert cli.main(arguments) == 1
    capsys.readouterr()
    assert cli.main(["inspect", data]) == 1
    assert "--format" in capsys.readouterr().err
    for name in ("coco", "yolo"):
        out = str(tmp_path / name / "csv")
        assert cli.main(["inspect", data, "--format", name]) == 0
        convert = ["convert", data, out, "--to", "csv", "--format", name]
        assert cli.main(convert) == 0
        split = ["inspect", data, "--format", name, "--split", "train"]
        assert cli.main(split) == 0


def test_the_names_of_formats_are_those_of_the_readers():
    assert tuple(FORMATS) == typing.get_args(DatasetFormat)


def test_an_address_is_not_taken_for_a_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for arguments in (
        ["inspect", "data", "--html", "gs://bucket/report.html"],
        ["import", "d0.h5", "gs://bucket/d0.keras"],
        ["demo", "--out", "gs://bucket/demo"],
    ):
        assert cli.main(arguments) == 1
        assert "gs://bucket" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


# --- `--augment`: images as training sees them, in a file.


@pytest.fixture(scope="module")
def inspected(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shapes")
    write_shapes(folder, num_train=4, num_valid=2, image_size=32)
    return ["inspect", str(folder), "--no-decode", "--image-size", "64"]


def test_images_are_drawn_with_augmentations_by_name(inspected, tmp_path, capsys):
    drawn = {}
    for name in ("photometric_distortion,cut_out", "mosaic"):
        path = tmp_path / f"{name}.png"
        train = [*inspected, "--split", "train"]
        assert cli.main([*train, "--augment", name, "--out", str(path)]) == 0
        assert f"Images as training sees them: {path}" in capsys.readouterr().out
        drawn[name] = np.asarray(Image.open(path))
        assert drawn[name].shape == (4 * 68 - 4, 4 * 68 - 4, 3)
    first, second = drawn.values()
    assert (first != second).any()


def test_each_split_has_a_file_and_no_name_draws_flip_and_scale(inspected, tmp_path):
    path = tmp_path / "grid.png"
    assert cli.main([*inspected, "--augment", "--out", str(path)]) == 0
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["grid-train.png", "grid-valid.png"]


def test_without_the_flag_no_image_is_written(inspected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(inspected) == 0
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "names, message",
    [
        ("nothing", "There is no augmentation 'nothing'. Known: auto_augment_v0, "),
        ("blur,mosaic", "must stand first"),
    ],
)
def test_names_that_cannot_be_used_are_told(
    inspected, tmp_path, capsys, names, message
):
    out = str(tmp_path / "grid.png")
    assert cli.main([*inspected, "--augment", names, "--out", out]) == 1
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
