"""`from_create_ml`: the json of Create ML, LabelImg and Roboflow."""

import json

import numpy as np
import pytest
from support.small_datasets import save_image

from effdet_keras import data
from effdet_keras.data import from_create_ml

CENTERED = {"x": 15.5, "y": 7, "width": 20, "height": 10}
CAT = {"label": "cat", "coordinates": CENTERED}
FULL = [
    {"image": "b.png", "annotations": [CAT, {**CAT, "label": "ant"}]},
    {"image": "a.png", "annotations": []},
]
LABELIMG = [{**image, "verified": False} for image in FULL]
RECTLABEL = [
    {"imagefilename": image["image"], "annotation": image["annotations"]}
    for image in FULL
]

PER_BOX = [{"image": "b.png", "annotations": [box]} for box in FULL[0]["annotations"]]


@pytest.fixture
def write(tmp_path):
    def write(content, name="annotations.json"):
        path = tmp_path / name
        for image in ("a.png", "b.png"):
            save_image(path.parent / image)
        path.write_text(json.dumps(content))
        return tmp_path

    return write


@pytest.mark.smoke
@pytest.mark.parametrize(
    "content", [FULL, LABELIMG, RECTLABEL, FULL[::-1], [*PER_BOX, FULL[1]]]
)
def test_centers_and_sides(write, content, capsys):
    dataset = data.load(write(content))
    assert "Create ML json: split train" in capsys.readouterr().out
    assert dataset.class_names == ("ant", "cat")
    record = next(r for r in dataset.records if r.file_name == "b.png")
    np.testing.assert_array_equal(record.boxes_xywh, [[5.5, 2, 20, 10]] * 2)
    np.testing.assert_array_equal(record.labels, [1, 0])
    assert len(dataset) == 2


def test_roboflow_has_a_file_in_the_folder_of_each_split(write, capsys):
    for split in ("train", "valid", "test"):
        folder = write(FULL, f"{split}/_annotations.createml.json")
    splits = data.load_splits(folder)
    assert "splits test, train, valid" in capsys.readouterr().out
    paths = {name: d.records[0].image for name, d in splits.items()}
    assert paths == {name: str(folder / name / "b.png") for name in splits}


@pytest.mark.parametrize(
    "bad",
    [
        {"label": "cat", "coordinates": {**CENTERED, "x": "left"}},
        {"label": "cat", "coordinates": {"x": 1, "y": 2, "width": 3}},
        {"label": "", "coordinates": CENTERED},
        {"label": "cat"},
        "cat",
    ],
)
def test_bad_boxes_are_named(write, bad):
    folder = write([{"image": "a.png", "annotations": [CAT, bad]}])
    with pytest.raises(
        ValueError, match=r"1 bad box: a\.png: a `label` and the finite"
    ):
        from_create_ml(folder)


def test_fractions_and_other_files_are_explained(write, tmp_path):
    small = {"x": 0.5, "y": 0.5, "width": 0.2, "height": 0.2}
    boxes = [{"label": "cat", "coordinates": small}] * 2
    folder = write([{"image": "a.png", "annotations": boxes}])
    with pytest.raises(ValueError, match="1 normalized box: .*multiply"):
        from_create_ml(folder)
    (tmp_path / "other.json").write_text('[{"picture": "a.png"}]')
    with pytest.raises(ValueError, match=r"images, each with.*'picture'"):
        from_create_ml(tmp_path / "other.json")
    with pytest.raises(FileNotFoundError, match="no json file of Create ML"):
        from_create_ml(save_image(tmp_path / "empty" / "a.png").parent)
