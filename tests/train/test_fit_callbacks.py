"""The callbacks that `fit` adds itself."""

import types

import keras
import pytest
from support.tiny import EAGER, batch, tiny_model

from effdet_keras.callbacks import CheckpointArchive, COCOEvaluation
from effdet_keras.train.averages import SwapEMA
from effdet_keras.train.epoch_logger import EpochLogger
from effdet_keras.train.fit_callbacks import (
    close_after_fit,
    ema_callbacks,
    user_callbacks,
)


def test_the_callbacks_that_are_given_are_kept_in_any_form():
    one, other = (keras.callbacks.Callback() for _ in range(2))
    for given, expected in (
        (None, []),
        (one, [one]),
        ([one, SwapEMA(), other], [one, other]),
        (keras.callbacks.CallbackList([one, EpochLogger()]), [one]),
    ):
        assert user_callbacks(given) == expected


def test_evaluations_come_first_and_the_others_keep_their_order():
    """Or `ModelCheckpoint(monitor="AP")` before one would see no AP."""
    one, other, third = (keras.callbacks.Callback() for _ in range(3))
    evaluation = keras.callbacks.Callback()
    evaluation.evaluates = True
    for given in (
        [one, evaluation, other, third],
        [one, other, third, evaluation],
        [evaluation, one, other, third],
        keras.callbacks.CallbackList([one, other, evaluation, third]),
    ):
        assert user_callbacks(given) == [evaluation, one, other, third]
    assert COCOEvaluation.evaluates


def test_checkpoints_come_behind_the_callbacks_whose_states_they_save(tmp_path):
    """Or what `EarlyStopping` had counted would be that of the epoch before."""
    archive = CheckpointArchive(tmp_path)
    stopping = keras.callbacks.EarlyStopping("AP")
    evaluation, upload = (keras.callbacks.Callback() for _ in range(2))
    evaluation.evaluates = True
    for given, expected in (
        ([archive, stopping, evaluation], [evaluation, stopping, archive]),
        ([archive, upload, stopping], [upload, stopping, archive]),
        ([stopping, archive, upload], [stopping, archive, upload]),
        ([archive, upload], [archive, upload]),  # who copies its files comes behind
    ):
        assert user_callbacks(given) == expected


def test_the_averages_are_swapped_by_the_callback_that_is_given_or_by_a_new_one():
    model, given = types.SimpleNamespace(averages=object()), SwapEMA()
    assert ema_callbacks(model, [keras.callbacks.Callback(), given]) == [given]
    assert [type(callback) for callback in ema_callbacks(model, None)] == [SwapEMA]
    assert ema_callbacks(types.SimpleNamespace(averages=None), []) == []


class Holding(keras.callbacks.Callback):
    """A callback that counts how often it is closed."""

    closed = 0

    def close(self):
        self.closed += 1


class Closing(Holding):
    closes_after_fit = True


def test_callbacks_are_closed_after_an_error_too():
    callback = Closing()
    with pytest.raises(KeyboardInterrupt), close_after_fit([callback]):
        raise KeyboardInterrupt
    with close_after_fit([callback]):
        pass
    assert callback.closed == 2


def test_a_close_that_means_something_else_is_not_called():
    callback = Holding()
    with close_after_fit([callback, keras.callbacks.Callback()]):
        pass
    assert callback.closed == 0
    assert CheckpointArchive.closes_after_fit


def test_close_has_its_former_name_for_one_release(tmp_path):
    archive = CheckpointArchive(tmp_path, verbose=False)
    with pytest.warns(DeprecationWarning, match="`close`"):
        archive.let_go()
    CheckpointArchive(tmp_path, verbose=False).close()  # the folder is free again


@pytest.mark.parametrize(
    "callback",
    [
        keras.callbacks.ReduceLROnPlateau(monitor="loss", patience=0, min_delta=100),
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2),
        type("Own", (keras.callbacks.LearningRateScheduler,), {})(lambda e, r: r / 2),
    ],
)
def test_no_callback_sets_a_learning_rate_that_has_a_schedule(callback):
    """Keras refuses it when the callback sets it: after hours, perhaps."""
    model, run = tiny_model(), {"epochs": 3, "verbose": 0, "callbacks": [callback]}
    schedule = keras.optimizers.schedules.CosineDecay(1e-3, 10)
    for arguments in ({}, {"optimizer": keras.optimizers.SGD(schedule)}):
        model.compile(**arguments, run_eagerly=EAGER)
        with pytest.raises(
            ValueError, match=r'compile\(schedule="constant"\)'
        ) as error:
            model.fit(*batch(), **run)
        assert type(callback).__name__ in str(error.value)
    model.compile(schedule="constant", run_eagerly=EAGER)
    rates = model.fit(*batch(), **run).history["learning_rate"]
    assert rates[-1] < rates[0]
