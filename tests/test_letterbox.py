"""Letterbox: by hand, against the definition, and the reference's pipeline."""

import numpy as np
import pytest

from effdet_keras.letterbox import boxes_in_image, letterbox_array

MEAN_RGB = np.array([123.675, 116.28, 103.53])
STDDEV_RGB = np.array([58.395, 57.12, 57.375])


def run(image, image_size, pad_value=(9, 9, 9)):
    return letterbox_array(image, image_size, pad_value)


def slow_resize(image, height, width):
    """Bilinear, half-pixel centers, borders continued: pixel by pixel."""
    result = np.zeros((height, width, 3))
    for y in range(height):
        for x in range(width):
            sy = (y + 0.5) * image.shape[0] / height - 0.5
            sx = (x + 0.5) * image.shape[1] / width - 0.5
            for cy in (int(np.floor(sy)), int(np.floor(sy)) + 1):
                for cx in (int(np.floor(sx)), int(np.floor(sx)) + 1):
                    weight = (1 - abs(sy - cy)) * (1 - abs(sx - cx))
                    row = min(max(cy, 0), image.shape[0] - 1)
                    column = min(max(cx, 0), image.shape[1] - 1)
                    result[y, x] += weight * image[row, column]
    return result


@pytest.mark.smoke
@pytest.mark.parametrize(
    "size, target", [((23, 5), (16, 24)), ((1, 1), (5, 3)), ((33, 47), (32, 20))]
)
def test_equals_the_definition(size, target):
    image = np.random.default_rng(1).uniform(0, 255, (*size, 3)).astype("float32")
    result, image_scale = run(image, target, (1, 2, 3))
    scale = min(target[0] / size[0], target[1] / size[1])
    height, width = int(size[0] * scale + 1e-9), int(size[1] * scale + 1e-9)
    expected = np.tile(np.float32([1, 2, 3]), (*target, 1))
    expected[:height, :width] = slow_resize(image, height, width)
    np.testing.assert_allclose(result, expected, atol=1e-3)
    assert image_scale == pytest.approx(1 / scale)


@pytest.mark.parametrize("size", [(1, 500), (500, 1)])
def test_a_very_long_image_keeps_one_pixel_of_its_short_side(size):
    result, _ = run(np.full((*size, 3), 200, "uint8"), (16, 16), (0, 0, 0))
    assert (result[..., 0] == 200).sum() == 16


@pytest.mark.parametrize(
    "name, image_size, mean, stddev",
    [
        ("eval_d0_512", (512, 512), MEAN_RGB, STDDEV_RGB),
        ("eval_lite0_320", (320, 320), 127.0, 128.0),
        ("eval_d0_384x640", (384, 640), MEAN_RGB, STDDEV_RGB),
        ("eval_d7x_up_1536", (1536, 1536), MEAN_RGB, STDDEV_RGB),
    ],
)
def test_equals_the_evaluation_pipeline_of_the_reference(
    golden, name, image_size, mean, stddev
):
    raw = golden("d_raw_img1.npz")["raw"]
    arrays = golden("d_input.npz")
    pad_value = np.broadcast_to(mean, 3).astype("float32")
    result, image_scale = run(raw, image_size, pad_value)
    normalized = (result - mean) / stddev
    index = arrays[f"{name}/image0/idx"]
    # The reference normalizes before it resizes; that rounds differently.
    np.testing.assert_allclose(
        normalized.ravel()[index], arrays[f"{name}/image0/val"], atol=1e-4
    )
    height, width = arrays[f"{name}/image0/extent"]
    assert np.abs(normalized[height:]).max(initial=0) < 1e-6
    assert np.abs(normalized[:, width:]).max(initial=0) < 1e-6
    assert normalized[height - 1].any() and normalized[:, width - 1].any()
    assert image_scale == pytest.approx(arrays[f"{name}/image_scales"][0], rel=1e-6)


def test_boxes_of_the_input_end_at_the_border_of_the_image():
    boxes = [[-3, 4, 40, 20], [10, 50, 30, 70], [60, 0, 64, 8], [1, 1, 2, 2]]
    in_image = boxes_in_image(np.float32(boxes), 1.5, (75, 96))
    expected = [[0, 6, 60, 30], [15, 75, 45, 96], [75, 0, 75, 12], [1.5, 1.5, 3, 3]]
    np.testing.assert_array_equal(in_image, expected)
    assert in_image.dtype == np.float32
