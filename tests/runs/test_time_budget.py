"""`time_budget`: the length is what there is time for."""

import dataclasses

import pytest
from support.tiny_run import tiny_run

import effdet_keras as ek
from effdet_keras.runs import time_budget
from effdet_keras.runs.splits import choose_splits
from effdet_keras.runs.time_budget import Times, choose_length, length_for, measure

pytestmark = pytest.mark.tensorflow
TIMES = Times(steps_per_epoch=10, step=1.0, evaluation=3.0, final=4.0, once=6.0)


def length(budget, times=TIMES, spent=10.0, **fields):
    chosen = length_for(times, ek.RunConfiguration(time_budget=budget, **fields), spent)
    assert chosen.time_budget is None
    return {n: getattr(chosen, n) for n in ("epochs", "steps") if getattr(chosen, n)}


def test_as_many_epochs_as_there_is_time_for():
    # 120 s less 10 that are gone and 10 of what is done once, 7 % in reserve: 93 s.
    assert length("2m") == {"epochs": 93 // 13}
    assert length("2m", spent=30.0) == {"epochs": 74 // 13}


def test_epochs_without_an_evaluation_are_shorter_and_the_last_one_has_one():
    assert length("2m", evaluate_every=2) == {"epochs": 8}  # 80 + 4 * 3 of 93
    # 45.6 s: four epochs alone, but not with the evaluations of the second and fourth.
    assert length("69s", evaluate_every=3) == {"epochs": 3}


def test_epochs_need_not_be_evaluated_at_all():
    times = dataclasses.replace(TIMES, evaluation=1.0, final=0.0)  # a checkpoint
    assert length("2m", times, evaluate_every=0) == {"epochs": 96 // 11}


def test_less_than_an_epoch_is_counted_in_steps():
    assert length("30s") == {"steps": 6}  # 9.3 s with an evaluation


def test_no_time_is_told_with_the_least_there_must_be():
    with pytest.raises(ValueError, match=r"take 23 s\. Give at least .*'26s'"):
        length("24s")
    assert length("26s") == {"steps": 2}


@pytest.fixture
def splits(shapes, capsys):
    return choose_splits(ek.RunConfiguration(data=str(shapes)))


@pytest.mark.parametrize(("budget", "count"), [("2m", 1), ("2h", 2)])
def test_what_is_frozen_for_short_trainings_is_measured_again_for_long_ones(
    monkeypatch, splits, budget, count
):
    asked = []

    def measured(configuration, splits, steps):
        asked.append(steps)
        is_short = steps < 3000
        return Times(10, 1.0 if is_short else 2.0, 3.0, 4.0, 6.0, is_frozen=is_short)

    monkeypatch.setattr(time_budget, "measure", measured)
    run = ek.RunConfiguration(time_budget=budget)
    chosen = choose_length(run, splits, started=time_budget.time.monotonic())
    assert len(asked) == count and asked[0] == 1000
    seconds = 13 if count == 1 else 23
    left = (120 if count == 1 else 7200) - 10
    assert chosen.epochs == int(left * 0.93 / seconds)
    asked.clear()
    frozen = run.replace(freeze="backbone")
    choose_length(frozen, splits, started=time_budget.time.monotonic())
    assert len(asked) == 1


@pytest.mark.slow
def test_steps_and_evaluations_are_measured_and_the_run_ends_there(
    monkeypatch, shapes, splits, tmp_path, capsys
):
    fields = tiny_run(time_budget="10m", batch_size=2, validation_losses=True)
    times = measure(ek.RunConfiguration(**fields), splits, 100)
    assert times.steps_per_epoch == 2 and not times.is_frozen
    for name in ("step", "evaluation", "final", "once"):
        assert 0 < getattr(times, name) < 60, name
    assert times.final > times.evaluation  # it loads the model as well
    assert "epoch" not in capsys.readouterr().out

    long = Times(2, step=1.0, evaluation=100.0, final=0.0, once=0.0)
    monkeypatch.setattr(time_budget, "measure", lambda *_: long)
    fields["time_budget"] = "113s"  # for an evaluation and a step or two
    result = ek.fine_tune(shapes, out=tmp_path / "run", **fields)
    assert len(result.history["loss"]) == 1
    assert "That gives " in capsys.readouterr().out
    run = ek.RunConfiguration.read(tmp_path / "run" / "configuration.yaml")
    assert (run.time_budget, run.epochs) == (None, 1 if run.epochs else None)
    if run.steps == 1:  # the cosine ends where the run does
        assert result.history["learning_rate"] is not None
