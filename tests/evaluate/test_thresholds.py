"""Thresholds with the best F1, calibration, and the settings made of both."""

import json
import math

import numpy as np
import pytest
from support.image_results import image_result

from effdet_keras.evaluate.evaluation import analyze_results
from effdet_keras.evaluate.thresholds import (
    ScoreSettings,
    apply_temperature,
    best_thresholds,
    find_temperature,
)
from effdet_keras.extras.analysis.curves import measure_calibration

OBJECTS = [(0, 20 * row, 0, 20 * row + 9, 9) for row in range(4)]
NOTHING = (0, 0.0, 500, 500, 509, 509)


def found(row, score):
    """A detection of an object of `OBJECTS`."""
    return (0, score, *OBJECTS[row][1:])


def wrong(score):
    return (0, score, *NOTHING[2:])


THRESHOLDS = {
    "at 0.7: 3 right and 1 wrong of 4 objects, F1 3/4; at 0.9: 2 of 2, F1 2/3": (
        OBJECTS,
        [found(0, 0.9), found(1, 0.9), wrong(0.8), found(2, 0.7), wrong(0.6)],
        (0.7, 0.75, 0.75, 0.75),
    ),
    "all of one score or none: alone the right one, which is first, had F1 1": (
        OBJECTS[:1],
        [found(0, 0.8), wrong(0.8)],
        (0.8, 2 / 3, 0.5, 1),
    ),
    "of one F1 the highest: 1 right of 1, or 2 right of 4, of 2 objects": (
        OBJECTS[:2],
        [found(0, 0.9), wrong(0.5), wrong(0.5), found(1, 0.5)],
        (0.9, 2 / 3, 1, 0.5),
    ),
    "nothing is found": (OBJECTS, [], (math.inf, 0, -1, 0)),
    "nothing is found rightly": (OBJECTS, [wrong(0.9)], (math.inf, 0, -1, 0)),
}


@pytest.mark.parametrize("case", THRESHOLDS)
def test_a_threshold_by_hand(case):
    truth, detections, expected = THRESHOLDS[case]
    [best, _] = best_thresholds([image_result(truth, detections)], ["a"])
    assert best[1:] == pytest.approx(expected)


# --- Calibration: by hand, and of scores that were made with a known temperature.

BOX, ELSEWHERE = (0, 0, 8, 8), (20, 20, 28, 28)


def results_with(scores, is_right):
    """One image for each score, with an object that is or is not found."""
    return [
        image_result(
            [(0, *BOX)], [(0, score, *(BOX if right else ELSEWHERE))], image_id=i
        )
        for i, (score, right) in enumerate(zip(scores, is_right))
    ]


def calibrated(num=4000, seed=0):
    """Scores that are the chance to be right."""
    rng = np.random.default_rng(seed)
    scores = rng.uniform(0.02, 0.98, num)
    return scores, rng.random(num) < scores


@pytest.mark.filterwarnings("error")
def test_bins_by_hand():
    scores, is_right = [0.05, 0.3, 0.5, 0.55, 0.9, 1.0], [0, 1, 0, 1, 1, 1]
    found = measure_calibration(results_with(scores, is_right), num_bins=4)
    assert found.edges.tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert found.counts.tolist() == [1, 2, 1, 2]  # 0.5 is in the lower bin
    assert found.mean_scores == pytest.approx([0.05, 0.4, 0.55, 0.95])
    assert found.precisions == pytest.approx([0, 0.5, 1, 1])
    gaps = 1 * 0.05 + 2 * 0.1 + 1 * 0.45 + 2 * 0.05
    assert found.expected_error == pytest.approx(gaps / 6)
    # An empty bin has no precision, and no part in the error.
    found = measure_calibration(results_with([0.1, 0.9], [0, 1]), num_bins=3)
    assert np.isnan(found.precisions).tolist() == [False, True, False]
    assert found.expected_error == pytest.approx(0.1)
    of_nothing = measure_calibration([image_result([(0, *BOX)])])
    assert of_nothing.counts.sum() == 0 and np.isnan(of_nothing.expected_error)


@pytest.mark.parametrize(("is_crowd", "count"), [(True, 1), (False, 2)])
def test_a_detection_in_a_crowd_does_not_count(is_crowd, count):
    truth, inside = [(0, 0, 0, 8, 8), (0, 20, 20, 60, 60)], (0, 0.8, 30, 30, 36, 36)
    found = [(0, 0.9, *BOX), inside]
    result = image_result(truth, found, crowds=[False, is_crowd])
    assert measure_calibration([result]).counts.sum() == count


@pytest.mark.parametrize("known", [0.4, 1, 2.5])
def test_a_known_temperature_is_found_again(known):
    scores, is_right = calibrated()
    results = results_with(apply_temperature(scores, 1 / known), is_right)
    found = find_temperature(results)
    assert found == pytest.approx(known, rel=0.06)
    before = measure_calibration(results).expected_error
    assert before < 0.03 if known == 1 else before > 0.1
    scores = apply_temperature([float(x.scores[0]) for x in results], found)
    cured = results_with(scores, is_right)
    assert measure_calibration(cured).expected_error < 0.03


def test_the_temperature_has_the_smallest_negative_log_likelihood():
    scores, is_right = calibrated(300, seed=1)
    scores = scores**2
    found = find_temperature(results_with(scores, is_right))

    def loss(temperature):
        chance = apply_temperature(scores, temperature)
        return -np.sum(np.log(np.where(is_right, chance, 1 - chance)))

    assert loss(found) < min(loss(found * 1.01), loss(found / 1.01))


@pytest.mark.parametrize("is_right", [[], [1, 1], [0, 0]])
def test_a_temperature_needs_right_and_wrong_detections(is_right):
    assert find_temperature(results_with([0.3, 0.8], is_right)) is None


# --- `ScoreSettings`, and what an evaluation makes of its results.

NAMES = ["cat", "dog"]


def test_an_evaluation_gives_each_class_its_best_threshold():
    truth = [(0, *BOX), (1, *ELSEWHERE)]
    cat, dog, wrong = (0, 0.75, *BOX), (1, 0.5, *ELSEWHERE), (1, 0.25, *BOX)
    evaluation = analyze_results([image_result(truth, [cat, dog, wrong])], NAMES)
    assert evaluation.score_settings().thresholds == (0.75, 0.5)
    # By name; a class that the evaluation does not know gets the score for all.
    names = ["bird", "dog", "cat"]
    shown = evaluation.shown_score
    assert evaluation.score_settings(names).thresholds == (shown, 0.5, 0.75)
    with pytest.raises(ValueError, match=r"missing=\['dog'\]"):
        evaluation.score_settings(["cat"])
    # So does a class that nothing finds.
    evaluation = analyze_results([image_result(truth, [cat])], NAMES)
    assert evaluation.score_settings() == ScoreSettings((0.75, 0.75), None)
    nothing = analyze_results([image_result(truth, [wrong])], NAMES)
    with pytest.raises(ValueError, match="No detection is right"):
        nothing.score_settings()


@pytest.mark.parametrize("wrong, is_kept", [(1, True), (20, False)])
def test_a_temperature_that_says_nothing_is_left_out(wrong, is_kept):
    found = [(0, 0.9, *BOX)]
    found += [(0, 0.9, 40 + 10 * i, 0, 48 + 10 * i, 8) for i in range(wrong)]
    found += [(0, 0.1, 60 + 10 * i, 50, 68 + 10 * i, 58) for i in range(2)]
    evaluation = analyze_results([image_result([(0, *BOX)], found)], ["cat"])
    assert evaluation.temperature is not None
    expected = evaluation.temperature if is_kept else None
    assert evaluation.score_settings().temperature == expected


def test_settings_survive_json_bit_by_bit():
    settings = ScoreSettings((0.1 + 0.2, 1 / 3), temperature=10 / 7)
    again = ScoreSettings.from_dict(json.loads(json.dumps(settings.to_dict())))
    assert again == settings
