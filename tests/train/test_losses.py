import json
import math

import keras
import numpy as np
import pytest
from keras import ops
from support.gradients import compiled, gradient

from effdet_keras import box_ops
from effdet_keras._internal.label_constants import IGNORE
from effdet_keras.model.anchors import generate_anchors
from effdet_keras.train.losses import DetectionLoss, focal_loss, huber_loss, iou_loss

IOU_TYPES = ["iou", "giou", "diou", "ciou"]
SQUARES = np.array([[0, 0, 8, 8], [0, 8, 8, 16]], "float32")
# What the reference computed right, by the name of its inputs. Not here: the moving
# normalizer, which it resets at every call, and IoU losses of more than one image,
# which it decodes with the wrong anchors.
BATCH_1_CASES = [
    "default_b1",
    "no_box_loss_ciou_b1",
    *[f"{name}_b1" for name in IOU_TYPES],
]
BATCH_2_CASES = [
    "default_b2",
    "ignored_b2",
    "zero_positives_b2",
    "label_smoothing_b2",
    "alpha_gamma_delta_b2",
]


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


def defined_focal(labels, logits, alpha, gamma, label_smoothing):
    """The focal loss of each anchor from the definition, in float64."""
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
    return loss.sum(-1) * (labels != -2)


# Focal, by hand.


def test_focal_loss_of_an_undecided_anchor():
    each = 0.5**1.5 * math.log(2)
    found = numpy(focal_loss(np.array([2, -1, -2]), np.zeros((3, 4), "float32")))
    np.testing.assert_allclose(
        found, [each * (0.25 + 3 * 0.75), each * 3, 0], rtol=1e-6
    )


def test_without_gamma_it_is_weighted_cross_entropy():
    logits = np.array([[3.0, -2.0]], "float32")
    found = numpy(focal_loss([0], logits, alpha=0.5, gamma=0.0))
    expected = 0.5 * (math.log1p(math.exp(-3)) + math.log1p(math.exp(-2)))
    np.testing.assert_allclose(found, [expected], rtol=1e-6)


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
    expected = defined_focal(labels, logits, **options)
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-7)
    assert found.dtype == "float32" and (found[labels == -2] == 0).all()


@pytest.mark.parametrize("label_smoothing", [0.0, 0.2])
def test_focal_gradient_is_the_slope_of_the_loss(label_smoothing):
    labels, _, logits, _, _ = random_case(2)
    weights = np.random.default_rng(3).uniform(1, 2, labels.shape)
    options = {"alpha": 0.3, "gamma": 1.7, "label_smoothing": label_smoothing}

    found = gradient(
        lambda x: ops.sum(
            focal_loss(labels, x, **options)
            * ops.convert_to_tensor(weights.astype("float32"))
        ),
        logits,
    )
    step = 1e-6  # central difference of the float64 definition, good to about 1e-9
    expected = np.zeros_like(logits, "float64")
    for c in range(logits.shape[-1]):
        move = step * np.eye(logits.shape[-1])[c]
        up = defined_focal(labels, logits + move, **options)
        down = defined_focal(labels, logits - move, **options)
        expected[..., c] = weights * (up - down) / (2 * step)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


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


def test_sure_answers_cost_nothing_and_sure_mistakes_cost_their_logit():
    logits = np.array([[100.0, -100.0], [-100.0, 100.0]], "float32")
    found = numpy(focal_loss([0, 0], logits))
    np.testing.assert_allclose(found, [0, 0.25 * 100 + 0.75 * 100], atol=1e-12)
    slope = gradient(lambda x: ops.sum(focal_loss([0, 0], x)), logits)
    np.testing.assert_allclose(slope, [[0, 0], [-0.25, 0.75]], atol=1e-12)


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


def test_huber_loss_by_hand():
    found = numpy(huber_loss([1.0, 1.0, 1.0, 1.0], [1.0, 1.5, 2.0, -2.0], delta=1.0))
    np.testing.assert_allclose(found, [0, 0.125, 0.5, 2.5])


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


def reference_loss(arrays, case):
    """Runs one golden case: our terms, and the sums of absolute gradients."""
    table = json.loads(str(arrays["det/table"]))[case]
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
    terms = {key: float(numpy(value)) for key, value in loss(*everything).items()}
    slopes = [np.abs(x).sum(dtype="float64") for x in slopes_of(loss, *everything)]
    return terms, slopes, table["losses"]


def check_reference_loss(arrays, case):
    terms, slopes, expected = reference_loss(arrays, case)
    names = {"loss": "det_loss", "class_loss": "cls_loss"}
    for key, value in terms.items():
        np.testing.assert_allclose(value, expected[names.get(key, key)], rtol=1e-5)
    assert ("box_iou_loss" in terms) == ("box_iou_loss" in expected)
    np.testing.assert_allclose(slopes[0], expected["grad_cls_abs_sum"], rtol=1e-5)
    np.testing.assert_allclose(slopes[1], expected["grad_box_abs_sum"], rtol=1e-4)


@pytest.mark.parametrize("case", BATCH_1_CASES)
def test_loss_of_one_image_equals_the_reference(golden, case):
    check_reference_loss(golden("maths.npz"), case)


@pytest.mark.parametrize("case", BATCH_2_CASES)
def test_loss_of_two_images_equals_the_reference(golden, case):
    check_reference_loss(golden("b_losses.npz"), case)


@pytest.mark.parametrize("name", IOU_TYPES)
def test_iou_loss_of_a_batch_decodes_each_image_with_its_anchors(name):
    labels, targets, logits, deltas, anchors = random_case(4, num_images=3)
    loss = DetectionLoss(iou_loss_type=name)
    terms = loss(labels, targets, logits, deltas, anchors)
    total, positives = 0.0, 0
    for i in range(3):
        rows = labels[i] >= 0
        metric = getattr(box_ops, name)(
            box_ops.decode_boxes(deltas[i][rows], anchors[rows]),
            box_ops.decode_boxes(targets[i][rows], anchors[rows]),
        )
        total, positives = total + (1 - metric).sum(), positives + rows.sum()
    found = float(numpy(terms["box_iou_loss"]))
    np.testing.assert_allclose(found, total / (4 * (positives + 1)), rtol=1e-5)


def test_terms_equal_their_definition():
    labels, targets, logits, deltas, anchors = random_case(5)
    targets[0, :, 2] = 0  # exactly zero: the reference would drop it, it counts here
    loss = DetectionLoss(gamma=2.0, delta=0.2, box_loss_weight=3.0)
    terms = loss(labels, targets, logits, deltas, anchors)
    terms = {key: float(numpy(value)) for key, value in terms.items()}
    positive = labels >= 0
    n = positive.sum() + 1
    error = np.abs(deltas - targets)[positive]
    huber = np.where(error <= 0.2, error**2 / 2, 0.2 * error - 0.02)
    expected = {
        "class_loss": defined_focal(labels, logits, 0.25, 2.0, 0.0).sum() / n,
        "box_loss": huber.sum() / (4 * n),
    }
    expected["loss"] = expected["class_loss"] + 3.0 * expected["box_loss"]
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


def test_batch_without_objects_has_class_loss_only():
    _, targets, logits, deltas, anchors = random_case(7)
    labels = np.full(targets.shape[:2], -1)
    terms = DetectionLoss(iou_loss_type="giou")(
        labels, targets * 0, logits, deltas, anchors
    )
    assert float(numpy(terms["box_loss"])) == 0
    assert float(numpy(terms["box_iou_loss"])) == 0
    expected = defined_focal(labels, logits, 0.25, 1.5, 0.0).sum()
    np.testing.assert_allclose(numpy(terms["class_loss"]), expected, rtol=1e-5)


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


def test_compiled_loss_and_gradient_equal_eager():
    labels, targets, logits, deltas, anchors = random_case(9)
    loss = DetectionLoss(label_smoothing=0.1, iou_loss_type="ciou")

    def call(labels, targets, logits, deltas):
        return loss(labels, targets, logits, deltas, anchors)

    tensors = [ops.convert_to_tensor(x) for x in (labels, targets, logits, deltas)]
    found = compiled(call)(*tensors)
    for key, value in call(*tensors).items():
        # Compiled code sums in another order.
        np.testing.assert_allclose(numpy(found[key]), numpy(value), rtol=1e-5)


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


def test_loss_goes_down_along_its_gradient():
    labels, targets, logits, deltas, anchors = random_case(11)
    loss = DetectionLoss(iou_loss_type="ciou")

    def call(x):
        return loss(labels, targets, x[..., :5], x[..., 5:], anchors)["loss"]

    point = np.concatenate([logits, deltas], axis=-1)
    slope = gradient(call, point)
    size = float((slope**2).sum())
    start, end = (float(numpy(call(x))) for x in (point, point - 1e-4 * slope))
    np.testing.assert_allclose((start - end) / (1e-4 * size), 1, atol=0.1)


# Configuration.


def test_loss_survives_serialization():
    weights = (1.0, 2.0), (0.0, 1.0)
    loss = DetectionLoss(
        *(0.3, 2.0, 0.1, 0.2, 10.0, "ciou", 0.5, 2.0, "positives", *weights, 0.5)
    )
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(loss)))
    assert keras.saving.deserialize_keras_object(config) == loss
    assert DetectionLoss.from_config(loss.get_config()) == loss
    defaults = DetectionLoss().get_config()
    assert all(defaults[key] != value for key, value in loss.get_config().items())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("alpha", 1.5),
        ("alpha", -0.1),
        ("gamma", -1.0),
        ("gamma", math.inf),
        ("label_smoothing", 2.0),
        ("delta", 0.0),
        ("box_loss_weight", -1.0),
        ("iou_loss_type", "eiou"),
        ("iou_loss_weight", math.nan),
    ],
)
def test_wrong_number_is_named_with_its_value(name, value):
    with pytest.raises(ValueError, match=f"`{name}`.*{name}={value!r}"):
        DetectionLoss(**{name: value})


@pytest.mark.parametrize("name", ["alpha", "gamma", "label_smoothing"])
def test_focal_loss_names_a_wrong_number(name):
    with pytest.raises(ValueError, match=f"`{name}`.*{name}=-1"):
        focal_loss([0], np.zeros((1, 2), "float32"), **{name: -1})


def test_box_losses_name_a_wrong_argument():
    with pytest.raises(ValueError, match=r"`delta`.*delta=-1"):
        huber_loss([0.0], [0.0], delta=-1)
    with pytest.raises(ValueError, match=r"`iou_loss_type`.*'iou'.*'IoU'"):
        iou_loss(np.zeros((1, 4)), np.zeros((1, 4)), iou_loss_type="IoU")


@pytest.mark.parametrize("argument", range(4))
def test_wrong_shape_is_named(argument):
    case = list(random_case(12))
    case[argument] = case[argument][:, :-1]
    with pytest.raises(ValueError, match=r"shape of.*shape=\(2, 39"):
        DetectionLoss()(*case)


def weighed_by_definition(class_targets, box_targets, logits, deltas, anchors, **terms):
    """The sum over anchors and classes, one after the other, from plain losses."""
    count = logits.shape[-1]
    class_sum = box_sum = iou_sum = 0.0
    for image in range(len(class_targets)):
        for place, label in enumerate(class_targets[image]):
            for one in range(count):
                target = 0 if label == one else (IGNORE if label == IGNORE else -1)
                alone = focal_loss([target], logits[image, place, one : one + 1][None])
                class_sum += float(alone[0]) * terms["class_weights"][one]
            weight = terms["box_class_weights"][label] if label >= 0 else 1.0
            pair = box_targets[image, place], deltas[image, place]
            if np.any(pair[0]):
                box_sum += weight * float(ops.sum(huber_loss(*pair)))
                boxes = [
                    box_ops.decode_boxes(x[None], anchors[place][None]) for x in pair
                ]
                iou_sum += weight * float(iou_loss(*boxes, iou_loss_type="giou")[0])
    return class_sum, box_sum, iou_sum


def test_classes_and_their_boxes_can_be_weighed():
    rng = np.random.default_rng(3)
    class_targets = np.array([[0, 2, -1, IGNORE], [1, -1, 2, -1]])
    box_targets = rng.normal(0, 0.3, (2, 4, 4)).astype("float32")
    box_targets[class_targets < 0] = 0.0
    logits = rng.normal(size=(2, 4, 3)).astype("float32")
    deltas = rng.normal(0, 0.3, (2, 4, 4)).astype("float32")
    anchors = np.array([[0, 0, 8, 8 + i] for i in range(4)], "float32")
    weights = {"class_weights": (0.5, 2.0, 3.0), "box_class_weights": (1.0, 0.0, 4.0)}
    loss = DetectionLoss(iou_loss_type="giou", **weights)
    terms = loss(class_targets, box_targets, logits, deltas, anchors)
    expected = weighed_by_definition(
        class_targets, box_targets, logits, deltas, anchors, **weights
    )
    names = ("class_loss", "box_loss", "box_iou_loss")
    for name, value, divisor in zip(names, expected, (5.0, 20.0, 20.0)):  # P is 4
        assert float(terms[name]) == pytest.approx(value / divisor, rel=1e-5), name


def test_positives_momentum_acts_as_there():
    """It makes `n` smaller, by a moving average that starts from zero in every step."""
    arguments = ([[2, -1]], [[[0.5, 0, 0, 0], [0] * 4]], np.zeros((1, 2, 3)))
    arguments += (np.zeros((1, 2, 4)), [[0, 0, 8, 8], [0, 8, 8, 16]])
    plain = float(DetectionLoss()(*arguments)["loss"])
    slow = float(DetectionLoss(positives_momentum=0.9)(*arguments)["loss"])
    assert slow == pytest.approx(10 * plain, rel=1e-5)
    replicas = float(DetectionLoss(positives_momentum=-1.0)(*arguments)["loss"])
    assert replicas == plain


@pytest.mark.parametrize(
    "wrong",
    [{"class_weights": (1.0, -1.0)}, {"positives_momentum": 1.0}],
)
def test_weights_and_momentum_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        DetectionLoss(**wrong)


def test_a_weight_per_class_is_asked_for():
    with pytest.raises(ValueError, match="3 numbers"):
        focal_loss([[1]], np.zeros((1, 1, 3)), class_weights=(1.0, 2.0))
