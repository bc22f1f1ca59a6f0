"""`from_coco`: ids in and out, repairs that are counted, faults that are named."""

import json
import shutil

import numpy as np
import pytest
from support.small_datasets import save_image

from effdet_keras.data import check, from_coco, load, load_splits, write_coco
from effdet_keras.data.formats import coco


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


def test_keys_may_be_written_as_one_word(content, tmp_path):
    expected = from_coco(content, tmp_path).to_coco()
    text = json.dumps(content).replace("file_name", "fileName")
    text = text.replace("image_id", "imageId").replace("category_id", "categoryId")
    assert from_coco(json.loads(text), tmp_path).to_coco() == expected


def test_a_second_key_of_one_word_changes_nothing(content, tmp_path):
    expected = from_coco(content, tmp_path).to_coco()
    for item in (*content["images"], *content["annotations"]):
        item |= {"fileName": "other.png", "imageId": 5, "categoryId": 90}
    assert from_coco(content, tmp_path).to_coco() == expected


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
    with pytest.warns(
        UserWarning, match="1 stray annotation.*1 annotation of image_id 77"
    ):
        dataset = from_coco(content, tmp_path)
    assert len(dataset[0]["labels"]) == 2


def test_where_no_annotation_fits_an_image_it_is_an_error(content, tmp_path):
    for annotation in content["annotations"]:
        annotation["image_id"] = "a.png"
    said = "only stray annotation.* `image_id` 'a.png', images have `id` 397133"
    with pytest.raises(ValueError, match=said):
        from_coco(content, tmp_path)
    with pytest.warns(UserWarning, match="only stray annotations"):
        dataset = from_coco(content, tmp_path, on_error="skip")
    assert [len(example["labels"]) for example in dataset] == [0, 0]


def test_files_of_other_tools_are_refused_by_their_first_bytes(
    content, tmp_path, monkeypatch
):
    path = tmp_path / "set.json"
    path.write_text(json.dumps({"info": {"shapes": [], "imageData": 0}, **content}))
    assert len(coco.coco_readers(path)) == 1
    monkeypatch.setattr(coco.mmap, "mmap", lambda *_, **__: pytest.fail("it is read"))
    for other in ({"shapes": [], "imageData": "A" * 99, "imagePath": "a"}, [content]):
        path.write_text(json.dumps(other))
        assert coco.coco_readers(path) == {}
    path.write_text("")
    assert coco.coco_readers(path) == {}


def test_an_entry_for_each_box_is_one_image(content, tmp_path):
    for number, annotation in enumerate(content["annotations"]):
        annotation["image_id"] = 1000 + number
    first = content["images"][0]
    entries = [{**first, "id": 1000 + n} for n in range(len(content["annotations"]))]
    content["images"] = [*entries, content["images"][1]]
    said = r"1 of 2 images has several entries, such as 'a\.png' with 3"
    with pytest.warns(UserWarning, match=said):
        dataset = from_coco(content, tmp_path)
    assert dataset.image_ids == (1000, content["images"][-1]["id"])
    assert [len(example["labels"]) for example in dataset] == [3, 0]


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
        ("images", {"id": 397133}, r"duplicate id: b\.png.*has the same id, 397133"),
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
        (b"{", "expects a json file, and"),
        ('{"ü": 1}'.encode("latin-1"), "expects a json file, and"),
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
    with pytest.raises(ValueError, match="1 normalized box: .*all 3 boxes lie between"):
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
    (tmp_path / "deep/down").mkdir(parents=True)
    for name in ("a.png", "b.png"):
        (tmp_path / name).rename(tmp_path / "deep/down" / name)
    with pytest.raises(FileNotFoundError, match=r"'a\.png'\. Put them into"):
        from_coco(path)
    inside = tmp_path / "set"
    (tmp_path / "deep/down").rename(inside / "photos of May")
    assert from_coco(path)[0]["path"] == str(inside / "photos of May" / "a.png")
    shutil.copytree(inside / "photos of May", inside / "copies")
    assert len(from_coco(path)) == 2  # either is right
    save_image(inside / "copies" / "a.png", (48, 32), turn=1)  # other bytes
    with pytest.raises(ValueError, match="in 2 folders: .*copies.*Pass `image_dir`"):
        from_coco(path)
    (inside / "photos of May").rename(inside / "val2017")
    assert from_coco(path)[0]["path"] == str(inside / "val2017" / "a.png")
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


# --- What annotation tools write that COCO's own files do not have.


def categories(*rows):
    keys = ("id", "name", "supercategory")
    return [dict(zip(keys, row)) for row in rows]


ROOT = (0, "pets", "none")
CHILDREN = ((1, "cat", "pets"), (90, "dog", "pets"))


@pytest.mark.parametrize(
    "rows, changes, names",
    [
        ((ROOT, *CHILDREN), {}, ("cat", "dog")),
        ((ROOT, *CHILDREN), {"category_id": 0}, ("pets", "cat", "dog")),
        ((ROOT, (1, "cat", "none"), CHILDREN[1]), {}, ("pets", "cat", "dog")),
        (((2, "pets", "none"), *CHILDREN), {}, ("cat", "pets", "dog")),
    ],
)
def test_roboflows_root_category_is_no_class(content, tmp_path, rows, changes, names):
    content["categories"] = categories(*rows)
    content["annotations"][0] |= changes
    dataset = from_coco(content, tmp_path)
    assert dataset.class_names == names
    kinds = [problem.kind for problem in dataset.problems]
    assert kinds == (["root category"] if len(names) == 2 else [])


def test_a_root_category_alone_or_asked_for_stays_a_class(content, tmp_path):
    content["categories"] = categories(ROOT, *CHILDREN)
    names = ("pets", "cat", "dog")
    dataset = from_coco(content, tmp_path, class_names=names)
    assert dataset.class_names == names and dataset.category_ids == (0, 1, 90)
    content["categories"] = categories(ROOT)
    content["annotations"] = []
    assert from_coco(content, tmp_path).class_names == ("pets",)


def test_repeated_categories_and_image_ids_as_text_are_read(content, tmp_path):
    content["categories"] *= 2  # as VIA writes them
    for annotation in content["annotations"]:
        annotation["image_id"] = str(annotation["image_id"])
    dataset = from_coco(content, tmp_path)
    assert dataset.class_names == ("person", "toothbrush")
    assert [len(record.labels) for record in dataset.records] == [3, 0]
    for image in content["images"]:  # and the other way round
        image["id"] = str(image["id"])
    content["annotations"][0]["image_id"] = 397133
    dataset = from_coco(content, tmp_path)
    assert [len(record.labels) for record in dataset.records] == [3, 0]


@pytest.mark.parametrize(
    "flag, is_crowd",
    [(1, True), (True, True), (2, True), ("1", True), ("True", True), (1.0, True)]
    + [(0, False), ("0", False), ("", False), (None, False), (False, False)],
)
def test_a_crowd_flag_may_be_text_or_above_one(content, tmp_path, flag, is_crowd):
    content["annotations"][0]["iscrowd"] = flag
    assert from_coco(content, tmp_path).records[0].is_crowd[0] == is_crowd


def test_a_category_without_a_name_needs_one_if_it_is_used(content, tmp_path):
    content["categories"].append({"id": 7, "name": None})
    assert from_coco(content, tmp_path).class_names == ("person", "toothbrush")
    content["annotations"][0]["category_id"] = 7
    with pytest.raises(ValueError, match="none may be blank"):
        from_coco(content, tmp_path)


@pytest.mark.parametrize("is_crowd", [None, 1])
def test_the_check_refuses_a_split_with_nothing_to_train_on(
    content, tmp_path, is_crowd
):
    for annotation in content["annotations"]:
        annotation["iscrowd"] = 1
    content["annotations"] = content["annotations"] if is_crowd else []
    (tmp_path / "train.json").write_text(json.dumps(content))
    report = check(tmp_path, model=None)
    assert not report.ok
    found = {problem.kind: problem.detail for problem in report.problems}
    expected = "all 3 boxes are crowds" if is_crowd else "has a box"
    assert expected in found["nothing to train on"]


# --- Several files of one split.


def halves(content):
    """The content in two: each has one image, and ids that count from 1."""
    first = {**content, "images": content["images"][:1]}
    box = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [2, 3, 8, 8]}
    second = {
        "images": [{**content["images"][1], "id": 1}],
        "annotations": [box],
        "categories": [{"id": 1, "name": "toothbrush"}, {"id": 2, "name": "cup"}],
    }
    return first, second


@pytest.mark.parametrize(
    "names",
    [
        ("train_part1.json", "train_part2.json"),
        ("train-0-of-2.json", "train-1-of-2.json"),
        (
            "annotations/instances_val_part1.json",
            "annotations/instances_val_part2.json",
        ),
        ("train/_annotations.coco.json", "train/more.json"),
    ],
)
def test_several_files_of_one_split_are_read_as_one(content, tmp_path, names):
    for name, half in zip(sorted(names), halves(content)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps(half))
    with pytest.warns(UserWarning, match="read as one split"):
        dataset = load(tmp_path)
    # Their ids mean different classes, so that the names decide.
    assert sorted(dataset.class_names) == ["cup", "person", "toothbrush"]
    found = {
        record.file_name: [dataset.class_names[label] for label in record.labels]
        for record in dataset.records
    }
    assert found == {
        "a.png": ["toothbrush", "person", "person"],
        "b.png": ["toothbrush"],
    }


def test_equal_annotations_of_two_files_count_once(content, tmp_path):
    for name in ("train_part1.json", "train_part2.json"):
        (tmp_path / name).write_text(json.dumps(content))
    with pytest.warns(UserWarning, match="read as one split"):
        dataset = load(tmp_path)
    assert [len(record.labels) for record in dataset.records] == [3, 0]
    assert dataset.image_ids == (397133, 5) and dataset.category_ids == (1, 90)


def test_files_of_several_splits_in_one_folder_stay_apart(content, tmp_path):
    (tmp_path / "boxes").mkdir()
    names = ["train", "train2017", "train_1", "train_2", "val"]  # folds, or years
    for name in names:
        (tmp_path / "boxes" / f"{name}.json").write_text(json.dumps(content))
    assert sorted(load_splits(tmp_path / "boxes")) == names
    # Also in a folder that is called as a split.
    (tmp_path / "boxes").rename(tmp_path / "train")
    assert len(load_splits(tmp_path)) == len(names)
