"""Where an int8 file loses most: what each place of a network loses by rounding."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from keras import ops

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.detect.evaluate import evaluate
from effdet_keras.export.network import CHECK_IMAGES, calibration_inputs
from effdet_keras.extras.quantization import Quantizer, rounded_kernel
from effdet_keras.network.computing import computing_with

_WORTH_IT = 0.005  # AP that int8 costs
_STORED_ERRORS = 20  # of places of the network


def with_rounding(report, model, runtime, dataset, calibration):
    """A report with what int8 costs, of a model that was not trained for it."""
    inputs = calibration_inputs(model.config, calibration, CHECK_IMAGES)
    errors = rounding_errors(model, inputs)[:_STORED_ERRORS]
    cost = None
    if dataset is not None and model.config.has_detection:
        own_postprocess = model.postprocess
        # The file's may be another: that costs, too, and is no matter of int8.
        model.postprocess = runtime.description.postprocess
        try:
            in_float = evaluate(model, dataset, verbose=False)
        finally:
            model.postprocess = own_postprocess
        cost = float(in_float["AP"]) - float(report.metrics["export"]["AP"])
    return dataclasses.replace(
        report, rounding_errors=tuple(errors), advice=advice_of(cost)
    )


def rounding_errors(
    model: Any, inputs: Sequence[Callable[[], np.ndarray]]
) -> list[tuple[str, float]]:
    """What each place of a float network loses if it alone is rounded to 8 bits.

    The largest error comes first: the path of a layer and the place in it, or the path
    of a kernel; and the root mean square of the change, as a share of the root mean
    square of the numbers.
    """
    images = [read()[None] for read in inputs]
    seen = _RangeObserver()
    for image in images:
        seen.compute(model, image)
    errors = _Errors(seen.limits)
    for image in images:
        errors.compute(model, image)
    return errors.largest_first()


def advice_of(cost: float | None) -> str:
    """Whether quantization-aware training is worth it."""
    if cost is None:
        return "Give a dataset as `evaluate` to know what int8 costs."
    training = "quantization-aware training (`model.quantize_aware()`, then `fit`)"
    verdict = "is worth its time" if cost > _WORTH_IT else "has little to win"
    return f"int8 costs {cost:.3f} AP: {training} {verdict}."


class _PassThrough(Quantizer):
    """Quantizer that changes nothing. `index` counts the places of a call."""

    def compute(self, model, image):
        self.index = -1
        with computing_with(quantizer=self):
            model(image, training=False)

    def point(self, name, x, limits=None):
        self.index += 1
        self.watch(name, x, limits)
        return x


class _RangeObserver(_PassThrough):
    """The lowest and highest number of each place: `limits`."""

    def __init__(self):
        self.limits = []

    def watch(self, name, x, limits):
        low, high = limits or (float(ops.min(x)), float(ops.max(x)))
        if self.index == len(self.limits):
            self.limits.append((0.0, 1e-5))  # zero is always among the 256 numbers
        before = self.limits[self.index]
        self.limits[self.index] = (min(before[0], low), max(before[1], high))


class _Errors(_PassThrough):
    """Sums of squares, of the numbers and of their changes, by place and by kernel."""

    def __init__(self, limits):
        self._limits = limits
        self._sums = collections.defaultdict(lambda: np.zeros(2))

    def watch(self, name, x, limits):
        low, high = self._limits[self.index]
        rounded = tf.quantization.fake_quant_with_min_max_args(x, low, high)
        self._add(name, x, rounded)

    def kernel(self, kernel, axis):
        name = getattr(kernel, "path", None)  # none of what is computed from a kernel
        if name is not None:
            self._add(name, kernel, rounded_kernel(kernel, axis))
        return kernel

    def _add(self, name, x, rounded):
        squares = [ops.sum(ops.square(x)), ops.sum(ops.square(rounded - x))]
        self._sums[name] += [float(value) for value in squares]

    def largest_first(self):
        errors = {
            name: float(np.sqrt(changes / numbers)) if numbers else 0.0
            for name, (numbers, changes) in self._sums.items()
        }
        return sorted(errors.items(), key=lambda item: -item[1])
