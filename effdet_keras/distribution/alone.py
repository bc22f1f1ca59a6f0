"""What one process of several does, and the others do not."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import keras


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Context in which Keras makes variables for this process, not for all.

    With `keras.distribution` on JAX, a process that makes a variable waits for the
    others to make the same. Keras makes some where nobody expects it: each saved model
    costs an optimizer.

    Example:
        >>> with alone():
        ...     print(keras.distribution.distribution())
        None
    """
    before = keras.distribution.distribution()
    if before is None:
        yield
        return
    keras.distribution.set_distribution(None)
    try:
        yield
    finally:
        keras.distribution.set_distribution(before)
