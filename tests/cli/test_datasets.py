"""`effdet-keras inspect` and `convert`; and what a command may write to."""

import os

import numpy as np
import pytest
from PIL import Image

from effdet_keras import cli
from effdet_keras.cli.files import check_outputs
from effdet_keras.data import load_splits, write_shapes

pytestmark = pytest.mark.tensorflow


@pytest.mark.smoke
def test_inspect_says_by_its_status_whether_there_are_errors(tmp_path, command):
    write_shapes(tmp_path / "set", num_train=24, num_valid=24, image_size=64)
    page = tmp_path / "report.html"
    inspect = ["inspect", tmp_path / "set", "--split", "train"]
    text = command(*inspect, "--image-size", 128, "--html", page)
    assert "efficientdet-d0 at 128x128" in text and "Fit to train on" in text
    assert page.read_text().startswith("<!doctype html>")
    assert "at 128x256" in command(*inspect, "--no-decode", "--image-size", 128, 256)


def test_inspect_names_what_is_broken(tmp_path, capsys):
    write_shapes(tmp_path, num_train=6, num_valid=1, image_size=64)
    broken = tmp_path / "train" / "00005.jpg"
    broken.write_bytes(broken.read_bytes()[:900])
    inspect = ["inspect", str(tmp_path), "--split", "train"]
    assert cli.main([*inspect, "--model", "efficientdet-lite0"]) == 1
    text = capsys.readouterr().out
    assert "efficientdet-lite0 at 320x320" in text
    assert "00005.jpg: image file is truncated" in text
    assert cli.main([*inspect, "--no-decode"]) == 0


def test_the_format_of_a_folder_with_several_is_picked_by_its_name(tmp_path, command):
    data = tmp_path / "data"
    write_shapes(data, num_train=2, num_valid=1, image_size=64)
    command("convert", data, tmp_path / "yolo", "--to", "yolo")
    for path in (tmp_path / "yolo").iterdir():
        path.rename(data / path.name)
    said = command("inspect", data)  # of the same boxes one format is read, and told
    assert "is COCO json" in said and "as YOLO, which is not read" in said
    for name in ("coco", "yolo"):
        out = tmp_path / name / "csv"
        command("inspect", data, "--format", name)
        command("convert", data, out, "--to", "csv", "--format", name)
        command("inspect", data, "--format", name, "--split", "train")


# --- `--augment`: images as training sees them, in a file.


@pytest.fixture(scope="module")
def inspected(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shapes")
    write_shapes(folder, num_train=4, num_valid=2, image_size=32)
    return ["inspect", folder, "--no-decode", "--image-size", 64]


def test_images_are_drawn_with_augmentations_by_name(inspected, tmp_path, command):
    drawn = []
    for name in ("photometric_distortion,cut_out", "mosaic"):
        path = tmp_path / f"{name}.png"
        said = command(*inspected, "--split=train", "--augment", name, "--out", path)
        assert f"Images as training sees them: {path}" in said
        drawn.append(np.asarray(Image.open(path)))
        assert drawn[-1].shape == (4 * 68 - 4, 4 * 68 - 4, 3)
    assert (drawn[0] != drawn[1]).any()


def test_each_split_has_a_file_where_images_are_asked_for(
    inspected, tmp_path, monkeypatch, command
):
    monkeypatch.chdir(tmp_path)
    command(*inspected)
    assert not list(tmp_path.iterdir())
    command(*inspected, "--augment", "--out", "grid.png")  # flip and scale alone
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["grid-train.png", "grid-valid.png"]


# --- `convert`.


def test_convert_writes_another_format_and_says_what(tmp_path, shapes, command):
    out, records = tmp_path / "csv", tmp_path / "records"
    text = command("convert", shapes, out, "--to", "csv")
    assert "is COCO json: splits train, valid" in text
    assert "train: DetectionDataset(4 images" in text
    assert list(load_splits(out)) == ["train", "valid"]
    options = ["--to", "tfrecord", "--split", "valid", "--num-shards", 2]
    command("convert", out, records, *options)
    names = {path.name for path in records.glob("*.tfrecord")}
    assert names == {f"valid-0000{i}-of-00002.tfrecord" for i in (0, 1)}


def test_convert_tells_errors_in_one_line_or_skips_them(tmp_path, capsys, command):
    data, out = tmp_path / "coco", tmp_path / "yolo"
    write_shapes(data, num_train=3, num_valid=2)
    next((data / "train").iterdir()).unlink()
    convert = ["convert", str(data), str(out), "--to", "yolo"]
    assert "1 missing image" in command(*convert, status=1)
    assert not out.exists()
    assert cli.main([*convert, "--skip-errors"]) == 0
    said = capsys.readouterr().err
    assert "1 missing image" in said and "UserWarning" not in said
    assert len(list((out / "images" / "train").iterdir())) == 2
    assert "already exists" in command(*convert, "--skip-errors", status=1)


# --- What a command may write to, asked before any work.


@pytest.fixture
def cat(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cat.jpg").write_text("a cat")


@pytest.mark.parametrize("name", ["./cat.jpg", "link"])
def test_an_input_is_never_an_output_whatever_it_is_called(cat, name):
    os.symlink("cat.jpg", "link")
    for overwrite in (False, True):
        with pytest.raises(ValueError, match="one of the files that are read"):
            check_outputs([name], ["cat.jpg"], overwrite=overwrite)


def test_what_is_there_stays_unless_it_may_go(cat):
    outputs = [None, "new.json", "cat.jpg"]
    with pytest.raises(FileExistsError, match="'cat.jpg'.*--overwrite"):
        check_outputs(outputs)
    check_outputs(outputs, overwrite=True)
