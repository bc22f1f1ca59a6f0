"""Why an AP50 is low: from numbers by hand, and from detections."""

import dataclasses

import numpy as np
import pytest
from support.image_results import image_result

from effdet_keras.evaluate.diagnosis import ap50_of_boxes, diagnose
from effdet_keras.evaluate.evaluation import analyze_results

CHANCE, NOT_LEARNED, TOO_FEW = "near chance", "not even learned", "more training"


@pytest.mark.parametrize(
    ("ap50", "boxes_ap50", "num_classes", "train_ap50", "expected"),
    [
        (0.21, 0.95, 6, -1.0, CHANCE),  # six playing cards, not learned
        (0.21, 0.95, 6, 0.22, CHANCE),
        (0.62, 0.95, 6, -1.0, None),  # the same cards, learned
        (0.40, 0.95, 6, -1.0, None),  # away from chance
        (0.40, 0.95, 6, 0.42, NOT_LEARNED),
        (0.21, 0.95, 6, 0.90, TOO_FEW),
        (0.45, 0.60, 6, 0.55, None),  # learned about as well as others
        (0.50, 0.95, 2, -1.0, CHANCE),
        (0.66, 0.95, 2, -1.0, None),
        (0.01, 0.95, 90, -1.0, CHANCE),
        (0.10, 0.10, 1, -1.0, None),  # one class cannot be confused
        (0.10, 0.10, 1, 0.10, NOT_LEARNED),
        (0.02, 0.12, 6, -1.0, None),  # no boxes either
        (0.02, -1.0, 6, -1.0, None),  # too few objects to tell
        (-1.0, -1.0, 6, 0.10, None),
    ],
)
def test_numbers_by_hand(ap50, boxes_ap50, num_classes, train_ap50, expected):
    found = diagnose(ap50, boxes_ap50, num_classes, train_ap50)
    assert (found is None) == (expected is None)
    assert expected is None or (expected in found and f"{ap50:.2f}" in found)


def detections(seed, is_shuffled):
    """Thirty images with an object, and a detection of it of each of six classes."""
    rng = np.random.default_rng(seed)
    for image_id, label in enumerate(rng.integers(0, 6, 30)):
        box, scores = (8, 8, 40, 40), np.linspace(0.1, 0.2, 6)
        scores[label] = 0.9
        scores = rng.permutation(scores) if is_shuffled else scores
        scores = scores * (image_id + 5) / 35  # second ones before others' first ones
        found = [(k, score, *box) for k, score in enumerate(scores)]
        yield image_result([(label, *box)], found, image_id=image_id)


def test_shuffled_classes_are_called_near_chance_and_right_ones_are_not():
    for is_shuffled in (True, False):
        results = list(detections(5, is_shuffled))
        evaluation = analyze_results(results, list("abcdef"))
        assert ap50_of_boxes(results) == 1.0  # the other five are no second detection
        said = evaluation.diagnosis is not None
        assert said == is_shuffled == (CHANCE in evaluation.findings[0])
        assert (CHANCE in str(evaluation)) == is_shuffled


def test_crowds_and_fewer_than_twenty_objects_tell_nothing():
    results = list(detections(5, is_shuffled=True))
    assert ap50_of_boxes(results[:19]) == -1.0 < ap50_of_boxes(results[:20])
    crowd = dataclasses.replace(results[19], truth_is_crowd=[True])
    assert ap50_of_boxes([*results[:19], crowd]) == -1.0
