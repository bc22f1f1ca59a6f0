import keras
import numpy as np
import pytest
from keras import ops
from support.gradients import compiled
from support.matches import assert_one_graph_serves_any_sizes, random_truth

from effdet_keras import box_ops
from effdet_keras._internal.label_constants import BACKGROUND, IGNORE
from effdet_keras.model.anchors import generate_anchors
from effdet_keras.train.matching import match_anchors

ANCHORS = generate_anchors((64, 96), max_level=5)
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


def match(boxes, labels, anchors=ANCHORS, **options):
    found = match_anchors(
        np.asarray(boxes, "float32"), np.asarray(labels, "int32"), anchors, **options
    )
    return tuple(ops.convert_to_numpy(x) for x in found)


def defined_matches(boxes, labels, anchors, iou_threshold):
    """Targets of one image from the definition, anchor by anchor."""
    classes = np.full(len(anchors), -1, "int32")
    deltas = np.zeros((len(anchors), 4), "float32")
    real = [i for i, label in enumerate(labels) if label >= 0]
    if not real:
        return classes, deltas
    iou = box_ops.pairwise_iou(boxes[real], anchors)
    owner = {}
    for n in range(len(anchors)):
        if iou[:, n].max() >= iou_threshold:
            owner[n] = real[int(iou[:, n].argmax())]
    for i in reversed(range(len(real))):
        owner[int(iou[i].argmax())] = real[i]
    for n, i in owner.items():
        classes[n] = labels[i]
        deltas[n] = box_ops.encode_boxes(boxes[i : i + 1], anchors[n : n + 1])[0]
    return classes, deltas


# By hand.

SQUARES = np.array([[0, 0, 8, 8], [0, 8, 8, 16], [8, 0, 16, 8]], "float32")


def test_box_takes_the_anchor_on_it():
    classes, deltas = match([[[0, 8, 8, 16]]], [[4]], SQUARES)
    np.testing.assert_array_equal(classes, [[-1, 4, -1]])
    np.testing.assert_array_equal(deltas, np.zeros((1, 3, 4)))
    assert classes.dtype == "int32" and deltas.dtype == "float32"


def test_an_iou_at_the_threshold_is_enough():
    boxes, labels = [[[0, 0, 8, 16]]], [[2]]  # IoU 1/2 with the first two anchors
    classes, deltas = match(boxes, labels, SQUARES)
    np.testing.assert_array_equal(classes, [[2, 2, -1]])
    np.testing.assert_allclose(deltas[0, 1], [0, -0.5, 0, np.log(2)], atol=1e-6)
    classes, _ = match(boxes, labels, SQUARES, iou_threshold=0.51)
    np.testing.assert_array_equal(classes, [[2, -1, -1]])  # the first claims, forced


def test_a_far_box_claims_the_first_anchor():
    classes, _ = match([[[90, 90, 95, 95]]], [[1]], SQUARES)
    np.testing.assert_array_equal(classes, [[1, -1, -1]])


def test_first_of_two_claims_wins_and_the_loser_gets_nothing():
    boxes = [[[0, 0, 4, 4], [0, 0, 3, 3]]]  # neither reaches the threshold
    classes, deltas = match(boxes, [[7, 8]], SQUARES)
    np.testing.assert_array_equal(classes, [[7, -1, -1]])
    np.testing.assert_allclose(deltas[0, 0], [-0.25, -0.25, -np.log(2), -np.log(2)])
    classes, _ = match([boxes[0][::-1]], [[8, 7]], SQUARES)
    np.testing.assert_array_equal(classes, [[8, -1, -1]])


def test_a_claim_overrides_a_larger_overlap():
    boxes = [[[0, 0, 8, 8], [0, 0, 1, 1]]]
    classes, _ = match(boxes, [[1, 2]], SQUARES)
    np.testing.assert_array_equal(classes, [[1, -1, -1]])
    boxes = [[[0, 0, 8, 16], [0, 9, 7, 16]]]  # the second's best anchor is the second
    classes, _ = match(boxes, [[1, 2]], SQUARES)
    np.testing.assert_array_equal(classes, [[1, 2, -1]])
    boxes = [[[0, 0, 8, 7], [0, 8, 1, 9]]]  # an IoU of 1/64 is still a claim
    classes, _ = match(boxes, [[1, 2]], SQUARES)
    np.testing.assert_array_equal(classes, [[1, 2, -1]])


def test_equal_boxes_give_their_anchors_to_the_first():
    classes, _ = match([[[0, 0, 8, 16], [0, 0, 8, 16]]], [[3, 4]], SQUARES)
    np.testing.assert_array_equal(classes, [[3, 3, -1]])


# Padding.


@pytest.mark.slow_elsewhere
@pytest.mark.parametrize("num_boxes", [0, 1, 5])
def test_image_without_objects_is_all_background(num_boxes):
    classes, deltas = match(np.zeros((2, num_boxes, 4)), np.full((2, num_boxes), -1))
    assert (classes == BACKGROUND).all() and classes.shape == (2, len(ANCHORS))
    assert (deltas == 0).all() and deltas.shape == (2, len(ANCHORS), 4)


@pytest.mark.slow_elsewhere
def test_padding_never_matches():
    boxes, labels = random_truth(1, 1, 6)
    labels = np.abs(labels)
    expected = match(boxes, labels)
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
        found = match(padded, np.concatenate([[[label]], labels], axis=1))
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_array_equal(found[1], expected[1])


# By definition and by property.


@pytest.mark.parametrize("iou_threshold", [0.3, 0.5, 0.7])
def test_targets_equal_their_definition(iou_threshold):
    boxes, labels = random_truth(2, 3, 12)
    classes, deltas = match(boxes, labels, iou_threshold=iou_threshold)
    for i in range(3):
        expected = defined_matches(boxes[i], labels[i], ANCHORS, iou_threshold)
        np.testing.assert_array_equal(classes[i], expected[0])
        np.testing.assert_allclose(deltas[i], expected[1], rtol=1e-5, atol=1e-5)


@pytest.mark.slow_elsewhere
def test_batch_equals_its_images_one_by_one():
    boxes, labels = random_truth(3, 4, 7)
    together = match(boxes, labels)
    for i in range(4):
        alone = match(boxes[i : i + 1], labels[i : i + 1])
        np.testing.assert_array_equal(together[0][i], alone[0][0])
        # JAX fuses multiply and add differently for another shape.
        np.testing.assert_allclose(together[1][i], alone[1][0], atol=1e-5)


@pytest.mark.slow_elsewhere
def test_positives_decode_to_their_boxes():
    boxes, labels = random_truth(4, 1, 5)
    labels[0] = np.arange(5)
    classes, deltas = match(boxes, labels)
    positive = classes[0] >= 0
    decoded = box_ops.decode_boxes(deltas[0][positive], ANCHORS[positive])
    np.testing.assert_allclose(decoded, boxes[0][classes[0][positive]], atol=1e-3)
    assert positive.sum() >= 5


def test_compiled_equals_eager():
    boxes, labels = random_truth(5, 2, 6)
    expected = match(boxes, labels)
    found = compiled(lambda b, c: match_anchors(b, c, ANCHORS))(
        ops.convert_to_tensor(boxes), ops.convert_to_tensor(labels)
    )
    np.testing.assert_array_equal(ops.convert_to_numpy(found[0]), expected[0])
    # Compiled code fuses multiply and add.
    np.testing.assert_allclose(ops.convert_to_numpy(found[1]), expected[1], atol=1e-5)


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_one_graph_serves_any_number_of_images_and_boxes(jit_compile):
    assert_one_graph_serves_any_sizes(
        lambda boxes, labels: match_anchors(boxes, labels, ANCHORS),
        len(ANCHORS),
        jit_compile,
    )


def test_jax_traces_it_under_value_and_grad():
    if keras.backend.backend() != "jax":
        pytest.skip("needs the JAX backend")
    import jax

    boxes, labels = random_truth(7, 1, 4)

    @jax.jit
    @jax.value_and_grad
    def loss(weight):
        return ops.sum(match_anchors(boxes, labels, ANCHORS)[1]) * weight

    value, slope = loss(2.0)
    np.testing.assert_allclose(value, 2 * slope, rtol=1e-6)


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


@pytest.mark.parametrize("value", [0.0, -0.5, 1.5])
def test_wrong_threshold_is_named(value):
    with pytest.raises(ValueError, match=f"`iou_threshold`.*iou_threshold={value}"):
        match(*random_truth(8, 1, 2), iou_threshold=value)


@pytest.mark.parametrize(
    ("boxes", "labels", "anchors"),
    [
        ((2, 4), (2,), (5, 4)),
        ((1, 2, 4), (1, 2, 1), (5, 4)),
        ((1, 2, 4), (1, 3), (5, 4)),
        ((2, 2, 4), (1, 2), (5, 4)),
        ((1, 2, 4), (1, 2), (1, 5, 4)),
        ((1, 2, 5), (1, 2), (5, 4)),
        ((1, 2, 4), (1, 2), (5, 5)),
    ],
)
def test_wrong_shape_is_named(boxes, labels, anchors):
    with pytest.raises(ValueError, match=r"`(boxes|anchors)`.*shape="):
        match_anchors(np.zeros(boxes), np.zeros(labels, "int32"), np.zeros(anchors))
