"""`time_budget`: chooses the length of a run that must end within a given time.

A few steps and an evaluation are measured with a model that is then thrown away. So the
run itself begins like any other, and its schedule ends when the run ends. Measuring
takes at most a fifth of the time, or as long as it takes to compile a step and to train
another one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import io
import math
import tempfile
import time

import keras

from effdet_keras.data.dataset import count_of
from effdet_keras.errors import InvalidValueError
from effdet_keras.runs.components import (
    callbacks_of_run,
    make_model,
    training_batches,
    with_teacher,
)
from effdet_keras.runs.configuration import RunConfiguration, in_words, seconds_of
from effdet_keras.runs.run_folder import RunFolder, RunLog
from effdet_keras.train import auto_recipe

_STEPS = 8  # number of measured steps, after as many in which the step is compiled
_IMAGES = 32  # number of evaluated images, but at least one batch
_SECONDS_PER_IMAGE = 4.0  # of measuring time, so that there is time to evaluate it
_MEASURING = 0.2  # fraction of the time budget
_RESERVE = 0.07  # fraction of the remaining time, since the time of epochs varies


@dataclasses.dataclass(frozen=True)
class Times:
    """Measured times in seconds; if measuring was cut short, some are estimates."""

    steps_per_epoch: int
    step: float
    evaluation: float
    final: float
    once: float
    is_frozen: bool = False
    is_cut: bool = False


def choose_length(configuration, splits, *, started):
    """Chooses `epochs`, or `steps` below one epoch, that fit into `time_budget`."""
    ends = time.monotonic() + _MEASURING * seconds_of(configuration.time_budget)
    times = measure(configuration, splits, auto_recipe.SHORT // 2, ends)
    chosen = length_for(times, configuration, time.monotonic() - started)
    steps = chosen.steps or chosen.epochs * times.steps_per_epoch
    if times.is_frozen and configuration.freeze == "auto":
        if steps >= auto_recipe.STEPS:
            # In such a long training, the recipe freezes less, and a step takes longer.
            times = measure(configuration, splits, steps, ends)
            chosen = length_for(times, configuration, time.monotonic() - started)
        elif steps >= auto_recipe.SHORT:
            # More steps gain more than training the frozen blocks (docs/scorecard.md).
            chosen = chosen.replace(freeze="backbone")
    _print_chosen_length(configuration, times, chosen)
    return chosen


def length_for(times, configuration, spent):
    """Returns the configuration with a length, and fewer evaluations if necessary."""
    budget = seconds_of(configuration.time_budget)
    once = times.once + times.final
    left = (budget - spent - once) * (1 - _RESERVE)
    of_steps = times.steps_per_epoch * times.step
    every = max(configuration.evaluate_every, 1)
    if configuration.evaluate_every:
        every = max(every, math.ceil(times.evaluation / of_steps))
    epochs = math.floor(left / (of_steps + times.evaluation / every))
    while epochs > 0 and (  # the last epoch is always evaluated
        epochs * of_steps + math.ceil(epochs / every) * times.evaluation > left
    ):
        epochs -= 1
    if epochs > 0:
        if configuration.evaluate_every:
            configuration = configuration.replace(evaluate_every=min(every, epochs))
        return configuration.replace(time_budget=None, epochs=epochs)
    steps = math.floor((left - times.evaluation) / times.step)
    if steps < 1:
        return _without_evaluations(times, configuration, spent)
    return configuration.replace(time_budget=None, steps=steps)


def _without_evaluations(times, configuration, spent):
    """Returns the configuration of the longest training, without evaluations."""
    left = seconds_of(configuration.time_budget) - spent - times.once
    steps = math.floor(left * (1 - _RESERVE) / times.step)
    if steps < 1:
        least = (spent + times.once + times.step) * (1 + _RESERVE)
        raise InvalidValueError(
            "`time_budget` is too short for a training step: building and compiling "
            f"the model alone takes {in_words(spent + times.once)}. Give at least "
            f"time_budget='{math.ceil(least)}s' (--time-budget). Received: "
            f"time_budget={configuration.time_budget!r}"
        )
    epochs = steps // times.steps_per_epoch
    length = {"epochs": epochs} if epochs else {"steps": steps}
    none = {"evaluate_every": 0, "validation_losses": False}
    if configuration.monitor.startswith("val_"):
        none["monitor"] = RunConfiguration.monitor
    return configuration.replace(time_budget=None, **length, **none)


def measure(configuration, splits, steps, ends):
    """Measures steps and evaluations of a training of `steps` steps, until `ends`."""
    begun = time.monotonic()
    watch = _Stopwatch(ends)
    evaluates = configuration.evaluate_every > 0
    with (
        tempfile.TemporaryDirectory() as path,
        contextlib.redirect_stdout(io.StringIO()),
    ):
        model = make_model(configuration, splits.train)
        made = time.monotonic() - begun
        batches = training_batches(model, configuration, splits.train)
        per_epoch = len(batches)
        some = batches.take(_STEPS)
        # If there is little time, an evaluation that has begun must not take all of it.
        images = min(_IMAGES, int((ends - begun) / _SECONDS_PER_IMAGE))
        few = splits.validation[: max(images, configuration.batch_size)]
        folder, reduced = RunFolder(path), dataclasses.replace(splits, validation=few)
        each = configuration.replace(evaluate_every=int(evaluates), verbose=0)
        others = callbacks_of_run(each, reduced, folder, RunLog(folder.log))
        epochs = max(2, math.ceil(steps / len(some)))
        with with_teacher(model, configuration, some) as distillation_scope:
            try:
                model.fit(
                    distillation_scope,
                    epochs=epochs,
                    verbose=0,
                    callbacks=[watch, *others],
                )
            except _TimeIsUpError:
                for callback in others:
                    callback.on_train_end()
    is_frozen = any(not v.trainable for v in model.weights if "kernel" in v.path)
    del model, batches, some
    gc.collect()
    size = min(_STEPS, per_epoch)
    parts = watch.parts(size, len(few) / configuration.batch_size)
    first_steps, first_evaluation, later_steps, evaluation = parts
    of_images = evaluation / len(few)
    return Times(
        steps_per_epoch=per_epoch,
        step=later_steps / size,
        evaluation=of_images * len(splits.validation) if evaluates else evaluation,
        final=(first_evaluation + of_images * len(splits.final[1])) * evaluates + made,
        once=made
        + max(first_steps - later_steps, 0.0)
        + max(first_evaluation - evaluation, 0.0),
        is_frozen=is_frozen,
        is_cut=watch.is_cut,
    )


class _TimeIsUpError(Exception):
    """Raised to end a fit before its next evaluation."""


class _Stopwatch(keras.callbacks.Callback):
    """Times the steps of two epochs and the evaluation after each; then ends the fit.

    If there is not enough time for all of this, it ends the fit earlier: after two or
    more batches of the first epoch, or before the second epoch.
    """

    def __init__(self, ends):
        super().__init__()
        self._ends = ends
        self._parts = []  # seconds of the steps and of the evaluation of each epoch
        self._batches = []  # number and end time of each batch in the first epoch
        self.is_cut = False

    def parts(self, steps, batches):
        """Returns seconds of the first steps and evaluation, and of later ones.

        If the fit was cut short, they are estimates for `steps` steps and an evaluation
        of `batches` batches. The estimates assume that compiling the evaluation takes
        as long as compiling a step, and a batch of it as long as a step.
        """
        if not self.is_cut:
            return self._parts
        (first_batch, first), (last_batch, last) = self._batches[0], self._batches[-1]
        step = first / (first_batch + 1)
        if last_batch > first_batch:
            step = (last - first) / (last_batch - first_batch)
        compiling = max(first - (first_batch + 1) * step, 0.0)
        later = [steps * step, batches * step]
        return [seconds + compiling for seconds in later] + later

    def on_train_begin(self, logs=None):
        self._since = time.monotonic()
        self._left = self._ends - self._since

    def on_train_batch_end(self, batch, logs=None):
        if not self._parts:
            self._batches.append((batch, time.monotonic() - self._since))
        if len(self._batches) > 1:  # the first batch includes compiling
            self._stop_if_over(self._ends)

    def on_test_begin(self, logs=None):
        self._end_part(of_steps=True)

    def on_epoch_end(self, epoch, logs=None):
        self._end_part(of_steps=True)
        self.model.stop_training = epoch == 1
        if epoch == 0:  # next is an evaluation, which has to be compiled as well
            self._stop_if_over(self._ends - self._left / 2)

    def on_epoch_begin(self, epoch, logs=None):
        self._end_part(of_steps=False)

    def on_train_end(self, logs=None):
        self._end_part(of_steps=False)

    def _stop_if_over(self, moment):
        if time.monotonic() > moment:
            self.is_cut = True
            raise _TimeIsUpError

    def _end_part(self, of_steps):
        """Ends the current part, if it is a part of steps, or of an evaluation."""
        if of_steps == (len(self._parts) % 2 == 0):
            now = time.monotonic()
            self._parts.append(now - self._since)
            self._since = now


def _print_chosen_length(configuration, times, chosen):
    """Prints the measured times, and the length that fits the time budget."""
    length = f"{chosen.steps} steps"
    if chosen.steps is None:
        of_each = count_of(times.steps_per_epoch, "step")
        length = f"{count_of(chosen.epochs, 'epoch')} of {of_each}"
    if chosen.evaluate_every != configuration.evaluate_every:
        length += (
            f", evaluated after every {chosen.evaluate_every} of them and the last"
            if chosen.evaluate_every
            else ", without an evaluation: run `effdet-keras eval RUN DATA` afterwards"
        )
    estimated = " (measured for a fifth of it; partly estimated)"
    estimated = estimated if times.is_cut else ""
    print(
        f"Time budget {configuration.time_budget}: a step of "
        f"{configuration.batch_size} images takes {in_words(times.step)}, an "
        f"evaluation {in_words(times.evaluation)}, and everything that is done only "
        "once, with the last evaluation, "
        f"{in_words(times.once + times.final)}{estimated}. This leaves time for "
        f"{length}."
    )
