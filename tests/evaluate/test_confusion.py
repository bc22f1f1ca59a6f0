"""The confusion matrix: by hand, and by what its sums must be."""

import numpy as np
import pytest
from support.image_results import image_result, random_results

from effdet_keras.box_ops import pairwise_iou
from effdet_keras.evaluate.error_kinds import confusion_matrix


def matrix_of(truth, found, crowds=None, **arguments):
    one = image_result(truth, found, crowds=crowds)
    return confusion_matrix([one], 2, **arguments).tolist()


def test_a_matrix_by_hand():
    truth = [(0, 0, 0, 9, 9), (0, 20, 0, 29, 9), (1, 40, 0, 49, 9), (1, 60, 0, 69, 9)]
    found = [
        (0, 0.9, 0, 0, 9, 9),  # a as a
        (1, 0.8, 20, 0, 29, 9),  # a as b
        (1, 0.7, 40, 0, 49, 9),  # b as b
        (1, 0.6, 40, 0, 49, 8),  # once more: background as b
        (0, 0.5, 80, 0, 89, 9),  # background as a
    ]
    assert matrix_of(truth, found) == [[1, 1, 0], [0, 1, 1], [1, 1, 0]]


def test_the_best_iou_goes_first_whatever_its_class_and_its_score():
    truth = [(0, 0, 0, 10, 10)]
    found = [(0, 0.9, 0, 0, 10, 8), (1, 0.4, 0, 0, 10, 9)]
    assert matrix_of(truth, found) == [[0, 1, 0], [0, 0, 0], [1, 0, 0]]


def test_of_equal_iou_that_of_its_own_class_goes_first():
    """Doubled detections, one per class, as NMS per class leaves them."""
    truth = [(0, 0, 0, 10, 10)]
    found = [(1, 0.9, 0, 0, 10, 9), (0, 0.4, 0, 0, 10, 9)]
    assert matrix_of(truth, found) == [[1, 0, 0], [0, 0, 0], [0, 1, 0]]
    # One detection between two objects that it overlaps alike.
    truth = [(0, 0, 0, 10, 10), (1, 0, 0, 10, 10)]
    assert matrix_of(truth, [(1, 0.9, 0, 0, 10, 9)]) == [[0, 0, 1], [0, 1, 0], [0] * 3]


def test_a_detection_that_loses_one_object_takes_the_next():
    truth = [(0, 0, 0, 10, 10), (1, 0, 3, 10, 13)]
    found = [(0, 0.9, 0, 0, 10, 10), (0, 0.8, 0, 1, 10, 11)]
    assert matrix_of(truth, found) == [[1, 0, 0], [1, 0, 0], [0, 0, 0]]


def test_scores_below_the_threshold_are_left_out():
    truth, found = [(0, 0, 0, 9, 9)], [(0, 0.6, 0, 0, 9, 9)]
    missed = [[0, 0, 1], [0, 0, 0], [0, 0, 0]]
    assert matrix_of(truth, found, score_threshold=0.6)[0] == [1, 0, 0]
    assert matrix_of(truth, found, score_threshold=0.61) == missed


def test_crowds_are_not_counted_nor_what_lies_in_them():
    truth = [(0, 0, 0, 40, 40), (0, 0, 0, 9, 9)]
    found = [
        (0, 0.9, 0, 0, 9, 9),  # in the crowd, but has found an object
        (0, 0.8, 20, 20, 29, 29),
        (1, 0.7, 20, 20, 29, 29),
        (0, 0.6, 0, 35, 9, 65),  # a sixth of it in the crowd
    ]
    expected = [[1, 0, 0], [0, 0, 0], [1, 0, 0]]
    assert matrix_of(truth, found, crowds=[True, False]) == expected


def test_images_add_up():
    results = random_results(0)
    singles = [confusion_matrix([result], 3) for result in results]
    assert confusion_matrix(results, 3).tolist() == np.sum(singles, 0).tolist()
    assert confusion_matrix([], 3).tolist() == np.zeros((4, 4)).tolist()


@pytest.mark.parametrize("score_threshold", [0.0, 0.5])
@pytest.mark.parametrize("seed", range(3))
def test_sums_are_counts(seed, score_threshold):
    results = random_results(seed)
    matrix = confusion_matrix(results, 3, score_threshold=score_threshold)
    objects = [result.truth_labels[~result.truth_is_crowd] for result in results]
    counts = np.bincount(np.concatenate(objects), minlength=3)
    assert matrix[:3].sum(axis=1).tolist() == counts.tolist()
    assert matrix[3, 3] == 0
    # Without crowd regions all that is shown is counted.
    free = [result for result in results if not result.truth_is_crowd.any()]
    shown = [result.above(score_threshold).labels for result in free]
    matrix = confusion_matrix(free, 3, score_threshold=score_threshold)
    counts = np.bincount(np.concatenate(shown).astype(int), minlength=3)
    assert matrix[:, :3].sum(axis=0).tolist() == counts.tolist()
    assert len(free) > 3


@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_slow_definition(seed):
    results = random_results(seed)
    expected = np.zeros((4, 4), int)
    for result in results:
        slow_count(result.above(0.4), expected)
    found = confusion_matrix(results, 3, score_threshold=0.4)
    assert found.tolist() == expected.tolist()


def slow_count(result, matrix):
    """Takes the best pair of what is left, until no pair overlaps by half."""
    iou = pairwise_iou(result.truth_boxes, result.boxes)
    objects = [row for row in range(len(iou)) if not result.truth_is_crowd[row]]
    found = list(range(len(result.boxes)))
    while True:
        pairs = [
            (iou[i, j], result.truth_labels[i] == result.labels[j], -j, i)
            for i in objects
            for j in found
            if iou[i, j] >= 0.5
        ]
        if not pairs:
            break
        _, _, minus_j, i = max(pairs, key=lambda pair: (*pair[:3], -pair[3]))
        matrix[result.truth_labels[i], result.labels[-minus_j]] += 1
        objects.remove(i)
        found.remove(-minus_j)
    for i in objects:
        matrix[result.truth_labels[i], 3] += 1
    for j in found:
        if not any(in_crowd(result, i, j) for i in range(len(iou))):
            matrix[3, result.labels[j]] += 1


def in_crowd(result, i, j):
    y1, x1, y2, x2 = result.boxes[j]
    top, left, bottom, right = result.truth_boxes[i]
    height = max(0, min(y2, bottom) - max(y1, top))
    width = max(0, min(x2, right) - max(x1, left))
    area = (y2 - y1) * (x2 - x1)
    return bool(result.truth_is_crowd[i]) and 2 * height * width >= area > 0
