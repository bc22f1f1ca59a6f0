"""The folder of a run: its files, and the lock that keeps two runs out of it."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import importlib.metadata
import io
import json
import math
import os
import pathlib
import platform
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TextIO

import keras
import numpy as np

from effdet_keras._internal.folder_lock import FolderLock, open_folder
from effdet_keras._internal.json_files import read_json_object
from effdet_keras._internal.optional_imports import matplotlib_figure
from effdet_keras._internal.processes import current_processes, is_first_process
from effdet_keras._internal.whole_files import (
    TEMPORARY_NAME,
    UNENCODABLE,
    atomic_write,
    check_may_be_folder,
    copy_file,
    files_in,
    put_in_place,
    remove_file,
    write_text,
)
from effdet_keras._internal.yaml_text import read_yaml
from effdet_keras._version import __version__
from effdet_keras.data.dataset import DetectionDataset, count_of
from effdet_keras.errors import (
    InvalidStateError,
    InvalidValueError,
    MissingPackageError,
    first_line,
    require,
)
from effdet_keras.export.runtime import REPORT_NAME, read_report
from effdet_keras.runs.configuration import RunConfiguration
from effdet_keras.train.optimizers import steps_done
from effdet_keras.train.resume import TrainingPosition
from effdet_keras.weights.checkpoint_files import (
    ARCHIVE_FOLDER,
    BEST_FILE,
    CONFIGURATION_FILE,
    LAST_FILE,
    PREVIOUS_FILE,
    checkpoint_in,
)
from effdet_keras.weights.pretrained import checkpoint_to_resume

_FINISHED = "finished.json"  # the last file that a run writes
_FILES = (
    "environment.json",
    "data.json",
    "log.jsonl",
    "log.txt",
    "curves.png",
    "first_batch.png",
    "numbers.json",
    "report.html",
    _FINISHED,
    CONFIGURATION_FILE,  # last: a folder with this file counts as the folder of a run
)
# Files of the learning-rate range test, which is made before a run begins.
_RATES = ("learning_rates.json", "learning_rates.png")
_FOLDERS = (ARCHIVE_FOLDER, "tensorboard", "profile", "followed", "export")
# While a new run replaces an earlier one, that is here. It is there as a whole if the
# folder has its configuration, which is put there last and is moved back first.
_REPLACED = "replaced_run"
_RUN_ENTRIES = (*_FILES, *_RATES, *_FOLDERS, _REPLACED)
# Files that a run writes to its folders, except `export`, whose report lists them.
_WRITTEN = re.compile(
    rf"{ARCHIVE_FOLDER}/(best|last|step-\d+)(\.(previous|earlier|damaged))*(-\d+)?\.keras"
    r"|followed/(numbers\.jsonl|best\.keras)"
    r"|profile/plugins/.*|(tensorboard|profile)/(.*/)?[^/]*tfevents[^/]*"
    rf"|.*/(\.in_use\.(json|lock)|{TEMPORARY_NAME.pattern})"
)


class RunFolder:
    """The folder of one run, on this machine or at an address. It need not exist.

    If `path` is an address, its files are fetched first, unless `fetches` is False.
    """

    def __init__(self, path: str | os.PathLike, *, fetches: bool = True) -> None:
        self._folder = open_folder(
            path, "The folder of a run", _RUN_ENTRIES.__contains__, fetches=fetches
        )
        self.path = self._folder.path
        self.archive = self.path / ARCHIVE_FOLDER
        self.replaced = self.path / _REPLACED
        self.tensorboard = self.path / "tensorboard"
        self.followed = self.path / "followed"  # written by `eval --follow`
        self.profile = self.path / "profile"
        self.export = self.path / "export"
        self.curves = self.path / "curves.png"
        self.report = self.path / "report.html"
        self.rates, self.rates_image = (self.path / name for name in _RATES)
        self.first_batch = self.path / "first_batch.png"
        self.log = self.path / "log.jsonl"
        self.text = self.path / "log.txt"
        self.finished = self.path / _FINISHED

    @property
    def has_run(self) -> bool:
        """Whether a run has begun in this folder."""
        return (self.path / CONFIGURATION_FILE).is_file()

    def update(self) -> None:
        """Fetches new files, if the folder is at an address."""
        self._folder.update()

    def check_empty(self, *, overwrite: bool) -> None:
        """Raises `FileExistsError` if there are other files, or a run to keep."""
        check_may_be_folder(self.path)
        if self.has_run:
            if not overwrite:
                raise FileExistsError(
                    f"The folder '{self._folder.name}' already has a run. Give another "
                    "folder, continue that run (`resume`, --resume), or remove it "
                    "(`overwrite`, --overwrite)."
                )
            return
        files = self.path.iterdir() if self.path.is_dir() else ()
        names = {*(path.name for path in files), *self._folder.others} - set(_RATES)
        there = sorted(name for name in names if not name.startswith("."))
        if there:
            raise FileExistsError(
                f"The folder '{self._folder.name}' is not empty and not the folder of "
                f"a run: it contains {there[:3]}. Nothing was removed: give another "
                "folder."
            )

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Returns a context in which no other process can use this folder for a run."""
        self.path.mkdir(parents=True, exist_ok=True)
        self._folder.acquire("A run")
        try:
            if not self._has_replaced:  # a process was killed while it moved files
                self._put_back_replaced()
            yield
        finally:
            self._folder.release()

    def begin(
        self, configuration: RunConfiguration, *, keeps_files: bool = False
    ) -> None:
        """Writes the configuration; sets an earlier run aside unless `keeps_files`."""
        if not keeps_files and self.has_run:
            self._set_aside()
        self.finished.unlink(missing_ok=True)
        configuration.write(self.path / CONFIGURATION_FILE)

    @property
    def _has_replaced(self):
        """Whether the run that the current one replaces is in its folder as a whole."""
        return (self.replaced / CONFIGURATION_FILE).is_file()

    def _set_aside(self):
        """Moves the files of a run to `replaced`, where they are until `finish`."""
        if self._has_replaced and checkpoint_in(self.archive) is None:
            _remove_written(self.path)  # the run in `replaced` is the one to keep
            return
        self._remove_replaced()
        self.replaced.mkdir(exist_ok=True)
        _move_files(self.path, self.replaced)
        copy_file(self.path / CONFIGURATION_FILE, self.replaced / CONFIGURATION_FILE)
        print(
            f"The earlier run is kept in '{self.replaced}' until the new one is "
            "complete."
        )

    @contextlib.contextmanager
    def earlier_run_kept(self, text: TextLog) -> Iterator[None]:
        """Returns a context that puts the earlier run back if the new one fails.

        After the first checkpoint of the new run, the earlier one stays in `replaced`.
        """
        try:
            yield
        except BaseException:
            if self._has_replaced and checkpoint_in(self.archive) is None:
                text.leave_file()
                _remove_written(self.path)
                self._put_back_replaced()
                print(
                    "The new run ended without a checkpoint: the earlier run is again "
                    f"in '{self.path}'."
                )
            elif self._has_replaced:
                print(f"The earlier run is still in '{self.replaced}'.")
            else:
                self._put_back_replaced()
            raise

    def _put_back_replaced(self):
        """Moves the files of an earlier run from `replaced` back to their places."""
        if self._has_replaced:
            name = CONFIGURATION_FILE
            put_in_place(self.replaced / name, self.path / name)
        _move_files(self.replaced, self.path)
        with contextlib.suppress(OSError):  # it is not there, or has other files
            self.replaced.rmdir()

    def _remove_replaced(self):
        """Removes the earlier run; files that it did not write go to their places."""
        _remove_written(self.replaced)
        (self.replaced / CONFIGURATION_FILE).unlink(missing_ok=True)
        self._put_back_replaced()

    def finish(self, epoch: int) -> None:
        """Writes `finished.json`, which marks the run as complete.

        It then removes the earlier run that was set aside.
        """
        self.write_json("finished", {"epoch": epoch, "time": _now()})
        self._remove_replaced()

    def check_has_checkpoint(self) -> None:
        """Raises RuntimeError if a resumed run has a log but no checkpoint.

        The log of an epoch is written before its checkpoint. So a run that was stopped
        before its first checkpoint has at most one line in its log.
        """
        rows = read_rows(self.log)
        if len(rows) > 1:
            raise InvalidStateError(
                f"The run in '{self._folder.name}' has a log of "
                f"{count_of(len(rows), 'epoch')}, but no checkpoint in "
                f"'{self.archive}' to continue from: "
                f"'{LAST_FILE}' was moved or removed. Put it back, or begin again "
                "with `overwrite` (--overwrite) or in another folder."
            )

    def read_configuration(self) -> RunConfiguration:
        """Returns the configuration with which the run began."""
        path = self.path / CONFIGURATION_FILE
        if not self.has_run:
            raise FileNotFoundError(
                f"There is no run in '{self.path}': it has no {CONFIGURATION_FILE}. "
                "Give the folder of a run, or data to begin one."
            )
        configuration, written = RunConfiguration.read(path), read_yaml(path)
        if not written:
            raise InvalidStateError(
                f"'{path}' is empty, but a run writes all of its settings to it. Put "
                "a whole copy in its place, or give another folder."
            )
        if "split_by" not in written:
            # This run began when validation images were still chosen one by one.
            configuration = configuration.replace(split_by="image")
        return configuration

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Writes `name`.json: "environment", "data", "numbers" or "finished"."""
        write_text(self.path / f"{name}.json", json.dumps(content, indent=1) + "\n")

    def check_same_data(self, described: Mapping[str, Any]) -> None:
        """Raises RuntimeError if a resumed run has other data than at its start."""
        if not (self.path / "data.json").is_file():
            return  # the run was stopped before it wrote this file
        before, now = self.read_splits(), described["splits"]
        for name in {**now, **before}:
            split, had = now.get(name, {}), before.get(name, {})
            if had.get("sha256") != split.get("sha256"):
                raise InvalidStateError(
                    f"The run in '{self.path}' cannot be resumed: its {name} images "
                    f"are not the same as when it began. Received: {split}, before: "
                    f"{had}. Begin a new run in another folder, with "
                    f"weights='{self.archive}'."
                )

    def read_splits(self) -> dict[str, dict[str, Any]]:
        """Returns size and digest of each split, from `data.json`.

        Raises `InvalidStateError` if the file is damaged.
        """
        path = self.path / "data.json"
        cure = (
            "Put a whole copy in its place, or remove it: then the images are not "
            "compared with those at the start of the run."
        )
        splits = read_json_object(path, "a run", cure, ("splits",))["splits"]
        try:
            return {name: dict(split) for name, split in splits.items()}
        except (ValueError, TypeError, AttributeError) as error:
            raise InvalidStateError(
                f"'{path}' was not written by a run, or is damaged: "
                f"{first_line(error)}. {cure}"
            ) from error


# --- The folder of several trainings, such as a forecast, and its JSON file.


def read_to_resume(path: pathlib.Path, description: Mapping[str, Any], what: str):
    """Returns the content of the JSON file of a "forecast" or "search" to resume.

    Args:
        path: path of the JSON file.
        description: dict of JSON values, which the file must have under the same names.
        what: "forecast" or "search", for error messages.

    Raises:
        InvalidStateError: If the file is damaged, or was made with another description.
    """
    before = read_written(path, description, what)
    for name, value in description.items():
        if before[name] != value:
            had = before[name]
            if isinstance(value, dict) and isinstance(had, dict):
                changed = [
                    key for key in {**had, **value} if had.get(key) != value.get(key)
                ]
                value, had = ({k: x.get(k) for k in changed} for x in (value, had))
            raise InvalidStateError(
                f"The {what} in '{path.parent}' was begun with another value of "
                f"`{name}`. Received: {value}, before: {had}. Give the value from "
                f"before, or begin a new {what} in another folder."
            )
    return before


def read_written(path: pathlib.Path, names: Iterable[str], what: str) -> dict[str, Any]:
    """Returns the content of the JSON file that a "forecast" or "search" wrote.

    Raises `InvalidStateError` if the file is damaged, or lacks one of `names`.
    """
    cure = "Move the file away, or give another folder."
    return read_json_object(path, f"a {what}", cure, names)


def check_empty_to_begin(folder: pathlib.Path, what: str) -> None:
    """Raises `FileExistsError` if the folder has anything but hidden files."""
    if any(not path.name.startswith(".") for path in folder.glob("*")):
        raise FileExistsError(
            f"The folder '{folder}' is not empty. Give another one. If it has a "
            f"{what}, continue that (`resume`, --resume), or replace it (`overwrite`, "
            "--overwrite)."
        )


@contextlib.contextmanager
def only_writer(folder: pathlib.Path, what: str) -> Iterator[None]:
    """Returns a context in which no other process can write to the folder."""
    check_may_be_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    lock = FolderLock(folder)
    lock.acquire(f"A {what}")
    try:
        yield
    finally:
        lock.release()


def check_resume_or_overwrite(resume: bool, overwrite: bool, what: str) -> None:
    """Raises `InvalidValueError` if a forecast or search is to do both."""
    require(
        not (resume and overwrite),
        f"`resume` (--resume) continues the {what} in the folder, and `overwrite` "
        "(--overwrite) replaces it: give one of the two",
        resume=resume,
        overwrite=overwrite,
    )


class EarlierResults:
    """An earlier "forecast" or "search", which is kept until a new one is complete.

    Meanwhile its files are in `replaced_forecast` or `replaced_search`. They are there
    as a whole if the JSON file is, which moves there last and is moved back first.

    Args:
        folder: path of the folder of both.
        file: name of the JSON file.
        page: name of the HTML file, which is written last.
        what: "forecast" or "search".
    """

    def __init__(self, folder: pathlib.Path, file: str, page: str, what: str) -> None:
        self._folder, self._file, self._page, self._what = folder, file, page, what
        self.replaced = folder / f"replaced_{what}"

    @property
    def _is_whole(self):
        return (self.replaced / self._file).is_file()

    def recover(self) -> None:
        """Puts the files back if a process was killed while it moved them."""
        if not self._is_whole or not (self._folder / self._file).is_file():
            self._put_back()

    def set_aside(self, names: Iterable[str]) -> None:
        """Moves the files and folders of these names, page and JSON file aside."""
        entries = (*names, self._page, self._file)
        if self._is_whole and not (self._folder / self._page).is_file():
            _remove_entries(self._folder, entries)  # incomplete: keep the one aside
        else:
            shutil.rmtree(self.replaced, ignore_errors=True)
            for name in entries:
                if os.path.lexists(self._folder / name):
                    (self.replaced / name).parent.mkdir(parents=True, exist_ok=True)
                    put_in_place(self._folder / name, self.replaced / name)
            _remove_empty_parents(self._folder, entries)
        print(
            f"The earlier {self._what} is kept in '{self.replaced}' until the new one "
            "is complete."
        )

    @contextlib.contextmanager
    def kept(
        self, names: Callable[[], Iterable[str]], has_results: Callable[[], bool]
    ) -> Iterator[None]:
        """Returns a context that puts the earlier files back if the new one fails.

        Args:
            names: returns the names of the new files and folders, which are removed
                then.
            has_results: returns whether the new one has results to continue from. Then
                the earlier files stay in `replaced`.
        """
        try:
            yield
        except BaseException:
            if not self._is_whole:
                self._put_back()
            elif has_results():
                print(f"The earlier {self._what} is still in '{self.replaced}'.")
            else:
                entries = (*names(), self._page, self._file)
                _remove_entries(self._folder, entries)
                self._put_back()
                print(
                    f"The new {self._what} ended without a result: the earlier one is "
                    f"again in '{self._folder}'."
                )
            raise
        shutil.rmtree(self.replaced, ignore_errors=True)

    def _put_back(self):
        """Moves the files from `replaced` back to their places; existing ones stay."""
        names = files_in(self.replaced)
        for name in sorted(names, key=lambda name: name != self._file):
            if not os.path.lexists(self._folder / name):
                (self._folder / name).parent.mkdir(parents=True, exist_ok=True)
                put_in_place(self.replaced / name, self._folder / name)
        _remove_empty_folders(self.replaced)


def _remove_entries(folder, names):
    """Removes the files and folders of these names, in this order, and no others."""
    for name in names:
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    _remove_empty_parents(folder, names)


def _remove_empty_parents(folder, names):
    """Removes the folders of removed entries such as "runs/a", if they are empty."""
    for parent in {(folder / name).parent for name in names} - {folder}:
        with contextlib.suppress(OSError):  # it is not empty
            parent.rmdir()


# --- The files of one run, to move them or to remove them.


def _files_of_run(folder):
    """Returns the files in the folder of a run that may be the run's, as text."""
    entries = {*_FOLDERS, *_FILES} - {CONFIGURATION_FILE}
    return [name for name in files_in(folder) if name.partition("/")[0] in entries]


def _remove_written(folder):
    """Removes the files that a run wrote, except its configuration, and no others."""
    of_export = {REPORT_NAME}
    with contextlib.suppress(InvalidValueError):  # if it is damaged, all files stay
        of_export.update(read_report(folder / "export").get("files", ()))
    written = {*_FILES, *(f"export/{name}" for name in of_export)}
    for name in _files_of_run(folder):
        if name in written or _WRITTEN.fullmatch(name):
            remove_file(folder / name)
    _remove_empty_folders(*(folder / name for name in _FOLDERS))


def _move_files(source, target):
    """Moves the files of a run, except its configuration; existing files stay."""
    for name in _files_of_run(source):
        if not os.path.lexists(target / name):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            put_in_place(source / name, target / name)
    _remove_empty_folders(*(source / name for name in _FOLDERS))


def _remove_empty_folders(*folders):
    """Removes each folder and those below it, as far as they are empty."""
    for folder in folders:
        for place, *_ in os.walk(folder, topdown=False):
            with contextlib.suppress(OSError):  # it is not empty
                os.rmdir(place)


# --- Copies of the first process' files, for the folders of the other processes.

# A training continues from the last checkpoint but one if the last one is damaged.
_CHECKPOINTS = tuple(
    f"{ARCHIVE_FOLDER}/{name}" for name in (BEST_FILE, LAST_FILE, PREVIOUS_FILE)
)
_TEXT_FILES = (CONFIGURATION_FILE, "data.json", "log.jsonl")
RUN_FILES = (*_TEXT_FILES, *_CHECKPOINTS)
_PIECE = 2**24  # bytes that are sent at once; each process holds one piece at a time


def files_to_resume(folder: RunFolder, *, resume: bool) -> tuple[str, ...]:
    """Returns the names of files to copy to other processes before a run begins.

    Of the checkpoints, which may be large, only the one to resume from is copied.
    """
    if not resume:
        return _TEXT_FILES
    if current_processes().count == 1 or not is_first_process():
        return RUN_FILES
    try:
        checkpoint, _ = checkpoint_to_resume(folder.archive)
    except InvalidValueError:  # each process raises this for its copies of the files
        return RUN_FILES
    return (*_TEXT_FILES, *_name_in_run(checkpoint))


def file_of_best(folder: RunFolder) -> tuple[str, ...]:
    """Returns the name of the checkpoint to evaluate; empty if there is none."""
    return _name_in_run(checkpoint_in(folder.archive))


def _name_in_run(checkpoint):
    return () if checkpoint is None else (f"{ARCHIVE_FOLDER}/{checkpoint.name}",)


def copy_from_first(folder: RunFolder, names: Sequence[str]) -> None:
    """Copies files of the first process to all; they need not share a disk."""
    processes = current_processes()
    if processes.count == 1:
        return
    is_first = processes.index == 0
    there = [name for name in names if (folder.path / name).is_file()]
    there = processes.gather(there if is_first else None)[0]
    if not is_first:
        for name in names:
            (folder.path / name).unlink(missing_ok=True)
    for name in there:
        path = folder.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "rb" if is_first else "wb") as file:
            while piece := processes.gather(file.read(_PIECE) if is_first else b"")[0]:
                if not is_first:
                    file.write(piece)


# --- The log of a run, `log.jsonl`: one line of JSON for each epoch.

# Fields of a line that are not metrics. `steps` counts the steps of all epochs so far.
ROW_FIELDS = ("epoch", "time", "seconds", "steps")


class RunLog(keras.callbacks.Callback):
    """Rewrites the log after each epoch, without epochs after the last checkpoint."""

    def __init__(
        self, path: pathlib.Path, position: TrainingPosition | None = None
    ) -> None:
        super().__init__()
        self.path = path
        self.position = position or TrainingPosition(epoch=0)
        rows = read_rows(path)
        self.rows = [row for row in rows if row["epoch"] <= self.position.epoch]
        self._start = time.monotonic()

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._start = time.monotonic()
        if epoch == self.position.epoch:  # part of it was trained before the stop
            self._start -= self.position.seconds

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        seconds = round(time.monotonic() - self._start, 3)
        row = {"epoch": epoch + 1, "time": _now(), "seconds": seconds}
        if self.model is not None:
            row["steps"] = steps_done(self.model.optimizer)
        numbers = {name: float(value) for name, value in (logs or {}).items()}
        row |= {n: x if math.isfinite(x) else None for n, x in numbers.items()}
        self.rows.append(row)
        write_text(self.path, "".join(json.dumps(row) + "\n" for row in self.rows))


def read_rows(path: pathlib.Path) -> list[dict[str, Any]]:
    """Returns the lines of a log, one dict per epoch; empty if there is no file.

    Raises `InvalidStateError` if a line is damaged.
    """
    if not path.is_file():
        return []
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            rows.append(dict(json.loads(line)))
        except (ValueError, TypeError) as error:
            raise InvalidStateError(
                f"Line {number} of '{path}' is damaged: {first_line(error)}. Remove "
                f"this line. Received: {line[:60]!r}"
            ) from error
    return rows


def history_of(rows: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Returns a list per metric, one value per epoch; NaN if an epoch has none."""
    names = dict.fromkeys(name for row in rows for name in row)
    for name in ROW_FIELDS:
        names.pop(name, None)
    numbers = {name: [row.get(name) for row in rows] for name in names}
    return {name: np.array(x, float).tolist() for name, x in numbers.items()}


# --- `log.txt`: a copy of the run's output on the terminal.


class TextLog:
    """A stream that passes text on to another, and keeps a copy for a file."""

    def __init__(self, stream: TextIO) -> None:
        self.is_quiet = False  # if True, text is kept but not passed on
        self._stream = stream
        self.file: TextIO = io.StringIO()

    def keep_in(self, path: str | os.PathLike) -> None:
        """Appends the text kept so far, and from now on all text, to a file."""
        held = self.file.getvalue()
        self.file = open(  # noqa: SIM115
            path, "a", encoding="utf-8", errors=UNENCODABLE, buffering=1
        )
        self.file.write(f"-- {_now()}\n{held}")

    def leave_file(self) -> None:
        """Closes the file; text is passed on, and no longer kept in a file."""
        self.file.close()
        self.file = io.StringIO()

    def write(self, text: str) -> int:
        if not self.is_quiet:
            self._stream.write(text)
        return self.file.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def standard_output_kept() -> Iterator[TextLog]:
    """Returns a context in which standard output goes through a `TextLog`."""
    log = TextLog(sys.stdout)
    with contextlib.redirect_stdout(log):
        try:
            yield log
        finally:
            log.file.close()


class TensorBoardCurves(keras.callbacks.TensorBoard):
    """Keras' `TensorBoard` for epochs only: no step waits for its metrics."""

    async_safe = True


# --- The environment of a run: machine, Python, packages.

_PACKAGES = (
    "keras",
    "tensorflow",
    "jax",
    "torch",
    "numpy",
    "pillow",
    "pycocotools",
    "hotcoco",
    "matplotlib",
    "tensorboard",
)


def describe_environment() -> dict[str, Any]:
    """Returns what is needed to repeat a run, as values of JSON."""
    installed = importlib.metadata.distributions()
    versions = {d.name: d.version for d in installed if d.name in _PACKAGES}
    return {
        "started": _now(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "backend": keras.backend.backend(),
        "packages": {"effdet-keras": __version__, **versions},
    }


def environment_facts(environment: Mapping[str, Any]) -> dict[str, str]:
    """Returns the same as readable lines by title, for a report."""
    names = ("effdet-keras", "keras", environment["backend"])
    versions = [f"{name} {environment['packages'].get(name)}" for name in names]
    return {
        "when": environment["started"],
        "machine": f"{environment['platform']}, {environment['cpus']} CPUs",
        "software": ", ".join([f"Python {environment['python']}", *versions]),
    }


def _now():
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


# --- The data of a run: a digest shows whether it has changed.


def describe_data(datasets: Mapping[str, DetectionDataset]) -> dict[str, Any]:
    """Returns the classes of a run, and the size and digest of each split."""
    first = next(iter(datasets.values()))
    return {
        "class_names": list(first.class_names),
        "category_ids": list(first.category_ids),
        "splits": {
            name: {
                "images": len(dataset),
                "boxes": sum(len(record.labels) for record in dataset.records),
                "sha256": fingerprint(dataset),
            }
            for name, dataset in datasets.items()
        },
    }


def fingerprint(dataset: DetectionDataset) -> str:
    """Returns the SHA-256 of classes, names and sizes of images, and boxes."""
    digest = hashlib.sha256()
    classes = [list(dataset.class_names), list(dataset.category_ids)]
    digest.update(json.dumps(classes).encode())
    for record in dataset.records:
        image = [record.file_name, list(map(int, record.image_size))]
        digest.update(json.dumps(image).encode())
        for array in (record.boxes_xywh, record.labels, record.is_crowd):
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


# --- Charts in the folder of a run, drawn if matplotlib is installed.


def draw_chart(path: pathlib.Path, draw: Callable[[pathlib.Path], object]) -> None:
    """Calls `draw` with a path for a chart, or prints why there is no chart."""
    try:
        matplotlib_figure.require("A chart")
    except MissingPackageError as error:
        print(f"'{path.name}' was not drawn: {error}")
        return
    with atomic_write(path) as partial:
        draw(partial)
