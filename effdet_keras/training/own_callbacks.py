"""The callbacks that `fit` adds to those it is given."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras


class OwnCallback(keras.callbacks.Callback):
    """A callback that every call of `fit` adds anew."""


def with_own_callbacks(
    callbacks: Any,
    model: keras.Model,
    *,
    first: Sequence[OwnCallback] = (),
    last: Sequence[OwnCallback] = (),
    wrapped: Callable[[Any], Any] = lambda callback: callback,
) -> Any:
    """The callbacks of `fit`, between those that it adds itself.

    Args:
        callbacks: what `fit` takes: None, a callback, a list, or a `CallbackList`,
            which is changed.
        model: the model that `fit` is called on.
        first: callbacks in front of all others, which find what these leave.
        last: callbacks behind all others, which see what the others add to the logs.
        wrapped: function of a callback that was given, returns what stands for it.
    """
    if not isinstance(callbacks, keras.callbacks.CallbackList):
        given = keras.tree.flatten([] if callbacks is None else callbacks)
        return [*first, *map(wrapped, given), *last]
    given = [c for c in callbacks.callbacks if not isinstance(c, OwnCallback)]
    callbacks.callbacks = [*first, *map(wrapped, given), *last]
    for own in (*first, *last):
        own.set_model(model)
        own.set_params(callbacks.params)
    return callbacks


@contextlib.contextmanager
def let_go_afterwards(callbacks: Any) -> Iterator[None]:
    """Calls `let_go` of the callbacks that have it: Keras tells them of no error.

    Args:
        callbacks: what `with_own_callbacks` gave.
    """
    try:
        yield
    finally:
        for callback in getattr(callbacks, "callbacks", callbacks):
            if hasattr(callback, "let_go"):
                callback.let_go()
