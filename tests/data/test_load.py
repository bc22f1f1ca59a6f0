"""`load`, `load_splits`, `convert`: formats found by their files, or explained."""

import inspect
import json
import re
import shutil

import numpy as np
import pytest
from PIL import Image

from effdet_keras import data
from effdet_keras.data import from_arrays, load, load_splits, load_train_valid
from effdet_keras.data.any_format import load_each
from effdet_keras.data.known_formats import FORMATS


def touch(path, content=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    if content is None:
        Image.new("RGB", (40, 20)).save(path)
    else:
        path.write_text(content)


def coco(names=("a.png",), classes=((1, "cat"),)):
    return json.dumps(
        {
            "images": [
                {"id": i, "file_name": name, "height": 20, "width": 40}
                for i, name in enumerate(names, 1)
            ],
            "annotations": [
                {"id": i, "image_id": 1, "category_id": key, "bbox": [1, 2, 3, 4]}
                for i, (key, _) in enumerate(classes, 1)
            ],
            "categories": [{"id": key, "name": name} for key, name in classes],
        }
    )


XML = (
    "<annotation><object><name>{}</name><bndbox><xmin>2</xmin><ymin>3</ymin>"
    "<xmax>4</xmax><ymax>6</ymax></bndbox></object></annotation>"
)

COCO, VOC, YOLO = coco(), XML.format("cat"), "0 0.0625 0.2 0.075 0.2"
CSV = "filename,class,xmin,ymin,xmax,ymax\na.png,cat,1,2,4,6"
# What is said of it, its files of text, its images.
LAYOUTS = {
    "coco file beside its folder": (
        "COCO json: splits train, valid",
        {"train.json": COCO, "valid.json": COCO},
        "train/a.png valid/a.png",
    ),
    "coco as it is published": (
        "COCO json: splits train2017, val2017",
        {
            "annotations/instances_train2017.json": COCO,
            "annotations/instances_val2017.json": COCO,
            "annotations/person_keypoints_val2017.json": COCO,
            "annotations/captions_val2017.json": '{"images": [], "annotations": []}',
        },
        "train2017/a.png val2017/a.png",
    ),
    **{
        f"coco in {file}": ("COCO json: split train", {file: COCO}, image)
        for file, image in {
            "annotations.json": "images/a.png",
            "annotations/instances_default.json": "images/a.png",
            "labels.json": "data/a.png",  # FiftyOne
        }.items()
    },
    "roboflow coco": (
        "COCO json: splits train, valid",
        {
            "train/_annotations.coco.json": COCO,
            "valid/_annotations.coco.json": COCO,
            "README.roboflow.txt": "",
        },
        "train/a.png valid/a.png",
    ),
    "voc": (
        "Pascal VOC: splits train, trainval, val",
        {
            "Annotations/a.xml": VOC,
            "ImageSets/Main/train.txt": "a\n",
            "ImageSets/Main/cat_train.txt": "a 1\n",
            "ImageSets/Main/val.txt": "a\n",
            "ImageSets/Main/trainval.txt": "a\n",
        },
        "JPEGImages/a.png",
    ),
    "xml beside images": ("Pascal VOC: split train", {"a.xml": VOC}, "a.png"),
    "voc folders in the folders of splits": (
        "Pascal VOC: splits test, train",
        {"train/annotations/a.xml": VOC, "test/annotations/a.xml": VOC},
        "train/images/a.png test/images/a.png",
    ),
    "roboflow voc": (
        "Pascal VOC: splits test, train",
        {"train/a.xml": VOC, "test/a.xml": VOC},
        "train/a.png test/a.png",
    ),
    "yolo": (
        "YOLO: splits train, val",
        {
            "data.yaml": "train: images/train\nval: images/val\nnames: [cat]",
            "labels/train/a.txt": YOLO,
            "labels/val/a.txt": YOLO,
        },
        "images/train/a.png images/val/a.png",
    ),
    "txt beside images": (
        "YOLO: split train",
        {"a.txt": YOLO, "classes.txt": "cat"},
        "a.png",
    ),
    "csv": (
        "CSV: splits test, train",
        {"train_labels.csv": CSV, "test_labels.csv": CSV},
        "train/a.png test/a.png",
    ),
    "automl": (
        "CSV: splits train, test",
        {"data.csv": "TRAIN,a.png,cat,.025,.1,,,.1,.3,,\nTEST,b.png,,,,,,,,,"},
        "a.png b.png",
    ),
}


@pytest.fixture(params=LAYOUTS)
def layout(request, tmp_path):
    wanted, texts, images = LAYOUTS[request.param]
    for name, content in texts.items():
        touch(tmp_path / "set" / name, content)
    for name in images.split():
        touch(tmp_path / "set" / name)
    return tmp_path / "set", wanted


def test_the_form_is_found_and_said(layout, capsys):
    folder, wanted = layout
    splits = load_splits(folder)
    said, *more = capsys.readouterr().out.splitlines()
    assert said == f"{str(folder)!r} is {wanted}"
    assert len(more) == ("trainval" in wanted)  # it is not read
    named = re.sub(".*: splits? ", "", wanted).split(", ")
    assert list(splits) == [name for name in named if name != "trainval"]
    for name in named:
        dataset = load(folder, name, class_names=["cat"])
        assert len(dataset) == 1 and dataset.class_names == ("cat",)
        if len(dataset[0]["boxes"]):
            np.testing.assert_allclose(dataset[0]["boxes"], [[2, 1, 6, 4]], atol=1e-5)
    if len(named) == 1:
        assert len(load(folder)) == 1
    else:
        with pytest.raises(ValueError, match=r"`split` must be one of .*split=None"):
            load(folder)


def test_a_folder_around_it_is_looked_into(layout, tmp_path):
    folder, _ = layout
    (tmp_path / "unpacked" / "__MACOSX").mkdir(parents=True)
    shutil.move(folder, tmp_path / "unpacked" / "set")
    assert list(load_splits(tmp_path / "unpacked"))


def test_files_are_read_by_themselves(tmp_path, capsys):
    image = np.zeros((20, 40, 3), np.uint8)
    dataset = from_arrays([image], [[[1, 2, 3, 4]]], [[0]], ["cat"])
    for format in ("coco", "yolo", "csv", "tfrecord"):
        getattr(data, f"write_{format}")(dataset, tmp_path / format)
    for file in (
        "coco/train.json",
        "yolo/data.yaml",
        "csv/train.csv",
        "tfrecord/train-00000-of-00001.tfrecord",
    ):
        assert len(load(tmp_path / file)) == 1, file
    assert capsys.readouterr().out.count(" is ") == 4


@pytest.mark.smoke
def test_splits_get_the_classes_of_all(tmp_path):
    touch(tmp_path / "train.json", coco(classes=((3, "dog"), (1, "cat"))))
    touch(tmp_path / "valid.json", coco(classes=((2, "cow"), (3, "dog"))))
    touch(tmp_path / "train/a.png")
    touch(tmp_path / "valid/a.png")
    splits = load_splits(tmp_path)
    for dataset in splits.values():
        assert dataset.class_names == ("cat", "cow", "dog")
        assert dataset.category_ids == (1, 2, 3)
    np.testing.assert_array_equal(splits["train"].records[0].labels, [2, 0])
    np.testing.assert_array_equal(splits["valid"].records[0].labels, [1, 2])
    # The same id for other classes: all are counted anew.
    touch(tmp_path / "valid.json", coco(classes=((1, "cow"), (3, "dog"))))
    assert load_splits(tmp_path)["train"].category_ids == (1, 2, 3)
    named = load_splits(tmp_path, class_names=["dog", "cow", "cat"])
    assert named["valid"].class_names == ("dog", "cow", "cat")


def test_an_unknown_folder_is_explained(tmp_path):
    for i in range(12):
        touch(tmp_path / f"{i:02}.txt", "")
    (tmp_path / "images").mkdir()
    with pytest.raises(ValueError) as caught:
        load(tmp_path)
    for part in ("00.txt, 01.txt", "Looked for COCO json, Pascal VOC"):
        assert part in str(caught.value)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="holds nothing"):
        load(tmp_path / "empty")
    with pytest.raises(ValueError, match=r"00\.txt.*which is a file"):
        load(tmp_path / "00.txt")
    with pytest.raises(FileNotFoundError, match="There is no dataset .*nowhere"):
        load(tmp_path / "nowhere")


def test_why_a_form_was_not_readable_is_said(tmp_path):
    touch(tmp_path / "data.yaml", "names: [cat]")
    with pytest.raises(ValueError, match="Not readable: YOLO: A data.yaml must"):
        load(tmp_path)


def test_of_two_formats_of_the_same_images_one_is_read_and_told(tmp_path, capsys):
    touch(tmp_path / "train.json", COCO)
    touch(tmp_path / "a.xml", VOC)
    touch(tmp_path / "a.png")
    assert load(tmp_path)[0]["source_id"] == 1
    said = capsys.readouterr().out
    assert "is COCO json: split train" in said
    assert "as Pascal VOC. They were not read: both have 1 box in 1 image." in said
    assert load(tmp_path, format="coco")[0]["source_id"] == 1
    assert load(tmp_path, format="voc")[0]["source_id"] == "a"
    assert list(data.load_splits(tmp_path, format="voc")) == ["train"]
    assert data.check(tmp_path, format="voc", model=None).ok
    data.convert(tmp_path, tmp_path.parent / "out", "yolo", format="voc")
    assert len(load(tmp_path.parent / "out")) == 1
    assert len(load(tmp_path / "train.json")) == 1


def test_how_two_formats_of_the_same_images_differ_is_told(tmp_path, capsys):
    for name in "ab":
        touch(tmp_path / f"{name}.xml", VOC)
        touch(tmp_path / f"{name}.txt", YOLO)
        touch(tmp_path / f"{name}.png")
    touch(tmp_path / "classes.txt", "cat")
    touch(tmp_path / "b.txt", f"{YOLO}\n0 0.5 0.5 0.5 0.5")
    assert sum(len(record.labels) for record in load(tmp_path).records) == 3
    said = capsys.readouterr().out
    assert "is YOLO" in said
    assert "as Pascal VOC. They were not read, and they differ (" in said
    assert "(read: 3 boxes in 2 images; not read: 2 boxes in 2 images)" in said
    assert "1 image differs: 'b' (read: 2 boxes; not read: 1 box)" in said


def test_two_formats_of_different_images_ask_which_to_read(tmp_path):
    touch(tmp_path / "train.json", COCO)
    touch(tmp_path / "b.xml", VOC)
    touch(tmp_path / "a.png")
    touch(tmp_path / "b.png")
    with pytest.raises(ValueError, match=r"2 formats.*\['coco', 'voc'\]"):
        load(tmp_path)
    assert load(tmp_path, format="coco")[0]["source_id"] == 1
    assert load(tmp_path, format="voc")[0]["source_id"] == "b"


def test_a_format_that_is_unknown_or_not_there_is_named(tmp_path):
    touch(tmp_path / "train.json", COCO)
    touch(tmp_path / "train/a.png")
    with pytest.raises(ValueError, match="'coco', 'voc'.*Received: format='xml'"):
        load(tmp_path, format="xml")
    with pytest.raises(ValueError, match="No dataset was found.*YOLO"):
        load(tmp_path, format="yolo")


@pytest.mark.parametrize("names", ["annotations", "annotations/xmls", "."])
@pytest.mark.parametrize("images", ["images", "JPEGImages"])
def test_xml_files_and_images_in_folders_of_other_names(tmp_path, names, images):
    touch(tmp_path / names / "a.xml", VOC)
    touch(tmp_path / images / "a.png")
    for dataset in (load(tmp_path), data.from_voc(tmp_path)):
        assert dataset[0]["path"] == str(tmp_path / images / "a.png")
        assert dataset[0]["image"].shape == (20, 40, 3)


def test_convert_refuses_what_it_cannot_do(tmp_path):
    touch(tmp_path / "train.json", COCO)
    touch(tmp_path / "train/a.png")
    with pytest.raises(ValueError, match="to='xml'"):
        data.convert(tmp_path, tmp_path / "out", "xml")
    with pytest.raises(ValueError, match="`num_shards` is an option of 'tfrecord'"):
        data.convert(tmp_path, tmp_path / "out", "yolo", num_shards=3)
    with pytest.raises(FileExistsError, match="train"):
        data.convert(tmp_path, tmp_path / "train", "yolo")
    assert not (tmp_path / "out").exists()


def test_the_split_to_train_on_may_be_vocs_trainval(tmp_path):
    for name in "ab":
        touch(tmp_path / f"Annotations/{name}.xml", VOC)
        touch(tmp_path / f"JPEGImages/{name}.png")
    touch(tmp_path / "ImageSets/Main/trainval.txt", "a\n")
    touch(tmp_path / "ImageSets/Main/test.txt", "b\n")
    assert load(tmp_path, "train").image_ids == load(tmp_path, "trainval").image_ids
    with pytest.raises(ValueError, match=r"load\(DATA, 'trainval'\)\.split\(0\.8\)"):
        load(tmp_path, "valid")
    touch(tmp_path / "ImageSets/Main/train.txt", "b\n")
    assert load(tmp_path, "train").image_ids == load(tmp_path, "test").image_ids


def test_data_that_is_not_divided_is_an_error_with_the_cure(tmp_path):
    touch(tmp_path / "a.xml", VOC)
    touch(tmp_path / "a.png")
    with pytest.raises(ValueError, match=r"= ek\.data\.load\(DATA\)\.split\(0\.8\)`"):
        load(tmp_path, "val")
    with pytest.raises(ValueError, match="Received: split='fold1'$"):
        load(tmp_path, "fold1")


@pytest.mark.parametrize("names", [("train2017", "val2017"), ("Train", "eval")])
def test_images_to_train_and_to_validate_on_are_found(tmp_path, names, capsys):
    for name, image in zip((*names, "test"), "abc"):
        touch(tmp_path / f"{name}.json", coco([f"{image}.png"]))
        touch(tmp_path / f"{name}/{image}.png")
    train, valid = load_train_valid(tmp_path)
    files = [[r.file_name for r in dataset.records] for dataset in (train, valid)]
    assert files == [["a.png"], ["b.png"]]
    assert "chosen at random" not in capsys.readouterr().out
    (tmp_path / f"{names[0]}.json").rename(tmp_path / "fold1.json")
    (tmp_path / names[0]).rename(tmp_path / "fold1")
    with pytest.raises(ValueError, match="`split` must be one of .*split='train'"):
        load_train_valid(tmp_path)


def test_what_is_wrong_in_one_of_both_is_left_out(tmp_path):
    for name, images in (("train", "ab"), ("val", "c")):
        touch(tmp_path / f"{name}.json", coco([f"{image}.png" for image in images]))
    touch(tmp_path / "train/a.png")
    touch(tmp_path / "val/c.png")
    with pytest.raises(FileNotFoundError, match="1 missing image"):
        load_train_valid(tmp_path)
    with pytest.warns(UserWarning, match="1 missing image"):
        train, valid = load_train_valid(tmp_path, on_error="skip")
    assert (len(train), len(valid)) == (1, 1)
    paths = {"train": tmp_path / "train.json", "val": tmp_path / "val.json"}
    with pytest.raises(FileNotFoundError, match="1 missing image"):
        load_each(paths)
    with pytest.warns(UserWarning, match="1 missing image"):
        assert len(load_each(paths, on_error="skip")["train"]) == 1


def test_what_is_not_divided_is_divided(tmp_path, capsys):
    for name in "abcde":
        touch(tmp_path / f"{name}.xml", VOC)
        Image.new("RGB", (40, 20), (40 * ord(name) % 256, 0, 0)).save(
            tmp_path / f"{name}.png"
        )
    train, valid = load_train_valid(tmp_path, 0.6, seed=1)
    assert sorted(train.image_ids + valid.image_ids) == sorted(load(tmp_path).image_ids)
    assert "2 images of 'train', chosen at random, are kept for validation, and 3" in (
        capsys.readouterr().out
    )


# --- What the reader of one format takes alone.


@pytest.fixture
def voc_folder(tmp_path):
    for name in "ab":
        touch(tmp_path / f"{name}.jpg")
        touch(tmp_path / f"{name}.xml", VOC)
    return tmp_path


def test_a_reader_takes_its_own_options_through_load(voc_folder):
    options = {"reader_options": {"one_based": False}}
    assert load(voc_folder)[0]["boxes"].tolist() == [[2, 1, 6, 4]]
    for dataset in (
        load(voc_folder, **options),
        load_splits(voc_folder, **options)["train"],
        load_train_valid(voc_folder, 0.5, **options)[0],
    ):
        assert dataset[0]["boxes"].tolist() == [[3, 2, 6, 4]]


def test_options_of_another_reader_are_refused_by_name(voc_folder):
    match = (
        "Pascal VOC does not take these `reader_options`: Pascal VOC takes one_based; "
        "VIA takes "
        "class_attribute; Hugging Face takes box_format.*'class_attribute': 'kind'"
    )
    with pytest.raises(ValueError, match=match):
        load(voc_folder, reader_options={"class_attribute": "kind"})


def test_options_are_of_one_of_several_formats(voc_folder):
    """The csv files inside have the same images, in splits, and no such option."""
    for split, name in (("train", "a"), ("test", "b")):
        row = f"{name}.jpg,40,20,cat,1,2,4,6\n"
        text = f"filename,width,height,class,xmin,ymin,xmax,ymax\n{row}"
        touch(voc_folder / "data" / f"{split}_labels.csv", text)
    assert sorted(load_splits(voc_folder)) == ["test", "train"]
    (dataset,) = load_splits(voc_folder, reader_options={"one_based": False}).values()
    assert dataset[0]["boxes"].tolist() == [[3, 2, 6, 4]] and len(dataset) == 2


def test_options_that_cannot_be_right_are_refused(voc_folder):
    with pytest.raises(ValueError, match="`one_based` must be True or False.*'no'"):
        load(voc_folder, reader_options={"one_based": "no"})
    touch(voc_folder / "train-00000-of-00001.tfrecord", "")
    pattern = str(voc_folder / "train-*.tfrecord")
    with pytest.raises(ValueError, match="TFRecord does not take these `reader_opt"):
        load(pattern, reader_options={"one_based": False})


def test_every_option_that_is_listed_is_one_of_its_reader():
    for name, format in FORMATS.items():
        reader = getattr(data, f"from_{name}", None)
        for option in format.reader_options:
            assert option in inspect.signature(reader).parameters
