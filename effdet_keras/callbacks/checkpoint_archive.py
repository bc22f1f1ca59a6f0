"""Saves the best and the last checkpoint of a training, never incomplete files."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import os
import signal
import sys
import threading
import time
import warnings
from typing import Any

import keras

from effdet_keras._internal.folder_lock import open_folder
from effdet_keras._internal.number_ranges import check_number, check_whole_number
from effdet_keras._internal.old_names import warn_of_old_name
from effdet_keras._internal.processes import current_processes, is_first_process
from effdet_keras._internal.whole_files import (
    check_may_be_folder,
    put_in_place,
    remove_file,
)
from effdet_keras.callbacks.tensorboard import require_writable
from effdet_keras.errors import check_choice, hint
from effdet_keras.evaluate.coco import METRIC_NAMES
from effdet_keras.train.optimizers import steps_done
from effdet_keras.train.resume import steps_done_in_epoch
from effdet_keras.weights.archive import copy_archive, read_archive_info, write_archive
from effdet_keras.weights.checkpoint_files import (
    BEST_FILE,
    BEST_OF_BEFORE_FILE,
    EARLIER_FILE,
    LAST_FILE,
    PREVIOUS_FILE,
    STEP_FILE,
    earlier_name,
    step_copies,
)
from effdet_keras.weights.pretrained import is_as_new, set_aside_damaged

_FILES = (BEST_FILE, BEST_OF_BEFORE_FILE, LAST_FILE, PREVIOUS_FILE)


def _is_checkpoint(name):
    is_copy = STEP_FILE.fullmatch(name) or EARLIER_FILE.fullmatch(name)
    return name in _FILES or is_copy is not None


class CheckpointArchive(keras.callbacks.Callback):
    """Saves the best and the last checkpoint of a training, with descriptions.

    After each epoch it writes `last.keras` to the folder, and `best.keras` if `monitor`
    is better than ever before. The previous `last.keras` is kept as
    `last.previous.keras`. `EfficientDet.from_archive` and `keras.saving.load_model`
    read these files, with optimizer and averages. `ek.read_archive_info` reads the
    description in a file: `epoch` (the number of epochs done), all `metrics` of that
    epoch, and `evaluated_weights`, which is `"averages"`, or `"live"` for a model
    without averages.

    Resuming: after `EfficientDet.from_archive(folder, resume=True)`, `fit` continues
    with the next step (docs/train.md). It also restores the counters of `EarlyStopping`
    and `ReduceLROnPlateau`, and the best value of `ModelCheckpoint`. The state of a
    custom callback is saved and restored if it has a method `get_state()`, which
    returns a dict of JSON types, and a method `set_state(state)`.

    Files: they are complete at all times, even if the process is killed. If
    `last.keras` is damaged later, `resume=True` loads the newest of the other files
    (`last.previous.keras`, `best.keras` and the copies of `keep`), and renames the
    damaged file to `last.damaged.keras`. A new training in the same folder keeps the
    best checkpoint of the earlier training as `best.previous.keras`, and its last one,
    if that is newer, as `last.earlier.keras`. The copies of the earlier training are
    renamed to `step-00001000.earlier.keras`. During a training, no other training can
    write to the folder. If several processes train together (docs/distributed.md), only
    the first one writes.

    Signals: Ctrl-C and SIGTERM stop `fit` at the end of the current step, or
    immediately during an evaluation. `last.keras` is written before `fit` raises
    `KeyboardInterrupt`, or for SIGTERM `SystemExit(143)`. A second Ctrl-C stops without
    waiting.

    Order: `fit` calls this callback after evaluations and after callbacks with a state,
    such as `EarlyStopping`, wherever it is in the list. Put it after any other callback
    that computes `monitor`, preferably at the end of the list. In an epoch without
    `monitor`, only `last.keras` is written.

    Args:
        folder: path of a folder, which is created if it does not exist; or its address,
            such as `s3://bucket/run` (docs/remote_files.md).
        monitor: string, a name in the logs of `fit`. With None only `last.keras` is
            written.
        mode: `"max"` if higher is better, `"min"` if lower is better.
        verbose: bool, whether to print each new best value.
        save_every_steps: int, the number of steps from one `last.keras` to the next,
            also within epochs. None saves only at the ends of epochs.
        save_every_minutes: float, the number of minutes from one `last.keras` to the
            next. It can be combined with `save_every_steps`.
        keep: int, how many of the last checkpoints are kept. If it is above 1, they are
            kept as `step-00001000.keras`, named by the steps trained.
        keep_every_hours: float. Of the checkpoints older than those of `keep`, the
            first is kept, and then one every `keep_every_hours`. None keeps none.

    Raises:
        ValueError: If `mode` is neither of the two, or a number is out of its range.
        ImportError: If a package is missing for the address `folder`.
        OSError: If the folder cannot be written to, when training begins; or if a file
            could not be copied to the address, when training ends.
        RuntimeError: If another process trains into the folder, when training begins.

    Example:
        >>> import tempfile
        >>> from effdet_keras.weights.archive import read_archive_info
        >>> from effdet_keras.model.efficientdet import EfficientDet
        >>> model = EfficientDet.from_preset(
        ...     "efficientdet-d0", image_size=64, max_level=6, num_classes=2
        ... )
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     archive = CheckpointArchive(folder, verbose=False)
        ...     archive.set_model(model)
        ...     archive.on_epoch_end(0, {"AP": 0.5})
        ...     info = read_archive_info(f"{folder}/best.keras")
        >>> info["epoch"], info["metrics"]
        (1, {'AP': 0.5})
    """

    closes_after_fit = True  # `fit` calls `close`, also after an error
    saves_states = True  # `fit` calls it after the callbacks whose states it saves

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
        check_choice("mode", mode, ("max", "min"))
        check_whole_number(
            "save_every_steps", save_every_steps, "[1, inf)", others=(None,)
        )
        check_number(
            "save_every_minutes", save_every_minutes, "(0, inf)", others=(None,)
        )
        check_whole_number("keep", keep, "[1, inf)")
        check_number("keep_every_hours", keep_every_hours, "(0, inf)", others=(None,))
        self._taken = open_folder(
            folder, "The folder of `CheckpointArchive`", _is_checkpoint
        )
        self.folder = self._taken.path
        check_may_be_folder(self.folder)
        self.monitor = monitor
        self.mode = mode
        self.verbose = verbose
        self.save_every_steps = save_every_steps
        self.save_every_minutes = save_every_minutes
        # If a callback reads the logs of steps, Keras waits for every step.
        self.async_safe = save_every_steps is None and save_every_minutes is None
        self.best = None  # the best value of `monitor`, or None before the first
        self._keep, self._keep_every_hours = keep, keep_every_hours
        self._epoch = self._step = 0  # the current epoch, and its steps done
        self._steps_since = 0  # steps since the last file was written
        self._written = time.monotonic()  # when the last file was written
        self._names_seen = set()
        self._is_new_training = False
        self._has_set_aside = False  # whether files of an earlier training are renamed
        self._signals = StopSignals()
        self._has_trained = False  # whether a step was trained since `fit` began

    def on_train_begin(self, logs=None):
        """Locks the folder and resets the state; reads `best` if training resumes."""
        if is_first_process():
            require_writable(self.folder)
            self._taken.acquire("A training")
        self._names_seen = set()
        self._has_trained = False
        self._steps_since, self._written = 0, time.monotonic()
        self._is_new_training = steps_done(self.model.optimizer) == 0
        self._has_set_aside = False
        self.best = None
        if not self._is_new_training:
            if is_first_process():
                set_aside_damaged(self.folder)
            if (best := self.folder / BEST_FILE).exists():
                self.best = read_archive_info(best).get("metrics", {}).get(self.monitor)
        # Several processes would stop at different steps.
        if current_processes().count == 1:
            self._signals.listen()

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch, self._step = epoch, 0

    def on_train_batch_begin(self, batch, logs=None):
        self._step = batch
        if self._has_trained:  # before the first step there is nothing to save
            self._signals.hold()

    def on_train_batch_end(self, batch, logs=None):
        done = steps_done_in_epoch(self, batch)
        self._steps_since += done - self._step
        self._step, self._has_trained = done, True
        if self._is_due():
            self._write_within_epoch(logs or {})
        self._signals.release()

    def on_epoch_end(self, epoch, logs=None):
        self._signals.hold()
        self._write_after_epoch(epoch, logs or {})
        self._signals.release()

    def _write_within_epoch(self, logs):
        tracker = getattr(self.model, "position_tracker", None)
        position = None if tracker is None else tracker.after_step(self._step)
        info = self._info(self._epoch, logs, position)
        self._write_last(functools.partial(write_archive, self.model, info=info))

    def _write_after_epoch(self, epoch, logs):
        """Writes the last checkpoint, and the best one if `monitor` has improved."""
        self._print_if_not_monitored(epoch, logs)
        self._names_seen |= set(logs)
        tracker = getattr(self.model, "position_tracker", None)
        position = None if tracker is None else tracker.after_epoch(logs)
        info = self._info(epoch + 1, logs, position)
        best = self.folder / BEST_FILE
        if not is_first_process() or not self._is_best(logs.get(self.monitor)):
            self._write_last(functools.partial(write_archive, self.model, info=info))
            return
        self._taken.check()
        self._set_aside_earlier()
        if self.best is None and best.exists():  # it is the best by another `monitor`
            copy_archive(best, self.folder / BEST_OF_BEFORE_FILE)
        write_archive(self.model, best, info)
        self._write_last(functools.partial(copy_archive, best))
        before = "" if self.best is None else f", before {self.best:.4f}"
        self.best = float(logs[self.monitor])
        if self.verbose:
            print(f"Best {self.monitor}: {self.best:.4f}{before}. Written to {best}")

    def _print_if_not_monitored(self, epoch, logs):
        """Prints after the first evaluation if the logs do not have `monitor` then.

        Many epochs have no evaluation. It is no warning, because a callback of the
        user's may add the number later.
        """
        has_metrics = not set(logs).isdisjoint(METRIC_NAMES)
        is_first = has_metrics and self._names_seen.isdisjoint(METRIC_NAMES)
        is_missing = is_first and self.monitor not in (None, *logs)
        if is_missing and is_first_process() and self.verbose:
            print(
                f"No '{BEST_FILE}' yet: `monitor={self.monitor!r}` is not in the logs "
                f"of epoch {epoch + 1}, which have {sorted(logs)}."
                f"{hint(self.monitor, logs)}"
            )

    def on_train_end(self, logs=None):
        self.close()
        names = self._names_seen
        if names and self.monitor is not None and self.monitor not in names:
            warnings.warn(
                f"`CheckpointArchive` wrote '{LAST_FILE}' but no '{BEST_FILE}': "
                f"{self.monitor!r} was not in the logs of any epoch, which had "
                f"{sorted(names)}. Put the callback that computes it, "
                "such as `COCOEvaluation`, before `CheckpointArchive`.",
                stacklevel=2,
            )

    def close(self) -> None:
        """Releases the folder. If a signal stopped `fit`, it saves the steps before it.

        `fit` calls it when it ends, also after an error.
        """
        try:
            name = getattr(self._signals.received, "name", None)
            if name and self._steps_since and not self._signals.is_at_once:
                self._write_within_epoch({})
                path = self.folder / LAST_FILE
                print(f"{name}: a checkpoint was written to '{path}'.")
        finally:
            self._signals.stop_listening()
            self._signals.received = None
            self._taken.release()

    def let_go(self) -> None:
        """Deprecated: `close`."""
        warn_of_old_name("CheckpointArchive.let_go", "close")
        self.close()

    def _is_due(self):
        """Returns whether to write a file after the step that was just trained."""
        if self.save_every_steps and self._steps_since >= self.save_every_steps:
            return True
        if not self.save_every_minutes:
            return False
        seconds = time.monotonic() - self._written
        # With several processes, the clock of the first one counts.
        return current_processes().gather(seconds >= 60 * self.save_every_minutes)[0]

    def _write_last(self, write):
        """Replaces the last checkpoint; the old one becomes the last but one."""
        self._steps_since, self._written = 0, time.monotonic()
        if not is_first_process():
            return
        self._taken.check()
        last, previous = self.folder / LAST_FILE, self.folder / PREVIOUS_FILE
        self._set_aside_earlier()
        if self._is_new_training:
            remove_file(previous)
        elif last.exists():
            copy_archive(last, previous)
        write(path=last)
        self._is_new_training = False
        if self._keep > 1 or self._keep_every_hours is not None:
            self._keep_copy(last, steps_done(self.model.optimizer))

    def _keep_copy(self, last, steps):
        copy_archive(last, self.folder / f"step-{steps:08d}.keras")
        stayed = None  # when the last permanently kept copy was written, in hours
        for path in step_copies(self.folder)[: -self._keep]:
            written = path.stat().st_mtime / 3600
            if self._keep_every_hours is not None and (
                # If the clock was set back, counting starts again.
                stayed is None or not 0 <= written - stayed < self._keep_every_hours
            ):
                stayed = written
            else:
                with contextlib.suppress(PermissionError):  # tried again next time
                    remove_file(path)

    def _set_aside_earlier(self):
        """Renames the files of an earlier training in the folder, before they are lost.

        These are its best checkpoint, its last one if that is newer, and its kept
        copies. Otherwise they would be taken for files of this training, also when it
        is resumed.
        """
        if not self._is_new_training or self._has_set_aside:
            return
        self._has_set_aside = True
        last, best = self.folder / LAST_FILE, self.folder / BEST_FILE
        aside = self.folder / earlier_name(LAST_FILE)
        if last.exists() and (not best.exists() or not is_as_new(best, last)):
            copy_archive(last, aside)  # a copy, so that `last.keras` always exists
            print(f"The last checkpoint of an earlier training stays as '{aside}'.")
        if best.exists():
            put_in_place(best, self.folder / BEST_OF_BEFORE_FILE)
        for path in step_copies(self.folder):
            put_in_place(path, path.with_name(earlier_name(path.name)))

    def _info(self, epochs, logs, position):
        """Returns the description of the training for a file."""
        has_averages = self.model.averages is not None
        info = {
            "epoch": epochs,
            "metrics": {name: float(value) for name, value in logs.items()},
            "monitor": self.monitor,
            "mode": self.mode,
            "evaluated_weights": "averages" if has_averages else "live",
        }
        if position is not None:
            info["training_position"] = dataclasses.asdict(position)
        return info

    def _is_best(self, value):
        if value is None or not math.isfinite(value):
            return False
        if self.best is None:
            return True
        return value > self.best if self.mode == "max" else value < self.best


# --- Ctrl-C and SIGTERM during a training wait until a step or a file is complete.

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """Delays Ctrl-C and SIGTERM between `hold` and `release`.

    Otherwise the signals have the handlers from before `listen`.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self.is_at_once = False  # whether a second signal demands to stop immediately
        self._is_held = False
        self._before: dict[int, Any] = {}  # the handlers before `listen`

    def listen(self) -> None:
        self.received, self.is_at_once, self._is_held = None, False, False
        self._before = {}
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _SIGNALS:
            # None is a handler that Python did not install, and could not restore.
            if signal.getsignal(number) not in (None, signal.SIG_IGN):
                self._before[number] = signal.signal(number, self._receive)

    def stop_listening(self) -> None:
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._receive:
                signal.signal(number, handler)

    def hold(self) -> None:
        self._is_held = True

    def release(self) -> None:
        """Lets signals act immediately, and handles a signal that waited."""
        self._is_held = False
        if self.received is not None:
            self._act(self.received)

    def _receive(self, number, frame):
        is_first = self.received is None
        if is_first:
            self.received = signal.Signals(number)
        elif number != signal.SIGINT:
            return  # schedulers may send SIGTERM more than once
        self.is_at_once = not is_first
        if self._is_held and is_first:
            _write_message(
                f"{self.received.name}: stopping after this step. Ctrl-C stops now."
            )
        else:
            self._act(number)

    def _act(self, number):
        handler = self._before[number]
        if handler == signal.SIG_DFL:  # SIGTERM's, which would end the process
            raise SystemExit(128 + number)
        handler(number, None)
        self.received = None  # the handler has returned, so the program continues


def _write_message(text):
    """Writes to standard error without `print`, which the signal may interrupt."""
    with contextlib.suppress(OSError):  # standard error may be closed
        os.write(sys.__stderr__.fileno(), f"\n{text}\n".encode())
