"""The processes of one training: which is this one, and what do the others have."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, Protocol

import keras

from effdet_keras.errors import InvalidStateError, InvalidValueError


class Processes(Protocol):
    """The processes that train one model together; a class per engine has them.

    All of them call `gather` and `barrier` as often, and in the same order: a process
    that does not would have the others wait.

    Attributes:
        index: int from 0, which process this is.
        count: int, how many there are.
    """

    index: int
    count: int

    def gather(self, value: Any) -> list[Any]:
        """Returns the values of all processes, by their index, in each process."""

    def barrier(self) -> None:
        """Waits until all processes are here."""

    def plain_error(self, error: Exception) -> Exception | None:
        """What to raise for an error of the engine: that another process was lost."""


class OneProcess:
    """`Processes` of a training in one process.

    Example:
        >>> OneProcess().gather("mine")
        ['mine']
    """

    index = 0
    count = 1

    def gather(self, value: Any) -> list[Any]:
        return [value]

    def barrier(self) -> None:
        pass

    def plain_error(self, error: Exception) -> Exception | None:
        return None


_current: list[Processes] = [OneProcess()]


def current_processes() -> Processes:
    """The processes that this one belongs to: those of `start`, or it alone.

    Example:
        >>> current_processes().count
        1
    """
    return _current[-1]


def set_processes(processes: Processes) -> None:
    """Names the processes that this one belongs to, until it ends."""
    _current[:] = [processes]


def is_first_process() -> bool:
    """Whether this process is the one that writes files.

    Example:
        >>> is_first_process()
        True
    """
    return current_processes().index == 0


def local_share(batch_size: int, share: tuple[int, int]) -> int:
    """The images of a global batch that each process has.

    Example:
        >>> local_share(8, (1, 2))
        4
    """
    _, count = share
    if batch_size % count:
        lower = batch_size // count * count
        sizes = [str(n) for n in (lower, lower + count) if n]
        raise InvalidValueError(
            "`batch_size` counts the images of all processes together, and must be a "
            f"multiple of their number. Received: batch_size={batch_size}, {count} "
            f"processes. Give {' or '.join(sizes)}"
        )
    return batch_size // count


# --- What one process of several does, and the others do not.


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


# --- What a process does when another one of the training is gone.


def lost_process(processes: Processes, detail: str = "") -> InvalidStateError:
    """The error to raise; this process then ends without waiting for the lost one."""
    # TensorFlow and JAX would wait for the lost process when this one ends.
    atexit.register(end_at_once)
    return InvalidStateError(
        f"Process {processes.index} of {processes.count} has lost another process of "
        "the training, which was stopped or cannot be reached: see what that one "
        "wrote. Start all processes again; with `resume` (--resume) they go on from "
        f"the last checkpoint.{f' ({detail})' if detail else ''}"
    )


def end_at_once() -> None:
    """Ends this process with status 1, and runs nothing that is registered for it."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
