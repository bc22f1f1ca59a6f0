"""The best and the last checkpoint of a training, whole files at every moment."""

from __future__ import annotations

import math
import os
import warnings
from typing import Any

import keras
from keras import ops

from effdet_keras._internal.folder_lock import FolderLock
from effdet_keras._internal.local_paths import local_path
from effdet_keras.callbacks.writable import require_writable
from effdet_keras.errors import InvalidValueError
from effdet_keras.weights.archive import (
    BEST_FILE,
    LAST_FILE,
    copy_archive,
    read_archive_info,
    write_archive,
)

PREVIOUS_FILE = "best.previous.keras"


class CheckpointArchive(keras.callbacks.Callback):
    """Keeps the best and the last checkpoint as archives that describe themselves.

    After each epoch it writes `last.keras` to the folder, and `best.keras` if
    `monitor` is better than ever before. `EfficientDet.from_archive` and
    `keras.saving.load_model` read these files; they hold the optimizer and the moving
    averages as well. Each holds an entry `archive.json`, which
    `effdet_keras.weights.archive.read_archive_info` reads: config, class
    names, category ids, package versions; `epoch` (the number of epochs done),
    all `metrics` of that epoch, and `evaluated_weights`: `"averages"`, or `"live"`
    where the model has none.

    If the process is killed at any moment, the files written before stay whole. A
    training that is resumed goes on from the best value in the folder. A training
    that starts anew keeps the best checkpoint of the one before it as
    `best.previous.keras`. While it trains, no other process can train into the folder.

    Put it behind the callback that computes `monitor`:
    `callbacks=[COCOEvaluation(valid), CheckpointArchive("runs/cats")]`. In an epoch
    without `monitor` it writes `last.keras` alone.

    Args:
        folder: path of a folder on this machine; it is made if need be.
        monitor: string, a name in the logs of `fit`; None writes `last.keras` alone.
        mode: `"max"` if more is better, `"min"` if less is better.
        verbose: bool, whether to print each new best value.

    Raises:
        ValueError: If `mode` is neither of the two, or `folder` is an address such as
            `gs://bucket/folder`.
        OSError: If the folder cannot be written to, when training begins.
        RuntimeError: If another process trains into the folder, when training begins.

    Example:
        >>> import tempfile
        >>> from effdet_keras.weights.archive import read_archive_info
        >>> from effdet_keras.models import EfficientDet
        >>> model = EfficientDet.from_preset(
        ...     "efficientdet-d0", image_size=64, max_level=6, num_classes=2
        ... )
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     archive = CheckpointArchive(folder, verbose=False)
        ...     archive.set_model(model)
        ...     archive.on_epoch_end(0, {"AP": 0.5})
        ...     archive.on_epoch_end(1, {"AP": 0.4})
        ...     info = read_archive_info(f"{folder}/best.keras")
        >>> info["epoch"], info["metrics"]
        (1, {'AP': 0.5})
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        monitor: str | None = "AP",
        mode: str = "max",
        verbose: bool = True,
    ) -> None:
        super().__init__()
        if mode not in ("max", "min"):
            raise InvalidValueError(
                f"`mode` must be 'max' or 'min'. Received: mode={mode!r}"
            )
        self.folder = local_path(folder, "The folder of `CheckpointArchive`")
        self.monitor = monitor
        self.mode = mode
        self.verbose = verbose
        self.best = None  # the best value of `monitor`, or None before the first
        self._names_seen = set()
        self._starts_anew = False
        self._lock = FolderLock(self.folder)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        require_writable(self.folder, "`CheckpointArchive`")
        self._lock.acquire("A training")
        self._names_seen = set()
        optimizer = getattr(self.model, "optimizer", None)
        if optimizer is not None:
            self._starts_anew = int(ops.convert_to_numpy(optimizer.iterations)) == 0
        self.best = None
        best = self.folder / BEST_FILE
        if best.exists() and not self._starts_anew:
            self.best = read_archive_info(best).get("metrics", {}).get(self.monitor)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        logs = logs or {}
        self._names_seen |= set(logs)
        info = {
            "epoch": epoch + 1,
            "metrics": {name: float(value) for name, value in logs.items()},
            "monitor": self.monitor,
            "mode": self.mode,
            "evaluated_weights": self._evaluated_weights(),
        }
        best, last = self.folder / BEST_FILE, self.folder / LAST_FILE
        if not self._is_best(logs.get(self.monitor)):
            write_archive(self.model, last, info)
            return
        if self._starts_anew and best.exists():
            copy_archive(best, self.folder / PREVIOUS_FILE)
        self._starts_anew = False
        write_archive(self.model, best, info)
        copy_archive(best, last)
        before = "" if self.best is None else f", before {self.best:.4f}"
        self.best = float(logs[self.monitor])
        if self.verbose:
            print(f"Best {self.monitor}: {self.best:.4f}{before}. Written to {best}")

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self.let_go()
        if self.monitor is None:
            return
        if self._names_seen and self.monitor not in self._names_seen:
            warnings.warn(
                f"`CheckpointArchive` wrote '{LAST_FILE}' but no '{BEST_FILE}': "
                f"{self.monitor!r} was not in the logs of any epoch, which had "
                f"{sorted(self._names_seen)}. Put the callback that computes it, "
                "such as `COCOEvaluation`, before `CheckpointArchive`.",
                stacklevel=2,
            )

    def let_go(self) -> None:
        """Lets other processes train into the folder; `fit` calls it on errors, too."""
        self._lock.release()

    def _is_best(self, value):
        if value is None or not math.isfinite(value):
            return False
        if self.best is None:
            return True
        return value > self.best if self.mode == "max" else value < self.best

    def _evaluated_weights(self):
        has_averages = getattr(self.model, "averages", None) is not None
        return "averages" if has_averages else "live"
