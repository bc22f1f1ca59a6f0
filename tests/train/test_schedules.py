"""Learning-rate schedules: against the reference, its definition, and Keras."""

import json

import keras
import numpy as np
import pytest
from keras import ops

from effdet_keras.train.recipe import Recipe
from effdet_keras.train.schedules import (
    Warmup,
    WarmupCosine,
    WarmupPolynomial,
    WarmupStepwise,
    named_schedule,
)

SCHEDULES = [
    WarmupCosine(0.08, total_steps=50, warmup_steps=7, warmup_init=0.01),
    WarmupStepwise(
        0.08, total_steps=50, drop_steps=(20, 30), warmup_steps=7, warmup_init=0.01
    ),
    WarmupPolynomial(0.08, total_steps=50, warmup_steps=7, warmup_init=0.01, power=2.0),
    Warmup(0.08, warmup_steps=7, warmup_init=0.01),
    Warmup(
        keras.optimizers.schedules.ExponentialDecay(0.08, 20, 0.5),
        warmup_steps=7,
        warmup_init=0.01,
    ),
]
each_schedule = pytest.mark.parametrize(
    "schedule", SCHEDULES, ids=lambda schedule: type(schedule).__name__
)


def rates(schedule, steps):
    return np.array([float(schedule(int(step))) for step in steps])


@pytest.fixture
def golden_case(golden):
    arrays = golden("f_schedules_ema.npz")
    table = json.loads(str(arrays["lr/table"]))

    def load(name):
        case = table[name]
        settings = {
            "name": case["lr_decay_method"],
            "warmup_init": case["lr_warmup_init"],
            "warmup_epochs": case["lr_warmup_epoch"],
        }
        recipe = Recipe(
            "reference", schedule=settings, learning_rate=case["learning_rate"]
        )
        schedule = recipe.resolve_schedule(
            batch_size=case["batch_size"],
            steps_per_epoch=case["steps_per_epoch"],
            epochs=case["num_epochs"],
        )
        steps, values = arrays[f"lr/{name}/steps"], arrays[f"lr/{name}/values"]
        return schedule, steps, values, case["derived"]

    return load


# float32 on both sides: a few units in the last place of the largest rate.
TOLERANCE = {"rtol": 1e-5, "atol": 1e-8}


@pytest.mark.parametrize("name", ["cosine_b8_w0", "stepwise", "polynomial"])
def test_rates_equal_the_reference(golden_case, name):
    schedule, steps, values, derived = golden_case(name)
    defined = steps <= derived["total_steps"]  # beyond: NaN in the reference
    assert defined.sum() > 150
    np.testing.assert_allclose(
        rates(schedule, steps[defined]), values[defined], **TOLERANCE
    )


@pytest.mark.parametrize("name", ["cosine_default", "cosine_b128_w5"])
def test_cosine_warm_up_equals_the_reference(golden_case, name):
    schedule, steps, values, derived = golden_case(name)
    warm = steps < derived["lr_warmup_step"]
    assert warm.sum() > 3
    np.testing.assert_allclose(rates(schedule, steps[warm]), values[warm], **TOLERANCE)


@pytest.mark.parametrize("name", ["cosine_default", "cosine_b128_w5"])
def test_cosine_follows_its_definition_where_the_reference_does_not(golden_case, name):
    schedule, steps, values, derived = golden_case(name)
    warm, total = derived["lr_warmup_step"], derived["total_steps"]
    after = steps[(steps >= warm) & (steps <= total)].astype("float64")
    defined = (
        derived["adjusted_learning_rate"]
        * (1 + np.cos(np.pi * (after - warm) / (total - warm)))
        / 2
    )
    # float32 cosines near their zero: absolute error of an ulp of the peak.
    np.testing.assert_allclose(rates(schedule, after), defined, rtol=1e-5, atol=2e-8)
    assert values[steps == total] > 1e-6  # the fault is in the golden array


@pytest.mark.parametrize("name", ["cosine_default", "stepwise", "polynomial"])
def test_the_settings_give_the_steps_of_the_reference(golden_case, name):
    schedule, _, _, derived = golden_case(name)
    assert schedule.total_steps == derived["total_steps"]
    assert schedule.warmup_steps == derived["lr_warmup_step"]
    assert schedule.learning_rate == pytest.approx(derived["adjusted_learning_rate"])


def test_cosine_is_continuous_falls_and_ends_at_zero():
    schedule = WarmupCosine(1.0, total_steps=200, warmup_steps=50, warmup_init=0.2)
    values = rates(schedule, range(230))
    assert values[0] == pytest.approx(0.2)
    assert values[50] == pytest.approx(1.0)
    assert np.abs(np.diff(values)).max() < 0.02
    assert np.all(np.diff(values[50:201]) < 0)
    np.testing.assert_array_equal(values[200:], 0.0)


def test_polynomial_is_zero_beyond_the_last_step():
    schedule = WarmupPolynomial(1.0, total_steps=10)
    np.testing.assert_array_equal(rates(schedule, [10, 11, 1000]), 0.0)


def test_stepwise_by_hand():
    schedule = WarmupStepwise(1.0, total_steps=9, drop_steps=(3, 6), warmup_steps=2)
    np.testing.assert_allclose(
        rates(schedule, range(9)), [0, 0.5, 1, 0.1, 0.1, 0.1, 0.01, 0.01, 0.01]
    )


def test_without_warm_up_the_first_rate_is_the_full_one():
    schedule = WarmupCosine(0.5, total_steps=10, warmup_init=0.1)
    assert float(schedule(0)) == pytest.approx(0.5)


def test_a_warm_up_longer_than_the_training_is_cut():
    cosine = {"name": "cosine", "warmup_epochs": 3.0}
    schedule = named_schedule(
        cosine, 0.1, warmup_init=0.0, steps_per_epoch=10, epochs=1
    )
    assert schedule.warmup_steps == schedule.total_steps == 10
    assert np.all(np.isfinite(rates(schedule, range(12))))


@each_schedule
def test_config_rebuilds_the_schedule(schedule):
    config = keras.optimizers.schedules.serialize(schedule)
    rebuilt = keras.optimizers.schedules.deserialize(json.loads(json.dumps(config)))
    assert type(rebuilt) is type(schedule)
    assert rebuilt.get_config() == schedule.get_config()
    np.testing.assert_array_equal(rates(rebuilt, range(55)), rates(schedule, range(55)))


@each_schedule
def test_the_config_holds_every_argument(schedule):
    names = set(type(schedule).__init__.__code__.co_varnames[1:])
    arguments = names & set(schedule.get_config())
    code = type(schedule).__init__.__code__
    count = code.co_argcount + code.co_kwonlyargcount - 1
    assert len(arguments) == len(schedule.get_config()) == count


@each_schedule
def test_an_optimizer_uses_the_rate_of_the_step_before_its_update(schedule):
    optimizer = keras.optimizers.SGD(schedule)
    weight = keras.Variable(0.0)
    for step in range(9):
        before = float(ops.convert_to_numpy(weight))
        optimizer.apply([ops.ones(())], [weight])
        moved = before - float(ops.convert_to_numpy(weight))
        assert moved == pytest.approx(float(schedule(step)), rel=1e-4)


@pytest.mark.tensorflow
@each_schedule
def test_a_compiled_graph_gives_the_eager_rates(schedule):
    import tensorflow as tf

    compiled = tf.function(schedule)
    graph = [float(compiled(tf.constant(s, tf.int64))) for s in range(55)]
    np.testing.assert_allclose(graph, rates(schedule, range(55)), rtol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"learning_rate": -1.0}, "learning_rate=-1.0"),
        ({"learning_rate": float("nan")}, "learning_rate=nan"),
        ({"warmup_init": -0.1}, "warmup_init=-0.1"),
        ({"total_steps": 0}, "total_steps=0"),
        ({"warmup_steps": 11}, "warmup_steps=11, total_steps=10"),
        ({"warmup_steps": -1}, "warmup_steps=-1"),
    ],
)
def test_a_wrong_argument_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        WarmupCosine(**{"learning_rate": 0.1, "total_steps": 10, **arguments})


def test_a_warm_up_meets_the_schedule_that_it_leads_to():
    decay = keras.optimizers.schedules.ExponentialDecay(0.8, 10, 0.5)
    schedule = Warmup(decay, warmup_steps=10, warmup_init=0.2)
    # Half of 0.8 after ten steps: from 0.2 to 0.4, and on as without a warm-up.
    np.testing.assert_allclose(rates(schedule, [0, 5, 10, 20]), [0.2, 0.3, 0.4, 0.2])
    np.testing.assert_array_equal(
        rates(Warmup(decay), range(9)), rates(decay, range(9))
    )


@pytest.mark.parametrize("name", ["warmup_steps", "warmup_init"])
def test_a_warm_up_below_zero_is_named(name):
    with pytest.raises(ValueError, match=f"{name}=-1"):
        Warmup(0.1, **{name: -1})


def test_wrong_drops_power_and_holding_are_named():
    with pytest.raises(ValueError, match=r"drop_steps=\(5, 5\)"):
        WarmupStepwise(0.1, total_steps=10, drop_steps=(5, 5))
    with pytest.raises(ValueError, match="power=0"):
        WarmupPolynomial(0.1, total_steps=10, power=0)
    with pytest.raises(ValueError, match="hold_steps=-1"):
        WarmupCosine(0.1, total_steps=5, hold_steps=-1)


def test_the_cosine_waits_at_its_highest_rate():
    schedule = named_schedule(
        {"name": "cosine", "warmup_steps": 10, "hold_steps": 20},
        0.08,
        warmup_init=0.0,
        steps_per_epoch=10,
        epochs=5,
    )
    rates = [round(float(schedule(step)), 4) for step in (5, 10, 29, 30, 40, 50)]
    assert rates == [0.04, 0.08, 0.08, 0.08, 0.04, 0.0]
    again = type(schedule).from_config(schedule.get_config())
    assert float(again(40)) == float(schedule(40))
