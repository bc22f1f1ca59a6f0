"""Keeps TensorFlow's own log out of the output of the command.

`TF_CPP_MIN_LOG_LEVEL` silences most of the log. But messages that TensorFlow's
libraries log before their logging is set up go to file descriptor 2 at any level. So
the command imports Keras and TensorFlow with `import_module`, which filters that
output.

`OptionalModule.require` calls `import_module`. A subcommand whose modules have `import
keras` at their top has to call `keras.require(...)` first.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import os
import pathlib
import re
import sys
import tempfile
import threading
import types
from collections.abc import Iterable, Iterator

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
# A line of the log begins with its level: I0000 00:00:1795804493.0 7166 port.cc:153]
_INFORMATION = re.compile(r"I\d{4} [\d:.]+ +\d+ [\w./-]+:\d+\]")
_NOISE = (
    "All log messages before absl::InitializeLog",
    # In every process, two libraries register the same factory.
    "one has already been registered",
    "placer already registered",
)
# Without a driver there is no GPU, so it is not an error that the driver is silent.
_NO_DRIVER, _NO_ANSWER = "Could not find cuda drivers", "failed call to cuInit"

_filter_imports = False
_one_import_at_a_time = threading.RLock()  # file descriptor 2 belongs to all threads


def quiet_tensorflow() -> None:
    """Makes `import_module` drop everything but errors from TensorFlow's log.

    If the user has set `TF_CPP_MIN_LOG_LEVEL`, nothing is changed.
    """
    global _filter_imports
    if _LEVEL in os.environ:
        return
    os.environ[_LEVEL] = "2"  # errors only
    _filter_imports = True


def import_module(name: str) -> types.ModuleType:
    """Imports a module; within the command, filters the log of TensorFlow.

    Keras imports TensorFlow if that is its backend.
    """
    brings_tensorflow = name.partition(".")[0] in ("keras", "tensorflow")
    if not (_filter_imports and brings_tensorflow) or name in sys.modules:
        return importlib.import_module(name)
    with _one_import_at_a_time:
        if "tensorflow" in sys.modules:
            return importlib.import_module(name)
        with _filtered_log():
            module = importlib.import_module(name)
            if "tensorflow" in sys.modules:
                # Queries the driver, which logs; uses no memory and fixes no setting.
                sys.modules["tensorflow"].config.list_physical_devices()
            return module


@contextlib.contextmanager
def _filtered_log() -> Iterator[None]:
    """Holds back output to file descriptor 2 within the block, then filters it."""
    sys.stderr.flush()
    with tempfile.TemporaryFile() as held:
        terminal = os.dup(2)
        was_enabled = faulthandler.is_enabled()
        # If the process dies here (a CPU without AVX), at least the place is shown.
        faulthandler.enable(terminal)
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(terminal, 2)
            faulthandler.disable()
            if was_enabled:
                faulthandler.enable()
            os.close(terminal)
            held.seek(0)
            lines = held.read().decode(errors="replace").splitlines(keepends=True)
            has_device = any(pathlib.Path("/dev").glob("nvidia*"))
            sys.stderr.writelines(worth_telling(lines, has_device=has_device))
            sys.stderr.flush()


def worth_telling(lines: Iterable[str], *, has_device: bool = True) -> list[str]:
    """Returns the lines of a log without information messages and known noise.

    `has_device` is whether there may be a graphics card. TensorFlow 2.20 does not log
    that it found no driver, but it still reports that the driver does not respond.
    """
    lines = list(lines)
    noise = _NOISE
    if not has_device or any(_NO_DRIVER in line for line in lines):
        noise = (*noise, _NO_ANSWER)
    return [
        line
        for line in lines
        if not (_INFORMATION.match(line) or any(words in line for words in noise))
    ]
