"""YOLO folders in which files of one name, lists or splits could be mistaken."""

import warnings

import pytest
from PIL import Image

from effdet_keras.data import from_yolo, load, load_splits
from effdet_keras.data.formats.image_paths import dataset_root


def put(folder, image, text=None, labels=None, color=0):
    """Writes an image of 40 x 20 pixels, and its txt file: beside it, or elsewhere."""
    path = folder / f"{image}.jpg"
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (40, 20), (color, 0, 0)).save(path)
    if text is not None:
        write(folder / f"{labels or image}.txt", text)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def row(width, label=0):
    """A row of a box in the middle, of a width in pixels and the full height."""
    return f"{label} 0.5 0.5 {width / 40} 1\n"


def widths(dataset, folder):
    """The widths of the boxes of each image, by its path below a folder."""
    return {
        record.image.removeprefix(f"{folder}/"): record.boxes_xywh[:, 2].tolist()
        for record in dataset.records
    }


def told(folder, split=None, **options):
    """The dataset of a split, and what was warned of while it was read."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dataset = load(folder, split, **options)
    return dataset, " ".join(str(warning.message) for warning in caught)


# --- Folders of frames, whose names are the same.


@pytest.fixture
def clips(tmp_path):
    """Two clips whose frames have the same names: boxes of 4, 8, 12 and 16 pixels."""
    for number in range(4):
        frame = f"clip{number // 2}/{number % 2}"
        put(tmp_path, frame, row(4 * number + 4), color=60 * number)
    return tmp_path


CLIPS = {
    "clip0/0.jpg": [4],
    "clip0/1.jpg": [8],
    "clip1/0.jpg": [12],
    "clip1/1.jpg": [16],
}


@pytest.mark.parametrize(
    "lists",
    [
        {"classes.txt": "cat\ndog\n"},
        {"clip0/classes.txt": "cat\ndog\n", "clip1/classes.txt": "cat\ndog\n"},
        {"clip0/classes.txt": "cat\n", "clip1/classes.txt": "cat\ndog\n"},
    ],
)
def test_folders_of_frames_with_the_same_classes_are_one_dataset(clips, lists):
    for name, text in lists.items():
        write(clips / name, text)
    dataset, said = told(clips)
    assert widths(dataset, clips) == CLIPS and said == ""
    put(clips, "raw/9")
    dataset, said = told(clips)
    assert widths(dataset, clips) == CLIPS
    assert "the folders ['raw'] of" in said and "are left out" in said


def test_folders_of_frames_of_a_split_are_the_split(clips):
    for split in ("train", "valid"):
        (clips / split).mkdir()
    for number in range(2):
        (clips / f"clip{number}").rename(clips / f"train/clip{number}")
    put(clips, "valid/a/0", row(20), color=250)
    put(clips, "valid/b/0", row(24), color=251)
    write(clips / "classes.txt", "cat\n")
    splits = load_splits(clips)
    assert widths(splits["train"], clips / "train") == CLIPS
    assert widths(splits["valid"], clips) == {
        "valid/a/0.jpg": [20],
        "valid/b/0.jpg": [24],
    }


@pytest.mark.parametrize("lists", [("cat\n", "dog\n"), ("", "")])
def test_no_image_gets_the_boxes_of_a_folder_with_images_of_its_own(clips, lists):
    """Other classes, or none with a name: these may be two datasets."""
    for number, text in enumerate(lists):
        if text:
            write(clips / f"clip{number}/classes.txt", text)
    with pytest.raises(FileNotFoundError, match="expects a folder with"):
        from_yolo(clips)
    assert widths(from_yolo(clips / "clip0"), clips / "clip0") == {
        "0.jpg": [4],
        "1.jpg": [8],
    }


# --- Lists of the names of classes.


@pytest.mark.parametrize("inner", ["", "labels/"])
def test_each_split_is_read_by_its_own_list_of_names(tmp_path, inner):
    """LabelImg writes a list into each folder, in the order of their use there."""
    for color, (split, names) in enumerate(
        {"train": "cat\ndog\n", "valid": "dog\ncat\n"}.items()
    ):
        image = f"{split}/{'images/' if inner else ''}a"
        put(tmp_path, image, row(8), f"{split}/{inner}a", color=color)
        write(tmp_path / f"{split}/{inner}classes.txt", names)
    said = r"train/.*has \['cat', 'dog'\], .*valid/.*has \['dog', 'cat'\].*with its own"
    with pytest.warns(UserWarning, match=said):
        splits = load_splits(tmp_path)
    named = {
        split: [dataset.class_names[i] for i in dataset.records[0].labels]
        for split, dataset in splits.items()
    }
    assert named == {"train": ["cat"], "valid": ["dog"]}
    assert splits["train"].class_names == splits["valid"].class_names
    write(tmp_path / "classes.txt", "cat\ndog\n")  # of all splits
    dataset, said = told(tmp_path, "valid")
    assert dataset.records[0].labels.tolist() == [0] and said == ""


def test_a_list_that_goes_on_where_another_ends_is_that_of_all_splits(tmp_path):
    for label, (split, names) in enumerate(
        {"train": "cat\n", "valid": "cat\ndog\n"}.items()
    ):
        put(tmp_path, f"{split}/{split}", row(8, label))
        write(tmp_path / f"{split}/classes.txt", names)
    for split in ("train", "valid"):
        dataset, said = told(tmp_path, split)
        assert dataset.class_names == ("cat", "dog") and said == ""


def test_lists_of_one_split_that_differ_are_an_error_that_names_both(tmp_path):
    for name in ("cat", "dog"):
        put(tmp_path, f"train/{name}/images/a", row(8), f"train/{name}/labels/a")
        write(tmp_path / f"train/{name}/labels/classes.txt", name)
    with pytest.raises(
        ValueError, match=r"cat/labels/classes\.txt.*dog/labels/classes"
    ):
        from_yolo(tmp_path)
    write(tmp_path / "classes.txt", "pet\n")
    assert len(from_yolo(tmp_path)) == 2


def test_a_list_beside_the_one_that_is_read_is_told_if_its_names_differ(tmp_path):
    put(tmp_path, "images/a", row(8), "labels/a")
    write(tmp_path / "classes.txt", "one\ntwo\nfive\n")
    others = {"coin.names": "coin_1\ncoin_2\n", "pets.yaml": "names: [cat, dog, cow]"}
    for name, text in others.items():
        write(tmp_path / name, text)
        dataset, said = told(tmp_path)
        assert dataset.class_names == ("one", "two", "five")
        assert f"{name!r} beside it has other names" in said
        (tmp_path / name).unlink()
    write(tmp_path / "coin.names", "one\ntwo\n")  # as far as it goes the same
    write(tmp_path / "coco.names", "person\nbicycle\ncar\nbus\n")  # of a model
    write(tmp_path / "classes.txt", "Traffic Light\ntwo\n")
    write(tmp_path / "coin.names", "traffic_light\nTwo\n")
    assert told(tmp_path)[1] == ""


def test_a_list_of_names_is_no_file_of_boxes_of_a_folder(tmp_path):
    put(tmp_path, "pictures/a", row(8), "boxes_of_them/a")
    for folder in ("pictures", "boxes_of_them"):
        write(tmp_path / folder / "classes.txt", "cat\n")
    dataset, said = told(tmp_path)
    assert widths(dataset, tmp_path) == {"pictures/a.jpg": [8]} and said == ""
    assert dataset.class_names == ("cat",)


def test_a_list_of_the_dataset_comes_before_one_outside(tmp_path):
    put(tmp_path, "pets/images/a", row(8), "pets/labels/a")
    write(tmp_path / "classes.txt", "bus\ncar\n")
    for place in ("cfg/pets.names", "config/pets.yaml"):
        text = "cat\ndog\n" if place.endswith("names") else "names: [cat, dog]"
        write(tmp_path / "pets" / place, text)
        dataset, said = told(tmp_path / "pets")
        assert dataset.class_names == ("cat", "dog") and said == ""
        (tmp_path / "pets" / place).unlink()
    dataset, said = told(tmp_path / "pets")
    assert dataset.class_names == ("bus", "car")
    assert f"of {str(tmp_path / 'classes.txt')!r}, outside of" in said
    (tmp_path / "pets").rename(tmp_path / "train")  # of the dataset around it
    dataset, said = told(tmp_path / "train")
    assert dataset.class_names == ("bus", "car") and said == ""


# --- Folders that a file names.


@pytest.mark.parametrize("path", ["", "path: .\n", "path: /content/pets\n"])
def test_a_folder_of_the_dataset_comes_before_one_outside(tmp_path, path):
    """Roboflow writes `../train/images` for `train/images` beside its data.yaml."""
    for color, (place, width) in enumerate({"": 8, "pets/": 12}.items()):
        image, label = f"{place}train/images/a", f"{place}train/labels/a"
        put(tmp_path, image, row(width), label, color=color)
    text = f"{path}train: ../train/images\nnames: [cat]\n"
    write(tmp_path / "pets/data.yaml", text)
    dataset, said = told(tmp_path / "pets")
    assert widths(dataset, tmp_path) == {"pets/train/images/a.jpg": [12]} and said == ""
    (tmp_path / "pets/train").rename(tmp_path / "gone")
    for source in ("pets", "pets/data.yaml"):
        dataset, said = told(tmp_path / source)
        assert [r.boxes_xywh[0, 2] for r in dataset.records] == [8]
        outside = str(tmp_path / "train/images")
        assert f"'../train/images', which is {outside!r}, outside of" in said


@pytest.mark.parametrize("own, width", [("train", 12), ("other", 8)])
def test_a_folder_in_what_the_user_named_is_not_outside(tmp_path, own, width):
    for color, (place, side) in enumerate({"train": 8, f"pets/{own}": 12}.items()):
        put(tmp_path, f"{place}/images/a", row(side), f"{place}/labels/a", color=color)
    write(tmp_path / "pets/data.yaml", "train: ../train/images\nnames: [cat]\n")
    with dataset_root(tmp_path), warnings.catch_warnings():
        warnings.simplefilter("error")
        (record,) = from_yolo(tmp_path / "pets").records
    assert record.boxes_xywh[0, 2] == width


# --- Splits.


def test_an_image_beside_the_folders_of_splits_does_not_merge_them(tmp_path):
    put(tmp_path, "images/grid", color=9)
    for color, split in enumerate(("train", "val")):
        put(tmp_path, f"images/{split}/a", row(8), f"labels/{split}/a", color=color)
    write(tmp_path / "classes.txt", "cat\n")
    for split in ("train", "val"):
        dataset, said = told(tmp_path, split)
        assert widths(dataset, tmp_path) == {f"images/{split}/a.jpg": [8]}
        assert "1 image beside the folders of the splits ['train', 'val']" in said
        assert "such as 'grid.jpg', is left out" in said
    (tmp_path / "images/train/a.jpg").unlink()  # nothing to train on but the rest
    dataset, said = told(tmp_path)
    assert list(widths(dataset, tmp_path)) == ["images/grid.jpg", "images/val/a.jpg"]


def test_comments_and_other_keys_of_darknets_data_file_are_no_splits(tmp_path):
    for split in ("train", "old"):
        put(tmp_path, f"data/{split}/{split}", row(8))
        write(tmp_path / f"data/{split}.txt", f"data/{split}/{split}.jpg\n")
    put(tmp_path, "coco/1")
    text = "classes=1\n # valid = data/gone.txt\n#val=data/old.txt\neval=coco\n"
    write(tmp_path / "data/obj.data", f"{text}train = data/train.txt\nbackup = coco\n")
    write(tmp_path / "data/obj.names", "cat\n")
    dataset, said = told(tmp_path)
    assert widths(dataset, tmp_path) == {"data/train/train.jpg": [8]} and said == ""


# --- Text files that hold no boxes.


@pytest.mark.parametrize("word", ["1.2.3", "10.0.0.1", "."])
def test_a_text_of_no_number_is_no_row_of_a_box(tmp_path, word):
    put(tmp_path, "frames/a", f"{word} 80 443 22 8080 9\n", "boxes/a")
    with pytest.raises(FileNotFoundError, match="expects a folder with"):
        from_yolo(tmp_path)
    write(tmp_path / "boxes/a.txt", "+0 .5 5.e-1 0.2 1.\n")
    assert from_yolo(tmp_path).records[0].boxes_xywh.tolist() == [[16, 0, 8, 20]]


def test_a_folder_of_txt_files_may_be_shared_by_images_and_folders_of_these(tmp_path):
    write(tmp_path / "classes.txt", "cat\n")
    for number, image in enumerate(("a", "day/b", "night/c")):
        name = image[-1]
        put(tmp_path, f"images/{image}", row(4 * number + 4), f"labels/{name}")
    dataset, said = told(tmp_path)
    assert said == "" and widths(dataset, tmp_path / "images") == {
        "a.jpg": [4],
        "day/b.jpg": [8],
        "night/c.jpg": [12],
    }
