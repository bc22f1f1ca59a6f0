"""ATSS: against its definition, anchor by anchor, and by hand."""

import numpy as np
import pytest
from keras import ops
from support.matches import assert_one_graph_serves_any_sizes, random_truth

from effdet_keras import box_ops
from effdet_keras.model.anchors import generate_anchors, level_sizes
from effdet_keras.train.matching import match_atss

LEVELS = level_sizes((64, 96), 3, 5)
ANCHORS = generate_anchors((64, 96), max_level=5)


def match(boxes, labels, *, top_k=9, anchors=ANCHORS, levels=LEVELS):
    boxes, labels = np.asarray(boxes, "float32"), np.asarray(labels, "int32")
    found = match_atss(boxes, labels, anchors, level_sizes=levels, top_k=top_k)
    return tuple(ops.convert_to_numpy(x) for x in found)


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


def defined_matches(boxes, labels, top_k):
    """The row that each anchor of one image goes to, from the definition."""
    wish = np.zeros((len(boxes), len(ANCHORS)))
    for row, (box, label) in enumerate(zip(boxes, labels)):
        if label < 0:
            continue
        near = candidates(box, top_k)
        iou = box_ops.pairwise_iou(box[None], ANCHORS[near])[0]
        limit = iou.mean() + iou.std(ddof=1)
        centers = (ANCHORS[near, :2] + ANCHORS[near, 2:]) / 2
        inside = ((centers > box[:2]) & (centers < box[2:])).all(axis=1)
        taken = inside & (iou >= limit)
        wish[row, near[taken]] = iou[taken]
        wish[row, near[iou.argmax()]] += iou.max() + 1
    return np.where(wish.max(axis=0) > 0, wish.argmax(axis=0), -1)


@pytest.mark.parametrize(
    "top_k",
    [9, *(pytest.param(k, marks=pytest.mark.slow_elsewhere) for k in (1, 4, 30))],
)
def test_targets_equal_their_definition(top_k):
    boxes, labels = random_truth(1, 3, 12)
    classes, deltas = match(boxes, labels, top_k=top_k)
    for i in range(3):
        rows = defined_matches(boxes[i], labels[i], top_k)
        np.testing.assert_array_equal(
            classes[i], np.where(rows < 0, -1, labels[i][rows])
        )
        positive = rows >= 0
        decoded = box_ops.decode_boxes(deltas[i][positive], ANCHORS[positive])
        np.testing.assert_allclose(decoded, boxes[i][rows[positive]], atol=1e-3)
        assert not deltas[i][~positive].any()


@pytest.mark.slow_elsewhere
def test_the_threshold_by_hand():
    """One level of 1 x 3 places, one square anchor of 8 pixels each."""
    anchors = generate_anchors(
        (8, 24),
        **{"min_level": 3, "max_level": 3, "num_scales": 1},
        **{"aspect_ratios": (1.0,), "anchor_scale": 1.0},
    )
    np.testing.assert_array_equal(anchors[1], [0, 8, 8, 16])

    def classes(box):
        return match([[box]], [[2]], anchors=anchors, levels=[(1, 3)])[0].tolist()

    # IoU 1/2, 1/2, 0: mean 1/3, deviation 0.289, and 0.62 is too much for both. The
    # first is claimed all the same.
    assert classes([0, 0, 8, 16]) == [[2, -1, -1]]
    # IoU 0, 1, 0: mean 1/3, deviation 0.577.
    assert classes([0, 8, 8, 16]) == [[-1, 2, -1]]
    # IoU 1/3 each: no deviation, and all are as good as the mean.
    assert classes([0, 0, 8, 24]) == [[2, 2, 2]]


@pytest.mark.slow_elsewhere
def test_a_box_that_would_have_none_comes_first():
    small, large = [20, 20, 24, 24], [10, 10, 40, 40]
    for boxes, labels in (([small, large], [1, 2]), ([large, small], [2, 1])):
        classes, _ = match([boxes], [labels])
        assert set(classes[0]) == {-1, 1, 2}


@pytest.mark.slow_elsewhere
def test_equal_boxes_give_their_anchors_to_the_first():
    box = [8, 8, 40, 40]
    alone, _ = match([[box]], [[3]])
    both, _ = match([[box, box]], [[3, 4]])
    np.testing.assert_array_equal(both, alone)


@pytest.mark.slow_elsewhere
@pytest.mark.parametrize("num_boxes", [0, 1, 5])
def test_image_without_objects_is_all_background(num_boxes):
    classes, deltas = match(np.zeros((2, num_boxes, 4)), np.full((2, num_boxes), -1))
    assert (classes == -1).all() and classes.shape == (2, len(ANCHORS))
    assert (deltas == 0).all() and deltas.shape == (2, len(ANCHORS), 4)


@pytest.mark.slow_elsewhere
def test_padding_never_matches():
    boxes, labels = random_truth(2, 1, 6)
    expected = match(boxes, labels)
    for row, label in [
        ([0, 0, 0, 0], -1),
        ([0, 0, 64, 96], -1),  # a real box whose label says padding
        ([5, 5, 5, 20], 2),  # a real label whose box is empty
        ([9, 9, 3, 3], 2),
        ([np.nan] * 4, 2),
    ]:
        padded = np.concatenate([[[row]], boxes], axis=1)
        found = match(padded, np.concatenate([[[label]], labels], axis=1))
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_array_equal(found[1], expected[1])


@pytest.mark.slow_elsewhere
def test_batch_equals_its_images_one_by_one():
    boxes, labels = random_truth(3, 4, 7)
    together = match(boxes, labels)
    for i in range(4):
        alone = match(boxes[i : i + 1], labels[i : i + 1])
        np.testing.assert_array_equal(together[0][i], alone[0][0])
        np.testing.assert_allclose(together[1][i], alone[1][0], atol=1e-5)


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_one_graph_serves_any_number_of_images_and_boxes(jit_compile):
    assert_one_graph_serves_any_sizes(
        lambda boxes, labels: match_atss(boxes, labels, ANCHORS, level_sizes=LEVELS),
        len(ANCHORS),
        jit_compile,
    )


@pytest.mark.parametrize("wrong", [{"top_k": 0}, {"levels": [(8, 12), (4, 6)]}])
def test_wrong_arguments_are_named(wrong):
    with pytest.raises(ValueError, match="`level_sizes`.*`top_k`"):
        match(*random_truth(8, 1, 2), **wrong)
