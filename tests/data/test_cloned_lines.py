"""Repositories of a further sample: which dataset is read, and what is told of it."""

import base64
import io
import json
import sys

import pytest
from PIL import Image
from support.cloned_files import CSV, ROW, VOC, coco, loaded, put, voc, yolo

from effdet_keras.data import load, load_splits
from effdet_keras.data.problems import MissingImageError, NoImageError


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


def test_rows_of_an_image_a_class_and_one_box_are_not_those_of_opencv(tmp_path):
    """Their images were missing, and the error named bad boxes of another format."""
    put(tmp_path, "logo.jpg")
    rows = (
        f"images\\{i}.jpg {label} 5 4 30 18\n" for i in (1, 2) for label in (0, 1, 2)
    )
    put(tmp_path, "annotations.txt", text="".join(rows))
    with pytest.raises(ValueError, match="has rows of an image and four or more"):
        load(tmp_path)


def test_a_missing_package_does_not_hide_pointers_of_git_lfs(tmp_path, monkeypatch):
    """All files of a KITTI dataset were pointers, and only the package was named."""
    monkeypatch.setitem(sys.modules, "datumaro", None)
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
    put(tmp_path, "training/label_2/000000.txt", text=text)
    (tmp_path / "training/image_2").mkdir()
    (tmp_path / "training/image_2/000000.png").write_text(text)
    with pytest.raises(ImportError, match=r"datumaro.*is a pointer of Git LFS"):
        load(tmp_path)


def test_the_only_json_file_of_a_dataset_is_no_second_dataset(tmp_path, capsys):
    put(tmp_path, "annotations/instances_val2017.json", text=coco("a.jpg"))
    put(tmp_path, "val2017/a.jpg")
    put(tmp_path, "train2017/b.jpg", color="red")
    assert list(load_splits(tmp_path)) == ["val2017"]
    assert "also has annotations" not in capsys.readouterr().out


def test_a_folder_without_the_first_images_of_a_json_file_is_found(tmp_path):
    """The error said that there is no folder, and to put the images into `images`."""
    names = [f"{i:04}.jpg" for i in range(25)]
    put(tmp_path, "data.json", text=coco(*names))
    put(tmp_path, *(f"images/{name}" for name in names[20:]))
    with pytest.raises(MissingImageError, match="found 20 missing images") as caught:
        load(tmp_path)
    assert not isinstance(caught.value, NoImageError)
    assert len(load(tmp_path, on_error="skip")) == 5
    # One image of 25 may have such a name by chance.
    for name in names[21:]:
        (tmp_path / "images" / name).unlink()
    with pytest.raises(NoImageError, match="found no folder with the images"):
        load(tmp_path)


def test_a_warning_about_files_of_all_splits_is_given_once(tmp_path):
    text = "train: /home/me/train/images\nval: /home/me/valid/images\nnames: [cat]\n"
    put(tmp_path, "data.yaml", text=text)
    for name in ("train", "valid"):
        yolo(tmp_path / name, names=[name], classes="")
    names, said = loaded(tmp_path)
    assert names == {"train": ["train.jpg"], "val": ["valid.jpg"]}
    assert said.count("2 of the places that 'data.yaml' names are paths of") == 1
    (tmp_path / "data.yaml").unlink()
    assert loaded(tmp_path)[1].count("no file with the names of the classes") == 1
    assert loaded(tmp_path)[1].count("no file with the names of the classes") == 1
    # Each dataset has the problem, whichever was read first.
    for dataset in load_splits(tmp_path).values():
        assert "classes without names" in {p.kind for p in dataset.problems}


def test_a_split_without_its_images_is_named_once(tmp_path, capsys):
    put(tmp_path, "annotations/instances_train2017.json", text=coco("a.jpg"))
    put(tmp_path, "annotations/instances_val2017.json", text=coco("b.jpg"))
    put(tmp_path, "train2017/x.jpg", "val2017/b.jpg")
    names, said = loaded(tmp_path, on_error="skip")
    assert names == {"val2017": ["b.jpg"]}
    said += capsys.readouterr().out
    assert said.count("The split 'train2017' was left out") == 1


def test_one_dataset_in_two_formats_is_listed_once(tmp_path):
    """The error counted csv and xml files of the same images as two datasets."""
    for split, name in (("train", "a"), ("test", "b")):
        row = f"{name}.jpg,40,20,cat,2,3,14,16\n"
        put(tmp_path, f"data/{split}_labels.csv", text=CSV + row)
        put(tmp_path, f"images/{split}/{name}.jpg")
        text = VOC.format(f"{name}.jpg")
        put(tmp_path, f"images/{split}/{name}.xml", text=text)
        put(tmp_path, f"other/{split}/{name}{name}.jpg", color="red")
    put(tmp_path, "other/train.json", text=coco("aa.jpg"))
    put(tmp_path, "other/test.json", text=coco("bb.jpg"))
    with pytest.raises(ValueError, match="holds 2 datasets of different") as caught:
        load_splits(tmp_path)
    assert "the same as CSV in" in str(caught.value)
    # A folder with another dataset as well is not what to pass, or only with a format.
    for file in (tmp_path / "other").glob("*.json"):
        file.rename(tmp_path / "data" / file.name)
    with pytest.raises(ValueError, match="holds 2 datasets of different") as caught:
        load_splits(tmp_path)
    text = "images' is Pascal VOC: splits test, train; 2 boxes in 2 images; the same as"
    assert f"{text} CSV in" in str(caught.value)
    assert "(pass that folder and format='coco', --format)" in str(caught.value)
    assert len(load_splits(tmp_path / "images")) == 2
    assert len(load_splits(tmp_path / "data", format="csv")) == 2


def test_images_of_a_split_lie_beside_its_folder_of_json_files(tmp_path):
    """`labels_test` has json files and `images_test` their images; copies were read."""

    def write(split, name, size=(40, 20)):
        put(tmp_path, f"{split}/images_{split}/{name}.jpg")
        shape = {"label": "cat", "shape_type": "rectangle", "points": [[2, 3], [14, 9]]}
        inner = io.BytesIO()
        Image.new("RGB", size).save(inner, "JPEG")
        content = {
            "imagePath": f"../{name}.jpg",
            "shapes": [shape],
            "imageData": base64.b64encode(inner.getvalue()).decode(),
            "imageWidth": size[0],
            "imageHeight": size[1],
        }
        text = json.dumps(content)
        put(tmp_path, f"{split}/labels_{split}/{name}.json", text=text)

    write("train", "a")
    write("test", "b")
    splits = load_splits(tmp_path)
    images = [record.image for d in splits.values() for record in d.records]
    assert all(isinstance(image, str) for image in images)
    # An image that is read from inside its json file has an annotation.
    write("test", "c", size=(80, 40))
    put(tmp_path, "test/images_test/d.jpg")
    names, said = loaded(tmp_path)
    assert names["test"] == ["b.jpg", "c.jpg"]
    assert "1 of 3 images was not read" in said and "d.jpg" in said


def test_a_split_without_any_box_is_told(tmp_path, capsys):
    """Images that nobody annotated were read as images without objects, in silence."""
    put(tmp_path, "train2017/a.jpg", "unlabeled2017/b.jpg", "unlabeled2017/c.jpg")
    put(tmp_path, "annotations/instances_train2017.json", text=coco("a.jpg"))
    content = json.loads(coco("b.jpg", "c.jpg")) | {"annotations": []}
    name = "annotations/instances_unlabeled2017.json"
    put(tmp_path, name, text=json.dumps(content))
    splits = load_splits(tmp_path)
    assert {split: len(d) for split, d in splits.items()} == {
        "train2017": 1,
        "unlabeled2017": 2,
    }
    text = (
        "The split 'unlabeled2017' has no box: its 2 images are read as images without"
    )
    assert text in capsys.readouterr().out
