"""Letterbox, flip and scale jitter: by hand, by definition, by reference."""

import json

import numpy as np
import pytest
import tensorflow as tf

from effdet_keras.data.pipeline import transforms
from effdet_keras.data.pipeline.transforms import Draws, Window

pytestmark = pytest.mark.tensorflow

MEAN = np.float32([123.675, 116.28, 103.53])
DEVIATION = np.float32([58.395, 57.12, 57.375])
EVAL = ("eval_d0_512", "eval_lite0_320", "eval_d0_384x640", "eval_d7x_up_1536")
TRAIN = (
    "train_f0_s01",
    "train_f0_s05",
    "train_f0_s13_nonsquare",
    "train_f0_s2_target",
    "train_f1_s05",
    "train_f1_s13_crowdkept",
    "train_f1_s17",
)


NO_BOXES = np.zeros((0, 4), np.float32)


def example(image, boxes=NO_BOXES, labels=()):
    return {"image": image, "boxes": boxes, "labels": labels}


def run_case(arrays, case, image):
    """Our pipeline on one golden case."""
    params = json.loads(str(arrays.get(f"{case}/params", "{}")))
    image_size = tuple(int(side) for side in arrays[f"{case}/image/shape"][1:3])
    boxes = arrays["boxes"] * np.float32([636, 1024, 636, 1024])
    classes = arrays["classes"]
    window = Window(image_size, MEAN)
    if case in EVAL:
        return transforms.letterbox(example(image, boxes, classes), window)
    if params.get("skip_crowd_during_training", True):
        single = arrays["is_crowd"] == 0
        boxes, classes = boxes[single], classes[single]
    flip, scale, offset_y, offset_x = arrays[f"{case}/draws"]
    if "target_size" in params:
        window = window._replace(target_size=(params["target_size"],) * 2)
    given = example(image, boxes, classes)
    if flip > 0.5:
        given = transforms.flip(given)
    return transforms.scale_jitter(
        given, Draws(flip, scale, offset_y, offset_x), window
    )


@pytest.mark.parametrize("case", EVAL + TRAIN)
def test_boxes_and_image_equal_the_reference(golden, case):
    arrays = dict(golden("d_input_boxes.npz"))
    found = run_case(arrays, case, golden("d_raw_img1.npz")["raw"])
    truth, image_scale = arrays[f"{case}/groundtruth_data"], found["image_scale"]
    np.testing.assert_array_equal(found["labels"], truth[:, 6])
    np.testing.assert_allclose(
        image_scale, np.ravel(arrays[f"{case}/image_scales"])[0], rtol=1e-6
    )
    # The reference keeps normalised boxes, ours are pixels: one rounding apart.
    np.testing.assert_allclose(found["boxes"] * image_scale, truth[:, :4], atol=3e-4)
    assert_pixels_equal(found["image"].numpy(), dict(golden("d_input.npz")), case)


def assert_pixels_equal(image, arrays, case):
    mean, deviation = MEAN, DEVIATION
    if "lite" in case:
        mean, deviation = np.float32(127.0), np.float32(128.0)
    height, width = arrays[f"{case}/image0/extent"]
    inside = np.zeros(image.shape[:2], bool)
    inside[:height, :width] = True
    assert (image[~inside] == MEAN).all()
    normalised = np.where(inside[..., None], (image - mean) / deviation, 0).ravel()
    # Ours resizes before it normalises, the reference after.
    np.testing.assert_allclose(
        normalised[arrays[f"{case}/image0/idx"]],
        arrays[f"{case}/image0/val"],
        atol=2e-5,
    )
    np.testing.assert_allclose(
        np.abs(normalised.astype(np.float64)).sum(),
        arrays[f"{case}/image0/stats"][2],
        rtol=1e-6,
    )


def test_letterbox_of_equal_size_changes_no_pixel():
    image = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    result = transforms.letterbox(example(image), Window((16, 16), MEAN))
    np.testing.assert_array_equal(result["image"], image)
    assert float(result["image_scale"]) == 1.0


def test_very_long_image_keeps_one_row():
    image = np.full((1, 500, 3), 200, np.uint8)
    result = transforms.letterbox(example(image), Window((32, 32), MEAN))
    first, *others = result["image"].numpy()
    np.testing.assert_array_equal(first, np.full((32, 3), 200))
    np.testing.assert_allclose(others, np.broadcast_to(MEAN, (31, 32, 3)))


def test_flip_twice_is_the_identity():
    image = np.random.default_rng(0).integers(0, 256, (7, 9, 3), dtype=np.uint8)
    boxes = np.float32([[1, 2, 3, 8], [0, 0, 7, 9]])
    given = {**example(image, boxes), "mask": image[..., 0]}
    flipped = transforms.flip(given)
    np.testing.assert_array_equal(flipped["image"][:, 0], image[:, -1])
    np.testing.assert_array_equal(flipped["boxes"], [[1, 1, 3, 7], [0, 0, 7, 9]])
    again = transforms.flip(flipped)
    for key in given:
        np.testing.assert_array_equal(again[key], given[key])


def test_boxes_follow_the_pixels():
    """A white rectangle stays under its box through flip, scale and crop."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        image = np.zeros((60, 90, 3), np.uint8)
        y0, x0 = rng.integers(0, 30, 2)
        box = np.float32([[y0, x0, y0 + rng.integers(10, 30), x0 + 40]])
        image[y0 : int(box[0, 2]), x0 : int(box[0, 3])] = 255
        draws = transforms.random_draws(rng.integers(0, 99, 2), (0.5, 2.0))
        result = transforms.scale_jitter(
            transforms.flip(example(image, box, [0])),
            draws,
            Window((64, 64), (0, 0, 0)),
        )
        boxes = result["boxes"]
        bright = np.argwhere(result["image"][..., 0].numpy() > 127)
        if not len(boxes):
            assert not len(bright)
            continue
        seen = np.concatenate([bright.min(0), bright.max(0) + 1])
        # Half a pixel of interpolation, and the box ends at the last pixel.
        np.testing.assert_allclose(boxes[0], seen, atol=1.01)


def test_labels_leave_with_their_boxes():
    boxes = np.float32([[0, 0, 4, 4], [3, 3, 3, 8], [4, 4, 8, 8]])
    given = example(np.zeros((8, 8, 3), np.uint8), boxes, [5, 6, 7])
    kept = transforms.letterbox(given, Window((16, 16), MEAN))
    np.testing.assert_array_equal(kept["labels"], [5, 7])
    np.testing.assert_array_equal(kept["boxes"], [[0, 0, 8, 8], [8, 8, 15, 15]])


def test_box_outside_the_window_is_left_out():
    boxes = np.float32([[5, 5, 8, 8], [1, 1, 5, 5]])
    given = example(np.zeros((8, 8, 3), np.uint8), boxes, [1, 2])
    draws = Draws(0.0, 2.0, 0.0, 0.0)
    result = transforms.scale_jitter(given, draws, Window((8, 8), MEAN))
    np.testing.assert_array_equal(result["labels"], [2])
    np.testing.assert_array_equal(result["boxes"], [[2, 2, 7, 7]])
    assert float(result["image_scale"]) == 0.5


def test_draws_cover_their_ranges_and_repeat():
    draws = [transforms.random_draws([4, i], (0.1, 2.0)) for i in range(200)]
    scales = np.array([draw.scale for draw in draws])
    assert 0.1 <= scales.min() < 0.2 and 1.9 < scales.max() < 2.0
    others = np.array([draw[:1] + draw[2:] for draw in draws])
    assert 0 <= others.min() < 0.05 and 0.95 < others.max() < 1
    # 200 independent draws: a correlation of 0.3 is more than four deviations.
    correlation = np.corrcoef(np.array(draws).T) - np.eye(4)
    assert np.abs(correlation).max() < 0.3
    repeated = transforms.random_draws([4, 7], (0.1, 2.0))
    np.testing.assert_array_equal(repeated, draws[7])
    assert len(set(scales.tolist())) == 200


def test_graph_equals_eager():
    image = np.random.default_rng(0).integers(0, 256, (30, 50, 3), dtype=np.uint8)
    boxes = np.float32([[2, 3, 20, 40]])
    draws = Draws(*np.float32([0.2, 1.4, 0.3, 0.6]))

    def run(image, boxes):
        given = example(image, boxes, [1])
        return transforms.scale_jitter(given, draws, Window((32, 48), MEAN))

    signature = [
        tf.TensorSpec([None, None, 3], tf.uint8),
        tf.TensorSpec([None, 4], tf.float32),
    ]
    in_graph = tf.function(run, signature)(image, boxes)
    for key, eager in run(image, boxes).items():
        np.testing.assert_allclose(eager, in_graph[key], rtol=1e-6)
