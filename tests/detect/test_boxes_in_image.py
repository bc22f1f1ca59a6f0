"""Boxes end at the border of the image on every path, not at that of the input."""

import numpy as np
import pytest
from PIL import Image
from support.image_results import postprocessed
from support.tiny import lively_model

import effdet_keras as ek
from effdet_keras.detect.detect import detect
from effdet_keras.detect.detections import Detections
from effdet_keras.network.config import EfficientDetConfig

HEIGHT, WIDTH = 30, 90  # 3 : 1, so two thirds of a square input are padding


class Everywhere:
    """Finds one object, which is larger than the network's input."""

    config = EfficientDetConfig(image_size=64, num_classes=1)
    class_names = category_ids = None

    def predict_on_batch(self, images):
        found = np.float32([[-9, -9, 73, 73]]), [0.9], [0]
        return postprocessed([found] * len(images), rows=1)


@pytest.fixture
def image():
    return np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), "uint8")


def assert_whole_image(found):
    assert isinstance(found, Detections) and len(found) == 1
    np.testing.assert_array_equal(found.boxes, [[0, 0, HEIGHT, WIDTH]])


def test_a_box_larger_than_the_input_becomes_the_whole_image(image, tmp_path):
    Image.fromarray(image).save(tmp_path / "wide.png")
    assert_whole_image(detect(Everywhere(), image))
    assert_whole_image(detect(Everywhere(), tmp_path / "wide.png"))
    tall = detect(Everywhere(), image.transpose(1, 0, 2))
    np.testing.assert_array_equal(tall.boxes, [[0, 0, WIDTH, HEIGHT]])


@pytest.mark.parametrize(
    "options",
    [{}, {"tiles": 40}, {"augment": True}, {"augment": (0.5, 1.0, 2.0)}],
    ids=str,
)
def test_a_predictor_gives_boxes_inside_the_image(image, options):
    found = ek.Predictor(Everywhere()).detect(image, 0.0, **options)
    assert_whole_image(found)


def test_evaluation_compares_boxes_that_end_at_the_image(image):
    whole = [[[0, 0, HEIGHT, WIDTH]]]
    dataset = ek.data.from_arrays([image], whole, [[0]], ("cat",))
    numbers = ek.Predictor(Everywhere()).evaluate(dataset, verbose=False)
    assert numbers["AP"] == pytest.approx(1.0)


def test_a_live_model_finds_nothing_outside_the_image(image):
    model = lively_model()
    found = model.detect(image, 0.0)
    raw = model.detect_step(np.float32(np.full((1, 64, 64, 3), 127)))
    assert np.max(raw["boxes"]) > 64 * HEIGHT / WIDTH  # the padding holds boxes too
    assert len(found) > 10
    assert found.boxes.min() >= 0
    assert (found.boxes <= [HEIGHT, WIDTH, HEIGHT, WIDTH]).all()
