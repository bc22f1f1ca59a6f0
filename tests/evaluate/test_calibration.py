"""Calibration: by hand, and of scores that were made with a known temperature."""

import numpy as np
import pytest
from support.image_results import image_result

from effdet_keras.evaluate.thresholds import (
    apply_temperature,
    find_temperature,
    measure_calibration,
)

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


def test_bins_by_hand():
    scores, is_right = [0.05, 0.3, 0.5, 0.55, 0.9, 1.0], [0, 1, 0, 1, 1, 1]
    found = measure_calibration(results_with(scores, is_right), num_bins=4)
    assert found.edges.tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert found.counts.tolist() == [1, 2, 1, 2]  # 0.5 is in the lower bin
    assert found.mean_scores == pytest.approx([0.05, 0.4, 0.55, 0.95])
    assert found.precisions == pytest.approx([0, 0.5, 1, 1])
    gaps = 1 * 0.05 + 2 * 0.1 + 1 * 0.45 + 2 * 0.05
    assert found.expected_error == pytest.approx(gaps / 6)


def test_an_empty_bin_has_no_precision_and_no_part_in_the_error():
    found = measure_calibration(results_with([0.1, 0.9], [0, 1]), num_bins=3)
    assert np.isnan(found.precisions).tolist() == [False, True, False]
    assert found.expected_error == pytest.approx(0.1)


@pytest.mark.filterwarnings("error")
def test_without_detections_nothing_is_known():
    found = measure_calibration([image_result([(0, *BOX)])])
    assert found.counts.sum() == 0
    assert np.isnan(found.expected_error)


def test_a_detection_in_a_crowd_does_not_count():
    truth, inside = [(0, 0, 0, 8, 8), (0, 20, 20, 60, 60)], (0, 0.8, 30, 30, 36, 36)
    crowd = image_result(truth, [(0, 0.9, *BOX), inside], crowds=[False, True])
    assert measure_calibration([crowd]).counts.sum() == 1
    no_crowd = image_result(truth, [(0, 0.9, *BOX), inside])
    assert measure_calibration([no_crowd]).counts.sum() == 2


def test_scores_that_are_chances_are_calibrated():
    results = results_with(*calibrated())
    assert measure_calibration(results).expected_error < 0.03
    assert find_temperature(results) == pytest.approx(1, abs=0.06)


@pytest.mark.parametrize("known", [0.4, 2.5])
def test_a_known_temperature_is_found_again(known):
    scores, is_right = calibrated()
    results = results_with(apply_temperature(scores, 1 / known), is_right)
    found = find_temperature(results)
    assert found == pytest.approx(known, rel=0.06)
    before = measure_calibration(results).expected_error
    assert before > 0.1
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


def test_scores_of_0_and_1_have_a_temperature_too():
    found = find_temperature(results_with([0.0, 1.0, 1.0], [0, 1, 0]))
    assert 1 < found <= 100


def test_scores_that_are_upside_down_get_the_highest_temperature():
    assert find_temperature(results_with([0.1, 0.9], [1, 0])) == pytest.approx(100)
    assert find_temperature(results_with([0.1, 0.9], [0, 1])) == pytest.approx(0.01)


@pytest.mark.parametrize("is_right", [[], [1, 1], [0, 0]])
def test_a_temperature_needs_right_and_wrong_detections(is_right):
    assert find_temperature(results_with([0.3, 0.8], is_right)) is None


def test_a_temperature_of_1_changes_nothing_and_none_changes_the_order():
    scores = np.r_[0.0, 1e-30, np.linspace(0.01, 0.99, 9), 1.0]
    assert apply_temperature(scores, 1.0) == pytest.approx(scores, rel=1e-12)
    for temperature in (0.2, 7.0):
        applied = apply_temperature(scores, temperature)
        assert (np.diff(applied) >= 0).all() and np.isfinite(applied).all()
        again = apply_temperature(applied, 1 / temperature)
        assert again == pytest.approx(scores, rel=1e-6)


@pytest.mark.parametrize(
    ("scores", "temperature", "message"),
    [
        *(([0.5], x, "`temperature` must be above 0") for x in (0.0, -1.0, np.nan)),
        *(
            (scores, 2.0, "`scores` must be within 0 and 1")
            for scores in ([-0.1, 0.5], [0.5, 3.0], [np.nan])
        ),
    ],
)
def test_what_is_no_temperature_and_no_probability_is_refused(
    scores, temperature, message
):
    with pytest.raises(ValueError, match=message):
        apply_temperature(scores, temperature)
