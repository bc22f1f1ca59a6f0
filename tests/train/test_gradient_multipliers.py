"""Gradients multiplied by the paths of their variables."""

import types

import keras
import numpy as np
import pytest
from keras import ops
from support.tiny import batch, tiny_model

from effdet_keras.train.gradients import gradient_factors
from effdet_keras.train.recipe import Recipe

PATHS = ["backbone/stem/kernel", "class_head/predict/bias", "box_head/predict/bias"]
VARIABLES = [types.SimpleNamespace(path=path) for path in PATHS]


@pytest.mark.parametrize(
    ("multipliers", "expected"),
    [
        (None, [1.0, 1.0, 1.0]),
        ({"bias$": 2}, [1.0, 2.0, 2.0]),
        ({"bias$": 2.0, "class_head": 3.0}, [1.0, 2.0, 2.0]),  # the first that is found
        ({"class_head": 3.0, "bias$": 2.0}, [1.0, 3.0, 2.0]),
        ({"(backbone|box_head)/": 0.5}, [0.5, 1.0, 0.5]),
        ({"": 0.5}, [0.5, 0.5, 0.5]),
    ],
)
def test_the_first_expression_found_in_a_path_counts(multipliers, expected):
    assert gradient_factors(multipliers, VARIABLES) == expected


def test_an_expression_that_is_found_nowhere_names_paths_near_it():
    with pytest.raises(ValueError, match="'box_head/bias'.*box_head/predict/bias"):
        gradient_factors({"bias": 2.0, "box_head/bias": 2.0}, VARIABLES)


@pytest.mark.parametrize(
    ("multipliers", "error", "message"),
    [
        ({}, ValueError, "at least one pattern"),
        ([("bias", 2.0)], TypeError, "must be a dict"),
        ({"bias": 0}, ValueError, "above 0. For 0 use `freeze`"),
        ({"bias": -1.0}, ValueError, "above 0"),
        ({"bias": float("nan")}, ValueError, "above 0"),
        ({"bias": "2"}, ValueError, "'bias': '2'"),
        ({"bias": True}, ValueError, "'bias': True"),
        ({"(bias": 2.0}, ValueError, r"regular expressions.*'\(bias'"),
        ({3: 2.0}, ValueError, "regular expressions.*3"),
    ],
)
def test_wrong_multipliers_are_named(multipliers, error, message):
    with pytest.raises(error, match=message):
        Recipe(gradient_multipliers=multipliers)


def moved(**arguments):
    """How far each variable goes in one step of SGD without momentum."""
    keras.utils.set_random_seed(1)
    model = tiny_model()
    for layer in model._flatten_layers():
        if hasattr(layer, "survival_prob"):
            layer.survival_prob = 1.0
    model.compile(
        "sgd",
        schedule="constant",
        learning_rate=1e-2,
        run_eagerly=keras.backend.backend() == "tensorflow",
        **arguments,
    )
    before = [ops.convert_to_numpy(v).copy() for v in model.trainable_variables]
    logs = model.fit(*batch(), batch_size=2, verbose=0).history
    model.averages.restore()
    after = map(ops.convert_to_numpy, model.trainable_variables)
    steps = [a - b for a, b in zip(after, before, strict=True)]
    return {v.path: s for v, s in zip(model.trainable_variables, steps)}, logs


def test_a_step_is_multiplied_where_the_expression_is_found_and_only_there():
    plain, _ = moved(clip_norm=None)
    twice, _ = moved(clip_norm=None, gradient_multipliers={"bias$": 2.0, "fpn": 0.5})
    factors = {path: 0.5 if "fpn" in path else 1.0 for path in plain}
    factors |= {path: 2.0 for path in plain if path.endswith("bias")}
    assert set(factors.values()) == {0.5, 1.0, 2.0}
    for path, step in plain.items():
        # A step is the difference of weights up to 5, in float32; and two runs add a
        # gradient's terms in another order, at the scale of its largest.
        atol = 1e-6 + 1e-4 * np.abs(step).max()
        np.testing.assert_allclose(
            twice[path], factors[path] * step, rtol=1e-3, atol=atol, err_msg=path
        )


@pytest.mark.tensorflow
def test_gradients_are_multiplied_before_they_are_clipped():
    steps, logs = moved(clip_norm=0.1, gradient_multipliers={"": 1e6})
    norm = np.sqrt(sum(np.sum(step**2) for step in steps.values()))
    assert logs["gradient_norm"][0] == pytest.approx(0.1, rel=1e-3)
    assert norm == pytest.approx(1e-2 * 0.1, rel=1e-2)  # the rate times the limit
