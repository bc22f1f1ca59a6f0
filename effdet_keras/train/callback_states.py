"""Collects and restores the states of the callbacks of `fit`, for checkpoints."""

from __future__ import annotations

import collections
import math
import numbers
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras

# Keras' own callbacks have no `get_state`. Training changes only these attributes.
_KERAS_ATTRIBUTES = {
    keras.callbacks.EarlyStopping: ("wait", "best", "best_epoch", "stopped_epoch"),
    keras.callbacks.ModelCheckpoint: ("best",),
    keras.callbacks.ReduceLROnPlateau: ("wait", "best", "cooldown_counter"),
}
# States are stored under the name of the class. Older checkpoints have former names.
_FORMER_NAMES = {"EpochLogger": "EpochLines"}


def has_state(callback: Any) -> bool:
    """Returns whether checkpoints store the state of a callback."""
    return hasattr(callback, "get_state") or isinstance(
        callback, tuple(_KERAS_ATTRIBUTES)
    )


def get_callback_states(callbacks: Sequence[Any]) -> dict[str, dict]:
    """Returns the state of each callback by its name, in types that JSON has.

    To have its state saved, a custom callback implements `get_state()`, which returns a
    dict, and `set_state(state)`.
    """
    states = {}
    for name, callback in _named_callbacks(callbacks):
        if hasattr(callback, "get_state"):
            states[name] = dict(callback.get_state())
        elif isinstance(callback, tuple(_KERAS_ATTRIBUTES)):
            values = {a: getattr(callback, a, None) for a in _attributes(callback)}
            # A missing or infinite value is an initial value, and is not stored.
            states[name] = {
                a: _to_plain_number(x) for a, x in values.items() if _is_finite(x)
            }
    return states


def set_callback_states(callbacks: Sequence[Any], states: Mapping[str, dict]) -> None:
    """Restores the states that `get_callback_states` returned, by callback name."""
    for name, callback in _named_callbacks(callbacks):
        state = states.get(name)
        if state is None:
            kind, separator, number = name.partition("_")
            former_name = _FORMER_NAMES.get(kind, kind)
            state = states.get(f"{former_name}{separator}{number}")
        if state is None:
            continue
        if hasattr(callback, "set_state"):
            callback.set_state(state)
        elif isinstance(callback, tuple(_KERAS_ATTRIBUTES)):
            for attribute in _attributes(callback):
                if attribute in state:
                    setattr(callback, attribute, state[attribute])


def _named_callbacks(callbacks: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yields callbacks with the name of their class, numbered if it occurs again."""
    counts: collections.Counter[str] = collections.Counter()
    for callback in callbacks:
        kind = type(callback).__name__
        counts[kind] += 1
        yield kind if counts[kind] == 1 else f"{kind}_{counts[kind]}", callback


def _attributes(callback):
    return next(
        attributes
        for kind, attributes in _KERAS_ATTRIBUTES.items()
        if isinstance(callback, kind)
    )


def _is_finite(value):
    return isinstance(value, numbers.Real) and math.isfinite(value)


def _to_plain_number(value):
    return int(value) if isinstance(value, numbers.Integral) else float(value)
