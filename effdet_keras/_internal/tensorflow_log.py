"""Keeps TensorFlow's own log out of what the command prints.

`TF_CPP_MIN_LOG_LEVEL` silences most of it, but not what its libraries log before their
logging is set up: that goes to file descriptor 2 at any level. So the command imports
Keras and TensorFlow by `import_module`, which filters what is written there.

`OptionalModule.require` calls it. A subcommand that imports modules with `import keras`
at their top calls `keras.require(...)` first.
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
    # Two libraries that register the same factory, in every process.
    "one has already been registered",
    "placer already registered",
)
# Where there is no driver there is no GPU, and it is no error that none answers.
_NO_DRIVER, _NO_ANSWER = "Could not find cuda drivers", "failed call to cuInit"

_filter_imports = False
_one_import_at_a_time = threading.RLock()  # file descriptor 2 belongs to all threads


def quiet_tensorflow() -> None:
    """From now on `import_module` leaves out what TensorFlow logs, but for errors.

    A user who has set `TF_CPP_MIN_LOG_LEVEL` gets what that asks for.
    """
    global _filter_imports
    if _LEVEL in os.environ:
        return
    os.environ[_LEVEL] = "2"  # errors alone
    _filter_imports = True


def import_module(name: str) -> types.ModuleType:
    """Imports a module; in the command, without the log of a TensorFlow it brings.

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
                # Asks the driver, which logs; it takes no memory and fixes no setting.
                sys.modules["tensorflow"].config.list_physical_devices()
            return module


@contextlib.contextmanager
def _filtered_log() -> Iterator[None]:
    """Context that holds back what is written to file descriptor 2, and filters it."""
    sys.stderr.flush()
    with tempfile.TemporaryFile() as held:
        terminal = os.dup(2)
        was_enabled = faulthandler.is_enabled()
        # A process that dies here (a processor without AVX) says at least where.
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
    """The lines of a log without information and known noise.

    `has_device` says whether there may be a graphics card. TensorFlow 2.20 does not log
    that it found no driver, and still reports that none answers.
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
