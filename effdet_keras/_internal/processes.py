"""The processes of one training: which is this one, and what do the others have.

Nearly always there is one, and this file has its answers. `extras/multiprocess` puts
those of several in their place when it is started.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from effdet_keras._internal.optional_imports import keras
from effdet_keras.errors import InvalidValueError

# The ways to train on several devices, and the backend of Keras that each needs.
ENGINES = {"mirrored": "tensorflow", "multiworker": "tensorflow", "jax": "jax"}


def start(distribute: str) -> Any:
    """The engine of one of `ENGINES`; see `effdet_keras.extras.multiprocess.start`."""
    from effdet_keras.extras.multiprocess import start

    return start(distribute)


class SingleProcess:
    """The answers of a training in one process; an engine has those of several.

    All processes call `gather` as often, and in the same order: a process that does not
    would have the others wait. `index` counts from 0.
    """

    index = 0
    count = 1

    def gather(self, value: Any) -> list[Any]:
        """Returns the values of all processes, by their index, in each process."""
        return [value]

    def plain_error(self, error: Exception) -> Exception | None:
        """What to raise for an error of the engine: that another process was lost."""


_current: list[SingleProcess] = [SingleProcess()]


def current_processes() -> SingleProcess:
    """The processes that this one trains with, or it alone.

    `index` says which this is, `count` how many there are, and `gather(value)` returns
    the values of all, in each.

    Example:
        >>> current_processes().count
        1
    """
    return _current[-1]


def set_processes(processes: SingleProcess) -> None:
    """Names the processes that this one belongs to, until it ends."""
    _current[:] = [processes]


def is_first_process() -> bool:
    """Whether this process is the one that writes files."""
    return current_processes().index == 0


def per_process_batch_size(batch_size: int, num_processes: int) -> int:
    """The images of a global batch that each process has: 4 of 8 for 2 processes."""
    if batch_size % num_processes:
        raise InvalidValueError(
            "`batch_size` counts the images of all processes together, and must be a "
            "multiple of their number. Received: "
            f"batch_size={batch_size}, {num_processes} processes"
        )
    return batch_size // num_processes


@contextlib.contextmanager
def single_process() -> Iterator[None]:
    """Context in which Keras makes variables for this process, not for all.

    With `keras.distribution` on JAX, a process that makes a variable waits for the
    others to make the same. Keras makes some where nobody expects it: each saved model
    costs an optimizer.
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
