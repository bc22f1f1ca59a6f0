"""`from_supervisely`: a json for each image, projects with several datasets."""

import base64
import json
import zlib

import numpy as np
import pytest
from support.small_datasets import encoded, save_image

from effdet_keras import data
from effdet_keras.data.formats.supervisely import from_supervisely


def shape(title, points, kind="rectangle"):
    return {
        "id": 1,
        "classTitle": title,
        "geometryType": kind,
        "tags": [],
        "points": {"exterior": points, "interior": []},
    }


BOX = shape("cat", [[5, 2], [25, 12]])


def write(folder, *objects, name="a.png", annotation="{}.json"):
    save_image(folder / "img" / name)
    path = folder / "ann" / annotation.format(name)
    path.parent.mkdir(exist_ok=True)
    size = {"height": 20, "width": 40}
    content = {"description": "", "tags": [], "size": size, "objects": list(objects)}
    path.write_text(json.dumps(content))


@pytest.mark.smoke
def test_a_project_has_a_dataset_in_each_folder(tmp_path, capsys):
    classes = [{"title": t, "shape": "rectangle"} for t in ("dog", "cat")]
    classes.append({"title": "tip", "shape": "point"})
    (tmp_path / "meta.json").write_text(json.dumps({"classes": classes, "tags": []}))
    write(tmp_path / "train", BOX)
    write(tmp_path / "train", name="b.png")
    write(tmp_path / "val", shape("dog", [[1, 2], [9, 4], [3, 8]], "polygon"))
    splits = data.load_splits(tmp_path, masks=True)
    assert "is Supervisely: splits train, val" in capsys.readouterr().out
    assert splits["train"].class_names == ("dog", "cat")
    first, second = splits["train"].records
    np.testing.assert_array_equal(first.boxes_xywh, [[5, 2, 20, 10]])
    assert first.image == str(tmp_path / "train" / "img" / "a.png")
    assert len(second.labels) == 0
    np.testing.assert_array_equal(splits["val"].records[0].boxes_xywh, [[1, 2, 8, 6]])


def test_bitmaps_and_older_names(tmp_path):
    pixels = np.zeros((6, 8), np.uint8)
    pixels[1:4, 2:7] = 255
    text = base64.b64encode(zlib.compress(encoded(pixels))).decode()
    bitmap = shape("cat", [], "bitmap")
    bitmap["bitmap"] = {"data": text, "origin": [10, 5]}
    write(tmp_path, bitmap, annotation="a.json")
    dataset = data.load(tmp_path)
    np.testing.assert_array_equal(dataset.records[0].boxes_xywh, [[12, 6, 5, 3]])


def test_what_cannot_be_read_is_named(tmp_path):
    write(tmp_path, BOX, shape("tip", [[1, 2]], "point"))
    with pytest.warns(UserWarning, match=r"1 unread shape: a\.png\.json: objects\[1\]"):
        assert len(from_supervisely(tmp_path).records[0].labels) == 1
    broken = {
        **shape("cat", [], "bitmap"),
        "bitmap": {"data": "AAAA", "origin": [1, 2]},
    }
    for bad in (shape("cat", [[1, 2]]), shape("", [[1, 2], [3, 4]]), broken):
        write(tmp_path, BOX, bad)
        with pytest.raises(ValueError, match=r"1 bad box: a\.png\.json: objects\[1\]"):
            from_supervisely(tmp_path)
    (tmp_path / "ann" / "a.png.json").write_text("[]")
    with pytest.raises(ValueError, match="1 unreadable annotation.*list of `objects`"):
        from_supervisely(tmp_path)
    with pytest.raises(FileNotFoundError, match="no folder with `ann` and `img`"):
        from_supervisely(tmp_path / "img")


def test_a_project_of_lines_alone_says_so(tmp_path):
    write(tmp_path, shape("road", [[1, 2], [9, 4]], "line"))
    message = r"found 1 unread shape: a\.png\.json: objects\[0\]: line of 'road'.*draw"
    with pytest.raises(ValueError, match=message):
        from_supervisely(tmp_path)


def test_datasets_in_datasets_are_of_one_project(tmp_path):
    """The folders `ann` and `img` of those around them may hold nothing."""
    classes = [{"title": t, "shape": "rectangle"} for t in ("dog", "cat")]
    (tmp_path / "meta.json").write_text(json.dumps({"classes": classes}))
    for folder in ("warm", "cold"):
        (tmp_path / folder / "ann").mkdir(parents=True)
        (tmp_path / folder / "img").mkdir()
    write(tmp_path / "warm/datasets/big", BOX)
    write(tmp_path / "warm/datasets/small", BOX)
    write(tmp_path / "cold/datasets/small", BOX)
    splits = data.load_splits(tmp_path)
    assert sorted(splits) == ["big", "cold_small", "warm_small"]
    assert {s.class_names for s in splits.values()} == {("dog", "cat")}
    assert len(data.load(tmp_path, "warm_small")[0]["boxes"]) == 1


def test_splits_in_each_dataset_are_of_the_whole_project(tmp_path):
    (tmp_path / "meta.json").write_text(json.dumps({"classes": []}))
    for folder, names in (("cats", "ab"), ("dogs", "cd")):
        for split, name in zip(("train", "val"), names):
            write(tmp_path / folder / "datasets" / split, BOX, name=f"{name}.png")
    splits = data.load_splits(tmp_path)
    assert sorted(splits) == ["cats_train", "cats_val", "dogs_train", "dogs_val"]


def test_a_link_to_the_project_is_no_dataset_in_it(tmp_path):
    (tmp_path / "meta.json").write_text(json.dumps({"classes": []}))
    for name in "ab":
        write(tmp_path / name, BOX, name=f"{name}.png")
        (tmp_path / name / "datasets").symlink_to(tmp_path)
    assert sorted(data.load_splits(tmp_path)) == ["a", "b"]


def test_the_classes_of_a_nested_dataset_are_those_of_the_project(
    tmp_path, monkeypatch
):
    classes = [{"title": t, "shape": "rectangle"} for t in ("dog", "cat")]
    (tmp_path / "meta.json").write_text(json.dumps({"classes": classes}))
    write(tmp_path / "warm", BOX)
    write(tmp_path / "warm/datasets/small", BOX)
    monkeypatch.chdir(tmp_path / "warm/datasets")
    assert data.load("small").class_names == ("dog", "cat")
