"""The processes of one training: the index of this process, and data of the others.

Nearly always there is only one process, which this file describes. When several
processes are started, `extras/multiprocess` replaces that description.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from effdet_keras._internal.optional_imports import keras
from effdet_keras.errors import InvalidValueError

# The ways to train on several devices, and the Keras backend that each one needs.
ENGINES = {"mirrored": "tensorflow", "multiworker": "tensorflow", "jax": "jax"}


def start(distribute: str) -> Any:
    """Starts one of `ENGINES`; see `effdet_keras.extras.multiprocess.start`."""
    from effdet_keras.extras.multiprocess import start

    return start(distribute)


class SingleProcess:
    """Describes a training in one process; an engine describes one in several.

    All processes must call `gather` equally often and in the same order: otherwise the
    others would wait forever. `index` counts from 0.
    """

    index = 0
    count = 1

    def gather(self, value: Any) -> list[Any]:
        """Returns the values of all processes, by their index, in each process."""
        return [value]

    def plain_error(self, error: Exception) -> Exception | None:
        """Returns the error to raise instead, if another process was lost; or None."""


_current: list[SingleProcess] = [SingleProcess()]


def current_processes() -> SingleProcess:
    """Returns the processes that train together, of which this is one.

    `index` is the number of this process, `count` is how many there are, and
    `gather(value)` returns the values of all processes, in each process.

    Example:
        >>> current_processes().count
        1
    """
    return _current[-1]


def set_processes(processes: SingleProcess) -> None:
    """Sets the processes that this one belongs to, until it ends."""
    _current[:] = [processes]


def is_first_process() -> bool:
    """Returns whether this process is the one that writes files."""
    return current_processes().index == 0


def per_process_batch_size(batch_size: int, num_processes: int) -> int:
    """Returns the images per process of a global batch: of 8 images, 4 for 2."""
    if batch_size % num_processes:
        raise InvalidValueError(
            "`batch_size` counts the images of all processes together, and must be a "
            "multiple of their number. Received: "
            f"batch_size={batch_size}, {num_processes} processes"
        )
    return batch_size // num_processes


@contextlib.contextmanager
def single_process() -> Iterator[None]:
    """Makes Keras create variables for this process only, not for all, in the block.

    With `keras.distribution` on JAX, a process that creates a variable waits until the
    others create the same one. Keras creates some in unexpected places: an optimizer
    for each saved model.
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
