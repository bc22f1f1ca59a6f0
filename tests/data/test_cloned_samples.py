"""Repositories of two further samples, as small copies: see `test_cloned.py`."""

import base64
import json
import pathlib
import shutil

import pytest
from PIL import Image
from support.cloned_files import CSV, ROW, VOC, coco, loaded, paths, put, voc, yolo

from effdet_keras.data import load, load_splits
from effdet_keras.data.problems import NoImageError


def test_folders_below_notebooks_are_searched_to_the_same_depth(tmp_path):
    yolo(tmp_path / "notebooks/datasets/pets")
    put(tmp_path, "models/.gitkeep")
    assert list(load_splits(tmp_path)) == ["train"]


def test_a_csv_file_of_fractions_does_not_hide_a_dataset_below(tmp_path, capsys):
    """The answers of a detector; only the error of the csv file was shown."""
    yolo(tmp_path / "source/code/data", "train/images", "train/labels")
    yolo(tmp_path / "source/code/data", "val/images", "val/labels", ["b"])
    put(tmp_path, "source/c.jpg")
    rows = "c.jpg,0.1,0.2,0.3,0.4,ball\nc.jpg,0.1,0.2,0.3,0.5,ball\n"
    header = "filename,xmin,ymin,xmax,ymax,class\n"
    put(tmp_path, "source/answer.csv", text=header + rows)
    splits, said = load_splits(tmp_path), capsys.readouterr().out
    assert {name: len(d) for name, d in splits.items()} == {"train": 1, "val": 1}
    assert "answer" in said and "none of its boxes could be read" in said


def test_folders_of_images_and_annotations_of_a_split_have_its_name(tmp_path):
    for name in ("a", "b"):
        put(tmp_path, f"train_images/{name}.jpg", f"test_images/{name}2.jpg")
        put(tmp_path, f"train_annotations/{name}.xml", text=VOC.format(f"{name}.jpg"))
    assert list(load_splits(tmp_path)) == ["train"]
    for name in ("a2", "b2"):
        put(tmp_path, f"test_annotations/{name}.xml", text=VOC.format(f"{name}.jpg"))
    assert sorted(load_splits(tmp_path)) == ["test", "train"]


def test_pictures_of_what_was_predicted_are_not_the_images(tmp_path):
    for name in ("a", "b"):
        put(tmp_path, f"images/normal/{name}.jpg")
        put(tmp_path, f"images/predicted/{name}.jpg", color="red")
        put(tmp_path, f"images/gt/{name}.xml", text=VOC.format(f"{name}.jpg"))
    records = load(tmp_path).records
    assert [pathlib.Path(r.image).parent.name for r in records] == ["normal"] * 2


def test_darknets_folder_obj_is_the_training_split(tmp_path):
    """Its lists are written by a script, so they are not in the repository."""
    for folder, name in (("obj", "a"), ("test", "b")):
        put(tmp_path, f"{folder}/{name}.jpg")
        put(tmp_path, f"{folder}/{name}.txt", text=ROW)
        put(tmp_path, f"{folder}/classes.txt", text="w\n")
    put(tmp_path, "obj.names", text="boat\n")
    text = "classes = 1\ntrain = data/train.txt\nvalid = data/test.txt\n"
    put(tmp_path, "obj.data", text=text + "names = data/obj.names\n")
    splits = load_splits(tmp_path)
    assert {name: len(d) for name, d in splits.items()} == {"train": 1, "test": 1}
    assert {d.class_names for d in splits.values()} == {("boat",)}


def test_a_shortened_reason_says_that_it_goes_on(tmp_path, capsys):
    yolo(tmp_path / "pets")
    names = [f"{'long' * 20}{number}" for number in range(3)]
    for name in names:
        put(tmp_path, f"other/Annotations/{name}.xml", text=VOC.format(f"{name}.jpg"))
    put(tmp_path, "other/JPEGImages/none.jpg")
    load_splits(tmp_path)
    said = capsys.readouterr().out
    assert "which cannot be read" in said and " ... " in said


def test_files_of_a_program_do_not_use_up_those_that_are_looked_into(tmp_path):
    """A repository of C++ had 2,000 other files before the only annotations."""
    put(tmp_path, *(f"dlib/{number}.h" for number in range(2001)))
    put(tmp_path, "examples/a.mat", text="MATLAB")
    with pytest.raises(ValueError, match="a.mat' is a file of MATLAB"):
        load(tmp_path)


def test_rows_of_an_image_and_numbers_are_described(tmp_path):
    put(tmp_path, "Contest/1.jpg", "Contest/11.jpg")
    text = "11.jpg:none\n1.jpg:208,181,136,498\n"
    put(tmp_path, "Contest/result.txt", text=text)
    with pytest.raises(ValueError, match="result.txt' has rows of an image and four"):
        load(tmp_path)


def test_a_coco_file_far_below_without_images_is_called_so(tmp_path):
    put(tmp_path, "a/b/c/d/e/_annotations.coco.json", text=coco("a.jpg"))
    with pytest.raises(ValueError, match="is COCO json, but its images were not found"):
        load(tmp_path)


def test_lists_of_darknet_that_are_missing_are_named(tmp_path):
    """The error asked for the images "at the paths that the lists give"."""
    put(tmp_path, "obj.data", text="train = data/train.txt\nvalid = data/test.txt\n")
    put(tmp_path, "photos/a.jpg")
    with pytest.raises(ValueError, match="data/train.txt, data/test.txt.*are missing"):
        load(tmp_path)


def test_split_folders_below_an_unreadable_dataset_are_read(tmp_path, capsys):
    """Annotations without images, around images with theirs, which are divided."""
    put(tmp_path, "annotations/xmls/z.xml", text=VOC.format("z.jpg"))
    for name in "abcde":
        for folder in ("images", "images/test" if name == "e" else "images/train"):
            put(tmp_path, f"{folder}/{name}.jpg")
            put(tmp_path, f"{folder}/{name}.xml", text=VOC.format(f"{name}.jpg"))
    put(tmp_path, "images/test/a.jpg")  # without annotation here
    put(tmp_path, "images/e.txt", "images/test/e.txt", text=ROW)
    splits = load_splits(tmp_path)
    assert {name: len(d) for name, d in splits.items()} == {"train": 4, "test": 1}
    assert "was not read. To read it, pass that folder" not in capsys.readouterr().out


def test_copies_of_some_images_in_split_folders_are_no_division(tmp_path):
    put(tmp_path, "annotations/xmls/z.xml", text=VOC.format("z.jpg"))
    for name in "abcde":
        put(tmp_path, f"images/{name}.jpg")
        put(tmp_path, f"images/{name}.xml", text=VOC.format(f"{name}.jpg"))
    for name in "abc":
        folder = "images/test" if name == "c" else "images/train"
        put(tmp_path, f"{folder}/{name}.jpg")
        put(tmp_path, f"{folder}/{name}.xml", text=VOC.format(f"{name}.jpg"))
    splits = load_splits(tmp_path)
    assert {name: len(d) for name, d in splits.items()} == {"train": 5}


def test_images_are_read_from_the_only_folder_that_has_all_of_them(tmp_path):
    for name, color in (("a", "red"), ("b", "blue"), ("c", "green")):
        put(tmp_path, f"annotations/{name}.xml", text=VOC.format(f"{name}.jpg"))
        put(tmp_path, f"train_images/{name}.jpg", color=color)
        put(tmp_path, f"train_output/{name}.jpg", color="white")
    put(tmp_path, "test_images/a.jpg", "test_images/b.jpg", "test_images/out/a.jpg")
    for name in "ab":
        put(tmp_path, f"test/training/images/{name}.jpg", color="yellow")
        file = f"test/training/annotations/{name}.xml"
        put(tmp_path, file, text=VOC.format(f"{name}.jpg"))
    names, warned = loaded(tmp_path)
    assert names == {"train": ["a.jpg", "b.jpg", "c.jpg"]}
    assert {p.split("/")[0] for p in paths(load(tmp_path), tmp_path)} == {
        "train_images"
    }
    assert "the only folder that has all of them: 'test_images'" in warned


def test_tests_of_a_program_do_not_replace_a_dataset_of_unclear_images(tmp_path):
    for name in "abc":
        put(tmp_path, f"annotations/{name}.xml", text=VOC.format(f"{name}.jpg"))
        put(tmp_path, f"one/{name}.jpg")
        put(tmp_path, f"two/{name}.jpg", color="red")
    put(tmp_path, "test/training/images/a.jpg", color="yellow")
    file = "test/training/annotations/a.xml"
    put(tmp_path, file, text=VOC.format("a.jpg"))
    with pytest.raises(FileNotFoundError, match="it is unclear which one is meant"):
        load(tmp_path)


def test_lists_of_single_classes_are_the_splits_of_all_classes(tmp_path):
    """VoTT writes no `train.txt`: each class has lists, with 1 or -1 for each image."""
    voc(tmp_path, *"abcd")
    for name, flags in (("cat", (1, -1, 1)), ("dog", (-1, 1, -1))):
        lines = [f"{image}.jpg {flag}\n" for image, flag in zip("abc", flags)]
        put(tmp_path, f"ImageSets/Main/{name}_train.txt", text="".join(lines))
        put(tmp_path, f"ImageSets/Main/{name}_val.txt", text=f"d.jpg {flags[0]}\n")
    names, _ = loaded(tmp_path)
    assert names == {"train": ["a.jpg", "b.jpg", "c.jpg"], "val": ["d.jpg"]}
    for file in ("cat_train", "dog_train"):  # folds, not splits: no flags
        put(tmp_path, f"ImageSets/Main/{file}.txt", text="a\nb\nc\n")
    assert {"cat_train", "dog_train", "val"} <= load_splits(tmp_path).keys()


def test_lists_of_classes_that_share_images_between_splits_stay_apart(tmp_path):
    voc(tmp_path, *"ab")
    put(tmp_path, "ImageSets/Main/cat_train.txt", text="a 1\n")
    put(tmp_path, "ImageSets/Main/dog_val.txt", text="a 1\nb 1\n")
    assert sorted(load_splits(tmp_path)) == ["cat_train", "dog_val"]


def test_a_list_with_its_ending_twice_is_the_list_of_that_name(tmp_path):
    lists = {"train": "ab", "val.txt": "c", "val": "", "train.txt": "ab"}
    voc(tmp_path, *"abcd", lists=lists | {"test.txt": "d", "trainval.txt": ""})
    names, _ = loaded(tmp_path)
    assert names == {"train": ["a.jpg", "b.jpg"], "val": ["c.jpg"], "test": ["d.jpg"]}


def test_a_list_with_its_ending_twice_does_not_replace_another(tmp_path):
    voc(tmp_path, *"abc", lists={"train": "ab", "val": "c", "val.txt": "b"})
    assert {"train", "val", "val.txt"} == load_splits(tmp_path).keys()


def test_yolo_rows_of_corners_without_a_class_are_called_that(tmp_path):
    for name, row in (("a", "0.7 0.6 0.8 0.7"), ("b", "0.1 0.2 0.5 0.4")):
        put(tmp_path, f"images/{name}.jpg")
        put(tmp_path, f"images/{name}.txt", text=row)
    with pytest.raises(ValueError, match="four numbers and no class. They look like"):
        load(tmp_path)
    put(tmp_path, "images/a.txt", text="0.5 0.5 0.2 0.2")  # a center, and sides
    with pytest.raises(ValueError, match=r"and no class\. Received: '0.5 0.5") as info:
        load(tmp_path)
    assert "look like" not in str(info.value)
    put(tmp_path, "images/a.txt", "images/b.txt", text="0 0.5 0.5 0.2")
    with pytest.raises(ValueError, match="four numbers of a box or three or more"):
        load(tmp_path)


def test_few_images_to_evaluate_on_in_another_format_are_told(tmp_path, capsys):
    yolo(tmp_path, "train/images", "train/labels", "abcde", classes="")
    text = "train: train/images\nval: train/images\nnames: [cat]\n"
    put(tmp_path, "key.yaml", text=text)
    put(tmp_path, "val/images/z.jpg", color="red")
    put(tmp_path, "val/labels/z.xml", text=VOC.format("z.jpg"))
    splits, said = load_splits(tmp_path), capsys.readouterr().out
    assert {name: len(d) for name, d in splits.items()} == {"train": 5, "val": 5}
    assert "also holds a dataset of other images (Pascal VOC: split val" in said
    put(tmp_path, "val/images/y.jpg", color="blue")  # too many to be left out
    put(tmp_path, "val/labels/y.xml", text=VOC.format("y.jpg"))
    with pytest.raises(ValueError, match="different images in 2 formats"):
        load_splits(tmp_path)


def test_the_only_images_to_evaluate_on_are_not_left_out(tmp_path):
    yolo(tmp_path, names="abcde")
    put(tmp_path, "val/images/z.jpg", color="red")
    put(tmp_path, "val/annotations/z.xml", text=VOC.format("z.jpg"))
    with pytest.raises(ValueError, match="datasets of different images|2 formats"):
        load_splits(tmp_path)


def _csv_of(*names):
    return CSV + "".join(f"{name}.jpg,40,20,cat,1,2,12,13\n" for name in names)


def test_the_fuller_of_two_versions_of_csv_files_is_read(tmp_path):
    put(tmp_path, *(f"{name}.jpg" for name in "abcd"))
    for name, images in (("train", "ab"), ("test", "cd")):
        put(tmp_path, f"data/{name}_labels.csv", text=_csv_of(images[0]))
        put(tmp_path, f"data/{name}_labels_w_road.csv", text=_csv_of(*images))
    names, warned = loaded(tmp_path)
    assert names == {"train": ["a.jpg", "b.jpg"], "test": ["c.jpg", "d.jpg"]}
    assert "'train_labels.csv' is not read: 'train_labels_w_road.csv' has" in warned
    assert "'test_labels.csv' is not read" in warned and "are also in" not in warned
    with pytest.warns(UserWarning, match="'train_labels.csv' is not read"):
        load(tmp_path, "train")
    for file in (tmp_path / "data").glob("*_w_road.csv"):
        file.rename(file.with_name(file.name.replace("w_road", "augmented")))
    assert len(load_splits(tmp_path)) == 4


def test_csv_files_of_some_images_do_not_replace_those_of_all(tmp_path):
    put(tmp_path, *(f"{name}.jpg" for name in "abcd"))
    for name, images in (("train", "ab"), ("test", "cd")):
        put(tmp_path, f"{name}_small.csv", text=_csv_of(images[0]))
        put(tmp_path, f"{name}.csv", text=_csv_of(*images))
    assert len(load(tmp_path, "train")) == 2
    assert len(load(tmp_path, "train_small")) == 1


def test_segmentation_masks_of_cvat_are_called_that(tmp_path):
    put(tmp_path, "dataset/img/a.png", "dataset/mask/a.png")
    text = "# label:color_rgb:parts:actions\nbackground:0,0,0::\nwater:170,240,209::\n"
    put(tmp_path, "dataset/labelmap.txt", text=text)
    with pytest.raises(ValueError, match=r"labelmap\.txt' lists the colors of CVAT"):
        load(tmp_path)
    put(tmp_path, "dataset/Annotations/a.txt")  # of Pascal VOC, but lost
    with pytest.raises(ValueError, match="No dataset was found") as info:
        load(tmp_path)
    assert "CVAT's" not in str(info.value)


def test_a_folder_of_roboflow_that_names_no_split_is_to_train_on(tmp_path):
    folder = tmp_path / "pets.v3i.coco-segmentation"
    put(folder, "train/a.jpg")
    put(folder, "_annotations.coco.json", text=coco("a.jpg"))
    assert list(load_splits(tmp_path)) == list(load_splits(folder)) == ["train"]
    folder = folder.rename(tmp_path / "pets_val")
    assert list(load_splits(folder)) == ["pets_val"]


def test_json_files_of_labelme_with_images_inside_are_told(tmp_path, capsys):
    yolo(tmp_path / "dataset", classes="")
    text = "path: dataset\ntrain: images\nval: images\nnames: [cat]\n"
    put(tmp_path, "pets.yaml", text=text)
    image = base64.b64encode((tmp_path / "dataset/images/a.jpg").read_bytes()).decode()
    shape = {"label": "cat", "points": [[1, 2], [9, 8]], "shape_type": "rectangle"}
    content = {"shapes": [shape], "imagePath": "a.jpg", "imageData": None}
    put(tmp_path, "json labels/a.json", text=json.dumps(content))
    load_splits(tmp_path)
    assert "json labels" not in capsys.readouterr().out
    content["imageData"] = image
    put(tmp_path, "json labels/a.json", text=json.dumps(content))
    load_splits(tmp_path)
    said = capsys.readouterr().out
    assert "json labels' also holds a dataset (LabelMe json: split train)" in said


def test_json_files_of_labelme_that_were_read_are_not_told(tmp_path, capsys):
    put(tmp_path, "images/a.jpg")
    image = base64.b64encode((tmp_path / "images/a.jpg").read_bytes()).decode()
    shape = {"label": "cat", "points": [[1, 2], [9, 8]], "shape_type": "rectangle"}
    content = {"shapes": [shape], "imagePath": "a.jpg", "imageData": image}
    put(tmp_path, "annotations/a.json", text=json.dumps(content))
    assert list(load_splits(tmp_path)) == ["train"]
    assert "also holds" not in capsys.readouterr().out


def test_too_few_names_say_up_to_which_number_they_are_needed(tmp_path):
    yolo(tmp_path, names=("a", "b", "c"), classes="dog\ncat\n")
    for name, number in (("b", 13), ("c", 53)):
        put(tmp_path, f"labels/{name}.txt", text=ROW.replace("0", str(number), 1))
    with pytest.raises(ValueError, match="13: .*only 2 names.*Add names for 0 to 53"):
        load_splits(tmp_path)


def test_the_folders_of_openlabeling_are_a_pair(tmp_path):
    for clip in ("green/01", "green/02"):
        names = [f"{clip[-2:]}_{i}" for i in range(3)]
        yolo(tmp_path / clip, "pictures", "out/YOLO_darknet", names, classes="")
        put(tmp_path / clip, f"out/PASCAL_VOC/{names[0]}.xml", text="<annotation/>")
    put(tmp_path, "class_list.txt", text="ball\nfigure\n")
    dataset = load(tmp_path / "green/01")
    assert (len(dataset), dataset.class_names) == (3, ("0",))
    with pytest.raises(ValueError, match="2 datasets of different images"):
        load_splits(tmp_path)


SIZED = VOC.replace(
    "<object>", "<size><width>{1}</width><height>{2}</height></size><object>"
)


def test_boxes_of_images_that_were_made_smaller_are_scaled(tmp_path):
    """Of 16 images of a phone, 15 were made smaller after they had been annotated."""
    for name, size in (("a", (12, 8)), ("b", (12, 8)), ("c", (24, 16))):
        put(tmp_path, f"{name}.xml", text=SIZED.format(f"{name}.jpg", 24, 16))
        Image.new("RGB", size).save(tmp_path / f"{name}.jpg")
    with pytest.warns(
        UserWarning, match="2 of 3 images are smaller than when annotated"
    ):
        dataset = load(tmp_path)
    boxes = [record.boxes_xywh[0].tolist() for record in dataset.records]
    assert boxes[0] == boxes[1] == pytest.approx([0.5, 1.0, 6.5, 7.0], abs=0.01)
    assert boxes[2] == [1, 2, 13, 14]
    assert [record.image_size for record in dataset.records] == [(8, 12)] * 2 + [
        (16, 24)
    ]


@pytest.mark.parametrize("size, declared", [((12, 8), (30, 16)), ((16, 20), (32, 40))])
def test_boxes_of_other_images_of_another_size_are_not_scaled(tmp_path, size, declared):
    """Another shape, or boxes that are inside: the size may be what is wrong."""
    put(tmp_path, "a.xml", text=SIZED.format("a.jpg", *declared))
    Image.new("RGB", size).save(tmp_path / "a.jpg")
    with pytest.warns(UserWarning, match="1 of 1 image that were opened has another"):
        dataset = load(tmp_path)
    assert dataset.records[0].boxes_xywh.tolist() == [[1, 2, 13, 14]]
    assert dataset.records[0].image_size == declared[::-1]


def test_a_table_of_all_images_is_no_split_beside_train_and_test(tmp_path, capsys):
    """It has images that the others do not have, too."""
    rows = [f"{name}.jpg,40,20,cat,2,3,14,16\n" for name in "abcd"]
    put(tmp_path, "a.jpg", "b.jpg", "c.jpg", "d.jpg")
    put(tmp_path, "data/labels.csv", text=CSV + "".join(rows))
    put(tmp_path, "data/train_labels.csv", text=CSV + rows[0])
    put(tmp_path, "data/test_labels.csv", text=CSV + rows[1])
    assert loaded(tmp_path)[0] == {"test": ["b.jpg"], "train": ["a.jpg"]}
    said = capsys.readouterr().out
    assert "it has all images of the splits test, train, and 2 more" in said
    assert len(load(tmp_path, split="labels")) == 4


def test_regions_of_a_split_without_attributes_have_the_class_of_the_others(tmp_path):
    """Both attributes of the training images say the same, so neither is asked for."""
    box = {"name": "rect", "x": 1, "y": 2, "width": 12, "height": 13}
    for split, attributes in (
        ("train", {"inseto": "kudzu", "insect": "kudzu"}),
        ("val", {}),
    ):
        region = {"shape_attributes": box, "region_attributes": attributes}
        content = {"a": {"filename": f"{split}.jpg", "regions": [region]}}
        put(tmp_path, f"{split}/{split}.jpg")
        put(tmp_path, f"{split}/via_region_data.json", text=json.dumps(content))
    for options in ({}, {"reader_options": {"class_attribute": "insect"}}):
        with pytest.warns(
            UserWarning, match="'kudzu', the only one of the other splits"
        ):
            splits = load_splits(tmp_path, **options)
        assert [len(d.records[0].labels) for d in splits.values()] == [1, 1]
        assert {d.class_names for d in splits.values()} == {("kudzu",)}


def test_csv_files_below_a_divided_dataset_are_compared_with_it(tmp_path, capsys):
    """One xml file had a class by another name than the csv file."""
    for split, name in (("train", "a"), ("test", "b")):
        put(tmp_path, f"images/{split}/{name}.jpg")
        text = VOC.format(f"{name}.jpg")
        put(tmp_path, f"images/{split}/{name}.xml", text=text)
        row = f"{name}.jpg,40,20,cats,2,3,14,16\n"
        put(tmp_path, f"images/data/{split}_labels.csv", text=CSV + row)
    splits, said = load_splits(tmp_path), capsys.readouterr().out
    assert sorted(splits) == ["test", "train"]
    assert splits["train"].class_names == ("cat",)
    assert "the classes differ (read: 2 'cat'; not read: 2 'cats')" in said


def test_a_folder_of_masks_is_named(tmp_path):
    for name in "abc":
        put(tmp_path, f"unet/train/images/{name}.png", f"unet/train/masks/{name}.png")
    with pytest.raises(ValueError, match="train/masks' has masks of the images beside"):
        load(tmp_path)


def test_splits_of_different_images_come_before_copies_in_both_splits(tmp_path, capsys):
    """A classifier's folders had each image in `train` and in `test`."""
    names = ["a", "b", "c"]
    for folder in ("images", "classes/train/cat", "classes/test/cat"):
        for name in names:
            put(tmp_path / folder, f"{name}.jpg")
            put(tmp_path / folder, f"{name}.xml", text=VOC.format(f"{name}.jpg"))
    rows = [f"{name}.jpg,40,20,cat,1,2,14,16\n" for name in names]
    put(tmp_path, "csv/train_labels.csv", text=CSV + rows[0] + rows[1])
    put(tmp_path, "csv/test_labels.csv", text=CSV + rows[2])
    read = loaded(tmp_path)[0]
    assert read == {"train": ["a.jpg", "b.jpg"], "test": ["c.jpg"]}
    assert "classes' also has annotations of the same images" in capsys.readouterr().out


def test_an_older_copy_with_more_images_is_not_read(tmp_path, capsys):
    for folder, names in (("data", "ab"), ("data_old", "abcd")):
        for split, own in (("train", names[::2]), ("test", names[1::2])):
            rows = "".join(f"{name}.jpg,40,20,cat,2,3,14,16\n" for name in own)
            put(tmp_path, f"{folder}/{split}_labels.csv", text=CSV + rows)
    put(tmp_path, *(f"images/{name}.jpg" for name in "abcd"))
    assert loaded(tmp_path)[0] == {"train": ["a.jpg"], "test": ["b.jpg"]}
    assert "data_old' also has annotations" in capsys.readouterr().out


def test_a_list_of_classes_beside_xml_files_is_no_yolo_dataset(tmp_path, capsys):
    voc(tmp_path, "a", "b", images="images", annotations="images")
    put(tmp_path, "labels/classes.txt", text="cat\n")
    assert loaded(tmp_path)[0] == {"train": ["a.jpg", "b.jpg"]}
    assert "YOLO" not in capsys.readouterr().out


def test_numbers_of_lines_are_no_part_of_the_names(tmp_path):
    yolo(tmp_path, classes="0 buffalo\n1 elephant\n2 rhino\n")
    assert load(tmp_path).class_names == ("buffalo", "elephant", "rhino")
    put(tmp_path, "classes.txt", text="7 up\n1 elephant\n")
    assert load(tmp_path).class_names == ("7 up", "1 elephant")


def test_a_row_of_minus_ones_is_an_image_without_objects(tmp_path):
    """A script that makes csv files of xml files wrote them."""
    put(tmp_path, "a.jpg", "b.jpg")
    rows = "a.jpg,40,20,maze,2,3,14,16\nb.jpg,-1,-1,-1,-1,-1,-1,-1\n"
    put(tmp_path, "train_labels.csv", text=CSV + rows)
    dataset = load(tmp_path)
    assert dataset.class_names == ("maze",)
    assert [len(record.labels) for record in dataset.records] == [1, 0]


def test_roboflows_files_of_splits_come_before_copies_of_their_lines(tmp_path):
    for split in ("train", "valid"):
        put(tmp_path, f"{split}/{split}.jpg")
        row = f"{split}.jpg 2,3,14,16,0\n"
        put(tmp_path, f"{split}/_annotations.txt", f"{split}/train.txt", text=row)
        put(tmp_path, f"{split}/_classes.txt", text="cat\n")
    put(tmp_path, "train.txt", text="train.jpg 2,3,14,16,0\n")
    splits = load_splits(tmp_path)
    assert sorted(splits) == ["train", "valid"]
    assert splits["train"].class_names == ("cat",)
    assert list(load_splits(tmp_path / "valid")) == ["valid"]


def test_a_test_split_without_any_image_does_not_stop_the_others(tmp_path):
    """The images to test on were never committed; a training is possible."""
    put(tmp_path, "images/train/a.jpg")
    put(tmp_path, "data/train_labels.csv", text=CSV + "a.jpg,40,20,aim,2,3,14,16\n")
    rows = "b.jpg,40,20,aim,2,3,14,16\nc.jpg,40,20,aim,2,3,14,16\n"
    put(tmp_path, "data/test_labels.csv", text=CSV + rows)
    names, said = loaded(tmp_path)
    assert names == {"train": ["a.jpg"]}
    assert "The split 'test' was left out: `from_csv` of" in said
    assert "2 missing images" in said
    with pytest.raises(NoImageError, match="to leave the split out"):
        load_splits(tmp_path, on_error="raise")
    # Images of that name elsewhere may be meant: it is not known which.
    put(tmp_path, "old/b.jpg", "old/c.jpg", color="red")
    put(tmp_path, "older/b.jpg", "older/c.jpg", color="blue")
    with pytest.raises(NoImageError, match="to leave the split out"):
        load_splits(tmp_path)
    # A split to train on is never left out without being asked.
    for name in ("old", "older"):
        shutil.rmtree(tmp_path / name)
    (tmp_path / "images/train/a.jpg").rename(tmp_path / "x.jpg")
    with pytest.raises(NoImageError, match="to leave the split out"):
        load_splits(tmp_path)


def test_images_of_one_name_in_two_splits_are_counted_as_two(tmp_path, capsys):
    """The line that compares two formats counted names: "2 boxes in 1 image"."""
    for split, color in (("train", "red"), ("valid", "blue")):
        put(tmp_path, f"{split}/images/a.jpg", color=color)
        put(tmp_path, f"{split}/labels/a.txt", text=ROW)
        put(tmp_path, f"{split}/_annotations.coco.json", text=coco("a.jpg"))
    put(tmp_path, "data.yaml", text="names: [cat]\ntrain: train\nval: valid\n")
    load_splits(tmp_path)
    assert "both have 2 boxes in 2 images" in capsys.readouterr().out
    text = coco("b.jpg")
    put(tmp_path, "valid/images/b.jpg", color="green")
    put(tmp_path, "valid/_annotations.coco.json", text=text)
    load_splits(tmp_path)
    said = capsys.readouterr().out
    assert "'a' (read: 1 box; not read: 2 boxes in 2 images of that name)" in said


def test_rows_that_repeat_another_are_read_once(tmp_path):
    """A script that makes a csv file of xml files wrote the last row of each twice."""
    put(tmp_path, "a.jpg")
    rows = ("2,3,14,16", "5,5,20,18", "5,5,20,18")
    text = "".join(f"a.jpg,40,20,maze,{row}\n" for row in rows)
    put(tmp_path, "train_labels.csv", text=CSV + text)
    with pytest.warns(UserWarning, match="1 row of 3 repeat another row"):
        dataset = load(tmp_path)
    boxes = [[2, 3, 12, 13], [5, 5, 15, 13]]
    assert dataset.records[0].boxes_xywh.tolist() == boxes


def test_a_dataset_without_images_gives_way_to_one_that_has_them(tmp_path, capsys):
    """A json file for other images lay beside xml files for those that are there."""
    for split, name in (("train", "town1_a"), ("test", "town2_b")):
        put(tmp_path, f"annotations/{split}.json", text=coco(f"{name[-1]}.jpg"))
        put(tmp_path, f"images/{split}/{name}.jpg")
        text = VOC.format(f"{name}.jpg")
        put(tmp_path, f"labels/{split}/{name}.xml", text=text)
    splits = load_splits(tmp_path)
    assert paths(splits["test"], tmp_path) == ["images/test/town2_b.jpg"]
    assert paths(splits["train"], tmp_path) == ["images/train/town1_a.jpg"]
    said = capsys.readouterr().out
    assert "It cannot be read, so another dataset is: `from_coco` found no" in said
    assert "labels' is Pascal VOC: splits test, train" in said
    assert len(load(tmp_path, "test")) == 1
    with pytest.raises(NoImageError, match="To read it, pass format='voc'"):
        load_splits(tmp_path, format="coco")


def test_a_number_before_the_name_of_a_class_is_no_part_of_it(tmp_path):
    """Rows of tabs, in pixels: the number of the class, its name, and the corners."""
    rows = "1\tapp.Image View\t0\t0\t30\t20\n3\tapp.Button\t2\t3\t14\t16\n"
    put(tmp_path, "Images/a.png")
    put(tmp_path, "labels/a.txt", text=rows)
    dataset = load(tmp_path)
    assert dataset.class_names == ("app.Button", "app.Image View")
    put(tmp_path, "labels/a.txt", text=rows.replace("\t", " "))  # it may be: "7 up"
    assert load(tmp_path).class_names == ("1 app.Image View", "3 app.Button")
