"""Repositories of a further sample, as small copies: see `test_cloned.py`."""

import warnings

import pytest
from support.cloned_files import (
    CSV,
    VOC,
    loaded,
    put,
    put_records,
)

from effdet_keras.data import load_splits
from effdet_keras.data.formats.label_map import write_label_map
from effdet_keras.data.formats.tfrecord import from_tfrecord

CLASSES = "cat dog cow sheep horse".split()


def test_a_label_map_without_unused_names_comes_first(tmp_path):
    """TensorFlow's maps of other datasets lay beside the records."""
    put(tmp_path, "made/a.jpg")
    put(tmp_path, "made/train.csv", text=CSV + "a.jpg,40,20,cat,2,3,14,16\n")
    (tmp_path / "data").mkdir()
    put_records(tmp_path / "data", load_splits(tmp_path / "made"))
    records = tmp_path / "data/train-00000-of-00001.tfrecord"
    (tmp_path / "data/label_map.pbtxt").unlink()
    write_label_map(tmp_path / "data/five.pbtxt", dict(enumerate(CLASSES, 1)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is the only map
        assert from_tfrecord(records).class_names == tuple(CLASSES)
    write_label_map(tmp_path / "data/three.pbtxt", dict(enumerate(CLASSES[:3], 1)))
    with pytest.warns(UserWarning, match="three.pbtxt', but only 1 of its 3 names has"):
        assert from_tfrecord(records).class_names == ("cat", "dog", "cow")
    (tmp_path / "training").mkdir()
    write_label_map(tmp_path / "training/own.pbtxt", {1: "cat"})
    put(tmp_path, "training/graph.pbtxt", text="node {")
    assert loaded(tmp_path / "data")[1] == ""
    assert from_tfrecord(records).class_names == ("cat",)
    # A map beside the records of which half of the names are used is theirs.
    write_label_map(tmp_path / "data/two.pbtxt", {1: "cat", 2: "dog"})
    assert from_tfrecord(records).class_names == ("cat", "dog")


def test_empty_records_do_not_hide_a_dataset_below(tmp_path, capsys):
    """A script had opened the files, and nobody ran it to its end."""
    put(tmp_path, "train.record", "test.record")
    for split, name in (("train", "a"), ("test", "b")):
        put(tmp_path, f"images/{split}/{name}.jpg")
        put(tmp_path, f"images/{split}/{name}.xml", text=VOC.format(f"{name}.jpg"))
    assert loaded(tmp_path) == ({"test": ["b.jpg"], "train": ["a.jpg"]}, "")
    said = capsys.readouterr().out
    assert "is Pascal VOC: splits test, train" in said
    assert "(TFRecord: splits test, train), which cannot be read" in said
