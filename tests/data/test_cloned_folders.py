"""Repositories as they were cloned, in which the data was not where it was looked for.

Each is a small copy of what a public repository has, as in `test_cloned.py`.
"""

import json
import math
import shutil

import pytest
from support.cloned_files import (
    CSV,
    ROW,
    VOC,
    coco,
    loaded,
    paths,
    put,
    voc,
    yolo,
)

from effdet_keras.data import load, load_splits
from effdet_keras.data.formats.cvat import is_cvat

# --- Two files, or folders, of one format.


@pytest.mark.parametrize("inner", ["annotations", "Annotations", "labels"])
def test_a_json_in_annotations_beside_one_in_the_folder_is_told(
    tmp_path, capsys, inner
):
    put(tmp_path, "images/a.jpg", "images/b.jpg")
    put(tmp_path, "annotations.json", text=coco("a.jpg", "b.jpg"))
    put(tmp_path, f"{inner}/instances_default.json", text=coco("a.jpg"))
    assert loaded(tmp_path)[0] == {"train": ["a.jpg", "b.jpg"]}
    said = capsys.readouterr().out
    assert f"'{tmp_path / inner}' also has annotations of the same images as C" in said
    assert "(read: 2 boxes in 2 images; not read: 1 box in 1 image)" in said
    assert "To read them, pass that folder." in said
    assert len(load(tmp_path / inner)) == 1


def test_a_json_in_annotations_of_fewer_other_images_is_left_aside(tmp_path, capsys):
    put(tmp_path, "images/a.jpg", "images/b.jpg", "images/c.jpg")
    put(tmp_path, "annotations.json", text=coco("a.jpg", "b.jpg"))
    put(tmp_path, "annotations/instances_default.json", text=coco("c.jpg"))
    assert loaded(tmp_path)[0] == {"train": ["a.jpg", "b.jpg"]}
    said = capsys.readouterr().out
    assert "dataset of other images (COCO json: split train; 1 box in 1 image)" in said
    put(tmp_path, "images/d.jpg", "images/e.jpg")
    put(
        tmp_path,
        "annotations/instances_default.json",
        text=coco("c.jpg", "d.jpg", "e.jpg"),
    )
    with pytest.raises(ValueError, match="2 datasets of different images") as error:
        load(tmp_path)
    file = str(tmp_path / "annotations.json")
    assert f"(to read it, pass {file!r})" in str(error.value)
    assert len(load(tmp_path / "annotations.json")) == 2
    assert len(load(tmp_path / "annotations")) == 3


def test_a_folder_with_all_images_of_the_one_around_it_and_more_is_read(
    tmp_path, capsys
):
    voc(tmp_path, "a", images="forms", annotations="forms")
    voc(tmp_path, *"abc", images="forms/all", annotations="forms/all")
    assert loaded(tmp_path)[0] == {"train": ["a.jpg", "b.jpg", "c.jpg"]}
    said = capsys.readouterr().out
    assert "(read: 3 boxes in 3 images; not read: 1 box in 1 image)" in said
    assert f"To read them, move '{tmp_path / 'forms' / 'all'}' away." in said
    put(tmp_path, "forms/all/a.jpg", color="red")  # another image of that name
    assert loaded(tmp_path)[0] == {"train": ["a.jpg"]}
    assert "which was not read. To read it, pass that folder" in capsys.readouterr().out


@pytest.mark.parametrize(
    "text", [VOC.replace("<xmin>2", "<xmin>12"), "<annotation></annotation>"]
)
def test_a_folder_with_other_boxes_of_the_same_images_is_not_read(tmp_path, text):
    voc(tmp_path, "a", images="pets", annotations="pets")
    voc(tmp_path, *"abc", images="pets/all", annotations="pets/all")
    put(tmp_path, "pets/all/a.xml", text=text.format("a.jpg"))
    assert loaded(tmp_path)[0] == {"train": ["a.jpg"]}


def test_more_images_without_objects_in_annotations_are_not_read(tmp_path, capsys):
    put(tmp_path, *(f"images/{name}.jpg" for name in "abc"))
    put(tmp_path, "annotations.json", text=coco("a.jpg"))
    content = json.loads(coco("a.jpg", "b.jpg", "c.jpg"))
    content["annotations"] = content["annotations"][:1]
    put(tmp_path, "annotations/instances_default.json", text=json.dumps(content))
    assert loaded(tmp_path)[0] == {"train": ["a.jpg"]}
    assert "(read: 1 box in 1 image; not read: 1 box in 3 images)" in (
        capsys.readouterr().out
    )


def test_a_file_beside_the_images_with_more_of_them_is_read(tmp_path, capsys):
    put(tmp_path, *(f"all/{name}.jpg" for name in "abc"))
    put(tmp_path, "old.json", text=coco("a.jpg"))
    put(tmp_path, "all/new.json", text=coco("a.jpg", "b.jpg", "c.jpg"))
    assert loaded(tmp_path)[0] == {"train": ["a.jpg", "b.jpg", "c.jpg"]}
    assert f"To read them, pass '{tmp_path / 'old.json'}'." in capsys.readouterr().out
    assert len(load(tmp_path / "old.json")) == 1


def test_test_data_of_a_program_is_no_test_split(tmp_path, capsys):
    """As darknet's port to TensorFlow has in `test/training`, of other classes."""
    voc(tmp_path, "a", "b", images="train/images", annotations="train/annotations")
    inner = tmp_path / "test" / "training"
    voc(inner, "c", images="images", annotations="annotations")
    assert loaded(tmp_path)[0] == {"train": ["a.jpg", "b.jpg"]}
    said = capsys.readouterr().out
    assert f"'{tmp_path / 'test'}' also holds a dataset (Pascal VOC" in said
    assert "which was not read" in said
    # An archive that was unpacked into a folder of its name is a split.
    inner = inner.rename(tmp_path / "test" / "test")
    both = {"train": ["a.jpg", "b.jpg"], "test": ["c.jpg"]}
    assert loaded(tmp_path)[0] == both
    inner.rename(tmp_path / "test" / "train")  # of a class, as another one is
    voc(tmp_path / "test" / "car", "d", images="images", annotations="annotations")
    assert loaded(tmp_path)[0] == {**both, "test": ["d.jpg", "c.jpg"]}


def test_splits_in_annotations_beside_one_in_the_folder_are_read(tmp_path):
    put(tmp_path, *(f"images/{name}.jpg" for name in "abc"))
    put(tmp_path, "test.json", text=coco("a.jpg"))
    put(tmp_path, "annotations/train.json", text=coco("b.jpg"))
    put(tmp_path, "annotations/val.json", text=coco("c.jpg"))
    assert loaded(tmp_path)[0] == {"train": ["b.jpg"], "val": ["c.jpg"]}


def test_a_table_beside_a_dataset_and_a_folder_of_annotations_is_none(tmp_path):
    put(tmp_path, "images/a.jpg", "images/b.jpg")
    rows = {name: f"{name}.jpg,40,20,cat,1,2,9,9\n" for name in "ab"}
    put(tmp_path, "a_table.csv", text="epoch,loss\n1,2\n")
    put(tmp_path, "b_broken.json", text='{"images": [')
    put(tmp_path, "labels.csv", text=CSV + rows["a"] + rows["b"])
    put(tmp_path, "annotations/old.csv", text=CSV + rows["a"])
    assert loaded(tmp_path)[0] == {"train": ["a.jpg", "b.jpg"]}


def test_a_file_of_another_format_in_annotations_does_not_win(tmp_path):
    put(tmp_path, "images/a.jpg", "images/b.jpg")
    put(tmp_path, "labels.json", text=coco("a.jpg", "b.jpg"))
    rows = "".join(f"{name}.jpg,40,20,cat,1,2,9,9\n" * 3 for name in "ab")
    put(tmp_path, "annotations/predictions.csv", text=CSV + rows)
    dataset = load(tmp_path)
    assert [len(record.labels) for record in dataset.records] == [1, 1]


def test_json_in_annotations_beside_a_csv_is_one_dataset(tmp_path, capsys):
    put(tmp_path, "images/a.jpg", "images/b.jpg")
    rows = "".join(f"{name}.jpg,40,20,cat,1,2,9,9\n" for name in "ab")
    put(tmp_path, "labels.csv", text=CSV + rows)
    put(tmp_path, "annotations/instances_train.json", text=coco("a.jpg"))
    put(tmp_path, "annotations/instances_val.json", text=coco("b.jpg"))
    assert loaded(tmp_path)[0] == {"train": ["a.jpg"], "val": ["b.jpg"]}
    said = capsys.readouterr().out
    assert f"'{tmp_path}' also has annotations of the same images as CSV. They" in said
    assert "as COCO json" not in said


@pytest.mark.parametrize("is_same", [True, False])
def test_a_file_of_another_format_in_annotations_is_told(tmp_path, capsys, is_same):
    put(tmp_path, "images/a.jpg", "images/b.jpg", "images/c.jpg")
    put(tmp_path, "labels.json", text=coco("a.jpg", "b.jpg"))
    row = f"{'a' if is_same else 'c'}.jpg,40,20,cat,1,2,9,9\n"
    put(tmp_path, "annotations/labels.csv", text=CSV + row)
    assert loaded(tmp_path)[0] == {"train": ["a.jpg", "b.jpg"]}
    said, place = capsys.readouterr().out, str(tmp_path / "annotations")
    if is_same:
        text = f"{place!r} also has annotations of the same images as CSV. They were"
        assert text in said
    else:
        text = f"{place!r} also holds a dataset of other images (CSV: split train; "
        assert text in said
    assert "pass format='csv' (--format) or pass that folder." in said
    assert len(load(tmp_path, format="csv")) == 1
    assert len(load(tmp_path, format="coco")) == 2


def test_a_test_split_beside_those_in_annotations_is_left_aside(tmp_path, capsys):
    put(tmp_path, *(f"images/{name}.jpg" for name in "abc"))
    rows = {name: f"{name}.jpg,40,20,cat,1,2,9,9\n" for name in "abc"}
    put(tmp_path, "test_labels.csv", text=CSV + rows["a"])
    put(tmp_path, "annotations/train_labels.csv", text=CSV + rows["b"] + rows["c"])
    assert loaded(tmp_path)[0] == {"train": ["b.jpg", "c.jpg"]}
    text = f"'{tmp_path}' also holds a dataset of other images (CSV: split test; "
    assert text in capsys.readouterr().out


@pytest.mark.parametrize("name", ["backup", "augmented", "more", "test"])
def test_a_folder_with_a_few_more_images_than_the_one_around_it_is_not_read(
    tmp_path, capsys, name
):
    number = "abcd" if name == "more" else "abcdefg"
    voc(tmp_path, *"abc", images="pets", annotations="pets")
    voc(tmp_path, *number, images=f"pets/{name}", annotations=f"pets/{name}")
    assert loaded(tmp_path)[0] == {"train": ["a.jpg", "b.jpg", "c.jpg"]}
    assert "which was not read. To read it, pass that folder" in capsys.readouterr().out


@pytest.mark.parametrize(
    "name, is_read",
    [
        ("gold", True),
        ("automobiles", True),
        ("pets_old", False),
        ("rawimages", False),
        ("autolabeled", False),
        ("olddataset", False),
        ("v1old", False),
        ("augmented3x", False),
        ("copyofdata", False),
    ],
)
def test_the_words_of_a_folder_say_whether_it_is_fuller(tmp_path, name, is_read):
    voc(tmp_path, *"abc", images="pets", annotations="pets")
    place = f"pets/{name}"
    voc(tmp_path, *"abcdefg", images=place, annotations=place)
    found = [f"{stem}.jpg" for stem in ("abcdefg" if is_read else "abc")]
    assert loaded(tmp_path)[0] == {"train": found}


def test_a_test_split_above_the_data_is_told_with_its_file(tmp_path, capsys):
    put(tmp_path, "images/a.jpg", "images/b.jpg")
    rows = {name: f"{name}.jpg,40,20,cat,1,2,9,9\n" for name in "ab"}
    put(tmp_path, "test_labels.csv", text=CSV + rows["a"])
    put(tmp_path, "data/train_labels.csv", text=CSV + rows["b"])
    assert loaded(tmp_path)[0] == {"train": ["b.jpg"]}
    cure = f"To read it, pass '{tmp_path / 'test_labels.csv'}'."
    assert cure in capsys.readouterr().out


def test_a_folder_called_after_the_split_that_is_read_is_told(tmp_path, capsys):
    voc(tmp_path, "a", "b", images=".", annotations=".")
    voc(tmp_path, "c", images="train", annotations="train")
    assert loaded(tmp_path)[0] == {"train": ["a.jpg", "b.jpg"]}
    text = f"'{tmp_path / 'train'}' also holds a dataset (Pascal VOC"
    assert text in capsys.readouterr().out


def test_a_dataset_in_a_folder_of_results_is_told(tmp_path, capsys):
    voc(tmp_path, "a", images="dataset", annotations="dataset")
    voc(tmp_path, "b", "c", images="output", annotations="output")
    assert loaded(tmp_path)[0] == {"train": ["a.jpg"]}
    text = f"'{tmp_path / 'output'}' also holds a dataset (Pascal VOC"
    assert text in capsys.readouterr().out


@pytest.mark.parametrize("place", ["1/2/3/4/5/6/7", "src/program/data/heads/input"])
def test_a_dataset_far_down_is_found_if_there_is_none_above(tmp_path, place):
    yolo(tmp_path / place)
    assert loaded(tmp_path)[0] == {"train": ["a.jpg"]}
    voc(tmp_path / "data", "b")
    assert loaded(tmp_path)[0] == {"train": ["b.jpg"]}


def test_samples_far_down_are_not_the_dataset(tmp_path):
    put(tmp_path, *(f"pets/{i}.jpg" for i in range(5)))
    put(tmp_path, "pets/boxes.json", text='{"pictures": [], "boxes": []}')
    yolo(tmp_path / "1/2/3/4/5/samples")
    with pytest.raises(ValueError, match=r"boxes\.json' is objects with the keys"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "match"),
    [
        ("data.zip", "", "an archive: unpack it"),
        ("data.yaml", "names: {", "Not readable: YOLO: .*data.yaml"),
        ("labels/z.txt", "1\n7 4 14 8\n", "have no image of the same name"),
    ],
)
def test_what_may_be_the_dataset_is_told_where_samples_are_far_down(
    tmp_path, name, text, match
):
    yolo(tmp_path / "1/2/3/4/5/samples")
    put(tmp_path, name, text=text)
    with pytest.raises(ValueError, match=match):
        load(tmp_path)


def test_unknown_files_far_down_are_described(tmp_path):
    put(tmp_path, "1/2/3/4/5/6/target/0.json", text='{"labels": [], "boxes": []}')
    with pytest.raises(
        ValueError, match=r"0\.json' looks like a target of torchvision"
    ):
        load(tmp_path)


# --- COCO json and csv.


def test_a_split_whose_json_is_that_of_another_may_be_left_out(tmp_path, capsys):
    put(tmp_path, "train/a.jpg", "train/b.jpg", "test/c.jpg")
    for split in ("train", "test"):
        put(tmp_path, f"{split}/_annotations.coco.json", text=coco("a.jpg", "b.jpg"))
    match = (
        "Its folder has 1 other image, such as 'c.jpg': it may be the file of another "
        r"split.*pass on_error=\"skip\" \(--skip-errors\) to leave the split out"
    )
    with pytest.raises(FileNotFoundError, match=match):
        load_splits(tmp_path)
    names, said = loaded(tmp_path, on_error="skip")
    assert names == {"train": ["a.jpg", "b.jpg"]}
    assert "The split 'test' was left out: `from_coco` found no folder" in said
    assert "was left out" not in capsys.readouterr().out  # the warning says it
    assert "pass that folder" not in said
    shutil.rmtree(tmp_path / "train")
    with pytest.raises(FileNotFoundError, match="found no folder"):
        load(tmp_path, on_error="skip")


def test_a_csv_of_roboflow_without_a_row_is_a_split_without_objects(tmp_path):
    names = {split: f"{split}_jpg.rf.0a.jpg" for split in ("train", "valid")}
    put(tmp_path, *(f"{split}/{name}" for split, name in names.items()))
    put(tmp_path, "train/_annotations.csv", text=f"{names['train']},1,2,9,9,cat\n")
    put(tmp_path, "valid/_annotations.csv", text=" \n \n")
    found, said = loaded(tmp_path)
    assert found == {split: [name] for split, name in names.items()}
    assert "1 of 1 image has no row" in said
    assert not len(load_splits(tmp_path)["valid"][0]["boxes"])
    put(tmp_path, "labels.csv", text=" \n")  # of anything
    put(tmp_path, "valid/b.jpg")
    assert loaded(tmp_path)[0]["valid"] == ["b.jpg", names["valid"]]


def test_a_column_of_files_has_the_names_of_the_images(tmp_path):
    put(tmp_path, "a.jpg")
    put(tmp_path, "final.csv", text="files,x1,y1,x2,y2,class\na.jpg,1,2,9,9,cat\n")
    assert loaded(tmp_path)[0] == {"train": ["a.jpg"]}


def test_corners_that_a_header_exchanges_are_read_as_meant(tmp_path):
    put(tmp_path, "a.jpg", "b.jpg")
    header = "filename,width,height,class,xmax,ymax,xmin,ymin\n"
    rows = "a.jpg,40,20,cat,2,3,9,8\nb.jpg,40,20,cat,4,5,9,9\n"
    put(tmp_path, "labels.csv", text=header + rows)
    _, said = loaded(tmp_path)
    assert "each of its 2 boxes ends before it begins" in said
    boxes = [record.boxes_xywh.tolist() for record in load(tmp_path).records]
    assert boxes == [[[2, 3, 7, 5]], [[4, 5, 5, 4]]]
    put(tmp_path, "labels.csv", text=header + rows.replace("4,5,9,9", "9,5,4,9"))
    assert "2 empty boxes" in loaded(tmp_path)[1]  # of which one has other faults


@pytest.mark.parametrize("right", [9, 2.5])
def test_boxes_smaller_than_a_pixel_are_told(tmp_path, right):
    put(tmp_path, *(f"{i}.jpg" for i in range(4)))
    rows = [f"{i}.jpg,40,20,cat,2,3,{right},3.5\n" for i in range(3)]
    put(tmp_path, "labels.csv", text=CSV + "".join(rows) + "3.jpg,40,20,cat,5,3,9,9\n")
    _, said = loaded(tmp_path)
    text = "3 of 4 boxes are smaller than a pixel, such as 0.5 x 0.5 in '0.jpg'"
    assert (text in said) == (right == 2.5)


def test_broken_json_is_called_so(tmp_path):
    text = coco("a.jpg").replace('}], "categories"', '},], "categories"')
    put(tmp_path, "a.jpg")
    put(tmp_path, "annotations.json", text=text)
    with pytest.raises(
        ValueError, match=r"annotations\.json' is no valid json: .*a comma"
    ):
        load(tmp_path)


# --- Pascal VOC and other xml.


@pytest.mark.parametrize("images", ["JPEGImages", "images", "."])
@pytest.mark.parametrize("name", ["a.jpg", "a.png"])
def test_of_images_of_one_name_the_xml_file_says_which_it_is_of(tmp_path, images, name):
    put(tmp_path, f"{images}/a.jpg", f"{images}/a.png", f"{images}/b.jpg")
    folder = "Annotations" if images != "." else "."
    put(tmp_path, f"{folder}/a.xml", text=VOC.format(name))
    put(tmp_path, f"{folder}/b.xml", text=VOC.format("b"))  # without its ending
    put(tmp_path, f"{folder}/b.xml", text=VOC.format("b.gif"))  # which is not there
    assert [path.rpartition("/")[2] for path in paths(load(tmp_path), tmp_path)] == [
        name,
        "b.jpg",
    ]


@pytest.mark.parametrize("one_based", [True, False])
@pytest.mark.parametrize(
    ("degrees", "expected"),
    [(0, [14, 8, 12, 4]), (90, [18, 4, 4, 12]), (180, [14, 8, 12, 4])],
)
def test_a_turned_box_of_rolabelimg_is_read_as_the_one_around_it(
    tmp_path, degrees, expected, one_based
):
    numbers = {"cx": 20, "cy": 10, "w": 12, "h": 4, "angle": math.radians(degrees)}
    box = "".join(f"<{key}>{value}</{key}>" for key, value in numbers.items())
    start, _, rest = VOC.partition("<bndbox>")
    text = f"{start}<robndbox>{box}</robndbox>{rest.partition('</bndbox>')[2]}"
    put(tmp_path, "a.jpg", "b.jpg")
    put(tmp_path, "a.xml", text=text.format("a.jpg"))
    put(tmp_path, "b.xml", text=VOC.format("b.jpg"))
    with pytest.warns(UserWarning, match="1 box is rotated: a.xml"):
        dataset = load(tmp_path, reader_options={"one_based": one_based})
    assert dataset.records[0].boxes_xywh.round(4).tolist() == [expected]
    put(tmp_path, "a.xml", text=text.format("a.jpg").replace("<cx>20", "<cx>left"))
    with pytest.raises(ValueError, match="1 bad box"):
        load(tmp_path)


def test_equal_lists_of_two_splits_are_both_read(tmp_path):
    voc(tmp_path, "a", "b", images=".", annotations=".")
    put(tmp_path, "train.txt", "val.txt", text="a\nb\n")
    names, said = loaded(tmp_path)
    assert names == {"train": ["a.jpg", "b.jpg"], "val": ["a.jpg", "b.jpg"]}
    assert "'train' and 'val' contain the same 2 images" in said


@pytest.mark.parametrize("place", [".", "annotations"])
def test_a_json_of_splits_that_is_not_read_is_told(tmp_path, place):
    voc(tmp_path, "a", "b", images="images", annotations="annotations")
    put(
        tmp_path, f"{place}/splits.json", text='{"train": ["a.xml"], "test": ["b.xml"]}'
    )
    names, said = loaded(tmp_path)
    assert names == {"train": ["a.jpg", "b.jpg"]}
    assert "splits.json' may list the images of the splits, but is not read: " in said
    put(tmp_path, "ImageSets/Main/train.txt", text="a\n")
    put(tmp_path, "ImageSets/Main/test.txt", text="b\n")
    names, said = loaded(tmp_path)
    assert (
        names == {"test": ["b.jpg"], "train": ["a.jpg"]} and "splits.json" not in said
    )


def test_voc_under_another_name_is_not_cvat(tmp_path, capsys):
    text = VOC.replace("annotation>", "annotations>").format("a.jpg")
    put(tmp_path, "a.jpg")
    put(tmp_path, "a.xml", text=text)
    assert not is_cvat(tmp_path / "a.xml")
    assert loaded(tmp_path)[0] == {"train": ["a.jpg"]}
    assert "CVAT" not in capsys.readouterr().out


# --- YOLO.


def test_of_several_yaml_files_a_known_dataset_is_not_meant(tmp_path):
    """A clone of a program has files of COCO and others; users add their own."""
    for split, name in (("train", "a"), ("val", "b")):
        place = f"pets/images/{split}", f"pets/labels/{split}"
        yolo(tmp_path, *place, [name], classes=None)
    text = "path: ../datasets\ntrain: {0}images/train\nval: {0}images/val\nnames: {1}\n"
    known = text.format("", "[car]") + "download: https://host/a.zip\n"
    put(tmp_path, "data/Argo.yaml", text=text.format("Argo/", "[bus]"))
    put(tmp_path, "data/Objects.yaml", text=known)
    put(tmp_path, "data/pets.yaml", text=text.format("pets/", "[cat]"))
    names, said = loaded(tmp_path)
    assert names == {"train": ["a.jpg"], "val": ["b.jpg"]}
    assert load(tmp_path, "train").class_names == ("cat",)
    assert "of several yaml files with splits, 'pets.yaml' is read" in said
    for place in ("", "/home/me/other/"):  # of another machine
        put(tmp_path, "data/pets.yaml", text=text.format(place, "[cat]"))
        assert load(tmp_path, "train").class_names == ("cat",)
        (tmp_path / "data" / "Argo.yaml").unlink(missing_ok=True)


def test_names_of_a_known_dataset_are_those_of_last_resort(tmp_path):
    yolo(tmp_path, classes=None)
    put(tmp_path, "a.yaml", text="names: [bus]\ndownload: https://host/a.zip\n")
    assert load(tmp_path).class_names == ("bus",)
    put(tmp_path, "b.yaml", text="names: [cat]\n")
    assert load(tmp_path).class_names == ("cat",)


def test_lists_whose_images_have_copies_in_another_format_are_read(tmp_path, capsys):
    voc(tmp_path / "java", *"abc", images="images", annotations="annotations")
    yolo(tmp_path / "python", names="abc", classes=None)
    put(tmp_path, "python/custom/train.txt", text="/home/me/a.jpg\n/home/me/b.jpg\n")
    put(tmp_path, "python/custom/test.txt", text="/home/me/c.jpg\n")
    lines = "train = custom/train.txt\nvalid = custom/test.txt\n"
    put(tmp_path, "python/custom/my.data", text=lines + "names = custom/my.names\n")
    put(tmp_path, "python/custom/my.names", text="cube\n")
    names, said = loaded(tmp_path)
    assert names == {"train": ["a.jpg", "b.jpg"], "valid": ["c.jpg"]}
    assert load(tmp_path, "train").class_names == ("cube",)
    assert "so copies that have one are read instead" in said
    text = f"'{tmp_path / 'java'}' also has annotations of the same images as Pascal"
    assert text in capsys.readouterr().out


@pytest.mark.parametrize("names", ["Maçã\nPera\n", "Maca\nPera\n"])
def test_labels_in_the_folder_of_images_have_the_names_and_no_other_images(
    tmp_path, names
):
    yolo(tmp_path, "dataset", "dataset/labels", names=["a", "b"], classes=None)
    file = tmp_path / "dataset" / "labels" / "classes.txt"
    file.write_bytes(names.encode("cp1252"))
    put(tmp_path, "app/logo.png")
    found, said = loaded(tmp_path)
    assert found == {"train": ["a.jpg", "b.jpg"]}
    assert load(tmp_path).class_names == tuple(names.split())
    assert ("is not in UTF-8, so it is read in the encoding cp1252" in said) == (
        not names.isascii()
    )
    assert "the folders ['app'] of" in said and "are left out" in said


@pytest.mark.parametrize(
    "place",
    [
        "{0}/{1}.jpg {0}/labels/{1}.txt",
        "{0}/{1}.jpg {0}/{1}.txt",
        "{0}/x/{1}.jpg {0}/x/{1}.txt",
    ],
)
def test_other_folders_with_txt_files_are_of_the_same_dataset(tmp_path, place):
    yolo(tmp_path, "Apple", "Apple/labels", names=["a"])
    image, text = place.format("Pear", "b").split()
    put(tmp_path, image, "Plum/c.jpg")
    put(tmp_path, text, text=ROW)
    names, said = loaded(tmp_path)
    assert names == {"train": ["a.jpg", "b.jpg", "c.jpg"]}
    assert "1 of 3 images has no txt file" in said


@pytest.mark.parametrize(
    ("name", "encoding"), [("電路板", "big5"), ("кошка", "cp1251"), ("猫狗", "gbk")]
)
def test_names_in_an_encoding_that_is_not_known_are_an_error(tmp_path, name, encoding):
    yolo(tmp_path, classes=None)
    (tmp_path / "classes.txt").write_bytes(f"{name}\n".encode(encoding))
    with pytest.raises(ValueError, match=r"must be in UTF-8.*classes\.txt"):
        load(tmp_path)


@pytest.mark.parametrize("content", ["cat\ndog\n", "cat\n", "a.jpg\nb.jpg\n"])
def test_a_file_that_may_have_the_names_is_told(tmp_path, content):
    put(tmp_path, "data/a.jpg")
    put(tmp_path, "data/a.txt", text=ROW + ROW.replace("0", "1", 1))
    put(tmp_path, "classes_backup.txt", text=content)
    _, said = loaded(tmp_path)
    hint = (
        f"'{tmp_path / 'classes_backup.txt'}' may have them. If it does, rename it to "
    )
    assert (hint in said) == (content == "cat\ndog\n")
    (tmp_path / "classes_backup.txt").write_bytes("電路板\n貓\n".encode("big5"))
    (tmp_path / "data" / "names_of_pets.txt").symlink_to(tmp_path / "nowhere.txt")
    assert "may have them" not in loaded(tmp_path)[1]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_files_of_bbox_label_tool_are_read(tmp_path, end):
    put(tmp_path, *(f"Images/001/{name}.jpg" for name in "abcd"))
    put(tmp_path, "Labels/001/a.txt", text=f"2{end}7 4 14 8{end}1 2 3 5{end}")
    put(tmp_path, "Labels/001/b.txt", text=f"1{end}7 4 14 8")
    put(tmp_path, "Labels/001/c.txt", text=f"0{end}")
    put(tmp_path, "Labels/001/d.txt")
    names, said = loaded(tmp_path)
    assert names == {"train": [f"{name}.jpg" for name in "abcd"]}
    assert "3 rows in 2 files, the first in line 2: boxes of BBox-Label-Tool" in said
    dataset = load(tmp_path)
    assert dataset.class_names == ("object",)
    boxes = [record.boxes_xywh.tolist() for record in dataset.records]
    assert boxes == [[[7, 4, 7, 4], [1, 2, 2, 3]], [[7, 4, 7, 4]], [], []]
    put(tmp_path, "classes.txt", text="gun\n")
    assert load(tmp_path).class_names == ("gun",)
    assert load(tmp_path)[0]["labels"].tolist() == [0, 0]


def test_rows_of_bbox_label_tool_may_have_classes_and_faults(tmp_path):
    put(tmp_path, "Images/a.jpg", "Images/b.jpg")
    put(tmp_path, "Labels/a.txt", text="2\n7 4 14 8 cat\n1 2 3 5 big dog\n")
    put(tmp_path, "Labels/b.txt", text="1\n7 4 14 8 cat\n")
    dataset = load(tmp_path)
    assert dataset.class_names == ("big dog", "cat")
    assert dataset[0]["labels"].tolist() == [1, 0]
    put(tmp_path, "Labels/b.txt", text="2\n7 4 14 8 cat\n1 2 x 5 cat\n")
    with pytest.raises(ValueError, match="b.txt: line 3: left, top, right and bottom"):
        load(tmp_path)
    assert len(load(tmp_path, on_error="skip")[1]["boxes"]) == 1


def test_a_split_that_is_asked_for_and_left_out_is_explained(tmp_path):
    yolo(tmp_path, classes=None)
    text = "train: images\nval: val.txt\nnames: [cat]\n"
    put(tmp_path, "data.yaml", text=text)
    put(tmp_path, "val.txt", text="./other/b.jpg\n")
    match = r"must be one of \['train'\].*'val' of 'data.yaml' is left out: the images"
    with pytest.raises(ValueError, match=match):
        load(tmp_path, "val")
    voc(tmp_path / "other", "a")
    with pytest.raises(ValueError, match=r"must be one of \['train'\](?!.*left out)"):
        load(tmp_path / "other", "val")


def test_an_export_of_cvat_that_was_unpacked_into_labels_is_read(tmp_path):
    yolo(tmp_path / "data", "images/train", "labels/obj_train_data", classes=None)
    put(tmp_path, "data/labels/train.txt", text="data/obj_train_data/a.jpg\n")
    text = "train: images/train\nval: images/train\nnames: [cat]\n"
    put(tmp_path, "config.yaml", text=text)
    assert loaded(tmp_path)[0] == {"train": ["a.jpg"], "val": ["a.jpg"]}
    assert len(load(tmp_path, "train")[0]["boxes"]) == 1


def test_a_second_pair_of_images_and_labels_is_told(tmp_path):
    yolo(tmp_path, "images", "Annotations", names=["a"])
    yolo(tmp_path, "New Images", "Annotations Updated", names=["a", "b"])
    found, said = loaded(tmp_path)
    assert found == {"train": ["a.jpg"]}
    assert f"the images of '{tmp_path / 'New Images'}' with the txt files of" in said
    assert "are left out. To read them, put both into a folder of their own" in said


@pytest.mark.parametrize(
    "name, is_told", [("division", True), ("drawer", True), ("predictions", False)]
)
def test_a_second_pair_is_told_unless_a_program_made_it(tmp_path, name, is_told):
    yolo(tmp_path, "images", "labels", names=["a"])
    yolo(tmp_path, f"{name}_frames", "labels_2", names=["b"])
    assert ("are left out" in loaded(tmp_path)[1]) == is_told


def test_a_yaml_file_of_empty_folders_gives_way_to_the_data_below(tmp_path):
    content = "train: train/images\nval: val/images\nnames: [cat]\n"
    put(tmp_path, "data.yaml", text=content)
    put(tmp_path, "train/images/.gitkeep", "val/images/.gitkeep")
    with pytest.raises(FileNotFoundError, match="no image of the split 'train'") as e:
        load_splits(tmp_path)
    assert f"as '{tmp_path / 'data.yaml'}' says: put them there, or list" in str(
        e.value
    )
    yolo(tmp_path / "data/one", names="b", classes=None)
    assert loaded(tmp_path)[0] == {"train": ["b.jpg"]}
    assert load(tmp_path).class_names == ("cat",)
    yolo(tmp_path / "data/two", names="c")
    with pytest.raises(ValueError, match="2 datasets of different images") as error:
        load_splits(tmp_path)
    assert f"'{tmp_path / 'data/one'}' is YOLO" in str(error.value)


def test_images_that_lose_all_of_their_boxes_are_counted(tmp_path):
    voc(tmp_path, *"abc")
    for name in "ab":
        file = tmp_path / f"Annotations/{name}.xml"
        text = file.read_text()
        assert "<name>cat</name>" in text
        file.write_text(text.replace("<name>cat</name>", "<n>cat</n>"))
    with pytest.raises(ValueError, match="2 bad boxes"):
        load(tmp_path)
    with pytest.warns(UserWarning, match="all boxes of 2 images are left out"):
        dataset = load(tmp_path, on_error="skip")
    assert [len(record.labels) for record in dataset.records] == [0, 0, 1]
    with pytest.warns(UserWarning, match="all boxes of 3 images are left out"):
        load(tmp_path, on_error="skip", class_names=["dog"])


def test_a_dataset_that_cannot_be_read_is_among_several(tmp_path):
    voc(tmp_path / "one", "a", "b")
    voc(tmp_path / "two", "c", "d")
    rect = {"name": "rect", "x": 1, "y": 1, "width": 5, "height": 5}
    kinds = {"kind": "cat", "colour": "red"}
    region = {"shape_attributes": rect, "region_attributes": kinds}
    content = {"e.jpg9": {"filename": "e.jpg", "size": 9, "regions": [region]}}
    put(tmp_path, "three/e.jpg")
    put(tmp_path, "three/via_region_data.json", text=json.dumps(content))
    with pytest.raises(ValueError, match="datasets of different images") as error:
        load(tmp_path)
    said = f"'{tmp_path / 'three'}' is VIA: split train; it cannot be read: "
    assert said in str(error.value)
    assert "class_attribute" in str(error.value)


def test_targets_of_torchvision_are_called_so(tmp_path):
    put(tmp_path, "input/000.jpg")
    content = {"labels": ["head"], "boxes": [[1, 2, 3, 4]]}
    put(tmp_path, "target/000.json", text=json.dumps(content))
    with pytest.raises(
        ValueError, match="looks like a target of torchvision.*from_arr"
    ):
        load(tmp_path)


def test_boxes_of_unknown_classes_are_not_said_to_be_equal(tmp_path, capsys):
    for place, count in (("copy", 2), ("data/images", 3)):
        rows = "".join(f"{i} 0.5 0.5 0.2 0.2\n" for i in range(3, 3 + count))
        put(tmp_path / place, *(f"{stem}.jpg" for stem in "ab"))
        for stem in "ab":
            put(tmp_path / place, f"{stem}.txt", text=rows)
        put(tmp_path / place, "classes.txt", text="cat\n")
    with pytest.raises(ValueError, match="unknown class") as error:
        load_splits(tmp_path)
    said = capsys.readouterr().out
    assert "both have 0 boxes in 2 images, not counting what cannot be read" in said
    assert "classes.txt' has only 1 name" in str(error.value)


@pytest.mark.parametrize("one, other", [("teste", "caschi"), ("prueba", "perro")])
def test_words_of_other_languages_may_be_classes(tmp_path, one, other):
    for place in (one, other):
        put(tmp_path, f"images/{place}/{place}.jpg")
        put(tmp_path, f"labels/{place}/{place}.txt", text=ROW)
    put(tmp_path, "classes.txt", text="cat")
    assert loaded(tmp_path)[0] == {"train": sorted([f"{one}.jpg", f"{other}.jpg"])}


def test_a_dataset_called_as_a_split_in_another_language_is_whole(tmp_path):
    yolo(tmp_path / "prueba")
    assert len(load(tmp_path, "train")) == 1


@pytest.mark.parametrize(
    "train, test", [("entrenamiento", "prueba"), ("Treino", "Teste"), ("train", "test")]
)
def test_splits_in_other_languages(tmp_path, train, test):
    put(tmp_path, "images/a.jpg", "images/b.jpg")
    rows = {name: f"{name}.jpg,40,20,cat,1,2,9,9\n" for name in "ab"}
    put(tmp_path, f"{train}.csv", text=CSV + rows["a"])
    put(tmp_path, f"{test}.csv", text=CSV + rows["b"])
    assert loaded(tmp_path)[0] == {"train": ["a.jpg"], "test": ["b.jpg"]}


def test_images_of_a_json_that_are_pointers_of_git_lfs_are_called_so(tmp_path):
    put(tmp_path, "annotations/instances_default.json", text=coco("a.jpg"))
    for number, place in enumerate(("red/train", "green/train")):
        put(tmp_path, f"{place}/a.jpg")
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{number}\n"
        (tmp_path / place / "a.jpg").write_text(pointer)
    with pytest.raises(FileNotFoundError, match=r"is a pointer of Git LFS: get"):
        load(tmp_path)


# --- Other formats.


def test_json_of_supervisely_under_another_name_is_called_so(tmp_path):
    content = {"description": "", "tags": [], "size": {}, "objects": []}
    put(tmp_path, "images/input/base.json", text=json.dumps(content))
    put(tmp_path, "images/input/base.jpg")
    with pytest.raises(ValueError, match=r"must be called ann/a\.jpg\.json"):
        load(tmp_path)


def test_folders_of_predictions_are_named(tmp_path):
    """A repository that had no other boxes trained on those of its own detector."""
    folder = tmp_path / "runs" / "detect" / "predict2"
    put(folder, "a.jpg", "b.jpg")
    put(folder, "labels/a.txt", "labels/b.txt", text=ROW)
    names, told = loaded(tmp_path)
    assert names == {"train": ["a.jpg", "b.jpg"]}
    assert "programs write what a detector found into folders such as 'runs'" in told
    told = loaded(folder)[1]
    assert "such as 'predict2'" in told


def test_results_beside_a_dataset_are_no_predictions(tmp_path):
    yolo(tmp_path)
    put(tmp_path / "runs" / "detect" / "predict", "a.jpg")
    assert "what a detector found" not in loaded(tmp_path)[1]


def test_numbered_folders_of_xml_files_go_with_those_of_images(tmp_path):
    """The error named `Annotations01`, which ended in another error."""
    for number in (1, 2):
        voc(
            tmp_path,
            f"a{number}",
            images=f"JPEGImages0{number}",
            annotations=f"Annotations0{number}",
        )
    with pytest.raises(ValueError, match="holds 2 datasets of different images"):
        load_splits(tmp_path)
    names, told = loaded(tmp_path / "Annotations02")
    assert names == {"train": ["a2.jpg"]}
    assert "JPEGImages02', beside that folder" in told


def test_images_beside_xml_files_are_no_yolo_dataset(tmp_path, capsys):
    voc(tmp_path, "a", images="Images", annotations="Labels")
    assert loaded(tmp_path)[0] == {"train": ["a.jpg"]}
    assert "YOLO" not in capsys.readouterr().out


@pytest.mark.parametrize("folder", ["annotation1", "train-annotations-new"])
def test_a_folder_of_xml_files_alone_gets_the_images_beside_it(tmp_path, folder):
    """The error named the folder, which then lacked its 2,822 images."""
    voc(tmp_path, "a", "b", images="trainingmask", annotations=folder)
    put(tmp_path / "raw", "c.jpg")
    put(tmp_path / "masks", "a.jpg")  # no images of that name are taken from masks
    names, told = loaded(tmp_path / folder)
    assert names == {"train": ["a.jpg", "b.jpg"]}
    assert "trainingmask', beside that folder" in told
    put(tmp_path / "others", "a.jpg")  # has no image of most files
    assert loaded(tmp_path / folder)[0] == names
    put(tmp_path / "small", "a.jpg", "b.jpg")  # now there are two
    with pytest.raises(FileNotFoundError, match="2 missing images"):
        load_splits(tmp_path / folder)


def test_a_dataset_without_its_images_takes_none_of_its_neighbors(tmp_path):
    voc(tmp_path / "mine", "a", "b")
    for name in "ab":
        (tmp_path / f"mine/JPEGImages/{name}.jpg").unlink()
    put(tmp_path, "other/a.jpg", "other/b.jpg")
    with pytest.raises(FileNotFoundError, match="mine/JPEGImages/a.jpg"):
        load_splits(tmp_path / "mine")


def test_another_yaml_file_that_names_the_class_is_named(tmp_path):
    for split in ("train", "val"):
        put(tmp_path, f"data/{split}/images/{split}.jpg")
        rows = ROW + ROW.replace("0 ", "1 ", 1)
        put(tmp_path, f"data/{split}/labels/{split}.txt", text=rows)
    text = "path: data\ntrain: train/images\nval: val/images\nnames: {}\n"
    put(tmp_path, "dog.yaml", text=text.format("[dog]"))
    put(tmp_path, "dog_posture.yaml", text=text.format("[standing, sitting]"))
    message = "dog_posture.yaml' has more names: if these are the right ones, pass that"
    with pytest.raises(ValueError, match=message):
        load_splits(tmp_path)
    assert load(tmp_path / "dog_posture.yaml", "val").class_names[1] == "sitting"


def test_archives_that_are_pointers_of_git_lfs_cannot_be_unpacked(tmp_path):
    put(tmp_path, "annotations.json", text=coco("a.jpg", "b.jpg"))
    put(tmp_path, "images/c.jpg")
    put(tmp_path, "data/images.zip", text="version https://git-lfs.github.com/spec/v1")
    with pytest.raises(
        FileNotFoundError, match="images.zip', which is a pointer of Gi"
    ):
        load_splits(tmp_path)


def test_images_of_another_size_than_annotated_are_named(tmp_path):
    """255 of 329 images had been renamed: their boxes were those of other images."""
    voc(tmp_path, *"abcd")
    size = "<size><width>{}</width><height>{}</height></size></annotation>"
    for name, sides in zip("abcd", ((40, 20), (20, 40), (64, 64), (64, 20))):
        text = VOC.format(f"{name}.jpg").replace("</annotation>", size.format(*sides))
        put(tmp_path, f"Annotations/{name}.xml", text=text)
    told = loaded(tmp_path)[1]
    assert "2 of 4 images that were opened have another size than the " in told
    assert "c.jpg': 40 x 20 pixels, not 64 x 64" in told


def test_images_of_two_lists_may_be_in_a_folder_called_after_one(tmp_path):
    """The list to test on was left out: "none of its first images is there"."""
    names = {"train": ("a", "b", "c"), "test": ("d", "e")}
    for split, own in names.items():
        put(tmp_path, *(f"dataset/train_data/{name}.jpg" for name in own))
        put(tmp_path, *(f"dataset/train_data/{name}.txt" for name in own), text=ROW)
        lines = "".join(f"data/fork_lift/{name}.jpg\n" for name in own)
        put(tmp_path, f"{split}.txt", text=lines)
    put(tmp_path, "classes.txt", text="fork lift\n")
    found = loaded(tmp_path)[0]
    assert found == {"train": ["a.jpg", "b.jpg", "c.jpg"], "test": ["d.jpg", "e.jpg"]}


def test_a_list_whose_images_are_gone_takes_none_of_another_list(tmp_path):
    """Frames of two videos may have the same names."""
    put(tmp_path, "dataset/train/1.jpg", "dataset/train/2.jpg")
    put(tmp_path, "dataset/train/1.txt", "dataset/train/2.txt", text=ROW)
    for split in ("train", "test"):
        put(tmp_path, f"{split}.txt", text=f"data/{split}/1.jpg\ndata/{split}/2.jpg\n")
    names, told = loaded(tmp_path)
    assert names == {"train": ["1.jpg", "2.jpg"]}
    assert "the list 'test.txt' is left out" in told
