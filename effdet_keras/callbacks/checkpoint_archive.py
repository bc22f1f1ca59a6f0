"""The best and the last checkpoint of a training, whole files at every moment."""

from __future__ import annotations

import functools
import math
import os
import time
import warnings
from typing import Any

import keras

from effdet_keras._internal.remote_folder import open_folder
from effdet_keras.callbacks.kept_checkpoints import KeptCheckpoints, is_kept_name
from effdet_keras.callbacks.stop_signals import StopSignals
from effdet_keras.callbacks.writable import require_writable
from effdet_keras.distribution.processes import current_processes, is_first_process
from effdet_keras.errors import InvalidValueError
from effdet_keras.training.accumulation import steps_done
from effdet_keras.weights.archive import copy_archive, read_archive_info, write_archive
from effdet_keras.weights.checkpoint_files import (
    BEST_FILE,
    BEST_OF_BEFORE_FILE,
    LAST_FILE,
    PREVIOUS_FILE,
)
from effdet_keras.weights.resumable import set_aside_damaged

_FILES = (BEST_FILE, BEST_OF_BEFORE_FILE, LAST_FILE, PREVIOUS_FILE)


def _is_checkpoint(name):
    return name in _FILES or is_kept_name(name)


class CheckpointArchive(keras.callbacks.Callback):
    """Keeps the best and the last checkpoint as archives that describe themselves.

    After each epoch it writes `last.keras` to the folder, and `best.keras` if
    `monitor` is better than ever before. The `last.keras` before stays as
    `last.previous.keras`. `EfficientDet.from_archive` and
    `keras.saving.load_model` read these files; they hold the optimizer and the moving
    averages as well. Each holds an entry `archive.json`, which
    `effdet_keras.weights.archive.read_archive_info` reads: config, class
    names, category ids, package versions; `epoch` (the number of epochs done),
    all `metrics` of that epoch, and `evaluated_weights`: `"averages"`, or `"live"`
    where the model has none.

    With `save_every_steps` or `save_every_minutes` it writes `last.keras` within
    epochs as well. Each file holds the place in the training: epoch, step, running
    means, and what `EarlyStopping` and `ReduceLROnPlateau` have counted so far. So
    `EfficientDet.from_archive(folder, resume=True)` and `fit` go on with the next step
    (docs/train.md). A callback of your own takes part if it has a method `get_state()`,
    which returns a dict of what JSON has, and `set_state(state)`.

    If the process is killed at any moment, the files written before stay whole. If
    `last.keras` is damaged later, `resume=True` takes the newest other checkpoint, and
    what is damaged is kept under a name such as `last.damaged.keras`.

    Of several processes that train together (docs/distributed.md) the first writes.

    A training that is resumed goes on from the best value in the folder. A training
    that starts anew keeps the best checkpoint of the one before it as
    `best.previous.keras`. While it trains, no other process can train into the folder.

    Ctrl-C and SIGTERM stop `fit` at the end of the step under way, or at once in an
    evaluation, and `last.keras` is written before `fit` raises `KeyboardInterrupt`, or
    for SIGTERM `SystemExit(143)`. A second Ctrl-C does not wait. This holds where `fit`
    is called in the main thread, in which alone Python hears signals.

    Put it last, behind the callback that computes `monitor`:
    `callbacks=[COCOEvaluation(valid), CheckpointArchive("runs/cats/archive")]`. What a
    callback behind it counts at the end of an epoch is not in the file of that epoch.
    In an epoch without `monitor` it writes `last.keras` alone.

    Args:
        folder: path of a folder, which is made if need be; or its address, such as
            `s3://bucket/run`: then files are written to this machine, and copied to
            there while the training goes on (docs/remote_files.md).
        monitor: string, a name in the logs of `fit`; None writes `last.keras` alone.
        mode: `"max"` if more is better, `"min"` if less is better.
        verbose: bool, whether to print each new best value.
        save_every_steps: int, steps from one `last.keras` to the next; None for the
            ends of epochs alone.
        save_every_minutes: float, the same in minutes; both may be given.
        keep: int, how many of the last checkpoints stay: beyond 1 they are called
            `step-00001000.keras`, by the steps trained.
        keep_every_hours: float; of older ones the first stays, and then one every so
            many hours. None for none.

    Raises:
        ValueError: If `mode` is neither of the two, or a number is not above 0.
        ImportError: If a package is missing for the address `folder`.
        OSError: If the folder cannot be written to, when training begins; or if a file
            could not be copied to the address, when training ends.
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
        *,
        save_every_steps: int | None = None,
        save_every_minutes: float | None = None,
        keep: int = 1,
        keep_every_hours: float | None = None,
    ) -> None:
        super().__init__()
        if mode not in ("max", "min"):
            raise InvalidValueError(
                f"`mode` must be 'max' or 'min'. Received: mode={mode!r}"
            )
        numbers = {
            "save_every_steps": save_every_steps,
            "save_every_minutes": save_every_minutes,
            "keep": keep,
            "keep_every_hours": keep_every_hours,
        }
        for name, value in numbers.items():
            if value is not None and not value > 0:
                raise InvalidValueError(
                    f"`{name}` must be above 0. Received: {name}={value!r}"
                )
        self._taken = open_folder(
            folder, "The folder of `CheckpointArchive`", _is_checkpoint
        )
        self.folder = self._taken.path
        self.monitor = monitor
        self.mode = mode
        self.verbose = verbose
        self.save_every_steps = save_every_steps
        self.save_every_minutes = save_every_minutes
        # Keras waits for the numbers of every step where a callback wants to see them.
        self.async_safe = save_every_steps is None and save_every_minutes is None
        self.best = None  # the best value of `monitor`, or None before the first
        self._kept = KeptCheckpoints(self.folder, keep, keep_every_hours)
        self._epoch = self._step = 0  # under way, and its steps done
        self._steps_since = 0  # the last file was written
        self._written = time.monotonic()
        self._names_seen = set()
        self._starts_anew = self._keeps_best_of_before = False
        self._signals = StopSignals()
        self._has_trained = False  # a step, since `fit` began

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        if is_first_process():
            require_writable(self.folder, "`CheckpointArchive`")
            self._taken.acquire("A training")
        self._names_seen = set()
        self._has_trained = False
        self._steps_since, self._written = 0, time.monotonic()
        optimizer = getattr(self.model, "optimizer", None)
        if optimizer is not None:
            self._starts_anew = steps_done(optimizer) == 0
        self._keeps_best_of_before = self._starts_anew
        self.best = None
        if not self._starts_anew and is_first_process():
            set_aside_damaged(self.folder)
        best = self.folder / BEST_FILE
        if best.exists() and not self._starts_anew:
            self.best = read_archive_info(best).get("metrics", {}).get(self.monitor)
        if current_processes().count == 1:  # or they would stop at different steps
            self._signals.listen()

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch, self._step = epoch, 0

    def on_train_batch_begin(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        self._step = batch
        if self._has_trained:  # before, there is nothing to save
            self._signals.hold()

    def on_train_batch_end(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        self._steps_since += batch + 1 - self._step
        self._step, self._has_trained = batch + 1, True
        if self._is_due():
            self._write_within_epoch(logs or {})
        self._signals.release()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._signals.hold()
        self._write_after_epoch(epoch, logs or {})
        self._signals.release()

    def _write_within_epoch(self, logs):
        keeper = getattr(self.model, "place_keeper", None)
        place = None if keeper is None else keeper.after_step(self._step)
        info = self._info(self._epoch, logs, place)
        self._write_last(functools.partial(write_archive, self.model, info=info))

    def _write_after_epoch(self, epoch, logs):
        self._names_seen |= set(logs)
        keeper = getattr(self.model, "place_keeper", None)
        place = None if keeper is None else keeper.after_epoch(logs)
        info = self._info(epoch + 1, logs, place)
        if not is_first_process():
            self._note_written()
            return
        self._taken.check()
        best = self.folder / BEST_FILE
        if not self._is_best(logs.get(self.monitor)):
            self._write_last(functools.partial(write_archive, self.model, info=info))
            return
        if self._keeps_best_of_before and best.exists():
            copy_archive(best, self.folder / BEST_OF_BEFORE_FILE)
        self._keeps_best_of_before = False
        write_archive(self.model, best, info)
        self._write_last(functools.partial(copy_archive, best))
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
        """Lets other processes train into the folder; `fit` calls it on errors, too.

        If a signal stops the training, what is not in a checkpoint yet is written.
        """
        try:
            if self._signals.received is not None and not self._signals.is_at_once:
                self._write_before_stop(self._signals.received.name)
        finally:
            self._signals.stop_listening()
            self._signals.received = None
            self._taken.release()

    def _write_before_stop(self, name):
        if self._steps_since:
            self._write_within_epoch({})
            print(f"{name}: a checkpoint was written to '{self.folder / LAST_FILE}'.")

    def _is_due(self):
        """Whether a file is to be written after the step that was just trained."""
        if self.save_every_steps and self._steps_since >= self.save_every_steps:
            return True
        if not self.save_every_minutes:
            return False
        seconds = time.monotonic() - self._written
        # Of several processes the first has the clock.
        return current_processes().gather(seconds >= 60 * self.save_every_minutes)[0]

    def _write_last(self, write):
        """Replaces the last checkpoint, which becomes the last but one."""
        self._note_written()
        if not is_first_process():
            return
        self._taken.check()
        last, previous = self.folder / LAST_FILE, self.folder / PREVIOUS_FILE
        if self._starts_anew:  # what is there is of another training
            previous.unlink(missing_ok=True)
        write(path=last, previous=None if self._starts_anew else previous)
        self._starts_anew = False
        optimizer = getattr(self.model, "optimizer", None)
        if optimizer is not None:
            self._kept.add(last, steps_done(optimizer))

    def _note_written(self):
        self._steps_since, self._written = 0, time.monotonic()

    def _info(self, epochs, logs, place):
        """What a file tells of its training."""
        info = {
            "epoch": epochs,
            "metrics": {name: float(value) for name, value in logs.items()},
            "monitor": self.monitor,
            "mode": self.mode,
            "evaluated_weights": self._evaluated_weights(),
        }
        return info if place is None else {**info, "place": place.to_dict()}

    def _is_best(self, value):
        if value is None or not math.isfinite(value):
            return False
        if self.best is None:
            return True
        return value > self.best if self.mode == "max" else value < self.best

    def _evaluated_weights(self):
        has_averages = getattr(self.model, "averages", None) is not None
        return "averages" if has_averages else "live"
