"""`profile`: where the time of some training steps goes, as a trace."""

from __future__ import annotations

import os
import re
from typing import Any

import keras

from effdet_keras._internal.backend import require_tensorflow
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.data.dataset import count_of

_STEPS = re.compile(r"[1-9]\d*(,[1-9]\d*)?")


def is_range_of_steps(value: object) -> bool:
    """Whether it names a step, or a first and a last one.

    Example:
        >>> [is_range_of_steps(value) for value in ("10,20", 10, (10, 20))]
        [True, True, True]
        >>> [is_range_of_steps(value) for value in ("20,10", 0, True, "10-20")]
        [False, False, False, False]
    """
    if isinstance(value, str) and not _STEPS.fullmatch(value):
        return False
    pair = _pair(value)
    if len(pair) not in (1, 2) or any(type(step) not in (int, str) for step in pair):
        return False
    first, last = int(pair[0]), int(pair[-1])
    return 1 <= first <= last


def range_of_steps(value: str | int | tuple[int, int]) -> tuple[int, int]:
    """The first and the last step of what `is_range_of_steps` holds for.

    Example:
        >>> range_of_steps("10,20"), range_of_steps(7), range_of_steps((10, 20))
        ((10, 20), (7, 7), (10, 20))
    """
    pair = _pair(value)
    return int(pair[0]), int(pair[-1])


def _pair(value):
    """A first and a last step, or a single one, as a sequence."""
    parts = value.split(",") if isinstance(value, str) else value
    return parts if isinstance(parts, (list, tuple)) else (parts,)


class ProfiledSteps(keras.callbacks.Callback):
    """Traces steps of `fit` with TensorFlow's profiler.

    The trace lies in `plugins/profile` of the folder. XProf shows it, alone or as a
    part of TensorBoard; writing it needs neither.

    Args:
        first, last: ints, the steps to trace, counted from 1 when `fit` begins. Where
            several steps are one execution, the trace has whole executions.
    """

    def __init__(self, first: int, last: int, folder: str | os.PathLike) -> None:
        super().__init__()
        require_tensorflow(
            "`profile` takes the profiler of TensorFlow",
            "Set KERAS_BACKEND=tensorflow, or leave `profile` out.",
        )
        self.first, self.last = first, last
        self.folder = os.fspath(folder)
        self.traced: list[int] = []  # the steps, in the end
        self._before = self._done = 0  # steps of the epochs before, and of all
        self._is_running = False
        self._step: Any = None

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        step = self._before + batch + 1
        if step >= self.first and not self._is_running and not self.traced:
            tf.profiler.experimental.start(self.folder)
            self._is_running = True
        if self._is_running:
            self._step = tf.profiler.experimental.Trace("train", step_num=step, _r=1)
            self._step.__enter__()

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        before, self._done = self._done, self._before + batch + 1
        if self._is_running:
            self._end_step()
            self.traced += range(before + 1, self._done + 1)
            if self._done >= self.last:
                self.let_go()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        self._before = self._done

    def on_train_end(self, logs: dict | None = None) -> None:
        self.let_go()
        if not self.traced:
            print(
                f"There is no trace: `profile` begins with step {self.first}, and the "
                f"training had {count_of(self._done, 'step')}."
            )
            return
        print(
            f"Trace of the steps {self.traced[0]} to {self.traced[-1]}: {self.folder}. "
            f"To look at it: pip install xprof; xprof --logdir {self.folder}"
        )

    def let_go(self) -> None:
        """Ends the trace, if one is under way; `fit` calls it on errors, too."""
        self._end_step()
        if self._is_running:
            self._is_running = False
            tf.profiler.experimental.stop()

    def _end_step(self):
        if self._step is not None:
            self._step.__exit__(None, None, None)
            self._step = None
