"""COCO's 101-point AP: by hand; tests/evaluate/test_compare.py has pycocotools."""

import numpy as np
import pytest

from effdet_keras.evaluate.curves import interpolated_ap


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
def test_by_hand(true, num_objects, expected):
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
