"""Lets a training outlive the reader of its output, as in `train DATA | head`."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

from effdet_keras._internal.lazy_names import COMMAND


@contextlib.contextmanager
def outliving_output(message: str) -> Iterator[None]:
    """Returns a context in which the reader of standard output may end early.

    Args:
        message: string, printed on standard error once the reader has ended.
    """
    with contextlib.redirect_stdout(_Output(sys.stdout, message)):
        yield


class _Output:
    """A stream that discards its output once the program that reads it has ended."""

    def __init__(self, stream: Any, message: str):
        self._stream, self._message = stream, message

    def write(self, text: str) -> int:
        with self._told():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._told():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextlib.contextmanager
    def _told(self):
        try:
            yield
        except BrokenPipeError:
            # From now on, the stream's buffer and Python's last output go nowhere.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)
            print(f"{COMMAND}: {self._message}", file=sys.stderr, flush=True)
