"""`time_budget`: the length of a run whose time is given.

A few steps and an evaluation are measured with a model that is thrown away, so that the
run itself begins as any other, and its schedule ends where the run does.
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
from effdet_keras.runs.configuration import RunConfiguration, in_words, seconds_of
from effdet_keras.runs.parts import (
    callbacks_of_run,
    make_model,
    training_batches,
    with_teacher,
)
from effdet_keras.runs.run_folder import RunFolder, RunLog
from effdet_keras.train import auto_recipe

_STEPS = 8  # that are measured, after as many in which the step is compiled
_IMAGES = 32  # that are evaluated, at least a batch
_SECONDS_PER_IMAGE = 20.0  # of the time, so that evaluating them has room in it
_RESERVE = 0.07  # of the time that is left: no two epochs take equally long


@dataclasses.dataclass(frozen=True)
class Times:
    """What was measured, in seconds."""

    steps_per_epoch: int
    step: float
    evaluation: float
    final: float
    once: float
    is_frozen: bool = False


def choose_length(configuration, splits, *, started):
    """Chooses `epochs`, or `steps` of less than one epoch, for `time_budget`."""
    times = measure(configuration, splits, auto_recipe.SHORT // 2)
    chosen = length_for(times, configuration, time.monotonic() - started)
    steps = chosen.steps or chosen.epochs * times.steps_per_epoch
    if times.is_frozen and configuration.freeze == "auto":
        if steps >= auto_recipe.STEPS:
            # In a training as long the recipe freezes less, and a step takes longer.
            times = measure(configuration, splits, steps)
            chosen = length_for(times, configuration, time.monotonic() - started)
        elif steps >= auto_recipe.SHORT:
            # More steps are worth more than blocks that train (docs/scorecard.md).
            chosen = chosen.replace(freeze="backbone")
    _say(configuration, times, chosen)
    return chosen


def length_for(times, configuration, spent):
    """The length there is time for, with fewer or no evaluations if they are slow."""
    budget = seconds_of(configuration.time_budget)
    once = times.once + times.final
    left = (budget - spent - once) * (1 - _RESERVE)
    of_steps = times.steps_per_epoch * times.step
    every = max(configuration.evaluate_every, 1)
    if configuration.evaluate_every:
        every = max(every, math.ceil(times.evaluation / of_steps))
    epochs = math.floor(left / (of_steps + times.evaluation / every))
    while epochs > 0 and (  # the last epoch is evaluated in any case
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
    left = seconds_of(configuration.time_budget) - spent - times.once
    steps = math.floor(left * (1 - _RESERVE) / times.step)
    if steps < 1:
        least = (spent + times.once + times.step) * (1 + _RESERVE)
        raise InvalidValueError(
            "There is no time for a training step: making and compiling the model take "
            f"{in_words(spent + times.once)}. Give at least "
            f"time_budget='{math.ceil(least)}s' (--time-budget). Received: "
            f"time_budget={configuration.time_budget!r}"
        )
    epochs = steps // times.steps_per_epoch
    length = {"epochs": epochs} if epochs else {"steps": steps}
    none = {"evaluate_every": 0, "validation_losses": False}
    if configuration.monitor.startswith("val_"):
        none["monitor"] = RunConfiguration.monitor
    return configuration.replace(time_budget=None, **length, **none)


def measure(configuration, splits, steps):
    """Measures steps and evaluations of a training of that length."""
    begun = time.monotonic()
    watch = _Stopwatch()
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
        budget = seconds_of(configuration.time_budget)
        images = min(_IMAGES, int(budget / _SECONDS_PER_IMAGE))
        few = splits.validation[: max(images, configuration.batch_size)]
        folder, reduced = RunFolder(path), dataclasses.replace(splits, validation=few)
        each = configuration.replace(evaluate_every=int(evaluates), verbose=0)
        others = callbacks_of_run(each, reduced, folder, RunLog(folder.log))
        epochs = max(2, math.ceil(steps / len(some)))
        with with_teacher(model, configuration, some) as taught:
            model.fit(taught, epochs=epochs, verbose=0, callbacks=[watch, *others])
    is_frozen = any(not v.trainable for v in model.weights if "kernel" in v.path)
    del model, batches, some
    gc.collect()
    first_steps, first_evaluation, later_steps, evaluation = watch.parts
    of_images = evaluation / len(few)
    return Times(
        steps_per_epoch=per_epoch,
        step=later_steps / min(_STEPS, per_epoch),
        evaluation=of_images * len(splits.validation) if evaluates else evaluation,
        final=(first_evaluation + of_images * len(splits.final[1])) * evaluates + made,
        once=made
        + max(first_steps - later_steps, 0.0)
        + max(first_evaluation - evaluation, 0.0),
        is_frozen=is_frozen,
    )


class _Stopwatch(keras.callbacks.Callback):
    """Times the steps of two epochs, and what comes after each; then ends the fit."""

    def __init__(self):
        super().__init__()
        self.parts = []  # seconds of steps and of an evaluation, of each epoch

    def on_train_begin(self, logs=None):
        self._since = time.monotonic()

    def on_test_begin(self, logs=None):
        self._end_part(of_steps=True)

    def on_epoch_end(self, epoch, logs=None):
        self._end_part(of_steps=True)
        self.model.stop_training = epoch == 1

    def on_epoch_begin(self, epoch, logs=None):
        self._end_part(of_steps=False)

    def on_train_end(self, logs=None):
        self._end_part(of_steps=False)

    def _end_part(self, of_steps):
        """Notes the time of what is under way, if it is that."""
        if of_steps == (len(self.parts) % 2 == 0):
            now = time.monotonic()
            self.parts.append(now - self._since)
            self._since = now


def _say(configuration, times, chosen):
    length = f"{chosen.steps} steps"
    if chosen.steps is None:
        of_each = count_of(times.steps_per_epoch, "step")
        length = f"{count_of(chosen.epochs, 'epoch')} of {of_each}"
    if chosen.evaluate_every != configuration.evaluate_every:
        length += (
            f", evaluated after every {chosen.evaluate_every} of them and the last"
            if chosen.evaluate_every
            else ", and no evaluation: `effdet-keras eval RUN DATA` does one afterwards"
        )
    print(
        f"Time budget {configuration.time_budget}: a step of "
        f"{configuration.batch_size} images takes {in_words(times.step)}, an "
        f"evaluation {in_words(times.evaluation)}, and what is done once, with the "
        f"last evaluation, {in_words(times.once + times.final)}. That gives {length}."
    )
