"""Validation on averages: which weights it sees, and that they always go back."""

import keras
import numpy as np
import pytest
from support.arrays import assert_equal

from effdet_keras.callbacks import SwapEMA
from effdet_keras.train.averages import evaluated_weights

pytestmark = pytest.mark.tensorflow


def spread(model):
    """Averages that differ from the weights."""
    for average in model.averages.variables:
        average.assign(average * 0.5 + 0.01)


class Interrupt(keras.callbacks.Callback):
    def on_test_batch_begin(self, batch, logs=None):
        raise KeyboardInterrupt


def fit(model, train, **arguments):
    return model.fit(*train, batch_size=2, verbose=0, **arguments)


def loss(model, train, **arguments):
    arguments = {"batch_size": 2, "verbose": 0, "return_dict": True, **arguments}
    return float(model.evaluate(*train, **arguments)["loss"])


@pytest.mark.slow
def test_fit_gives_the_same_with_and_without_it(model, train):
    first = model.get_weights()
    state = [np.array(v) for v in model.optimizer.variables]
    losses, ends = [], []
    for callbacks in ([], [SwapEMA()]):
        model.set_weights(first)
        for variable, value in zip(model.optimizer.variables, state):
            variable.assign(value)
        keras.utils.set_random_seed(3)
        options = {"validation_data": train, "validation_batch_size": 2}
        history = fit(model, train, shuffle=False, callbacks=callbacks, **options)
        assert model.averages.is_swapped
        losses.append(history.history["val_loss"])
        ends.append(loss(model, train))
        assert losses[-1] == [pytest.approx(ends[-1], rel=1e-5)]


def test_training_after_an_interrupted_validation_goes_on_from_its_own_weights(
    model, train
):
    with pytest.raises(KeyboardInterrupt):
        callbacks = [SwapEMA(), Interrupt()]
        fit(model, train, validation_data=train, callbacks=callbacks)
    assert model.averages.is_swapped
    own = model.averages.values
    started = []
    begin = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: started.extend(
            np.array(v) for v in model.averages.sources
        )
    )
    fit(model, train, callbacks=[begin])  # no SwapEMA here
    assert_equal(started, own)


class EvaluateWithin(keras.callbacks.Callback):
    """Evaluates the averages after each step, and has the weights that follow."""

    def __init__(self, data, swap):
        super().__init__()
        self.data, self.swap, self.pairs = data, swap, []

    def on_train_batch_end(self, batch, logs=None):
        before = self.model.get_weights()
        loss(self.model, self.data, callbacks=[self.swap])
        self.pairs.append((before, self.model.get_weights()))


def test_an_evaluation_between_two_steps_of_fit_leaves_the_weights_of_training(
    model, train
):
    spread(model)
    within = EvaluateWithin(train, SwapEMA())
    fit(model, train, callbacks=[within])
    assert len(within.pairs) == 2 and model.averages.is_swapped
    for before, after in within.pairs:
        assert_equal(before, after)


def test_an_evaluation_outside_of_fit_sees_the_averages_and_puts_them_back(
    model, train
):
    spread(model)
    before = model.get_weights()
    found = loss(model, train, callbacks=[SwapEMA()])
    assert not model.averages.is_swapped
    assert_equal(model.get_weights(), before)
    with model.averages.swapped():  # they stay where they were before
        assert loss(model, train, callbacks=[SwapEMA()]) == found
        assert model.averages.is_swapped


def test_evaluated_weights_are_the_averages_and_go_back(model):
    spread(model)
    before = model.get_weights()
    with pytest.raises(RuntimeError, match="stop"), evaluated_weights(model) as which:
        assert which == "averages"
        assert model.averages.is_swapped
        raise RuntimeError("stop")
    assert_equal(model.get_weights(), before)
