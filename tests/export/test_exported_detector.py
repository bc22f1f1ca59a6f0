"""What an exported file's detections become: boxes in the padding, its description."""

import json
import math
import types

import numpy as np
import pytest
from support.tiny import lively_model

from effdet_keras.detect.postprocess import Postprocess
from effdet_keras.export.runtime import Description, ExportedDetector
from effdet_keras.network.config import EfficientDetConfig
from effdet_keras.predictor import Predictor

CONFIG = EfficientDetConfig(image_size=(64, 96), max_level=6, num_classes=3)


def test_boxes_beside_the_content_are_left_out_by_hand():
    boxes = [[40, 0, 60, 20], [0, 0, 30, 30], [5, 90, 9, 99], [0, 60, 40, 95]]
    outputs = {
        "boxes": np.float32([boxes, boxes]),
        "scores": np.float32([[0.9, 0.8, 0.7, 0.0]] * 2),
        "labels": np.int32([[0, 1, 2, -1]] * 2),
        "num_detections": np.int32([3, 3]),
    }
    runtime = types.SimpleNamespace(
        description=Description(CONFIG, postprocess=Postprocess(drop_empty=True)),
        run=lambda images: outputs,
    )
    found = ExportedDetector(runtime).predict_on_batch(
        np.zeros((2, 64, 96, 3), "float32"), np.float32([[32, 96], [64, 64]])
    )
    # The first image fills the upper half of the input, the second its left part.
    assert found["num_detections"].tolist() == [2, 2]
    assert found["boxes"][0].tolist() == [boxes[1], boxes[2], [0] * 4, [0] * 4]
    assert found["boxes"][1].tolist() == [boxes[0], boxes[1], [0] * 4, [0] * 4]
    assert found["labels"].tolist() == [[1, 2, -1, -1], [0, 1, -1, -1]]
    scores = np.float32([[0.8, 0.7, 0, 0], [0.9, 0.8, 0, 0]])
    np.testing.assert_array_equal(found["scores"], scores)
    assert {name: value.dtype.str[1:] for name, value in found.items()} == {
        "boxes": "f4",
        "scores": "f4",
        "labels": "i4",
        "num_detections": "i4",
    }


@pytest.mark.tensorflow
def test_a_saved_model_gives_no_box_in_the_padding(tmp_path):
    postprocess = Postprocess(method="hard", drop_empty=True, max_detections=2000)
    model = lively_model((64, 96), postprocess=postprocess)
    image = np.random.default_rng(0).integers(0, 256, (16, 96, 3), "uint8")
    live = model.detect(image, score_threshold=0.0)
    kept_all = Postprocess(method="hard", max_detections=2000)
    with_empty = lively_model((64, 96), postprocess=kept_all)
    assert len(with_empty.detect(image, score_threshold=0.0)) > len(live) > 0
    model.export(tmp_path / "pets", verbose=0)
    found = Predictor.load(tmp_path / "pets").detect(image, score_threshold=0.0)
    np.testing.assert_allclose(found.scores, live.scores, atol=1e-5)
    np.testing.assert_allclose(found.boxes, live.boxes, atol=1e-2)


def test_a_description_without_a_threshold_is_json_for_every_reader():
    postprocess = Postprocess(method="hard", score_threshold=-math.inf)
    text = Description(CONFIG, postprocess=postprocess).to_json()

    def no_constant(name):
        raise AssertionError(f"{name} is no JSON")

    json.loads(text, parse_constant=no_constant)
    assert Description.from_json(text).postprocess == postprocess
    # As files of before have it.
    before = text.replace('"-inf"', "-Infinity")
    assert before != text
    assert Description.from_json(before).postprocess == postprocess
    ordinary = Description(CONFIG)
    assert Description.from_json(ordinary.to_json()) == ordinary


def test_a_file_that_keeps_boxes_in_the_padding_is_told():
    found, live = (
        Postprocess(method="hard"),
        Postprocess(method="hard", drop_empty=True),
    )
    description = Description(CONFIG, postprocess=found)
    assert description.other_suppression(live) == "boxes in the padding too"
    assert not description.other_suppression(found)
