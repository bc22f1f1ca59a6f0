"""What the callbacks of `fit` remember, for a training that goes on."""

from __future__ import annotations

import collections
import math
import numbers
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras

# Keras' own callbacks have no way to ask them: these attributes are all they change.
_OF_KERAS = {
    keras.callbacks.EarlyStopping: ("wait", "best", "best_epoch", "stopped_epoch"),
    keras.callbacks.ReduceLROnPlateau: ("wait", "best", "cooldown_counter"),
}


def states_of(callbacks: Sequence[Any]) -> dict[str, dict]:
    """What each callback remembers, by its name, in types that JSON has.

    A callback of your own has a method `get_state()` that returns a dict, and
    `set_state(state)`, which `fit` calls when the training goes on.

    Args:
        callbacks: list of callbacks.

    Example:
        >>> states_of([keras.callbacks.EarlyStopping("AP", mode="max")])
        {'EarlyStopping': {'wait': 0, 'stopped_epoch': 0}}
    """
    states = {}
    for name, callback in _named(callbacks):
        if hasattr(callback, "get_state"):
            states[name] = dict(callback.get_state())
        elif isinstance(callback, tuple(_OF_KERAS)):
            values = {a: getattr(callback, a, None) for a in _attributes(callback)}
            # What is not there yet, or infinite, is what the callback begins with.
            states[name] = {a: _plain(x) for a, x in values.items() if _is_number(x)}
    return states


def set_states(callbacks: Sequence[Any], states: Mapping[str, dict]) -> None:
    """Gives callbacks what `states_of` returned for callbacks of the same names.

    Args:
        callbacks: list of callbacks, whose `on_train_begin` was called.
        states: dict of `states_of`.
    """
    for name, callback in _named(callbacks):
        if name not in states:
            continue
        if hasattr(callback, "set_state"):
            callback.set_state(states[name])
        elif isinstance(callback, tuple(_OF_KERAS)):
            for attribute in _attributes(callback):
                if attribute in states[name]:
                    setattr(callback, attribute, states[name][attribute])


def _named(callbacks: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Callbacks by their class, numbered where there are several of one."""
    counts: collections.Counter[str] = collections.Counter()
    for callback in callbacks:
        kind = type(callback).__name__
        counts[kind] += 1
        yield kind if counts[kind] == 1 else f"{kind}_{counts[kind]}", callback


def _attributes(callback):
    return next(x for kind, x in _OF_KERAS.items() if isinstance(callback, kind))


def _is_number(value):
    return isinstance(value, numbers.Real) and math.isfinite(value)


def _plain(value):
    return int(value) if isinstance(value, numbers.Integral) else float(value)
