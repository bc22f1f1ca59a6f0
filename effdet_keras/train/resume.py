"""Resuming a training: its position, which checkpoints keep, and how `fit` skips to it.

A checkpoint holds weights, averages and the optimizer. `TrainingPosition` is the rest
of the state of a training, and `PositionTracker` the callback of `fit` that knows it.
With both, a training that was stopped ends with the same bits as one that was not.
"""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from effdet_keras._internal.processes import current_processes
from effdet_keras.train.callback_states import get_callback_states, set_callback_states
from effdet_keras.train.data_order import DataOrder
from effdet_keras.train.optimizers import steps_done


@dataclasses.dataclass(frozen=True)
class TrainingPosition:
    """The epoch and step that a training has reached, and the state that belongs to it.

    Archives keep it as `training_position`. As text it is the step that comes next,
    counted from 1, as `fit` prints epochs: "epoch 4, step 41".

    Args:
        epoch: int, how many epochs are complete.
        step: int, how many steps of the next epoch are done.
        total_steps: int, how many steps the optimizer was given since it was made.
        seconds: float, how long the `step` steps of the epoch have taken.
        metrics: dict of a metric's name to the values of its variables: the running
            means of the epoch. Empty at the end of an epoch.
        callback_states: dict of a callback's name to its state.
        is_stopped: bool, whether a callback has ended the training.
        seed: int, of the order of the data, or None where there is none.

    Example:
        >>> str(TrainingPosition(epoch=3, step=40)), str(TrainingPosition(epoch=3))
        ('epoch 4, step 41', 'epoch 4')
    """

    epoch: int
    step: int = 0
    total_steps: int = 0
    seconds: float = 0.0
    metrics: Mapping[str, list] = dataclasses.field(default_factory=dict)
    callback_states: Mapping[str, dict] = dataclasses.field(default_factory=dict)
    is_stopped: bool = False
    seed: int | None = None

    def __str__(self) -> str:
        step = f", step {self.step + 1}" if self.step else ""
        return f"epoch {self.epoch + 1}{step}"


def position_from_info(info: Mapping[str, Any]) -> TrainingPosition:
    """The training position in `archive.json`; else the end of the epoch it names."""
    fields = info.get("training_position", {"epoch": int(info.get("epoch", 0))})
    return TrainingPosition(**fields)


def print_resume_message(position: TrainingPosition, epochs: int, verbose: Any) -> None:
    """Prints where a training resumes, or warns that it was complete or stopped."""
    if position.epoch >= epochs:
        warnings.warn(
            f"The checkpoint is from the end of epoch {position.epoch}, and `epochs` "
            f"is {epochs}: there is nothing left to train. Pass "
            f"`epochs={position.epoch} + ...`, or `initial_epoch=0` to begin again.",
            stacklevel=3,
        )
        return
    if position.is_stopped:
        warnings.warn(
            "A callback, such as `EarlyStopping`, had stopped the training of the "
            f"checkpoint: `fit` resumes it at {position}, up to `epochs={epochs}`. To "
            "leave it as it is, use the checkpoint, and do not call `fit`.",
            stacklevel=3,
        )
    if verbose != 0:
        print(f"Resuming at {position}.", flush=True)


def steps_done_in_epoch(callback: Any, batch: int) -> int:
    """How many steps of the epoch are done, in `on_train_batch_end` of a callback.

    With `steps_per_execution` Keras counts the last group of steps as a whole one, also
    where the data ends within it.
    """
    steps = (callback.params or {}).get("steps")
    return min(batch + 1, steps or batch + 1)


class PositionTracker(keras.callbacks.Callback):
    """Tracks the position of the `fit` under way, and resumes from an earlier one.

    It stands before all other callbacks of `fit`. Checkpoints ask it for the position,
    by `after_step` and `after_epoch`. At the beginning of an epoch it starts the data
    in its order.

    A `fit` that resumes within an epoch still counts through all steps of it. Those
    that are done already are skipped: `wrap_train_function` trains nothing, and
    `SkipUntilPosition` does not tell callbacks of them.

    Args:
        order: `DataOrder` of this `fit`, which starts its data at an epoch and step.
        position: `TrainingPosition` to resume from, or None for a new training.
        receives_batches: bool, whether the train function is given a batch that Keras
            has drawn, so that skipped steps draw their batches in any case.
    """

    def __init__(
        self,
        order: DataOrder,
        position: TrainingPosition | None,
        *,
        receives_batches: bool,
    ) -> None:
        super().__init__()
        self.is_skipping = False  # whether the step under way is done already
        self._order = order
        self._resume_position = position  # None once its epoch is over
        self._receives_batches = receives_batches
        self._callbacks: Sequence[Any] = ()  # all of `fit`: see `set_callbacks`
        self._must_draw_skipped = False  # whether a skipped step draws its batch
        self._logs_of_skipped: dict[str, float] = {}
        self._epoch = 0  # under way, counted from 0
        self._step = 0  # how many steps of the epoch are done
        self._start = time.monotonic()  # of the epoch
        # None until all steps of the epoch are done: then that position, which has the
        # metrics as they were before validation resets them.
        self._position_after_steps: TrainingPosition | None = None

    def set_callbacks(self, callbacks: Sequence[Any]) -> None:
        """Sets the callbacks whose states belong to a position: all those of `fit`."""
        self._callbacks = [
            one.callback if isinstance(one, SkipUntilPosition) else one
            for one in callbacks
        ]

    @property
    def resumes_within_epoch(self) -> bool:
        """Whether `fit` resumes within an epoch."""
        return self._resume_position is not None and self._resume_position.step > 0

    def wrap_train_function(
        self, train_function: Callable, skip_step: Callable
    ) -> Callable:
        """A train function that returns `skip_step(...)` for skipped steps."""

        def run(*arguments):
            if not self.is_skipping:
                return train_function(*arguments)
            if self._must_draw_skipped:
                iterator = arguments[-1]  # the only argument, but for JAX's `state`
                for _ in range(self.model.steps_per_execution):
                    next(iterator)
            return skip_step(self._logs_of_skipped, *arguments)

        return run

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch, self._start = epoch, time.monotonic()
        self._step, self._position_after_steps = 0, None
        position = self._resume_position
        if position is not None and position.epoch == epoch:
            self._resume_from(position)
        else:
            self._resume_position, self.is_skipping = None, False
            self._order.start(epoch)

    def on_train_batch_begin(self, batch, logs=None):
        position = self._resume_position
        self.is_skipping = position is not None and batch < position.step

    def on_train_batch_end(self, batch, logs=None):
        self._step = steps_done_in_epoch(self, batch)

    def on_test_begin(self, logs=None):
        self._keep_position_after_steps()  # before Keras resets the metrics

    def on_epoch_end(self, epoch, logs=None):
        self._keep_position_after_steps()  # before callbacks count the epoch

    def after_step(self, step: int) -> TrainingPosition:
        """The position after so many steps of the epoch under way."""
        if self._position_after_steps is not None:
            return self._position_after_steps
        return self._current_position(
            epoch=self._epoch,
            step=step,
            seconds=time.monotonic() - self._start if step else 0.0,
            metrics=_metric_values(self.model.metrics),
        )

    def after_epoch(self, logs: Mapping[str, Any]) -> TrainingPosition:
        """The position at the end of the epoch under way, whose numbers are `logs`."""
        for callback in self._callbacks:
            if hasattr(callback, "record_epoch"):  # its own `on_epoch_end` comes later
                callback.record_epoch(self._epoch, logs)
        return self._current_position(epoch=self._epoch + 1)

    def _keep_position_after_steps(self):
        """Keeps the position with the metrics and states of the end of the steps."""
        if self._position_after_steps is None:
            self._position_after_steps = self.after_step(self._step)

    def _current_position(self, **fields):
        """The position of these fields, with what the model and callbacks know now."""
        return TrainingPosition(
            total_steps=steps_done(self.model.optimizer),
            callback_states=get_callback_states(self._callbacks),
            is_stopped=bool(self.model.stop_training),
            seed=self._order.seed,
            **fields,
        )

    def _resume_from(self, position):
        """Restores metrics and callbacks, and starts the data behind the position."""
        set_callback_states(self._callbacks, position.callback_states)
        self._start -= position.seconds
        _set_metric_values(self.model.metrics, position.metrics)
        results = self.model.get_metrics_result() if position.step else {}
        self._logs_of_skipped = {name: float(value) for name, value in results.items()}
        if self._receives_batches:
            self._order.start(position.epoch)
        else:
            starts_at_step = self._order.start(position.epoch, position.step)
            self._must_draw_skipped = not starts_at_step


class SkipUntilPosition:
    """Wraps a callback of the user, and does not call it for steps that are skipped.

    All other calls and attributes are those of the callback.
    """

    def __init__(self, callback: Any, tracker: PositionTracker) -> None:
        self.callback = callback
        self._tracker = tracker

    def __getattr__(self, name: str) -> Any:
        return getattr(self.callback, name)

    def on_train_batch_begin(self, batch, logs=None):
        if not self._tracker.is_skipping:
            self.callback.on_train_batch_begin(batch, logs)

    def on_train_batch_end(self, batch, logs=None):
        if not self._tracker.is_skipping:
            self.callback.on_train_batch_end(batch, logs)


def _metric_values(metrics):
    """The values of the variables of metrics by name, one for each replica.

    Each of several processes has seen its share of the batches: then it is the mean.
    """
    values = {
        metric.name: [
            [ops.convert_to_numpy(v).tolist() for v in _replica_variables(variable)]
            for variable in metric.variables
        ]
        for metric in metrics
    }
    if current_processes().count == 1:
        return values
    all_values = current_processes().gather(values)
    return {
        name: np.mean([one[name] for one in all_values], axis=0).tolist()
        for name in values
    }


def _set_metric_values(metrics, values_by_name):
    """Gives the variables of metrics what `_metric_values` returned."""
    for metric in metrics:
        values = values_by_name.get(metric.name, [])
        if len(values) != len(metric.variables):
            continue
        for variable, value in zip(metric.variables, values):
            # Archives have None for what is not finite: the norm of a float16 step.
            numbers = np.array(value, "float64", ndmin=1)
            for replica, number in zip(_replica_variables(variable), numbers):
                replica.assign(number)


def _replica_variables(variable):
    """The variable of each replica of this process: reading their sum would round."""
    # A tuple of a `tf.distribute` strategy's variables; of torch's tensors a method.
    replicas = getattr(variable.value, "values", None)
    is_shared = isinstance(replicas, tuple) and current_processes().count == 1
    return replicas if is_shared else (variable,)
