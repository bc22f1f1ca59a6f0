"""Learning-rate schedules: against the reference, its definition, and by name."""

import json

import keras
import numpy as np
import pytest

from effdet_keras.train.recipe import Recipe
from effdet_keras.train.schedules import (
    FlatWarmup,
    Warmup,
    WarmupCosine,
    WarmupPolynomial,
    named_schedule,
)

SCHEDULES = [
    WarmupCosine(0.08, total_steps=50, warmup_steps=7, warmup_init=0.01, hold_steps=5),
    WarmupPolynomial(0.08, total_steps=50, warmup_steps=7, warmup_init=0.01, power=2.0),
    Warmup(0.08, warmup_steps=7, warmup_init=0.01),
    *[
        kind(
            keras.optimizers.schedules.ExponentialDecay(0.08, 20, 0.5),
            warmup_steps=7,
            warmup_init=0.01,
        )
        for kind in (Warmup, FlatWarmup)
    ],
]
each_schedule = pytest.mark.parametrize(
    "schedule", SCHEDULES, ids=lambda schedule: type(schedule).__name__
)


def rates(schedule, steps):
    return np.array([float(schedule(int(step))) for step in steps])


CASES = ["cosine_default", "cosine_b8_w0", "cosine_b128_w5", "stepwise", "polynomial"]


@pytest.mark.parametrize("name", CASES)
def test_rates_equal_the_reference_but_for_its_cosine_after_a_warm_up(golden, name):
    arrays = golden("f_schedules_ema.npz")
    case = json.loads(str(arrays["lr/table"]))[name]
    settings = {
        "name": case["lr_decay_method"],
        "warmup_init": case["lr_warmup_init"],
        "warmup_epochs": case["lr_warmup_epoch"],
    }
    rate = case["learning_rate"]
    schedule = Recipe("reference", schedule=settings, learning_rate=rate)
    schedule = schedule.resolve_schedule(
        batch_size=case["batch_size"],
        steps_per_epoch=case["steps_per_epoch"],
        epochs=case["num_epochs"],
    )
    total, warm, rate = (
        case["derived"][key]
        for key in ("total_steps", "lr_warmup_step", "adjusted_learning_rate")
    )
    assert schedule.warmup_steps == warm
    if name != "stepwise":
        assert schedule.total_steps == total
        assert schedule.learning_rate == pytest.approx(rate)
    steps, expected = arrays[f"lr/{name}/steps"], arrays[f"lr/{name}/values"].copy()
    # float32 on both sides: a few units in the last place of the largest rate.
    tolerance = {"rtol": 1e-5, "atol": 1e-8}
    if warm and name.startswith("cosine"):
        assert expected[steps == total] > 1e-6  # the fault is in the golden array
        after = steps >= warm
        angle = np.pi * (steps[after].astype("float64") - warm) / (total - warm)
        expected[after] = rate * (1 + np.cos(angle)) / 2
        # Cosines near their zero: an absolute error of an ulp of the peak.
        tolerance["atol"] = 2e-8
    defined = steps <= total  # beyond: NaN in the reference
    assert defined.sum() > 150
    found = rates(schedule, steps[defined])
    np.testing.assert_allclose(found, expected[defined], **tolerance)


@pytest.mark.parametrize(
    ("schedule", "expected"),  # from step 0 on
    [
        (WarmupCosine(0.5, total_steps=10, warmup_init=0.1), [0.5]),
        (WarmupPolynomial(1.0, total_steps=2, power=1), [1, 0.5, 0, 0, 0]),
    ],
)
def test_rates_by_hand(schedule, expected):
    np.testing.assert_allclose(rates(schedule, range(len(expected))), expected)


@each_schedule
def test_config_rebuilds_the_schedule(schedule):
    config = keras.optimizers.schedules.serialize(schedule)
    rebuilt = keras.optimizers.schedules.deserialize(json.loads(json.dumps(config)))
    assert type(rebuilt) is type(schedule)
    assert rebuilt.get_config() == schedule.get_config()
    np.testing.assert_array_equal(rates(rebuilt, range(55)), rates(schedule, range(55)))


@pytest.mark.tensorflow
@each_schedule
def test_a_compiled_graph_gives_the_eager_rates(schedule):
    import tensorflow as tf

    compiled = tf.function(schedule)
    graph = [float(compiled(tf.constant(s, tf.int64))) for s in range(55)]
    np.testing.assert_allclose(graph, rates(schedule, range(55)), rtol=1e-6)


def test_a_warm_up_meets_the_schedule_that_it_leads_to():
    decay = keras.optimizers.schedules.ExponentialDecay(0.8, 10, 0.5)
    schedule = Warmup(decay, warmup_steps=10, warmup_init=0.2)
    # Half of 0.8 after ten steps: from 0.2 to 0.4, and on as without a warm-up.
    np.testing.assert_allclose(rates(schedule, [0, 5, 10, 20]), [0.2, 0.3, 0.4, 0.2])
    np.testing.assert_array_equal(
        rates(Warmup(decay), range(9)), rates(decay, range(9))
    )


# By name, or by a dict of a name and settings: 10 steps an epoch, 40 in all.

LENGTH = {"steps_per_epoch": 10, "epochs": 4}


@pytest.mark.parametrize(
    ("schedule", "expected"),  # at steps 0, 5, 10, 20, 39
    [
        ("constant", [1, 1, 1, 1, 1]),
        ({"name": "constant", "warmup_steps": 10}, [0, 0.5, 1, 1, 1]),
        (
            {"name": "exponential", "decay_steps": 10, "decay_rate": 0.25},
            [1, 0.5, 0.25, 0.0625, 0.25**3.9],
        ),
        (
            {
                "name": "exponential",
                "decay_steps": 10,
                "decay_rate": 0.25,
                "staircase": True,
            },
            [1, 1, 0.25, 0.0625, 0.25**3],
        ),
        (  # a warm-up rises to the rate that then holds, not to the first one
            {
                "name": "exponential",
                "decay_steps": 10,
                "decay_rate": 0.5,
                "warmup_steps": 10,
            },
            [0, 0.25, 0.5, 0.25, 0.5**3.9],
        ),
        (  # flat: one rate, behind which the decay begins
            {
                "name": "exponential",
                "decay_steps": 10,
                "decay_rate": 0.5,
                "warmup_steps": 10,
                "warmup_init": 0.2,
                "flat_warmup": True,
            },
            [0.2, 0.2, 1, 0.5, 0.5**2.9],
        ),
        (
            {"name": "manual_step", "boundaries": [5, 20], "rates": [3, 2, 1]},
            [3, 2, 2, 1, 1],
        ),
        (
            {
                "name": "manual_step",
                "boundaries": [20],
                "rates": [3, 1],
                "warmup_steps": 10,
                "warmup_init": 1.0,
            },
            [1, 2, 3, 1, 1],
        ),
        (
            {"name": "polynomial", "warmup_steps": 0, "power": 1.0},
            [1, 0.875, 0.75, 0.5, 0.025],
        ),
        ({"name": "cosine", "warmup_steps": 10, "warmup_init": 0.0}, [0, 0.5, 1]),
        ({"name": "cosine", "warmup_epochs": 2.0}, [0.1, 0.325, 0.55, 1]),
        ("Cosine", [0.1, 0.55, 1]),
        (  # it waits at its highest rate
            {"name": "cosine", "warmup_steps": 10, "hold_steps": 10},
            [0.1, 0.55, 1, 1, (1 + np.cos(0.95 * np.pi)) / 2],
        ),
        # A warm-up longer than the training is cut to it.
        ({"name": "cosine", "warmup_epochs": 9.0}, [0.1, 0.2125, 0.325, 0.55, 0.9775]),
    ],
    ids=str,
)
def test_rates_are_those_of_the_definition(schedule, expected):
    rate = named_schedule(schedule, 1.0, warmup_init=0.1, **LENGTH)
    steps = [0, 5, 10, 20, 39][: len(expected)]
    found = [float(rate(step)) if callable(rate) else rate for step in steps]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("cosin", "Did you mean 'cosine'.*schedule='cosin'"),
        ({"warmup_steps": 3}, "a dict with one of these as 'name'"),
        ({"name": "cosine", "warm_steps": 3}, "Did you mean 'warmup_steps'"),
        (
            {"name": "constant", "power": 3},
            "Its settings are: warmup_steps, warmup_init",
        ),
        ({"name": "exponential", "decay_steps": 0, "decay_rate": 1}, "decay_steps"),
    ],
    ids=str,
)
@pytest.mark.parametrize("optimizer", [None, "adam"])
def test_wrong_settings_are_named(schedule, message, optimizer):
    with pytest.raises(ValueError, match=message):
        Recipe(optimizer=optimizer, schedule=schedule)


MANUAL = {"name": "manual_step", "boundaries": [5], "rates": [3, 2]}
EXPONENTIAL = keras.optimizers.schedules.ExponentialDecay(0.1, 5, 0.5)


@pytest.mark.parametrize(
    ("optimizer", "schedule", "needed"),
    [
        (None, None, True),
        (None, "polynomial", True),
        (None, "constant", True),  # scaled to the batch
        ("adam", None, True),
        ("adam", "stepwise", True),
        ("adam", {"name": "stepwise", "total_steps": 90, "warmup_steps": 1}, True),
        ("adam", {"name": "cosine", "total_steps": 90, "warmup_steps": 1}, False),
        ("adam", "constant", False),
        ("adam", {"name": "exponential", "decay_steps": 5, "decay_rate": 0.5}, False),
        (keras.optimizers.Adam(), None, False),
        *[(name, s, False) for name in (None, "adam") for s in (MANUAL, EXPONENTIAL)],
    ],
)
def test_fit_looks_at_the_data_only_where_the_rate_depends_on_it(
    optimizer, schedule, needed
):
    assert Recipe(optimizer=optimizer, schedule=schedule).needs_length is needed
