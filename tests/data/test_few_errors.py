"""`on_error="auto"`: errors of a few images or boxes are left out, more are refused."""

import warnings

import numpy as np
import pytest
from support.cloned_files import put

from effdet_keras import RunConfiguration, data
from effdet_keras.data import load, load_splits
from effdet_keras.data.problems import FEW, FEW_WITHOUT_NAME, Problems

NUM_IMAGES = 40
NUM_BOXES = 100
ROW = "0 0.5 0.5 0.5 0.5\n"


@pytest.fixture
def yolo(tmp_path):
    """A darknet dataset of `NUM_IMAGES` images and `NUM_BOXES` boxes."""
    names = [f"obj_train_data/{number}" for number in range(NUM_IMAGES)]
    counts = [NUM_BOXES // NUM_IMAGES + (number % 2) for number in range(NUM_IMAGES)]
    assert sum(counts) == NUM_BOXES
    put(tmp_path, *(f"{name}.png" for name in names))
    for name, count in zip(names, counts):
        put(tmp_path, f"{name}.txt", text=ROW * count)
    put(tmp_path, "train.txt", text="".join(f"{name}.png\n" for name in names))
    put(tmp_path, "obj.names", text="cat\ndog\n")
    put(tmp_path, "obj.data", text="classes=2\ntrain=train.txt\nnames=obj.names\n")
    return tmp_path


def num_boxes(dataset):
    return sum(len(record.labels) for record in dataset.records)


def read(folder, **options):
    """The dataset, and the warnings as one text."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        dataset = load(folder, **options)
    return dataset, "\n".join(str(warning.message) for warning in told)


def remove_images(folder, count):
    for number in range(count):
        (folder / f"obj_train_data/{number}.png").unlink()


def replace_boxes(folder, count, row):
    """Replaces the first box of some images."""
    for number in range(count):
        file = folder / f"obj_train_data/{number}.txt"
        file.write_text(row + file.read_text().removeprefix(ROW))


def test_nothing_is_said_of_a_dataset_without_errors(yolo):
    assert (FEW, FEW_WITHOUT_NAME) == (5, 1)  # percent, as below
    dataset, told = read(yolo)
    assert (len(dataset), num_boxes(dataset), told) == (NUM_IMAGES, NUM_BOXES, "")


def test_two_missing_images_of_forty_are_left_out_with_a_warning(yolo):
    remove_images(yolo, 2)
    dataset, told = read(yolo)
    assert len(dataset) == NUM_IMAGES - 2
    assert "2 missing images: obj_train_data/0.png" in told
    assert "on_error='raise'" in told
    kinds = [problem.kind for problem in dataset.problems]
    assert kinds.count("missing image") == 2


def test_three_missing_images_of_forty_are_refused(yolo):
    remove_images(yolo, 3)
    with pytest.raises(FileNotFoundError, match="3 missing images.*--skip-errors"):
        load(yolo)
    assert len(read(yolo, on_error="skip")[0]) == NUM_IMAGES - 3


def test_one_missing_image_is_refused_where_errors_are(yolo):
    remove_images(yolo, 1)
    with pytest.raises(FileNotFoundError, match="1 missing image"):
        load(yolo, on_error="raise")


@pytest.mark.parametrize(
    "row, kind, few",
    [
        ("7 0.5 0.5 0.5 0.5\n", "unknown class", 1),
        ("0 0.5 0.5 0.5\n", "bad box", 5),
    ],
)
def test_a_few_wrong_boxes_of_a_hundred_are_left_out(yolo, row, kind, few):
    replace_boxes(yolo, few, row)
    dataset, told = read(yolo)
    assert num_boxes(dataset) == NUM_BOXES - few
    assert kind in told.replace("boxes", "box")
    replace_boxes(yolo, few + 1, row)
    with pytest.raises(ValueError, match="unknown class|bad boxes"):
        load(yolo)


def test_a_class_without_a_name_is_counted_by_its_boxes(yolo):
    """One problem, but three boxes."""
    replace_boxes(yolo, 3, "7 0.5 0.5 0.5 0.5\n")
    with pytest.raises(ValueError, match="1 unknown class: .*3 boxes"):
        load(yolo)


def test_each_split_is_counted_by_itself(yolo):
    """Two missing images are few of forty and many of the four to test on."""
    put(yolo, *(f"test_{number}.png" for number in range(2)))
    lines = [f"test_{number}.png\n" for number in range(4)]
    put(yolo, "test.txt", text="".join(lines))
    for number in range(4):
        put(yolo, f"test_{number}.txt", text=ROW)
    with (yolo / "obj.data").open("a") as file:
        file.write("valid=test.txt\n")
    with pytest.raises(FileNotFoundError, match="2 missing images"):
        load_splits(yolo)


def problems_of(kinds, on_error="auto"):
    problems = Problems("`from_x` of 'x'", on_error)
    for number, kind in enumerate(kinds):
        problems.add(kind, f"{number}.txt")
    return problems


@pytest.mark.parametrize("kind", ["normalized box", "only stray annotations"])
def test_errors_of_a_whole_file_are_never_few(kind):
    with pytest.raises(ValueError, match=kind.split()[0]):
        problems_of([kind]).finish(num_images=10_000, num_boxes=10_000)


def test_images_of_all_kinds_count_together():
    kinds = ["missing image", "corrupt image", "unreadable annotation"]
    with pytest.warns(UserWarning, match="The errors are few"):
        problems_of(kinds).finish(num_images=57)
    with pytest.raises(ValueError, match="1 corrupt image"):
        problems_of(kinds).finish(num_images=56)


def test_warnings_alone_are_not_called_few():
    with pytest.warns(UserWarning) as told:
        problems_of(["empty box"]).finish(num_images=100, num_boxes=100)
    assert "few" not in str(told[0].message)


def test_a_tfrecord_file_that_ends_early_is_refused(tmp_path):
    """Nobody knows how many images were in what is lost."""
    images = [np.zeros((16, 16, 3), np.uint8)] * 60
    dataset = data.from_arrays(images, [[[2, 2, 9, 9]]] * 60, [[0]] * 60, ["cat"])
    data.write_tfrecord(dataset, tmp_path / "out", num_shards=1)
    (file,) = (tmp_path / "out").glob("*.tfrecord*")
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(ValueError, match="unreadable annotation"):
        load(tmp_path / "out")


def test_a_run_takes_all_three():
    assert RunConfiguration().on_error == "auto"
    for choice in ("auto", "raise", "skip"):
        assert RunConfiguration(on_error=choice).on_error == choice


def test_a_copy_in_another_format_is_whole_or_not_written(yolo, tmp_path):
    remove_images(yolo, 1)
    out = tmp_path / "copy"
    with pytest.raises(FileNotFoundError, match="1 missing image"):
        data.convert(yolo, out, "coco")
    assert not out.exists()
