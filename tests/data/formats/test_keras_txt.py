"""`from_keras_txt`: Roboflow's `_annotations.txt` with `_classes.txt`."""

import numpy as np
import pytest
from support.small_datasets import save_image

from effdet_keras import data
from effdet_keras.data import from_keras_txt


def write(folder, text, classes="dog\ncat\n"):
    for name in ("a.png", "my cat.png"):
        save_image(folder / name)
    (folder / "_annotations.txt").write_text(text)
    if classes is not None:
        (folder / "_classes.txt").write_text(classes)


@pytest.mark.smoke
def test_lines_and_splits(tmp_path, capsys):
    for split in ("train", "valid"):
        text = "my cat.png 5,2,25,12,1 0,0,4.5,8,0\na.png\n\n"
        write(tmp_path / split, text)
    splits = data.load_splits(tmp_path)
    assert "Keras txt: splits train, valid" in capsys.readouterr().out
    for name, dataset in splits.items():
        assert dataset.class_names == ("dog", "cat")
        assert dataset.records[0].image == str(tmp_path / name / "my cat.png")
        boxes = dataset.records[0].boxes_xywh
        np.testing.assert_array_equal(boxes, [[5, 2, 20, 10], [0, 0, 4.5, 8]])
        np.testing.assert_array_equal(dataset.records[0].labels, [1, 0])
        assert [record.file_name for record in dataset.records] == [
            "my cat.png",
            "a.png",
        ]


@pytest.mark.parametrize(
    "bad, kind",
    [
        ("1,2,3,4", "bad box"),
        ("1,2,x,4,0", "bad box"),
        ("1,2,3,4,2", "unknown class"),
        ("1,2,3,4,0.5", "bad box"),
    ],
)
def test_bad_boxes_are_named(tmp_path, bad, kind):
    write(tmp_path, f"a.png 5,2,25,12,1 {bad}\n")
    with pytest.raises(ValueError, match=rf"1 {kind}: a\.png: line 1: .*'{bad}'"):
        from_keras_txt(tmp_path)


def test_classes_without_names_are_called_by_their_numbers(tmp_path):
    write(tmp_path, "a.png 5,2,25,12,1\n", classes=None)
    with pytest.warns(UserWarning, match=r"called by their numbers, from '0' to '1'"):
        assert from_keras_txt(tmp_path).class_names == ("0", "1")
    named = from_keras_txt(tmp_path, class_names=("dog", "cat"))
    assert named.class_names == ("dog", "cat") and named.records[0].labels == [1]


def test_another_list_with_just_as_many_names_is_used(tmp_path):
    """Ports of YOLOv3 for Keras have lists of other datasets in `model_data`."""
    for name in ("a.png", "b.png"):
        save_image(tmp_path / name)
    (tmp_path / "2007_train.txt").write_text("a.png 5,2,25,12,0\n")
    (tmp_path / "2007_val.txt").write_text("b.png 5,2,25,12,1\n")
    lists = {"my": "dog\ncat\n", "voc": "a\nb\nc\n", "coco": "\xe9\n"}
    (tmp_path / "model_data").mkdir()
    for name, text in lists.items():
        file = tmp_path / f"model_data/{name}_classes.txt"
        file.write_bytes(text.encode("latin-1"))
    with pytest.warns(UserWarning, match=r"those of '.*my_classes\.txt': \['dog"):
        splits = data.load_splits(tmp_path)
    assert splits["train"].class_names == splits["val"].class_names == ("dog", "cat")
    (tmp_path / "model_data/other_classes.txt").write_text("pen\nball\n")
    with pytest.warns(UserWarning, match="called by their numbers"):
        splits = data.load_splits(tmp_path)
    assert splits["train"].class_names == splits["val"].class_names == ("0", "1")


@pytest.mark.parametrize("names", ["classes.txt", "model_data/classes.txt"])
def test_lists_of_keras_yolo3(tmp_path, names):
    for name in ("a.png", "b.png"):
        save_image(tmp_path / "images" / name)
    row = "images/a.png 5,2,25,12,1 0,0,4,8,0\n"
    (tmp_path / "2007_train.txt").write_text("images/b.png\n" + row)
    (tmp_path / "2007_test.txt").write_text("images/b.png 5,2,25,12,1")
    (tmp_path / names).parent.mkdir(exist_ok=True)
    (tmp_path / names).write_text("dog\ncat\n")
    splits = data.load_splits(tmp_path)
    assert {name: len(dataset) for name, dataset in splits.items()} == {
        "test": 1,
        "train": 2,
    }
    assert splits["train"].class_names == ("dog", "cat")
    np.testing.assert_array_equal(splits["train"].records[1].labels, [1, 0])
