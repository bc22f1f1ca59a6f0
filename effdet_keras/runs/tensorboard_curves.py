"""The numbers of a run's log for TensorBoard: each epoch once, also after a stop."""

from __future__ import annotations

import pathlib
import shutil
from typing import Any

import keras

from effdet_keras.callbacks.tensorboard import TensorBoardWriter
from effdet_keras.runs.run_log import OF_THE_ROW, RunLog

_VALIDATION = "val_"  # as Keras calls losses of validation


class TensorBoardCurves(keras.callbacks.Callback):
    """Writes the rows of a log, under the names that Keras' own callback gives them.

    Event files can only grow. So when a run goes on they are written anew, from the
    rows of the epochs that count.

    Args:
        folder: `pathlib.Path` of TensorBoard's files; `train` and `validation` in it
            are replaced.
        log: `RunLog`, which stands before this callback.
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
