"""Resizing and anchors of the TF Object Detection API."""

import keras
import numpy as np
import pytest
from keras import ops

from effdet_keras.box_ops import decode_boxes, encode_boxes
from effdet_keras.data.pipeline import transforms
from effdet_keras.letterbox import (
    boxes_in_image,
    boxes_in_input,
    letterbox_array,
    scaled_size,
)
from effdet_keras.network.anchors import anchors_of
from effdet_keras.network.config import EfficientDetConfig

CONFIG = EfficientDetConfig(
    image_size=256, anchor_order="aspect_first", resize_method="asymmetric"
)
PAD = {"pad_value": (1.0, -2.0, 0.5)}  # in the units of normalised images
CASES = ("up_tall", "half_tie", "pad_value")


def pad_rgb(case):
    units = np.float64(PAD.get(case, (0, 0, 0)))
    return units * CONFIG.stddev_rgb + CONFIG.mean_rgb


def assert_equals_reference(pixels, arrays, case):
    images = (np.float32(pixels) - np.float32(CONFIG.mean_rgb)) / np.float32(
        CONFIG.stddev_rgb
    )
    np.testing.assert_allclose(
        images[::7], arrays[f"{case}/preprocessed"], rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("case", CASES)
def test_pixels_are_those_of_the_reference(golden, case):
    arrays = golden("odapi_input.npz")
    picture = arrays[f"{case}/picture"]
    options = (64, 64), pad_rgb(case), "asymmetric"
    pixels, scale = letterbox_array(picture, *options)
    assert_equals_reference(pixels, arrays, case)
    size = np.float32(picture.shape[:2]) / scale
    np.testing.assert_allclose(size, arrays[f"{case}/true_image_shape"][:2])


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="tf.data")
@pytest.mark.parametrize("case", CASES)
def test_batches_have_the_same_pixels(golden, case):
    arrays = golden("odapi_input.npz")
    example = {
        "image": arrays[f"{case}/picture"],
        "boxes": np.zeros((0, 4), "float32"),
        "labels": np.zeros(0, "int32"),
    }
    window = transforms.Window((64, 64), pad_rgb(case), "asymmetric")
    placed = transforms.letterbox(example, window)
    assert_equals_reference(placed["image"], arrays, case)


def test_sizes_are_rounded_half_to_even(golden):
    for target, height, width, *expected in golden("odapi_input.npz")["true_sizes"]:
        size = scaled_size((height, width), (target, target), "asymmetric")
        assert size.tolist() == expected
    assert scaled_size((128, 125), (64, 64), "asymmetric").tolist() == [64, 62]


def test_boxes_go_to_the_input_and_back():
    boxes = np.float32([[0, 0, 96, 132], [10, 20, 50, 60]])
    there, kept = boxes_in_input(boxes, (96, 132), (256, 256), "asymmetric")
    assert kept.all() and there[0].tolist() == [0, 0, 186, 256]
    _, scale = letterbox_array(
        np.zeros((96, 132, 3)), (256, 256), (0, 0, 0), "asymmetric"
    )
    np.testing.assert_allclose(
        boxes_in_image(there, scale, (96, 132)), boxes, rtol=1e-6
    )


def test_anchors_are_those_of_the_reference(golden):
    anchors = anchors_of(CONFIG) / 256
    expected = golden("odapi_input.npz")["anchors"]
    some = np.concatenate([anchors[:18], anchors[-36:]])
    np.testing.assert_allclose(some, expected, rtol=2e-7, atol=2e-7)


def test_orders_of_anchors_are_a_permutation():
    scale_first = anchors_of(CONFIG.replace(anchor_order="scale_first"))
    order = [0, 3, 6, 1, 4, 7, 2, 5, 8]
    expected = scale_first.reshape(-1, 9, 4)[:, order].reshape(-1, 4)
    np.testing.assert_array_equal(anchors_of(CONFIG), expected)


def test_scales_of_codes():
    anchors = np.float32([[0, 0, 8, 16]])
    boxes = np.float32([[2, 0, 6, 24]])
    scales = (10.0, 10.0, 5.0, 5.0)
    plain = encode_boxes(boxes, anchors)
    codes = encode_boxes(boxes, anchors, scales)
    np.testing.assert_allclose(codes, plain * np.float32(scales), rtol=1e-6)
    np.testing.assert_allclose(decode_boxes(codes, anchors, scales), boxes, atol=1e-5)
    tensors = decode_boxes(*map(ops.convert_to_tensor, (codes, anchors)), scales)
    np.testing.assert_allclose(ops.convert_to_numpy(tensors), boxes, atol=1e-5)
