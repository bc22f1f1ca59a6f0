"""What callbacks count goes on where it was."""

import json

import keras

from effdet_keras.train.callback_states import get_callback_states, set_callback_states
from effdet_keras.train.epoch_logger import EpochLogger


class Counting(keras.callbacks.Callback):
    count = 0

    def get_state(self):
        return {"count": self.count}

    def set_state(self, state):
        self.count = state["count"]


def new():
    stopping = keras.callbacks.EarlyStopping("AP", mode="max", patience=3)
    other = keras.callbacks.EarlyStopping("loss", mode="min")
    lower = keras.callbacks.ReduceLROnPlateau("AP", mode="max")
    best = keras.callbacks.ModelCheckpoint("best.keras", "AP", mode="max")
    callbacks = [stopping, other, lower, Counting(), EpochLogger(), best, object()]
    for callback in callbacks[:-1]:
        callback.set_model(keras.Sequential())
        callback.set_params({"epochs": 9})
        callback.on_train_begin()
    return callbacks


def test_each_callback_gets_what_one_of_its_name_had():
    before, after = new(), new()
    stopping, _, lower, counting, lines, best, _ = before
    for epoch, ap in enumerate([0.5, 0.4, 0.3]):
        stopping.on_epoch_end(epoch, {"AP": ap})
        lines.record_epoch(epoch, {"AP": ap})
    lower.wait, counting.count, best.best = 4, 7, 0.5
    states = json.loads(json.dumps(get_callback_states(before)))
    assert set(states["EarlyStopping_2"]) == {"wait", "best_epoch", "stopped_epoch"}
    set_callback_states(after, states)
    assert (after[0].wait, after[0].best, after[0].best_epoch) == (2, 0.5, 0)
    assert after[1].best is None and after[2].wait == 4
    assert after[2].best == before[2].best and after[3].count == 7
    assert after[4].get_state() == {"best": (0.5, 1)}
    assert after[5].best == 0.5


class CountingLogger(Counting):
    """Another class of the name that was `EpochLines` in older versions."""


CountingLogger.__name__ = "EpochLogger"


def test_a_renamed_callback_gets_the_state_under_its_former_name():
    callbacks = [CountingLogger(), CountingLogger()]
    set_callback_states(
        callbacks, {"EpochLines": {"count": 3}, "EpochLines_2": {"count": 5}}
    )
    assert [callback.count for callback in callbacks] == [3, 5]
    set_callback_states(
        callbacks, {"EpochLines": {"count": 3}, "EpochLogger": {"count": 4}}
    )
    assert callbacks[0].count == 4
