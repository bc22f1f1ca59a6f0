"""AutoAugment's operations and tables equal those of google/automl."""

import hashlib
import json

import numpy as np
import pytest
import tensorflow as tf

from effdet_keras.augment import warps
from effdet_keras.extras.policies import POLICIES
from effdet_keras.extras.policies import operations as color_ops
from effdet_keras.extras.policies import operations as policy_operations
from effdet_keras.extras.policies.operations import whole_pixel_boxes

pytestmark = pytest.mark.tensorflow

HEIGHT, WIDTH = 120.0, 160.0


def translation(down, right):
    return 1.0, 0.0, -right, 0.0, 1.0, -down


COLORS = {
    "autocontrast": lambda image: color_ops.autocontrast(image),
    "equalize": lambda image: color_ops.equalize(image),
    "posterize2": lambda image: color_ops.posterize(image, 2.0),
    "solarize128": lambda image: color_ops.solarize(image, 128.0),
    "solarize_add66": lambda image: color_ops.solarize_add(image, 66.0),
    "color0.1": lambda image: color_ops.color(image, 0.1),
    "color1.9": lambda image: color_ops.color(image, 1.9),
    "contrast1.54": lambda image: color_ops.contrast(image, 1.54),
    "contrast0.46": lambda image: color_ops.contrast(image, 0.46),
    "brightness1.54": lambda image: color_ops.brightness(image, 1.54),
    "brightness0.46": lambda image: color_ops.brightness(image, 0.46),
    "cutout20_30_40": lambda x: policy_operations.paint_around(x, 30, 40, 20, 20),
    "cutout20_0_159": lambda x: policy_operations.paint_around(x, 0, 159, 20, 20),
}
MOVES = {
    "rotate_bbox18": warps.rotation(18.0, HEIGHT, WIDTH),
    "rotate_bbox-30": warps.rotation(-30.0, HEIGHT, WIDTH),
    "translate_x100": translation(0.0, -100.0),
    "translate_x-40": translation(0.0, 40.0),
    "translate_y50": translation(-50.0, 0.0),
    "shear_x0.3": warps.shear(0.3, 0.0),
    "shear_x-0.12": warps.shear(-0.12, 0.0),
    "shear_y0.18": warps.shear(0.0, 0.18),
}
IMAGES_ALONE = {
    "rotate18": MOVES["rotate_bbox18"],
    "shear_x_only0.3": MOVES["shear_x0.3"],
    "translate_x_only20": translation(0.0, -20.0),
}


@pytest.fixture(scope="module")
def data(golden):
    return golden("d2_autoaug_small.npz")


def digest(image):
    image = np.ascontiguousarray(image)
    assert image.dtype == np.uint8
    return hashlib.sha256(image.tobytes()).hexdigest()


@pytest.mark.parametrize("name", COLORS)
def test_colors_equal_the_reference(data, name):
    expected = json.loads(str(data["sha256"]))[name]
    assert digest(COLORS[name](tf.constant(data["image"]))) == expected


@pytest.mark.parametrize("factor", (1.54, 0.46))
def test_sharpness_equals_the_reference_up_to_its_rounding(data, factor):
    """The reference adds thirteenths, which lose the last bit in some pixels."""
    ours = color_ops.sharpness(tf.constant(data["image"]), factor).numpy().astype(int)
    error = np.abs(ours - data[f"op/sharpness{factor}/image"])
    assert error.max() <= 1
    assert (error > 0).mean() < 0.004


@pytest.mark.parametrize("name", {**MOVES, **IMAGES_ALONE})
def test_moved_pixels_equal_the_reference(data, name):
    expected = json.loads(str(data["sha256"]))[name]
    moved = warps.warp_image(
        data["image"],
        {**MOVES, **IMAGES_ALONE}[name],
        interpolation="nearest",
        fill=128.0,
    )
    assert digest(moved) == expected


@pytest.mark.parametrize("name", MOVES)
def test_boxes_of_whole_pixels_equal_the_reference(data, name):
    size = np.float32([HEIGHT, WIDTH, HEIGHT, WIDTH])
    boxes = whole_pixel_boxes(
        tf.constant(data["boxes"]) * size,
        MOVES[name],
        data["image"],
        is_rotation="rotate" in name,
    )
    expected = data[f"op/{name}/boxes"] * size
    np.testing.assert_allclose(boxes, expected, atol=1e-3)


def test_policies_equal_the_reference(data):
    expected = json.loads(str(data["policies"]))
    expected.pop("vtest")
    ours = {
        name: [[list(step) for step in steps] for steps in policy]
        for name, policy in POLICIES.items()
    }
    assert ours == expected


def test_strengths_equal_the_reference(data):
    table = json.loads(str(data["level_to_arg"]))
    for name, levels in table.items():
        for level, expected in levels.items():
            strength = policy_operations.strength_of(name, int(level))
            expected = expected[0] if expected else 0.0
            assert strength == pytest.approx(expected), (name, level)
