"""Keeps TensorFlow's start-up lines from the terminal, and nothing else.

TensorFlow's C++ code writes notes on its build and on the machine straight to file
descriptor 2, some of them whatever `TF_CPP_MIN_LOG_LEVEL` says. Within the block,
descriptor 2 is a pipe to a small process of its own, which passes on every line that is
no such note. A process, and not a thread, because what a crash of this process writes
last must arrive as well. `sys.stderr` goes to the terminal directly.
"""

import contextlib
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator

_STDERR = 2
_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_WAIT = 2.0  # seconds, for the last lines to arrive
# The two beginnings of a line of TensorFlow, such as
# I0000 00:00:1795300356.10 16899 port.cc:153] oneDNN custom operations are on.
# 2026-11-21 22:11:11.12: I tensorflow/core/util/port.cc:153] oneDNN custom ...
_RECORD = (
    rb"(?:[%b]\d{4} \d\d:\d\d:[\d.]+\s+\d+ \S+:\d+\] "
    rb"|\d{4}-\d\d-\d\d \d\d:\d\d:[\d.]+: [%b] \S+:\d+\] )"
)
DROPPED = re.compile(
    _RECORD % (b"IW", b"IW")
    # Errors that TensorFlow logs on every machine without a graphics card.
    + rb"|%b(?:Unable to register|failed call to cuInit)" % (_RECORD % (b"E", b"E"))
    + rb"|WARNING: All log messages before absl::InitializeLog\(\) is called"
    rb"|To enable the following instructions: .*rebuild TensorFlow"
    rb"|INFO: (?:Created|Initialized) TensorFlow Lite"
    rb"|fully_quantize: \d, inference_type: "  # of the converter to LiteRT
)


@contextlib.contextmanager
def tensorflow_notes_dropped() -> Iterator[None]:
    """Drops TensorFlow's notes from standard error within the `with` block.

    It does nothing if `TF_CPP_MIN_LOG_LEVEL` is 0 or 1, with which users ask for the
    notes; nor on Windows, which cannot fork; nor if other threads run already.
    """
    level = os.environ.setdefault(_LEVEL, "2")
    if level in ("0", "1") or not hasattr(os, "fork") or not _is_usable():
        yield
        return
    sys.stderr.flush()
    terminal, python_stderr = os.dup(_STDERR), sys.stderr
    child = _start_filter(terminal)
    sys.stderr = open(  # noqa: SIM115
        terminal,
        "w",
        buffering=1,
        encoding=python_stderr.encoding,
        errors=python_stderr.errors,
    )
    try:
        yield
    finally:
        os.dup2(terminal, _STDERR)  # closes the pipe: the filter comes to its end
        end = time.monotonic() + _WAIT  # a process that was left may hold it open
        while os.waitpid(child, os.WNOHANG)[0] == 0 and time.monotonic() < end:
            time.sleep(0.005)
        sys.stderr.flush()  # and left open, for handlers of logs that still have it
        sys.stderr = python_stderr


def _is_usable():
    """Whether there is a standard error, and a fork leaves no other thread behind."""
    try:
        is_stderr = sys.stderr.fileno() == _STDERR
    except (AttributeError, OSError, ValueError):  # None, captured, closed
        return False
    return is_stderr and threading.active_count() == 1


def _start_filter(terminal):
    """Starts the process; afterwards descriptor 2 is the pipe to it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)  # it ends when the pipe does
            for descriptor in (0, 1, _STDERR, writing):
                with contextlib.suppress(OSError):  # it was closed before
                    os.close(descriptor)
            with open(reading, "rb") as lines, open(terminal, "wb", 0) as out:
                for line in lines:
                    if not DROPPED.match(line):
                        out.write(line)
        finally:
            os._exit(0)
    os.close(reading)
    os.dup2(writing, _STDERR)
    os.close(writing)
    return child
