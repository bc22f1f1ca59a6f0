"""`from_edge_impulse`: `bounding_boxes.labels` beside the images, or in two splits."""

import json

import numpy as np
import pytest
from support.small_datasets import save_image

from effdet_keras import data
from effdet_keras.data import from_edge_impulse

CAT = {"label": "cat", "x": 5, "y": 2, "width": 20, "height": 10}


def write(folder, boxes):
    for name in boxes:
        save_image(folder / name)
    content = {"version": 1, "type": "bounding-box-labels", "boundingBoxes": boxes}
    (folder / "bounding_boxes.labels").write_text(json.dumps(content, indent=4))


@pytest.mark.smoke
def test_boxes_and_splits(tmp_path, capsys):
    for split in ("training", "testing"):
        write(tmp_path / split, {"b.png": [CAT, {**CAT, "label": "ant"}], "a.png": []})
    splits = data.load_splits(tmp_path)
    assert "Edge Impulse: splits test, train" in capsys.readouterr().out
    for name, dataset in splits.items():
        assert dataset.class_names == ("ant", "cat")
        assert dataset.records[0].image == str(tmp_path / f"{name}ing" / "b.png")
        boxes = dataset.records[0].boxes_xywh
        np.testing.assert_array_equal(boxes, [[5, 2, 20, 10]] * 2)
        assert len(dataset.records[1].labels) == 0
    assert len(data.load(tmp_path / "training")) == 2
    assert len(from_edge_impulse(tmp_path / "testing/bounding_boxes.labels")) == 2


@pytest.mark.parametrize("bad", [{**CAT, "x": "1px"}, {**CAT, "label": ""}, [1, 2, 3]])
def test_bad_boxes_are_named(tmp_path, bad):
    write(tmp_path, {"a.png": [CAT, bad]})
    with pytest.raises(
        ValueError, match=r"1 bad box: a\.png: a `label` and the finite x"
    ):
        from_edge_impulse(tmp_path)


def test_another_file_is_explained(tmp_path):
    (tmp_path / "bounding_boxes.labels").write_text('{"version": 1}')
    with pytest.raises(ValueError, match="`boundingBoxes`.*'version': 1"):
        from_edge_impulse(tmp_path)
