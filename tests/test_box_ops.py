import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops
from support.gradients import compiled, gradient

from effdet_keras import box_ops

ELEMENTWISE = ["iou", "giou", "diou", "ciou"]
EVERY_FUNCTION = {
    "yxyx_to_xywh": ["boxes"],
    "xywh_to_yxyx": ["boxes_xywh"],
    "yxyx_to_xyxy": ["boxes"],
    "area": ["boxes"],
    "pairwise_iou": ["boxes1", "boxes2"],
    "iou": ["boxes1", "boxes2"],
    "giou": ["boxes1", "boxes2"],
    "diou": ["boxes1", "boxes2"],
    "ciou": ["boxes1", "boxes2"],
    "encode_boxes": ["boxes", "anchors"],
    "decode_boxes": ["box_deltas", "anchors"],
}


def numpy(tensor):
    return ops.convert_to_numpy(tensor)


def random_boxes(seed, *shape, dtype="float32"):
    rng = np.random.default_rng(seed)
    low = rng.uniform(-20, 100, (*shape, 2))
    return np.concatenate([low, low + rng.uniform(1, 80, (*shape, 2))], -1).astype(
        dtype
    )


def defined_metrics(a, b):
    """The four metrics of two boxes, from the papers, in Python floats."""
    a, b = [float(v) for v in a], [float(v) for v in b]
    (h1, w1), (h2, w2) = ((x[2] - x[0], x[3] - x[1]) for x in (a, b))
    overlap = max(min(a[2], b[2]) - max(a[0], b[0]), 0)
    overlap *= max(min(a[3], b[3]) - max(a[1], b[1]), 0)
    union = h1 * w1 + h2 * w2 - overlap
    height = max(a[2], b[2]) - min(a[0], b[0])
    width = max(a[3], b[3]) - min(a[1], b[1])
    iou = overlap / union
    giou = iou - (height * width - union) / (height * width)
    dy = (a[0] + a[2] - b[0] - b[2]) / 2
    dx = (a[1] + a[3] - b[1] - b[3]) / 2
    diou = iou - (dy**2 + dx**2) / (height**2 + width**2)
    v = 4 / math.pi**2 * (math.atan(w1 / h1) - math.atan(w2 / h2)) ** 2
    ciou = diou - (v * v / (1 - iou + v) if v else 0)
    return {"iou": iou, "giou": giou, "diou": diou, "ciou": ciou}


# By hand.


@pytest.mark.smoke
def test_forms_of_one_box():
    box = np.array([10.0, 20.0, 40.0, 60.0])
    np.testing.assert_array_equal(box_ops.yxyx_to_xywh(box), [20, 10, 40, 30])
    np.testing.assert_array_equal(box_ops.xywh_to_yxyx([20, 10, 40, 30]), box)
    np.testing.assert_array_equal(box_ops.yxyx_to_xyxy(box), [20, 10, 60, 40])
    np.testing.assert_array_equal(box_ops.yxyx_to_xyxy([20, 10, 60, 40]), box)


def test_area_of_an_inverted_box_is_zero():
    boxes = [[0, 0, 2, 3], [5, 5, 5, 9], [9, 9, 4, 4], [0, 5, 3, 1]]
    np.testing.assert_array_equal(numpy(box_ops.area(boxes)), [6, 0, 0, 0])


def test_clip_keeps_the_border_and_empties_what_lies_outside():
    boxes = [[-5, 3, 20, 40], [0, 0, 16, 32], [20, 40, 30, 50], [-9, -9, -1, -1]]
    expected = [[0, 3, 16, 32], [0, 0, 16, 32], [16, 32, 16, 32], [0, 0, 0, 0]]
    for form in (boxes, np.array(boxes, "float32")):
        found = numpy(box_ops.clip_boxes(form, (16, 32)))
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(ValueError, match=r"axis of 4.*\(3,\)"):
        box_ops.clip_boxes([1.0, 2.0, 3.0], (8, 8))


def test_clip_takes_a_size_for_each_image():
    boxes = np.full((2, 1, 4), 50, "float32")
    sizes = ops.convert_to_tensor(np.array([[[10, 20]], [[30, 60]]], "int32"))
    clipped = numpy(box_ops.clip_boxes(ops.convert_to_tensor(boxes), sizes))
    np.testing.assert_array_equal(clipped, [[[10, 20, 10, 20]], [[30, 50, 30, 50]]])


def test_iou_of_touching_half_and_equal_boxes():
    box = [[0, 0, 2, 2]]
    others = [[0, 2, 2, 4], [0, 1, 2, 3], [0, 0, 2, 2], [0, 0, 0, 0]]
    np.testing.assert_allclose(
        numpy(box_ops.pairwise_iou(box, others)), [[0, 1 / 3, 1, 0]], rtol=1e-7
    )


@pytest.mark.slow_elsewhere
def test_metrics_of_empty_boxes_are_finite():
    empty = np.zeros((1, 4), "float32")
    assert box_ops.pairwise_iou(empty, empty) == 0
    for name in ELEMENTWISE:
        metric = getattr(box_ops, name)
        assert numpy(metric(empty, empty.tolist())) == 0
        slope = gradient(lambda x, metric=metric: ops.sum(metric(x, empty)), empty)
        assert np.isfinite(slope).all()


def test_encoding_by_hand():
    boxes, anchors, codes = [[1, 4, 5, 8]], [[0, 0, 2, 4]], [[1, 1, math.log(2), 0]]
    found = numpy(box_ops.encode_boxes(boxes, anchors))
    np.testing.assert_allclose(found, codes, atol=1e-6)
    found = numpy(box_ops.decode_boxes(codes, anchors))
    np.testing.assert_allclose(found, boxes, rtol=1e-6)


# By definition.


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_metric_equals_its_definition(name):
    a, b = random_boxes(1, 300), random_boxes(2, 300)
    expected = [defined_metrics(x, y)[name] for x, y in zip(a, b)]
    metric = getattr(box_ops, name)
    # float32, boxes of tens of pixels that may overlap in a corner only
    np.testing.assert_allclose(numpy(metric(a, b.tolist())), expected, atol=2e-6)
    a, b = a.astype("float64"), b.astype("float64")
    np.testing.assert_allclose(metric(a, b), expected, atol=1e-12)


def test_pairwise_iou_equals_its_definition_in_batches():
    a, b = random_boxes(3, 2, 5), random_boxes(4, 2, 7)
    expected = [
        [[defined_metrics(x, y)["iou"] for y in b[i]] for x in a[i]] for i in range(2)
    ]
    found = numpy(box_ops.pairwise_iou(ops.convert_to_tensor(a), b))
    np.testing.assert_allclose(found, expected, atol=2e-6)
    assert box_ops.pairwise_iou(a, b[:, :0]).shape == (2, 5, 0)


# By property.

pixels = st.floats(-500, 500, width=32)
side = st.floats(0.5, 500, width=32)


@settings(max_examples=50, deadline=None)
@given(pixels, pixels, side, side, pixels, pixels, side, side)
def test_decode_inverts_encode(y, x, h, w, ya, xa, ha, wa):
    box = np.array([[y, x, y + h, x + w]], "float32")
    anchor = np.array([[ya, xa, ya + ha, xa + wa]], "float32")
    back = numpy(box_ops.decode_boxes(box_ops.encode_boxes(box, anchor), anchor))
    # An offset of up to 1000 pixels, in float32 anchors: 1e-4 * 1000 / 1000
    np.testing.assert_allclose(back, box, atol=2e-3)


def test_moving_box_and_anchor_together_changes_nothing():
    boxes, anchors = random_boxes(5, 3, 9), random_boxes(6, 9)
    here = box_ops.encode_boxes(boxes, anchors)
    np.testing.assert_allclose(
        box_ops.encode_boxes(boxes + 64, anchors + 64), here, atol=1e-4
    )


@pytest.mark.parametrize("name", [*ELEMENTWISE, "pairwise_iou"])
def test_metrics_ignore_scale_and_order(name):
    metric = getattr(box_ops, name)
    a, b = random_boxes(7, 20), random_boxes(8, 20)
    swapped = metric(b, a)
    swapped = swapped.T if name == "pairwise_iou" else swapped
    np.testing.assert_allclose(metric(a, b), swapped, atol=1e-6)
    np.testing.assert_allclose(metric(a * 8, b * 8), metric(a, b), atol=1e-6)


def test_empty_box_encodes_to_finite_numbers():
    codes = box_ops.encode_boxes(np.zeros((1, 4), "float32"), random_boxes(9, 1))
    assert np.isfinite(codes).all() and (codes[0, 2:] < -10).all()


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_wild_deltas_decode_to_finite_boxes_and_gradients(name):
    anchors, targets = random_boxes(10, 2), random_boxes(11, 2)
    deltas = np.array([[0, 0, 1e4, -1e4], [-1e4, 1e4, 100, 100]], "float32")
    assert np.isfinite(numpy(box_ops.decode_boxes(deltas.tolist(), anchors))).all()

    def value(x):
        decoded = box_ops.decode_boxes(x, anchors)
        return ops.sum(getattr(box_ops, name)(decoded, targets))

    assert np.isfinite(gradient(value, deltas)).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int32"])
def test_tensors_are_computed_in_float32(dtype):
    boxes = ops.cast([[0, 0, 2, 2], [1, 1, 3, 3]], dtype)
    anchors = np.array([[0, 0, 3, 3]], "float64")
    assert "float32" in str(box_ops.area(boxes).dtype)
    assert "float32" in str(box_ops.encode_boxes(boxes, anchors).dtype)
    assert "float32" in str(box_ops.clip_boxes(boxes, (8, 8)).dtype)
    np.testing.assert_allclose(
        numpy(box_ops.pairwise_iou(boxes, anchors)), [[4 / 9], [4 / 9]], rtol=1e-6
    )


@pytest.mark.parametrize("name", EVERY_FUNCTION)
def test_numpy_gives_numpy_equal_to_the_backend_and_compiled(name):
    function = getattr(box_ops, name)
    arrays = [random_boxes(20 + i, 6) for i in range(len(EVERY_FUNCTION[name]))]
    if name == "decode_boxes":
        arrays[0] = arrays[0] / 50
    plain = function(*arrays)
    assert isinstance(plain, np.ndarray) and plain.dtype == "float32"
    assert function(*(a.astype("float64") for a in arrays)).dtype == "float64"
    tensors = [ops.convert_to_tensor(a) for a in arrays]
    # The same float32 formula; libraries round log, exp and fused sums differently.
    for found in (function(*tensors), compiled(function)(*tensors)):
        np.testing.assert_allclose(numpy(found), plain, rtol=1e-5, atol=1e-5)


# By reference.


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_metric_and_gradient_equal_the_reference(golden, name):
    arrays = golden("maths.npz")
    target, boxes = arrays["iou/target"], arrays["iou/pred"]
    metric = getattr(box_ops, name)
    # Rows 0 and 1 have an empty target, which the reference's loss leaves out.
    np.testing.assert_allclose(
        1 - numpy(metric(boxes.tolist(), target))[2:],
        arrays[f"iou/{name}"][2:],
        atol=1e-5,
    )
    slope = -gradient(lambda x: ops.sum(metric(x, target)), boxes)
    # Row 4 is a box equal to its target, where each backend has its own slope.
    rows = [i for i in range(2, len(boxes)) if i != 4]
    np.testing.assert_allclose(
        slope[rows], arrays[f"iou/{name}_grad"][rows], rtol=1e-3, atol=1e-6
    )
