"""Repositories as they were cloned, in which a reader took the wrong files or numbers.

Each is a small copy of what a public repository has.
"""

import json
import pathlib
import shutil
import zipfile

import numpy as np
import pytest
from PIL import Image
from support.cloned_files import (
    CSV,
    ROW,
    VOC,
    coco,
    loaded,
    paths,
    put,
    put_records,
    voc,
    yolo,
)

from effdet_keras.data import from_voc, load, load_splits, load_train_valid
from effdet_keras.data.any_format import load_each

# --- Lists that have some of the images.


def test_images_without_a_row_in_roboflows_csv_are_images_without_objects(tmp_path):
    put(tmp_path, *(f"train/{name}_jpg.rf.0a.jpg" for name in "abc"), "train/logo.png")
    row = "b_jpg.rf.0a.jpg,40,20,cat,1,2,12,13\n"
    put(tmp_path, "train/_annotations.csv", text=f"{CSV}{row}\n\n")  # for the others
    names, said = loaded(tmp_path)
    assert names == {"train": [f"{name}_jpg.rf.0a.jpg" for name in "bac"]}
    assert "2 of 3 images have no row" in said and "'a_jpg.rf.0a.jpg'" in said
    assert "1 of 4 images was not read" in said and "logo.png" in said
    dataset = load(tmp_path)
    assert [len(record.labels) for record in dataset.records] == [1, 0, 0]
    assert [problem.kind for problem in dataset.problems] == ["images without a row"]
    for path in ("train/", "C:\\\\pets\\\\train\\\\", "./"):  # they are the same images
        put(tmp_path, "train/_annotations.csv", text=f"{CSV}{path}{row}")
        assert len(load(tmp_path)) == 3


@pytest.mark.parametrize("name", ["labels.csv", "labels.json"])
def test_images_that_no_annotation_names_are_counted(tmp_path, name):
    put(tmp_path, "images/a.jpg", "images/b.jpg", "images/c.jpg")
    put(tmp_path, "images/a_mask.png")
    rows = f"{CSV}a.jpg,40,20,cat,1,2,12,13\n"
    put(tmp_path, name, text=rows if name.endswith(".csv") else coco("a.jpg"))
    names, said = loaded(tmp_path)
    assert names == {"train": ["a.jpg"]}
    assert "2 of 3 images were not read, because no annotation of 'train'" in said
    (dataset,) = load_splits(tmp_path).values()
    assert [problem.kind for problem in dataset.problems] == ["unlisted images"]
    assert "are not read" not in loaded(tmp_path, on_error="skip")[1]


def test_images_of_other_splits_are_not_counted(tmp_path):
    put(tmp_path, "images/a.jpg", "images/b.jpg")
    put(tmp_path, "train.json", text=coco("a.jpg"))
    put(tmp_path, "test.json", text=coco("b.jpg"))
    assert loaded(tmp_path) == ({"test": ["b.jpg"], "train": ["a.jpg"]}, "")


def test_images_that_a_list_has_by_paths_of_another_machine_are_listed(
    tmp_path, monkeypatch
):
    yolo(tmp_path, "pets/images", "pets/labels", ["a", "b", "c"])
    text = "dataset/images/tom/a.jpg\ndataset/images/b.jpg\n"
    put(tmp_path, "pets/train.txt", text=text)
    put(tmp_path, "pets/val.txt", text="dataset/images/c.jpg\n")
    monkeypatch.chdir(tmp_path)
    for folder in ("pets", tmp_path / "pets"):
        names, said = loaded(folder)
        assert names == {"train": ["a.jpg", "b.jpg"], "val": ["c.jpg"]}
        assert "in none of the lists" not in said


def test_lists_in_a_folder_main_are_those_of_voc(tmp_path):
    lists = {"train": "ab", "val": "c", "trainval": "abc"}
    voc(tmp_path, *"abc", lists=lists, sets="Main")
    names, said = loaded(tmp_path)
    assert names == {"train": ["a.jpg", "b.jpg"], "val": ["c.jpg"]} and said == ""


@pytest.mark.parametrize(
    "lists",
    [
        {"train": "a", "val": "b"},
        {"train": "a", "val": "b", "trainval": "abcd"},  # of which two are in neither
        {"train": "a", "val": "b", "cat_train": "abcd"},  # of one class
    ],
)
def test_xml_files_that_are_in_no_list_are_counted_once(tmp_path, lists):
    voc(tmp_path, *"abcd", lists=lists)
    names, said = loaded(tmp_path)
    assert names == {"train": ["a.jpg"], "val": ["b.jpg"]}
    assert said.count("2 of 4 xml files are in none of the lists train, val of") == 1
    (problem,) = load(tmp_path, "train").problems
    assert problem.kind == "unlisted images" and "'c'" in problem.detail
    voc(tmp_path, lists={"test": "c"})
    voc(tmp_path, lists={"train": "d"}, sets="ImageSets/Segmentation")  # as VOC has
    assert loaded(tmp_path)[1] == ""


def test_a_list_that_cannot_be_read_does_not_stop_another_split(tmp_path):
    voc(tmp_path, *"ab", lists={"train": "a"})
    (tmp_path / "ImageSets/Main/notes.txt").write_bytes("für später".encode("cp1252"))
    assert paths(from_voc(tmp_path, "train"), tmp_path) == ["JPEGImages/a.jpg"]


def test_images_with_txt_files_that_are_in_no_list_are_counted_once(tmp_path):
    put(tmp_path, *(f"img/{name}.jpg" for name in "abcde"))
    put(tmp_path, *(f"img/{name}.txt" for name in "abcd"), text=ROW)
    put(tmp_path, "obj.names", text="cat")
    put(tmp_path, "train.txt", text="img/a.jpg\n")
    put(tmp_path, "valid.txt", text="img/b.jpg\n")
    text = "train = train.txt\nvalid = valid.txt\nnames = obj.names"
    put(tmp_path, "obj.data", text=text)
    names, said = loaded(tmp_path)
    assert names == {"train": ["a.jpg"], "valid": ["b.jpg"]}
    text = "2 images with txt files are in none of the lists train.txt, valid.txt"
    assert said.count(text) == 1
    (tmp_path / "img/d.txt").unlink()
    assert "1 image with a txt file is in none of the lists" in loaded(tmp_path)[1]


def test_images_in_no_list_are_known_by_their_folders(tmp_path):
    """Frames of two videos have the same names."""
    for clip, frames in {"one": "012", "two": "0123"}.items():
        put(tmp_path, *(f"{clip}/{frame}.jpg" for frame in frames))
        put(tmp_path, *(f"{clip}/{frame}.txt" for frame in frames), text=ROW)
    put(tmp_path, "train.txt", text="one/0.jpg\ntwo/3.jpg\n")
    put(tmp_path, "val.txt", text="one/1.jpg\n")
    text = "train: train.txt\nval: val.txt\nnames: [cat]"
    put(tmp_path, "data.yaml", text=text)
    assert "4 images with txt files are in none" in loaded(tmp_path)[1]


def test_images_in_lists_without_folders_and_suffixes_are_listed(tmp_path):
    yolo(tmp_path, names="abc")
    put(tmp_path, "train.txt", text="a\nb\n")
    put(tmp_path, "val.txt", text="c\n")
    text = "train: train.txt\nval: val.txt\nnames: [cat]"
    put(tmp_path, "data.yaml", text=text)
    names, said = loaded(tmp_path)
    assert names == {"train": ["a.jpg", "b.jpg"], "val": ["c.jpg"]}
    assert "none of the lists" not in said


# --- Two formats, or two files of one, of which the better is meant.


def test_two_files_that_divide_the_images_by_accident_are_no_splits(tmp_path, capsys):
    for name in "abc":
        put(tmp_path, f"{name}.jpg")
        put(tmp_path, f"{name}.xml", text=VOC.format(f"{name}.jpg"))
    box = {"label": "cat", "coordinates": {"x": 8, "y": 9, "width": 12, "height": 13}}
    for file, names in {"all.json": "a", "images.json": "bc"}.items():
        content = [{"image": f"{name}.jpg", "annotations": [box]} for name in names]
        put(tmp_path, file, text=json.dumps(content))
    assert loaded(tmp_path)[0] == {"train": ["a.jpg", "b.jpg", "c.jpg"]}
    assert "as Create ML json. They were not read" in capsys.readouterr().out


def test_splits_that_a_training_does_not_use_are_named(tmp_path, capsys):
    for split in ("train", "valid", "test", "part"):
        put(tmp_path, f"{split}/{split}.jpg")
        put(tmp_path, f"{split}.csv", text=f"{CSV}{split}.jpg,40,20,cat,2,3,14,16\n")
    train, valid = load_train_valid(tmp_path, format="csv")
    assert len(train) == len(valid) == 1
    line = "  The split 'part' is used neither to train nor to validate: 1 image."
    assert capsys.readouterr().out.splitlines()[1:] == [line]


def test_of_two_formats_that_without_broken_boxes_is_read(tmp_path, capsys):
    """A converter took the first points of an outline for the corners of a box."""
    for name in "ab":
        put(tmp_path, f"{name}.jpg")
        put(tmp_path, f"{name}.xml", text=VOC.format(f"{name}.jpg"))
    content = json.loads(coco("a.jpg", "b.jpg"))
    put(tmp_path, "boxes.json", text=json.dumps(content))
    load(tmp_path)
    assert "is COCO json" in capsys.readouterr().out
    content["annotations"][1]["bbox"] = [14, 3, 0, 13]
    put(tmp_path, "boxes.json", text=json.dumps(content))
    load(tmp_path)
    assert "is Pascal VOC" in capsys.readouterr().out


def test_images_with_boxes_in_another_format_are_no_negatives(tmp_path, capsys):
    """Two exports in one folder: of each image two copies, with names of their own."""
    for split in ("train", "valid"):
        put(tmp_path, f"{split}/images/{split}_coco.jpg", color="red")
        put(tmp_path, f"{split}/images/{split}_yolo.jpg", color="red")
        put(tmp_path, f"{split}/labels/{split}_yolo.txt", text=ROW)
        text = coco(f"{split}_coco.jpg")
        put(tmp_path, f"{split}/_annotations.coco.json", text=text)
    splits = load_splits(tmp_path)
    assert [len(dataset) for dataset in splits.values()] == [1, 1]
    assert splits["train"].class_names == ("cat",)
    assert "as YOLO. They were not read, and they differ" in capsys.readouterr().out


def test_trainval_and_test_are_splits_to_train_and_to_evaluate_on(tmp_path):
    """VOC2007's, beside a json of all images."""
    voc(tmp_path, *"abc", lists={"trainval": "ab", "test": "c"})
    names = [f"{name}.jpg" for name in "abc"]
    put(tmp_path, "annotations.json", text=coco(*names))
    found = {"test": ["c.jpg"], "trainval": ["a.jpg", "b.jpg"]}
    assert loaded(tmp_path)[0] == found


def test_images_without_objects_are_kept_where_another_format_lacks_them(tmp_path):
    yolo(tmp_path, names="ab")
    put(tmp_path, "images/c.jpg")  # without a txt file, as some programs recommend
    put(tmp_path, "Annotations/a.xml", text=VOC.format("a.jpg"))
    put(tmp_path, "Annotations/b.xml", text=VOC.format("b.jpg"))
    assert loaded(tmp_path)[0] == {"train": ["a.jpg", "b.jpg", "c.jpg"]}


def test_a_test_split_in_another_format_gives_way_to_images_to_train_on(
    tmp_path, capsys
):
    voc(tmp_path, "a")
    put(tmp_path, "test/images/t.png")
    put(tmp_path, "test/labels/t.txt", text=ROW)
    put(tmp_path, "test/classes.txt", text="cat")
    assert loaded(tmp_path)[0] == {"train": ["a.jpg"]}
    said = capsys.readouterr().out
    assert said.count("YOLO") == 1
    assert "also holds a dataset of other images (YOLO: split test; 1 box in 1" in said
    assert loaded(tmp_path, format="yolo")[0] == {"test": ["t.png"]}


@pytest.mark.parametrize("split, count", [("valid", 1), ("test", 2)])
def test_images_to_evaluate_on_are_not_left_out_where_they_may_be_meant(
    tmp_path, split, count
):
    """A split for validation belongs to the training; and a sample is no dataset."""
    put(tmp_path, "train/a.jpg")
    put(tmp_path, "train/a.xml", text=VOC.format("a.jpg"))
    names = [f"{split}{i}.jpg" for i in range(count)]
    put(tmp_path, *(f"{split}/{name}" for name in names))
    put(tmp_path, f"{split}/_annotations.coco.json", text=coco(*names))
    with pytest.raises(ValueError, match="different images in 2 formats: choose one"):
        load_splits(tmp_path)


def test_formats_of_different_images_are_named_with_what_they_hold(tmp_path):
    voc(tmp_path, "a")
    put(tmp_path, "b.jpg", "c.jpg")
    rows = "b.jpg,40,20,cat,2,3,14,16\nc.jpg,40,20,cat,2,3,14,16\n"
    put(tmp_path, "boxes.csv", text=CSV + rows)
    with pytest.raises(ValueError, match="different images in 2 formats") as caught:
        load(tmp_path)
    assert "is Pascal VOC: split train; 1 box in 1 image" in str(caught.value)
    assert "is CSV: split train; 2 boxes in 2 images" in str(caught.value)


def test_splits_of_any_name_that_share_images_are_told(tmp_path):
    put(tmp_path, "a.jpg", "b.jpg")
    for file, names in {"output.csv": "ab", "csv_output.csv": "a"}.items():
        rows = "".join(f"{name}.jpg,40,20,cat,2,3,14,16\n" for name in names)
        put(tmp_path, file, text=CSV + rows)
    names, said = loaded(tmp_path)
    assert len(names) == 2
    assert "1 of the 2 images of 'output' is also in 'csv_output'" in said


@pytest.mark.parametrize(
    "others, is_told",
    [(["dog"] * 10, True), (["dog"] * 10 + ["cat"], False), (["dog"] * 3, False)],
)
def test_a_split_that_shares_no_class_with_the_training_images_is_told(
    tmp_path, others, is_told
):
    put(tmp_path, "a.jpg", "b.jpg")
    rows = "".join(f"a.jpg,40,20,cat,{left},2,12,13\n" for left in range(10))
    put(tmp_path, "train.csv", text=CSV + rows)
    rows = "".join(f"b.jpg,40,20,{n},{i},2,12,13\n" for i, n in enumerate(others))
    put(tmp_path, "train_dogs.csv", text=CSV + rows)
    names, said = loaded(tmp_path)
    assert names == {"train": ["a.jpg"], "train_dogs": ["b.jpg"]}
    text = "no class of 'train_dogs' is in 'train' ('train_dogs' has 'dog', for example"
    assert (text in said) == is_told


def test_folds_share_images_on_purpose(tmp_path):
    lists = {f"{split}_fold{i}": "abc" for i in range(3) for split in ("train", "val")}
    voc(tmp_path, *"abc", lists=lists)
    names, said = loaded(tmp_path)
    assert len(names) == 6 and said == ""


def test_a_split_without_images_is_left_out_where_errors_are_skipped(tmp_path, capsys):
    put(tmp_path, "a.jpg")
    put(tmp_path, "train.csv", text=f"{CSV}a.jpg,40,20,cat,2,3,14,16\n")
    put(tmp_path, "count.csv", text=f"{CSV}gone.jpg,40,20,cat,2,3,14,16\n")
    text = r"The split 'count' was left out: .*missing image: .*gone\.jpg"
    with pytest.warns(UserWarning, match=text):
        splits = load_splits(tmp_path, on_error="skip")
    assert list(splits) == ["train"]
    assert "was left out" not in capsys.readouterr().out  # the warning says it


# --- Folders.


def test_a_dataset_four_folders_down_is_found(tmp_path):
    """The tree of the tutorial of the TF Object Detection API."""
    images = "TensorFlow/workspace/training_demo/images"
    for split in ("train", "test"):
        put(tmp_path, f"{images}/{split}/{split}.jpg")
        xml = VOC.format(f"{split}.jpg")
        put(tmp_path, f"{images}/{split}/{split}.xml", text=xml)
    text = f"{CSV}train.jpg,40,20,cat,2,3,14,16\n"
    put(tmp_path, "TensorFlow/scripts/preprocessing/output.csv", text=text)
    assert loaded(tmp_path)[0] == {"test": ["test.jpg"], "train": ["train.jpg"]}


def test_a_sample_far_below_is_no_second_dataset(tmp_path, capsys):
    yolo(tmp_path / "data", names="ab")
    yolo(tmp_path / "src/app/yolo/sample", names="s")
    assert loaded(tmp_path)[0] == {"train": ["a.jpg", "b.jpg"]}
    text = "sample' also holds a dataset of other images (YOLO: split train; "
    assert text in capsys.readouterr().out


def test_txt_files_in_anns_have_their_images_in_the_folder_of_a_split(tmp_path):
    put(tmp_path, "data/train/imgs/a.jpg")
    put(tmp_path, "data/anns/a.txt", text=ROW)
    put(tmp_path, "class.names", text="plate")
    dataset = load(tmp_path)
    assert paths(dataset, tmp_path) == ["data/train/imgs/a.jpg"]
    assert dataset.class_names == ("plate",)


@pytest.mark.parametrize("labels", ["labels", "labels/labels"])
@pytest.mark.parametrize("prefix", ["", "0a1b2c3d-"])
def test_label_studios_export_beside_the_images_as_they_were(tmp_path, labels, prefix):
    """Its archive was unpacked into `labels/`, and the images have their own names."""
    put(tmp_path, "images/a.jpg", "images/b.jpg")
    put(tmp_path, *(f"{labels}/{prefix}{name}.txt" for name in "ab"), text=ROW)
    put(tmp_path, "labels/classes.txt", text="cup")
    dataset = load(tmp_path)
    assert [len(record.labels) for record in dataset.records] == [1, 1]
    assert dataset.class_names == ("cup",) and not dataset.problems
    put(tmp_path, "labels/labels/ffffffff-a.txt", f"{labels}/eeeeeeee-a.txt", text=ROW)
    if prefix:  # which of the two is meant?
        with pytest.warns(UserWarning, match="belong to no image"):
            assert len(load(tmp_path).records[0].labels) == 0


def test_txt_files_that_fit_no_image_are_named_where_none_fits(tmp_path):
    put(tmp_path, "images/a.jpg")
    put(tmp_path, "labels/classes.txt", text="cup")
    put(tmp_path, "labels/first/b.txt", "labels/first/c.txt", text=ROW)
    put(tmp_path, "requirements.txt", text="keras\n")
    with pytest.warns(
        UserWarning, match=r"2 txt files with boxes below.*first/b\.txt'"
    ):
        load(tmp_path)


def test_what_is_read_is_not_named_as_another_dataset(tmp_path, capsys):
    """Records whose images lie in files of the same folder as well."""
    put(tmp_path, "data/img/a.jpg")
    put(tmp_path, "data/img/a.xml", text=VOC.format("a.jpg"))
    put_records(tmp_path / "data", load(tmp_path))
    capsys.readouterr()
    load(tmp_path, format="tfrecord")
    assert "also holds a dataset" not in capsys.readouterr().out


# --- Numbers.


def test_numbers_that_are_texts_in_a_coco_json_are_read(tmp_path):
    content = json.loads(coco("a.jpg"))
    content["annotations"][0]["bbox"] = [1, 2, "12.5", "13.25"]
    put(tmp_path, "a.jpg")
    put(tmp_path, "boxes.json", text=json.dumps(content))
    assert load(tmp_path).records[0].boxes_xywh.tolist() == [[1, 2, 12.5, 13.25]]
    boxes = [[1, 2, wrong, "13.25"] for wrong in ("wide", "nan", None)]
    for box in [*boxes, "1268", {"1": 9, "2": 9, "12": 9, "13": 9}]:
        content["annotations"][0]["bbox"] = box
        put(tmp_path, "boxes.json", text=json.dumps(content))
        with pytest.raises(ValueError, match="is not four finite numbers"):
            load(tmp_path)


def test_rows_of_sides_without_a_header_are_not_read_as_corners(tmp_path):
    put(tmp_path, "a.jpg")
    put(tmp_path, "train.csv", text="a.jpg,2,3,14,16,cat\na.jpg,20,4,30,18,cat\n")
    put(tmp_path, "output.csv", text="a.jpg,20,4,10,14,cat\na.jpg,22,5,9,4,cat\n")
    with pytest.warns(UserWarning, match="'output.csv' is not read: 2 of 2 boxes end"):
        dataset = load(tmp_path)
    assert dataset.records[0].boxes_xywh.tolist() == [[2, 3, 12, 13], [20, 4, 10, 14]]


def test_a_file_of_some_boxes_that_end_before_they_begin_is_read_with_a_note(tmp_path):
    put(tmp_path, "a.jpg")
    rows = [f"a.jpg,{left},3,14,16,cat\n" for left in range(5)]
    rows += [f"a.jpg,14,16,{left},3,cat\n" for left in range(2)]
    put(tmp_path, "train.csv", text="".join(rows))
    with pytest.warns(UserWarning, match="2 of 7 boxes end before they begin"):
        dataset = load(tmp_path)
    assert len(dataset.records[0].labels) == 5


def test_a_number_without_a_name_names_the_file_that_lacks_it(tmp_path):
    yolo(tmp_path, "train/images", "train/labels", classes=None)
    put(tmp_path, "train/labels/a.txt", text="2 0.5 0.5 0.4 0.4\n")
    yaml = "train: train/images\nnames: [cat, dog]"
    put(tmp_path, "data.yaml", text=yaml)
    with pytest.raises(ValueError, match=r"2: 'data\.yaml' has only 2 names, \['cat'"):
        load(tmp_path)
    with pytest.warns(
        UserWarning, match="2 class names, but boxes have class numbers up"
    ):
        dataset = load(tmp_path, class_names=["cat", "dog", "cow"])
    assert dataset.records[0].labels.tolist() == [2]
    with pytest.raises(ValueError, match="the class number 2"):
        load(tmp_path, class_names=["dog", "cat", "cow"])  # another order


def test_an_object_of_an_xml_file_without_anything_is_left_out(tmp_path):
    voc(tmp_path, "a", "b")
    xml = VOC.format("a.jpg").replace("<object>", "<object></object><object>")
    put(tmp_path, "Annotations/a.xml", text=xml)
    with pytest.warns(UserWarning, match=r"1 stray annotation: a\.xml: an empty"):
        dataset = load(tmp_path)
    assert [len(record.labels) for record in dataset.records] == [1, 1]
    xml = VOC.format("a.jpg").replace("name>", "label>").replace("bndbox>", "box>")
    put(tmp_path, "Annotations/a.xml", text=xml)
    with pytest.raises(ValueError, match=r"1 bad box: a\.xml"):
        load(tmp_path)


# --- What to do.


def test_images_that_are_pointers_of_git_lfs_are_named(tmp_path):
    put(tmp_path, "boxes.json", text=coco("a.jpg"))
    (tmp_path / "a.jpg").write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(ValueError, match=r"a\.jpg: is a pointer of Git LFS: get"):
        load(tmp_path)


@pytest.mark.parametrize(
    "name, is_named",
    [
        ("gone.jpg", True),
        ("other.jpg", False),
        ("GONE.JPG", True),
        ("data\\gone.jpg", True),  # as some programs of Windows write it
        ("more.zip", True),
    ],
)
def test_a_zip_file_is_named_where_it_may_have_the_missing_images(
    tmp_path, name, is_named
):
    put(tmp_path, "a.jpg")
    put(tmp_path, "boxes.json", text=coco("a.jpg", "gone.jpg"))
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as archive:
        archive.writestr(f"images/{name}", "")
    with pytest.raises(FileNotFoundError) as caught:
        load(tmp_path)
    assert ("images.zip" in str(caught.value)) == is_named


def test_another_format_whose_images_are_gone_too_is_not_offered(tmp_path):
    put(tmp_path, "a.jpg")
    for name in ("a", "gone"):
        put(tmp_path, f"{name}.xml", text=VOC.format(f"{name}.jpg"))
    rows = "".join(f"{n}.jpg,40,20,cat,2,3,14,16\n" for n in ("a", "gone"))
    put(tmp_path, "train.csv", text=CSV + rows)
    with pytest.raises(FileNotFoundError) as caught:
        load(tmp_path)
    assert "pass format=" not in str(caught.value)


@pytest.mark.parametrize(
    "file, content, tool",
    [
        ("a.json", {"version": "2.0", "item": {}, "annotations": []}, "V7 Darwin"),
        ("a.json", {"metadata": {}, "instances": []}, "SuperAnnotate"),
    ],
)
def test_json_files_of_other_tools_are_named(tmp_path, file, content, tool):
    put(tmp_path, "a.png")
    put(tmp_path, file, text=json.dumps(content))
    with pytest.raises(ValueError, match=f"is a file of {tool}: export COCO json"):
        load(tmp_path)


def test_paths_of_another_machine_in_files_of_opencv(tmp_path):
    put(tmp_path, "knife/0 1.png")
    text = "C:\\knife\\0 1.png 2 14 10 4 5 10 2 5 6\n"
    put(tmp_path, "info.dat", text=text)
    boxes = load(tmp_path, class_names=["knife"]).records[0].boxes_xywh
    assert boxes.tolist() == [[14, 10, 4, 5], [10, 2, 5, 6]]


# --- Folders in folders.


def test_xml_files_in_a_folder_for_each_class_are_one_dataset(tmp_path):
    voc(tmp_path, "cats/1", "cats/2", "dogs/1", images="images")
    names, said = loaded(tmp_path)
    assert names == {"train": ["2.jpg", "1.jpg", "1.jpg"]} and said == ""
    expected = ["images/cats/2.jpg", "images/cats/1.jpg", "images/dogs/1.jpg"]
    assert paths(load(tmp_path), tmp_path) == expected


def test_lists_of_names_in_folders_of_xml_files(tmp_path):
    voc(tmp_path, "1/a", "1/b", "2/b", "2/c")
    put(tmp_path, "JPEGImages/2/b.jpg", color="white")  # another image than that of 1
    put(tmp_path, "ImageSets/Main/train.txt", text="a\nJPEGImages/2/b.jpg\n")
    put(tmp_path, "ImageSets/Main/val.txt", text="c\n1/b\n")
    names, said = loaded(tmp_path)
    assert names == {"train": ["a.jpg", "b.jpg"], "val": ["c.jpg", "b.jpg"]}
    assert said == ""
    expected = ["JPEGImages/1/a.jpg", "JPEGImages/2/b.jpg"]
    assert paths(load(tmp_path, "train"), tmp_path) == expected


def test_folders_of_splits_with_xml_files_stay_splits(tmp_path):
    voc(tmp_path, "train/a", "val/b")
    assert loaded(tmp_path)[0] == {"train": ["a.jpg"], "val": ["b.jpg"]}


def labelme(folder, *names):
    for i, name in enumerate(names):
        put(folder, f"{name}.jpg", color=(0, 40 * i, 0))
        shape = {"label": "cat", "shape_type": "rectangle", "points": [[1, 2], [9, 9]]}
        content = {"shapes": [shape], "imagePath": f"{name.rpartition('/')[2]}.jpg"}
        put(folder, f"{name}.json", text=json.dumps(content))


def test_folders_in_the_folder_of_a_split_are_that_split(tmp_path):
    labelme(tmp_path, "train/0/a", "train/0/b", "train/1/a", "val/a")
    assert loaded(tmp_path) == (
        {"val": ["a.jpg"], "train": ["a.jpg", "b.jpg", "a.jpg"]},
        "",
    )
    train, _ = load_train_valid(tmp_path)
    expected = ["train/0/a.jpg", "train/0/b.jpg", "train/1/a.jpg"]
    assert paths(train, tmp_path) == expected


def test_folders_in_two_splits_are_those_splits(tmp_path):
    for split in ("train", "val"):
        for place in (f"{split}/one", f"{split}/two"):
            put(tmp_path, f"{place}/a.jpg", color=(len(place), place.count("o"), 0))
            put(tmp_path, f"{place}/labels.json", text=coco("a.jpg"))
    names, said = loaded(tmp_path)
    assert names == {"train": ["a.jpg"] * 2, "val": ["a.jpg"] * 2} and said == ""


def test_of_two_folders_of_images_the_one_with_most_txt_files_is_read(tmp_path):
    put(tmp_path, "labels/a.txt", "labels/b.txt", text=ROW)
    put(tmp_path, "raw/a.jpg", "selected/a.jpg", "selected/b.jpg")
    put(tmp_path, "classes.txt", text="cat")
    assert loaded(tmp_path)[0] == {"train": ["a.jpg", "b.jpg"]}


def test_a_second_pair_of_images_and_txt_files_is_told(tmp_path):
    for number, name in enumerate(("old", "new"), start=1):
        names = [f"{name}{i}" for i in range(number)]
        yolo(tmp_path, name, f"{name}_label", names, classes=None)
        put(tmp_path, f"{name}_label/classes.txt", text=f"{name} cat\n")
    names, said = loaded(tmp_path)
    assert names == {"train": ["new0.jpg", "new1.jpg"]}
    assert load(tmp_path).class_names == ("new cat",)
    assert "old' with the txt files of" in said and "old_label' are left out" in said


def test_a_second_folder_of_xml_files_of_the_same_images_is_told(tmp_path):
    put(tmp_path, "images/a.jpg")
    for place in ("annotations", "by_hand"):
        put(tmp_path, f"{place}/a.xml", text=VOC.format("a.jpg"))
    said = loaded(tmp_path)[1]
    assert "and not those for the same images in 'by_hand' (not read)" in said


def test_a_list_for_a_test_beside_those_of_a_data_file_is_told(tmp_path):
    yolo(tmp_path, "obj", "obj", ["a", "b", "c"], classes=None)
    for name, image in (("train", "a"), ("valid", "b"), ("test", "c")):
        put(tmp_path, f"{name}.txt", text=f"obj/{image}.jpg\n")
    put(tmp_path, "obj.names", text="cat\n")
    text = "classes = 1\ntrain = train.txt\nvalid = valid.txt\nnames = obj.names\n"
    put(tmp_path, "obj.data", text=text)
    names, said = loaded(tmp_path)
    assert names == {"train": ["a.jpg"], "valid": ["b.jpg"]}
    assert "To read it, add `test = test.txt` to 'obj.data'" in said
    put(tmp_path, "obj.data", text=text.replace("valid.txt", "test.txt"))
    assert "to read it" not in loaded(tmp_path)[1]


@pytest.mark.parametrize("named", ["train/images", "images"])
def test_one_folder_for_several_splits_has_a_folder_for_each(tmp_path, named):
    for split in ("train", "val", "test"):
        images, labels = f"{split}/images", f"{split}/labels"
        if named == "images":
            images, labels = f"images/{split}", f"labels/{split}"
        yolo(tmp_path, images, labels, [split[0]], classes=None)
    text = f"train: {named}\nval: {named}\nnames: [cat]\n"
    put(tmp_path, "data.yaml", text=text)
    names, said = loaded(tmp_path)
    assert names == {"train": ["t.jpg"], "val": ["v.jpg"]}
    assert "for several splits" in said and "is read for 'val'" in said
    assert "is not read, because no split of 'data.yaml' names it. To" in said
    put(tmp_path, "data.yaml", text=text.replace(f"val: {named}", "val: test/images"))
    if named == "train/images":  # a test that is the validation
        names, said = loaded(tmp_path)
        assert names == {"train": ["t.jpg"], "val": ["t.jpg"]}
        assert "names it" not in said


def test_one_folder_for_several_splits_stays_where_there_is_no_other(tmp_path):
    yolo(tmp_path, "images", "labels", ["a", "b"], classes=None)
    put(tmp_path, "images/val/c.jpg")  # without a txt file
    put(tmp_path, "data.yaml", text="train: images\nval: images\nnames: [cat]\n")
    names, said = loaded(tmp_path)
    assert names["train"] == names["val"] == ["a.jpg", "b.jpg", "c.jpg"]
    assert "contain the same 3 images" in said


def test_lists_beside_the_folders_of_a_voc_dataset(tmp_path):
    voc(tmp_path, *"abc", images="images", annotations="annotations")
    put(tmp_path, "pet_train.txt", text="b\na\n")
    put(tmp_path, "pet_train_data.txt", text="pets/images/b.jpg\n")
    put(tmp_path, "pet_test.txt", text="c\n")
    put(tmp_path, "requirements_test.txt", text="keras\n")
    assert loaded(tmp_path) == ({"test": ["c.jpg"], "train": ["b.jpg", "a.jpg"]}, "")


@pytest.mark.parametrize(
    "lists",
    [
        {"train": "ab", "test": "x"},  # of other images
        {"train": "a", "test": "b"},  # of few of the images
        {"train": "abc", "test": "c"},  # of one image in both
        {"cat_train": "ab", "cat_val": "c", "dog_train": "bc", "dog_val": "a"},
        {"how_to_train": ["a first", "b then"], "how_to_test": ["c at last"]},
        {"trainval": "ab", "test": "c"},
    ],
)
def test_txt_files_beside_a_voc_dataset_that_are_no_lists_of_splits(tmp_path, lists):
    voc(tmp_path, *"abcde", images="images", annotations="annotations")
    for name, lines in lists.items():
        put(tmp_path, f"{name}.txt", text="\n".join(lines))
    assert loaded(tmp_path)[0] == {"train": [f"{name}.jpg" for name in "abcde"]}


def test_xml_files_of_two_annotators_are_not_joined(tmp_path):
    put(tmp_path, "JPEGImages/a.jpg", "JPEGImages/b.jpg")
    for who in ("alice", "bob"):
        for name in "ab":
            put(
                tmp_path,
                f"Annotations/{who}/{name}.xml",
                text=VOC.format(f"{name}.jpg"),
            )
    names, _ = loaded(tmp_path)
    assert names == {"train": ["a.jpg", "b.jpg"]}


def test_an_xml_file_has_the_image_of_its_folder(tmp_path):
    voc(tmp_path, "cam1/0", "cam2/1", images="images")
    put(tmp_path, "images/cam1/1.jpg", "images/cam2/0.jpg")
    expected = ["images/cam1/0.jpg", "images/cam2/1.jpg"]
    assert paths(load(tmp_path), tmp_path) == expected


def test_versions_of_the_same_images_are_not_joined(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("train/v1/a", "train/v1/b", "val/c"):
        labelme(tmp_path, name)
        pixels = rng.integers(0, 255, (20, 40, 3), "uint8")
        Image.fromarray(pixels).save(tmp_path / f"{name}.jpg")
    shutil.copytree(tmp_path / "train/v1", tmp_path / "train/v2")
    with pytest.raises(
        ValueError, match="alike: they are versions of one dataset, not"
    ):
        load_splits(tmp_path)


def test_a_part_of_a_split_in_another_format_is_not_left_out(tmp_path):
    labelme(tmp_path, "train/0/a", "val/0/c")
    put(tmp_path, "train/1/b.jpg")
    put(tmp_path, "train/1/b.xml", text=VOC.format("b.jpg"))
    with pytest.raises(ValueError, match="datasets of different images"):
        load_splits(tmp_path)


def test_a_list_of_images_whose_txt_files_are_beside_copies(tmp_path):
    yolo(tmp_path, "obj", "obj", ["a", "b", "c"], classes=None)
    put(tmp_path, "obj.names", text="cat\n")
    put(tmp_path, "test/c.jpg")
    put(tmp_path, "train.txt", text="/content/pets/train/a.jpg\n/content/x/b.jpg\n")
    put(tmp_path, "test.txt", text="/content/pets/test/c.jpg\n")
    text = "classes = 1\ntrain = /content/pets/train.txt\nvalid = /content/test.txt\n"
    put(tmp_path, "obj.data", text=text)
    names, said = loaded(tmp_path)
    assert names == {"train": ["a.jpg", "b.jpg"], "valid": ["c.jpg"]}
    (valid,) = load(tmp_path, "valid").records
    assert (
        len(valid.labels) == 1
        and "so copies that have one are read instead, such as" in said
    )
    put(tmp_path, "test/c.jpg", color="white")  # another image is no copy
    (valid,) = load(tmp_path, "valid").records
    assert len(valid.labels) == 0


def test_a_negative_of_a_list_is_no_copy_of_another_image(tmp_path):
    yolo(tmp_path, "one", "one", ["0", "1"], classes="cat")
    put(tmp_path, "two/0.jpg", "two/1.jpg")
    lines = "".join(f"{folder}/{i}.jpg\n" for folder in ("one", "two") for i in (0, 1))
    put(tmp_path, "train.txt", text=lines)
    expected = ["one/0.jpg", "one/1.jpg", "two/0.jpg", "two/1.jpg"]
    assert paths(load(tmp_path), tmp_path) == expected


def test_the_class_names_beside_the_txt_files_come_first(tmp_path):
    yolo(tmp_path, "images", "bbox_txt", ["a"], classes=None)
    put(tmp_path, "images/classes.txt", text="dog\nperson\n")  # LabelImg's own
    put(tmp_path, "class_list.txt", text="shoe\n")
    assert load(tmp_path).class_names == ("shoe",)
    put(tmp_path, "bbox_txt/classes.txt", text="boot\n")
    assert load(tmp_path).class_names == ("boot",)


def test_a_longer_list_is_named_where_a_number_has_no_name(tmp_path):
    yolo(tmp_path, "images", "images", ["a"], classes=None)
    put(tmp_path, "images/a.txt", text=ROW.replace("0 ", "2 ", 1))
    put(tmp_path, "images/classes.txt", text="dog\nperson\nshed\n")
    put(tmp_path, "shed.names", text="shed\n")
    put(tmp_path, "train.txt", text="images/a.jpg\n")
    put(tmp_path, "shed.data", text="train = train.txt\nnames = shed.names\n")
    with pytest.raises(ValueError, match=r"classes\.txt' has more names: if"):
        load(tmp_path)


def test_images_of_a_split_that_are_gone_leave_the_others_named(tmp_path):
    yolo(tmp_path, "images/test", "labels/test", ["a"], classes=None)
    text = "train: C:/pets/images/train\ntest: images/test\nnames: [cat]\n"
    put(tmp_path, "data.yaml", text=text)
    with pytest.raises(FileNotFoundError, match="those of 'test' were found: `load"):
        load_splits(tmp_path)
    assert len(load(tmp_path, "test")) == 1


def test_a_hidden_json_file_among_images_is_named(tmp_path):
    put(tmp_path, "train/a.jpg")
    put(tmp_path, "train/.annotations.coco.json", text=coco("a.jpg"))
    with pytest.raises(ValueError, match=r"coco\.json' begins with a dot"):
        load(tmp_path)


def test_the_sample_of_the_object_detection_api_is_no_dataset(tmp_path):
    put(tmp_path, "pets/a.jpg")
    put(tmp_path, "pets/a.xml", text=VOC.format("a.jpg"))
    put_records(tmp_path / "test_data", load(tmp_path / "pets"))
    (record,) = (tmp_path / "test_data").glob("*record*")
    record.rename(tmp_path / "test_data/pets_examples.record")
    assert loaded(tmp_path) == ({"train": ["a.jpg"]}, "")


def test_an_xml_file_of_an_unknown_kind_is_described(tmp_path):
    put(tmp_path, "a.jpg")
    text = "<paintings><painting><annotation x='1' y='2'/></painting></paintings>"
    put(tmp_path, "annotations.xml", text=text)
    with pytest.raises(ValueError, match="tags 'paintings', 'painting', 'annotation'"):
        load(tmp_path)


# --- Files that name what is not there, and others beside them that are right.


def train_and_val(folder):
    """Writes `a.jpg` to train on and `b.jpg` to validate on, in the usual folders."""
    for split, name in (("train", "a"), ("val", "b")):
        yolo(folder, f"images/{split}", f"labels/{split}", [name], classes=None)


def test_a_list_to_test_on_of_which_nothing_is_there_is_left_out(tmp_path):
    yolo(tmp_path, "images", "labels", ["a", "b"], classes=None)
    put(tmp_path, "train.txt", text="images/a.jpg\n")
    put(tmp_path, "val.txt", text="images/b.jpg\n")
    put(tmp_path, "test.txt", text="images/gone.jpg\n" * 7)
    text = "train: train.txt\nval: val.txt\ntest: test.txt\nnames: [cat]\n"
    put(tmp_path, "pets.yaml", text=text)
    names, said = loaded(tmp_path)
    assert names == {"train": ["a.jpg"], "val": ["b.jpg"]}
    assert "'test' of 'pets.yaml' is left out: the images that" in said
    assert "names were not found" in said
    # One image after many that are gone is a split, and the others are named.
    gone = "".join(f"images/gone{number}.jpg\n" for number in range(7))
    put(tmp_path, "test.txt", text=f"{gone}{gone}images/b.jpg\n")
    with pytest.raises(FileNotFoundError, match="7 missing images: images/gone0.jpg"):
        load_splits(tmp_path)
    # So it is where an image has the name of one of the list, in another folder.
    put(tmp_path, "test.txt", text="test/x.jpg\ntest/y.jpg\n")
    for i, folder in enumerate(("flowers", "weeds", "trees")):
        put(tmp_path, f"{folder}/x.jpg", f"{folder}/y.jpg", color=(i, 90 * i, 0))
    with pytest.raises(FileNotFoundError, match="2 missing images: test/x.jpg"):
        load_splits(tmp_path)
    names, said = loaded(tmp_path, on_error="skip")
    assert names == {"train": ["a.jpg"], "val": ["b.jpg"]}
    assert said.count("2 missing images: test/x.jpg") == 1
    # Of images to train on the error names those that are missing.
    put(tmp_path, "train.txt", text="images/gone.jpg\n")
    with pytest.raises(FileNotFoundError, match="1 missing image: images/gone.jpg"):
        load(tmp_path, "train")


def test_lists_without_a_line_give_way_to_folders(tmp_path):
    train_and_val(tmp_path)
    put(tmp_path, "train_list.txt", "val_list.txt", text="")
    put(tmp_path, "classes.txt", text="cat\n")
    text = "train: train_list.txt\nval: val_list.txt\nnc: 0\nnames: []\n"
    put(tmp_path, "train.yaml", text=text)
    names, said = loaded(tmp_path)
    assert names == {"train": ["a.jpg"], "val": ["b.jpg"]}
    assert "the lists that 'train.yaml' names are empty" in said
    assert load(tmp_path, "val").class_names == ("cat",)


def test_lists_of_darknet_without_training_images_give_way_to_folders(tmp_path):
    for split, name in (("train", "a"), ("valid", "b"), ("test", "c")):
        yolo(tmp_path, split, split, [name], classes="cat")
    put(tmp_path, "cfg/valid.txt", text="data/obj/b.jpg\n")
    text = "train = data/train.txt\nvalid = data/valid.txt\nnames = data/obj.names\n"
    put(tmp_path, "cfg/obj.data", text=text)
    names, said = loaded(tmp_path)
    assert names == {"test": ["c.jpg"], "train": ["a.jpg"], "valid": ["b.jpg"]}
    assert "no image of 'obj.data' to train on was found: the folders of" in said
    assert load(tmp_path, "test").class_names == ("cat",)
    put(tmp_path, "cfg/pets.names", text="dog\n")
    put(tmp_path, "cfg/obj.data", text=text.replace("data/obj.names", "pets.names"))
    assert load(tmp_path, "test").class_names == ("dog",)
    # Who names no images to train on means those to validate on.
    put(tmp_path, "cfg/obj.data", text="valid = valid.txt\nnames = pets.names\n")
    assert loaded(tmp_path)[0] == {"valid": ["b.jpg"]}


def test_a_list_of_a_split_of_which_nothing_is_there_is_told(tmp_path):
    yolo(tmp_path, "obj", "obj", ["a", "b"], classes="cat")
    put(
        tmp_path, "train.txt", text="data/x/f.jpg\ndata/x/g.jpg\n"
    )  # of another machine
    put(tmp_path, "test.txt", text="data/x/h.jpg\n")
    names, said = loaded(tmp_path)
    assert names == {"train": ["a.jpg", "b.jpg"]}
    assert "the list 'test.txt' is left out: none of its first images was" in said
    assert "train.txt" not in said


def test_one_folder_is_no_more_than_what_a_list_of_darknet_still_names(tmp_path):
    yolo(tmp_path, "data/obj", "data/obj", ["a", "b"], classes=None)
    put(tmp_path, "data/obj.names", text="cat\n")
    put(tmp_path, "data/valid.txt", text="data/obj/b.jpg\n")
    text = "train = data/train.txt\nvalid = data/valid.txt\nnames = data/obj.names\n"
    put(tmp_path, "data/obj.data", text=text)
    names, said = loaded(tmp_path)
    assert names == {"valid": ["b.jpg"]}
    assert "'train' of 'obj.data' is left out: no image of 'data/train.txt'" in said


def test_of_two_yaml_files_the_one_whose_folders_are_all_there_is_read(tmp_path):
    for split, name in (("train", "a"), ("valid", "b")):
        yolo(tmp_path, f"{split}/images", f"{split}/labels", [name], classes=None)
    put(tmp_path, "data.yaml", text="train: train\nval: dataset/val\nnames: [dog]\n")
    text = "train: C:/pets/train/images\nval: C:/pets/valid/images\nnames: [cat, dog]\n"
    put(tmp_path, "train_data.yaml", text=text)
    names, said = loaded(tmp_path)
    assert names == {"train": ["a.jpg"], "val": ["b.jpg"]}
    assert (
        "of several yaml files with splits, 'train_data.yaml' is read" in said
        and "'data.yaml'" in said
    )
    assert load(tmp_path, "train").class_names == ("cat", "dog")
    as_many = text.replace("cat, dog", "cat")
    put(tmp_path, "train_data.yaml", text=as_many)
    assert load(tmp_path, "train").class_names == ("dog",)
    put(tmp_path, "train_data.yaml", text=text)
    for val in ("valid", "valid\ntest: ../test/images"):  # a test may be missing
        put(tmp_path, "data.yaml", text=f"train: train\nval: {val}\nnames: [dog]\n")
        assert load(tmp_path, "train").class_names == ("dog",)


def test_what_lies_beside_a_whole_data_yaml_is_not_opened(tmp_path):
    yolo(tmp_path, classes=None)
    put(tmp_path, "data.yaml", text="train: images\nnames: [cat]\n")
    (tmp_path / "other.yaml").symlink_to(tmp_path / "nowhere.yaml")
    assert load(tmp_path).class_names == ("cat",)
    put(tmp_path, "data.yaml", text="train: images\nval: gone\nnames: [cat]\n")
    assert load(tmp_path).class_names == ("cat",)


def test_folders_of_the_same_splits_are_those_of_a_yaml_file_of_nowhere(tmp_path):
    train_and_val(tmp_path)
    text = "train: path\\to\\train\nval: path\\to\\val\nnames: [cat]\n"
    put(tmp_path, "data.yaml", text=text)
    names, said = loaded(tmp_path)
    assert names == {"train": ["a.jpg"], "val": ["b.jpg"]}
    assert "The folders beside it are read instead" in said
    assert load(tmp_path, "val").class_names == ("cat",)


def test_images_of_any_folder_whose_txt_files_are_where_a_yaml_file_says(tmp_path):
    yolo(tmp_path, "my_images", "labels", ["a", "b"], classes=None)
    put(tmp_path, "pets.yaml", text="train: images\nval: images\nnames: [cat]\n")
    names, said = loaded(tmp_path)
    assert names == {"train": ["a.jpg", "b.jpg"]}
    assert "the folders that 'pets.yaml' names were not found" in said
    put(tmp_path, "pets.yaml", text="train: pets\nval: pets\nnames: [cat]\n")
    with pytest.raises(ValueError, match="no path below .* ends like it"):
        load(tmp_path)


def test_a_second_folder_of_images_for_the_same_txt_files_is_told(tmp_path):
    """It may have drawings of the boxes."""
    yolo(tmp_path, "frames", "label", ["a", "b"], classes="cat")
    put(tmp_path, "vis/a.jpg", "vis/b.jpg")
    names, said = loaded(tmp_path)
    assert names == {"train": ["a.jpg", "b.jpg"]}
    assert paths(load(tmp_path), tmp_path)[0] == "frames/a.jpg"
    assert f"'{tmp_path / 'vis'}' also has images for the txt files of" in said


def test_the_only_name_is_that_of_the_only_number(tmp_path):
    train_and_val(tmp_path)
    row = ROW.replace("0 ", "20 ", 1)
    put(tmp_path, "labels/train/a.txt", "labels/val/b.txt", text=row)
    text = "train: images/train\nval: images/val\nnames: [face]\n"
    put(tmp_path, "data.yaml", text=text)
    _, said = loaded(tmp_path)
    assert (
        "boxes have the class number 20, and there is only one class name, 'fa" in said
    )
    for split in ("train", "val"):
        dataset = load(tmp_path, split)
        assert dataset.class_names == ("face",)
        assert [record.labels.tolist() for record in dataset.records] == [[0]]
    with pytest.warns(UserWarning, match="the other names are taken from"):
        names = [f"class {i}" for i in range(21)]
        named = load(tmp_path, "train", class_names=["face", *names[1:]])
    assert named.class_names[named.records[0].labels[0]] == "class 20"
    put(tmp_path, "data.yaml", text=f"{text}nc: 2\n")  # one has no name
    with pytest.raises(ValueError, match="1 box with the class number 20"):
        load(tmp_path, "train")
    put(tmp_path, "data.yaml", text=text)
    # Another split has another number: which of both the name is of, nobody can say.
    put(tmp_path, "labels/val/b.txt", text=ROW)
    with pytest.raises(
        ValueError, match="1 box with the class number 20: 'data.yaml' has"
    ):
        load(tmp_path, "train")


def test_class_names_around_the_folder_of_txt_files_alone(tmp_path):
    """CVAT's export, unpacked beside the images."""
    put(tmp_path, "train_data/a.jpg", "train_data/b.jpg")
    for name in "ab":
        put(tmp_path, f"obj_train_data/obj_train_data/{name}.txt", text=ROW)
    put(tmp_path, "obj_train_data/obj.names", text="face\n")
    dataset = load(tmp_path)
    assert dataset.class_names == ("face",) and len(dataset) == 2


def test_class_names_of_darknet_with_another_ending(tmp_path):
    yolo(tmp_path, "obj_train_data", "obj_train_data", ["a"], classes=None)
    put(tmp_path, "train.txt", text="data/obj_train_data/a.jpg\n")
    put(tmp_path, "obj.names.txt", text="turtle\n")
    put(tmp_path, "obj.data", text="train = data/train.txt\nnames = data/obj.names\n")
    assert load(tmp_path).class_names == ("turtle",)


def test_of_two_formats_the_one_without_an_error_is_read(tmp_path):
    """Also where the other one has an annotation more."""
    for split, names in (("train", "abcdefghijklnopqrstuv"), ("valid", "m")):
        yolo(tmp_path, split, split, list(names), classes="cat")
        rows = "".join(f"{name}.jpg 1,2,12,13,0\n" for name in (*names, "gone"))
        put(tmp_path, f"{split}/_annotations.txt", text=rows)
        put(tmp_path, f"{split}/_classes.txt", text="cat\n")
    (tmp_path / "train/l.txt").unlink()
    names, said = loaded(tmp_path)
    assert (len(names["train"]), len(names["valid"])) == (21, 1)
    assert "1 of 21 images has no txt file" in said
    with pytest.raises(FileNotFoundError, match="1 missing image"):
        load_splits(tmp_path, format="keras_txt")
    (tmp_path / "classes.txt").unlink()  # then YOLO's classes have no names
    with pytest.raises(FileNotFoundError, match="1 missing image"):
        load_splits(tmp_path)


def test_a_format_without_an_error_but_with_fewer_boxes_is_not_read(tmp_path):
    put(tmp_path, "images/a.jpg", "images/b.jpg", "images/c.jpg")
    rows = [f"{name}.jpg,40,20,cat,1,2,12,13\n" for name in ("a", "b", "c", "gone")]
    put(tmp_path, "labels.csv", text=f"{CSV}{''.join(rows)}")
    put(tmp_path, "labels.json", text=coco("a.jpg"))
    with pytest.raises(FileNotFoundError, match="1 missing image"):
        load(tmp_path)


def test_xml_files_of_other_folders_are_told(tmp_path):
    voc(tmp_path, *"abc", images="images", annotations="annotations")
    for name in "de":
        put(tmp_path, f"valid img/{name}.jpg")
        put(tmp_path, f"valid annot/{name}.xml", text=VOC.format(f"{name}.jpg"))
    names, said = loaded(tmp_path)
    assert names == {"train": ["a.jpg", "b.jpg", "c.jpg"]}
    assert "2 xml files of" in said and "belong to other images: not read" in said
    for name in "ab":  # copies of those that are read
        put(tmp_path, f"valid annot/{name}.xml", text=VOC.format(f"{name}.jpg"))
    assert "not those for the same images in 'valid annot'" in loaded(tmp_path)[1]


def test_images_without_an_xml_file_are_counted(tmp_path):
    voc(tmp_path, *"abc", lists={"train": "ab", "val": "c"})
    put(tmp_path, "JPEGImages/e.jpg", "JPEGImages/d.jpg")
    put(tmp_path, "Annotations/d.jpg.xml", text=VOC.format("d.jpg"))
    _, said = loaded(tmp_path)
    assert "1 of 4 xml files is in none of the lists" in said
    assert "no annotation of" not in said  # one of them may be in no list
    (tmp_path / "Annotations/d.jpg.xml").unlink()
    _, said = loaded(tmp_path)
    assert "2 of 5 images were not read, because no annotation of 'train', 'v" in said


def test_the_same_images_in_two_files_of_records_are_told(tmp_path):
    put(tmp_path, "images/a.jpg", "images/b.jpg")
    put(tmp_path, "images/labels.csv", text=f"{CSV}a.jpg,40,20,cat,1,2,12,13\n")
    data = load(tmp_path / "images")
    put_records(tmp_path / "one", data)
    (record,) = (tmp_path / "one").glob("*record*")
    for split in ("train", "test"):
        put(tmp_path, f"records/{split}.record")
        shutil.copy(record, tmp_path / f"records/{split}.record")
    _, said = loaded(tmp_path / "records")
    assert "'test' and 'train' contain the same 1 image" in said


def test_an_image_of_two_splits_has_the_boxes_of_both(tmp_path, capsys):
    put(tmp_path, "images/a.jpg", "images/b.jpg")
    voc(tmp_path, "a", images="images", annotations="annotations")
    box = ",40,20,cat,1,2,12,13\n"
    other = ",40,20,cat,5,6,12,13\n"
    put(tmp_path, "data/train_labels.csv", text=f"{CSV}a.jpg{box}")
    put(tmp_path, "data/test_labels.csv", text=f"{CSV}a.jpg{box}a.jpg{other}b.jpg{box}")
    loaded(tmp_path)
    text = "(read: 3 boxes in 2 images; not read: 1 box in 1 image)"
    assert text in capsys.readouterr().out


def test_an_error_of_several_datasets_says_whose_images_one_describes(tmp_path):
    for folder, names in (("cats", "ab"), ("dogs", "cd")):
        for split, name in zip(("train", "val"), names):
            yolo(tmp_path / folder, split, split, [name], classes=None)
    put(tmp_path, "cats/train/a.txt", text="0 x 0.5 0.5 0.5\n")
    text = "path: /home/me/dogs\ntrain: train\nval: val\nnames: [dog]\n"
    put(tmp_path, "config/dogs.yaml", text=text)
    with pytest.raises(ValueError, match="datasets of different images") as error:
        load(tmp_path, "train")
    lines = str(error.value).splitlines()[1:]
    assert ["not counting what cannot be read" in line for line in lines] == [1, 0]
    assert lines[1].endswith(f"the same as YOLO in '{tmp_path / 'config'}'"), lines
    # Other boxes of the same images are another line.
    for split, name in (("train", "c"), ("val", "d")):
        row = f"{name}.jpg,40,20,puppy,2,3,14,16\n"
        put(tmp_path, f"tables/{split}.csv", text=CSV + row)
    with pytest.raises(ValueError, match="datasets of different images") as error:
        load(tmp_path, "train")
    lines = str(error.value).splitlines()[1:]
    assert lines[2].endswith(f"which lie in '{tmp_path / 'dogs'}'"), lines


def test_what_cannot_be_read_is_told_once(tmp_path, capsys):
    put(tmp_path, "pets/a.jpg")
    put(tmp_path, "pets/a.xml", text=VOC.format("a.jpg"))
    put(tmp_path, "code/b.jpg")
    put(tmp_path, "code/test.record")  # of no records
    assert loaded(tmp_path)[0] == {"train": ["a.jpg"]}
    assert capsys.readouterr().out.count("a dataset (TFRecord") == 1


def test_a_yaml_file_of_other_classes_is_not_of_the_folders_beside_it(tmp_path):
    for split, name in (("train", "a"), ("valid", "b")):
        yolo(tmp_path, f"{split}/images", f"{split}/labels", [name], classes="cat")
    text = "train: coco8/images/tr\nval: coco8/images/va\nnames: [person]\n"
    put(tmp_path, "coco8.yaml", text=text)
    with pytest.raises(FileNotFoundError, match="no path below .* ends like it"):
        load(tmp_path, "train")


def test_a_list_may_be_two_folders_below_its_images(tmp_path):
    yolo(tmp_path, "dataset/images", "dataset/labels", list("abcd"), classes=None)
    for split, names in (("train", "ab"), ("val", "cd")):
        text = "".join(f"images/{name}.jpg\n" for name in names)
        put(tmp_path, f"dataset/ImageSets/{split}.txt", text=text)
    text = "path: ../dataset/ImageSets\ntrain: train.txt\nval: val.txt\nnames: [cat]\n"
    put(tmp_path, "configs/data.yaml", text=text)
    names, _ = loaded(tmp_path / "configs")
    assert names == {"train": ["a.jpg", "b.jpg"], "val": ["c.jpg", "d.jpg"]}


def test_a_link_to_nowhere_in_another_folder_is_no_error(tmp_path):
    voc(tmp_path, "a", images="images")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/q.xml").symlink_to(tmp_path / "nowhere.xml")
    assert loaded(tmp_path)[0] == {"train": ["a.jpg"]}


def test_each_of_two_paths_may_have_the_same_images(tmp_path):
    for folder in ("one", "copy"):
        yolo(tmp_path / folder, names=["a"])
    with pytest.warns(UserWarning, match="'train' and 'val' contain the same 1 image"):
        load_each({"train": tmp_path / "one", "val": tmp_path / "copy"})


def via(folder, *names):
    region = {"name": "rect", "x": 1, "y": 2, "width": 12, "height": 13}
    regions = [{"shape_attributes": region, "region_attributes": {"class": "cat"}}]
    entry = {"size": -1, "file_attributes": {}, "regions": regions}
    content = {name: {**entry, "filename": name} for name in names}
    put(folder, "via_region_data.json", text=json.dumps(content))


def test_a_file_from_before_the_images_were_divided_does_not_hide_splits(
    tmp_path, capsys
):
    """The images of `pets/train` are more: some were turned after the division."""
    for split, names in (("train", ["a.jpg", "a_90.jpg", "b.jpg"]), ("val", ["c.jpg"])):
        put(tmp_path / "pets" / split, *names)
        via(tmp_path / "pets" / split, *names)
    via(tmp_path / "pets", "a.jpg", "b.jpg", "c.jpg")
    names, _ = loaded(tmp_path)
    assert names == {"train": ["a.jpg", "a_90.jpg", "b.jpg"], "val": ["c.jpg"]}
    said = capsys.readouterr().out
    assert "(read: 4 boxes in 4 images; not read: 3 boxes in 3 images)" in said
    assert "To read them, move the folders of the splits away." in said
    path = tmp_path / "pets" / "via_region_data.json"
    assert loaded(path)[0] == {"train": ["a.jpg", "b.jpg", "c.jpg"]}


@pytest.mark.parametrize("fault", ["copies", "one missing", "old", "no val", "two"])
def test_folders_of_splits_divide_a_file_only_if_they_hold_all_of_it(tmp_path, fault):
    names = [f"{name}.jpg" for name in "abcdef"]
    put(tmp_path / "images", *names)
    put(tmp_path, "all.json", text=coco(*(f"images/{name}" for name in names)))
    splits = {"train": names[:4], "val": names[4:]}
    if fault == "old":
        splits = {"train": names[:2], "val": names[2:3]}
    for split, own in splits.items():
        put(tmp_path / split, *own)
        listed = names if fault == "copies" else own
        text = coco(*listed)
        if fault == "no val" and split == "val":
            text = json.dumps(json.loads(text) | {"annotations": []})
        put(tmp_path / split, "labels.json", text=text)
    if fault == "one missing":
        text = coco("gone.jpg", *names[1:4])
        put(tmp_path, "train/labels.json", text=text)
    if fault == "two":
        put(tmp_path, "val/labels.json", text=coco(names[4]))
        put(tmp_path, "val/more.json", text=coco(names[5]))
    assert loaded(tmp_path)[0] == {"all": names}


def test_labelmes_own_list_of_classes_does_not_name_yolos_numbers(tmp_path):
    yolo(tmp_path / "pets", "images/tr", "labels/tr", ["a"], classes=None)
    yolo(tmp_path / "pets", "images/va", "labels/va", ["b"], classes=None)
    put(tmp_path, "labels.txt", text="__ignore__\n_background_\ncat\n")
    # As seen from the folder of the program, not from its own.
    text = "path: ../pets/\ntrain: images/tr\nval: images/va\nnames: [cat]\n"
    put(tmp_path, "yolov5/data/pets.yaml", text=text)
    assert loaded(tmp_path)[0] == {"train": ["a.jpg"], "val": ["b.jpg"]}
    assert load(tmp_path, "train").class_names == ("cat",)
    _, said = loaded(tmp_path / "pets")
    assert "no file with the names of the classes" in said


def test_other_names_of_the_same_boxes_are_told(tmp_path, capsys):
    yolo(tmp_path, names=["a", "b"], classes="dog")
    text = coco("images/a.jpg", "images/b.jpg")
    text = text.replace("[1, 2, 12, 13]", "[12, 6, 16, 8]")
    put(tmp_path, "all.json", text=text)
    load(tmp_path)
    said = capsys.readouterr().out
    assert "but the classes differ (read: 2 'cat'; not read: 2 'dog')." in said
    put(tmp_path, "classes.txt", text="cat")
    load(tmp_path)
    assert "both have 2 boxes in 2 images.\n" in capsys.readouterr().out


def test_a_format_without_names_does_not_name_other_classes(tmp_path, capsys):
    yolo(tmp_path, names=["a", "b"], classes=None)
    text = coco("images/a.jpg", "images/b.jpg")
    text = text.replace("[1, 2, 12, 13]", "[12, 6, 16, 8]")
    put(tmp_path, "all.json", text=text)
    load(tmp_path)
    assert "both have 2 boxes in 2 images.\n" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["<gps/>", "", VOC.replace("object", "thing")])
def test_xml_beside_the_images_must_be_that_of_the_usual_folder(tmp_path, text):
    voc(tmp_path, *"abcd", images="images", annotations="images")
    put(tmp_path, "images/d.xml", "images/a.xml", text=text)
    voc(tmp_path, *"ab", images="images", annotations="annotations")
    assert loaded(tmp_path)[0] == {"train": ["a.jpg", "b.jpg"]}


def test_xml_beside_the_images_is_read_where_the_usual_folder_has_that_of_a_few(
    tmp_path,
):
    voc(tmp_path, *"abcd", images="images", annotations="images")
    voc(tmp_path, *"ab", images="images", annotations="annotations")
    names, said = loaded(tmp_path)
    assert names == {"train": [f"{name}.jpg" for name in "abcd"]}
    assert "not those for the same images in 'annotations' (not read)" in said
    put(tmp_path, "annotations/c.xml", text=VOC.format("c.jpg"))
    names, said = loaded(tmp_path)  # which someone may have corrected
    assert names == {"train": [f"{name}.jpg" for name in "abc"]}
    assert "same images in 'images' (1 of other images) (not read)" in said


def test_a_list_whose_names_are_those_of_no_xml_file_is_told(tmp_path):
    voc(tmp_path, "01284", "01285", lists={"train": ["1284", "1285"]})
    match = "train.txt: none of its 2 names, such as '1284', is the name of an xml file"
    with pytest.raises(
        ValueError, match=f"{match} in .*, such as '01284'. Rename the entr"
    ):
        load(tmp_path)
    put(tmp_path, "ImageSets/Main/train.txt", text="01284\n1285\n")
    with pytest.raises(
        ValueError, match=r"1285\.xml: a line of .*, but it is not in '.*Annot"
    ):
        load(tmp_path)
    assert len(load(tmp_path, on_error="skip")) == 1


@pytest.mark.parametrize(("bottom", "is_told"), [(21, False), (36, True)])
def test_boxes_of_images_of_another_size_are_told(tmp_path, bottom, is_told):
    put(tmp_path, *(f"{name}.jpg" for name in "abcd"))
    rows = [
        f"{name}.jpg,40,20,cat,2,3,{20 + i},{bottom}\n" for i, name in enumerate("abc")
    ]
    put(tmp_path, "labels.csv", text=CSV + "".join(rows) + "d.jpg,40,20,cat,2,3,9,9\n")
    _, said = loaded(tmp_path)
    text = "3 of 4 boxes end far outside their image, such as at x 20, y 36 in 'a.jpg'"
    assert (text in said) == is_told
    assert (
        "width is 40 and height 20: do they belong to images of another" in said
    ) == is_told


def test_a_split_in_the_root_is_named_by_its_folder_beside_another_dataset(tmp_path):
    voc(tmp_path, *"abc", images="test", annotations="test")
    voc(tmp_path, "d", "e", images="labelled", annotations="labelled")
    with pytest.raises(ValueError, match="pass the folder of one of them") as error:
        load(tmp_path)
    assert f"'{tmp_path / 'test'}' is Pascal VOC: split test" in str(error.value)
    assert len(load(tmp_path / "test")) == 3


def test_many_txt_files_are_compared_with_each_other_by_no_reader(
    tmp_path, monkeypatch
):
    """15,442 of them took minutes."""
    compared, equal = [], pathlib.PurePath.__eq__

    def counted(one, other):
        compared.append(one)
        return equal(one, other)

    put(tmp_path, *(f"{i}.txt" for i in range(200)), text=ROW)
    monkeypatch.setattr(pathlib.PurePath, "__eq__", counted)
    with pytest.raises((ValueError, FileNotFoundError)):
        load(tmp_path)
    assert len(compared) < 200 * 50
