"""`score_threshold="best"` and `calibrated`: what is shown, and with which scores."""

import types

import numpy as np
import pytest
from support.tiny import EAGER, Stream, batch, lively_model, tiny_model

import effdet_keras as ek
from effdet_keras.detect.detect import ScoreRule
from effdet_keras.evaluate.thresholds import ScoreSettings, apply_temperature

SCORES, LABELS = np.float32([0.9, 0.5, 0.5, 0.2]), np.array([0, 0, 1, 1])


def detector(thresholds=(0.6, 0.3), temperature=2.0):
    settings = ScoreSettings(thresholds, temperature)
    return types.SimpleNamespace(score_settings=settings)


def test_each_class_has_its_own_threshold():
    kept, scores = ScoreRule(detector(), "best").apply(SCORES, LABELS)
    assert kept.tolist() == [True, False, True, False]
    assert (scores == SCORES).all()


def test_a_temperature_changes_scores_and_not_what_best_finds():
    kept, scores = ScoreRule(detector(), "best", True).apply(SCORES, LABELS)
    assert kept.tolist() == [True, False, True, False]
    np.testing.assert_allclose(scores, apply_temperature(SCORES, 2.0), rtol=1e-6)


def test_a_number_is_compared_with_the_scores_that_are_returned():
    assert apply_temperature(0.2, 2.0) == pytest.approx(1 / 3)
    rule = ScoreRule(detector(), 0.3, True)
    assert rule.apply(SCORES, LABELS)[0].all()
    assert 0.1 < rule.lowest < 0.2  # of the model's own scores
    assert not ScoreRule(detector(), 0.3).apply(SCORES, LABELS)[0][3]


@pytest.mark.parametrize(
    "settings, arguments, words",
    [
        (None, ("best",), "needs a model with stored thresholds"),
        (None, (0.3, True), "needs a model with a stored temperature"),
        (ScoreSettings((0.5,)), (0.3, True), "needs a model with a stored temperature"),
    ],
)
def test_a_model_without_settings_says_how_to_get_them(settings, arguments, words):
    without = types.SimpleNamespace(score_settings=settings)
    with pytest.raises(RuntimeError, match=f"{words}.*--store-thresholds"):
        ScoreRule(without, *arguments)


@pytest.fixture(scope="module")
def model():
    return lively_model()


@pytest.fixture
def image():
    return np.random.default_rng(0).integers(0, 255, (96, 80, 3), "uint8")


def test_model_and_predictor_detect_with_stored_thresholds(model, image):
    found = model.detect(image, 0.0)
    thresholds = [float(np.median(found.scores[found.labels == i])) for i in range(3)]
    model.score_settings = ScoreSettings(thresholds, 2.0)
    expected = found[found.scores >= np.array(thresholds)[found.labels]]
    assert 0 < len(expected) < len(found)
    for one in (model, ek.Predictor(model)):
        best = one.detect(image, "best")
        np.testing.assert_array_equal(best.scores, expected.scores)
        np.testing.assert_array_equal(best.boxes, expected.boxes)
        calibrated = one.detect(image, "best", calibrated=True)
        np.testing.assert_array_equal(calibrated.boxes, expected.boxes)
        np.testing.assert_allclose(
            calibrated.scores, apply_temperature(expected.scores, 2.0), rtol=1e-6
        )


@pytest.mark.parametrize("options", [{"augment": True}, {"tiles": 64}])
def test_thresholds_are_for_what_was_fused(model, image, options):
    predictor = ek.Predictor(model)
    found = predictor.detect(image, 0.05, **options)
    thresholds = [float(np.median(found.scores[found.labels == i])) for i in range(3)]
    model.score_settings = ScoreSettings(thresholds, 2.0)
    found = predictor.detect(image, min(thresholds), **options)
    expected = found[found.scores >= np.array(thresholds)[found.labels]]
    best = predictor.detect(image, "best", calibrated=True, **options)
    assert 0 < len(expected) < len(found)
    np.testing.assert_allclose(
        best.scores, apply_temperature(expected.scores, 2.0), rtol=1e-5
    )


def test_other_weights_drop_the_settings(tmp_path):
    model = tiny_model()
    settings = ScoreSettings((0.5, 0.4, 0.3), 2.0)
    model.score_settings = settings
    assert type(model).from_config(model.get_config()).score_settings == settings
    model.compile(recipe="reference", run_eagerly=EAGER)
    model.train_on_batch(*batch())
    assert model.score_settings is None
    model.score_settings = settings
    model.fit(Stream(batch()), verbose=0)
    assert model.score_settings is None
    model.score_settings = settings
    path = tmp_path / "pets.weights.h5"
    model.save_weights(path)
    assert model.score_settings == settings
    model.load_weights(path)
    assert model.score_settings is None
