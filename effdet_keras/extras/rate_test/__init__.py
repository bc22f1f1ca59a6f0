"""The learning-rate range test: its measurement, and its curve."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shlex
from typing import Any

import keras
import numpy as np

from effdet_keras._internal.number_ranges import NumberRange, check_whole_number
from effdet_keras._internal.optional_imports import matplotlib_figure
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.errors import (
    InvalidStateError,
    NonFiniteLossError,
    require,
)
from effdet_keras.extras.batch_size import with_batch_size
from effdet_keras.network.build import copied
from effdet_keras.runs.components import choose_splits, make_model, training_batches
from effdet_keras.runs.requested import build_configuration
from effdet_keras.runs.run_folder import RunFolder, draw_chart
from effdet_keras.train import inputs
from effdet_keras.train.schedules import REFERENCE_BATCH_SIZE

# --- The range test, which finds a learning rate that is high but does not diverge.

_SMOOTHING = 0.9  # of a running mean over the steps
_DIVERGED = 4.0  # multiple of the smallest loss at which the training has diverged
_LEAST = 10  # number of steps before divergence is judged
_BELOW = 10.0  # the suggestion is this factor below the rate of the smallest loss


@dataclasses.dataclass(frozen=True)
class LearningRates:
    """The result of `find_learning_rate`.

    Args:
        rates: tuple of floats, the learning rate of each step.
        losses: tuple of floats, the loss of each step.
        suggestion: float, a tenth of the rate at which the smoothed loss is smallest.
        arguments: dict, the arguments of `compile`, or fields of a run, that set this
            rate.
    """

    rates: tuple[float, ...]
    losses: tuple[float, ...]
    suggestion: float
    arguments: dict[str, Any]

    @property
    def smoothed(self) -> tuple[float, ...]:
        """The running mean of the losses."""
        return tuple(_smoothed(self.losses).tolist())

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Draws the curve; returns the matplotlib figure.

        Args:
            path: path of the file to write, such as "rates.png", or None.

        Raises:
            ImportError: If matplotlib is not installed.
        """
        figure = matplotlib_figure.Figure(figsize=(7.0, 4.2), layout="constrained")
        axes = figure.add_subplot()
        losses, smoothed, best = self.losses, self.smoothed, self.suggestion
        axes.plot(
            self.rates, losses, color="0.75", linewidth=1, label="loss of each step"
        )
        axes.plot(self.rates, smoothed, linewidth=2, label="smoothed")
        axes.axvline(best, color="0.3", linestyle="--", label=f"suggested: {best:.2g}")
        # A diverged last loss would hide all other losses.
        axes.set_ylim(0, 1.1 * max(np.max(smoothed), np.percentile(losses, 90)))
        axes.set(xscale="log", xlabel="learning rate", ylabel="loss")
        axes.set_title("Learning-rate range test")
        axes.legend()
        if path is not None:
            figure.savefig(os.fspath(path), dpi=130)
        return figure


def find_learning_rate(
    model: Any,
    data: Any,
    batch_size: int = 8,
    *,
    num_steps: int = 100,
    lowest: float = 1e-6,
    highest: float = 1.0,
) -> LearningRates:
    """Trains some steps with increasing learning rates, and suggests one.

    This is the range test of Smith (https://arxiv.org/abs/1506.01186, section 3.3), but
    with rates that grow exponentially. At the 0-based step `t` of `T`, the rate is

        lowest * (highest / lowest) ** (t / (T - 1))

    A copy of the model is trained, and the model itself is not changed. The test stops
    early when the loss has become four times its smallest value. If `compile` left the
    choice of the optimizer to `fit`, the copy has the optimizer that `fit` chooses.

    Args:
        model: `EfficientDet`. If it is not compiled, its copy is, by `compile()`.
        data: `DetectionDataset`, or batches (`tf.data.Dataset`).
        batch_size: int, images per step, if `data` is a `DetectionDataset`.
        num_steps: int, 10 or more.
        lowest, highest: floats above 0, the first and the last rate.

    Returns:
        `LearningRates`.

    Raises:
        ValueError, TypeError: If a number is out of range, or the data is not suited
            for training.
        RuntimeError: If the loss grows from the first steps on.

    Example:
        >>> find_learning_rate(None, None, lowest=0.1, highest=0.01)
        Traceback (most recent call last):
            ...
        effdet_keras.errors.InvalidValueError: The learning rates must be above 0, \
and `highest` above `lowest`. Received: lowest=0.1, highest=0.01

        docs/train.md has an example that trains.
    """
    is_number = NumberRange("(0, inf)").contains
    is_rising = is_number(lowest) and is_number(highest) and lowest < highest
    rule = "The learning rates must be above 0, and `highest` above `lowest`"
    require(is_rising, rule, lowest=lowest, highest=highest)
    check_whole_number("num_steps", num_steps, f"[{_LEAST}, inf)")
    copy = _copy_of(model)
    if isinstance(data, DetectionDataset):
        data = copy.batches(data, batch_size, training=True)
    rising = _Rising(lowest, highest, num_steps)
    # A loss that is not finite ends the test; the rates before it are of interest.
    with contextlib.suppress(NonFiniteLossError):
        copy.fit(
            data.repeat(),
            epochs=1,
            steps_per_epoch=num_steps,
            verbose=0,
            callbacks=[rising],
        )
    losses = rising.losses
    best = int(np.argmin(_smoothed(losses))) if losses else 0
    if len(losses) < _LEAST or best == 0:
        raise InvalidStateError(
            f"The loss grows from the first steps on: {losses[:3]}. Begin with a "
            f"lower learning rate than lowest={lowest}."
        )
    ratio = highest / lowest
    rates = [lowest * ratio ** (t / (num_steps - 1)) for t in range(len(losses))]
    suggestion = float(f"{rates[best] / _BELOW:.2g}")
    return LearningRates(
        tuple(rates), tuple(losses), suggestion, _arguments(copy, data, suggestion)
    )


def _copy_of(model):
    """Returns another model with the same weights, compiled in the same way."""
    copy = copied(model)
    if model.settings is None:
        copy.compile()
    else:
        copy.compile_from_config(model.get_compile_config())
    return copy


def _arguments(model, batches, rate):
    """Returns arguments for a rate; the reference's optimizer expects one for 64."""
    optimizer = model.settings.recipe.optimizer
    if isinstance(optimizer, keras.optimizers.Optimizer):
        return {"learning_rate": rate}
    if optimizer is not None:
        return {"optimizer": optimizer, "learning_rate": rate}
    batch_size, _ = inputs.batch_size_and_steps(batches, None, 1)
    return {"learning_rate": float(f"{rate * REFERENCE_BATCH_SIZE / batch_size:.2g}")}


class _Rising(keras.callbacks.Callback):
    """Replaces the schedule of `fit`, records losses, and stops when they diverge."""

    def __init__(self, lowest, highest, num_steps):
        super().__init__()
        self._schedule = keras.optimizers.schedules.ExponentialDecay(
            lowest, num_steps - 1, highest / lowest
        )
        self.losses = []
        self._sum = 0.0

    def on_train_begin(self, logs=None):
        # This runs after `fit` has set its own schedule, and before the step is traced.
        self.model.optimizer.learning_rate = self._schedule

    def on_train_batch_end(self, batch, logs=None):
        total = float(logs["loss"]) * (batch + 1)  # Keras logs the mean so far
        self.losses.append(total - self._sum)
        self._sum = total
        smoothed = _smoothed(self.losses)
        if len(smoothed) > _LEAST and smoothed[-1] > _DIVERGED * smoothed.min():
            self.model.stop_training = True


def _smoothed(losses):
    """Returns the running mean, corrected for its start at zero."""
    means, mean = [], 0.0
    for step, loss in enumerate(losses, start=1):
        mean = _SMOOTHING * mean + (1 - _SMOOTHING) * loss
        means.append(mean / (1 - _SMOOTHING**step))
    return np.array(means)


# --- `effdet-keras train --find-rate`: the test for a run that has not begun.


def find_rate(out, fields, *, configuration, hparams, pipeline_config, ignore_unknown):
    """Tests learning rates for a run, which can then begin in the same folder."""
    folder = RunFolder(out)
    folder.check_empty(overwrite=False)
    sources = (configuration, hparams, dict(fields), pipeline_config)
    chosen = build_configuration(*sources, ignore_unknown=ignore_unknown)
    splits = choose_splits(chosen)
    chosen = with_batch_size(chosen, splits, hparams, fields)
    keras.utils.set_random_seed(chosen.seed)
    model = make_model(chosen, splits.train)
    print("Testing learning rates in up to 100 steps; compiling the first step ...")
    batches = training_batches(model, chosen, splits.train)
    found = find_learning_rate(model, batches)
    with folder.lock():
        folder.write_json("learning_rates", dataclasses.asdict(found))
        draw_chart(folder.rates_image, found.plot)
    _print_result(found, folder)
    return found


def _print_result(found, folder):
    settings = (
        f"--set {shlex.quote(f'{name}={_flow(value)}')}"
        for name, value in found.arguments.items()
    )
    print(
        "The loss is smallest at a learning rate of about "
        f"{10 * found.suggestion:.2g}. A tenth of it is suggested: "
        f"{found.suggestion:.2g}. To train with it: {' '.join(settings)}\n"
        f"The curve: {folder.rates}"
    )


def _flow(value):
    """Returns a value as one line of YAML; JSON is valid YAML."""
    return json.dumps(value) if isinstance(value, dict) else value
