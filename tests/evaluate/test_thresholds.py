"""The thresholds with the best F1: by hand, and by trying all of them."""

import math

import pytest
from support.image_results import image_result, of_one_class, random_results

from effdet_keras.evaluate.image_result import match_detections
from effdet_keras.evaluate.thresholds import BestThreshold, best_thresholds

OBJECTS = [(0, 20 * row, 0, 20 * row + 9, 9) for row in range(4)]
NOTHING = (0, 0.0, 500, 500, 509, 509)


def found(row, score):
    """A detection of an object of `OBJECTS`."""
    return (0, score, *OBJECTS[row][1:])


def wrong(score):
    return (0, score, *NOTHING[2:])


def test_a_threshold_by_hand():
    """At 0.7: 3 right and 1 wrong of 4 objects, F1 3/4; at 0.9: 2 of 2, F1 2/3."""
    detections = [found(0, 0.9), found(1, 0.9), wrong(0.8), found(2, 0.7), wrong(0.6)]
    [best, _] = best_thresholds([image_result(OBJECTS, detections)], ["a"])
    assert best == BestThreshold(
        "a", threshold=0.7, f1=0.75, precision=0.75, recall=0.75
    )


def test_a_threshold_shows_all_detections_of_its_score_or_none():
    """Of the two at 0.8 the right one comes first; alone it would have F1 = 1."""
    detections = [found(0, 0.8), wrong(0.8)]
    [best, _] = best_thresholds([image_result(OBJECTS[:1], detections)], ["a"])
    assert best.threshold == 0.8
    assert (best.f1, best.precision, best.recall) == (pytest.approx(2 / 3), 0.5, 1)


def test_of_thresholds_with_one_f1_the_highest_is_taken():
    """1 right of 1 shown, and 2 right of 4 shown, of 2 objects: F1 2/3 both."""
    detections = [found(0, 0.9), wrong(0.5), wrong(0.5), found(1, 0.5)]
    [best, _] = best_thresholds([image_result(OBJECTS[:2], detections)], ["a"])
    assert (best.threshold, best.f1) == (0.9, pytest.approx(2 / 3))


def test_where_nothing_is_found_rightly_nothing_is_shown():
    for detections in ([], [wrong(0.9)]):
        [best, _] = best_thresholds([image_result(OBJECTS, detections)], ["a"])
        assert best == BestThreshold("a", math.inf, f1=0, precision=-1, recall=0)


def test_without_objects_there_is_nothing_to_measure():
    for results in ([], [image_result([], [])], [image_result([], [wrong(0.9)])]):
        expected = BestThreshold("a", math.inf, f1=-1, precision=-1, recall=-1)
        common = expected._replace(name="all classes")
        assert best_thresholds(results, ["a"]) == [expected, common]


def test_a_common_threshold_by_hand():
    """A cat at 0.9; a dog at 0.4; a cat that is said to be a dog at 0.3."""
    truth = [(0, 0, 0, 9, 9), (1, 20, 0, 29, 9), (0, 40, 0, 49, 9)]
    detections = [
        (0, 0.9, 0, 0, 9, 9),
        (1, 0.4, 20, 0, 29, 9),
        (1, 0.3, 40, 0, 49, 9),
    ]
    [*_, best] = best_thresholds([image_result(truth, detections)], ["cat", "dog"])
    assert best == BestThreshold(
        "all classes", 0.4, f1=pytest.approx(4 / 5), precision=1, recall=2 / 3
    )


def slow_f1(results, threshold):
    """Of what a threshold shows, matched anew."""
    right = shown = objects = 0
    for result in results:
        matches = match_detections(result.above(threshold))
        right += matches.is_true.sum()
        shown += (~matches.is_ignored).sum()
        objects += (~result.truth_is_crowd).sum()
    return 2 * right / (shown + objects) if objects else -1


@pytest.mark.parametrize("seed", range(3))
def test_no_other_threshold_is_better(seed):
    results = random_results(seed)
    parts = [of_one_class(results, label) for label in range(3)]
    for best, part in zip(best_thresholds(results, "abc"), [*parts, results]):
        f1 = {step / 20: slow_f1(part, step / 20) for step in range(1, 21)}
        assert best.f1 == pytest.approx(max(f1.values()))
        if best.f1 > 0:
            assert best.f1 == pytest.approx(f1[best.threshold])
            assert best.f1 == pytest.approx(
                2 * best.precision * best.recall / (best.precision + best.recall)
            )
