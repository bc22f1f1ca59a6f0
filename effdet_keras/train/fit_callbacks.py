"""Assembles the callbacks of `fit`: those of the user and those that `fit` adds."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import keras

from effdet_keras.errors import InvalidTypeError, require
from effdet_keras.train.averages import SwapEMA
from effdet_keras.train.callback_states import has_state
from effdet_keras.train.data_order import DataOrder
from effdet_keras.train.epoch_logger import EpochLogger
from effdet_keras.train.fit_data import TrainingData
from effdet_keras.train.optimizers import has_schedule
from effdet_keras.train.resume import PositionTracker, SkipUntilPosition

# The callbacks that `fit` adds. If the user passes them, `fit` sets their position.
_ADDED_BY_FIT = (SwapEMA, PositionTracker, EpochLogger)


def assemble_callbacks(
    model: Any, callbacks: Any, tracker: PositionTracker, *, log_epochs: bool
) -> list[Any]:
    """Returns all callbacks of one `fit`, in the order in which Keras calls them.

    1. `tracker`, which knows the position of the training that the others save.
    2. `SwapEMA`, so that all callbacks after it see the averages in the model.
    3. The user's callbacks: evaluations first, and checkpoints after the callbacks
       whose states they save.
    4. `EpochLogger`, so that its line has the metrics that the others add to the logs.

    Args:
        model: `EfficientDet`, compiled or not.
        callbacks: the `callbacks` argument of `fit`.
        tracker: `PositionTracker` of this `fit`.
        log_epochs: bool, whether `EpochLogger` prints one line per epoch.

    Raises:
        TypeError: If one of `callbacks` is not a callback.
        ValueError: If one of them sets the learning rate, which has a schedule.
    """
    users = user_callbacks(callbacks)
    _check_rate_can_be_set(model, users)
    if tracker.resumes_within_epoch:
        users = [SkipUntilPosition(callback, tracker) for callback in users]
    loggers = [EpochLogger()] if log_epochs else []
    everything = [tracker, *ema_callbacks(model, callbacks), *users, *loggers]
    tracker.set_callbacks(everything)
    return everything


# Keras' callbacks that set the learning rate; a schedule does not let them.
_SET_LEARNING_RATE = (
    keras.callbacks.LearningRateScheduler,
    keras.callbacks.ReduceLROnPlateau,
)


def _check_rate_can_be_set(model, users):
    """Raises ValueError for a callback that sets the rate of an optimizer's schedule.

    Otherwise the training would end when the callback sets it: after hours, perhaps.
    """
    if model.settings is None or not has_schedule(model.optimizer):
        return
    setters = [c for c in users if isinstance(c, _SET_LEARNING_RATE)]
    rule = (
        "`callbacks` must not set the learning rate if it has a schedule, which "
        "`compile` chooses by default. Leave the callback out; or call "
        '`compile(schedule="constant")`, or give an optimizer of your own a number as '
        "its learning rate"
    )
    require(not setters, rule, callbacks=[type(c).__name__ for c in setters])


def new_position_tracker(model: Any, data: TrainingData) -> PositionTracker:
    """Returns the callback that starts the data at the position of a resumed training.

    It also gives the current position to the callbacks that save checkpoints.
    """
    return PositionTracker(
        DataOrder(data.x, data.steps_per_epoch, data.initial_epoch),
        data.position,
        receives_batches=model.receives_batches,
    )


def ema_callbacks(model: Any, callbacks: Any) -> list[SwapEMA]:
    """Returns a list with the callback that swaps weights and averages.

    It is the user's `SwapEMA`, or a new one. The list is empty if the model has no
    averages.
    """
    if model.averages is None:
        return []
    users = [one for one in flatten_callbacks(callbacks) if isinstance(one, SwapEMA)]
    return users[:1] or [SwapEMA()]


def user_callbacks(callbacks: Any) -> list[keras.callbacks.Callback]:
    """Returns the user's callbacks, in order, without those that `fit` adds itself.

    Keras calls callbacks in the order of the list. Evaluations come first, because
    callbacks before them would find no `AP` to monitor or log. Checkpoints come after
    all callbacks whose states they save, such as `EarlyStopping`. Otherwise the saved
    state would not include the epoch of the checkpoint.
    """
    users = [
        c for c in flatten_callbacks(callbacks) if not isinstance(c, _ADDED_BY_FIT)
    ]
    # `sorted` is stable: the others keep their order.
    users = sorted(users, key=lambda c: not getattr(c, "evaluates", False))
    end = max((n for n, c in enumerate(users, 1) if has_state(c)), default=0)
    early = [c for c in users[:end] if getattr(c, "saves_states", False)]
    return [*(c for c in users[:end] if c not in early), *early, *users[end:]]


def flatten_callbacks(callbacks: Any) -> list[keras.callbacks.Callback]:
    """Returns a flat list of callbacks.

    Keras takes None, one callback, nested lists or a `CallbackList`.

    Raises:
        TypeError: If one of them is not a callback, or is a class and not an object.
    """
    callbacks = getattr(callbacks, "callbacks", callbacks)
    flat = keras.tree.flatten([] if callbacks is None else callbacks)
    for callback in flat:
        is_callback = hasattr(callback, "set_model") and not isinstance(callback, type)
        rule = "`callbacks` must contain only instances of `keras.callbacks.Callback`"
        require(is_callback, rule, InvalidTypeError, callback=callback)
    return flat


@contextlib.contextmanager
def close_after_fit(callbacks: Sequence[Any]) -> Iterator[None]:
    """Context that calls `close` of callbacks when it ends, also after an error.

    Keras calls `on_train_end` only if `fit` ends without an error. A callback that
    holds a lock, a signal handler or an open file sets `closes_after_fit = True` and
    has a method `close`, which may be called twice. (A method `close` alone is not
    enough, because in a user's callback it may have another meaning.)
    """
    try:
        yield
    finally:
        for callback in callbacks:
            if getattr(callback, "closes_after_fit", False):
                callback.close()
