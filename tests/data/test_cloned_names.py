"""Repositories of one sample, as small copies: names of classes, records, exports.

See `test_cloned.py`.
"""

import warnings

import pytest
from support.cloned_files import (
    CSV,
    ROW,
    VOC,
    coco,
    loaded,
    paths,
    put,
    put_records,
    yolo,
)

from effdet_keras.data import load, load_splits
from effdet_keras.data.formats.label_map import write_label_map
from effdet_keras.data.formats.tfrecord import from_tfrecord
from effdet_keras.data.problems import NoImageError

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


def test_a_longer_list_far_from_the_images_is_named(tmp_path):
    yolo(tmp_path, "data/train/images", "data/train/labels", classes=None)
    put(tmp_path, "data/train/labels/a.txt", text=ROW + ROW.replace("0", "3", 1))
    put(tmp_path, "data.yaml", text="train: data/train/images\nnames: [cat, dog]\n")
    put(tmp_path, "custom/classes.txt", text="cat\nhen\ncow\n")
    with pytest.raises(ValueError, match=r"Add the other names there.*first\. R"):
        load(tmp_path)  # three names are too few
    put(tmp_path, "custom/classes.txt", text="cat\nhen\ncow\ndog\n")
    with pytest.raises(ValueError, match=r"custom.classes\.txt' has more names: if"):
        load(tmp_path)


def test_several_numbers_and_one_name_say_how_to_read_all_as_one_class(tmp_path):
    """The number of each box was that of its image."""
    yolo(tmp_path, names=("a", "b", "c"), classes="signature\n")
    for i, name in enumerate("abc"):
        put(tmp_path, f"labels/{name}.txt", text=ROW.replace("0", str(i), 1))
    with pytest.raises(
        ValueError, match="all boxes are 'signature', write 0 in place of every"
    ):
        load(tmp_path)


def test_a_confidence_before_the_boxes_is_no_part_of_them(tmp_path):
    rows = ["0 0.9 0.5 0.5 0.6 0.2\n", "0 0.8 0.3 0.6 0.4 0.6\n"]
    yolo(tmp_path)
    put(tmp_path, "labels/a.txt", text="".join(rows))
    with pytest.warns(UserWarning, match="2 rows.*a confidence between the class and"):
        record = load(tmp_path).records[0]
    assert record.boxes_xywh[0].tolist() == pytest.approx([8, 8, 24, 4])
    for text in (rows[0] * 3 + "0 0.5 0.5 0.4 0.4 0.9\n" * 10, rows[0]):
        put(tmp_path, "labels/a.txt", text=text)  # not enough to be certain
        with pytest.warns(UserWarning, match="after the box, such as a confidence"):
            load(tmp_path)


def test_names_of_a_yaml_file_need_no_space_behind_the_colon(tmp_path):
    yolo(tmp_path, "train/images", "train/labels", classes=None)
    text = "train: ./train/images\nval: ./val/images\nnames:\n  0:cat\n  1:guide dog\n"
    put(tmp_path, "data.yaml", text=text)
    assert load(tmp_path, "train").class_names == ("cat", "guide dog")


def test_an_empty_list_of_names_is_named(tmp_path):
    yolo(tmp_path, classes=None)
    put(tmp_path, "data/obj.names")
    with pytest.warns(UserWarning, match=r"in each line\. '.*obj\.names' is empty"):
        load(tmp_path)


def test_boxes_that_fit_with_x_and_y_exchanged_are_told(tmp_path):
    put(tmp_path, "Images/a.jpg")  # 40 wide, 20 high
    rows = "app.View 0 0 20 40\napp.View 2 30 14 38\napp.View 3 28 9 39\n"
    put(tmp_path, "labels/a.txt", text=rows)
    assert "All boxes fit into their images if x and y" in loaded(tmp_path)[1]


def test_records_are_compared_with_the_files_they_were_made_of(tmp_path, capsys):
    """The annotations had changed after a script had made the records."""
    for split, name in (("train", "a"), ("test", "b")):
        put(tmp_path, f"images/{split}/{name}.jpg")
        rows = [f"{name}.jpg,40,20,cat,{row}\n" for row in ("2,3,14,16", "5,5,20,18")]
        put(tmp_path, f"images/{split}_labels.csv", text=CSV + "".join(rows))
    put_records(tmp_path, load_splits(tmp_path))
    put(tmp_path, "images/train_labels.csv", text=CSV + "a.jpg,40,20,cat,2,3,14,16\n")
    for split, name in (("train", "a"), ("test", "b")):
        put(tmp_path, f"images/{split}/{name}.xml", text=VOC.format(f"{name}.jpg"))
    capsys.readouterr()
    assert [len(d.records[0].labels) for d in load_splits(tmp_path).values()] == [2, 2]
    said = capsys.readouterr().out
    assert "is TFRecord" in said and "also holds" not in said
    assert "as CSV. They were not read, and they differ (read: 4 boxes in 2" in said
    assert "as Pascal VOC. They were not read, and they differ" in said


def test_an_xml_file_without_objects_does_not_repeat_an_image(tmp_path):
    put(tmp_path, "a.1.jpg")
    put(tmp_path, "a.1.xml", text=VOC.format("a.1.jpg"))
    text = "<annotation><filename>a.1.jpg</filename></annotation>"
    put(tmp_path, "a.xml", text=text)
    with pytest.warns(UserWarning, match=r"1 xml file has no object.*'a\.xml' for"):
        assert [len(record.labels) for record in load(tmp_path).records] == [1]


def test_images_of_another_export_of_roboflow_are_read_in_their_place(tmp_path):
    put(tmp_path, "annotations/val.json", text=coco("v_jpg.rf.11.jpg"))
    put(tmp_path, "coco/val/v_jpg.rf.11.jpg", color="red")
    names = ("a_jpg.rf.11.jpg", "b_jpg.rf.11.jpg")
    put(tmp_path, "annotations/train.json", text=coco(*names))
    put(tmp_path, "coco/train/a_jpg.rf.22.jpg", "coco/train/b_jpg.rf.33.jpg")
    said = "2 of 2 images are missing, and images of the same names and sizes"
    with pytest.warns(UserWarning, match=said):
        dataset = load(tmp_path, "train")
    folder = "coco/train"
    read = [f"{folder}/a_jpg.rf.22.jpg", f"{folder}/b_jpg.rf.33.jpg"]
    assert paths(dataset, tmp_path) == read
    put(tmp_path, "coco/train/b_jpg.rf.44.jpg")  # a second image of one name
    with pytest.raises(
        FileNotFoundError, match="1 missing image: .*name except for Roboflow"
    ):
        load(tmp_path, "train")
    put(tmp_path, "annotations/train.json", text=coco("a_jpg.rf.11.jpg", size=(9, 9)))
    with pytest.raises(NoImageError, match="another export, and may be another image"):
        load(tmp_path, "train")
