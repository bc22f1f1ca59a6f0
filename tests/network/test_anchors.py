"""Anchors: by hand, by definition, by reference; and which fits a box best."""

import ast
import json
import math

import numpy as np
import pytest

from effdet_keras import box_ops
from effdet_keras.network.anchors import (
    anchors_of,
    best_anchor_iou,
    generate_anchors,
    level_sizes,
)
from effdet_keras.network.config import EfficientDetConfig

CASES = [
    "d0_512",
    "d0_256",
    "d0_384x640_hw",
    "d0_200x136_hw",
    "lite0_320",
    "lite2_448",
    "d7_1536",
    "d7x_1536",
    "per_level_scale_256",
    "aspect_pairs_256",
]


def arguments(case):
    """The reference's list of strings, as our arguments."""
    low, high, octaves, ratios, scale, size = (
        ast.literal_eval(value) for value in case["args"]
    )
    return (size, size) if isinstance(size, int) else size, {
        "min_level": low,
        "max_level": high,
        "num_scales": octaves,
        "aspect_ratios": ratios,
        "anchor_scale": scale,
    }


def defined_anchors(image_size, levels, num_scales, ratios, scale):
    """The grid from the definition, one anchor at a time."""
    rows = []
    for level in levels:
        height, width = (math.ceil(n / 2**level) for n in image_size)
        stride_y, stride_x = image_size[0] / height, image_size[1] / width
        for y in range(height):
            for x in range(width):
                for octave in range(num_scales):
                    for ratio in ratios:
                        base = scale * 2 ** (octave / num_scales)
                        h = base * stride_y / math.sqrt(ratio)
                        w = base * stride_x * math.sqrt(ratio)
                        cy, cx = (y + 0.5) * stride_y, (x + 0.5) * stride_x
                        rows.append([cy - h / 2, cx - w / 2, cy + h / 2, cx + w / 2])
    return np.array(rows, "float32")


def test_anchors_equal_their_definition():
    found = generate_anchors(
        (70, 45),
        min_level=3,
        max_level=6,
        num_scales=2,
        aspect_ratios=(1.0, 3.0),
        anchor_scale=2.5,
    )
    expected = defined_anchors((70, 45), range(3, 7), 2, (1.0, 3.0), 2.5)
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_anchors_equal_the_reference(golden, name):
    case = json.loads(str(golden("maths.npz")["anchors/table"]))[name]
    image_size, options = arguments(case)
    anchors = generate_anchors(image_size, **options)
    sizes = level_sizes(image_size, 0, options["max_level"])
    assert [list(size) for size in sizes] == case["feat_sizes"]
    assert len(anchors) == case["n"]
    np.testing.assert_allclose(anchors[: len(case["first"])], case["first"], atol=1e-4)
    np.testing.assert_allclose(anchors[-1], case["last"], atol=1e-4)
    arrays = golden("c_anchors.npz")
    assert arguments(json.loads(str(arrays["table"]))[name]) == (image_size, options)
    if f"anchors/{name}" in arrays:
        np.testing.assert_allclose(anchors, arrays[f"anchors/{name}"], atol=1e-4)
    else:
        sampled = anchors[arrays[f"anchors/{name}/idx"]]
        np.testing.assert_allclose(sampled, arrays[f"anchors/{name}/val"], atol=1e-4)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("aspect_ratios", ()),
        ("aspect_ratios", (1.0, -2.0)),
        ("anchor_scale", 0.0),
        ("anchor_scale", (4.0, 4.0)),
    ],
)
def test_wrong_argument_is_named_with_its_value(name, value):
    options = {"image_size": (64, 64), name: value}
    with pytest.raises(ValueError, match=rf"`{name}`") as error:
        generate_anchors(options.pop("image_size"), **options)
    assert f"{name}={value!r}" in str(error.value)


@pytest.mark.parametrize(
    ("image_size", "arguments"),
    [
        ((128, 128), {}),
        ((200, 136), {"anchor_scale": 3.0, "num_scales": 2}),
        ((150, 300), {"aspect_ratios": ((1.4, 0.7), (1, 1)), "min_level": 4}),
        ((96, 64), {"anchor_scale": (1.0, 2, 3, 4), "max_level": 6}),
    ],
)
def test_the_best_anchor_is_the_best_of_all(image_size, arguments):
    rng = np.random.default_rng(0)
    centers = rng.uniform(-30, np.array(image_size) + 30, (500, 2))
    sides = np.exp(rng.uniform(0, 5.5, (500, 2)))
    boxes = np.concatenate([centers - sides / 2, centers + sides / 2], axis=1)
    config = EfficientDetConfig(image_size=image_size, **arguments)
    anchors = anchors_of(config).astype("float64")
    expected = box_ops.pairwise_iou(boxes, anchors).max(axis=1)
    actual = best_anchor_iou(boxes, config)
    # The anchors of the grid are rounded to float32.
    np.testing.assert_allclose(actual, expected, atol=1e-5)
