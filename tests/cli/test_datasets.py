"""`effdet-keras inspect` and `convert`; and what a command may write to."""

import json
import os
import shutil
import types

import numpy as np
import pytest
from PIL import Image
from support.clips import photo
from support.cloned_files import VOC, put

from effdet_keras import cli
from effdet_keras.cli.files import check_outputs, image_files
from effdet_keras.data import (
    from_arrays,
    load,
    load_splits,
    write_coco,
    write_shapes,
)

pytestmark = pytest.mark.tensorflow


@pytest.mark.smoke
def test_inspect_says_by_its_status_whether_there_are_errors(tmp_path, command):
    write_shapes(tmp_path / "set", num_train=24, num_valid=24, image_size=64)
    page = tmp_path / "report.html"
    inspect = ["inspect", tmp_path / "set", "--split", "train"]
    text = command(*inspect, "--image-size", 128, "--html", page)
    assert "efficientdet-lite0 at 128x128" in text and "Fit to train on" in text
    assert page.read_text().startswith("<!doctype html>")
    assert "at 128x256" in command(*inspect, "--no-decode", "--image-size", 128, 256)


def test_inspect_names_what_is_broken(tmp_path, capsys):
    write_shapes(tmp_path, num_train=6, num_valid=1, image_size=64)
    broken = tmp_path / "train" / "00005.jpg"
    broken.write_bytes(broken.read_bytes()[:900])
    inspect = ["inspect", str(tmp_path), "--split", "train"]
    assert cli.main([*inspect, "--model", "efficientdet-lite0"]) == 1
    text = capsys.readouterr().out
    assert "efficientdet-lite0 at 192x192" in text  # as `train` makes it
    assert "00005.jpg: image file is truncated" in text
    assert cli.main([*inspect, "--no-decode"]) == 0


def test_the_format_of_a_folder_with_several_is_picked_by_its_name(tmp_path, command):
    data = tmp_path / "data"
    write_shapes(data, num_train=2, num_valid=1, image_size=64)
    command("convert", data, tmp_path / "yolo", "--to", "yolo")
    for path in (tmp_path / "yolo").iterdir():
        path.rename(data / path.name)
    said = command("inspect", data)  # of the same boxes one format is read, and told
    assert "is COCO json" in said and "as YOLO. They were not read" in said
    for name in ("coco", "yolo"):
        out = tmp_path / name / "csv"
        command("inspect", data, "--format", name)
        command("convert", data, out, "--to", "csv", "--format", name)
        command("inspect", data, "--format", name, "--split", "train")


# --- `--json` and `--strict`: for programs that decide about data.


@pytest.fixture
def two_warnings(tmp_path):
    """A dataset without errors, with a box of no area and an unused class."""
    image = np.zeros((32, 48, 3), np.uint8)
    dataset = from_arrays([image], [[[4, 8, 20, 40]]], [[0]], ["cat", "dog"])
    write_coco(dataset, tmp_path / "set")
    path = tmp_path / "set/train.json"
    content = json.loads(path.read_text())
    empty = {**content["annotations"][0], "id": 2, "bbox": [5, 5, 0, 9]}
    content["annotations"].append(empty)
    path.write_text(json.dumps(content))
    return tmp_path / "set"


def test_inspect_writes_all_that_it_finds_as_json(two_warnings, tmp_path, command):
    path = tmp_path / "report.json"
    model = ("--model", "efficientdet-d0", "--image-size", 64)
    command("inspect", two_warnings, "--json", path, *model)
    content = json.loads(path.read_text())
    assert content["ok"] and content["exit_status"] == 0 and not content["strict"]
    assert content["counts"] == {"error": 0, "warning": 2, "note": 0}
    split = content["splits"]["train"]
    assert split["images"] == 1 and split["boxes_per_class"] == {"cat": 2, "dog": 0}
    assert split["anchor_coverage"][0] == {
        "size": "all",
        "boxes": 1,
        "share": 1.0,
        "mean_iou": pytest.approx(0.8, abs=0.2),
    }
    assert [(p["id"], p["severity"]) for p in split["problems"]] == [
        ("empty-box", "warning"),
        ("unused-class", "warning"),
    ]
    assert split["problems"][0]["file"] == "000000000001.png"
    assert "width 0" in split["problems"][0]["detail"]
    said = command("inspect", two_warnings, "--json", path, status=1)
    assert "not overwritten" in said
    command("inspect", two_warnings, "--json", path, "--overwrite")


def test_with_strict_warnings_count_in_the_exit_status(two_warnings, tmp_path, command):
    path = tmp_path / "report.json"
    said = command("inspect", two_warnings, "--strict", "--json", path, status=1)
    assert "1 for the warnings (--strict)" in said
    content = json.loads(path.read_text())
    assert content["exit_status"] == 1 and content["strict"] and not content["ok"]
    assert content["splits"]["train"]["ok"]
    write_shapes(tmp_path / "good", num_train=1, num_valid=1, image_size=64)
    command("inspect", tmp_path / "good", "--strict", status=1)  # unused classes


def test_json_goes_to_the_standard_output_alone(two_warnings, capsys):
    assert cli.main(["inspect", str(two_warnings), "--json", "-"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["counts"]["warning"] == 2
    assert "Fit to train on" in err and "is COCO json" in err


def test_data_that_cannot_be_read_is_said_in_json_too(tmp_path, command):
    path = tmp_path / "report.json"
    command("inspect", tmp_path / "nowhere", "--json", path, status=1)
    content = json.loads(path.read_text())
    assert content["exit_status"] == 1 and content["splits"] == {}
    assert content["error"]["type"] == "FileNotFoundError"
    assert "nowhere" in content["error"]["message"]


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


def test_inspect_and_selftest_take_the_options_of_a_reader(tmp_path, command):
    photo(1, 120, 90).save(tmp_path / "a.png")
    shape = {"name": "rect", "x": 2, "y": 3, "width": 30, "height": 30}
    attributes = {"breed": "siamese", "mood": "calm"}
    regions = [{"shape_attributes": shape, "region_attributes": attributes}]
    image = {"filename": "a.png", "size": 9, "regions": regions, "file_attributes": {}}
    (tmp_path / "via.json").write_text(json.dumps({"a.png9": image}))
    option = ["--reader-option", "class_attribute=breed"]
    for rest in ([], ["--split", "train"]):
        said = command("inspect", tmp_path, *rest, status=1)
        assert "--reader-option class_attribute=breed" in said
        assert "siamese" in command("inspect", tmp_path, *rest, *option)
    said = command("selftest", tmp_path, "--no-training", status=1)
    assert "--reader-option class_attribute=breed" in said
    assert "passed  encoding" in command("selftest", tmp_path, "--no-training", *option)


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


def test_convert_takes_the_options_of_a_reader(tmp_path, command):
    put(tmp_path, "voc/a.png")
    put(tmp_path, "voc/a.xml", text=VOC.format("a.png"))
    convert = ["convert", tmp_path / "voc", tmp_path / "coco", "--to", "coco"]
    command(*convert, "--reader-option", "one_based=false")
    assert load(tmp_path / "coco")[0]["boxes"].tolist() == [[3, 2, 16, 14]]


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
        with pytest.raises(ValueError, match="one of the input files"):
            check_outputs([name], ["cat.jpg"], overwrite=overwrite)


def test_what_is_there_stays_unless_it_may_go(cat):
    outputs = [None, "new.json", "cat.jpg"]
    with pytest.raises(FileExistsError, match="'cat.jpg'.*--overwrite"):
        check_outputs(outputs)
    check_outputs(outputs, overwrite=True)


@pytest.mark.parametrize("name", ["valid.json", "valid/00001.jpg", "classes.txt"])
def test_data_named_by_its_folder_is_never_an_output(tmp_path, capsys, name):
    write_shapes(tmp_path, num_train=1, num_valid=1, image_size=64)
    (tmp_path / "classes.txt").write_text("circle")
    there = (tmp_path / name).read_bytes()
    for flag in ("--json", "--html"):
        inspect = ["inspect", tmp_path, flag, tmp_path / name, "--overwrite"]
        assert cli.main([*map(str, inspect)]) == 1
        assert f"{name}' is in the input" in capsys.readouterr().err
    assert (tmp_path / name).read_bytes() == there


def test_the_file_of_images_is_refused_without_images(shapes, tmp_path, command):
    out = tmp_path / "augmented.png"
    said = command("inspect", shapes, "--out", out, status=1)
    assert "add `--augment`, or leave it out. Received: out=" in said
    assert not out.exists()


def test_images_of_an_annotation_file_are_never_outputs(tmp_path, capsys):
    write_shapes(tmp_path, num_train=1, num_valid=1, image_size=64)
    image = tmp_path / "valid" / "00001.jpg"
    of_another_split = image.with_name("00002.jpg")
    shutil.copy(image, of_another_split)
    there = image.read_bytes()
    augmented = ("--augment", "blur", "--out")
    for flags in (["--json"], ["--html"], augmented):
        for path in (image, of_another_split):
            inspect = ["inspect", tmp_path / "valid.json", *flags, path, "--overwrite"]
            assert cli.main([*map(str, inspect)]) == 1
            assert "is one of the input files" in capsys.readouterr().err
            assert path.read_bytes() == there


def test_images_at_an_address_are_no_outputs_here(tmp_path):
    image = "s3://bucket/cats/a.jpg"
    record = types.SimpleNamespace(image=image)
    dataset = types.SimpleNamespace(records=[record])
    (tmp_path / "found.json").touch()
    assert list(image_files(dataset)) == [image]
    check_outputs([tmp_path / "found.json"], image_files(dataset), overwrite=True)


def test_reports_in_the_folder_of_the_data_may_be_replaced(tmp_path, command):
    write_shapes(tmp_path, num_train=1, num_valid=1, image_size=64)
    outputs = ["--json", tmp_path / "report.json", "--html", tmp_path / "report.html"]
    outputs += ["--augment", "blur", "--out", tmp_path / "augmented.png"]
    for _ in range(2):
        command("inspect", tmp_path, "--split", "valid", *outputs, "--overwrite")
    found = [{"image_id": 1, "category_id": 1, "bbox": [0, 0, 1, 1], "score": 0.5}]
    (tmp_path / "found.json").write_text(json.dumps(found))
    check_outputs([tmp_path / "found.json"], [tmp_path], overwrite=True)


@pytest.fixture
def run(tmp_path):
    """The files of a run with an export, and the user's own."""
    for name, text in {
        "configuration.yaml": "model: efficientdet-lite0",
        "data.json": "{}",
        "numbers.json": "{}",
        "found.csv": "image",
        "archive/best.keras": "",
        "archive/last.keras": "",
        "archive/best.tflite": "",
        "export/pets.json": "{}",
        "export/found.json": "{}",
        "export/export_report.json": '{"files": ["pets.json", "export_report.json"]}',
    }.items():
        path = tmp_path / "run" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "run"


@pytest.mark.parametrize("model", ["", "archive", "archive/best.keras", "export"])
def test_a_model_named_by_its_folder_is_never_an_output(run, model):
    names = ["archive/best.keras", "archive/last.keras", "configuration.yaml"]
    names += ["data.json", *(["export/pets.json"] if model == "export" else [])]
    for name in names:
        with pytest.raises(ValueError, match=f"{name}' is one of the input files"):
            check_outputs([run / name], models=[run / model], overwrite=True)
    free = ["numbers.json", "found.csv", "archive/best.tflite", "export/found.json"]
    check_outputs([run / name for name in free], models=[run / model], overwrite=True)


def test_a_folder_of_a_model_without_a_list_of_its_files_keeps_them_all(tmp_path):
    (tmp_path / "labels.json").write_text("[]")
    with pytest.raises(ValueError, match="is one of the input files"):
        check_outputs([tmp_path / "labels.json"], models=[tmp_path], overwrite=True)
    check_outputs([tmp_path / "found.json"], models=[tmp_path])


def test_an_output_below_a_file_is_refused(cat):
    with pytest.raises(NotADirectoryError, match="'cat.jpg' is a file"):
        check_outputs(["cat.jpg/found.json"], overwrite=True)
