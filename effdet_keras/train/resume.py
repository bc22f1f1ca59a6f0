"""Where a training is: what a checkpoint has to hold besides the model."""

from __future__ import annotations

import collections
import dataclasses
import math
import numbers
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from effdet_keras._internal.processes import current_processes
from effdet_keras.data.pipeline.image_reader import find_image_readers
from effdet_keras.train.optimizers import steps_done


@dataclasses.dataclass(frozen=True)
class Place:
    """The place that a training goes on from, step by step as if it had not stopped."""

    epoch: int
    step: int = 0
    steps: int = 0
    seconds: float = 0.0
    means: Mapping[str, list] = dataclasses.field(default_factory=dict)
    callbacks: Mapping[str, dict] = dataclasses.field(default_factory=dict)
    is_stopped: bool = False
    seed: int | None = None

    def __str__(self) -> str:
        if self.step:
            return f"step {self.step} of epoch {self.epoch + 1}"
        return f"epoch {self.epoch}"


def place_in(info: Mapping[str, Any]) -> Place:
    """The place that the entry of an archive tells of."""
    return Place(**info.get("place", {"epoch": int(info.get("epoch", 0))}))


def say_where(place: Place, epochs: int, verbose: Any) -> None:
    """Prints where a training goes on, or warns that it is at its end already."""
    if place.epoch >= epochs:
        warnings.warn(
            f"The checkpoint is from the end of epoch {place.epoch}, and `epochs` is "
            f"{epochs}: there is nothing left to train. Give `epochs={place.epoch} + "
            "...`, or `initial_epoch=0` to begin again.",
            stacklevel=3,
        )
    elif verbose != 0:
        print(f"The training continues after {place}.", flush=True)


# --- What the callbacks of `fit` remember, for a training that goes on.

# Keras' own callbacks have no way to ask them: these attributes are all they change.
_OF_KERAS = {
    keras.callbacks.EarlyStopping: ("wait", "best", "best_epoch", "stopped_epoch"),
    keras.callbacks.ReduceLROnPlateau: ("wait", "best", "cooldown_counter"),
}


def states_of(callbacks: Sequence[Any]) -> dict[str, dict]:
    """What each callback remembers, by its name, in types that JSON has.

    A callback of your own has `get_state()`, which returns a dict, and `set_state`.
    """
    states = {}
    for name, callback in _named(callbacks):
        if hasattr(callback, "get_state"):
            states[name] = dict(callback.get_state())
        elif isinstance(callback, tuple(_OF_KERAS)):
            values = {a: getattr(callback, a, None) for a in _attributes(callback)}
            # What is not there yet, or infinite, is what the callback begins with.
            states[name] = {a: _plain(x) for a, x in values.items() if _is_number(x)}
    return states


def set_states(callbacks: Sequence[Any], states: Mapping[str, dict]) -> None:
    """Gives callbacks what `states_of` returned for callbacks of the same names."""
    for name, callback in _named(callbacks):
        if name not in states:
            continue
        if hasattr(callback, "set_state"):
            callback.set_state(states[name])
        elif isinstance(callback, tuple(_OF_KERAS)):
            for attribute in _attributes(callback):
                if attribute in states[name]:
                    setattr(callback, attribute, states[name][attribute])


def _named(callbacks: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Callbacks by their class, numbered where there are several of one."""
    counts: collections.Counter[str] = collections.Counter()
    for callback in callbacks:
        kind = type(callback).__name__
        counts[kind] += 1
        yield kind if counts[kind] == 1 else f"{kind}_{counts[kind]}", callback


def _attributes(callback):
    return next(x for kind, x in _OF_KERAS.items() if isinstance(callback, kind))


def _is_number(value):
    return isinstance(value, numbers.Real) and math.isfinite(value)


def _plain(value):
    return int(value) if isinstance(value, numbers.Integral) else float(value)


# --- Starts the batches of `fit` at the epoch, and the step in it, that it is at.


class DataOrder:
    """The place in the data of one `fit`, as far as batches are of our making.

    From `initial_epoch` 0 the order goes on behind an earlier `fit` over the same
    batches, so that many calls of one epoch do not all see the same augmented images.
    """

    def __init__(
        self, data: Any, steps_per_epoch: int | None, initial_epoch: int
    ) -> None:
        passes = find_image_readers(data)
        self._passes = {
            reader.order: per_pass
            for reader, per_pass in passes.items()
            if reader.order is not None
        }
        length = int(data.cardinality()) if passes else 0
        self._is_endless = length < 0
        self._length = length if length > 0 else None
        self._steps = steps_per_epoch or self._length
        self._epochs_before = 0
        if initial_epoch == 0 and self._passes:
            self._epochs_before = max(order.epochs_trained for order in self._passes)
        self._has_started = False

    @property
    def seed(self) -> int | None:
        """The seed of the order, where there is one and no more."""
        seeds = [order.seed for order in self._passes]
        return seeds[0] if len(seeds) == 1 else None

    def start(self, epoch: int, step: int = 0) -> bool:
        """Names the epoch that begins, for the next iteration over the data."""
        epoch += self._epochs_before
        for order in self._passes:
            order.epochs_trained = epoch + 1
        if self._steps is None:  # nobody knows how long an epoch is
            for order in self._passes:
                order.start_at(epoch)
            return step == 0
        if self._is_endless and self._has_started:
            return step == 0  # one iteration goes on through all epochs
        self._has_started = True
        # A dataset that cannot be joined from parts of two passes begins with one.
        can_skip = len(self._passes) == 1 and all(
            order.can_skip(per_pass) for order, per_pass in self._passes.items()
        )
        for order, per_pass in self._passes.items():
            at = epoch * self._steps + (step if can_skip else 0)
            number, skipped = self._pass_at(at, per_pass)
            if can_skip:
                order.start_at(number, skipped, per_pass)
            else:
                order.start_at(number)
        return can_skip or step == 0

    def _pass_at(self, steps: int, per_pass: int) -> tuple[int, int]:
        """The pass, and the batch in it, after so many steps of the training."""
        if self._length is None:
            return divmod(steps, per_pass)
        rounds, steps = divmod(steps, self._length)
        number, skipped = divmod(steps, per_pass)
        return rounds * -(-self._length // per_pass) + number, skipped


# --- The callback of `fit` that knows where the training is, and goes on from a place.


class PlaceKeeper(keras.callbacks.Callback):
    """Starts the data of each epoch in its order, and tells checkpoints the place.

    A `fit` that goes on in the middle of an epoch counts through the steps that are
    done; `is_given_batches` says whether those have to be drawn.
    """

    def __init__(
        self, order: DataOrder, place: Place | None, *, is_given_batches: bool
    ) -> None:
        super().__init__()
        self.callbacks: Sequence[Any] = ()  # all of `fit`: see `watch`
        self.is_skipping = False  # whether the step under way is done already
        self.draws = False  # whether a step that is done must draw its batch
        self.logs: dict[str, float] = {}  # of the steps that are done
        self._order = order
        self._place = place
        self._is_given_batches = is_given_batches
        self._epoch = 0
        self._start = time.monotonic()
        self._step = 0  # of the epoch, how many are done
        self._after_steps: Place | None = None  # where the steps of the epoch are done

    def watch(self, callbacks: Sequence[Any]) -> None:
        """Names the callbacks whose state belongs to a place."""
        self.callbacks = [getattr(one, "callback_of_fit", one) for one in callbacks]

    @property
    def must_skip(self) -> bool:
        """Whether `fit` begins in the middle of an epoch."""
        return self._place is not None and self._place.step > 0

    def skipping(self, train_function: Callable, skipped: Callable) -> Callable:
        """The function that trains no step which is done already."""

        def run(*arguments):
            if not self.is_skipping:
                return train_function(*arguments)
            if self.draws:
                for _ in range(self.model.steps_per_execution):
                    next(arguments[-1])
            return skipped(self.logs, *arguments)

        return run

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch, self._start = epoch, time.monotonic()
        self._step, self._after_steps = 0, None
        place = self._place
        if place is not None and place.epoch == epoch:
            self._go_on_from(place)
            return
        self._place, self.is_skipping = None, False
        self._order.start(epoch)

    def on_train_batch_begin(self, batch, logs=None):
        self.is_skipping = self._place is not None and batch < self._place.step

    def on_train_batch_end(self, batch, logs=None):
        self._step = batch + 1

    def on_test_begin(self, logs=None):
        self._keep_place_after_steps()  # before Keras resets the means

    def on_epoch_end(self, epoch, logs=None):
        self._keep_place_after_steps()  # before the callbacks count the epoch

    def _keep_place_after_steps(self):
        if self._after_steps is None:
            self._after_steps = self.after_step(self._step)

    def after_step(self, step: int) -> Place:
        """The place after so many steps of the epoch under way."""
        if self._after_steps is not None:
            return self._after_steps
        means = _means_of(self.model.metrics)
        return self._place_now(epoch=self._epoch, step=step, means=means)

    def after_epoch(self, logs: Mapping[str, Any]) -> Place:
        """The place at the end of the epoch, whose numbers are `logs`."""
        for callback in self.callbacks:
            if hasattr(callback, "remember"):  # it stands behind who asks
                callback.remember(self._epoch, logs)
        return self._place_now(epoch=self._epoch + 1)

    def _place_now(self, **fields):
        seconds = time.monotonic() - self._start
        return Place(
            steps=steps_done(self.model.optimizer),
            seconds=seconds if fields.get("step") else 0.0,
            callbacks=states_of(self.callbacks),
            is_stopped=bool(self.model.stop_training),
            seed=self._order.seed,
            **fields,
        )

    def _go_on_from(self, place):
        set_states(self.callbacks, place.callbacks)
        self._start -= place.seconds
        _set_means(self.model.metrics, place.means)
        results = self.model.get_metrics_result() if place.step else {}
        self.logs = {name: float(value) for name, value in results.items()}
        if self._is_given_batches:
            self._order.start(place.epoch)
        else:
            self.draws = not self._order.start(place.epoch, place.step)


def _means_of(metrics):
    """The values of the variables of metrics, by name, also where replicas share them.

    Of several processes, each of which has seen its share, the mean.
    """
    means = {
        metric.name: [
            [ops.convert_to_numpy(v).tolist() for v in _replicas(variable)]
            for variable in metric.variables
        ]
        for metric in metrics
    }
    if current_processes().count == 1:
        return means
    of_all = current_processes().gather(means)
    return {n: np.mean([one[n] for one in of_all], 0).tolist() for n in means}


def _set_means(metrics, means):
    """Gives metrics the values that `_means_of` gave."""
    for metric in metrics:
        values = means.get(metric.name, [])
        if len(values) != len(metric.variables):
            continue
        for variable, value in zip(metric.variables, values):
            # Archives have None for what is not finite: the norm of a float16 step.
            numbers = np.array(value, "float64", ndmin=1)
            for replica, number in zip(_replicas(variable), numbers):
                replica.assign(number)


def _replicas(variable):
    """The variables of this process that one consists of: its sum would be rounded."""
    replicas = getattr(variable.value, "values", None)  # a method of torch's tensors
    is_shared = isinstance(replicas, tuple) and current_processes().count == 1
    return replicas if is_shared else (variable,)


class FromPlaceOn:
    """A callback that is not told of the steps which `fit` only counts through."""

    def __init__(self, callback: Any, keeper: PlaceKeeper) -> None:
        self.callback_of_fit = callback
        self._keeper = keeper

    def __getattr__(self, name: str) -> Any:
        return getattr(self.callback_of_fit, name)

    def on_train_batch_begin(self, batch, logs=None):
        if not self._keeper.is_skipping:
            self.callback_of_fit.on_train_batch_begin(batch, logs)

    def on_train_batch_end(self, batch, logs=None):
        if not self._keeper.is_skipping:
            self.callback_of_fit.on_train_batch_end(batch, logs)
