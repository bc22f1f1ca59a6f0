"""The log of a run, `log.jsonl`: one line of JSON per epoch, each epoch once."""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import io
import json
import math
import os
import pathlib
import platform
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any, TextIO

import keras

from effdet_keras._internal.whole_files import replacing
from effdet_keras._version import __version__
from effdet_keras.callbacks.tensorboard import TensorBoardWriter
from effdet_keras.train.parts import steps_done
from effdet_keras.train.resume import Place

# What a line has besides numbers of the training; `steps` are those trained in all.
OF_THE_ROW = ("epoch", "time", "seconds", "steps")


class RunLog(keras.callbacks.Callback):
    """Writes the numbers of each epoch; all of the file, so that no line is halved.

    Lines behind the place that a run goes on from, which have no checkpoint, go.
    """

    def __init__(self, path: pathlib.Path, place: Place | None = None) -> None:
        super().__init__()
        self.path = path
        self.place = place or Place(epoch=0)
        rows = read_rows(path)
        self.rows = [row for row in rows if row["epoch"] <= self.place.epoch]
        self._start = time.monotonic()

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._start = time.monotonic()
        if epoch == self.place.epoch:  # some of it was trained before the stop
            self._start -= self.place.seconds

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        row = {
            "epoch": epoch + 1,
            "time": now,
            "seconds": round(time.monotonic() - self._start, 3),
        }
        optimizer = getattr(self.model, "optimizer", None)
        if optimizer is not None:
            row["steps"] = steps_done(optimizer)
        numbers = {name: float(value) for name, value in (logs or {}).items()}
        row |= {n: x if math.isfinite(x) else None for n, x in numbers.items()}
        self.rows.append(row)
        with replacing(self.path) as partial:
            lines = (json.dumps(row) + "\n" for row in self.rows)
            partial.write_text("".join(lines), encoding="utf-8")


def read_rows(path: pathlib.Path) -> list[dict[str, Any]]:
    """The lines of a log, one dict per epoch; none where there is no file."""
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def history_of(rows: list[dict[str, Any]]) -> dict[str, list[float]]:
    """The numbers by name, one per epoch; NaN where an epoch has none."""
    names = dict.fromkeys(name for row in rows for name in row)
    for name in OF_THE_ROW:
        names.pop(name, None)
    return {name: [_number(row.get(name)) for row in rows] for name in names}


def _number(value):
    return math.nan if value is None else float(value)


# --- `log.txt`: what a run says on the terminal is kept in a file as well.


class TextLog(io.TextIOBase):
    """Passes on all that is written, and keeps the lines for a file, as they ended."""

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


# --- The numbers of a run's log for TensorBoard: each epoch once, also after a stop.

_VALIDATION = "val_"  # as Keras calls losses of validation


class TensorBoardCurves(keras.callbacks.Callback):
    """Writes the rows of a log, under the names that Keras' own callback gives them.

    Event files can only grow: when a run goes on, all are written again.
    """

    def __init__(self, folder: pathlib.Path, log: RunLog) -> None:
        super().__init__()
        self._log = log
        self._folders = {part: folder / part for part in ("train", "validation")}
        self._writers = {
            part: TensorBoardWriter(path) for part, path in self._folders.items()
        }

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        for path in self._folders.values():
            shutil.rmtree(path, ignore_errors=True)
        for row in self._log.rows:
            self._write(row)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._write(self._log.rows[-1])

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        for writer in self._writers.values():
            writer.close()

    def _write(self, row):
        numbers = {n: x for n, x in row.items() if n not in OF_THE_ROW}
        parts = {"train": {}, "validation": {}}
        for name, value in numbers.items():
            is_validation = name.startswith(_VALIDATION)
            part = parts["validation" if is_validation else "train"]
            if value is not None:
                part[f"epoch_{name.removeprefix(_VALIDATION)}"] = value
        for part, values in parts.items():
            if values:
                self._writers[part].scalars(values, step=row["epoch"] - 1)


# --- On what a run ran: machine, Python, packages.

_PACKAGES = (
    *("keras", "tensorflow", "jax", "torch", "numpy", "pillow"),
    *("pycocotools", "hotcoco", "matplotlib", "tensorboard"),
)


def describe_environment() -> dict[str, Any]:
    """What somebody needs to know to repeat a run, for JSON."""
    return {
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "backend": keras.backend.backend(),
        "packages": {"effdet-keras": __version__, **_versions()},
    }


def environment_facts(environment: Mapping[str, Any]) -> dict[str, str]:
    """The same in lines for people, for a report."""
    names = ("effdet-keras", "keras", environment["backend"])
    packages = environment["packages"]
    versions = [f"{name} {packages[name]}" for name in names if name in packages]
    return {
        "when": environment["started"],
        "machine": f"{environment['platform']}, {environment['cpus']} CPUs",
        "software": ", ".join([f"Python {environment['python']}", *versions]),
    }


def _versions():
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
