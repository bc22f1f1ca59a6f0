"""Precision-recall curves: by hand, and against COCO's evaluation itself."""

import numpy as np
import pytest
from support.image_results import (
    coco_numbers,
    image_result,
    of_one_class,
    random_results,
)

from effdet_keras.evaluate.coco import average_precisions
from effdet_keras.evaluate.curves import (
    as_one_class,
    interpolated_ap,
    precision_recall_curves,
)

NAMES = ["a", "b", "c"]


def test_a_curve_by_hand():
    first = image_result(
        [(0, 0, 0, 10, 10), (0, 20, 20, 30, 30), (1, 50, 50, 60, 60)],
        [(0, 0.9, 0, 0, 10, 10), (0, 0.6, 0, 0, 10, 9), (1, 0.8, 0, 0, 10, 10)],
    )
    second = image_result([(0, 0, 0, 10, 10)], [(0, 0.7, 0, 0, 10, 10)], image_id=2)
    a, b, c = precision_recall_curves([first, second], NAMES)
    assert (a.name, a.num_objects) == ("a", 3)
    assert a.scores.tolist() == [0.9, 0.7, 0.6]
    assert a.precision.tolist() == pytest.approx([1, 1, 2 / 3])
    assert a.recall.tolist() == pytest.approx([1 / 3, 2 / 3, 2 / 3])
    assert a.average_precision == pytest.approx(67 / 101)  # recalls 0 to 0.66
    assert (b.precision.tolist(), b.recall.tolist()) == ([0], [0])
    assert b.average_precision == 0
    assert (c.num_objects, len(c.scores), c.average_precision) == (0, 0, -1)


def test_the_threshold_decides_what_is_right():
    one = image_result([(0, 0, 0, 10, 10)], [(0, 0.9, 0, 0, 10, 7)])
    for threshold, expected in [(0.5, 1), (0.7, 1), (0.75, 0)]:
        [curve] = precision_recall_curves([one], ["a"], iou_threshold=threshold)
        assert curve.average_precision == expected


@pytest.mark.parametrize(
    ("truth", "expected"), [([], ([0], [-1])), ([(0, 0, 0, 40, 40)], ([], []))]
)
def test_without_objects_but_crowds_there_is_no_recall(truth, expected):
    one = image_result(truth, [(0, 0.9, 0, 0, 10, 10)], crowds=[True] * len(truth))
    [curve] = precision_recall_curves([one], ["a"])
    assert (curve.precision.tolist(), curve.recall.tolist()) == expected
    assert (curve.num_objects, curve.average_precision) == (0, -1)


def test_of_equal_scores_that_of_the_lower_image_id_comes_first():
    right = image_result([(0, 0, 0, 9, 9)], [(0, 0.5, 0, 0, 9, 9)], image_id=1)
    wrong = image_result([], [(0, 0.5, 0, 0, 9, 9)], image_id=2)
    for results in ([right, wrong], [wrong, right]):
        [curve] = precision_recall_curves(results, ["a"])
        assert curve.precision.tolist() == [1, 0.5]


def test_no_images():
    curves = precision_recall_curves([], NAMES)
    assert [curve.average_precision for curve in curves] == [-1, -1, -1]
    assert (average_precisions([], 1) == -1).all()


@pytest.mark.parametrize("seed", range(4))
def test_the_ap_of_a_class_is_cocos_ap50(seed):
    results = random_results(seed)
    curves = precision_recall_curves(results, NAMES)
    for label, curve in enumerate(curves):
        expected = coco_numbers(of_one_class(results, label), 1)["AP50"]
        assert curve.average_precision == pytest.approx(expected, abs=1e-9)
    assert curves[2].num_objects == 0 < len(curves[2].scores)


@pytest.mark.parametrize("seed", range(4))
def test_class_agnostic_is_cocos_with_one_label(seed):
    relabelled = as_one_class(random_results(seed))
    expected = coco_numbers(relabelled, 1)
    found = average_precisions(relabelled, 1)[..., 0].mean()
    assert found == pytest.approx(expected["AP"], abs=1e-9)
    for threshold, name in ((0.5, "AP50"), (0.75, "AP75")):
        [curve] = precision_recall_curves(relabelled, ["a"], iou_threshold=threshold)
        assert curve.average_precision == pytest.approx(expected[name], abs=1e-9)


def test_the_curve_of_a_whole_dataset_counts_each_detection_once():
    results = random_results(3)
    for curve in precision_recall_curves(results, NAMES):
        assert (np.diff(curve.scores) <= 0).all()
        assert (np.diff(curve.recall) >= 0).all()
        assert (curve.best_precision >= curve.precision).all()
        assert (np.diff(curve.best_precision) <= 0).all()


# --- COCO's 101-point AP of weighted detections, as draws need it


def ap(true, num_objects, counted=None):
    true = np.array(true, int)
    counted = np.ones_like(true) if counted is None else np.array(counted)
    return interpolated_ap(true, counted, num_objects)


@pytest.mark.parametrize(
    ("true", "num_objects", "expected"),
    [
        ([1], 1, 1.0),
        ([0], 1, 0.0),
        ([], 3, 0.0),
        ([0, 1], 1, 0.5),  # the precision at every recall is the best from there on
        ([1, 0], 1, 1.0),
        ([1], 2, 51 / 101),  # recalls 0 to 0.5
        ([1, 0, 1], 2, (51 + 50 * 2 / 3) / 101),
    ],
)
def test_an_interpolated_ap_by_hand(true, num_objects, expected):
    assert ap(true, num_objects) == pytest.approx(expected)


def test_what_does_not_count_is_not_there():
    assert ap([0, 1], 1, counted=[0, 1]) == 1


def test_a_weight_is_a_repetition():
    rng = np.random.default_rng(0)
    true, weights = rng.integers(0, 2, 30), rng.integers(0, 4, 30)
    repeated = np.repeat(true, weights)
    expected = ap(repeated, 2 * repeated.sum())
    assert ap(true * weights, 2 * repeated.sum(), weights) == pytest.approx(expected)


def test_rows_are_independent():
    true = np.array([[1, 0, 1], [0, 0, 1]])
    each = [float(ap(row, 2)) for row in true]
    assert ap(true, 2).tolist() == each
