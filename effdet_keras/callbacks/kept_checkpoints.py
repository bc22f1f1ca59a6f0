"""Which checkpoints of a training stay: the last ones, and one every few hours."""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Sequence

from effdet_keras.weights.archive import copy_archive

_HOUR = 3600.0  # seconds
_NAME = re.compile(r"step-(\d+)\.keras")


def is_kept_name(name: str) -> bool:
    """Whether a file is one of them, by its name.

    Example:
        >>> is_kept_name("step-00001000.keras"), is_kept_name("last.keras")
        (True, False)
    """
    return _NAME.fullmatch(name) is not None


class KeptCheckpoints:
    """The files `step-<steps>.keras` in a folder, beside its last checkpoint.

    Args:
        folder: `pathlib.Path`.
        keep: int, how many of the last stay; with 1 there are none beside the last
            checkpoint itself.
        every_hours: float, of those before them one every so many hours stays, the
            first as well; None for none.
    """

    def __init__(
        self, folder: pathlib.Path, keep: int = 1, every_hours: float | None = None
    ) -> None:
        self.folder = folder
        self.keep = keep
        self.every_hours = every_hours

    def add(self, path: pathlib.Path, steps: int) -> None:
        """Keeps a file that was just written, and removes what need not stay.

        Args:
            path: path of the file; it is never changed, only replaced.
            steps: int, the steps trained when it was written.
        """
        if self.keep == 1 and self.every_hours is None:
            return
        target = self.folder / f"step-{steps:08d}.keras"
        target.unlink(missing_ok=True)
        try:
            os.link(path, target)  # one file of two names takes no space
        except OSError:
            copy_archive(path, target)
        files = self.files()
        times = [file.stat().st_mtime for file in files]
        for index in removable(times, self.keep, self.every_hours):
            files[index].unlink()

    def files(self) -> list[pathlib.Path]:
        """The files that are there, in the order of their steps."""
        found = [path for path in self.folder.glob("*") if _NAME.fullmatch(path.name)]
        return sorted(found, key=lambda path: int(_NAME.fullmatch(path.name)[1]))


def removable(
    times: Sequence[float], keep: int, every_hours: float | None
) -> list[int]:
    """Which checkpoints need not stay.

    Args:
        times: list of floats, when each was written, in seconds, the oldest first. A
            clock that was set back begins to count anew.
        keep, every_hours: see `KeptCheckpoints`.

    Returns:
        List of ints, their places in `times`.

    Example:
        >>> hours = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
        >>> removable([3600 * hour for hour in hours], keep=2, every_hours=1)
        [1, 3]
        >>> removable([0.0, 1.0, 2.0], keep=2, every_hours=None)
        [0]
    """
    removed: list[int] = []
    last_kept, pause = None, _HOUR * (every_hours or 0)
    for index, time in enumerate(times[: max(len(times) - keep, 0)]):
        is_due = last_kept is None or not 0 <= time - last_kept < pause
        if every_hours is not None and is_due:
            last_kept = time
        else:
            removed.append(index)
    return removed
