"""Exports with any value in any place: read, or refused in plain words."""

import copy
import json
import warnings

import numpy as np
import pytest
from support.small_datasets import save_image

from effdet_keras import data
from effdet_keras.data import load

XYWH = {"x": 5, "y": 2, "width": 20, "height": 10}
SHAPE = {"label": "cat", "points": [[5, 2], [25, 12]], "shape_type": "rectangle"}
REGION = {
    "id": "k",
    "type": "rectanglelabels",
    "original_width": 40,
    "original_height": 20,
    "value": {**XYWH, "rotation": 0, "rectanglelabels": ["cat"]},
}
JOB = {"annotations": [{"class_id": 0, "left": 5, "top": 2, "width": 20, "height": 10}]}
LABELBOX = {
    "name": "cat",
    "bounding_box": {"left": 5, "top": 2, "width": 20, "height": 10},
}
# The name of the file, and its content, of one image with one box.
EXPORTS = {
    "labelme": ("a.json", {"shapes": [SHAPE], "imagePath": "a.png", "imageHeight": 20}),
    "via": (
        "via.json",
        {
            "a.png9": {
                "filename": "a.png",
                "regions": {
                    "0": {
                        "shape_attributes": {"name": "rect", **XYWH},
                        "region_attributes": {"class": "cat"},
                    }
                },
            }
        },
    ),
    "label_studio": (
        "tasks.json",
        [{"id": 1, "data": {"image": "a.png"}, "annotations": [{"result": [REGION]}]}],
    ),
    "labelbox": (
        "export.ndjson",
        {
            "data_row": {"id": "1", "external_id": "a.png"},
            "projects": {"p": {"labels": [{"annotations": {"objects": [LABELBOX]}}]}},
        },
    ),
    "create_ml": (
        "boxes.json",
        [{"image": "a.png", "annotations": [{"label": "cat", "coordinates": XYWH}]}],
    ),
    "hugging_face": (
        "metadata.jsonl",
        {
            "file_name": "a.png",
            "objects": {"bbox": [[5, 2, 20, 10]], "category": ["cat"], "area": [9]},
        },
    ),
    "edge_impulse": (
        "bounding_boxes.labels",
        {"boundingBoxes": {"a.png": [{"label": "cat", **XYWH}]}},
    ),
    "bdd": (
        "det.json",
        [
            {
                "name": "a.png",
                "labels": [
                    {
                        "category": "cat",
                        "attributes": {"crowd": False},
                        "box2d": {"x1": 5, "y1": 2, "x2": 25, "y2": 12},
                    }
                ],
            }
        ],
    ),
    "ground_truth": (
        "output.manifest",
        {
            "source-ref": "s3://x/a.png",
            "job": JOB,
            "job-metadata": {"class-map": {"0": "cat"}},
        },
    ),
    "supervisely": (
        "ann/a.png.json",
        {
            "size": {"height": 20, "width": 40},
            "objects": [
                {
                    "classTitle": "cat",
                    "geometryType": "rectangle",
                    "points": {"exterior": [[5, 2], [25, 12]]},
                }
            ],
        },
    ),
}
VALUES = (
    None,
    [],
    {},
    "",
    -1,
    "x",
    [1],
    {"a": 1},
    float("inf"),
    [None],
    [[1, 2]],
    [{}],
)


def places(content, place=()):
    """The path of each value in a json."""
    yield place
    if isinstance(content, list):
        content = dict(enumerate(content))
    for key, value in content.items() if isinstance(content, dict) else ():
        yield from places(value, (*place, key))


def changed(content, place, value):
    if not place:
        return value
    content = copy.deepcopy(content)
    inner = content
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return content


@pytest.mark.smoke
@pytest.mark.parametrize("format", EXPORTS)
def test_any_value_in_any_place_is_read_or_refused_in_words(tmp_path, format):
    name, content = EXPORTS[format]
    save_image(tmp_path / "a.png")
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    if format == "supervisely":
        save_image(tmp_path / "img" / "a.png")
    path.write_text(json.dumps(content))
    boxes = load(tmp_path, format=format).records[0].boxes_xywh
    wanted = [[2, 0.4, 8, 2]] if format == "label_studio" else [[5, 2, 20, 10]]
    wanted = [[-5, -3, 20, 10]] if format == "create_ml" else wanted
    np.testing.assert_allclose(boxes, wanted)
    refused = 0
    for place in places(content):
        for value in VALUES:
            path.write_text(json.dumps(changed(content, place, value)))
            try:
                with warnings.catch_warnings(action="ignore"):
                    load(tmp_path, format=format)
            except (ValueError, OSError) as error:
                refused += 1
                assert str(error)
    assert refused > 50


@pytest.mark.parametrize(
    "reader, name",
    [
        ("from_csv", "boxes.csv"),
        ("from_via", "via.csv"),
        ("from_hugging_face", "metadata.csv"),
        ("from_hugging_face", "metadata.jsonl"),
    ],
)
def test_an_empty_table_is_named(tmp_path, reader, name):
    """Python's own error of unpacking named neither the file nor the cure."""
    path = tmp_path / name
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=f"{reader}.*{name}"):
        getattr(data, reader)(path)


def test_the_classes_of_a_supervisely_project_are_a_list(tmp_path):
    path = tmp_path / "ds" / "ann" / "a.png.json"
    path.parent.mkdir(parents=True)
    (tmp_path / "ds" / "img").mkdir()
    save_image(tmp_path / "ds" / "img" / "a.png")
    path.write_text('{"objects": [], "size": {"height": 20, "width": 40}}')
    (tmp_path / "meta.json").write_text('{"classes": 5}')
    with pytest.raises(ValueError, match="a list `classes`.*meta.json"):
        data.load(tmp_path, format="supervisely")
