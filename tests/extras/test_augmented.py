"""Flips and scales: every view's boxes come back to the image."""

import numpy as np
import pytest
from PIL import Image

from effdet_keras import Detections
from effdet_keras.extras.fusion import detect_augmented

SIZE = (60, 120)
PAD = (1.0, 2.0, 3.0)


def image_with(boxes):
    """Objects are bright on black; nothing is between them."""
    image = np.zeros((*SIZE, 3), "uint8")
    for y_min, x_min, y_max, x_max in boxes:
        image[y_min:y_max, x_min:x_max] = 255
    return image


class FindsBright:
    """Finds the rectangle around the bright pixels."""

    def __init__(self, score=0.8):
        self.score = score
        self.calls = []

    def __call__(self, images):
        self.calls.append(images)
        return [self.look_at(np.asarray(image)) for image in images]

    def look_at(self, image):
        places = np.argwhere(image[..., 0] == 255)
        if not len(places):
            return Detections(np.zeros((0, 4)), [], [])
        box = [*places.min(axis=0), *(places.max(axis=0) + 1)]
        return Detections([box], [self.score], [0])


@pytest.mark.parametrize("flips", [True, False])
@pytest.mark.parametrize("scales", [(1.0,), (0.5,), (1.5,), (0.7, 1.0, 2.0)])
def test_all_views_find_the_object_in_one_place(flips, scales):
    box = [10, 80, 30, 113]
    detect = FindsBright()
    found = detect_augmented(detect, image_with([box]), flips=flips, scales=scales)
    np.testing.assert_allclose(found.boxes, [box], atol=1e-4)
    np.testing.assert_allclose(found.scores, [0.8], atol=1e-6)


def test_a_scale_below_1_pads_at_the_right_and_below():
    detect = FindsBright()
    image = image_with([[0, 0, 60, 120]])
    detect_augmented(detect, image, flips=False, scales=[0.5], pad_rgb=PAD)
    ((padded,),) = detect.calls
    assert padded.shape == (120, 240, 3)
    assert (padded[:60, :120] == 255).all()
    assert (padded[60:] == PAD).all() and (padded[:, 120:] == PAD).all()


def test_a_scale_above_1_is_tiles_of_that_part_of_the_image():
    detect = FindsBright()
    detect_augmented(detect, image_with([]), flips=False, scales=[1.5])
    ((whole, *tiles),) = detect.calls
    assert whole.shape[:2] == SIZE
    assert {tile.shape[:2] for tile in tiles} == {(40, 80)}


def test_the_mirror_is_a_mirror():
    detect, image = FindsBright(), image_with([[0, 0, 10, 20]])
    detect_augmented(detect, image)
    ((upright, mirrored),) = detect.calls
    np.testing.assert_array_equal(upright, image)
    np.testing.assert_array_equal(mirrored, image[:, ::-1])


def test_a_view_counts_once_for_an_object():
    # Soft-NMS leaves a weak box beside the good one.
    def detect(images):
        boxes = [[0, 50, 10, 70], [0, 51, 10, 71], [0, 50, 10, 70]]
        return [Detections(boxes, [0.8, 0.1, 0.3], [0, 0, 1]) for _ in images]

    found = detect_augmented(detect, image_with([]))
    assert found.labels.tolist() == [0, 1]
    np.testing.assert_allclose(found.scores, [0.8, 0.3], atol=1e-6)
    np.testing.assert_allclose(found.boxes, [[0, 50, 10, 70]] * 2, atol=1e-4)


def test_weights_are_those_of_the_scales():
    def detect(images):
        boxes = [[0, 0, 10, 10 + p.shape[0] // 60] for p in images]
        return [Detections([box], [0.5], [0]) for box in boxes]

    found = detect_augmented(
        detect, image_with([]), flips=False, scales=(1.0, 0.5), weights=(3, 1)
    )
    np.testing.assert_allclose(found.boxes, [[0, 0, 10, 11.25]])


def test_no_box_leaves_the_image():
    def detect(images):
        return [Detections([[-5, 70, 500, 500]], [0.5], [0]) for _ in images]

    found = detect_augmented(detect, image_with([]), flips=False, scales=(0.5,))
    assert found.boxes.tolist() == [[0, 70, 60, 120]]


def test_images_of_all_kinds(tmp_path):
    box = [10, 80, 30, 113]
    image = image_with([box])
    for name in ("one.png", "two.png"):
        Image.fromarray(image).save(tmp_path / name)
    detect = FindsBright()
    one = detect_augmented(detect, tmp_path / "one.png")
    folder = detect_augmented(detect, tmp_path)
    [grey] = detect_augmented(detect, [image[..., 0]])
    assert isinstance(one, Detections) and one.image == tmp_path / "one.png"
    assert [found.image.name for found in folder] == ["one.png", "two.png"]
    assert grey.load_image().shape == (*SIZE, 3)
    for found in [one, *folder, grey]:
        np.testing.assert_allclose(found.boxes, [box], atol=1e-4)


@pytest.mark.parametrize(
    "scales", [(), (0,), (-1.0,), (float("inf"),), "flip", 1.0, [[1.0]]]
)
def test_scales_that_cannot_be_are_told(scales):
    with pytest.raises(ValueError, match="scales"):
        detect_augmented(FindsBright(), image_with([]), scales=scales)
