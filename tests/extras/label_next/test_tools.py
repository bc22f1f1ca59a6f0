"""The files of labelling tools, as the public descriptions of their formats have it."""

import json
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from support.clips import photo

from effdet_keras.data import from_coco, load
from effdet_keras.detect.detections import Detections
from effdet_keras.extras.label_next.tools import (
    FOLDER,
    TOOLS,
    Classes,
    ImageToLabel,
    write_label_studio,
)

CLASSES = Classes(("cat", "big dog"), (7, 3))
SIZE = 90, 120  # height, width
# The second box reaches beyond the image, the third lies outside of it.
BOXES = [[9, 12, 45, 60], [80, 100, 95, 130], [100, 130, 110, 140]]


@pytest.fixture
def images(tmp_path):
    (tmp_path / "images").mkdir()
    found = Detections(
        np.array(BOXES, np.float32),
        np.array([0.75, 0.5, 0.4]),
        np.array([0, 1, 0]),
        class_names=CLASSES.names,
        category_ids=CLASSES.category_ids,
    )
    nothing = found[:0]
    for name in ("a b.jpg", "c.jpg"):
        photo(0, 120, 90).save(tmp_path / "images" / name)
    return [
        ImageToLabel("a b.jpg", SIZE, found, 0.8),
        ImageToLabel("c.jpg", SIZE, nothing, 0.2),
    ]


def written(tool, folder, images):
    return TOOLS[tool](folder, images, CLASSES, "runs/cats", None)


def test_label_studio_has_tasks_with_predictions_in_percent(tmp_path, images):
    text = written("labelstudio", tmp_path, images)
    first, second = json.loads((tmp_path / "tasks.json").read_text())
    assert first["data"]["image"] == "/data/local-files/?d=images/a%20b.jpg"
    assert (first["data"]["rank"], second["data"]["rank"]) == (1, 2)
    (prediction,) = first["predictions"]
    assert prediction["model_version"] == "runs/cats"
    assert prediction["score"] == pytest.approx(0.625)
    box, cut = prediction["result"]  # the third has no area in the image
    assert box["type"] == "rectanglelabels"
    assert (box["original_width"], box["original_height"]) == (120, 90)
    value = box["value"]
    assert value["rectanglelabels"] == ["cat"] and value["rotation"] == 0
    corner = value["x"], value["y"], value["width"], value["height"]
    assert corner == pytest.approx((10, 10, 40, 40))
    assert cut["value"]["x"] + cut["value"]["width"] == pytest.approx(100)
    assert box["id"] != cut["id"]
    assert second["predictions"][0]["result"] == []
    # The names of the configuration are those that the results refer to.
    view = ET.parse(tmp_path / "label_config.xml").getroot()
    image, labels = view
    assert (image.tag, image.get("value")) == ("Image", "$image")
    assert image.get("name") == labels.get("toName") == box["to_name"]
    assert labels.tag == "RectangleLabels" and labels.get("name") == box["from_name"]
    assert [label.get("value") for label in labels] == ["cat", "big dog"]
    assert f"DOCUMENT_ROOT={FOLDER}" in text


@pytest.mark.parametrize(
    ("address", "name"),
    [
        # What follows the bucket is the key of the file, not a part of an URL.
        ("s3://bucket/next/", "a b.jpg"),
        ("gs://bucket/", "a b.jpg"),
        ("https://server/next/", "a%20b.jpg"),
        ("/data/upload/", "a%20b.jpg"),
    ],
)
def test_label_studio_takes_images_at_an_address(tmp_path, images, address, name):
    write_label_studio(tmp_path, images, CLASSES, "m", address)
    first = json.loads((tmp_path / "tasks.json").read_text())[0]
    assert first["data"]["image"] == address + name


def test_cvat_has_images_with_boxes_as_corners(tmp_path, images):
    written("cvat", tmp_path, images)
    root = ET.parse(tmp_path / "annotations.xml").getroot()
    assert root.tag == "annotations" and root.findtext("version") == "1.1"
    labels = [label.findtext("name") for label in root.iter("label")]
    assert labels == ["cat", "big dog"]
    first, second = root.findall("image")
    attributes = {"id": "0", "name": "a b.jpg", "width": "120", "height": "90"}
    assert first.attrib == attributes and not list(second)
    box, cut = first.findall("box")
    corners = {"xtl": "12.00", "ytl": "9.00", "xbr": "60.00", "ybr": "45.00"}
    others = {"label": "cat", "source": "auto", "occluded": "0", "z_order": "0"}
    assert box.attrib == {**corners, **others}
    assert (cut.get("xbr"), cut.get("ybr")) == ("120.00", "90.00")
    raw = json.loads((tmp_path / "labels.json").read_text())
    assert raw == [{"name": name, "attributes": []} for name in CLASSES.names]


def test_labelme_has_a_file_beside_each_image(tmp_path, images):
    written("labelme", tmp_path, images)
    content = json.loads((tmp_path / "images" / "a b.json").read_text())
    assert content["imagePath"] == "a b.jpg" and content["imageData"] is None
    assert (content["imageHeight"], content["imageWidth"]) == SIZE
    shape = content["shapes"][0]
    assert shape["label"] == "cat" and shape["shape_type"] == "rectangle"
    assert shape["points"] == [[12, 9], [60, 45]]
    assert {"version", "flags", "group_id"} <= content.keys() | shape.keys()
    assert json.loads((tmp_path / "images" / "c.json").read_text())["shapes"] == []
    assert (tmp_path / "labels.txt").read_text() == "cat\nbig dog\n"


def test_coco_is_read_back_with_the_ids_of_the_model(tmp_path, images):
    written("coco", tmp_path, images)
    dataset = from_coco(tmp_path / "annotations.json", tmp_path / "images")
    assert dict(zip(dataset.class_names, dataset.category_ids)) == {
        "cat": 7,
        "big dog": 3,
    }
    assert [record.file_name for record in dataset.records] == ["a b.jpg", "c.jpg"]
    np.testing.assert_allclose(
        dataset[0]["boxes"], [[9, 12, 45, 60], [80, 100, 90, 120]]
    )
    content = json.loads((tmp_path / "annotations.json").read_text())
    assert content["annotations"][0]["score"] == 0.75
    assert len(load(tmp_path)) == 2  # the folder itself, once it is corrected
