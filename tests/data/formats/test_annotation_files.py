"""Files of annotation tools: which split they are, and the images that they name."""

import math

import numpy as np
import pytest
from support.small_datasets import save_image

from effdet_keras.data.formats.annotation_files import (
    ellipse_box,
    files_by_split,
    hull_box,
    known_files,
    number_of,
    points_of,
    turned_corners,
)
from effdet_keras.data.formats.image_paths import ImageLocator, path_parts


def touch(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    return path


@pytest.mark.parametrize(
    ("files", "splits"),
    [
        (["export.json"], {"train": "export.json"}),
        (["val.json"], {"val": "val.json"}),
        (["train.json", "val.json"], {"train": "train.json", "val": "val.json"}),
        (["via_train_1.json", "via_test_1.json"], {"train": 0, "test": 1}),
        (["annotations/pets.json"], {"train": 0}),
        (["train/a.json", "valid/a.json"], {"train": 0, "valid": 1}),
        (["train/a.json", "train/b.json"], {"train_a": 0, "train_b": 1}),
        (["train/labels/a.json", "val/labels/a.json"], {"train": 0, "val": 1}),
        (["one.json", "two.json"], {"one": 0, "two": 1}),
        (["train_1.json", "train_2.json"], {"train_1": 0, "train_2": 1}),
        (["data.json", "labels.json"], {"data": 0, "labels": 1}),
        ([".hidden.json", "._a.json", "a.json", "b.txt"], {"train": 2}),
        (["pets/a.json", "code/b.json"], {}),
        (["cats_train/a.json", "cats_val/a.json"], {"train": 0, "val": 1}),
        (["cats_train.json", "cats_val.json"], {"train": 0, "val": 1}),
        (["toy_train/a.json", "toy_bus/a.json"], {}),
        (["Train/a.json", "test (1)/a.json"], {"train": 0, "test": 1}),
        (["training/a.json", "evaluation/a.json"], {"train": 0}),
        (["val_labels.json"], {"val": 0}),
        (["Annots/pets.json"], {"train": 0}),
    ],
)
def test_splits_of_files(tmp_path, files, splits):
    for name in files:
        touch(tmp_path / name)
    found = files_by_split(tmp_path, (".json",), lambda path: True)
    wanted = {
        split: tmp_path / (files[name] if isinstance(name, int) else name)
        for split, name in splits.items()
    }
    assert found == wanted
    assert files_by_split(tmp_path, (".json",), lambda path: False) == {}


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("a.png", "images/a.png"),
        ("images/a.png", "images/a.png"),
        ("../set/images/a.png", "images/a.png"),
        ("C:\\Users\\me\\set\\images\\a.png", "images/a.png"),
        ("/content/set/images/a.png", "images/a.png"),
        ("https://host/up/a.png?width=9", "images/a.png"),
        ("A.PNG", "images/a.png"),
        ("file:C:/Users/me/set/c%20d.png", "images/c d.png"),
        ("day/b.png", "frames/day/b.png"),
        ("work/night/b.png", "frames/night/b.png"),
    ],
)
def test_an_image_is_found_by_the_longest_ending_that_exists(tmp_path, name, found):
    for path in (
        "images/a.png",
        "images/c d.png",
        "frames/day/b.png",
        "frames/night/b.png",
    ):
        save_image(tmp_path / "set" / path)
    locator = ImageLocator(touch(tmp_path / "set" / "export.json"))
    assert locator.find(name).resolve() == tmp_path / "set" / found


def test_of_several_images_none_is_taken(tmp_path):
    for path in ("frames/day/b.png", ".cache/c.png"):
        save_image(tmp_path / path)
    save_image(tmp_path / "frames/night/b.png", (30, 20))
    locator = ImageLocator(touch(tmp_path / "export.json"))
    for name in ("b.png", "c.png", "gone.png", "", "up/gone.png"):
        assert not locator.find(name).is_file()
    assert locator.find("up/gone.png") == tmp_path / "up/gone.png"


def test_an_image_of_one_split_is_not_taken_for_one_of_another(tmp_path):
    save_image(tmp_path / "images" / "val" / "a.png")
    train = ImageLocator(touch(tmp_path / "train.json"))
    assert not train.find("a.png").is_file()
    assert ImageLocator(touch(tmp_path / "valid.json")).find("a.png").is_file()
    neither = ImageLocator(touch(tmp_path / "export.json"))
    assert neither.find("a.png").is_file()
    assert not neither.find("C:\\pets\\train\\a.png").is_file()
    subset = ImageLocator(tmp_path / "export.json", subset="Train")
    assert not subset.find("a.png").is_file()
    save_image(tmp_path / "images" / "train" / "a.png")
    train = ImageLocator(tmp_path / "train.json")
    assert train.find("a.png") == tmp_path / "images" / "train" / "a.png"


def test_a_split_that_a_file_mentions_is_that_of_its_images(tmp_path):
    for split in ("train", "val"):
        save_image(tmp_path / f"pets_{split}" / "a.png")
    for split in ("train", "val"):
        locator = ImageLocator(touch(tmp_path / f"cats_{split}.json"))
        assert locator.find("a.png") == tmp_path / f"pets_{split}" / "a.png"


def test_a_name_without_suffix_may_have_upper_case(tmp_path):
    save_image(tmp_path / "IMG_1.png")
    locator = ImageLocator(touch(tmp_path / "export.json"))
    assert locator.find_frame("IMG_1") == tmp_path / "IMG_1.png"
    assert locator.find_frame("IMG_2") is None


def test_the_folder_that_the_user_names_is_the_only_one(tmp_path):
    save_image(tmp_path / "a.png")
    save_image(tmp_path / "photos" / "deep" / "b.png")
    locator = ImageLocator(touch(tmp_path / "export.json"), tmp_path / "photos")
    assert not locator.find("a.png").is_file()
    assert locator.find("b.png") == tmp_path / "photos" / "deep" / "b.png"


def test_parts_of_paths_of_any_system():
    assert path_parts("C:\\a\\..\\b.png") == ["a", "b.png"]
    assert path_parts("s3://bucket/a/b%20c.png?x=1") == ["a", "b c.png"]
    assert path_parts("./a//b.png ") == ["a", "b.png"]
    assert path_parts("file:///C:/a/b.png") == ["a", "b.png"]
    assert path_parts("https://host/a.png?d=200") == ["a.png"]  # a size, no path
    assert path_parts("/data/local-files/?d=a/b.png") == ["a", "b.png"]
    assert path_parts("http://[::1/a/b%20c.png?x=1#y") == ["a", "b c.png"]  # no address


def test_boxes_around_shapes():
    points = points_of([[1, "2"], [3.5, 0]])
    assert hull_box(points) == (1, 0, 2.5, 2)
    assert all(points_of(p) is None for p in ([[1, 2, 3]], [[1, math.nan]], "ab"))
    quarter = turned_corners(np.array([[2.0, 1.0]]), 90, (1, 1))
    np.testing.assert_allclose(quarter, [[1, 2]])  # clockwise, as y points downwards
    np.testing.assert_allclose(ellipse_box(5, 5, 3, 1, 90), (4, 2, 2, 6))
    np.testing.assert_allclose(ellipse_box(5, 5, 3, 3, 45), (2, 2, 6, 6))
    values = [number_of(v) for v in (True, None, "x", "1e3", 2, math.inf, 1e30)]
    assert values == [None, None, None, 1000, 2, None, None]


@pytest.mark.parametrize("known", [0, 250])
def test_a_large_folder_of_another_tool_is_not_opened_file_by_file(tmp_path, known):
    for number in range(250):
        touch(tmp_path / f"{number:03}.xml")
    asked = []
    found = known_files(
        tmp_path, (".xml",), lambda path: asked.append(path) or int(path.stem) < known
    )
    assert len(found) == known
    assert known or len(asked) == len(set(asked)) == 84  # every third of 250
