"""The losses: by hand, by definition, by property and by reference."""

import dataclasses
import json
import math
import re

import keras
import numpy as np
import pytest
from keras import ops
from support.gradients import gradient

from effdet_keras import box_ops
from effdet_keras.labels import IGNORE
from effdet_keras.network.anchors import generate_anchors
from effdet_keras.train.losses import DetectionLoss, focal_loss, huber_loss, iou_loss

IOU_TYPES = ["iou", "giou", "diou", "ciou"]
SQUARES = np.array([[0, 0, 8, 8], [0, 8, 8, 16]], "float32")
# What the reference computed right, by the name of its inputs. Not here: the moving
# normalizer, which it resets at every call, and IoU losses of more than one image,
# which it decodes with the wrong anchors.
CASES = {
    "maths.npz": [
        "default_b1",
        "no_box_loss_ciou_b1",
        *[f"{name}_b1" for name in IOU_TYPES],
    ],
    "b_losses.npz": [
        "default_b2",
        "ignored_b2",
        "zero_positives_b2",
        "label_smoothing_b2",
        "alpha_gamma_delta_b2",
    ],
}


def numpy(tensor):
    return ops.convert_to_numpy(tensor)


def random_case(seed=0, num_images=2, num_anchors=40, num_classes=5):
    """Targets and outputs of a small network, some anchors ignored."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(-2, num_classes, (num_images, num_anchors)).astype("int32")
    labels[rng.random(labels.shape) < 0.5] = -1
    boxes = rng.normal(0, 0.3, (num_images, num_anchors, 4)) * (labels >= 0)[..., None]
    return (
        labels,
        boxes.astype("float32"),
        rng.normal(-2, 2, (num_images, num_anchors, num_classes)).astype("float32"),
        rng.normal(0, 0.3, (num_images, num_anchors, 4)).astype("float32"),
        generate_anchors((64, 64), max_level=5)[:num_anchors],
    )


def defined_focal(labels, logits, alpha=0.25, gamma=1.5, label_smoothing=0.0):
    """The focal loss of each anchor and class from the definition, in float64."""
    x = logits.astype("float64")
    y = np.zeros_like(x)
    for place in zip(*np.nonzero(labels >= 0)):
        y[(*place, labels[place])] = 1
    p = 1 / (1 + np.exp(-x))
    smooth = y * (1 - label_smoothing) + label_smoothing / 2
    cross_entropy = -smooth * np.log(p) - (1 - smooth) * np.log1p(-p)
    p_t = y * p + (1 - y) * (1 - p)
    weight = y * alpha + (1 - y) * (1 - alpha)
    loss = weight * (1 - p_t) ** gamma * cross_entropy
    return loss * (labels != IGNORE)[..., None]


def defined_terms(loss, labels, targets, logits, deltas, anchors, anchor_weights=None):
    """All terms of a `DetectionLoss` from its definition, in NumPy."""
    if anchor_weights is None:
        anchor_weights = np.ones(labels.shape)
    focal = defined_focal(labels, logits, loss.alpha, loss.gamma, loss.label_smoothing)
    if loss.class_weights is not None:
        focal = focal * np.array(loss.class_weights)
    places = np.nonzero(labels >= 0)
    weights = anchor_weights[places]
    error = np.abs(deltas - targets)[places]
    straight = loss.delta * error - loss.delta**2 / 2
    huber = np.where(error <= loss.delta, error**2 / 2, straight)
    n = weights.sum() + 1
    terms = {
        "class_loss": (anchor_weights * focal.sum(-1)).sum() / n,
        "box_loss": (weights @ huber).sum() / (4 * n),
    }
    total = loss.class_loss_weight * terms["class_loss"]
    total += loss.box_loss_weight * terms["box_loss"]
    if loss.iou_loss_type:
        boxes = (
            box_ops.decode_boxes(codes[places], anchors[places[1]])
            for codes in (deltas, targets)
        )
        metric = getattr(box_ops, loss.iou_loss_type)(*boxes)
        terms["box_iou_loss"] = (weights * (1 - metric)).sum() / (4 * n)
        total += loss.iou_loss_weight * terms["box_iou_loss"]
    return {"loss": total, **terms}


# By hand. A logit of log 3 is a probability of 3/4, one of 0 is 1/2; alpha is 1/4 and
# gamma 2.

SURE = math.log(3)
RIGHT = math.log(4 / 3) / 64  # y = 1: 1/4 * (1/4)**2 * -log(3/4)
WRONG = math.log(4) * 27 / 64  # y = 0: 3/4 * (3/4)**2 * -log(1/4)
UNSURE = math.log(2) * 3 / 16  # y = 0: 3/4 * (1/2)**2 * -log(1/2)
DOUBTED = math.log(4 / 3) * 3 / 64  # y = 0, a logit of -log 3: 3/4 * (1/4)**2 * ...


@pytest.mark.parametrize(
    ("label", "options", "expected"),
    [
        (0, {}, RIGHT + UNSURE),
        (-1, {}, WRONG + UNSURE),
        (IGNORE, {}, 0.0),
        (0, {"class_weights": (2.0, 0.5)}, 2 * RIGHT + 0.5 * UNSURE),
        # Smoothing by 0.2: answers of 0.9 and 0.1, and log(1/2) is the same for both.
        (0, {"label_smoothing": 0.2}, 0.9 * RIGHT + 0.1 * math.log(4) / 64 + UNSURE),
    ],
)
def test_focal_losses_are_those_worked_out_by_hand(label, options, expected):
    found = focal_loss([label], [[SURE, 0.0]], alpha=0.25, gamma=2.0, **options)
    np.testing.assert_allclose(numpy(found), [expected], rtol=1e-5)


def test_huber_losses_are_those_worked_out_by_hand():
    """With a delta of 0.1: a parabola up to that error, then a line of slope 0.1."""
    found = huber_loss([0.0, 0.0, 1.0, 1.0], [0.05, -0.1, 1.3, 0.7], delta=0.1)
    np.testing.assert_allclose(numpy(found), [0.00125, 0.005, 0.025, 0.025], rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("iou", 1 - 1 / 7),  # 1 of 4 + 4 - 1 pixels is shared
        ("giou", 1 - (1 / 7 - 2 / 9)),  # 2 of the 9 pixels of the hull are in neither
        ("diou", 1 - (1 / 7 - 2 / 18)),  # centers at (1, 1), diagonal of (3, 3)
        ("ciou", 1 - (1 / 7 - 2 / 18)),  # both are squares
    ],
)
def test_iou_losses_are_those_worked_out_by_hand(name, expected):
    found = iou_loss([[0, 0, 2, 2]], [[1, 1, 3, 3]], iou_loss_type=name)
    np.testing.assert_allclose(numpy(found), [expected], rtol=1e-5)


@pytest.mark.parametrize(
    ("normalizer", "anchor_weights", "divisor"),
    [
        ("positives_plus_one", None, 2),
        ("positives", None, 1),
        ("one", None, 1),
        ("positives_plus_one", (3.0, 0.5), 4),
        ("positives", (3.0, 0.5), 3),
        ("one", (3.0, 0.5), 1),
    ],
)
def test_the_whole_loss_is_that_worked_out_by_hand(normalizer, anchor_weights, divisor):
    """Of two classes: one anchor with the first of them, and one of background."""
    first, second = anchor_weights or (1.0, 1.0)
    labels, logits = [[0, -1]], [[[SURE, 0.0], [0.0, -SURE]]]
    targets = np.float32([[[0.05, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]]])
    deltas = np.float32([[[0.0, 0.0, 1.3, 0.0], [9.0, 9.0, 9.0, 9.0]]])
    loss = DetectionLoss(gamma=2.0, normalizer=normalizer, class_loss_weight=3.0)
    weights = None if anchor_weights is None else np.float32([anchor_weights])
    terms = loss(labels, targets, logits, deltas, SQUARES, anchor_weights=weights)
    of_classes = first * (RIGHT + UNSURE) + second * (UNSURE + DOUBTED)
    of_boxes = first * (0.00125 + 0.025) / 4
    expected = {
        "loss": (3 * of_classes + 50 * of_boxes) / divisor,
        "class_loss": of_classes / divisor,
        "box_loss": of_boxes / divisor,
    }
    found = {name: float(numpy(value)) for name, value in terms.items()}
    assert found == pytest.approx(expected, rel=1e-5)


def test_a_label_beyond_the_classes_is_background():
    logits = np.ones((1, 3), "float32")
    np.testing.assert_array_equal(
        numpy(focal_loss([3], logits)), numpy(focal_loss([-1], logits))
    )


# Focal, by definition and by property.


@pytest.mark.parametrize(
    ("alpha", "gamma", "label_smoothing"),
    [(0.25, 1.5, 0.0), (0.25, 1.5, 0.1), (0.6, 2.0, 0.3), (0.5, 0.0, 0.2), (1, 0.5, 0)],
)
def test_focal_loss_equals_its_definition(alpha, gamma, label_smoothing):
    labels, _, logits, _, _ = random_case(1)
    options = {"alpha": alpha, "gamma": gamma, "label_smoothing": label_smoothing}
    found = numpy(focal_loss(labels, logits, **options))
    expected = defined_focal(labels, logits, **options).sum(-1)
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-7)
    assert found.dtype == "float32" and (found[labels == -2] == 0).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_extreme_logits_have_finite_loss_and_gradient(dtype, label_smoothing):
    logits = np.array([[100, -100, 0], [-100, 100, 6e4], [-6e4, 90, -90]], "float32")
    labels = np.array([0, 0, -1])

    def loss(x):
        return ops.sum(
            focal_loss(labels, ops.cast(x, dtype), label_smoothing=label_smoothing)
        )

    assert np.isfinite(numpy(loss(ops.convert_to_tensor(logits))))
    assert np.isfinite(gradient(loss, logits)).all()


# Focal, by reference.


@pytest.mark.parametrize("name", ["default", "ls01", "a05g2", "g0"])
@pytest.mark.parametrize("answer", [0, 1])
def test_focal_curves_equal_the_reference(golden, name, answer):
    arrays = golden("maths.npz")
    logits = arrays["focal/logits"][:, None]
    alpha, gamma, smoothing, normalizer = (
        float(x) for x in arrays[f"focal/{name}/params"]
    )
    labels = np.full(len(logits), answer - 1)

    def loss(x):
        options = {"alpha": alpha, "gamma": gamma, "label_smoothing": smoothing}
        return focal_loss(labels, x, **options) / normalizer

    # Float32 of two formulas; beyond logits of 15 the losses are below 1e-7.
    np.testing.assert_allclose(
        numpy(loss(logits)),
        arrays[f"focal/{name}/t{answer}"][:, 0],
        rtol=2e-5,
        atol=1e-7,
    )
    slope = gradient(lambda x: ops.sum(loss(x)), logits)
    expected = arrays[f"focal/{name}/t{answer}_grad"]
    # Without gamma the reference's slope is NaN at sure answers; ours is finite.
    known = np.isfinite(expected)
    assert known.all() or name == "g0"
    np.testing.assert_allclose(slope[known], expected[known], rtol=2e-5, atol=1e-7)
    assert np.isfinite(slope).all()


# Huber.


@pytest.mark.parametrize("delta", [0.05, 0.1, 1.0])
def test_huber_loss_and_gradient_equal_the_reference(golden, delta):
    arrays = golden("maths.npz")
    targets, outputs = arrays["huber/targets"], arrays["huber/outputs"]
    normalizer = 4 * float(arrays["huber/num_positives"])

    def loss(x):
        each = huber_loss(targets, x, delta=delta)
        # The reference's mask, a coordinate at a time, which ours is not.
        return ops.sum(ops.where(targets != 0, each, 0.0)) / normalizer

    name = f"huber/d{delta:g}"
    np.testing.assert_allclose(numpy(loss(outputs)), arrays[name], rtol=1e-5)
    np.testing.assert_allclose(
        gradient(loss, outputs), arrays[f"{name}_grad"], rtol=1e-5, atol=1e-8
    )


# IoU losses.


@pytest.mark.parametrize("name", IOU_TYPES)
def test_iou_loss_equals_the_reference(golden, name):
    arrays = golden("maths.npz")
    target, boxes = arrays["iou/target"], arrays["iou/pred"]
    found = numpy(iou_loss(target, boxes, iou_loss_type=name))
    np.testing.assert_allclose(found, arrays[f"iou/{name}"], atol=1e-5)
    assert found[0] == 0 and found[1] == 0  # empty targets
    slope = gradient(lambda x: ops.sum(iou_loss(target, x, iou_loss_type=name)), boxes)
    expected = arrays[f"iou/{name}_grad"]
    # Row 4 is a box equal to its target, where only TensorFlow has this slope.
    rows = np.arange(len(boxes)) != (
        4 if keras.backend.backend() != "tensorflow" else -1
    )
    np.testing.assert_allclose(slope[rows], expected[rows], rtol=1e-3, atol=1e-6)


# The whole loss.


def slopes_of(loss, labels, targets, logits, deltas, anchors):
    """Gradients of the loss by the logits and by the deltas."""
    return (
        gradient(lambda x: loss(labels, targets, x, deltas, anchors)["loss"], logits),
        gradient(lambda x: loss(labels, targets, logits, x, anchors)["loss"], deltas),
    )


@pytest.mark.parametrize(
    ("file", "case"), [(file, case) for file, cases in CASES.items() for case in cases]
)
def test_terms_and_gradients_equal_the_reference(golden, file, case):
    arrays = golden(file)
    table = json.loads(str(arrays["det/table"]))[case]
    expected = table["losses"]
    options = {
        key: value
        for key, value in table["kwargs"].items()
        if key not in ("bs", "seed", "ignore", "zero_pos")
    }
    loss = DetectionLoss(**options)

    def flat(key, last):
        levels = [arrays[f"{table['inputs']}/{key}_{i}"] for i in range(3, 8)]
        shape = (len(levels[0]), -1, *last)
        return np.concatenate([level.reshape(shape) for level in levels], axis=1)

    labels, boxes = flat("cls_targets", ()), flat("box_targets", (4,))
    outputs = flat("cls_outputs", (5,)), flat("box_outputs", (4,))
    everything = labels, boxes, *outputs, generate_anchors((128, 128))
    names = {"loss": "det_loss", "class_loss": "cls_loss"}
    terms = loss(*everything)
    for key, value in terms.items():
        value = float(numpy(value))
        np.testing.assert_allclose(value, expected[names.get(key, key)], rtol=1e-5)
    assert ("box_iou_loss" in terms) == ("box_iou_loss" in expected)
    slopes = [np.abs(x).sum(dtype="float64") for x in slopes_of(loss, *everything)]
    np.testing.assert_allclose(slopes[0], expected["grad_cls_abs_sum"], rtol=1e-5)
    np.testing.assert_allclose(slopes[1], expected["grad_box_abs_sum"], rtol=1e-4)


@pytest.mark.smoke
@pytest.mark.parametrize(
    "options",
    [
        {"gamma": 2.0, "delta": 0.2, "box_loss_weight": 3.0},
        *[{"iou_loss_type": name} for name in IOU_TYPES],
        {"iou_loss_type": "giou", "iou_loss_weight": 2.0, "class_loss_weight": 3.0},
        {"class_weights": (0.5, 2.0, 3.0, 1.0, 0.0)},
    ],
    ids=str,
)
def test_terms_equal_their_definition(options):
    case = random_case(5, num_images=3)
    case[1][0, :, 2] = 0  # exactly zero: the reference would drop it, it counts here
    loss = DetectionLoss(**options)
    some = np.random.default_rng(6).uniform(0.0, 3.0, case[0].shape).astype("float32")
    for anchor_weights in (None, some):
        terms = loss(*case, anchor_weights=anchor_weights)
        terms = {key: float(numpy(value)) for key, value in terms.items()}
        expected = defined_terms(loss, *case, anchor_weights)
        assert terms == pytest.approx(expected, rel=1e-5)


def test_an_anchor_equal_to_its_box_is_still_trained():
    labels, zeros = np.array([[1, -1]]), np.zeros((1, 2, 4), "float32")
    logits, deltas = np.zeros((1, 2, 3), "float32"), np.ones((1, 2, 4), "float32")
    terms = DetectionLoss()(labels, zeros, logits, deltas, SQUARES)
    np.testing.assert_allclose(numpy(terms["box_loss"]), 0.095 / 2, rtol=1e-6)
    slope = gradient(
        lambda x: DetectionLoss()(labels, zeros, logits, x, SQUARES)["loss"], deltas
    )
    assert (slope[0, 0] > 0).all() and (slope[0, 1] == 0).all()


def test_background_boxes_add_nothing_even_when_infinite():
    labels, targets, logits, deltas, anchors = random_case(6)
    loss = DetectionLoss(iou_loss_type="ciou")
    expected = loss(labels, targets, logits, deltas, anchors)
    wild = deltas.copy()
    wild[labels < 0] = [np.inf, -np.inf, 1e30, np.nan]
    found = loss(labels, targets, logits, wild, anchors)
    for key, value in expected.items():
        np.testing.assert_array_equal(numpy(found[key]), numpy(value))
    slope = gradient(lambda x: loss(labels, targets, logits, x, anchors)["loss"], wild)
    assert np.isfinite(slope).all() and (slope[labels < 0] == 0).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_outputs_are_computed_in_float32(dtype):
    labels, targets, logits, deltas, anchors = random_case(8)
    loss = DetectionLoss(iou_loss_type="diou")
    half = ops.cast(logits, dtype), ops.cast(deltas, dtype)
    found = loss(labels, targets, *half, anchors)
    rounded = (ops.cast(x, "float32") for x in half)
    for key, value in loss(labels, targets, *rounded, anchors).items():
        assert keras.backend.standardize_dtype(found[key].dtype) == "float32"
        np.testing.assert_array_equal(numpy(found[key]), numpy(value))


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_gradient_in_a_graph_of_any_batch_equals_eager(jit_compile):
    import tensorflow as tf

    anchors = random_case()[-1]
    loss = DetectionLoss(iou_loss_type="giou")

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 40], tf.int32),
            tf.TensorSpec([None, 40, 4]),
            tf.TensorSpec([None, 40, 5]),
            tf.TensorSpec([None, 40, 4]),
        ],
        jit_compile=jit_compile,
    )
    def graph(labels, targets, logits, deltas):
        with tf.GradientTape() as tape:
            tape.watch([logits, deltas])
            terms = loss(labels, targets, logits, deltas, anchors)
        return terms, tape.gradient(terms["loss"], [logits, deltas])

    for num_images in (1, 3):
        case = random_case(10, num_images)
        terms, slopes = graph(*case[:4])
        for key, value in loss(*case).items():
            np.testing.assert_allclose(terms[key], value, rtol=1e-5)
        for found, expected in zip(slopes, slopes_of(loss, *case)):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


# Configuration.


def test_weights_of_classes_are_one_for_each_and_not_negative():
    with pytest.raises(
        ValueError, match="`class_weights` must be numbers of at least 0"
    ):
        DetectionLoss(class_weights=[1.0, -1.0])
    with pytest.raises(ValueError, match="`class_weights` must be 5 numbers"):
        DetectionLoss(class_weights=[1.0, 2.0])(*random_case(5))


def test_loss_survives_serialization():
    loss = DetectionLoss(0.3, 2.0, 0.1, 0.2, 10.0, "ciou", 0.5, 2.0, "positives", 0.9)
    loss = dataclasses.replace(loss, class_weights=(1.0, 2.0))
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(loss)))
    assert keras.saving.deserialize_keras_object(config) == loss
    assert DetectionLoss.from_config(loss.get_config()) == loss
    defaults = DetectionLoss().get_config()
    assert all(defaults[key] != value for key, value in loss.get_config().items())


@pytest.mark.parametrize(("name", "value"), [("iou_loss_type", "eiou")])
def test_wrong_number_is_named_with_its_value(name, value):
    received = re.escape(f"{name}={value!r}")
    with pytest.raises(ValueError, match=f"`{name}`.*{received}"):
        DetectionLoss(**{name: value})
