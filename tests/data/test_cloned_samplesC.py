"""Repositories of a further sample: which dataset is read, and what is told of it."""

import pytest
from support.cloned_files import CSV, ROW, VOC, coco, loaded, put, voc, yolo

from effdet_keras.data import load, load_splits


def test_only_a_dataset_that_can_be_read_is_offered(tmp_path, capsys):
    """The error named txt files in pixels, which cannot be read, and no xml files."""
    rows = "".join(f"{name}.png,40,20,cat,2,3,14,16\n" for name in "abc")
    put(tmp_path, "data/a.png")
    put(tmp_path, "label.csv", text=CSV + rows)
    put(tmp_path, "labels/a.txt", text="0 2 3 14 16\n")
    put(tmp_path, "lab_xml/a.xml", text=VOC.format("a.png"))
    put(tmp_path, "labels/classes.txt", text="cat")
    with pytest.raises(FileNotFoundError) as caught:
        load(tmp_path)
    assert "lab_xml' also holds a dataset (Pascal VOC: split" in str(caught.value)
    assert "YOLO" not in str(caught.value)
    said = capsys.readouterr().out
    assert "YOLO: split train), which cannot be read: none of its boxes could" in said
    assert len(load(tmp_path, format="voc")) == 1


def test_it_is_said_what_trainval_has_that_train_and_val_lack(tmp_path, capsys):
    lists = {"train": "ab", "val": "b", "trainval": "abc"}
    voc(tmp_path, *"abc", lists=lists)
    names, _ = loaded(tmp_path)
    assert names == {"train": ["a.jpg", "b.jpg"], "val": ["b.jpg"]}
    said = capsys.readouterr().out
    assert "although 1 of its 3 images is neither in 'train' nor in 'val'" in said
    assert len(load(tmp_path, "trainval")) == 3
    put(tmp_path, "ImageSets/Main/train.txt", text="a\nc\n")
    load_splits(tmp_path)
    said = capsys.readouterr().out
    assert "because all its images are in 'train' and 'val'" in said


def test_empty_txt_files_are_not_counted_as_files_with_boxes(tmp_path):
    """Above 1000 files without an image, empty ones were counted as well."""
    yolo(tmp_path)
    put(tmp_path, *(f"labels/x{i}.txt" for i in range(600)), text=ROW)
    put(tmp_path, *(f"labels/y{i}.txt" for i in range(600)))
    with pytest.warns(UserWarning, match="600 txt files with boxes belong to no image"):
        load(tmp_path)
