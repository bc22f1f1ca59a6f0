"""`from_opencv`: the text files of opencv_annotation, and lists of negatives."""

import numpy as np
import pytest
from support.small_datasets import save_image

from effdet_keras import data
from effdet_keras.data.formats.opencv import from_opencv

ROWS = "pos/my cat.png 2 5 2 20 10 0 0 4 8\npos\\b.png 1 1 1 9 9\n\n"


def write(folder, text=ROWS, name="info.dat"):
    for image in ("pos/my cat.png", "pos/b.png", "neg/c.png"):
        save_image(folder / image)
    (folder / name).write_text(text)


@pytest.mark.smoke
def test_boxes_and_negatives(tmp_path, capsys):
    write(tmp_path)
    (tmp_path / "bg.txt").write_text("neg/c.png\n\nREADME\n")
    with pytest.warns(
        UserWarning, match="2 lines have no class: it is called 'object'"
    ):
        dataset = data.load(tmp_path)
    assert "OpenCV text: split train" in capsys.readouterr().out
    assert dataset.class_names == ("object",)
    first, second, negative = dataset.records
    assert first.image == str(tmp_path / "pos" / "my cat.png")
    np.testing.assert_array_equal(first.boxes_xywh, [[5, 2, 20, 10], [0, 0, 4, 8]])
    np.testing.assert_array_equal(second.boxes_xywh, [[1, 1, 9, 9]])
    assert negative.file_name == "neg/c.png" and not len(negative.labels)


def test_splits_and_the_name_of_the_class(tmp_path):
    write(tmp_path, name="train.txt")
    (tmp_path / "test.txt").write_text("neg/c.png 0\npos/b.png 1 1 1 9 9\n")
    splits = data.load_splits(tmp_path, class_names=["cat"])
    assert {name: len(d) for name, d in splits.items()} == {"test": 2, "train": 2}
    assert {d.class_names for d in splits.values()} == {("cat",)}
    assert [len(r.labels) for r in splits["test"].records] == [0, 1]


@pytest.mark.parametrize("bad", ["2 5 2 20 10", "1 5 2 20 1o", "x", "1 5 2 20 inf"])
def test_bad_lines_are_named(tmp_path, bad):
    write(tmp_path, ROWS.replace("1 1 1 9 9", bad))
    with pytest.raises(
        ValueError, match=r"1 bad box: pos\\b\.png: line 2: an image, th"
    ):
        from_opencv(tmp_path)


def test_a_file_with_another_name_is_named(tmp_path):
    write(tmp_path, name="my_boxes.txt")
    with pytest.raises(
        ValueError, match="my_boxes.txt' is a file of OpenCV's .*rename"
    ):
        data.load(tmp_path)
    assert len(from_opencv(tmp_path / "my_boxes.txt", class_names=["cat"])) == 2


def test_lists_of_images_are_not_taken_for_annotations(tmp_path):
    for name in ("a", "b"):
        save_image(tmp_path / f"images/{name}.png")
        (tmp_path / f"images/{name}.txt").write_text("0 0.5 0.5 0.4 0.4\n")
    (tmp_path / "train.txt").write_text("images/a.png\nimages/b.png\n")
    (tmp_path / "classes.txt").write_text("cat")
    assert data.load(tmp_path).class_names == ("cat",)
