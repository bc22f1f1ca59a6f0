"""`time_budget`: the length is what there is time for."""

import dataclasses
import types

import pytest
from support.tiny_run import tiny_run

import effdet_keras as ek
from effdet_keras.extras import time_budget
from effdet_keras.extras.time_budget import Times, choose_length, length_for, measure
from effdet_keras.runs.components import choose_splits
from effdet_keras.runs.configuration import seconds_of
from effdet_keras.train import auto_recipe

pytestmark = pytest.mark.tensorflow
TIMES = Times(steps_per_epoch=10, step=1.0, evaluation=3.0, final=4.0, once=6.0)
UNEVALUATED = dataclasses.replace(TIMES, evaluation=1.0, final=0.0)


def length(budget, times=TIMES, spent=10.0, **fields):
    chosen = length_for(times, ek.RunConfiguration(time_budget=budget, **fields), spent)
    assert chosen.time_budget is None
    return {n: getattr(chosen, n) for n in ("epochs", "steps") if getattr(chosen, n)}


@pytest.mark.parametrize(
    ("budget", "fields", "expected"),
    [
        # 120 s less 10 that are gone and 10 of what is done once, 7 % in reserve: 93 s.
        ("2m", {}, {"epochs": 93 // 13}),
        ("2m", {"spent": 30.0}, {"epochs": 74 // 13}),
        ("2m", {"evaluate_every": 2}, {"epochs": 8}),  # 80 + 4 * 3 of 93
        # 45.6 s: four epochs alone, but not with evaluations of the second and fourth.
        ("69s", {"evaluate_every": 3}, {"epochs": 3}),
        # Not evaluated at all, but for a checkpoint.
        ("2m", {"evaluate_every": 0, "times": UNEVALUATED}, {"epochs": 96 // 11}),
        ("30s", {}, {"steps": 6}),  # less than an epoch: 9.3 s with an evaluation
    ],
)
def test_it_is_as_long_as_there_is_time_for(budget, fields, expected):
    assert length(budget, **fields) == expected


def test_no_time_is_told_with_the_least_there_must_be():
    with pytest.raises(ValueError, match=r"takes 16 s\. Give at least .*'19s'"):
        length("17s")
    assert length("26s") == {"steps": 2}


def test_evaluations_that_would_take_longer_than_the_training_are_fewer():
    slow = dataclasses.replace(TIMES, evaluation=25.0)
    run = ek.RunConfiguration(time_budget="4m")  # 204.6 s are left
    chosen = length_for(slow, run, 10.0)
    assert (chosen.epochs, chosen.evaluate_every) == (10, 3)  # 100 + 4 * 25


def test_where_no_evaluation_fits_there_is_none():
    slow = dataclasses.replace(TIMES, evaluation=250.0, final=300.0)
    run = ek.RunConfiguration(time_budget="4m")
    chosen = length_for(slow, run, 10.0)  # 224 s are left, 208.3 without the reserve
    assert (chosen.epochs, chosen.evaluate_every) == (20, 0)
    chosen = length_for(slow, run.replace(time_budget="20s"), 10.0)
    assert (chosen.steps, chosen.evaluate_every) == (3, 0)


@pytest.fixture
def splits(shapes, capsys):
    return choose_splits(ek.RunConfiguration(data=str(shapes)))


@pytest.mark.parametrize(
    ("budget", "count", "left", "freeze"),
    [("2m", 1, 110, "auto"), ("20m", 1, 1190, "backbone"), ("2h", 2, 7190, "auto")],
)
def test_what_is_frozen_for_short_trainings_is_measured_again_for_long_ones(
    monkeypatch, splits, budget, count, left, freeze
):
    asked, limits = [], set()

    def measured(configuration, splits, steps, ends):
        asked.append(steps)
        limits.add(round(ends - time_budget.time.monotonic()))
        is_short = steps < auto_recipe.SHORT
        return Times(10, 1.0 if is_short else 2.0, 3.0, 4.0, 6.0, is_frozen=is_short)

    monkeypatch.setattr(time_budget, "measure", measured)
    run = ek.RunConfiguration(time_budget=budget)
    chosen = choose_length(run, splits, started=time_budget.time.monotonic())
    assert len(asked) == count and asked[0] < auto_recipe.SHORT
    seconds = 13 if count == 1 else 23
    assert (chosen.epochs, chosen.freeze) == (int(left * 0.93 / seconds), freeze)
    asked.clear()
    frozen = run.replace(freeze="backbone")
    choose_length(frozen, splits, started=time_budget.time.monotonic())
    assert len(asked) == 1
    # Of both measurings together.
    fifth = seconds_of(budget) / 5
    assert all(fifth - 10 < limit <= fifth for limit in limits)


@pytest.mark.parametrize(("ends", "batches"), [(30.0, 2), (43.0, 3), (45.0, 4)])
def test_measuring_ends_in_time_and_what_was_not_seen_is_estimated(
    monkeypatch, ends, batches
):
    """The first step takes 40 seconds, which compile it, and each other one 2."""
    now = [0.0]
    monkeypatch.setattr(time_budget.time, "monotonic", lambda: now[0])
    watch = time_budget._Stopwatch(ends)
    watch.on_train_begin()
    with pytest.raises(time_budget._TimeIsUpError):
        for batch in range(8):
            now[0] += 2.0 if batch else 40.0
            watch.on_train_batch_end(batch)
    assert watch.is_cut and batch == batches - 1
    first_steps, first_evaluation, steps, evaluation = watch.parts(8, 4)
    assert (steps, evaluation) == (16.0, 8.0)
    assert first_steps - steps == first_evaluation - evaluation == 38.0


def test_no_evaluation_is_begun_where_half_of_the_measuring_is_over(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time_budget.time, "monotonic", lambda: now[0])
    watch = time_budget._Stopwatch(48.0)
    watch.set_model(types.SimpleNamespace(stop_training=False))
    watch.on_train_begin()
    now[0] = 30.0
    watch.on_train_batch_end(7)
    with pytest.raises(time_budget._TimeIsUpError):
        watch.on_epoch_end(0)


def test_a_measuring_that_was_cut_still_gives_a_length(shapes, splits, capsys):
    """All that it may take is over when it begins."""
    fields = tiny_run(time_budget="10m", batch_size=2, augment=())
    now = time_budget.time.monotonic()
    run = ek.RunConfiguration(**fields)
    cut = measure(run, splits, 100, now)
    assert cut.is_cut and cut.steps_per_epoch == 2
    assert all(getattr(cut, n) > 0 for n in ("step", "evaluation", "final"))
    assert length_for(cut, run, 1.0).time_budget is None
    time_budget._print_chosen_length(run, cut, length_for(cut, run, 1.0))
    assert "partly estimated" in capsys.readouterr().out


@pytest.mark.slow
def test_steps_and_evaluations_are_measured_and_the_run_ends_there(
    monkeypatch, shapes, splits, tmp_path, capsys
):
    fields = tiny_run(time_budget="10m", batch_size=2, validation_losses=True)
    now = time_budget.time.monotonic()
    times = measure(ek.RunConfiguration(**fields), splits, 100, now + 600)
    assert times.steps_per_epoch == 2 and not (times.is_frozen or times.is_cut)
    for name in ("step", "evaluation", "final", "once"):
        assert 0 < getattr(times, name) < 60, name
    assert times.final > times.evaluation  # it loads the model as well
    assert "epoch" not in capsys.readouterr().out

    long = Times(2, step=1.0, evaluation=100.0, final=0.0, once=0.0)
    monkeypatch.setattr(time_budget, "measure", lambda *_: long)
    fields["time_budget"] = "113s"  # for an evaluation and a step or two
    result = ek.fine_tune(shapes, out=tmp_path / "run", **fields)
    assert len(result.history["loss"]) in (1, 2)
    assert "This leaves time for " in capsys.readouterr().out
    run = ek.RunConfiguration.read(tmp_path / "run" / "configuration.yaml")
    assert run.time_budget is None
    assert run.epochs in (None, len(result.history["loss"]))
    assert run.evaluate_every == (run.epochs or 1)
    if run.steps == 1:  # the cosine ends where the run does
        assert result.history["learning_rate"] is not None
