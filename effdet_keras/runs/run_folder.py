"""The folder of a run: what is in it, and that two runs never share one."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from effdet_keras._internal.processes import current_processes
from effdet_keras._internal.remote_path import open_folder
from effdet_keras._internal.whole_files import replacing
from effdet_keras.errors import InvalidStateError
from effdet_keras.runs.configuration import RunConfiguration
from effdet_keras.weights.checkpoint_files import (
    ARCHIVE_FOLDER,
    BEST_FILE,
    CONFIGURATION_FILE,
    LAST_FILE,
    PREVIOUS_FILE,
)

_REQUESTED = "asked.yaml"  # the same before anything was measured or chosen
_FINISHED = "finished.json"  # the last file that a run writes
_FILES = (
    *("environment.json", "data.json", "log.jsonl", "log.txt", "curves.png"),
    *("first_batch.png", "numbers.json", "report.html", _FINISHED, _REQUESTED),
    CONFIGURATION_FILE,  # which makes it the folder of a run: last
)
# Of the range test, which is made before a run begins.
_RATES = ("learning_rates.json", "learning_rates.png")
_FOLDERS = (ARCHIVE_FOLDER, "tensorboard", "profile", "followed")


def _is_of_run(name):
    return name in (*_FILES, *_RATES, *_FOLDERS)


class RunFolder:
    """A folder for one run, here or at an address; it need not be there.

    Example:
        >>> import tempfile
        >>> folder = RunFolder(tempfile.mkdtemp())
        >>> folder.has_run
        False
        >>> with folder.taken():
        ...     folder.begin(RunConfiguration(data="cells"))
        >>> folder.has_run, folder.read_configuration().data
        (True, 'cells')
        >>> folder.check_free(overwrite=False)
        Traceback (most recent call last):
            ...
        FileExistsError: The folder '...' has a run already. ...
    """

    def __init__(self, path: str | os.PathLike) -> None:
        self._folder = open_folder(path, "The folder of a run", _is_of_run)
        self.path = self._folder.path
        self.archive = self.path / ARCHIVE_FOLDER
        self.tensorboard = self.path / "tensorboard"
        self.followed = self.path / "followed"  # of `eval --follow`
        self.profile = self.path / "profile"
        self.curves = self.path / "curves.png"
        self.report = self.path / "report.html"
        self.rates, self.rates_image = (self.path / name for name in _RATES)
        self.first_batch = self.path / "first_batch.png"
        self.log = self.path / "log.jsonl"
        self.text = self.path / "log.txt"

    @property
    def has_run(self) -> bool:
        """Whether a run began here."""
        return (self.path / CONFIGURATION_FILE).is_file()

    def check_free(self, *, overwrite: bool) -> None:
        if self.has_run:
            if not overwrite:
                raise FileExistsError(
                    f"The folder '{self._folder.name}' has a run already. Give another "
                    "one; or go on with that run (`resume`, --resume); or remove it "
                    "(`overwrite`, --overwrite)."
                )
            return
        if self.path.is_dir():
            names = {p.name for p in self.path.iterdir()} | set(self._folder.others)
            names -= set(_RATES)
            there = [name for name in names if not name.startswith(".")]
            if there:
                raise FileExistsError(
                    f"The folder '{self._folder.name}' has {sorted(there)[:3]} in it, "
                    "which is no run: give another folder, nothing is removed."
                )

    def check_run(self) -> None:
        """Raises FileNotFoundError where there is no run to go on with."""
        if not self.has_run:
            raise FileNotFoundError(
                f"There is no run to go on with in '{self._folder.name}': it has no "
                f"'{CONFIGURATION_FILE}'. Leave `resume` (--resume) out to begin one."
            )

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Context in which no other process can run into this folder."""
        self.path.mkdir(parents=True, exist_ok=True)
        self._folder.acquire("A run")
        try:
            yield
        finally:
            self._folder.release()

    def begin(
        self,
        configuration: RunConfiguration,
        *,
        requested: RunConfiguration | None = None,
        keeps_files: bool = False,
    ) -> None:
        """Writes the configuration of a run that begins, or goes on with its files."""
        if not keeps_files:
            for name in _FOLDERS:
                shutil.rmtree(self.path / name, ignore_errors=True)
            for name in _FILES:
                (self.path / name).unlink(missing_ok=True)
        (self.path / _FINISHED).unlink(missing_ok=True)
        (requested or configuration).write(self.path / _REQUESTED)
        configuration.write(self.path / CONFIGURATION_FILE)

    def finish(self, epoch: int) -> None:
        """Notes that the run is done: nothing more will be written."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self.write_json("finished", {"epoch": epoch, "time": now})

    @property
    def is_finished(self) -> bool:
        """Whether the run is done, and does not go on."""
        return (self.path / _FINISHED).is_file()

    def read_configuration(self) -> RunConfiguration:
        return RunConfiguration.read(self.path / CONFIGURATION_FILE)

    def read_asked(self) -> RunConfiguration:
        """What the run was asked for, before anything was measured or chosen."""
        path = self.path / _REQUESTED
        # Runs of a version before have none.
        return (
            RunConfiguration.read(path) if path.is_file() else self.read_configuration()
        )

    def configuration_text(self) -> str:
        return (self.path / CONFIGURATION_FILE).read_text(encoding="utf-8")

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Writes "environment", "data", "numbers" or "finished" as JSON."""
        with replacing(self.path / f"{name}.json") as partial:
            partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    def check_same_data(self, described: Mapping[str, Any]) -> None:
        """Raises RuntimeError where a run that goes on has other data than it had."""
        path = self.path / "data.json"
        if not path.is_file():  # it was stopped before it was written
            return
        before = json.loads(path.read_text(encoding="utf-8"))
        for name, split in described["splits"].items():
            had = before["splits"].get(name, {})
            if had.get("sha256") != split["sha256"]:
                raise InvalidStateError(
                    f"The run in '{self.path}' cannot go on: its {name} images are not "
                    f"those that it began with ({had.get('images', 0)} images with "
                    f"{had.get('boxes', 0)} boxes; now {split['images']} with "
                    f"{split['boxes']}). Begin a new run in another folder, with "
                    f"weights='{self.archive}' if it is to start from this one."
                )


# --- The files of the first process' run, in the folders of the other processes.

# The last but one is what a training goes on from where the last is damaged.
CHECKPOINTS = tuple(f"archive/{n}" for n in (BEST_FILE, LAST_FILE, PREVIOUS_FILE))
OF_A_RUN = ("configuration.yaml", "data.json", "log.jsonl", *CHECKPOINTS)


def copy_from_first(folder: RunFolder, names: Sequence[str]) -> None:
    """Gives each process the files that the first has, by way of the network.

    So the folder of a run need not be on a disk that all hosts see. All processes call
    it; in a training of one process it does nothing.
    """
    processes = current_processes()
    if processes.count == 1:
        return
    own = {}
    if processes.index == 0:
        paths = {name: folder.path / name for name in names}
        own = {n: path.read_bytes() for n, path in paths.items() if path.is_file()}
    files = processes.gather(own)[0]
    if processes.index == 0:
        return
    for name in names:
        path = folder.path / name
        path.unlink(missing_ok=True)
        if name in files:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(files[name])
