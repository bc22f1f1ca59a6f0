"""Keeps TensorFlow's own log out of what the command prints.

`TF_CPP_MIN_LOG_LEVEL` silences most of it, but not what its libraries log before their
logging is set up: that goes to file descriptor 2 at any level.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib.abc
import importlib.machinery
import importlib.util
import os
import pathlib
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

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


def quiet_tensorflow() -> None:
    """Leaves out what TensorFlow logs when it is imported, but for errors.

    A user who has set `TF_CPP_MIN_LOG_LEVEL` gets what that asks for.
    """
    if _LEVEL in os.environ or "tensorflow" in sys.modules:
        return
    os.environ[_LEVEL] = "2"  # errors alone
    sys.meta_path.insert(0, _QuietImport())


class _QuietImport(importlib.abc.MetaPathFinder):
    """Finds TensorFlow, once, with a loader that keeps its import quiet."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and isinstance(spec.loader, importlib.abc.Loader):
            spec.loader = _QuietLoader(spec.loader)
        return spec


class _QuietLoader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:  # the source of the module, and so on
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        with _filtered_log():
            self._loader.exec_module(module)
            # Asks the driver, which logs; it takes no memory and fixes no setting.
            module.config.list_physical_devices()


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
