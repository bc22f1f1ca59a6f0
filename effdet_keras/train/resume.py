"""Resumes a training from the position that a checkpoint has stored.

A checkpoint holds weights, averages and the optimizer. `TrainingPosition` is the rest
of the state of a training, and `PositionTracker` is the callback of `fit` that knows
it. With both, a training that was stopped and resumed ends with the same bits as one
that was not stopped.
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

    Archives store it as `training_position`. `str()` gives the next step, counted from
    1 as `fit` prints epochs: "epoch 4, step 41".

    Args:
        epoch: int, the number of complete epochs.
        step: int, the number of steps done in the next epoch.
        total_steps: int, the number of steps that the optimizer has done since its
            creation.
        omitted_steps: int, the number of steps that changed no weight, because
            gradients in float16 overflowed. The optimizer does not count them.
        seconds: float, how long the `step` steps of the epoch have taken.
        metrics: dict from a metric's name to the values of its variables, the running
            means of the epoch. Empty at the end of an epoch.
        callback_states: dict from a callback's name to its state.
        is_stopped: bool, whether a callback has stopped the training.
        seed: int, the seed of the order of the data, or None if it has none.

    Example:
        >>> str(TrainingPosition(epoch=3, step=40)), str(TrainingPosition(epoch=3))
        ('epoch 4, step 41', 'epoch 4')
    """

    epoch: int
    step: int = 0
    total_steps: int = 0
    omitted_steps: int = 0
    seconds: float = 0.0
    metrics: Mapping[str, list] = dataclasses.field(default_factory=dict)
    callback_states: Mapping[str, dict] = dataclasses.field(default_factory=dict)
    is_stopped: bool = False
    seed: int | None = None

    def __str__(self) -> str:
        step = f", step {self.step + 1}" if self.step else ""
        return f"epoch {self.epoch + 1}{step}"


def position_from_info(info: Mapping[str, Any]) -> TrainingPosition:
    """Returns the training position in the content of `archive.json`.

    If it has none, this is the end of the epoch that it names.
    """
    fields = info.get("training_position", {"epoch": int(info.get("epoch", 0))})
    return TrainingPosition(**fields)


def print_resume_message(position: TrainingPosition, epochs: int, verbose: Any) -> None:
    """Prints where a training resumes, and warns if it was complete or stopped."""
    if position.epoch >= epochs:
        warnings.warn(
            "There is nothing left to train: the checkpoint was written at the end of "
            f"epoch {position.epoch}, and `epochs` is {epochs}. Pass "
            f"`epochs={position.epoch} + ...` to train longer, or `initial_epoch=0` to "
            "begin again.",
            stacklevel=3,
        )
        return
    if position.is_stopped:
        warnings.warn(
            "A callback, such as `EarlyStopping`, stopped the training of this "
            f"checkpoint. `fit` now resumes it at {position}, up to `epochs={epochs}`. "
            "To keep the model as it is, use the checkpoint without calling `fit`.",
            stacklevel=3,
        )
    if verbose != 0:
        print(f"Resuming at {position}.", flush=True)


def steps_done_in_epoch(callback: Any, batch: int) -> int:
    """Returns the number of steps done in an epoch, for `on_train_batch_end`.

    With `steps_per_execution`, Keras counts the last group of steps as a full group,
    even if the data ends within it.
    """
    steps = (callback.params or {}).get("steps")
    return min(batch + 1, steps or batch + 1)


class PositionTracker(keras.callbacks.Callback):
    """Tracks the position of the current `fit`, and resumes from an earlier position.

    It comes before all other callbacks of `fit`. Checkpoints get the position from
    `after_step` and `after_epoch`. At the beginning of an epoch it sets the order of
    the data.

    If `fit` resumes within an epoch, Keras still counts through all steps of the epoch.
    The steps that are already done are skipped: `wrap_train_function` does not train,
    and `SkipUntilPosition` does not call the user's callbacks.

    Args:
        order: `DataOrder` of this `fit`, which starts its data at an epoch and step.
        position: `TrainingPosition` to resume from, or None for a new training.
        receives_batches: bool, whether the train function receives a batch that Keras
            has drawn. Then skipped steps always draw their batches.
    """

    def __init__(
        self,
        order: DataOrder,
        position: TrainingPosition | None,
        *,
        receives_batches: bool,
    ) -> None:
        super().__init__()
        self.is_skipping = False  # whether the current step was done before
        self._order = order
        self._resume_position = position  # None when its epoch is over
        self._receives_batches = receives_batches
        self._callbacks: Sequence[Any] = ()  # all callbacks: see `set_callbacks`
        self._must_draw_skipped = False  # whether a skipped step draws its batch
        self._logs_of_skipped: dict[str, float] = {}
        self._epoch = 0  # the current epoch, counted from 0
        self._step = 0  # the number of steps done in the epoch
        self._num_trained = 0  # the number of steps of this `fit`
        self._done_before = 0  # the steps that the optimizer had done before it
        self._omitted_before = 0 if position is None else position.omitted_steps
        self._start = time.monotonic()  # when the epoch started
        # The position after all steps of the epoch, with the metrics before validation
        # resets them. None until all steps are done.
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
        """Returns a train function that calls `skip_step` for skipped steps."""

        def run(*arguments):
            if not self.is_skipping:
                return train_function(*arguments)
            if self._must_draw_skipped:
                iterator = arguments[-1]  # on JAX, `state` is the argument before it
                for _ in range(self.model.steps_per_execution):
                    next(iterator)
            return skip_step(self._logs_of_skipped, *arguments)

        return run

    def on_train_begin(self, logs=None):
        self._done_before = steps_done(self.model.optimizer)

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
        before, self._step = self._step, steps_done_in_epoch(self, batch)
        if not self.is_skipping:
            self._num_trained += self._step - before

    def on_test_begin(self, logs=None):
        self._keep_position_after_steps()  # before Keras resets the metrics

    def on_epoch_end(self, epoch, logs=None):
        self._keep_position_after_steps()  # before callbacks update for the epoch

    def after_step(self, step: int) -> TrainingPosition:
        """Returns the position after `step` steps of the current epoch."""
        if self._position_after_steps is not None:
            return self._position_after_steps
        return self._current_position(
            epoch=self._epoch,
            step=step,
            seconds=time.monotonic() - self._start if step else 0.0,
            metrics=_metric_values(self.model.metrics),
        )

    def after_epoch(self, logs: Mapping[str, Any]) -> TrainingPosition:
        """Returns the position at the end of the current epoch with these `logs`."""
        for callback in self._callbacks:
            if hasattr(callback, "record_epoch"):  # its `on_epoch_end` runs later
                callback.record_epoch(self._epoch, logs)
        return self._current_position(epoch=self._epoch + 1)

    def _keep_position_after_steps(self):
        """Stores the position with the metrics and states after the last step."""
        if self._position_after_steps is None:
            self._position_after_steps = self.after_step(self._step)

    def _current_position(self, **fields):
        """Returns a position with these fields and the state of model and callbacks."""
        total_steps = steps_done(self.model.optimizer)
        num_counted = total_steps - self._done_before
        return TrainingPosition(
            total_steps=total_steps,
            omitted_steps=self._omitted_before + self._num_trained - num_counted,
            callback_states=get_callback_states(self._callbacks),
            is_stopped=bool(self.model.stop_training),
            seed=self._order.seed,
            **fields,
        )

    def _resume_from(self, position):
        """Restores metrics and callbacks, and starts the data after the position."""
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
    """Wraps a callback of the user, and does not call it for skipped steps.

    All other calls and attributes go to the callback.
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
    """Returns the values of the variables of metrics by name, one for each replica.

    With several processes, each has seen its share of the batches, and the values are
    the means over the processes.
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
    """Sets the variables of metrics to the values that `_metric_values` returned."""
    for metric in metrics:
        values = values_by_name.get(metric.name, [])
        if len(values) != len(metric.variables):
            continue
        for variable, value in zip(metric.variables, values):
            # Archives store numbers that are not finite as None, such as the gradient
            # norm of a float16 step.
            numbers = np.array(value, "float64", ndmin=1)
            for replica, number in zip(_replica_variables(variable), numbers):
                replica.assign(number)


def _replica_variables(variable):
    """Returns the variable of each replica of this process.

    Reading the sum of the replicas instead would round.
    """
    # `values` is a tuple for a variable of a `tf.distribute` strategy, but a method of
    # torch tensors.
    replicas = getattr(variable.value, "values", None)
    is_shared = isinstance(replicas, tuple) and current_processes().count == 1
    return replicas if is_shared else (variable,)
