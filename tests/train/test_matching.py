"""Matching: both rules against their definitions, by hand, and by the reference."""

import types

import numpy as np
import pytest
from keras import ops

from effdet_keras import box_ops
from effdet_keras.labels import IGNORE
from effdet_keras.network.anchors import anchors_of, generate_anchors, level_sizes
from effdet_keras.network.config import EfficientDetConfig
from effdet_keras.train.matching import ATSSMatching, IoUMatching

CONFIG = EfficientDetConfig(image_size=(64, 96), max_level=5)
LEVELS = level_sizes((64, 96), 3, 5)
ANCHORS = anchors_of(CONFIG)
SQUARES = np.array([[0, 0, 8, 8], [0, 8, 8, 16], [8, 0, 16, 8]], "float32")
RULES = {"iou": IoUMatching, "atss": ATSSMatching}
ASSIGNMENTS = [
    "empty",
    "one",
    "tiny",
    "huge",
    "duplicates",
    "same_best_anchor",
    "force_steals",
    "anchor_exact",
    "random60",
    "random10small",
    "zero_iou",
    "outside",
]
each_rule = pytest.mark.parametrize("rule", RULES)


def match(boxes, labels, anchors=ANCHORS, config=CONFIG, rule="iou", **options):
    boxes, labels = np.asarray(boxes, "float32"), np.asarray(labels, "int32")
    found = RULES[rule](**options)(boxes, labels, anchors, config)
    return tuple(ops.convert_to_numpy(x) for x in found)


def random_truth(seed, num_images, num_boxes):
    """Boxes of many sizes, some labels -1, as padding between real rows."""
    rng = np.random.default_rng(seed)
    low = rng.uniform(-8, 60, (num_images, num_boxes, 2))
    high = low + rng.uniform(2, 60, (num_images, num_boxes, 2))
    labels = rng.integers(-1, 5, (num_images, num_boxes))
    return np.concatenate([low, high], -1).astype("float32"), labels.astype("int32")


# By definition: the row that each anchor of an image goes to, -1 for none.


def rows_by_iou(boxes, labels, iou_threshold):
    real = np.flatnonzero(labels >= 0)
    iou = box_ops.pairwise_iou(boxes[real], ANCHORS)
    rows = np.where(iou.max(axis=0) >= iou_threshold, real[iou.argmax(axis=0)], -1)
    for i in reversed(range(len(real))):
        rows[iou[i].argmax()] = real[i]
    return rows


def candidates(box, top_k):
    """The anchors at the nearest places of each level."""
    found, start = [], 0
    for height, width in LEVELS:
        places = ANCHORS[start : start + 9 * height * width].reshape(-1, 9, 4)
        centers = (places[:, 0, :2] + places[:, 0, 2:]) / 2
        away = np.linalg.norm(centers - (box[:2] + box[2:]) / 2, axis=1)
        for place in np.argsort(away)[:top_k]:
            found += list(range(start + 9 * place, start + 9 * place + 9))
        start += 9 * height * width
    return np.array(found)


def rows_by_atss(boxes, labels, top_k):
    wish = np.zeros((len(boxes), len(ANCHORS)))
    for row in np.flatnonzero(labels >= 0):
        box, near = boxes[row], candidates(boxes[row], top_k)
        iou = box_ops.pairwise_iou(box[None], ANCHORS[near])[0]
        limit = iou.mean() + iou.std(ddof=1)
        centers = (ANCHORS[near, :2] + ANCHORS[near, 2:]) / 2
        inside = ((centers > box[:2]) & (centers < box[2:])).all(axis=1)
        taken = inside & (iou >= limit)
        wish[row, near[taken]] = iou[taken]
        wish[row, near[iou.argmax()]] += iou.max() + 1
    return np.where(wish.max(axis=0) > 0, wish.argmax(axis=0), -1)


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("rule", "option", "value"),
    [
        *[("iou", "iou_threshold", value) for value in (0.3, 0.5, 0.7)],
        ("atss", "top_k", 9),
        *[
            pytest.param("atss", "top_k", value, marks=pytest.mark.slow_elsewhere)
            for value in (1, 4, 30)
        ],
    ],
)
def test_targets_equal_their_definition(rule, option, value):
    boxes, labels = random_truth(2, 3, 12)
    classes, deltas = match(boxes, labels, rule=rule, **{option: value})
    define = {"iou": rows_by_iou, "atss": rows_by_atss}[rule]
    for i in range(3):
        rows = define(boxes[i], labels[i], value)
        positive = rows >= 0
        expected = np.where(positive, labels[i][rows], -1)
        np.testing.assert_array_equal(classes[i], expected)
        codes = box_ops.encode_boxes(boxes[i][rows[positive]], ANCHORS[positive])
        np.testing.assert_allclose(deltas[i][positive], codes, rtol=1e-5, atol=1e-5)
        assert not deltas[i][~positive].any()


# By hand.


@pytest.mark.parametrize(
    ("boxes", "labels", "expected"),
    [
        ([[0, 8, 8, 16]], [4], [-1, 4, -1]),
        ([[0, 0, 8, 16]], [2], [2, 2, -1]),  # an IoU of 1/2 with two: enough
        ([[90, 90, 95, 95]], [1], [1, -1, -1]),  # far from all: claims the first
        # Neither reaches the threshold: the first has its claim, the second nothing.
        ([[0, 0, 4, 4], [0, 0, 3, 3]], [7, 8], [7, -1, -1]),
        ([[0, 0, 3, 3], [0, 0, 4, 4]], [8, 7], [8, -1, -1]),
        # A claim counts more than a larger overlap, also one of an IoU of 1/64.
        ([[0, 0, 8, 8], [0, 0, 1, 1]], [1, 2], [1, -1, -1]),
        ([[0, 0, 8, 16], [0, 9, 7, 16]], [1, 2], [1, 2, -1]),
        ([[0, 0, 8, 7], [0, 8, 1, 9]], [1, 2], [1, 2, -1]),
    ],
)
def test_iou_by_hand(boxes, labels, expected):
    classes, _ = match([boxes], [labels], SQUARES)
    assert classes.dtype == "int32" and classes.tolist() == [expected]


@pytest.mark.slow_elsewhere
@pytest.mark.parametrize(
    ("box", "expected"),
    [
        # IoU 1/2, 1/2, 0: mean 1/3, deviation 0.289, and 0.62 is too much for both.
        # The first, which overlaps it most, is matched all the same.
        ([0, 0, 8, 16], [2, -1, -1]),
        ([0, 8, 8, 16], [-1, 2, -1]),  # IoU 0, 1, 0: mean 1/3, deviation 0.577
        # IoU 1/3 each: no deviation, and all are as good as the mean.
        ([0, 0, 8, 24], [2, 2, 2]),
    ],
)
def test_the_threshold_of_atss_by_hand(box, expected):
    row = np.array([[0, 0, 8, 8], [0, 8, 8, 16], [0, 16, 8, 24]], "float32")
    config = types.SimpleNamespace(
        image_size=(8, 24), min_level=3, max_level=3, box_scales=(1.0,) * 4
    )
    assert match([[box]], [[2]], row, config, "atss")[0].tolist() == [expected]


@pytest.mark.slow_elsewhere
def test_by_atss_a_box_that_would_have_none_comes_first():
    small, large = [20, 20, 24, 24], [10, 10, 40, 40]
    for boxes, labels in (([small, large], [1, 2]), ([large, small], [2, 1])):
        classes, _ = match([boxes], [labels], rule="atss")
        assert set(classes[0]) == {-1, 1, 2}


# By property.


@pytest.mark.slow_elsewhere
@each_rule
def test_padding_never_matches(rule):
    boxes, labels = random_truth(1, 1, 6)
    expected = match(boxes, labels, rule=rule)
    for row, label in [
        ([0, 0, 0, 0], -1),
        ([-1, -1, -1, -1], -1),
        ([0, 0, 64, 96], -1),  # a real box whose label says padding
        ([0, 0, 64, 96], IGNORE),
        ([5, 5, 5, 20], 2),  # a real label whose box is empty
        ([9, 9, 3, 3], 2),
        ([np.nan] * 4, 2),
    ]:
        padded = np.concatenate([[[row]], boxes], axis=1)
        more = np.concatenate([[[label]], labels], axis=1)
        found = match(padded, more, rule=rule)
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_array_equal(found[1], expected[1])


@pytest.mark.tensorflow
@each_rule
@pytest.mark.parametrize("jit_compile", [False, True])
def test_one_graph_serves_any_number_of_images_and_boxes(rule, jit_compile):
    import tensorflow as tf

    signature = (tf.TensorSpec([None, None, 4]), tf.TensorSpec([None, None], tf.int64))

    @tf.function(input_signature=signature, jit_compile=jit_compile)
    def graph(boxes, labels):
        found = RULES[rule]()(boxes, labels, ANCHORS, CONFIG)
        assert found[0].shape.as_list() == [None, len(ANCHORS)]
        assert found[1].shape.as_list() == [None, len(ANCHORS), 4]
        return found

    for num_images, num_boxes in [(1, 0), (1, 3), (3, 1), (2, 0)]:
        boxes, labels = random_truth(6, num_images, num_boxes)
        expected = match(boxes, labels, rule=rule)
        found = graph(boxes, labels.astype("int64"))
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_allclose(found[1], expected[1], atol=1e-5)


# By reference.


@pytest.mark.parametrize("name", ASSIGNMENTS)
def test_targets_equal_the_reference(golden, name):
    arrays = golden("maths.npz")
    case = {
        key: arrays[f"assign/{name}/{key}"]
        for key in ("gt_boxes", "gt_classes", "pos_idx", "cls", "box", "num_positives")
    }
    labels = case["gt_classes"].reshape(1, -1).astype("int32") - 1  # theirs from 1
    classes, deltas = match(
        case["gt_boxes"][None], labels, generate_anchors((512, 512))
    )
    positive = np.flatnonzero(classes[0] >= 0)
    np.testing.assert_array_equal(positive, case["pos_idx"])
    assert len(positive) == case["num_positives"]
    np.testing.assert_array_equal(classes[0][positive], case["cls"])
    np.testing.assert_allclose(deltas[0][positive], case["box"], rtol=1e-4, atol=1e-4)
    assert not np.delete(deltas[0], positive, axis=0).any()


# Wrong arguments.


def test_an_ignore_threshold_above_the_other_is_refused():
    with pytest.raises(ValueError, match="`ignore_threshold`.*ignore_threshold=0.6"):
        IoUMatching(ignore_threshold=0.6)


def test_a_row_is_not_stretched_to_many_labels():
    with pytest.raises(ValueError, match=r"`boxes` must be .*\(1, 1, 4\)"):
        match(np.zeros((1, 1, 4)), np.zeros((1, 3)))
