"""Datasets as people leave them: found, read from the right files, or told of."""

import json
import sys
import warnings

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
    yolo,
)

from effdet_keras import data
from effdet_keras.data import check, find_dataset, load, load_splits
from effdet_keras.data.find_dataset import find
from effdet_keras.data.formats import reading
from effdet_keras.data.problems import NoImageError

# --- What belongs to a dataset.


@pytest.mark.parametrize(
    "stranger, text",
    [
        (".idea/misc.xml", VOC),
        (".ipynb_checkpoints/a.txt", ROW),
        ("images/.ipynb_checkpoints/a-checkpoint.jpg", ""),
        ("__MACOSX/images/._a.jpg.txt", ROW),
        ("images/._a.txt", "\0"),
        ("._data.yaml", "\0\1"),
        ("mkdocs.yml", "x: !!python/name:foo\n"),
        ("args.yaml", "- a\n- b\n"),
        ("two.yaml", "a: 1\n---\nb: 2\n"),
        ("notes.yaml", "{this: is [not yaml\n\t- at all"),
        ("models/best.xml", VOC),
    ],
)
@pytest.mark.parametrize("yaml", ["data.yaml", "pets.yaml", None])
def test_files_of_other_programs_are_no_data(tmp_path, stranger, text, yaml):
    yolo(tmp_path, "images/train", "labels/train")
    if yaml:
        put(tmp_path, yaml, text="train: images/train\nnames: [cat]")
    put(tmp_path, stranger, text=text)
    names, said = loaded(tmp_path)
    assert names == {"train": ["a.jpg"]} and said == ""


def test_xml_files_of_other_programs_are_no_voc(tmp_path):
    put(tmp_path, ".idea/misc.xml", "pom.xml", text='<project version="4"/>')
    put(tmp_path, "strings.xml", text="<resources><string/></resources>")
    put(tmp_path, "a.jpg")
    with pytest.raises(ValueError, match="No dataset was found"):
        load(tmp_path)


def test_of_two_yaml_files_with_splits_the_one_whose_folders_are_there_is_read(
    tmp_path,
):
    yolo(tmp_path, "images/train", "labels/train")
    put(tmp_path, "pets.yaml", text="train: images/train\nnames: [cat]")
    put(tmp_path, "coco.yaml", text="train: nowhere\nnames: [a]")
    names, said = loaded(tmp_path)
    assert names == {"train": ["a.jpg"]}
    assert "of several yaml files with splits, 'pets.yaml' is read" in said
    assert "'coco.yaml'" in said


# --- Where it is.


@pytest.mark.parametrize("place", ["dataset", "data/pets", "a/b/c"])
def test_data_beside_code_are_found_in_the_folders_below(tmp_path, place, capsys):
    yolo(tmp_path / place)
    put(tmp_path, "README.md", "tools/export.py", "docs/a.md", text="# text")
    put(tmp_path, "logo.png", "docs/images/shot.png")
    assert loaded(tmp_path)[0] == {"train": ["a.jpg"]}
    assert f"{str(tmp_path / place)!r} is YOLO" in capsys.readouterr().out


def test_a_tree_of_many_folders_is_looked_into_so_far_and_no_farther(
    tmp_path, monkeypatch
):
    """Level by level: where one has more, nothing below it is looked into."""
    for first in range(6):
        for second in range(5):
            (tmp_path / f"{first}" / f"{second}").mkdir(parents=True)
    looked, find_in = [], find_dataset.find_in

    def counted(folder, formats):
        looked.append(folder)
        return find_in(folder, formats)

    monkeypatch.setattr(find_dataset, "find_in", counted)
    for limit, expected in ((4, 4), (6, 6), (9, 9)):
        monkeypatch.setattr(find_dataset, "_MAX_FOLDERS", limit)
        looked.clear()
        assert find_dataset.find_below(tmp_path, ["coco"]) == ([], [])
        assert len(looked) == expected


def test_several_datasets_below_are_offered_by_name(tmp_path):
    yolo(tmp_path / "cats", names=("a", "b"))
    put(tmp_path / "dogs", "c.jpg", "d.jpg")
    put(tmp_path / "dogs", "c.xml", "d.xml", text=VOC)
    with pytest.raises(ValueError, match="holds 2 datasets") as caught:
        load(tmp_path)
    assert f"{str(tmp_path / 'cats')!r} is YOLO: split train" in str(caught.value)
    assert f"{str(tmp_path / 'dogs')!r} is Pascal VOC" in str(caught.value)


def test_annotations_without_their_images_are_named(tmp_path):
    put(tmp_path, "a/a.xml", text=VOC)
    put(tmp_path, "b/a.csv", text=f"{CSV}b.jpg,40,20,cat,1,2,14,16\n")
    with pytest.raises(ValueError, match=r"annotations \(Pascal VOC, CSV\), but none"):
        load(tmp_path)


def test_the_error_of_annotations_that_cannot_be_read_says_why(tmp_path):
    put(tmp_path, "a/a.csv", text=f"{CSV}b.jpg,40,20,cat,1,2,14,16\n")
    put(tmp_path, "b/c.jpg")
    put(tmp_path, "b/c.xml", text=VOC.replace("<xmin>2", "<xmin>x"))
    with pytest.raises(ValueError, match="none of them can be read") as caught:
        load(tmp_path)
    assert f"{str(tmp_path / 'a')!r}, CSV: split a: " in str(caught.value)
    assert f"{str(tmp_path / 'b')!r}, Pascal VOC: split train: " in str(caught.value)
    assert "found no object" in str(caught.value)


def test_a_dataset_in_a_folder_of_models_counts_if_there_is_no_other(tmp_path):
    yolo(tmp_path / "models" / "pets", names=("z",))
    assert loaded(tmp_path)[0] == {"train": ["z.jpg"]}
    yolo(tmp_path / "data")
    assert loaded(tmp_path)[0] == {"train": ["a.jpg"]}


def test_a_csv_made_of_xml_files_in_another_folder_is_read_for_its_splits(
    tmp_path, capsys
):
    for split, name in (("train", "a"), ("test", "b")):
        put(tmp_path, f"images/{split}/{name}.jpg")
        put(tmp_path, f"images/{split}/{name}.xml", text=VOC.format(f"{name}.jpg"))
        row = f"{name}.jpg,40,20,cat,1,2,14,16\n"
        put(tmp_path, f"data/{split}_labels.csv", text=CSV + row)
    assert loaded(tmp_path)[0] == {"test": ["b.jpg"], "train": ["a.jpg"]}
    assert "were not read: both have 2 boxes in 2 images.\n" in capsys.readouterr().out


# --- Splits and images in folders below.


def test_the_csv_files_of_a_data_folder_are_the_splits_of_xml_files(tmp_path, capsys):
    put(tmp_path, "images/a.jpg", "images/b.jpg")
    rows = {}
    for name in "ab":
        put(tmp_path, f"annotations/{name}.xml", text=VOC.format(f"{name}.jpg"))
        rows[name] = f"{name}.jpg,40,20,cat,1,2,14,16\n"
    assert loaded(tmp_path)[0] == {"train": ["a.jpg", "b.jpg"]}
    put(tmp_path, "data/train_labels.csv", text=CSV + rows["a"])
    put(tmp_path, "data/test_labels.csv", text=CSV + rows["b"])
    put(tmp_path, "data/pets_labels.csv", text=CSV + rows["a"] + rows["b"])
    capsys.readouterr()
    assert loaded(tmp_path)[0] == {"test": ["b.jpg"], "train": ["a.jpg"]}
    said = capsys.readouterr().out
    assert "VOC. They were not read: both have 2 boxes in 2 images.\n" in said
    text = (
        "'pets_labels' was left out, because all its images are also in the splits te"
    )
    assert text in said
    assert list(find(tmp_path, "voc").readers) == ["train"]


def test_other_images_with_splits_in_a_folder_below_are_not_taken(tmp_path):
    put(tmp_path, "images/a.jpg", "images/b.jpg")
    put(tmp_path, "annotations/a.xml", text=VOC.format("a.jpg"))
    put(tmp_path, "annotations/b.xml", text=VOC.format("b.jpg"))
    for split in ("train", "val"):
        yolo(tmp_path / "demo", f"images/{split}", f"labels/{split}", names=(split,))
    assert loaded(tmp_path)[0] == {"train": ["a.jpg", "b.jpg"]}


def test_a_file_without_its_images_gives_way_to_a_dataset_below(tmp_path):
    put(tmp_path, "dataset/annotations/instances_default.json", text=coco("z.jpg"))
    for split in ("train", "val"):
        folder = tmp_path / "dataset" / "splits" / split
        put(folder, f"images/{split}.jpg")
        put(folder, "annotations/instances.json", text=coco(f"{split}.jpg"))
    assert loaded(tmp_path)[0] == {"train": ["train.jpg"], "val": ["val.jpg"]}
    # One image of the file is enough: it is meant, and what is wrong is told.
    put(tmp_path, "dataset/z.jpg")
    assert loaded(tmp_path)[0] == {"train": ["z.jpg"]}


def test_a_copy_of_all_images_in_two_splits_counts_once(tmp_path):
    put(tmp_path, "a.jpg", "b.jpg", "c.jpg")
    put(tmp_path, "a.xml", "b.xml", text=VOC)
    row = ",40,20,cat,1,2,14,16\n"
    put(tmp_path, "train.csv", text=f"{CSV}a.jpg{row}")
    put(tmp_path, "test.csv", text=f"{CSV}b.jpg{row}")
    put(tmp_path, "whole.csv", text=f"{CSV}a.jpg{row}b.jpg{row}")
    assert loaded(tmp_path)[0] == {"test": ["b.jpg"], "train": ["a.jpg"]}
    put(tmp_path, "whole.csv", text=f"{CSV}a.jpg{row}c.jpg{row}")
    assert "whole" in loaded(tmp_path)[0]


# --- Splits.


def test_records_in_a_folder_beside_the_images_are_a_split_each(tmp_path):
    put(tmp_path, "source/train/a.jpg", "source/test/b.jpg")
    for split, name in (("train", "a"), ("test", "b")):
        row = f"{split}/{name}.jpg,40,20,cat,1,2,14,16\n"
        put(tmp_path, f"source/{split}.csv", text=CSV + row)
    data.convert(tmp_path / "source", tmp_path / "records", "tfrecord")
    work = tmp_path / "work" / "annotations"
    work.mkdir(parents=True)
    (work.parent / "images").mkdir()
    for split in ("train", "test"):
        (record,) = (tmp_path / "records").glob(f"{split}-*")
        record.rename(work / f"{split}.record")
    put(work, "label_map.pbtxt", text="item { id: 1 name: 'cat' }")
    assert loaded(work.parent)[0] == {"test": ["b.jpg"], "train": ["a.jpg"]}
    # With one of the records alone, the xml files that it was made of have more.
    (work / "train.record").unlink()
    for split, name in (("train", "a"), ("test", "b")):
        put(work.parent, f"images/{split}/{name}.jpg")
        put(work.parent, f"images/{split}/{name}.xml", text=VOC.format(f"{name}.jpg"))
    assert loaded(work.parent)[0] == {"test": ["b.jpg"], "train": ["a.jpg"]}


def test_records_of_one_image_each_are_one_split(tmp_path):
    put(tmp_path, "source/a.jpg", "source/b.jpg")
    rows = [f"{name}.jpg,40,20,cat,1,2,14,16\n" for name in "ab"]
    put(tmp_path, "source/train.csv", text=CSV + "".join(rows))
    data.write_tfrecord(load(tmp_path / "source"), tmp_path / "out", num_shards=2)
    for i, path in enumerate(sorted((tmp_path / "out").glob("train-*"))):
        path.rename(path.with_name(f"cat{i}.tfrecord"))
    assert list(load_splits(tmp_path / "out")) == ["train"]
    assert len(load(tmp_path / "out")) == 2


def test_every_json_of_a_folder_is_read(tmp_path):
    put(tmp_path, "images/train/a.jpg", "images/val/b.jpg", "images/c.jpg")
    folder = tmp_path / "annotations"
    put(folder, "instances_default.json", text=coco("train/a.jpg"))
    put(folder, "val_instances_default.json", text=coco("val/b.jpg"))
    assert loaded(tmp_path)[0] == {"train": ["a.jpg"], "val": ["b.jpg"]}
    put(folder, "person_keypoints_val.json", text=coco("val/b.jpg"))
    assert list(load_splits(tmp_path)) == ["train", "val"]
    # Names that mean the same split do not hide each other.
    put(folder, "labels.json", text=coco("c.jpg"))
    names = loaded(tmp_path)[0]
    assert sorted(names.values()) == [["a.jpg"], ["b.jpg"], ["c.jpg"]]
    put(tmp_path, "images/d.jpg")
    put(folder, "val.json", text=coco("d.jpg"))  # the split of another file
    assert {"b.jpg", "d.jpg"} <= {
        n for names in loaded(tmp_path)[0].values() for n in names
    }


@pytest.mark.parametrize(
    "folders, splits",
    [
        (("train", "valid"), ["train", "valid"]),
        (("Train", "Test"), ["test", "train"]),
        (("training", "testing"), ["test", "train"]),
        (("trainset", "valset"), ["train", "val"]),
        (("train2017", "val2017"), ["train2017", "val2017"]),
        (("obj_train_data", "obj_valid_data"), ["train", "valid"]),
        (("train_images", "val_images"), ["train", "val"]),
    ],
)
@pytest.mark.parametrize("kind", ["txt", "xml", "csv", "json"])
def test_folders_of_splits_by_the_names_that_people_give(
    tmp_path, folders, splits, kind
):
    texts = {"txt": ROW, "xml": VOC.format("a.jpg")}
    texts |= {"csv": f"{CSV}a.jpg,40,20,cat,1,2,14,16\n", "json": coco("a.jpg")}
    files = {"csv": "_annotations.csv", "json": "_annotations.coco.json"}
    for folder in folders:
        put(tmp_path / folder, "a.jpg")
        put(tmp_path / folder, files.get(kind, f"a.{kind}"), text=texts[kind])
    if kind == "txt":
        put(tmp_path / folders[0], "_darknet.labels", text="cat\n")
    # A folder of one split knows it, too.
    assert next(iter(load_splits(tmp_path / folders[0]))).startswith("train")
    datasets = load_splits(tmp_path)
    assert sorted(datasets) == splits
    for dataset in datasets.values():
        assert len(dataset) == 1 and dataset.class_names == ("cat",)
    assert len(load(tmp_path, "train")) == 1  # `train2017` as well


def test_darknet_lists_and_data_files(tmp_path):
    for split in ("train", "valid"):
        put(tmp_path, f"obj_{split}_data/{split}.jpg")
        put(tmp_path, f"obj_{split}_data/{split}.txt", text=ROW)
        line = f"data/obj_{split}_data/{split}.jpg\n"
        put(tmp_path, f"{split}.txt", text=line)
    put(tmp_path, "obj.names", text="cat\n")
    wanted = {"train": ["train.jpg"], "valid": ["valid.jpg"]}
    assert loaded(tmp_path) == (wanted, "")
    text = "train = data/train.txt\nvalid = data/valid.txt\nnames = data/obj.names"
    put(tmp_path, "obj.data", text=text)
    assert loaded(tmp_path) == (wanted, "")
    assert loaded(tmp_path / "obj.data") == (wanted, "")


@pytest.mark.parametrize(
    "images, labels",
    [
        ("img", "labels"),
        ("Images", "Labels"),
        ("images", "annotations"),
        ("pictures", "txt"),
        ("frames", "boxes"),
        ("train/images", "train/labels"),
        ("train_images", "train_labels"),
        ("images/train", "labels"),
        ("imagens/train", "labels/train"),
        ("train", "labels/train"),
    ],
)
def test_folders_of_images_and_of_txt_files(tmp_path, images, labels):
    yolo(tmp_path, images, labels, names=("a", "b"))
    datasets = load_splits(tmp_path)
    assert [len(d) for d in datasets.values()] == [2] and list(datasets) == ["train"]
    assert all(len(r.labels) == 1 for r in datasets["train"].records)
    assert datasets["train"].class_names == ("cat",)


@pytest.mark.parametrize("images", ["Images", "img", "JPEGImages"])
@pytest.mark.parametrize("xmls", ["Annotations", "annotations/xmls", "Annotation"])
def test_voc_folders_by_other_names(tmp_path, images, xmls):
    put(tmp_path, f"{images}/a.jpg")
    put(tmp_path, f"{xmls}/a.xml", text=VOC.format("a.jpg"))
    assert loaded(tmp_path) == ({"train": ["a.jpg"]}, "")


def test_splits_that_share_images_are_told(tmp_path):
    yolo(tmp_path, names=("a", "b"))
    put(tmp_path, "data.yaml", text="train: images\nval: ../x/images\nnames: [cat]")
    folder = tmp_path.rename(tmp_path.with_name("x"))
    with pytest.warns(UserWarning, match="'train' and 'val' contain the same 2 images"):
        splits = load_splits(folder)
    assert [p.kind for p in splits["val"].problems] == ["shared images"]
    with pytest.warns(UserWarning, match="'val' and 'train' contain the same images"):
        load(folder, "val")


def test_copies_in_two_splits_are_told(tmp_path):
    for split in ("train", "val"):
        yolo(tmp_path, f"images/{split}", f"labels/{split}", names=("a", split))
    Image.new("RGB", (40, 20), "red").save(tmp_path / "images/val/val.jpg")
    said = loaded(tmp_path)[1]
    assert "1 of the 2 images of 'val' is also in 'train'" in said
    Image.new("RGB", (40, 20), "blue").save(tmp_path / "images/val/a.jpg")
    assert loaded(tmp_path)[1] == ""  # the same name is not the same image


# --- Paths of other machines.

FOREIGN = [
    r"C:\Users\me\pets\images\x.png",
    r"..\..\label-studio\media\upload\4\x.png",
    "/home/me/pets/x.png",
    "https://host/up/x.png?w=3",
    "/data/local-files/?d=pets/x.png",
    "1a2b3c4d-x.png",
    "X.PNG",
]


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("format", ["coco", "voc", "csv"])
def test_paths_of_other_machines_are_found_by_their_ending(tmp_path, name, format):
    put(tmp_path, "pictures/deep/x.png", "pictures/y.png")
    if format == "coco":
        put(tmp_path, "result.json", text=coco(name))
    elif format == "voc":
        put(tmp_path, "annotations/0001.xml", text=VOC.format(name))
    else:
        put(tmp_path, "boxes.csv", text=f"{CSV}{name},40,20,cat,1,2,14,16\n")
    with pytest.warns(UserWarning, match="1 of 1 image is not where the ann"):
        dataset = load(tmp_path)
    assert paths(dataset, tmp_path) == ["pictures/deep/x.png"]
    assert [p.kind for p in dataset.problems] == ["moved images"]


def test_the_longest_ending_counts_and_must_be_one_image(tmp_path):
    put(tmp_path, "a/pets/x.png", "z/y.png")
    put(tmp_path, "a/cars/x.png", "w/y.png", color="red")
    put(tmp_path, "one.json", text=coco("/home/me/pets/x.png"))
    with pytest.warns(UserWarning, match="not where the annotations say"):
        assert paths(load(tmp_path), tmp_path) == ["a/pets/x.png"]
    for name in ("/home/me/x.png", "/home/me/y.png", "gone.png"):
        put(tmp_path, "one.json", text=coco(name))
        with pytest.raises(FileNotFoundError, match="no folder with the images"):
            load(tmp_path)


def test_an_image_is_never_taken_from_another_split_nor_taken_twice(tmp_path):
    put(tmp_path, "train/a.png", "train/b.png", "valid/a.png")
    put(tmp_path, "train.json", text=coco("a.png", "b.png"))
    put(tmp_path, "valid.json", text=coco("a.png", "b.png"))
    with pytest.raises(FileNotFoundError, match=r"1 missing image: .*valid.b\.png"):
        load(tmp_path, "valid")
    put(tmp_path / "other", "images/a.png")
    put(tmp_path / "other", "x.json", text=coco("/p/a.png", "/q/a.png"))
    with pytest.raises(FileNotFoundError, match="no folder with the images"):
        load(tmp_path / "other")
    # Nor an image of another size than annotated.
    put(tmp_path / "other", "x.json", text=coco("/p/a.png", size=(400, 20)))
    sizes = r"width are \(20, 40\), those in the annotations \(20, 400\)"
    with pytest.raises(FileNotFoundError, match=rf"1 missing image: .*a\.png.*{sizes}"):
        load(tmp_path / "other")


def test_the_error_names_the_images_of_which_none_could_be_taken(tmp_path):
    put(tmp_path, "a/x.png", "b/y.png")
    put(tmp_path, "b/x.png", color="red")
    rows = "/me/x.png,40,20,cat,1,2,14,16\n/me/y.png,40,20,cat,1,2,14,16\n"
    put(tmp_path, "boxes.csv", text=f"{CSV}{rows}")
    message = (
        r"2 images have that name, such as '.*a.x\.png', '.*b.x\.png': it is unclear"
    )
    with pytest.raises(FileNotFoundError, match=f"1 missing image: .*{message}"):
        load(tmp_path)
    rows = "/me/a/x.png,40,20,cat,1,2,14,16\n/p/y.png,40,20,cat,1,2,14,16\n"
    rows += "/q/y.png,40,20,cat,1,2,14,16\n"
    put(tmp_path, "boxes.csv", text=f"{CSV}{rows}")
    message = r"b.y\.png' has that name, but belongs to another entry or another s"
    with pytest.raises(FileNotFoundError, match=f"2 missing images: .*{message}"):
        load(tmp_path)


@pytest.mark.parametrize(
    "path, train",
    [
        ("", r"C:\Users\me\Cells.v2i\train\images"),
        ("", "/content/pets/train/images"),
        ("", "../pets/train/images"),
        ("", r".\train\images"),
        ("", "train/images'"),
        ("D:/pets", "train/images"),
        ("~/pets", "train/images"),
        ("/Users/me/pets", "train/images"),
    ],
)
@pytest.mark.parametrize("inner", ["", "data/"])
def test_folders_of_another_machine_in_a_data_yaml(tmp_path, path, train, inner):
    for split in ("train", "valid"):
        yolo(tmp_path, f"{inner}{split}/images", f"{inner}{split}/labels", (split,))
    valid = train.replace("train", "valid")
    text = f"path: {path}\ntrain: {train}\nval: {valid}\nnames: [cat]\n"
    put(tmp_path, "data.yaml", text=text)
    assert loaded(tmp_path)[0] == {"train": ["train.jpg"], "val": ["valid.jpg"]}


def test_a_split_that_is_gone_is_not_that_of_another(tmp_path):
    yolo(tmp_path, "images", "labels")
    text = "train: /home/me/images\nval: /home/me/valid/images\nnames: [cat]"
    put(tmp_path, "data.yaml", text=text)
    names, said = loaded(tmp_path)
    assert names == {"train": ["a.jpg"]}
    assert "'/home/me/images' is" in said and "the split 'val'" in said
    put(tmp_path, "data.yaml", text="train: nowhere/train\nnames: [cat]")
    with pytest.raises(ValueError, match="Not readable: YOLO: .*nowhere/train"):
        load(tmp_path)


def test_yaml_files_of_a_program_for_many_datasets_are_no_dataset(tmp_path):
    for name in ("coco", "voc"):
        text = f"path: ../datasets/{name}\ntrain: images/train\nnames: [a]"
        put(tmp_path, f"yolov5/data/{name}.yaml", text=text)
    put(tmp_path, "yolov5/runs/train/exp/batch0.jpg", "yolov5/data/images/bus.jpg")
    with pytest.raises(ValueError, match="No dataset was found"):
        load(tmp_path)
    yolo(tmp_path / "pets")
    assert loaded(tmp_path)[0] == {"train": ["a.jpg"]}


def test_a_data_yaml_of_names_alone_goes_with_folders_that_speak_for_themselves(
    tmp_path,
):
    yolo(tmp_path, classes=None)
    put(tmp_path, "data.yaml", text="nc: 1\nnames: [Katze]")
    assert load(tmp_path).class_names == ("Katze",)


# --- Names of classes.


@pytest.mark.parametrize(
    "file, text",
    [
        ("classes.txt", "cat\ndog\n"),
        ("labels/classes.txt", "cat\ndog"),
        ("images/classes.txt", "cat\ndog"),
        ("dataset/classes.txt", "cat\ndog"),
        ("obj.names", "cat\ndog"),
        ("cfg/pets.names", "cat\ndog"),
        ("_darknet.labels", "cat\ndog"),
        ("labels.txt", "cat\ndog"),
        ("predefined_classes.txt", "cat\ndog"),
        (
            "notes.json",
            '{"categories": [{"id": 1, "name": "dog"}, {"id": 0, "name": "cat"}]}',
        ),
        ("label_map.pbtxt", "item { id: 1 name: 'cat' } item { id: 2 name: 'dog' }"),
        ("config/pets.yaml", "names: {0: cat, 1: dog}"),
    ],
)
def test_names_of_classes_are_found_where_tools_put_them(tmp_path, file, text):
    yolo(tmp_path, classes=None)
    put(tmp_path, file, text=text)
    dataset = load(tmp_path)
    assert dataset.class_names == ("cat", "dog") and dataset.problems == ()


def test_classes_without_names_are_told_and_can_be_named(tmp_path):
    yolo(tmp_path, classes=None)
    put(tmp_path, "labels.txt", text="images/a.jpg")  # a list, not of classes
    with pytest.warns(UserWarning, match="called by their numbers, '0'"):
        assert load(tmp_path).class_names == ("0",)
    dataset = load(tmp_path, class_names=["cat", "dog"])
    assert dataset.class_names == ("cat", "dog") and dataset.problems == ()
    assert dataset.records[0].labels.tolist() == [0]


def test_data_yaml_that_counts_other_classes_than_it_names(tmp_path):
    yolo(tmp_path)
    put(tmp_path, "data.yaml", text="train: images\nnc: 3\nnames: [cat]")
    with pytest.warns(UserWarning, match="says `nc: 3`, but has 1 names"):
        load(tmp_path)


# --- Images.


def test_images_without_a_txt_file_are_counted(tmp_path):
    yolo(tmp_path, names=("a", "b"))
    put(tmp_path, "images/c.jpg", "images/d.jpg", "images/e.jpg")
    put(tmp_path, "labels/e.txt")  # which says that there is nothing
    with pytest.warns(UserWarning, match=r"2 of 5 images have no txt file.*'c\.jpg'"):
        dataset = load(tmp_path)
    assert [len(r.labels) for r in dataset.records] == [1, 1, 0, 0, 0]
    assert [p.kind for p in dataset.problems] == ["images without txt file"]
    with warnings.catch_warnings(action="error"):
        assert len(load(tmp_path, unlabelled="negative")) == 5
        assert len(load(tmp_path, unlabelled="skip")) == 3
        assert len(load_splits(tmp_path, unlabelled="skip")["train"]) == 3
        data.convert(tmp_path, tmp_path / "out", "coco", unlabelled="skip")
    assert len(load(tmp_path / "out")) == 3
    assert "images without txt file" in str(check(tmp_path, model=None))
    assert len(check(tmp_path, model=None, unlabelled="skip").dataset) == 3
    with pytest.raises(ValueError, match="`unlabelled` must be .*'maybe'"):
        load(tmp_path, unlabelled="maybe")
    with pytest.raises(ValueError, match="formats with one annotation file per image"):
        load(tmp_path / "out", unlabelled="skip")


def test_folders_of_raw_images_beside_txt_files_are_left_out(tmp_path):
    put(tmp_path, "a.jpg", "b.jpg", "raw/a.jpg", "more/c.jpg")
    put(tmp_path, "a.txt", "more/c.txt", text=ROW)
    put(tmp_path, "classes.txt", text="cat")
    names, said = loaded(tmp_path)
    assert names == {"train": ["a.jpg", "b.jpg", "c.jpg"]}
    assert "1 of 4 images is left out, because no image in" in said and "raw" in said
    assert "1 of 3 images has no txt file, such as 'b.jpg'" in said
    assert len(load(tmp_path, unlabelled="negative")) == 4
    assert len(load(tmp_path, unlabelled="skip")) == 2


@pytest.mark.parametrize(
    "image, label", [("A.jpg", "A.TXT"), ("\xe9.jpg", "e\u0301.txt")]
)
def test_txt_files_of_no_image_are_counted(tmp_path, image, label):
    yolo(tmp_path)
    put(tmp_path, f"images/{image}")
    put(tmp_path, f"labels/{label}", "labels/gone.txt", text=ROW)
    put(tmp_path, "labels/README.txt", text="how it was made")
    with pytest.warns(UserWarning, match="2 txt files with boxes belong to no image"):
        load(tmp_path)


@pytest.mark.parametrize("format", ["yolo", "voc", "coco"])
def test_every_image_that_pillow_reads_counts(tmp_path, format):
    image = Image.new("RGB", (40, 20))
    endings = {"avif": "AVIF", "jp2": "JPEG2000", "mpo": "MPO", "ppm": "PPM"}
    endings |= {"tga": "TGA", "jfif": "JPEG", "JPG": "JPEG", "pjpeg": "JPEG"}
    names = [f"{i}.{ending}" for i, ending in enumerate(endings)]
    (tmp_path / "images").mkdir()
    for name, kind in zip(names, endings.values()):
        image.save(tmp_path / "images" / name, format=kind)
    put(tmp_path, "images/film.mp4", "images/raw.dng", "images/raw2.dng", text="x")
    for i, name in enumerate(names):
        put(tmp_path, f"labels/{i}.txt", text=ROW) if format == "yolo" else None
        if format == "voc":
            put(tmp_path, f"annotations/{i}.xml", text=VOC.format(name))
    if format == "coco":
        put(tmp_path, "train.json", text=coco(*names))
    found, said = loaded(tmp_path)
    assert found == {"train": names}
    if format == "yolo":
        assert "3 files among the images are left out" in said
        assert "2 .dng, 1 .mp4" in said


def test_heif_is_read_with_its_package_and_named_without_it(tmp_path, monkeypatch):
    from effdet_keras import images

    (tmp_path / "a.heic").write_bytes(b"no image")
    monkeypatch.setattr(images.pillow_heif, "is_installed", lambda: False)
    with pytest.raises(ValueError, match=r"pip install \"effdet-keras\[heif\]\""):
        images.read_image_size(tmp_path / "a.heic")


def test_lists_of_images_that_are_not_there_are_named(tmp_path):
    put(
        tmp_path, "data/obj.data", text="train = data/train.txt\nnames = data/obj.names"
    )
    put(tmp_path, "data/train.txt", text="data/obj/a.jpg\n")
    put(tmp_path, "logo.png")
    with pytest.raises(ValueError, match=r"1 image in all.*obj\.data' names lists"):
        load(tmp_path)


def test_what_a_folder_of_nothing_is_said_to_hold(tmp_path):
    put(tmp_path, ".idea/x.xml", text=VOC)
    put(tmp_path, "code/main.py", "README.md", text="x")
    with pytest.raises(ValueError, match=r"which holds README\.md, code/\. Looked for"):
        find(tmp_path)


# --- txt files in other places, and of other tools.


def test_txt_files_in_a_folder_among_the_images_of_each_class(tmp_path):
    """The OIDv4 ToolKit's folders: a name, and corners in pixels."""
    for split, name in (("train", "a"), ("validation", "b")):
        put(tmp_path, f"Dataset/{split}/Alarm clock/{name}.jpg")
        text = "Alarm clock 4 6.5 30 16\n"
        put(tmp_path, f"Dataset/{split}/Alarm clock/Label/{name}.txt", text=text)
    names, said = loaded(tmp_path)
    assert names == {"train": ["a.jpg"], "validation": ["b.jpg"]} and said == ""
    train = load(tmp_path, "train")
    assert train.class_names == ("Alarm clock",)
    assert train[0]["boxes"].tolist() == [[6.5, 4, 16, 30]]


def test_names_of_classes_in_rows_of_fractions(tmp_path):
    yolo(tmp_path, classes=None)
    put(tmp_path, "labels/a.txt", text="red cat 0.5 0.5 0.5 0.5\ndog 1 1 1 1\n")
    dataset = load(tmp_path)
    assert dataset.class_names == ("dog", "red cat")
    assert dataset[0]["boxes"].tolist()[0] == [5, 10, 15, 30]
    put(tmp_path, "classes.txt", text="Red Cat\nDog\n")
    assert load(tmp_path)[0]["labels"].tolist() == [0, 1]


def test_txt_files_whose_images_have_other_folders(tmp_path):
    for split, names in (("train", "ab"), ("val", "c")):
        for name in names:
            put(tmp_path, f"data/labels/{split}/{name}.txt", text=ROW)
    put(tmp_path, "data/raw/near/a.jpg", "data/raw/far/b.jpg", "data/raw/far/c.jpg")
    put(tmp_path, "data/raw/far/z.jpg")
    text = "path: ../data\ntrain: images/train\nval: images/val\nnames: [cat]"
    for _ in range(2):
        names, said = loaded(tmp_path)
        assert names == {"train": ["a.jpg", "b.jpg"], "val": ["c.jpg"]}
        assert "3 of 3 txt files" in said and "images elsewhere" in said
        put(tmp_path, "data/dataset.yaml", text=text)
    assert load(tmp_path, "val").class_names == ("cat",)
    put(tmp_path, "other/b.jpg")  # a copy
    assert loaded(tmp_path)[0]["train"] == ["a.jpg", "b.jpg"]
    put(tmp_path, "other/b.jpg", color="red")  # of two images none is more likely
    assert loaded(tmp_path, on_error="skip")[0]["train"] == ["a.jpg"]


def test_an_export_of_boxes_alone_beside_the_images(tmp_path):
    """CVAT's YOLO export without images, beside the folder of these."""
    put(tmp_path, "photos/a.jpg", "photos/b.jpg")
    put(tmp_path, "export/obj_train_data/a.txt", text=ROW)
    put(tmp_path, "export/obj_train_data/b.txt", text="")
    put(tmp_path, "export/train.txt", text="data/obj_train_data/c.jpg\n")
    put(
        tmp_path, "export/obj.data", text="train = data/train.txt\nnames = data/o.names"
    )
    put(tmp_path, "export/obj.names", text="face\n")
    assert loaded(tmp_path)[0] == {"train": ["a.jpg", "b.jpg"]}
    assert load(tmp_path).class_names == ("face",)


def test_hidden_files_in_a_list_are_no_images(tmp_path):
    yolo(tmp_path)
    put(tmp_path, "train.txt", text="images/a.jpg\nimages/.DS_Store\nimages\\._a.jpg\n")
    put(tmp_path, "images/.DS_Store")
    assert loaded(tmp_path) == ({"train": ["a.jpg"]}, "")


def test_txt_files_of_words_are_no_yolo(tmp_path):
    yolo(tmp_path, classes=None)
    for text in ("AB 12 CD", "\u0637 \u0662 \u0669 \u0667 \u0661 \u0665"):
        put(tmp_path, "labels/a.txt", text=text)
        with pytest.raises(ValueError, match=rf"labels/a\.txt' with '{text}'"):
            load(tmp_path)


# --- Names of splits with other words beside them.


def test_folders_whose_names_differ_in_the_split_alone_are_splits(tmp_path):
    for split in ("train", "val"):
        put(tmp_path, f"pets_{split}/{split}.jpg")
        put(tmp_path, f"pets_{split}/pets.json", text=coco(f"{split}.jpg"))
    assert loaded(tmp_path)[0] == {"train": ["train.jpg"], "val": ["val.jpg"]}


def test_files_whose_names_differ_in_the_split_alone_are_splits(tmp_path):
    for split in ("train", "val"):
        put(tmp_path, f"images/{split}.jpg")
        put(tmp_path, f"annotations/pets_{split}.json", text=coco(f"{split}.jpg"))
    assert loaded(tmp_path)[0] == {"train": ["train.jpg"], "val": ["val.jpg"]}


def test_a_name_with_another_word_and_no_other_split_is_none(tmp_path):
    put(tmp_path, "images/a.jpg", "images/b.jpg")
    put(tmp_path, "toy_train.json", text=coco("a.jpg"))
    put(tmp_path, "toy_bus.json", text=coco("b.jpg"))
    assert loaded(tmp_path)[0] == {"toy_train": ["a.jpg"], "toy_bus": ["b.jpg"]}


# --- Layouts and errors of repositories as they are cloned.


def test_a_folder_for_each_class_within_a_split_is_of_the_split(tmp_path):
    for name, label in (("cats", 0), ("dogs", 1)):
        put(tmp_path, f"train/{name}/images/{name}.jpg")
        text = ROW.replace("0 ", f"{label} ", 1)
        put(tmp_path, f"train/{name}/labels/{name}.txt", text=text)
    yaml = "train: train/images\nval: val/images\nnc: 2\nnames: [cat, dog]\n"
    put(tmp_path, "data.yaml", text=yaml)
    assert loaded(tmp_path)[0] == {"train": ["cats.jpg", "dogs.jpg"]}
    dataset = load(tmp_path)
    assert [r.labels.tolist() for r in dataset.records] == [[0], [1]]
    assert dataset.class_names == ("cat", "dog") and "'val/images'" in str(
        dataset.problems
    )
    # Another folder than those that the file names could be of anything.
    (tmp_path / "train").rename(tmp_path / "test")
    with pytest.raises(ValueError, match="holds 2 datasets"):
        load(tmp_path)


def test_objects_without_a_name_are_told_where_there_is_no_other(tmp_path):
    put(tmp_path, "a.jpg")
    put(tmp_path, "a.xml", text=VOC.format("a.jpg").replace("<name>cat</name>", ""))
    with pytest.raises(ValueError, match=r"no object.*1 bad box: a\.xml: a `name`"):
        load(tmp_path, on_error="skip")


def test_images_that_are_all_missing_have_a_cure(tmp_path):
    rows = "a.jpg,40,20,cat,1,2,12,13\n"
    put(tmp_path, "a.csv", text=CSV + rows)
    for on_error in ("auto", "raise", "skip"):
        match = "no image that exists. .*Put the images where the annotations expect"
        with pytest.raises(NoImageError, match=match) as info:
            load(tmp_path, on_error=on_error)
        assert "on_error" not in str(info.value)  # 0 images are of no use
    (tmp_path / "a.csv").unlink()
    put(tmp_path, "a.xml", text=VOC.format("a.jpg"))
    put(tmp_path, "b.xml", text="<annotation><object>")
    with pytest.warns(UserWarning, match="missing image"):
        dataset = load(tmp_path, on_error="skip", class_names=["cat"])
    (problem,) = [p for p in check(dataset).problems if p.kind == "empty dataset"]
    assert "there is no image: 1 annotated image was not found. Put" in str(problem)


def test_several_formats_are_compared_and_each_is_read_once(tmp_path, monkeypatch):
    put(tmp_path, "a.jpg")
    put(tmp_path, "a.xml", text=VOC.format("a.jpg"))
    put(tmp_path, "a.csv", text=CSV + "a.jpg,40,20,cat,2,3,14,16\n")
    count = []
    read = reading.make_dataset
    monkeypatch.setattr(
        reading, "make_dataset", lambda *a, **k: count.append(1) or read(*a, **k)
    )
    assert len(load(tmp_path)) == 1 and len(count) == 2
    named = load(tmp_path, class_names=["dog", "cat"])  # asks for something else
    assert named.class_names == ("dog", "cat") and len(count) == 5


def test_annotations_whose_images_are_gone_are_told_beside_others(tmp_path, capsys):
    put(tmp_path, "a.jpg")
    put(tmp_path, "a.xml", text=VOC.format("a.jpg"))
    put(tmp_path, "b.csv", text=CSV + "b.jpg,40,20,cat,2,3,14,16\n")
    assert len(load(tmp_path)) == 1
    text = "also holds a dataset (CSV: split b), which cannot be read: "
    assert text in capsys.readouterr().out


def test_an_image_is_not_taken_from_a_folder_of_results(tmp_path):
    put(tmp_path, "photos/a.jpg", "results/a.jpg", "train_masks/a.jpg")
    put(tmp_path, "annotations/a.xml", text=VOC.format("a.jpg"))
    with pytest.warns(UserWarning, match="not where the annotations say"):
        assert paths(load(tmp_path), tmp_path) == ["photos/a.jpg"]


def test_images_of_one_name_in_several_folders_are_told(tmp_path):
    put(tmp_path, "big/deep/a.jpg")
    put(tmp_path, "small/deep/a.jpg", color="red")
    put(tmp_path, "pets.json", text=coco("a.jpg"))
    with pytest.raises(FileNotFoundError, match=r"2 images have that name: "):
        load(tmp_path)


def test_of_two_formats_that_which_says_what_its_numbers_are_is_read(tmp_path, capsys):
    put(tmp_path, "a.jpg")
    put(tmp_path, "a.csv", text="image,label,x,y,width,height\na.jpg,cat,20,10,16,12\n")
    box = {"x": 20, "y": 10, "width": 16, "height": 12}  # of which x, y is the center
    images = [{"image": "a.jpg", "annotations": [{"label": "cat", "coordinates": box}]}]
    put(tmp_path, "a.json", text=json.dumps(images))
    assert load(tmp_path)[0]["boxes"].tolist() == [[4, 12, 16, 28]]
    said = capsys.readouterr().out
    assert "is Create ML" in said
    assert "as CSV. They were not read, and they differ: " in said
    assert "read: left 12, top 4, width 16, height 12; not read: left 20, top 1" in said


def test_images_of_a_dataset_beside_are_not_taken(tmp_path):
    put(tmp_path, "dogs/photos/a.jpg", "dogs/a.jpg", "cats/b.txt")
    put(tmp_path, "cats/pets.json", text=coco("a.jpg"))
    for path in (tmp_path / "cats", tmp_path / "cats/pets.json"):
        with pytest.raises(FileNotFoundError, match="no folder with the images"):
            load(path)


def test_frames_of_one_name_in_two_exports_are_different_images(tmp_path):
    names = [f"frame_{i:06d}.PNG" for i in range(3)]
    for task, color in (("task_1", "red"), ("task_2", "blue")):
        folder = tmp_path / task
        put(folder, "annotations/instances_default.json", text=coco(*names))
        for name in names:
            path = folder / "images/default" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (40, 20), color).save(path)
    with pytest.raises(ValueError, match="2 datasets of different images(?s:.*)task_2"):
        load(tmp_path)
    # Copies of the same frames are one dataset, annotated twice.
    for name in names:
        frame = (tmp_path / "task_1/images/default" / name).read_bytes()
        (tmp_path / "task_2/images/default" / name).write_bytes(frame)
    assert len(load(tmp_path)) == 3


def test_a_format_that_needs_a_package_is_not_read_as_another(tmp_path, monkeypatch):
    header = "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded\n"
    row = "a,xclick,/m/01yrx,1,0.1,0.4,0.2,0.5,0\n"
    text = f"{header}{row}{row.replace('0.5', '0.6')}"
    put(tmp_path, "train-annotations-bbox.csv", text=text)
    put(tmp_path, "a.jpg")
    monkeypatch.setitem(sys.modules, "datumaro", None)
    cure = r'needs datumaro: pip install "effdet-keras\[datumaro\]"'
    with pytest.raises(ImportError, match=cure):
        load(tmp_path)


def test_a_file_that_needs_a_package_does_not_stop_the_search(tmp_path, monkeypatch):
    put(tmp_path, "metadata.parquet")
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match="Not readable: Hugging Face: .*pip install"):
        load(tmp_path)
    with pytest.raises(ImportError, match="metadata.parquet' needs pyarrow"):
        load(tmp_path, format="hugging_face")
    put(tmp_path, "train.json", text=coco("a.jpg"))
    put(tmp_path, "a.jpg")
    assert len(load(tmp_path)) == 1


# --- Faults that public repositories showed.


@pytest.mark.parametrize("lists", [("train", "val"), ("train", "val", "test")])
def test_a_list_of_a_split_that_is_empty_is_left_out(tmp_path, capsys, lists):
    """Scripts that divide a dataset write them, where a share is zero."""
    put(tmp_path, "Annotations/a.xml", text=VOC.format("a.jpg"))
    put(tmp_path, "JPEGImages/a.jpg")
    put(tmp_path, *(f"ImageSets/Main/{name}.txt" for name in lists))
    put(tmp_path, "ImageSets/Main/train.txt", text="a\n")
    assert loaded(tmp_path)[0] == {"train": ["a.jpg"]}
    text = "  The split 'val' was left out, because it has no images, or none of them"
    assert text in capsys.readouterr().out


def test_a_split_without_objects_has_the_classes_of_the_others(tmp_path):
    put(tmp_path, "a.jpg", "b.jpg")
    put(tmp_path, "train_labels.csv", text=CSV + "a.jpg,40,20,cat,2,3,14,16\n")
    put(tmp_path, "test_labels.csv", text=CSV + "b.jpg,40,20,,,,,\n")
    splits = load_splits(tmp_path)
    assert splits["test"].class_names == splits["train"].class_names == ("cat",)
    assert [len(d.records[0].labels) for d in splits.values()] == [0, 1]


def test_an_empty_list_of_a_split_does_not_hide_a_format_behind_another(
    tmp_path, capsys
):
    put(tmp_path, "JPEGImages/a.jpg", "other/b.jpg")
    put(tmp_path, "Annotations/a.xml", text=VOC.format("a.jpg"))
    put(tmp_path, "ImageSets/Main/train.txt", text="a\n")
    put(tmp_path, "ImageSets/Main/val.txt", "ImageSets/Main/test.txt")
    put(tmp_path, "other/b.xml", text=VOC.format("b.jpg"))
    put(tmp_path, "a.csv", text=CSV + "a.jpg,40,20,cat,2,3,14,16\n")
    assert loaded(tmp_path)[0] == {"train": ["a.jpg"]}
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("is Pascal VOC: splits test, train, val")
    assert "as CSV. They were not read: both have 1 box in 1 image." in lines[1]
    assert lines[2:4] == [
        f"  The split {s!r} was left out, because it has no images, or none of them "
        "was found."
        for s in ("test", "val")
    ]
    assert lines[4].startswith(f"  {str(tmp_path / 'other')!r} also holds a dataset")


def test_a_csv_without_rows_does_not_hide_the_other_split(tmp_path):
    put(tmp_path, "images/a.jpg")
    put(tmp_path, "data/train_labels.csv", text=CSV + "a.jpg,40,20,cat,2,3,14,16\n")
    put(tmp_path, "data/test_labels.csv", text=CSV)
    assert loaded(tmp_path)[0] == {"train": ["a.jpg"]}


def test_csv_files_are_compared_with_the_xml_files_of_the_folders_of_splits(
    tmp_path, capsys
):
    """The csv of the tests is out of date: it lacks an image."""
    for split, names in (("train", "ab"), ("test", "cd")):
        put(tmp_path, *(f"{split}/{name}.jpg" for name in names))
        for name in names:
            put(tmp_path, f"{split}/{name}.xml", text=VOC.format(f"{name}.jpg"))
    rows = "".join(f"{name}.jpg,40,20,cat,2,3,14,16\n" for name in "ab")
    put(tmp_path, "train_labels.csv", text=CSV + rows)
    put(tmp_path, "test_labels.csv", text=CSV + "c.jpg,40,20,cat,2,3,14,16\n")
    assert loaded(tmp_path)[0] == {
        "test": ["c.jpg", "d.jpg"],
        "train": ["a.jpg", "b.jpg"],
    }
    out = capsys.readouterr().out
    assert "as CSV. They were not read, and they differ (read: 4 boxes in" in out


@pytest.mark.parametrize("split", ["train", "test"])
def test_records_beside_the_folders_of_splits_do_not_hide_them(
    tmp_path, tmp_path_factory, split
):
    for name in ("train", "test"):
        put(tmp_path, f"{name}/{name}0.jpg")
        put(tmp_path, f"{name}/{name}0.xml", text=VOC.format(f"{name}0.jpg"))
    folder = tmp_path_factory.mktemp("new") / "records"
    data.write_tfrecord({split: load(tmp_path / split)}, folder)
    (file,) = folder.glob("*.tfrecord")
    file.rename(tmp_path / f"{split}.record")
    expected = {"test": ["test0.jpg"], "train": ["train0.jpg"]}
    assert loaded(tmp_path)[0] == expected
    (tmp_path / f"{split}.record").write_bytes(b"")
    assert loaded(tmp_path)[0] == expected


@pytest.mark.parametrize("folder", ["yolo", "labels"])
@pytest.mark.parametrize("other", [(), ("demo/m0.jpg", "demo/m1.jpg")])
def test_a_folder_of_labels_may_have_its_images_beside_them(tmp_path, folder, other):
    names = [f"m{i}" for i in range(4)]
    put(tmp_path, *(f"{folder}/{name}.jpg" for name in names), *other)
    put(tmp_path, *(f"{folder}/{name}.txt" for name in names), text=ROW)
    put(tmp_path, f"{folder}/classes.txt", text="good\nbad\n")
    put(tmp_path, "coco.names", text="person\nbicycle\ncar\n")
    dataset = load(tmp_path)
    assert dataset.class_names == ("good", "bad")
    expected = [f"{folder}/{name}.jpg" for name in names]
    assert paths(dataset, tmp_path) == expected


def test_txt_files_beside_images_have_the_list_that_lies_among_them(tmp_path):
    names = ["a.jpg", "yolo/b.jpg", "yolo/c.jpg"]
    put(tmp_path, *names)
    put(tmp_path, *(name.replace("jpg", "txt") for name in names), text=ROW)
    put(tmp_path, "yolo/classes.txt", text="good\nbad\n")
    put(tmp_path, "coco.names", text="person\nbicycle\ncar\n")
    dataset = load(tmp_path)
    assert dataset.class_names == ("good", "bad")
    assert len(dataset) == 3


def test_folders_beside_records_are_named_and_not_the_records(tmp_path, capsys):
    put(tmp_path, "new/a.jpg")
    put(tmp_path, "new/a.xml", text=VOC.format("a.jpg"))
    put_records(tmp_path, load(tmp_path))
    put(tmp_path, "images/b.jpg")
    put(tmp_path, "images/b.xml", text=VOC.format("b.jpg"))
    capsys.readouterr()
    load(tmp_path, format="tfrecord")
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" also ")[0] for line in lines[1:]] == [
        f"  {str(tmp_path / name)!r}" for name in ("images", "new")
    ]


@pytest.mark.parametrize("is_divided", [False, True])
def test_datasets_in_other_folders_are_named(tmp_path, capsys, is_divided):
    for split in ("train", "test")[: 1 + is_divided]:
        put(tmp_path, f"{split}/{split}.jpg")
        text = CSV + f"{split}.jpg,40,20,cat,2,3,14,16\n"
        put(tmp_path, f"{split}/_annotations.csv", text=text)
    put(tmp_path, "other/phone/p.jpg", "models/m.jpg", "raw/r.jpg")
    text = CSV + "p.jpg,40,20,phone,2,3,14,16\n"
    put(tmp_path, "other/phone/_annotations.csv", text=text)
    splits = load_splits(tmp_path)
    assert len(splits) == 1 + is_divided
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    place = str(tmp_path / "other" / "phone")
    assert lines[1].startswith(f"  {place!r} also holds a dataset (CSV: split train)")
    load(tmp_path, "train")  # of two splits, one is read: nothing is known of others
    assert len(capsys.readouterr().out.splitlines()) == 2 - is_divided


def test_a_dataset_of_a_test_split_alone_is_not_named_twice(tmp_path, capsys):
    put(tmp_path, "test/a.jpg", "train/b.jpg")
    put(tmp_path, "test/_annotations.coco.json", text=coco("a.jpg"))
    assert loaded(tmp_path)[0] == {"test": ["a.jpg"]}
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_darknet_lists_without_names_give_way_to_voc_with_names(tmp_path, capsys):
    lists = {"train": "ab", "val": "c"}
    for split, names in lists.items():
        for name in names:
            put(tmp_path, f"VOC2007/JPEGImages/{name}.jpg")
            put(tmp_path, f"VOC2007/labels/{name}.txt", text=ROW)
            xml = VOC.format(f"{name}.jpg")
            put(tmp_path, f"VOC2007/Annotations/{name}.xml", text=xml)
        stems = "".join(f"{name}\n" for name in names)
        put(tmp_path, f"VOC2007/ImageSets/Main/{split}.txt", text=stems)
        rows = "".join(f"F:\\x/VOC2007/JPEGImages/{name}.jpg\n" for name in names)
        put(tmp_path, f"2007_{split}.txt", text=rows)
    splits = load_splits(tmp_path)
    assert {name: len(dataset) for name, dataset in splits.items()} == {
        "train": 2,
        "val": 1,
    }
    assert splits["train"].class_names == ("cat",)
    assert "as YOLO. They were not read" in capsys.readouterr().out


@pytest.mark.parametrize("place", [".", "dataset/labels"])
def test_txt_files_of_boxes_without_any_image_are_named(tmp_path, place):
    put(tmp_path, f"{place}/0.txt")  # of an image without objects
    put(tmp_path, *(f"{place}/{name}.txt" for name in "abc"), text=ROW)
    with pytest.raises(ValueError, match="have no image of the same name: put the im"):
        load(tmp_path)


def test_a_list_of_images_without_txt_files_is_no_yolo(tmp_path):
    put(tmp_path, "images/0.png")
    put(tmp_path, "test_images.txt", text="images/0.png\n")
    put(tmp_path, "boxes.csv", text="Filename,ball_x1,ball_y1\n0.png,1,2\n")
    with pytest.raises(ValueError, match="No dataset was found.*'ball_x1'"):
        load(tmp_path)


def test_tasks_whose_names_differ_in_the_split_and_a_number_are_splits(tmp_path):
    for name in ("474_fire_val", "475_fire_train"):
        put(tmp_path, f"{name}/{name}.jpg")
        put(tmp_path, f"{name}/instances.json", text=coco(f"{name}.jpg"))
    assert loaded(tmp_path)[0] == {
        "val": ["474_fire_val.jpg"],
        "train": ["475_fire_train.jpg"],
    }


def test_a_yaml_file_that_is_a_pointer_of_git_lfs_is_named(tmp_path):
    yolo(tmp_path, classes=None)
    put(tmp_path, "custom.yaml", text="version https://git-lfs.github.com/spec/v1\n")
    with pytest.warns(UserWarning, match=r"custom\.yaml' is a pointer of Git LFS"):
        load(tmp_path)


def test_another_format_is_named_where_the_images_of_one_are_gone(tmp_path):
    for split in ("train", "test"):
        put(tmp_path, f"annotations/{split}.json", text=coco(f"{split}.png"))
        put(tmp_path, f"images/{split}/Town_{split}.png")
        xml = VOC.format(f"Town_{split}.png")
        put(tmp_path, f"labels/{split}/Town_{split}.xml", text=xml)
    put(tmp_path, "images.zip")
    with pytest.raises(FileNotFoundError) as caught:
        load_splits(tmp_path)
    text = "a dataset (Pascal VOC: splits test, train). To read it, pass format="
    assert f"{text}'voc'" in str(caught.value)
    assert str(tmp_path / "images.zip") in str(caught.value)
    assert len(load_splits(tmp_path, format="voc")) == 2


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_each_file_of_a_camera_has_the_images_of_its_folder(tmp_path, kind):
    for i in (1, 2):
        put(tmp_path, f"data/test_cam{i}/a.jpg", color="red" if i == 1 else "blue")
        text = coco("a.jpg")
        if kind == "csv":
            text = CSV + "a.jpg,40,20,cat,2,3,14,16\n"
        put(tmp_path, f"data/annotations-test_cam{i}.{kind}", text=text)
    splits = load_splits(tmp_path)
    found = [paths(dataset, tmp_path) for dataset in splits.values()]
    assert found == [["data/test_cam1/a.jpg"], ["data/test_cam2/a.jpg"]]


def test_of_many_datasets_of_the_same_images_a_few_are_named(tmp_path, capsys):
    put(tmp_path, "images/0.jpg")
    folders = [f"boxes/{name}" for name in "abcdefghijklm"]
    put(tmp_path, *(f"{f}/0.xml" for f in folders), text=VOC.format("0.jpg"))
    load(tmp_path)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10
    assert lines[-1] == "  Not read: 4 more datasets of the same images"
