"""`log.txt`: what a run says on the terminal is kept in a file as well."""

from __future__ import annotations

import contextlib
import datetime
import io
import os
import sys
from collections.abc import Iterator
from typing import TextIO


class TextLog(io.TextIOBase):
    """Passes on all that is written, and keeps the lines for a file.

    Of a line that was overwritten on the terminal, as lines that count steps are, it
    keeps the last version alone.

    Args:
        stream: where to pass it on to.

    Example:
        >>> import tempfile
        >>> stream = io.StringIO()
        >>> log = TextLog(stream)
        >>> print("step 1\\rstep 2\\repoch 1", file=log)
        >>> path = f"{tempfile.mkdtemp()}/log.txt"
        >>> log.keep_in(path)
        >>> print("epoch 2", file=log)
        >>> log.close()
        >>> open(path).read().splitlines()[1:], len(stream.getvalue())
        (['epoch 1', 'epoch 2'], 30)
    """

    def __init__(self, stream: TextIO) -> None:
        self.is_quiet = False  # then nothing is passed on
        self._stream = stream
        self._file: TextIO = io.StringIO()
        self._line = ""

    def keep_in(self, path: str | os.PathLike) -> None:
        """Writes what was kept so far to a file, behind what it has, and goes on so."""
        held = self._file.getvalue()
        now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115
        self._file.write(f"-- {now}\n{held}")
        self._file.flush()

    def write(self, text: str) -> int:
        if not self.is_quiet:
            self._stream.write(text)
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            self._file.write(line.rstrip().rpartition("\r")[2] + "\n")
        if lines:
            self._file.flush()
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        if self._line:
            self._file.write(self._line + "\n")
        self._file.close()  # and not the stream, which is another's

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    @property
    def encoding(self) -> str:
        return getattr(self._stream, "encoding", None) or "utf-8"


@contextlib.contextmanager
def standard_output_kept() -> Iterator[TextLog]:
    """Context in which standard output goes through a `TextLog`."""
    log = TextLog(sys.stdout)
    with contextlib.closing(log), contextlib.redirect_stdout(log):
        yield log
