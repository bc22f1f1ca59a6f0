"""Schedules by name or config."""

import keras
import numpy as np
import pytest

from effdet_keras.train.recipe import Recipe
from effdet_keras.train.schedules import named_schedule

LENGTH = {"steps_per_epoch": 10, "epochs": 4}


def rates(schedule, steps, learning_rate=1.0, warmup_init=0.1):
    rate = named_schedule(schedule, learning_rate, warmup_init=warmup_init, **LENGTH)
    return [float(rate(step)) if callable(rate) else rate for step in steps]


@pytest.mark.parametrize(
    ("schedule", "expected"),  # at steps 0, 5, 10, 20, 39
    [
        ("constant", [1, 1, 1, 1, 1]),
        ({"name": "constant", "warmup_steps": 10}, [0, 0.5, 1, 1, 1]),
        (
            {"name": "constant", "warmup_steps": 10, "warmup_init": 0.2},
            [0.2, 0.6, 1, 1, 1],
        ),
        (
            {"name": "exponential", "decay_steps": 10, "decay_rate": 0.25},
            [1, 0.5, 0.25, 0.0625, 0.25**3.9],
        ),
        (
            {
                **{"name": "exponential", "decay_steps": 10, "decay_rate": 0.25},
                **{"staircase": True},
            },
            [1, 1, 0.25, 0.0625, 0.25**3],
        ),
        (  # a warm-up rises to the rate that then holds, not to the first one
            {
                **{"name": "exponential", "decay_steps": 10, "decay_rate": 0.5},
                **{"warmup_steps": 10},
            },
            [0, 0.25, 0.5, 0.25, 0.5**3.9],
        ),
        (
            {"name": "manual_step", "boundaries": [5, 20], "rates": [3, 2, 1]},
            [3, 2, 2, 1, 1],
        ),
        (
            {"name": "manual_step", "boundaries": [6, 21], "rates": [3, 2, 1]},
            [3, 3, 2, 2, 1],
        ),
        (
            {
                **{"name": "manual_step", "boundaries": [20], "rates": [3, 1]},
                **{"warmup_steps": 10, "warmup_init": 1.0},
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
    ],
    ids=str,
)
def test_rates_are_those_of_the_definition(schedule, expected):
    steps = [0, 5, 10, 20, 39][: len(expected)]
    np.testing.assert_allclose(rates(schedule, steps), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("name", "settings", "config"),  # 10 steps an epoch, 40 in all
    [
        ("cosine", {}, {"warmup_steps": 10, "warmup_init": 0.05, "hold_steps": 0}),
        ("cosine", {"warmup_epochs": 2.0, "warmup_init": 0.3}, {"warmup_steps": 20}),
        ("cosine", {"total_steps": 90, "hold_steps": 7}, {"total_steps": 90}),
        (
            "stepwise",
            {"drop_epochs": [2.0, 3.0], "warmup_epochs": 0.5},
            {"drop_steps": (20, 30), "warmup_steps": 5},
        ),
        ("stepwise", {}, {"drop_steps": (2000, 2500), "total_steps": 40}),
        ("polynomial", {"power": 2.0, "warmup_steps": 3}, {}),
    ],
)
def test_every_setting_reaches_the_schedule(name, settings, config):
    made = named_schedule({"name": name, **settings}, 0.5, warmup_init=0.05, **LENGTH)
    found = made.get_config()
    same = {key: value for key, value in settings.items() if key in found}
    assert found == found | same | config
    assert made.learning_rate == 0.5


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("cosin", "Did you mean 'cosine'.*schedule='cosin'"),
        ("", "one of cosine, stepwise, polynomial, constant, exponential, manual_step"),
        ({}, "one of cosine, stepwise"),
        (7, "one of cosine, stepwise"),
        ({"warmup_steps": 3}, "a dict of such a 'name'"),
        ({"name": "cosine", "warm_steps": 3}, "Did you mean 'warmup_steps'"),
        ({"name": "constant", "power": 3}, "It has: warmup_steps, warmup_init"),
        (
            {"name": "cosine", "warmup_steps": 3, "warmup_epochs": 1.0},
            "'warmup_epochs' or 'warmup_steps'",
        ),
        ("exponential", "needs 'decay_steps' and 'decay_rate'"),
        ({"name": "exponential", "decay_steps": 5}, "needs 'decay_rate'"),
        ({"name": "exponential", "decay_steps": 0, "decay_rate": 1}, "`decay_steps`"),
        ({"name": "exponential", "decay_steps": 1, "decay_rate": 0}, "`decay_rate`"),
        ("manual_step", "needs 'boundaries' and 'rates'"),
        ({"name": "manual_step", "boundaries": [2, 1], "rates": [1, 1, 1]}, "rising"),
        ({"name": "manual_step", "boundaries": [0, 1], "rates": [1, 1, 1]}, "above 0"),
        ({"name": "manual_step", "boundaries": [1, 2], "rates": [1, 1]}, "one more"),
        ({"name": "manual_step", "boundaries": [1], "rates": [1, -1]}, "at least 0"),
        ({"name": "constant", "warmup_steps": -1}, "`warmup_steps`"),
        ({"name": "cosine", "warmup_steps": -1}, "`warmup_steps`"),
        ({"name": "constant", "warmup_steps": 1, "warmup_init": -1}, "`warmup_init`"),
    ],
    ids=str,
)
@pytest.mark.parametrize("optimizer", [None, "adam"])
def test_wrong_settings_are_named(schedule, message, optimizer):
    with pytest.raises(ValueError, match=message):
        Recipe(optimizer=optimizer, schedule=schedule)


MANUAL = {"name": "manual_step", "boundaries": [5], "rates": [3, 2]}


@pytest.mark.parametrize(
    "schedule", [MANUAL, keras.optimizers.schedules.ExponentialDecay(0.1, 5, 0.5)]
)
def test_a_schedule_with_rates_of_its_own_takes_no_learning_rate(schedule):
    with pytest.raises(ValueError, match="`learning_rate` is part of"):
        Recipe(optimizer="adam", schedule=schedule, learning_rate=0.1)
    assert not Recipe(optimizer="adam", schedule=schedule).needs_length
    assert not Recipe(schedule=schedule).needs_length


@pytest.mark.parametrize(
    ("optimizer", "schedule", "needed"),
    [
        (None, None, True),
        (None, "polynomial", True),
        (None, "constant", True),  # scaled to the batch
        ("adam", None, True),
        ("adam", "stepwise", True),
        ("adam", "constant", False),
        ("adam", {"name": "exponential", "decay_steps": 5, "decay_rate": 0.5}, False),
        (keras.optimizers.Adam(), None, False),
    ],
)
def test_fit_looks_at_the_data_only_where_the_rate_depends_on_it(
    optimizer, schedule, needed
):
    assert Recipe(optimizer=optimizer, schedule=schedule).needs_length is needed
