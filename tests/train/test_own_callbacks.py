"""The callbacks that `fit` adds stand in front of and behind those it is given."""

import keras
import pytest
from support.tiny import EAGER, batch, tiny_model

from effdet_keras.train.averages import SwapEMA
from effdet_keras.train.fit_callbacks import EpochLines, with_own_callbacks


def added(callbacks, model=None):
    first, last = SwapEMA(), EpochLines()
    result = with_own_callbacks(callbacks, model, first=[first], last=[last])
    return first, result, last


@pytest.mark.parametrize("count", [None, 0, 1, 2])
def test_what_is_given_stands_between(count):
    given = [keras.callbacks.Callback() for _ in range(count or 0)]
    first, result, last = added(None if count is None else given)
    assert result == [first, *given, last]


def test_one_callback_needs_no_list():
    given = keras.callbacks.Callback()
    first, result, last = added(given)
    assert result == [first, given, last]


def test_a_second_fit_with_the_same_list_adds_none_twice():
    given, model = keras.callbacks.Callback(), keras.Sequential()
    callbacks = keras.callbacks.CallbackList([given])
    added(callbacks, model)
    first, result, last = added(callbacks, model)
    assert result is callbacks and result.callbacks == [first, given, last]
    assert first.model is model and last.model is model


@pytest.mark.slow_elsewhere
@pytest.mark.parametrize("verbose", ["auto", 0, 1, 2])
def test_only_the_automatic_verbosity_prints_our_lines(verbose, capsys):
    model = tiny_model()
    model.compile("sgd", run_eagerly=EAGER)
    model.fit(*batch(), verbose=verbose)
    assert ("epoch 1/1  loss" in capsys.readouterr().out) is (verbose == "auto")
