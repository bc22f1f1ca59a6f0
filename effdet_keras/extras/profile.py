"""Traces some steps of a training, to show where their time is spent."""

from __future__ import annotations

import os
from typing import Any

import keras

from effdet_keras._internal.backend import require_tensorflow
from effdet_keras._internal.optional_imports import tensorflow
from effdet_keras.train.resume import steps_done_in_epoch


class ProfiledSteps(keras.callbacks.Callback):
    """Traces steps of `fit`, counted from 1, with TensorFlow's profiler.

    With `steps_per_execution`, the trace consists of whole executions.

    Args:
        first, last: ints, the first and the last step to trace.
        folder: path of the folder for the trace.
    """

    closes_after_fit = True  # `fit` calls `close` even if it ends with an error

    def __init__(self, first: int, last: int, folder: str | os.PathLike) -> None:
        super().__init__()
        require_tensorflow(
            "`profile` needs the profiler of TensorFlow",
            "Set KERAS_BACKEND=tensorflow, or leave `profile` out.",
        )
        self.first, self.last = first, last
        self.folder = os.fspath(folder)
        self.traced: list[int] = []  # the traced steps, known at the end
        self._before = self._done = 0  # steps before this epoch, and steps so far
        self._is_running = False
        self._step: Any = None

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        step = self._before + batch + 1
        if step >= self.first and not self._is_running and not self.traced:
            tensorflow.profiler.experimental.start(self.folder)
            self._is_running = True
        if self._is_running:
            self._step = tensorflow.profiler.experimental.Trace(
                "train", step_num=step, _r=1
            )
            self._step.__enter__()

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        before = self._done
        self._done = self._before + steps_done_in_epoch(self, batch)
        if self._is_running:
            self._end_step()
            self.traced += range(before + 1, self._done + 1)
            if self._done >= self.last:
                self.close()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        self._before = self._done

    def on_train_end(self, logs: dict | None = None) -> None:
        self.close()
        if not self.traced:
            print(
                f"`profile` wrote no trace: the training ended at step {self._done}, "
                "before the first step to profile."
            )
            return
        print(
            f"Trace of steps {self.traced[0]} to {self.traced[-1]}: {self.folder}. To "
            f"view it: pip install xprof; xprof --logdir {self.folder}"
        )

    def close(self) -> None:
        """Stops the profiler if it runs; `fit` calls this, even after an error."""
        self._end_step()
        if self._is_running:
            self._is_running = False
            tensorflow.profiler.experimental.stop()

    def _end_step(self):
        if self._step is not None:
            self._step.__exit__(None, None, None)
            self._step = None
