"""Prints one readable line per epoch, instead of Keras' progress bar."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from typing import Any

import keras

from effdet_keras.train.resume import steps_done_in_epoch

_LOSSES = ("loss", "val_loss")
_METRICS = ("AP", "AP50", "mIoU")
_BEST = "AP"  # the line also shows the highest value of this metric, and its epoch
_SECONDS_BETWEEN = 1.0  # between two updates of the line that counts the steps


class EpochLogger(keras.callbacks.Callback):
    """Prints a line at the end of an epoch: losses, metrics, and the best AP so far.

    The metrics are AP, AP50 and mIoU, if the logs contain them. `fit` puts the callback
    after all others, so that its line has the metrics that they add to the logs. On a
    terminal, a line that counts the steps is shown during the epoch.
    """

    def on_train_begin(self, logs=None):
        # The best AP, and its epoch, counted from 1.
        self._best: tuple[float, int] | None = None
        self._is_terminal = sys.stdout.isatty()

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch, self._start, self._shown = epoch + 1, time.monotonic(), 0.0

    def on_train_batch_end(self, batch, logs=None):
        now = time.monotonic()
        if not self._is_terminal or now - self._shown < _SECONDS_BETWEEN:
            return
        self._shown = now
        steps = self.params.get("steps")
        loss = (logs or {}).get("loss")
        step = steps_done_in_epoch(self, batch)
        text = f"{self._title}  step {step}{f'/{steps}' if steps else ''}"
        text += "" if loss is None else f"  loss {float(loss):.4g}"
        print(f"\r{text:<60}", end="", flush=True)

    def on_epoch_end(self, epoch, logs=None):
        logs = logs or {}
        shown = [f"{n} {float(logs[n]):.4g}" for n in _LOSSES if n in logs]
        shown += [f"{n} {float(logs[n]):.3f}" for n in _METRICS if n in logs]
        self.record_epoch(epoch, logs)
        if _BEST in logs and self._best is not None:
            shown.append(f"best AP {self._best[0]:.3f} (epoch {self._best[1]})")
        shown.append(f"{time.monotonic() - self._start:.0f} s")
        start = "\r" if self._is_terminal else ""
        print(f"{start}{self._title}  {'  '.join(shown)}", flush=True)

    def record_epoch(self, epoch: int, logs: Mapping[str, Any]) -> None:
        """Stores the AP of an epoch, if it is the best so far.

        `on_epoch_end` of `CheckpointArchive` runs before that of this callback. It has
        this method called, so that the best AP in a checkpoint includes the epoch.
        """
        ap = float(logs.get(_BEST, math.nan))
        if ap > (-math.inf if self._best is None else self._best[0]):
            self._best = (ap, epoch + 1)

    def get_state(self) -> dict[str, Any]:
        """Returns the best AP so far and its epoch, for a training that is resumed."""
        return {"best": self._best}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restores the state that `get_state` returned."""
        best = state.get("best")
        self._best = None if best is None else (float(best[0]), int(best[1]))

    @property
    def _title(self):
        total = self.params.get("epochs") or self._epoch
        return f"epoch {self._epoch:>{len(str(total))}}/{total}"
