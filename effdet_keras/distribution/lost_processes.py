"""Errors that tell that another process of the training has gone, in plain words."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from effdet_keras.errors import EffDetError, InvalidStateError

# In the messages of Gloo, NCCL and the service by which processes meet.
_SIGNS = (
    *("Gloo ", "gloo/", "NCCL operation", "Connection closed by peer"),
    *("coordination service", "CoordinationService", "heartbeat timeout"),
)


@contextlib.contextmanager
def lost_processes_named() -> Iterator[None]:
    """Context in which a backend's errors about other processes become plain ones."""
    try:
        yield
    except Exception as error:
        plain = lost_process_error(error)
        if plain is None:
            raise
        raise plain from error


def lost_process_error(error: Exception) -> InvalidStateError | None:
    """The plain error for one that tells that another process has gone; else None.

    Example:
        >>> lost_process_error(ValueError("Gloo all-reduce failed: Connection closed"))
        InvalidStateError('Another process of this training has ended, or cannot be \
reached: see what it printed. Start all of them again with the same command; they go \
on from the last checkpoint. (Gloo all-reduce failed: Connection closed)')
        >>> lost_process_error(ValueError("no cats")) is None
        True
    """
    text = next(filter(_is_sign, map(str, _with_causes(error))), None)
    if text is None or isinstance(error, EffDetError):
        return None
    return InvalidStateError(
        "Another process of this training has ended, or cannot be reached: see what "
        "it printed. Start all of them again with the same command; they go on from "
        f"the last checkpoint. ({text.splitlines()[0]})"
    )


def _is_sign(text):
    return any(sign in text for sign in _SIGNS)


def _with_causes(error):
    """An error, and those that it was raised for, or while they were handled."""
    seen = []
    while error is not None and error not in seen:
        seen.append(error)
        error = error.__cause__ or error.__context__
    return seen
