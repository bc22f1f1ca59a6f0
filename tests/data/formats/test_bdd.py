"""`from_bdd`: BDD100K's list of images, Scalabel's frames."""

import json

import numpy as np
import pytest
from support.small_datasets import save_image

from effdet_keras import data
from effdet_keras.data.formats.bdd import from_bdd

CORNERS = {"x1": 5, "y1": 2, "x2": 25, "y2": 12}
CAR = {
    "id": "0",
    "category": "car",
    "attributes": {"occluded": False},
    "box2d": CORNERS,
}
LANE = {"id": "1", "category": "lane", "poly2d": [{"vertices": [[1, 2], [3, 4]]}]}
CROWD = {**CAR, "category": "rider", "attributes": {"crowd": True}}
IMAGES = [
    {"name": "b.png", "attributes": {"scene": "city"}, "labels": [CAR, LANE, CROWD]},
    {"name": "a.png", "attributes": {"scene": "city"}, "labels": None},
]


@pytest.fixture
def write(tmp_path):
    def write(content, name):
        split = name.partition("_")[2].partition(".")[0] or "train"
        for image in ("a.png", "b.png"):
            save_image(tmp_path / "images" / "100k" / split / image)
        path = tmp_path / "labels" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content))
        return tmp_path

    return write


@pytest.mark.smoke
@pytest.mark.parametrize("content", [IMAGES, {"frames": IMAGES, "config": None}])
def test_boxes_and_splits(write, content, capsys):
    write(content, "det_train.json")
    folder = write(content, "det_val.json")
    splits = data.load_splits(folder)
    assert "is BDD100K json: splits train, val" in capsys.readouterr().out
    for name, dataset in splits.items():
        assert dataset.class_names == ("car", "rider")
        record = dataset.records[0]
        assert record.image == str(folder / "images" / "100k" / name / "b.png")
        np.testing.assert_array_equal(record.boxes_xywh, [[5, 2, 20, 10]] * 2)
        np.testing.assert_array_equal(record.is_crowd, [False, True])
        assert len(dataset.records[1].labels) == 0


@pytest.mark.parametrize(
    "bad",
    [{**CAR, "box2d": {"x1": 1}}, {**CAR, "category": None}, {**CAR, "box2d": {}}],
)
def test_bad_boxes_are_named(write, bad):
    folder = write([{"name": "a.png", "labels": [CAR, bad]}], "det_train.json")
    with pytest.raises(
        ValueError, match=r"1 bad box: a\.png: a `category` and the fin"
    ):
        from_bdd(folder)


def test_another_file_is_explained(write, tmp_path):
    folder = write([{"box2d": 1}], "det_train.json")
    with pytest.raises(ValueError, match=r"`name` and `labels`.*'box2d'"):
        from_bdd(folder / "labels" / "det_train.json")
