"""`from_label_studio`: JSON and JSON-MIN, percents, rotation, cancelled annotations."""

import json
import math

import numpy as np
import pytest
from support.small_datasets import save_image

from effdet_keras import data
from effdet_keras.data import from_label_studio
from effdet_keras.data.record import load_mask

# Of an image of 40 x 20 pixels: left 5, top 2, 20 wide, 10 high.
BOX = {"x": 12.5, "y": 10, "width": 50, "height": 50, "rotation": 0}


def region(value, kind="rectangle", name="cat", **changes):
    labels = {f"{kind}labels": [name]} if name else {}
    return {
        "original_width": 40,
        "original_height": 20,
        "image_rotation": 0,
        "value": {**value, **labels},
        "id": f"r{len(str(value))}{name}",
        "from_name": "label",
        "to_name": "image",
        "type": f"{kind}labels",
        "origin": "manual",
        **changes,
    }


def annotation(*regions, **changes):
    times = {"created_at": "2024-05-01T10:00:00Z", "updated_at": "2024-05-01T10:00:00Z"}
    start = {
        "id": 5,
        "completed_by": 1,
        "result": list(regions),
        "was_cancelled": False,
    }
    return start | times | changes


def task(number, image, *annotations, **changes):
    return {
        "id": number,
        "annotations": list(annotations),
        "file_upload": image.rpartition("/")[2],
        "drafts": [],
        "predictions": [annotation(region(BOX, name="guess"))],
        "data": {"image": image},
        "meta": {},
        "project": 3,
        **changes,
    }


@pytest.fixture
def write(tmp_path):
    save_image(tmp_path / "images" / "a.png")
    save_image(tmp_path / "images" / "b.png")

    def write(*tasks, name="project-3-at-2024-05-01-10-00-1a2b3c4d.json"):
        (tmp_path / name).write_text(json.dumps(tasks))
        return tmp_path

    return write


FIRST, SECOND = "/data/upload/3/0f1e2d3c-a.png", "/data/upload/3/5a6b7c8d-b.png"


@pytest.mark.smoke
def test_percents_become_pixels_and_predictions_are_not_read(write, capsys):
    box = region(BOX)
    outline = {"points": [[2.5, 10], [23.75, 20], [7.5, 41.25]], "closed": True}
    ellipse = {"x": 50, "y": 50, "radiusX": 15, "radiusY": 10, "rotation": 90}
    regions = (
        box,
        region(outline, "polygon", "dog"),
        region(ellipse, "ellipse", "dog"),
    )
    folder = write(
        task(11, FIRST, annotation(*regions)),
        task(12, SECOND, annotation()),
    )
    dataset = data.load(folder, masks=True)
    assert "is Label Studio: split train" in capsys.readouterr().out
    assert dataset.class_names == ("cat", "dog")
    assert [r.source_id for r in dataset.records] == [11, 12]
    assert [r.file_name for r in dataset.records] == ["a.png", "b.png"]
    np.testing.assert_allclose(
        dataset.records[0].boxes_xywh,
        # The radii, 6 and 2 pixels, are turned by a quarter.
        [[5, 2, 20, 10], [1, 2, 8.5, 6.25], [18, 4, 4, 12]],
    )
    np.testing.assert_array_equal(dataset.records[0].labels, [0, 1, 1])
    assert 2 in load_mask(dataset.records[0])
    assert len(dataset.records[1].labels) == 0


def test_json_min_has_the_same(write):
    value = {
        **BOX,
        "rectanglelabels": ["cat"],
        "original_width": 40,
        "original_height": 20,
    }
    common = {"annotator": 1, "annotation_id": 5, "lead_time": 9.5}
    short = [
        {"image": FIRST, "id": 11, "label": [value], **common},
        {"image": SECOND, "id": 12, **common},
    ]
    dataset = data.load(write(*short))
    np.testing.assert_allclose(dataset.records[0].boxes_xywh, [[5, 2, 20, 10]])
    assert [len(record.labels) for record in dataset.records] == [1, 0]


def test_a_rotated_rectangle_is_turned_about_its_first_corner_in_pixels(write):
    folder = write(task(11, FIRST, annotation(region({**BOX, "rotation": 30}))))
    with pytest.warns(UserWarning, match=r"1 box is rotated: 'cat' by 30 deg.*a\.png"):
        dataset = from_label_studio(folder)
    cos, sin = math.cos(math.radians(30)), math.sin(math.radians(30))
    np.testing.assert_allclose(
        dataset.records[0].boxes_xywh,
        [[5 - 10 * sin, 2, 20 * cos + 10 * sin, 20 * sin + 10 * cos]],
        atol=1e-12,  # pixels
    )


def test_the_latest_annotation_that_was_not_cancelled_counts(write):
    def of(name, hour, **changes):
        time = f"2024-05-01T{hour}:00:00Z"
        return annotation(region(BOX, name=name), updated_at=time, **changes)

    annotations = (of("b", 12), of("a", 11), of("c", 13, was_cancelled=True))
    folder = write(task(11, FIRST, *annotations))
    assert from_label_studio(folder).class_names == ("b",)


def test_tasks_without_annotation_are_left_out_with_a_warning(write):
    folder = write(task(11, FIRST, annotation(region(BOX))), task(12, SECOND))
    with pytest.warns(UserWarning, match=r"1 unlabelled image: .*task 12 has no ann"):
        assert len(from_label_studio(folder)) == 1


def test_predictions_alone_are_no_annotations(write):
    folder = write({k: v for k, v in task(11, FIRST).items() if k != "annotations"})
    with pytest.raises(ValueError, match="'predictions'.*data, annotations .Label Stu"):
        data.load(folder)
    with (
        pytest.warns(UserWarning, match="1 unlabelled image"),
        pytest.raises(
            ValueError, match="Export the project once its tasks are labelled"
        ),
    ):
        from_label_studio(next(folder.glob("*.json")))


def test_labels_that_are_results_of_their_own_are_joined_by_id(write):
    shape = {**region(BOX, name=None), "type": "rectangle", "id": "k"}
    label = {**shape, "type": "labels", "value": {**BOX, "labels": ["cat"]}}
    choice = {**shape, "type": "choices", "id": "i", "value": {"choices": ["night"]}}
    folder = write(task(11, FIRST, annotation(shape, label, choice)))
    dataset = from_label_studio(folder)
    np.testing.assert_allclose(dataset.records[0].boxes_xywh, [[5, 2, 20, 10]])
    assert dataset.class_names == ("cat",)


@pytest.mark.parametrize(
    ("address", "file"),
    [
        ("/data/local-files/?d=work/images/a.png", "images/a.png"),
        ("/data/local-files/?d=C%3A%5Cwork%5Cimages%5Ca.png", "images/a.png"),
        ("http://localhost:8080/data/upload/0f1e2d3c-a.png", "images/a.png"),
        ("s3://bucket/pets/images/a.png", "images/a.png"),
        ("..\\..\\media\\upload\\4\\a.png", "images/a.png"),
        ("/data/upload/3/0f1e2d3c-c.png", "images/0f1e2d3c-c.png"),
        ("/data/upload/3/0f1e2d3c-my%20cat.png", "my cat.png"),
        ("/data/upload/3/0f1e2d3c-my_cat_1.png", "my cat (1).png"),
        ("/data/upload/3/0f1e2d3c-K%C3%A4se_0.png", "images/Käse 0.png"),
        ("/data/upload/3/0f1e2d3c-K%C3%A4se_0.png", "Käse_0.png"),
    ],
)
def test_images_are_found_by_the_end_of_their_address(write, tmp_path, address, file):
    save_image(tmp_path / file)
    folder = write(task(11, address, annotation(region(BOX))))
    assert from_label_studio(folder).records[0].image == str(tmp_path / file)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (region({**BOX, "x": None}), "finite numbers are expected, in percent"),
        (region(BOX, name=None), r"one label is expected. Received: \[\]"),
        (region(BOX) | {"value": {**BOX, "rectanglelabels": ["a", "b"]}}, r"'a', 'b'"),
        (region(BOX, image_rotation=90), "turned by 90 degrees in Label Studio"),
        (region(BOX, item_index=2), "several images"),
        (
            region({**BOX, "rotation": 5}, original_width=None),
            "must have `original_width` and `original_height`",
        ),
    ],
)
def test_bad_regions_are_named(write, bad, message):
    folder = write(task(11, FIRST, annotation(region(BOX), {**bad, "id": "bad"})))
    with pytest.raises(
        ValueError, match=rf"1 bad box: .*a\.png: region bad: .*{message}"
    ):
        from_label_studio(folder)


def test_brushes_and_key_points_are_left_out(write):
    point = region({"x": 1, "y": 2, "width": 0.5}, "keypoint")
    brush = region({"format": "rle", "rle": [0, 1]}, "brush")
    folder = write(task(11, FIRST, annotation(region(BOX), point, brush)))
    with pytest.warns(UserWarning, match="2 unread shapes: .*keypoint of .*brush of"):
        assert len(from_label_studio(folder).records[0].labels) == 1


def test_missing_images_and_other_files(write, tmp_path):
    folder = write(
        task(11, "/data/upload/3/0f1e2d3c-gone.png", annotation(region(BOX)))
    )
    with pytest.raises(FileNotFoundError, match=r"1 missing image: .*gone\.png"):
        from_label_studio(folder)
    (tmp_path / "other.json").write_text('[{"a": 1}]')
    with pytest.raises(ValueError, match=r"tasks, each with .*other\.json"):
        from_label_studio(tmp_path / "other.json")
