"""Keeps TensorFlow's start-up lines from the terminal, and nothing else.

TensorFlow's C++ code writes notes on its build and on the machine straight to file
descriptor 2, some of them whatever `TF_CPP_MIN_LOG_LEVEL` says. Within the block,
descriptor 2 is a pipe to `grep`, which passes on every line that is no such note. A
process, and not a thread, because what a crash of this process writes last must arrive
as well. `sys.stderr` goes to the terminal directly.
"""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

_STDERR = 2
_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_WAIT = 2.0  # seconds, for the last lines to arrive
# The two beginnings of a line of TensorFlow, such as
# I0000 00:00:1795300356.10 16899 port.cc:153] oneDNN custom operations are on.
# 2026-11-21 22:11:11.12: I tensorflow/core/util/port.cc:153] oneDNN custom ...
_RECORD = (
    "(LEVEL[0-9]{4} [0-9:.]+ +[0-9]+"
    "|[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:.]+: LEVEL) [^ ]+:[0-9]+\\] "
)
_DROPPED = (
    _RECORD.replace("LEVEL", "[IW]"),
    # Errors that TensorFlow logs on every machine without a graphics card.
    _RECORD.replace("LEVEL", "E") + "(Unable to register|failed call to cuInit)",
    "WARNING: All log messages before absl::InitializeLog\\(\\) is called",
    "To enable the following instructions: .*rebuild TensorFlow",
    "INFO: (Created|Initialized) TensorFlow Lite",
    "fully_quantize: [0-9], inference_type: ",  # of the converter to LiteRT
)


@contextlib.contextmanager
def tensorflow_notes_dropped() -> Iterator[None]:
    """Drops TensorFlow's notes from standard error within the `with` block.

    It does nothing if `TF_CPP_MIN_LOG_LEVEL` is 0 or 1, with which users ask for the
    notes; nor where there is no `grep`, as on Windows.
    """
    level, grep = os.environ.setdefault(_LEVEL, "2"), shutil.which("grep")
    if level in ("0", "1") or grep is None or os.name != "posix" or not _is_usable():
        yield
        return
    sys.stderr.flush()
    terminal, python_stderr = os.dup(_STDERR), sys.stderr
    passing_on = subprocess.Popen(
        [grep, "-avE", "--line-buffered", f"^({'|'.join(_DROPPED)})"],
        stdin=subprocess.PIPE,
        stdout=terminal,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "LC_ALL": "C"},
        start_new_session=True,  # Ctrl-C does not end it: the end of the pipe does
    )
    with passing_on.stdin as pipe:
        os.dup2(pipe.fileno(), _STDERR)
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
        os.dup2(terminal, _STDERR)  # closes the pipe
        # A process that was left may hold it open.
        with contextlib.suppress(subprocess.TimeoutExpired):
            passing_on.wait(_WAIT)
        sys.stderr.flush()  # and left open, for handlers of logs that still have it
        sys.stderr = python_stderr


def _is_usable():
    """Whether standard error is what it is as a rule: not captured, not closed."""
    try:
        return sys.stderr.fileno() == _STDERR
    except (AttributeError, OSError, ValueError):
        return False
