"""`profile`: a trace of some steps."""

import keras
import numpy as np
import pytest
from support.tiny_run import tiny_run

import effdet_keras as ek
from effdet_keras.extras import profile
from effdet_keras.extras.profile import ProfiledSteps

pytestmark = pytest.mark.tensorflow


def fit(callback, *, epochs=2, steps_per_execution=1, callbacks=()):
    """Four steps per epoch of a model that costs nothing."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution=steps_per_execution)
    x, y = np.zeros((8, 2)), np.zeros((8, 1))
    given = [callback, *callbacks]
    model.fit(x, y, batch_size=2, epochs=epochs, verbose=0, callbacks=given)


@pytest.fixture
def traced(monkeypatch):
    """What is asked of the profiler, without one."""
    asked = []

    class Trace:
        def __init__(self, name, step_num, _r):
            asked.append(step_num)

        def __enter__(self):
            pass

        def __exit__(self, *error):
            pass

    stand_in = type("Profiler", (), {"Trace": Trace})
    stand_in.start = staticmethod(lambda folder: asked.append("start"))
    stand_in.stop = staticmethod(lambda: asked.append("stop"))
    monkeypatch.setattr(profile.tensorflow.profiler, "experimental", stand_in)
    return asked


def test_steps_are_counted_over_the_epochs(traced, tmp_path, capsys):
    steps = ProfiledSteps(3, 6, tmp_path)
    fit(steps)
    assert traced == ["start", 3, 4, 5, 6, "stop"] and steps.traced == [3, 4, 5, 6]
    assert f"Trace of steps 3 to 6: {tmp_path}" in capsys.readouterr().out


def test_the_last_group_of_an_epoch_may_have_fewer_steps(traced, tmp_path):
    steps = ProfiledSteps(4, 7, tmp_path)
    fit(steps, steps_per_execution=3)  # of four steps: three, and one
    assert steps.traced == [4, 5, 6, 7]


def test_a_training_that_ends_before_says_what_there_is(traced, tmp_path, capsys):
    fit(ProfiledSteps(7, 20, tmp_path))
    assert traced == ["start", 7, 8, "stop"]
    fit(ProfiledSteps(9, 20, tmp_path))
    assert "the training ended at step 8, before" in capsys.readouterr().out


def test_an_error_in_between_ends_the_trace(traced, tmp_path):
    steps = ProfiledSteps(2, 9, tmp_path)
    stop = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        fit(steps, callbacks=[stop])
    steps.close()  # as `EfficientDet.fit` does
    steps.close()
    assert traced.count("start") == traced.count("stop")


def test_the_trace_is_written_by_the_profiler(tmp_path):
    fit(ProfiledSteps(2, 3, tmp_path), epochs=1)
    (trace,) = (tmp_path / "plugins" / "profile").rglob("*.xplane.pb")
    assert b"train" in trace.read_bytes()


@pytest.mark.slow
def test_a_run_writes_a_trace_to_its_folder(shapes, tmp_path, capsys):
    out = tmp_path / "run"
    fields = tiny_run(one_batch=True, evaluate_every=0, profile=1)
    ek.fine_tune(shapes, out=out, **fields)
    (trace,) = (out / "profile").rglob("*.xplane.pb")
    assert b"train" in trace.read_bytes()
    assert "Trace of steps 1 to 1" in capsys.readouterr().out


def test_it_takes_tensorflow(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    with pytest.raises(RuntimeError, match="TensorFlow, and Keras runs on torch"):
        ProfiledSteps(1, 2, "folder")
