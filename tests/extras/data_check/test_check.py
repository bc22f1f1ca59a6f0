"""`check`: each fault planted in a clean dataset is found, named and counted."""

import dataclasses
import pathlib
import re
import shutil

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from support.remote import put_folder
from support.small_datasets import bomb, encoded, record_of

from effdet_keras.data import (
    DetectionDataset,
    check,
    from_arrays,
    write_coco,
    write_shapes,
)
from effdet_keras.data.anchor_fit import fitted_image_size, input_boxes
from effdet_keras.data.box_formats import suspect_box_format
from effdet_keras.extras.data_check.anchors import measure_coverage
from effdet_keras.extras.data_check.check import check_splits, find_in_images
from effdet_keras.network.config import EfficientDetConfig

LITE0 = "efficientdet-lite0"
SMALL_MODEL = EfficientDetConfig.from_name("efficientdet-d0", image_size=128)


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shapes")
    return write_shapes(folder, num_train=24, num_valid=1, image_size=64)[0]


@pytest.fixture
def files(clean, tmp_path):
    """The clean set with files of its own, to spoil."""
    folder = pathlib.Path(clean.records[0].image).parent
    shutil.copytree(folder, tmp_path / "images")
    records = [
        dataclasses.replace(r, image=str(tmp_path / "images" / r.file_name))
        for r in clean.records
    ]
    return DetectionDataset(records, clean.class_names)


def changed(dataset, index, **fields):
    """The dataset with other fields in one record."""
    records = list(dataset.records)
    records[index] = dataclasses.replace(records[index], **fields)
    return DetectionDataset(records, dataset.class_names)


def with_box(dataset, index, box_xywh, label=0):
    """The dataset with one more box."""
    record = dataset.records[index]
    ids = np.concatenate([r.annotation_ids for r in dataset.records])
    return changed(
        dataset,
        index,
        boxes_xywh=[*record.boxes_xywh, box_xywh],
        labels=[*record.labels, label],
        is_crowd=[*record.is_crowd, False],
        area=[*record.area, 1.0],
        annotation_ids=[*record.annotation_ids, ids.max() + 1],
    )


def problems_of(dataset, **arguments):
    return check(dataset, **{"model": None, **arguments}).problems


def found(dataset, **arguments):
    """What `check` finds, as `(kind, file)`."""
    return [(x.kind, x.file) for x in problems_of(dataset, **arguments)]


def details(dataset, **arguments):
    return [x.detail for x in problems_of(dataset, **arguments)]


def busy(dataset):
    """The places of the images that have boxes."""
    return [i for i, record in enumerate(dataset.records) if len(record.labels)]


@pytest.mark.smoke
def test_nothing_is_wrong_with_a_clean_set(clean):
    report = check(clean, model=SMALL_MODEL)
    assert report.problems == () and report.ok
    assert report.by_kind() == {}
    assert check(clean, model=None, decode=False).problems == ()
    with pytest.raises(ValueError, match="name a model as well.*image_size=128"):
        check(clean, model=None, image_size=128)


def as_folder(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("decode", [True, False])
@pytest.mark.parametrize(
    ("spoil", "kind", "reason"),
    [
        (pathlib.Path.unlink, "missing image", "the file '.*00004.jpg' does not exist"),
        (
            lambda path: path.write_bytes(b"<html>"),
            "corrupt image",
            "not an image format that Pillow knows",
        ),
        (
            lambda path: path.write_bytes(bomb(60_000, 60_000)),
            "corrupt image",
            ".*decompression bomb.*",
        ),
        (as_folder, "corrupt image", ".*"),
    ],
)
def test_a_file_that_is_no_image_is_named(files, decode, spoil, kind, reason):
    spoil(pathlib.Path(files.records[3].image))
    report = check(files, model=None, decode=decode)
    (problem,) = report.problems
    assert (problem.kind, problem.file, report.ok) == (kind, "00004.jpg", False)
    assert re.fullmatch(reason, problem.detail)


@pytest.mark.parametrize("decode", [True, False])
def test_images_of_a_storage_are_there(files, decode, memory):
    put_folder(pathlib.Path(files.records[0].image).parent, "/bucket")
    records = [
        dataclasses.replace(record, image=f"memory://bucket/{record.file_name}")
        for record in files.records
    ]
    records[3] = dataclasses.replace(records[3], image="memory://bucket/none.jpg")
    dataset = DetectionDataset(records, files.class_names)
    (problem,) = check(dataset, model=None, decode=decode).problems
    assert (problem.kind, problem.file) == ("missing image", "00004.jpg")


@pytest.mark.parametrize("decode", [True, False])
def test_a_wrong_size_is_told_with_both_sizes(clean, decode):
    (problem,) = problems_of(changed(clean, 2, image_size=(64, 99)), decode=decode)
    assert (problem.kind, problem.file) == ("wrong size", "00003.jpg")
    assert (
        "annotated as 64x99, but the image is 64x64 (height x width)" in problem.detail
    )


@pytest.mark.parametrize(
    ("orientation", "size", "kind", "detail"),
    [
        (1, (64, 48), None, ""),
        (6, (48, 64), "turned image", "EXIF orientation 6, stored as 64x48"),
        (6, (64, 48), "sideways image", "stored as 64x48, and so annotated"),
        (3, (64, 48), "turned image", "EXIF orientation 3"),
        (6, (64, 64), "wrong size", "is 48x64"),
    ],
)
def test_turned_images_are_told_from_sideways_ones(
    files, orientation, size, kind, detail
):
    exif = Image.Exif()
    exif[0x0112] = orientation
    with Image.open(files.records[3].image) as image:
        image.crop((0, 0, 48, 64)).save(files.records[3].image, exif=exif)
    turned = changed(files, 3, image_size=size)
    images, _ = find_in_images(turned.records)
    assert [p.kind for p in images] == ([kind] if kind else [])
    assert all(detail in p.detail and p.file == "00004.jpg" for p in images)


def test_the_same_image_twice_is_named_with_the_other(files):
    first, second = (pathlib.Path(files.records[i].image) for i in (2, 7))
    second.write_bytes(first.read_bytes())
    assert found(files) == [("duplicate image", "00008.jpg")]
    assert details(files) == ["same image as 00003.jpg, with other boxes"]
    twin = dataclasses.replace(files.records[2], image_id=99, file_name="again.jpg")
    both = DetectionDataset([*files.records[:6], twin], files.class_names)
    expected = [("duplicate image", "again.jpg")]
    assert expected == [p for p in found(both, decode=False) if "image" in p[0]]
    assert "with the same boxes" in details(both)[0]


@pytest.mark.parametrize(
    ("kind", "box", "detail"),
    [
        ("clipped box", [60, 5, 9, 9], "5 pixels out"),
        ("clipped box", [-1, 5, 9, 9], "1 pixels out"),
    ],
)
def test_a_wrong_box_is_named_once(clean, kind, box, detail):
    index = next(i for i, r in enumerate(clean.records) if not len(r.labels))
    (problem,) = problems_of(with_box(clean, index, box))
    assert (problem.kind, problem.file) == (kind, clean.records[index].file_name)
    assert detail in problem.detail


def test_labels_without_a_class_are_named(clean):
    for label in (3, -1):
        (problem,) = problems_of(with_box(clean, 4, [5, 5, 9, 9], label))
        assert (problem.kind, problem.file) == ("bad label", "00005.jpg")
        assert problem.detail == f"label {label}, but there are only 3 classes"


def test_a_box_drawn_twice_is_told_once_for_each_copy(clean):
    index = busy(clean)[0]
    record = clean.records[index]
    box, label = record.boxes_xywh[0], record.labels[0]
    near = box + [0.2, 0, 0.3, 0]
    twice = with_box(clean, index, near, label)
    assert found(twice) == [("duplicate box", record.file_name)]
    thrice = with_box(twice, index, box, label)
    assert found(thrice) == [("duplicate box", record.file_name)] * 2
    # Another class in the same place is another object; so is another place.
    assert found(with_box(clean, index, box, (label + 1) % 3)) == []
    assert found(with_box(clean, index, box + [6, 6, 0, 0], label)) == []


def test_tiny_boxes_are_measured_on_the_networks_input(clean):
    small = with_box(clean, 0, [5, 5, 20, 3])
    config = EfficientDetConfig.from_name("efficientdet-d0")
    assert found(small, model=config, image_size=128) == []
    (problem,) = problems_of(small, model=config, image_size=64)
    assert (problem.kind, problem.file) == ("tiny box", "00001.jpg")
    assert problem.detail == "20.0 wide, 3.0 high on the network's input"
    assert found(small, model=None) == []


@pytest.mark.parametrize(
    ("names", "labels", "expected"),
    [
        (
            ["cat", "dog", "owl"],
            [0] * 10 + [1],
            {
                "unused class": "class 'owl' has no box",
                "class imbalance": (
                    "'dog' has 1 box, 'cat' has 10: more images with 'dog' help most; "
                    "`effdet-keras train --balance auto` trains on the present ones "
                    "more often"
                ),
            },
        ),
        (["cat", "dog"], [0] * 9 + [1] * 2, {}),
        (
            ["traffic light", "Traffic  light "],
            [0, 1],
            {
                "similar class names": (
                    "'traffic light' and 'Traffic  light ' are two classes"
                )
            },
        ),
        (
            ["caf\u00e9", "cafe\u0301"],
            [0, 1],
            {"similar class names": "'caf\u00e9' and 'cafe\u0301' are two classes"},
        ),
    ],
    ids=["unused and rare", "sound", "one name", "one letter"],
)
def test_classes_that_are_hard_to_learn_are_told(names, labels, expected):
    boxes = [[4 * i, 4, 4 * i + 3, 9] for i in range(len(labels))]
    dataset = from_arrays([np.zeros((64, 64, 3), "uint8")], [boxes], [labels], names)
    problems = problems_of(dataset)
    assert {x.kind: x.detail for x in problems} == expected
    assert {x.file for x in problems} <= {"(all images)"}


def test_an_empty_data_set_is_an_error():
    report = check(DetectionDataset([], ["cat"]))
    assert not report.ok
    assert [p.kind for p in report.problems] == ["empty dataset"]
    assert report.coverage[0].num_boxes == 0


def rectangles(count=60, height=120, width=200, seed=0):
    """Boxes well inside one image, as left, top, right, bottom."""
    rng = np.random.default_rng(seed)
    sides = rng.uniform(0.1, 0.3, (count, 2))
    low = rng.uniform(0, 1 - sides)
    corners = np.concatenate([low, low + sides], axis=1) * ([width, height] * 2)
    return corners, np.array([[height, width]] * count)


def test_each_wrong_box_form_is_recognized():
    corners, sizes = rectangles()
    left, top, right, bottom = corners.T
    width, height = right - left, bottom - top
    center_x, center_y = (left + right) / 2, (top + bottom) / 2
    read_as = {
        None: (left, top, width, height),
        "left, top, right, bottom": (left, top, right, bottom),
        "top, left, height, width": (top, left, height, width),
        "top, left, bottom, right": (top, left, bottom, right),
        "center x, center y, width, height": (center_x, center_y, width, height),
        "left, top, width, height, read as corners": (
            left,
            top,
            width - left,
            height - top,
        ),
    }
    for name, numbers in read_as.items():
        text = suspect_box_format(np.stack(numbers, axis=1), sizes)
        if name is None:
            assert text is None
        else:
            assert text.endswith(f"0 % if their numbers mean {name}")


def test_few_boxes_and_cut_objects_are_no_suspicion():
    corners, sizes = rectangles(9)
    assert suspect_box_format(corners, sizes) is None
    boxes = np.array([[-3.0, 5, 10, 10], [195, 5, 10, 10], [90, 115, 10, 10]] * 10)
    assert suspect_box_format(boxes, np.array([[120, 200]] * 30)) is None


def test_where_a_file_does_not_tell_a_few_boxes_do():
    boxes = np.array([[50.0, 50, 10, 10]] * 19 + [[190, 60, 18, 10]])
    sizes = np.array([[120, 200]] * 20)
    assert suspect_box_format(boxes, sizes) is None
    text = suspect_box_format(boxes, sizes, are_doubtful=True)
    assert text.startswith("5 % of") and text.endswith(
        "mean center x, center y, width, height"
    )
    boxes[0, 0] = 2  # which would begin at -3, were it a center
    assert suspect_box_format(boxes, sizes, are_doubtful=True) is None


def test_a_wrong_form_is_one_problem_of_the_dataset():
    corners, _ = rectangles(seed=1)
    image = np.zeros((120, 200, 3), "uint8")
    boxes = np.maximum(corners, 1)
    dataset = from_arrays([image], [boxes], [[0] * 60], ["cat"], box_format="xywh")
    assert found(dataset).count(("suspected box format", "(all images)")) == 1


# Coverage


@pytest.mark.tensorflow
def test_input_boxes_are_those_that_validation_trains_on():
    rng = np.random.default_rng(0)
    images = [np.zeros((*size, 3), "uint8") for size in [(37, 90), (64, 64), (90, 41)]]
    boxes = []
    for image in images:
        low = rng.uniform(-0.1, 0.7, (6, 2)) * image.shape[:2]
        boxes.append(np.concatenate([low, low + rng.uniform(1, 40, (6, 2))], axis=1))
    dataset = from_arrays(images, boxes, [[0] * 6] * 3, ["cat"])
    _, truth = next(iter(dataset.batches(3, image_size=(48, 64))))
    expected = truth["boxes"].numpy()[truth["labels"].numpy() == 0]
    actual, rows = input_boxes(dataset.records, (48, 64))
    np.testing.assert_allclose(actual, expected, atol=1e-4)
    assert len(rows) == len(actual)


def test_coverage_by_hand():
    """On the anchors of level 3, 32 pixels and larger, around (20, 20)."""
    boxes = np.array(
        [
            [4.0, 4, 36, 36],  # an anchor itself: 1.0
            [12, 12, 28, 28],  # 16 x 16 in 32 x 32: 0.25
            [4, 4, 36, 20],  # half of an anchor: not less than 0.5
        ]
    )
    every, small, medium, large = measure_coverage(boxes, SMALL_MODEL)
    assert (every.size, every.num_boxes) == ("all", 3)
    assert every.share == pytest.approx(2 / 3)
    assert (small.num_boxes, small.share) == (2, 0.5)  # area below 32 x 32
    assert (medium.num_boxes, medium.share, medium.mean_iou) == (1, 1.0, 1.0)
    assert large.num_boxes == 0 and np.isnan(large.share)


# Any file at all


def some_images():
    rng = np.random.default_rng(0)
    rgb = Image.fromarray(rng.integers(0, 256, (24, 32, 3), np.uint8))
    return {
        "jpeg": encoded(rgb, "JPEG"),
        "palette": encoded(rgb.convert("P"), "PNG", transparency=3),
        "webp": encoded(rgb, "WEBP"),
        "tiff": encoded(rgb, "TIFF", compression="tiff_lzw"),
    }


IMAGES = some_images()


@given(
    name=st.sampled_from(sorted(IMAGES)),
    decode=st.booleans(),
    end=st.integers(0, 600),
    tail=st.binary(max_size=200),
)
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_no_file_at_all_stops_the_check(tmp_path, name, decode, end, tail):
    path = tmp_path / "any"
    path.write_bytes(IMAGES[name][:end] + tail)
    record = record_of(path, (24, 32), 1, file_name="a.jpg")
    problems, _ = find_in_images([record], decode=decode)
    assert all(problem.file == "a.jpg" for problem in problems)
    assert len(problems) <= 1


@pytest.mark.parametrize("test", ["test", "test2017"])
def test_a_test_split_without_boxes_is_no_error(tmp_path, test):
    image = np.zeros((32, 48, 3), "uint8")
    boxes = from_arrays([image], [[[4, 8, 20, 40]]], [[0]], ["cat"])
    empty = from_arrays([image + 1], [[]], [[]], ["cat"])
    write_coco({"train": boxes, test: empty}, tmp_path / "a")
    kinds = {
        split: [problem.kind for problem in report.problems]
        for split, report in check_splits(tmp_path / "a", model=None).items()
    }
    assert "nothing to evaluate on" in kinds[test]
    assert "nothing to train on" not in kinds["train"] + kinds[test]
    write_coco({"train": empty, "test": boxes}, tmp_path / "b")
    report = check_splits(tmp_path / "b", model=None)["train"]
    assert not report.ok and "nothing to train on" in report.by_kind()


def test_boxes_are_measured_at_the_size_that_a_training_makes(tmp_path):
    """They were measured on D0 at 512 x 512, where few boxes are tiny."""
    train, _ = write_shapes(tmp_path, num_train=4, num_valid=2, image_size=64)
    fitted = fitted_image_size(train, EfficientDetConfig.from_name(LITE0))
    report = check(train)
    assert report.config.name == LITE0
    assert report.config.image_size == fitted != (320, 320)
    reports = check_splits(tmp_path)
    assert {r.config.image_size for r in reports.values()} == {fitted}
    assert check(train, model=SMALL_MODEL).config == SMALL_MODEL
    assert check(train, image_size=96).config.image_size == (96, 96)
    assert check(train, model="efficientdet-d0").config.image_size != (512, 512)
    empty = DetectionDataset([], ["cat"])
    assert check(empty).config.image_size == (320, 320)
