"""Detections: indexing, names, images, and the formats others read."""

import dataclasses
import json
import os
import sys

import numpy as np
import pytest
from PIL import Image

from effdet_keras import visualize
from effdet_keras.detect.detections import Detections


def three(**changes):
    values = {
        "boxes": [[10, 20, 60, 50], [0, 0, 5, 5], [30, 30, 90, 90]],
        "scores": [0.9, 0.6, 0.3],
        "labels": [1, 0, 1],
        "class_names": ["cat", "dog"],
        "category_ids": [17, 18],
        "image": np.full((100, 120, 3), 120, "uint8"),
        "image_id": 42,
    }
    return Detections(**{**values, **changes})


def test_arrays_have_their_types_and_tuples_their_form():
    found = three()
    kinds = [(x.dtype.name, x.shape) for x in (found.boxes, found.scores, found.labels)]
    assert kinds == [("float32", (3, 4)), ("float32", (3,)), ("int32", (3,))]
    assert found.class_names == ("cat", "dog") and found.category_ids == (17, 18)
    assert len(found) == 3 and [part.names[0] for part in found] == [
        "dog",
        "cat",
        "dog",
    ]
    assert three(class_names=None).names == ("1", "0", "1")
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.boxes = None


@pytest.mark.parametrize(
    "index, expected",
    [
        (0, [0.9]),
        (-1, [0.3]),
        (np.int64(1), [0.6]),
        (slice(1, None), [0.6, 0.3]),
        ([2, 0], [0.3, 0.9]),
        (np.array([True, False, True]), [0.9, 0.3]),
        ([], []),
    ],
)
def test_indexing_gives_detections(index, expected):
    part = three()[index]
    np.testing.assert_allclose(part.scores, expected)
    assert len(part.boxes) == len(part.labels) == len(expected)
    assert (part.image_id, part.class_names) == (42, ("cat", "dog"))
    with pytest.raises(IndexError):
        three()[3]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"score": 0.6}, [0.9, 0.6]),
        ({"classes": ["dog"]}, [0.9, 0.3]),
        ({"score": 0.5, "classes": ["dog"]}, [0.9]),
        ({"classes": [0]}, [0.6]),
    ],
)
def test_filter_by_score_and_class(arguments, expected):
    np.testing.assert_allclose(three().filter(**arguments).scores, expected)


def test_crops_are_whole_pixels_inside_the_image():
    image = np.arange(8 * 10 * 3, dtype="uint8").reshape(8, 10, 3)
    boxes = [[1.5, 2.2, 3.1, 4.0], [-3, 6, 4, 30], [5, 5, 5, 9], [9, 1, 20, 3]]
    found = Detections(boxes, [0.9] * 4, [0] * 4, image=image)
    expected = image[1:4, 2:4], image[0:4, 6:10], image[5:5, 5:9], image[8:8, 1:3]
    for crop, part in zip(found.crops(), expected, strict=True):
        np.testing.assert_array_equal(crop, part)
    assert found[:0].crops() == []


def test_classes_without_names_are_labels():
    unnamed = dataclasses.replace(three(), class_names=None)
    by_label = three().filter(classes=[1]).scores
    for label in (1, "1", np.int64(1)):
        np.testing.assert_array_equal(unnamed.filter(classes=[label]).scores, by_label)
    with pytest.raises(
        TypeError, match="sequence of class names or labels.*classes='dog'"
    ):
        three().filter(classes="dog")


def test_text_counts_the_classes_and_lists_the_objects():
    lines = repr(three()).splitlines()
    assert lines[0] == "3 detections: 2 dog, 1 cat"
    assert lines[1] == "  dog  0.90  y 10.0 to 60.0, x 20.0 to 50.0"
    assert repr(three()[0]).startswith("1 detection: 1 dog")
    assert repr(three().filter(score=1.0)) == "0 detections"
    many = Detections(np.zeros((25, 4)), np.ones(25), np.zeros(25))
    assert len(repr(many).splitlines()) == 22
    assert repr(many).endswith("... and 5 more")


def test_coco_records_are_plain_numbers_with_the_ids_of_the_file():
    records = json.loads(json.dumps(three().to_coco()))
    assert records[0] == {
        "image_id": 42,
        "category_id": 18,
        "bbox": [20, 10, 30, 50],
        "score": pytest.approx(0.9),
    }
    assert [record["category_id"] for record in records] == [18, 17, 18]
    without = three(category_ids=None).to_coco()
    assert [record["category_id"] for record in without] == [2, 1, 2]
    assert Detections([], [], [], image_id=1).to_coco() == []
    assert three(image_id=2**62 + 1).to_coco()[0]["image_id"] == 2**62 + 1


def test_supervision_gets_its_arguments():
    arguments = three().to_supervision()
    np.testing.assert_array_equal(arguments["xyxy"][0], [20, 10, 50, 60])
    assert arguments["xyxy"].dtype == np.float32
    np.testing.assert_allclose(arguments["confidence"], [0.9, 0.6, 0.3])
    np.testing.assert_array_equal(arguments["class_id"], [1, 0, 1])
    assert arguments["data"]["class_name"].tolist() == ["dog", "cat", "dog"]
    assert three().filter(score=1.0).to_supervision()["xyxy"].shape == (0, 4)


def test_boxes_are_drawn_and_a_tiny_image_is_enlarged_on_request():
    image = three().draw()
    assert image.shape == (100, 120, 3)
    assert (image[10:60, 20:50] != 120).any()
    image = three().draw(min_side=400)
    assert image.shape == (400, 480, 3)  # 4 times 100 x 120
    assert (image[40:240, 80:200] != 120).any()


def test_an_image_given_by_path_is_read_when_it_is_drawn(tmp_path):
    path = tmp_path / "image.png"
    found = three(image=path)  # not there yet
    Image.fromarray(np.full((100, 120, 3), 120, "uint8")).save(path)
    np.testing.assert_array_equal(found.draw(), three().draw())


def test_save_writes_the_image(tmp_path):
    path = tmp_path / "found.png"
    assert three().save(path) == str(path)
    assert Image.open(path).size == (120, 100)
    np.testing.assert_array_equal(np.asarray(Image.open(path)), three().draw())
    three().save(tmp_path / "found.JPG")
    assert Image.open(tmp_path / "found.JPG").format == "JPEG"
    assert sorted(os.listdir(tmp_path)) == ["found.JPG", "found.png"]


def test_notebooks_show_the_image_or_else_the_text():
    assert three()._repr_png_().startswith(b"\x89PNG")
    assert three(image=None)._repr_png_() is None


def test_plot_draws_with_matplotlib(monkeypatch):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    axes = three().plot()
    np.testing.assert_array_equal(axes.get_images()[0].get_array(), three().draw())
    own = plt.figure().add_subplot()
    assert three().plot(own) is own
    plt.close("all")
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"save\(path\).*effdet-keras\[plot\]"):
        three().plot()


@pytest.mark.parametrize(
    ("changes", "method", "arguments", "message"),
    [
        ({}, "filter", (0, ["cow"]), r"'cat', 'dog'.*classes='cow'"),
        ({}, "filter", (0, [2]), r"'cat', 'dog'.*classes=2"),
        ({"class_names": None}, "filter", (0, ["cat"]), "must be labels.*'cat'"),
        ({}, "save", ("found.xyz",), r"image format.*found.xyz"),
        ({"image": None}, "draw", (), "replace.*image="),
        ({"image_id": None}, "to_coco", (), "need an image id.*image_id="),
        ({"scores": [0.1, 0.2]}, "draw", (), "length.*boxes=3, scores=2, labels=3"),
        ({"class_names": ()}, "draw", (), "an entry for each label, or be None"),
        (
            {"labels": [0, 1, 2]},
            "draw",
            (),
            "`labels` must be at least 0 and below 2.*`class_names`",
        ),
    ],
)
def test_what_cannot_be_is_refused(
    changes, method, arguments, message, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        getattr(three(**changes), method)(*arguments)
    assert os.listdir(tmp_path) == []  # and no folder of an address's name


# --- Objects that are followed in a video.


def followed():
    boxes = [[0, 0, 20, 30], [30, 40, 60, 70], [5, 60, 30, 90]]
    return Detections(
        boxes,
        [0.9, 0.8, 0.7],
        [0, 1, 0],
        ("cat", "dog"),
        image=np.zeros((100, 100, 3), "uint8"),
        image_id=4,
        track_ids=[12, -1, 3],
    )


def test_track_ids_go_with_their_boxes():
    found = followed()
    assert found[1:].track_ids.tolist() == [-1, 3]
    assert found.filter(classes=["cat"]).track_ids.tolist() == [12, 3]
    assert [row["track_id"] for row in found.to_coco()] == [12, -1, 3]
    assert found.to_supervision()["tracker_id"].tolist() == [12, -1, 3]
    plain = dataclasses.replace(found, track_ids=None)
    assert "track_id" not in plain.to_coco()[0]
    assert "tracker_id" not in plain.to_supervision()
    with pytest.raises(ValueError, match="`track_ids` must have one number"):
        dataclasses.replace(found, track_ids=[1])


def test_followed_objects_are_drawn_with_their_numbers_in_colors_of_their_own(
    monkeypatch,
):
    words = {}
    draw = visualize._Painter.draw

    def noted(self, box, text, color):
        words[text] = tuple(color)
        draw(self, box, text, color)

    monkeypatch.setattr(visualize._Painter, "draw", noted)
    assert followed().draw().any()
    assert set(words) == {"cat #12", "dog", "cat #3"}
    assert words["cat #12"] != words["cat #3"]
    assert followed()[:0].draw().shape == (100, 100, 3)
