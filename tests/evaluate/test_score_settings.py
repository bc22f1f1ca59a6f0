"""`ScoreSettings`, and what an evaluation makes of its results."""

import json

import pytest
from support.image_results import image_result

from effdet_keras.evaluate.evaluation import analyze_results
from effdet_keras.evaluate.thresholds import ScoreSettings

BOX, OTHER = (0, 0, 8, 8), (20, 20, 28, 28)


def test_an_evaluation_gives_each_class_its_best_threshold():
    result = image_result(
        [(0, *BOX), (1, *OTHER)], [(0, 0.75, *BOX), (1, 0.5, *OTHER), (1, 0.25, *BOX)]
    )
    evaluation = analyze_results([result], ["cat", "dog"])
    assert evaluation.score_settings().thresholds == (0.75, 0.5)
    # By name; a class that the evaluation does not know gets the score for all.
    names = ["bird", "dog", "cat"]
    shown = evaluation.shown_score
    assert evaluation.score_settings(names).thresholds == (shown, 0.5, 0.75)
    with pytest.raises(ValueError, match=r"missing: \['dog'\]"):
        evaluation.score_settings(["cat"])


def test_a_class_that_nothing_finds_gets_the_score_for_all():
    result = image_result([(0, *BOX), (1, *OTHER)], [(0, 0.75, *BOX)])
    settings = analyze_results([result], ["cat", "dog"]).score_settings()
    assert settings == ScoreSettings((0.75, 0.75), None)


def test_where_no_detection_is_right_there_are_no_settings():
    result = image_result([(0, *BOX)], [(0, 0.75, *OTHER)])
    with pytest.raises(ValueError, match="No detection is right"):
        analyze_results([result], ["cat"]).score_settings()


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


@pytest.mark.parametrize(
    "arguments",
    [([],), ([1.2],), ([float("nan")],), ([0.5], 0.0), ([0.5], float("inf"))],
)
def test_numbers_out_of_range_are_refused(arguments):
    with pytest.raises(ValueError, match="must be a"):
        ScoreSettings(*arguments)
