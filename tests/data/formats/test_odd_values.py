"""A value of an odd type in a file: it is read, or an error names the file."""

import copy
import itertools
import json
import warnings

import numpy as np
import pytest
import yaml
from support.small_datasets import save_image

from effdet_keras import data
from effdet_keras.data.formats.label_map import read_label_map
from effdet_keras.errors import EffDetError

HUGE = 10**400
ODD = [None, [], [1], {}, {"a": 1}, 7, -1, 0.5, HUGE, "", " ", "x", "7", "x\n", True]
ODD += [float("nan"), float("inf"), [[]], [None], "é", "[1, 2]", "9" * 5000, "a/../b"]


def places(value, path=()):
    """The path of each value in nested lists and dicts, the whole one first."""
    yield path
    items = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else items
    for key, inner in items:
        yield from places(inner, (*path, key))


def replaced(value, path, new):
    """A copy of nested lists and dicts with a new value at a path."""
    if not path:
        return new
    result = copy.deepcopy(value)
    inner = result
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return result


def variants(value, seed=0, pairs=60):
    """`value` with each odd value in each place, and with some in two places."""
    for path, odd in itertools.product(places(value), ODD):
        yield replaced(value, path, odd)
    random = np.random.default_rng(seed)
    every = list(places(value))
    for _ in range(pairs):
        first, second = (every[i] for i in random.integers(1, len(every), 2))
        if first == second[: len(first)] or second == first[: len(second)]:
            continue
        odd = [ODD[i] for i in random.integers(0, len(ODD), 2)]
        yield replaced(replaced(value, first, odd[0]), second, odd[1])


def assert_read_or_named(read, file, content):
    """Reads, and also leaving out errors: a dataset, or an error with a file's name."""
    for on_error in ("raise", "skip"):
        try:
            with warnings.catch_warnings(action="ignore"):
                dataset = read(on_error=on_error)
        except (EffDetError, OSError) as error:
            shown = str(content)[:300]
            assert file in str(error), f"no name in {error!r} of {shown}"
        except Exception as error:
            raise AssertionError(f"{error!r} of {str(content)[:300]}") from error
        else:
            for record in getattr(dataset, "records", ()):
                assert np.isfinite(record.boxes_xywh).all()


COCO = {
    "images": [
        {"id": 1, "file_name": "a.png", "height": 20, "width": 40},
        {"id": 2, "file_name": "b.png"},
    ],
    "annotations": [
        {"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 8, 9], "iscrowd": 0},
        {"id": 2, "image_id": 1, "category_id": 2, "bbox": [3, 2, 8, 9], "area": 60.5},
    ],
    "categories": [
        {"id": 1, "name": "cat", "supercategory": "pets"},
        {"id": 2, "name": "dog"},
    ],
}


def test_coco_json(tmp_path):
    for name in ("a.png", "b.png"):
        save_image(tmp_path / name)
    path = tmp_path / "train.json"
    for content in variants(COCO):
        path.write_text(json.dumps(content))
        assert_read_or_named(
            lambda **o: data.from_coco(path, **o), "train.json", content
        )


def test_two_coco_files_of_one_split(tmp_path):
    (tmp_path / "train").mkdir()
    for name in ("a.png", "b.png"):
        save_image(tmp_path / "train" / name)
    (tmp_path / "train/one.json").write_text(json.dumps(COCO))
    for content in variants(COCO):
        (tmp_path / "train/two.json").write_text(json.dumps(content))
        assert_read_or_named(
            lambda **o: data.load(tmp_path, **o), tmp_path.name, content
        )


YAML = {
    "path": ".",
    "train": "images",
    "val": ["images"],
    "names": {0: "cat", 1: "dog"},
    "nc": 2,
    "kpt_shape": [2, 3],
}


@pytest.mark.parametrize("names", [{0: "cat", 1: "dog"}, ["cat", "dog"]])
def test_data_yaml(tmp_path, names):
    save_image(tmp_path / "images/a.png")
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels/a.txt").write_text("1 0.5 0.5 0.2 0.2\n")
    path = tmp_path / "data.yaml"
    for content in variants({**YAML, "names": names}):
        path.write_text(yaml.safe_dump(content))
        file = tmp_path.name
        assert_read_or_named(
            lambda **o: data.from_yolo(path, "train", **o), file, content
        )


def test_rows_of_yolo(tmp_path):
    save_image(tmp_path / "a.png")
    save_image(tmp_path / "b.png")
    (tmp_path / "b.txt").write_text("0 0.5 0.5 0.2 0.2\n")
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    for length in (5, 6, 7, 8, 9, 10):
        row = ["1", *["0.25"] * (length - 1)]
        for path, odd in itertools.product(range(length), TEXTS):
            content = " ".join(replaced(row, (path,), odd))
            (tmp_path / "a.txt").write_text(content)
            assert_read_or_named(
                lambda **o: data.from_yolo(tmp_path, **o), "a.", content
            )


TEXTS = ["", "null", "nan", "-inf", "1e999", "-1", "0", "0.5", "1_0", "²", "٣", "x"]
TEXTS += [
    "9" * 5000,
    "9" * 12,
    "[1]",
    "{}",
    "1,5",
    "true",
    " ",
    "0x10",
    "é",
    "\\",
    "../a",
]

XML = """<annotation><filename>a.png</filename><size><width>40</width>
<height>20</height><depth>3</depth></size><object><name>cat</name>
<difficult>0</difficult><bndbox><xmin>3</xmin><ymin>4</ymin><xmax>9</xmax>
<ymax>9</ymax></bndbox></object></annotation>"""


def test_voc_xml(tmp_path):
    save_image(tmp_path / "a.png")
    values = ("a.png", "40", "20", "cat", "0", "3", "4", "9", "9")
    tags = "filename width height name difficult xmin ymin xmax ymax".split()
    contents = []
    for tag, value in zip(tags, values):
        whole = f"<{tag}>{value}</{tag}>"
        assert whole in XML
        texts = [f"<{tag}>{odd}</{tag}>" for odd in TEXTS]
        texts += ["", f"<{tag}/>", whole * 2, f"<{tag}><{tag}>{value}</{tag}></{tag}>"]
        contents += [XML.replace(whole, text) for text in texts]
    for tag in ("object", "bndbox", "size", "annotation"):
        contents.append(XML.replace(f"<{tag}>", "<x>").replace(f"</{tag}>", "</x>"))
    for content in contents:
        (tmp_path / "a.xml").write_text(content, encoding="utf-8")
        assert_read_or_named(
            lambda **o: data.from_voc(tmp_path, **o), tmp_path.name, content
        )


@pytest.mark.parametrize(
    "rows",
    [
        [
            ["filename", "width", "height", "class", "xmin", "ymin", "xmax", "ymax"],
            ["a.png", "40", "20", "cat", "1", "2", "30", "9"],
            ["a.png", "40", "20", "dog", "1", "2", "30", "9"],
        ],
        [["a.png", "1", "2", "30", "9", "cat"], ["b.png", "", "", "", "", ""]],
        [["TRAIN", "a.png", "cat", "0.1", "0.2", "", "", "0.5", "0.9", "", ""]],
    ],
)
def test_csv_cells(tmp_path, rows):
    for name in ("a.png", "b.png"):
        save_image(tmp_path / name)
    path = tmp_path / "train.csv"
    for place, odd in itertools.product(places(rows), TEXTS):
        if len(place) == 2:
            content = replaced(rows, place, odd)
            path.write_text("\n".join(map(",".join, content)), encoding="utf-8")
            assert_read_or_named(
                lambda **o: data.from_csv(path, **o), tmp_path.name, content
            )


@pytest.mark.parametrize("suffix", ["json", "yaml"])
@pytest.mark.parametrize("content", [{"cat": 1, "dog": 2}, {"label_map": {1: "cat"}}])
def test_label_maps(tmp_path, suffix, content):
    path = tmp_path / f"map.{suffix}"
    for variant in variants(content):
        if suffix == "json":
            path.write_text(json.dumps(variant))
        else:
            path.write_text(yaml.safe_dump(variant))
        assert_read_or_named(lambda **_: read_label_map(path), f"map.{suffix}", variant)


def test_label_maps_of_the_object_detection_api(tmp_path):
    path = tmp_path / "map.pbtxt"
    text = "item {\n id: 1\n name: 'cat'\n}\nitem {\n id: 2\n name: 'dog'\n}\n"
    for old, odd in itertools.product(("1", "'cat'", "item", "id", "{", "name"), TEXTS):
        content = text.replace(old, odd, 1)
        path.write_text(content, encoding="utf-8")
        assert_read_or_named(lambda **_: read_label_map(path), "map.pbtxt", content)
