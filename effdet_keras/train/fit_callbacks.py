"""The callbacks that `fit` adds to those it is given."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras


class OwnCallback(keras.callbacks.Callback):
    """A callback that `fit` adds, and puts in its place where it is given."""


def others_in(callbacks: Any) -> list[keras.callbacks.Callback]:
    """The callbacks of what `fit` takes, but for those that it adds itself."""
    return [c for c in flat(callbacks) if not isinstance(c, OwnCallback)]


def flat(callbacks: Any) -> list[keras.callbacks.Callback]:
    """The callbacks of what Keras takes: None, one, a list, a `CallbackList`."""
    given = getattr(callbacks, "callbacks", callbacks)
    return keras.tree.flatten([] if given is None else given)


@contextlib.contextmanager
def let_go_afterwards(callbacks: Sequence[Any]) -> Iterator[None]:
    """Calls `let_go` of the callbacks that have it: Keras tells them of no error."""
    try:
        yield
    finally:
        for callback in callbacks:
            if hasattr(callback, "let_go"):
                callback.let_go()


# --- One line per epoch that a person can read, in the place of Keras' progress bar.

_SHOWN = ("loss", "val_loss", "AP", "AP50", "mIoU")
_BEST = "AP"
_SECONDS_BETWEEN = 1.0  # of two lines that overwrite each other


class EpochLines(OwnCallback):
    """Prints what an epoch came to: losses, AP and AP50, and the best AP so far.

    It stands behind all other callbacks, so that the numbers which they add to the logs
    are there. On a terminal a line that counts the steps precedes it.
    """

    def on_train_begin(self, logs=None):
        # AP and the epoch it belongs to, from 1.
        self._best: tuple[float, int] | None = None
        self._is_terminal = sys.stdout.isatty()

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch, self._start, self._shown = epoch + 1, time.monotonic(), 0.0

    def on_train_batch_end(self, batch, logs=None):
        now = time.monotonic()
        if not self._is_terminal or now - self._shown < _SECONDS_BETWEEN:
            return
        self._shown = now
        of = self.params.get("steps")
        loss = (logs or {}).get("loss")
        text = f"{self._title}  step {batch + 1}{f'/{of}' if of else ''}"
        text += "" if loss is None else f"  loss {float(loss):.4g}"
        print(f"\r{text:<60}", end="", flush=True)

    def on_epoch_end(self, epoch, logs=None):
        logs = logs or {}
        parts = [f"{n} {float(logs[n]):.4g}" for n in _SHOWN[:2] if n in logs]
        parts += [f"{n} {float(logs[n]):.3f}" for n in _SHOWN[2:] if n in logs]
        self.remember(epoch, logs)
        if _BEST in logs and self._best is not None:
            parts.append(f"best AP {self._best[0]:.3f} (epoch {self._best[1]})")
        parts.append(f"{time.monotonic() - self._start:.0f} s")
        start = "\r" if self._is_terminal else ""
        print(f"{start}{self._title}  {'  '.join(parts)}", flush=True)

    def remember(self, epoch: int, logs: Mapping[str, Any]) -> None:
        """Notes the AP of an epoch, if it is the best so far."""
        now = float(logs.get(_BEST, math.nan))
        if now > (-math.inf if self._best is None else self._best[0]):
            self._best = (now, epoch + 1)

    def get_state(self) -> dict[str, Any]:
        """What a training that goes on has to know of the epochs before."""
        return {"best": self._best}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Goes on from what `get_state` returned."""
        best = state.get("best")
        self._best = None if best is None else (float(best[0]), int(best[1]))

    @property
    def _title(self):
        total = self.params.get("epochs") or self._epoch
        return f"epoch {self._epoch:>{len(str(total))}}/{total}"
