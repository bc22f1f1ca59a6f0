"""`from_coco`: ids in and out, repairs that are counted, faults that are named."""

import json

import numpy as np
import pytest
from support.small_datasets import save_image

from effdet_keras.data import from_coco, write_coco


@pytest.fixture
def content(tmp_path):
    """Two images, categories with gaps, one crowd; and the files on disk."""
    for name in ("a.png", "b.png"):
        save_image(tmp_path / name, (48, 32))
    common = {"height": 32, "width": 48}
    boxes = [
        {"category_id": 90, "bbox": [1.5, 2.25, 10, 20], "area": 150.75, "iscrowd": 0},
        {"category_id": 1, "bbox": [30, 3, 30, 9], "area": 200.0, "iscrowd": 0},
        {"category_id": 1, "bbox": [0, 0, 48, 32], "area": 999.0, "iscrowd": 1},
    ]
    return {
        "images": [
            {"id": 397133, "file_name": "a.png", **common},
            {"id": 5, "file_name": "b.png", **common},
        ],
        "annotations": [
            {"id": i, "image_id": 397133, **box} for i, box in enumerate(boxes, 100)
        ],
        "categories": [{"id": 90, "name": "toothbrush"}, {"id": 1, "name": "person"}],
    }


def test_labels_count_from_zero_in_the_order_of_the_ids(content, tmp_path):
    dataset = from_coco(content, tmp_path)
    assert dataset.class_names == ("person", "toothbrush")
    assert dataset.category_ids == (1, 90)
    example = dataset[0]
    np.testing.assert_array_equal(example["labels"], [1, 0, 0])
    np.testing.assert_array_equal(
        example["boxes"], [[2.25, 1.5, 22.25, 11.5], [3, 30, 12, 48], [0, 0, 32, 48]]
    )
    np.testing.assert_array_equal(example["is_crowd"], [False, False, True])
    np.testing.assert_array_equal(example["area"], [150.75, 200, 999])
    assert example["image_id"] == 397133
    assert len(dataset[1]["labels"]) == 0


@pytest.mark.smoke
def test_to_coco_gives_the_file_back(content, tmp_path):
    path = tmp_path / "truth.json"
    path.write_text(json.dumps(content))
    result = json.loads(json.dumps(from_coco(path, tmp_path).to_coco()))
    for key in ("images", "annotations"):
        assert result[key] == content[key]
    assert result["categories"] == sorted(content["categories"], key=lambda c: c["id"])


def test_crowd_and_area_may_be_absent(content, tmp_path):
    for annotation in content["annotations"]:
        del annotation["iscrowd"], annotation["area"]
    example = from_coco(content, tmp_path)[0]
    np.testing.assert_array_equal(example["area"], [200, 270, 48 * 32])
    assert not example["is_crowd"].any()


@pytest.mark.parametrize("ids", [("a", "b"), (2**63, 5)])
def test_image_ids_that_are_no_ints_are_counted_and_kept(content, tmp_path, ids):
    for image, image_id in zip(content["images"], ids):
        image["id"] = image_id
    for annotation in content["annotations"]:
        annotation["image_id"] = ids[0]
    dataset = from_coco(content, tmp_path)
    assert dataset.image_ids == (1, 2)
    assert [example["source_id"] for example in dataset] == list(ids)
    assert len(dataset[0]["labels"]) == 3


def test_annotations_of_absent_images_are_counted(content, tmp_path):
    content["annotations"][0]["image_id"] = 77
    with pytest.warns(UserWarning, match="1 stray annotation.*1 of image_id 77"):
        dataset = from_coco(content, tmp_path)
    assert len(dataset[0]["labels"]) == 2


def test_where_no_annotation_fits_an_image_it_is_an_error(content, tmp_path):
    for annotation in content["annotations"]:
        annotation["image_id"] = str(annotation["image_id"])
    said = "only stray annotation.* `image_id` '397133', images have `id` 397133"
    with pytest.raises(ValueError, match=said):
        from_coco(content, tmp_path)
    with pytest.warns(UserWarning, match="only stray annotations"):
        dataset = from_coco(content, tmp_path, on_error="skip")
    assert [len(example["labels"]) for example in dataset] == [0, 0]


def test_backslashes_between_folders(content, tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "a.png").rename(tmp_path / "more" / "a.png")
    content["images"][0]["file_name"] = "more\\a.png"
    dataset = from_coco(content, tmp_path)
    assert dataset.records[0].image == str(tmp_path / "more" / "a.png")
    path = tmp_path / "set.json"
    path.write_text(json.dumps(content))
    assert len(from_coco(path)) == 2


@pytest.mark.parametrize(
    "key, changes, message",
    [
        ("images", {"id": 397133}, r"duplicate id: b\.png.*397133 repeats"),
        ("categories", {"id": 90}, r"int `id` of its own.*\[90, 90\]"),
        ("categories", {"id": "1"}, "int `id`"),
        ("categories", {"name": "toothbrush"}, "differ"),
    ],
)
def test_faults_are_named(content, tmp_path, key, changes, message):
    content[key][1] |= changes
    with pytest.raises(ValueError, match=message):
        from_coco(content, tmp_path)


@pytest.mark.parametrize(
    "data, message",
    [
        (b"{", "expects a json file"),
        ('{"ü": 1}'.encode("latin-1"), "expects a json file"),
        (b"[1]", "with .1"),
        (b'{"images": []}', "categories.*'images'"),
    ],
)
def test_other_files_are_named(tmp_path, data, message):
    (tmp_path / "broken.json").write_bytes(data)
    with pytest.raises(ValueError, match=message) as error:
        from_coco(tmp_path / "broken.json", tmp_path)
    assert "broken.json" in str(error.value)


def test_everything_wrong_is_told_at_once_or_skipped(content, tmp_path):
    content["images"] += [{"id": None, "file_name": "c.png"}, {"id": 8}]
    content["images"][1] |= {"id": 5, "file_name": "gone.png"}
    content["annotations"][0]["bbox"] = [1, 2, 3]
    content["annotations"][1]["category_id"] = "1"
    content["annotations"] += [{"id": 9}]
    message = "2 unreadable annotations.*1 bad box.*1 unknown class.*1 missing image"
    with pytest.raises(ValueError, match=message):
        from_coco(content, tmp_path)
    with pytest.warns(UserWarning, match=message):
        dataset = from_coco(content, tmp_path, on_error="skip")
    assert dataset.image_ids == (397133,)
    np.testing.assert_array_equal(dataset[0]["area"], [999])
    kinds = [problem.kind for problem in dataset.problems]
    assert kinds.count("unreadable annotation") == 2 and "stray annotation" in kinds


@pytest.mark.parametrize("size", [None, "32", 0, 32.0])
def test_sizes_that_are_no_sizes_are_read_from_the_image(content, tmp_path, size):
    content["images"][0]["height"] = size
    assert from_coco(content, tmp_path)[0]["image_size"] == (32, 48)
    del content["images"][1]["height"]
    (tmp_path / "b.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"1 corrupt image: .*b\.png"):
        from_coco(content, tmp_path)


def test_normalized_boxes_are_an_error(content, tmp_path):
    for annotation in content["annotations"]:
        annotation["bbox"] = [0.25, 0.5, 0.5, 0.5]
    with pytest.raises(ValueError, match="1 normalized box: .*all 3 lie between"):
        from_coco(content, tmp_path)
    with pytest.warns(UserWarning, match="normalized"):
        dataset = from_coco(content, tmp_path, on_error="skip")
    assert len(dataset[0]["labels"]) == 0
    content["annotations"][0]["bbox"] = [0, 0, 2, 2]
    assert len(from_coco(content, tmp_path)[0]["labels"]) == 3


def test_roboflows_unused_twin_of_a_class_is_left_out(content, tmp_path):
    content["categories"].append({"id": 0, "name": "person"})
    dataset = from_coco(content, tmp_path)
    assert dataset.class_names == ("person", "toothbrush")
    assert dataset.category_ids == (1, 90)


@pytest.mark.parametrize("name", ["person", "", " \n"])
def test_names_that_are_twice_or_blank_are_told_with_the_file(content, tmp_path, name):
    content["categories"][0]["name"] = name
    path = tmp_path / "truth.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError) as error:
        from_coco(path, tmp_path)
    assert f"{str(path)!r} with {name!r}" in str(error.value)
    del content["annotations"][0]  # a class of no annotation need not have a name
    assert from_coco(content, tmp_path).class_names == ("person",)


def test_the_folder_of_the_images_is_found_or_asked_for(content, tmp_path):
    path = tmp_path / "set" / "annotations" / "instances_val2017.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(content))
    (tmp_path / "elsewhere").mkdir()
    for name in ("a.png", "b.png"):
        (tmp_path / name).rename(tmp_path / "elsewhere" / name)
    with pytest.raises(FileNotFoundError, match=r"'a\.png'\. Pass `image_dir`"):
        from_coco(path)
    images = (tmp_path / "elsewhere").rename(tmp_path / "set" / "val2017")
    assert from_coco(path)[0]["path"] == str(images / "a.png")
    with pytest.raises(ValueError, match="`image_dir` is needed"):
        from_coco(content)


def test_boxes_without_area_are_not_trained_on_but_evaluated_and_written(
    content, tmp_path
):
    content["annotations"][0]["bbox"] = [5, 5, 0, 9]
    content["annotations"][1]["bbox"] = [5, 5, -3, 9]
    with pytest.warns(UserWarning, match=r"2 empty boxes: a\.png.*width 0"):
        dataset = from_coco(content, tmp_path)
    np.testing.assert_array_equal(dataset[0]["labels"], [0])
    np.testing.assert_array_equal(dataset[0]["area"], [999])
    write_coco({"valid": dataset}, tmp_path / "set")
    written = json.loads((tmp_path / "set" / "valid.json").read_text())
    for key in ("annotations", "images"):
        assert dataset.to_coco()[key] == written[key] == content[key]
    copy = (tmp_path / "set/valid/a.png").read_bytes()
    assert copy == (tmp_path / "a.png").read_bytes()
