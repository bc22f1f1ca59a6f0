"""`from_yolo`, `write_yolo`: layouts that people have, lines right and wrong."""

import numpy as np
import pytest
import yaml
from support.small_datasets import save_image

from effdet_keras.data import from_arrays, from_yolo, write_yolo
from effdet_keras.data.formats.yolo import find_layout


def add(folder, image, label=None, text=None):
    """Adds an image of 40 x 20 pixels (width x height), and its txt file."""
    save_image(folder / image)
    if text is not None:
        (folder / label).parent.mkdir(parents=True, exist_ok=True)
        (folder / label).write_text(text)


@pytest.fixture
def folder(tmp_path):
    """Ultralytics' layout: two splits, one image without a txt file."""
    text = "1 0.5 0.5 0.25 0.5\n\n0 0.25 0.5 0.5 1\n"
    add(tmp_path, "images/train/b.jpg", "labels/train/b.txt", text)
    add(tmp_path, "images/train/a.png")
    add(tmp_path, "images/val/c.jpg", "labels/val/c.txt", "0 0.5 0.5 1 1")
    (tmp_path / "data.yaml").write_text(
        "path: .\ntrain: images/train\nval: images/val\ntest:\n"
        "names: {0: cat, 1: dog}\nnc: 2\ndownload: |\n  " + "x" * 5000
    )
    return tmp_path


def test_centers_and_sides_become_pixels(folder):
    dataset = from_yolo(folder, "train")
    assert dataset.class_names == ("cat", "dog") and dataset.category_ids == (1, 2)
    assert [example["source_id"] for example in dataset] == ["a.png", "b.jpg"]
    example = dataset[1]
    np.testing.assert_array_equal(example["boxes"], [[5, 15, 15, 25], [0, 0, 20, 20]])
    np.testing.assert_array_equal(example["labels"], [1, 0])
    assert len(dataset[0]["labels"]) == 0


def test_an_outline_becomes_its_box(folder):
    path = folder / "labels/train/b.txt"
    path.write_text("1 0.25 0.5 0.5 0.25 0.75 1.0 0.5 0.75")
    with pytest.warns(UserWarning, match="four corners of a box"):
        boxes = from_yolo(folder, "train")[1]["boxes"]
    np.testing.assert_array_equal(boxes, [[5, 10, 20, 30]])


def test_the_split_must_be_named_where_there_are_several(folder):
    assert list(find_layout(folder)[1]) == ["train", "val"]
    with pytest.raises(ValueError, match=r"\['train', 'val'\].*split=None"):
        from_yolo(folder)
    assert len(from_yolo(folder / "data.yaml", "val")) == 1


@pytest.mark.parametrize(
    "entry",
    [
        "images/train",
        "../images/train",  # Roboflow writes it so
        ["images/train"],
        ["images/val", "images/train"],
        "list.txt",
    ],
)
@pytest.mark.parametrize("base", [None, "/content/gone"])
def test_a_split_is_a_folder_or_several_or_a_list(folder, entry, base):
    (folder / "list.txt").write_text("./images/train/a.png\nimages/train/b.jpg\n")
    content = {"path": base, "train": entry, "names": ["cat", "dog"]}
    (folder / "data.yaml").write_text(yaml.safe_dump(content))
    dataset = from_yolo(folder)
    assert {"a.png", "b.jpg"} <= {example["file_name"] for example in dataset}
    assert sum(len(r.labels) for r in dataset.records) == 2 + (len(dataset) == 3)


def test_a_list_with_images_that_are_gone(folder):
    (folder / "list.txt").write_text("images/train/gone.png\nimages/train/b.jpg\n")
    (folder / "data.yaml").write_text("train: list.txt\nnames: [cat, dog]")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        from_yolo(folder / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"1 missing image.*gone\.png"):
        from_yolo(folder)
    with pytest.warns(UserWarning, match=r"gone\.png"):
        assert len(from_yolo(folder, on_error="skip")) == 1


@pytest.mark.parametrize(
    "image, label",
    [
        ("images/a.png", "labels/a.txt"),
        ("images/train/deep/a.png", "labels/train/deep/a.txt"),
        ("train/images/a.png", "train/labels/a.txt"),
        ("a.png", "a.txt"),
    ],
)
def test_folders_without_a_yaml(tmp_path, image, label):
    add(tmp_path, image, label, "1 0.5 0.5 0.25 0.5")
    dataset = from_yolo(tmp_path)
    assert dataset.class_names == ("0", "1")
    np.testing.assert_array_equal(dataset[0]["boxes"], [[5, 15, 15, 25]])
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    assert from_yolo(tmp_path).class_names == ("cat", "dog")


@pytest.mark.parametrize("text", ["cat\n\ndog\n", "\ncat", "cat\n cat\n"])
def test_a_blank_or_repeated_line_of_names_is_told_and_shifts_no_label(folder, text):
    (folder / "data.yaml").unlink()
    (folder / "classes.txt").write_text(text)
    with pytest.raises(ValueError, match="differ from each other.*may be blank"):
        from_yolo(folder, split="train")
    (folder / "classes.txt").write_text("cat\ndog\n \n\n")
    assert from_yolo(folder, split="train").class_names == ("cat", "dog")


def test_images_without_any_txt_file_are_told(folder):
    (folder / "labels/val/c.txt").unlink()
    with pytest.warns(UserWarning, match=r"none of its 1 images.*c\.txt"):
        dataset = from_yolo(folder, "val")
    assert len(dataset[0]["labels"]) == 0


@pytest.mark.parametrize(
    "text, message",
    [
        ("[", "yaml file"),
        ("- train", "yaml file with"),
        ("train: images/train\nnames: {1: cat}", "by number from 0"),
        ("train: images/train", "`names` of a data.yaml"),
        ("train: images/gone\nnames: [cat]", "folder or a list.*gone"),
        ("train: labels/train\nnames: [cat]", "no image"),
    ],
)
def test_wrong_yaml_files_are_explained(folder, text, message):
    (folder / "data.yaml").write_bytes(text.encode("latin-1"))
    for path in (folder / "data.yaml", folder):
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            from_yolo(path, "train" if "train" in text else None)


@pytest.mark.parametrize("names", [("007", "16:9"), ("no", "yes", "null", "7", "1e3")])
@pytest.mark.parametrize("is_list", [True, False])
def test_class_names_stay_as_they_are_written(folder, names, is_list):
    pairs = (f"{number}: {name}" for number, name in enumerate(names))
    text = f"[{', '.join(names)}]" if is_list else f"{{{', '.join(pairs)}}}"
    text = f"train: images/train\nval: images/val\nnames: {text}"
    (folder / "data.yaml").write_text(text)
    assert from_yolo(folder, "train").class_names == names


def test_what_is_written_is_what_others_read(tmp_path):
    image = np.zeros((20, 40, 3), np.uint8)
    boxes = [[[5, 15, 15, 25], [-3, 30, 50, 60]], []]
    dataset = from_arrays([image] * 2, boxes, [[1, 0], []], ["Bär", "dog"])
    write_yolo({"train": dataset, "val": dataset}, tmp_path / "set")
    content = yaml.safe_load((tmp_path / "set/data.yaml").read_text(encoding="utf-8"))
    assert content == {
        "train": "images/train",
        "val": "images/val",
        "names": {0: "Bär", 1: "dog"},
    }
    text = (tmp_path / "set/labels/val/000000000001.txt").read_text()
    # The second is clipped: others refuse a file with numbers beyond 1.
    assert text == "1 0.5 0.5 0.25 0.5\n0 0.875 0.5 0.25 1\n"
    assert (tmp_path / "set/labels/val/000000000002.txt").read_text() == ""
    assert (tmp_path / "set/images/val/000000000002.png").is_file()
