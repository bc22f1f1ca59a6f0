"""`from_arrays`: what it takes, and what it says of what it cannot take."""

import numpy as np
import pytest
from PIL import Image

from effdet_keras.data import from_arrays

IMAGE = np.zeros((32, 48, 3), np.uint8)


def one(boxes, labels, image=IMAGE, names=("cat", "dog"), **options):
    return from_arrays([image], [boxes], [labels], names, **options)


@pytest.mark.parametrize(
    "box_format, box",
    [("yxyx", [4, 8, 20, 40]), ("xyxy", [8, 4, 40, 20]), ("xywh", [8, 4, 32, 16])],
)
def test_box_formats_mean_the_same_box(box_format, box):
    dataset = one([box], [1], box_format=box_format)
    np.testing.assert_array_equal(dataset[0]["boxes"], [[4, 8, 20, 40]])
    assert dataset.to_coco()["annotations"][0]["bbox"] == [8, 4, 32, 16]
    assert dataset.to_coco()["annotations"][0]["area"] == 512


def test_paths_and_arrays_mix(tmp_path):
    path = tmp_path / "a.png"
    Image.new("RGB", (20, 10)).save(path)
    dataset = from_arrays([path, IMAGE], [[[0, 0, 5, 5]], []], [[0], []], ["cat"])
    assert dataset[0]["image"].shape == (10, 20, 3)
    assert dataset[0]["path"] == str(path) and dataset[1]["path"] is None
    assert dataset.to_coco()["images"][0]["file_name"] == "a.png"
    with pytest.raises(FileNotFoundError, match="absent"):
        from_arrays([tmp_path / "absent.png"], [[]], [[]], ["cat"])


def test_ids_count_from_one_or_are_given():
    images, none = [IMAGE] * 2, [[], []]
    assert from_arrays(images, none, none, ["cat"]).image_ids == (1, 2)
    given = from_arrays(images, none, none, ["cat"], image_ids=[9, 2**60])
    assert given.image_ids == (9, 2**60)


def test_crowds_are_marked():
    boxes = [[0, 0, 5, 5], [1, 1, 5, 5]]
    assert not one(boxes, [0, 1])[0]["is_crowd"].any()
    example = one(boxes, [0, 1], is_crowd=[[False, True]])[0]
    np.testing.assert_array_equal(example["is_crowd"], [False, True])


def test_boxes_without_area_are_left_out_and_counted():
    boxes = [[0, 0, 5, 5], [7, 7, 7, 9], [40, 0, 50, 9]]
    message = "1 empty box: image_id=1.*1 box outside: image_id=1"
    with pytest.warns(UserWarning, match=message):
        dataset = one(boxes, [1, 0, 0])
    np.testing.assert_array_equal(dataset[0]["labels"], [1])
    assert len(dataset.to_coco()["annotations"]) == 1


@pytest.mark.parametrize(
    "boxes, labels, options, message",
    [
        ([[4, 8, 20, 40]], [2], {}, "unknown class: image_id=1: 2, the class of 1 box"),
        (
            [[4, 8, 20, 40]],
            [-1],
            {},
            "unknown class: image_id=1: -1, the class of 1 box",
        ),
        (
            [[4, 8, 20, 40]],
            [0.5],
            {},
            "unknown class: image_id=1: 0.5, the class of 1 box",
        ),
        ([[4, 8, 20, 40]], [], {}, "one per box, here 1"),
        ([[20, 8, 4, 40]], [0], {}, "end before it begins.*box_format"),
        ([[8, 4, 32, -1]], [0], {"box_format": "xywh"}, "end before it begins"),
        ([[4, 8, 20]], [0], {}, r"\[n, 4\].*\(1, 3\)"),
        ([[4, 8, 20, np.nan]], [0], {}, "finite"),
        ([[0.1, 0.2, 0.5, 1.0]] * 2, [0, 0], {}, "all 2 boxes lie between 0 and 1"),
        ([[4, 8, 20, 40]], [0], {"box_format": "cxcywh"}, "cxcywh"),
        ([], [], {"image": IMAGE.astype(np.float32)}, "uint8.*float32"),
        ([], [], {"image": IMAGE[..., 0]}, r"\[H, W, 3\].*\(32, 48\)"),
        ([], [], {"names": "cat"}, "'cat'. To give names without ids, pass a list"),
        ([], [], {"image_ids": [1, 2]}, "image_ids.*2"),
        ([[4, 8, 20, 40]], [0], {"is_crowd": [[1, 0]]}, "one per box, here 1"),
        ([[4, 8, 20, 40]], [0], {"is_crowd": []}, "'is_crowd': 0"),
    ],
)
def test_wrong_arguments_are_named(boxes, labels, options, message):
    with pytest.raises(ValueError, match=message):
        one(boxes, labels, **options)
