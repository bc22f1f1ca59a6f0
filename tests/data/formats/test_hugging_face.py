"""`from_hugging_face`: metadata files by hand, class names, `datasets.Dataset`."""

import json
import warnings

import numpy as np
import pytest
from support.small_datasets import save_image

from effdet_keras import data
from effdet_keras.data import from_hugging_face
from effdet_keras.data.shared_images import shared_images

BOX = [5.0, 2.0, 20.0, 10.0]
OBJECTS = {"bbox": [BOX, [0, 0, 4, 4]], "category": ["dog", "cat"]}
CARD = """---
license: mit
dataset_info:
  features:
  - name: image
    dtype: image
  - name: objects
    sequence:
    - name: bbox
      sequence: float32
      length: 4
    - name: category
      dtype:
        class_label:
          names:
            '0': no
            '1': cat
---
# Pets
"""


def jsonl(*rows):
    return "".join(f"{json.dumps(row)}\n" for row in rows)


@pytest.fixture
def write(tmp_path):
    def write(content, name="metadata.jsonl", images=("a.png", "b.png")):
        path = tmp_path / name
        for image in images:
            save_image(path.parent / image)
        path.write_text(content)
        return tmp_path

    return write


ROWS = (
    {"file_name": "b.png", "objects": OBJECTS},
    {"file_name": "a.png", "objects": {"bbox": [], "category": []}},
)
LISTS = [{"bbox": b, "label": c} for b, c in zip(*OBJECTS.values())]


@pytest.mark.smoke
@pytest.mark.parametrize(
    "objects",
    [
        OBJECTS,
        {"bbox": OBJECTS["bbox"], "categories": OBJECTS["category"], "area": [200, 16]},
        LISTS,
    ],
)
def test_objects_are_lists_or_a_list(write, objects, capsys):
    folder = write(jsonl({"file_name": "b.png", "objects": objects}, ROWS[1]))
    dataset = data.load(folder)
    assert "is Hugging Face: split train" in capsys.readouterr().out
    assert dataset.class_names == ("cat", "dog")
    record = dataset.records[0]
    np.testing.assert_array_equal(record.boxes_xywh, [BOX, [0, 0, 4, 4]])
    np.testing.assert_array_equal(record.labels, [1, 0])
    np.testing.assert_array_equal(record.area, [200, 16])
    assert [r.file_name for r in dataset.records] == ["b.png", "a.png"]


def test_columns_beside_the_name_and_crowds(write):
    row = {"file_name": "a.png", "bboxes": [BOX, BOX], "labels": ["a", "b"]}
    dataset = from_hugging_face(write(jsonl({**row, "iscrowd": [0, 1]})))
    np.testing.assert_array_equal(dataset.records[0].is_crowd, [False, True])
    assert dataset.class_names == ("a", "b")


@pytest.mark.parametrize("style", [json.dumps, str])
def test_csv_has_objects_as_text(write, style):
    text = style(OBJECTS).replace('"', '""')
    folder = write(f'file_name,objects\nb.png,"{text}"\n', "metadata.csv")
    assert len(data.load(folder).records[0].labels) == 2


def test_parquet(write, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    folder = write("")
    (folder / "metadata.jsonl").unlink()
    table = pyarrow.Table.from_pylist(list(ROWS))
    parquet.write_table(table, folder / "metadata.parquet")
    dataset = data.load(folder)
    np.testing.assert_array_equal(dataset.records[0].boxes_xywh[0], BOX)


def test_the_four_numbers_may_be_others(write):
    rows = {"file_name": "a.png", "objects": {"bbox": [[5, 2, 25, 12]], "label": ["a"]}}
    folder = write(jsonl(rows))
    corners = from_hugging_face(folder, box_format="xyxy")
    np.testing.assert_array_equal(corners.records[0].boxes_xywh, [BOX])
    centers = from_hugging_face(folder, box_format="cxcywh")
    np.testing.assert_array_equal(centers.records[0].boxes_xywh, [[-7.5, -4, 25, 12]])
    with pytest.raises(ValueError, match="'xywh', 'xyxy'.*box_format='yxyx'"):
        from_hugging_face(folder, box_format="yxyx")


def test_corners_that_are_read_as_sides_are_told(write):
    corners = [[25, 10, 35, 18], *([1, 1, 4, 4] for _ in range(19))]
    row = {"file_name": "a.png", "bbox": corners, "label": ["a"] * 20}
    folder = write(jsonl(row))
    said = "5 % of the boxes .* left, top, right, bottom: `box_format` may be 'xyxy'"
    with pytest.warns(UserWarning, match=said):
        dataset = data.load(folder)
    assert [problem.kind for problem in dataset.problems] == ["box columns"]
    assert "suspected box format" in data.check(dataset, model=None).by_kind()
    with warnings.catch_warnings(action="error"):
        from_hugging_face(folder, box_format="xyxy")
        sides = [[left, top, left, top] for left, top, _, _ in corners[1:]]
        from_hugging_face(write(jsonl({**row, "bbox": sides, "label": ["a"] * 19})))


def test_ends_of_lines_within_texts_are_none(write):
    rows = [{**row, "caption": "a\u2028b\u0085c"} for row in ROWS]
    text = "\r\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    assert len(data.load(write(text))) == 2


def numbered(*numbers):
    objects = {"bbox": [BOX] * len(numbers), "categories": list(numbers)}
    return jsonl({"file_name": "a.png", "objects": objects})


def test_numbers_have_the_names_of_the_dataset_card(write):
    write(CARD, "README.md")
    dataset = data.load(write(numbered(1, 0)))
    assert dataset.class_names == ("no", "cat")
    np.testing.assert_array_equal(dataset.records[0].labels, [1, 0])
    with pytest.raises(ValueError, match="1 unknown class: .*7, the class of 1 box"):
        data.load(write(numbered(1, 7)))


def test_numbers_without_names_are_said(write):
    folder = write(numbered(2, 0))
    with pytest.warns(UserWarning, match="classes are numbers from 0 to 2"):
        assert data.load(folder).class_names == ("0", "1", "2")
    dataset = data.load(folder, class_names=["a", "b", "c"])
    np.testing.assert_array_equal(dataset.records[0].labels, [2, 0])
    by_id = data.load(folder, class_names={1: "b", 2: "c"}, on_error="skip")
    assert by_id.class_names == ("b", "c")
    np.testing.assert_array_equal(by_id.records[0].labels, [1])


def test_splits_are_folders_with_a_file_each_or_in_the_names(write, tmp_path):
    for split in ("train", "validation"):
        write(jsonl(*ROWS), f"data/{split}/metadata.jsonl")
    splits = data.load_splits(tmp_path / "data")
    assert list(splits) == ["train", "validation"]
    assert list(data.load_splits(tmp_path)) == ["train", "validation"]
    rows = [{**ROWS[0], "file_name": f"{name}/b.png"} for name in splits]
    path = tmp_path / "data" / "metadata.jsonl"
    path.write_text(jsonl(*rows))
    splits = data.load_splits(tmp_path / "data")
    assert {name: len(d) for name, d in splits.items()} == {"train": 1, "validation": 1}
    assert splits["validation"].records[0].image.endswith("validation/b.png")


def test_captions_are_no_boxes_and_bad_lines_are_named(write, tmp_path):
    folder = write(jsonl({"file_name": "a.png", "text": "a cat"}))
    with pytest.raises(ValueError, match="No dataset was found"):
        data.load(folder)
    with pytest.raises(FileNotFoundError, match=r"no metadata\.jsonl with `objects`"):
        from_hugging_face(folder)
    folder = write(jsonl(ROWS[0]) + "{'file_name'\n")
    with pytest.raises(ValueError, match=r"metadata\.jsonl: line 2 is not valid"):
        from_hugging_face(folder)
    folder = write(jsonl({"objects": OBJECTS}))
    with pytest.raises(ValueError, match="`file_name`. Received: line 1"):
        from_hugging_face(folder)
    for objects in (
        {"bbox": [BOX], "category": []},
        {"bbox": [BOX[:3]], "category": ["cat"]},
        {"bbox": [["a", 1, 2, 3]], "category": ["cat"]},
        {"bbox": [BOX], "category": [None]},
    ):
        folder = write(jsonl({"file_name": "a.png", "objects": objects}, ROWS[0]))
        with pytest.raises(ValueError, match=r"1 bad box: .*a\.png"):
            from_hugging_face(folder)


def test_other_objects_are_refused():
    with pytest.raises(TypeError, match="without `streaming=True`.*Received: list"):
        from_hugging_face([1, 2])


# --- The package `datasets`.


@pytest.fixture
def library():
    return pytest.importorskip("datasets")


@pytest.fixture
def pets(library, tmp_path):
    """A dataset of two images, with names of classes."""
    objects = {
        "bbox": library.Sequence(library.Sequence(library.Value("float32"), length=4)),
        "category": library.Sequence(library.ClassLabel(names=["dog", "cat"])),
    }
    features = library.Features(
        {
            "image_id": library.Value("int64"),
            "image": library.Image(),
            "width": library.Value("int32"),
            "height": library.Value("int32"),
            "objects": objects,
        }
    )
    rows = [
        {
            "image_id": number,
            "image": str(save_image(tmp_path / name)),
            "width": 40,
            "height": 20,
            "objects": content,
        }
        for number, name, content in (
            (7, "a.png", {"bbox": [BOX], "category": [1]}),
            (5, "b.png", {"bbox": [], "category": []}),
        )
    ]
    return library.Dataset.from_list(rows, features=features)


@pytest.mark.extra_packages
def test_a_dataset_of_the_library(pets, tmp_path):
    dataset = from_hugging_face(pets)
    assert dataset.class_names == ("dog", "cat")
    assert dataset.image_ids == (7, 5)
    np.testing.assert_array_equal(dataset.records[0].boxes_xywh, [BOX])
    np.testing.assert_array_equal(dataset.records[0].labels, [1])
    np.testing.assert_array_equal(dataset[0]["image"], pets[0]["image"])
    data.write_coco(dataset, tmp_path / "coco")
    assert len(data.load(tmp_path / "coco")) == 2


@pytest.mark.extra_packages
def test_splits_and_parquet_files_with_images(library, pets, tmp_path):
    both = library.DatasetDict(train=pets, test=pets.select([0]))
    assert len(from_hugging_face(both, "test")) == 1
    with pytest.raises(ValueError, match=r"\['train', 'test'\].*split=None"):
        from_hugging_face(both)
    folder = tmp_path / "repository"
    (folder / "data").mkdir(parents=True)
    for name, rows in both.items():
        path = folder / f"data/{name}-00000-of-00001.parquet"
        embedded = rows.map(lambda row: {**row, "image": {"bytes": image_bytes(row)}})
        embedded.to_parquet(path)
    splits = data.load_splits(folder)
    assert {name: len(d) for name, d in splits.items()} == {"test": 1, "train": 2}
    np.testing.assert_array_equal(splits["train"][0]["image"], pets[0]["image"])


@pytest.mark.extra_packages
def test_splits_of_as_many_rows_are_different_images(pets, tmp_path):
    for row, name in enumerate(("train", "test")):
        rows = pets.select([row])
        embedded = rows.map(lambda row: {**row, "image": {"bytes": image_bytes(row)}})
        embedded.to_parquet(tmp_path / f"data/{name}-00000-of-00001.parquet")
    train, test = data.load_splits(tmp_path).values()
    assert shared_images(train.records, test.records) == []
    first, second = (from_hugging_face(pets.select([row])) for row in range(2))
    assert shared_images(first.records, second.records) == []
    assert shared_images(first.records, from_hugging_face(pets.select([0])).records)


def image_bytes(row):
    with open(row["image"].filename, "rb") as file:
        return file.read()


@pytest.mark.extra_packages
def test_what_is_no_dataset_with_boxes_is_refused(pets):
    with pytest.raises(
        ValueError, match=r"one column of images.*\['image_id', 'width'"
    ):
        from_hugging_face(pets.remove_columns("image"))
    with pytest.raises(TypeError, match="IterableDataset"):
        from_hugging_face(pets.to_iterable_dataset())
