"""The checkpoints that a training writes, taken one by one from another process."""

from __future__ import annotations

import os
import pathlib
import shutil
import zipfile
from typing import Any

from effdet_keras.errors import InvalidValueError
from effdet_keras.weights.archive import ZIP_DAMAGES, read_archive_info
from effdet_keras.weights.checkpoint_files import BEST_FILE, PREVIOUS_FILE

_OF_BEST = BEST_FILE.removesuffix("keras")  # best.keras, best.previous.keras


class NewCheckpoints:
    """Takes copies of checkpoints, so that a training may replace what is read.

    `last.keras` counts each time that it is replaced; so does any other checkpoint but
    those that are kept because they were the best, which were the last before.

    Args:
        folder: path of the folder of a `CheckpointArchive`; it need not be there yet.
        done: what `moment_of` gives for checkpoints that are not to be taken.

    Example:
        >>> import tempfile
        >>> NewCheckpoints(tempfile.mkdtemp()).take("copy.keras") is None
        True
    """

    def __init__(self, folder: str | os.PathLike, done: set[tuple] = frozenset()):
        self.folder = pathlib.Path(folder)
        self._done = set(done)
        self._taken: dict[str, tuple] = {}  # the file that was taken, by name

    def take(self, copy: str | os.PathLike) -> tuple[str, dict[str, Any]] | None:
        """Copies the oldest checkpoint that is new.

        A file that is not whole yet is none; one that is replaced while it is copied is
        copied again.

        Args:
            copy: path to copy to; what is there is replaced.

        Returns:
            The name of the file, and what it says of itself; None if none is new.
        """
        not_whole: set[tuple] = set()
        while found := [item for item in self._new_files() if item[1] not in not_whole]:
            path, identity = found[0]
            info = _copy_whole(path, copy)
            if info is None or _identity(path) != identity:
                not_whole.add(identity)  # a file that took its place has another one
                continue
            self._taken[path.name] = identity
            if moment_of(info) not in self._done:
                self._done.add(moment_of(info))
                return path.name, info
        return None

    def _new_files(self):
        """Paths and identities of whole files, the oldest checkpoint first."""
        found = []
        for path in self.folder.glob("*.keras"):
            if path.name.startswith((".", _OF_BEST)) or path.name == PREVIOUS_FILE:
                continue
            identity = _identity(path)
            if identity is None or identity == self._taken.get(path.name):
                continue
            info = _info(path)
            if info is not None:
                found.append((moment_of(info), path.name, path, identity))
        return [item[2:] for item in sorted(found)]


def moment_of(info: dict[str, Any]) -> tuple[int, str]:
    """When a checkpoint was written: copies of one file share it.

    Args:
        info: dict, what `read_archive_info` gives.

    Example:
        >>> moment_of({"epoch": 3, "created": "2026-01-01T00:00:00+00:00", "AP": 0.5})
        (3, '2026-01-01T00:00:00+00:00')
    """
    return info.get("epoch", 0), info.get("created", "")


def _copy_whole(path, copy):
    """What the copy says of itself; None if it is not whole."""
    try:
        shutil.copyfile(path, copy)
        with zipfile.ZipFile(copy) as archive:
            is_whole = archive.testzip() is None
    except ZIP_DAMAGES:
        return None
    return _info(copy) if is_whole else None


def _info(path):
    try:
        return read_archive_info(path)
    except (InvalidValueError, OSError):  # half a file, or no more there
        return None


def _identity(path):
    """What changes when a file is replaced, or written on; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
