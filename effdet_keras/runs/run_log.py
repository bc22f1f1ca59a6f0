"""The log of a run, `log.jsonl`: one line of JSON per epoch, each epoch once."""

from __future__ import annotations

import datetime
import json
import math
import pathlib
import time
from typing import Any

import keras

from effdet_keras._internal.whole_files import replacing
from effdet_keras.training.accumulation import steps_done
from effdet_keras.training.place import Place

# What a line has besides numbers of the training; `steps` are those trained in all.
OF_THE_ROW = ("epoch", "time", "seconds", "steps")


class RunLog(keras.callbacks.Callback):
    """Writes the numbers of each epoch, behind those of the epochs before.

    The whole file is written anew each time, so that a kill leaves no half a line.

    Args:
        path: path of the file.
        place: `Place` that a run goes on from, or None: lines of epochs behind it,
            whose checkpoint was never written, are dropped.
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
    """The numbers by name, one per epoch; NaN where an epoch has none.

    Example:
        >>> rows = [{"epoch": 1, "loss": 2.0}, {"epoch": 2, "loss": 1.0, "AP": 0.5}]
        >>> history_of(rows)
        {'loss': [2.0, 1.0], 'AP': [nan, 0.5]}
    """
    names = dict.fromkeys(name for row in rows for name in row)
    for name in OF_THE_ROW:
        names.pop(name, None)
    return {name: [_number(row.get(name)) for row in rows] for name in names}


def _number(value):
    return math.nan if value is None else float(value)
