"""Measures the rounding error of each place in a network, and the AP int8 costs."""

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

_WORTH_IT = 0.005  # AP; with a higher cost, quantization-aware training is advised
_STORED_ERRORS = 20  # the most places to list in the report


def with_rounding(report, model, runtime, dataset, calibration):
    """Adds the cost of int8 to the report of a model that was not trained for it."""
    inputs = calibration_inputs(model.config, calibration, CHECK_IMAGES)
    errors = rounding_errors(model, inputs)[:_STORED_ERRORS]
    cost = None
    if dataset is not None and model.config.has_detection:
        own_postprocess = model.postprocess
        # The file's postprocess may differ. Its cost must not count as a cost of int8.
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
    """Computes the error of each place in a float network if only it is rounded.

    Args:
        model: `EfficientDet`, not quantization-aware.
        inputs: functions, each of which returns a network input `[H, W, 3]`.

    Returns:
        List of `(name, error)`, the largest error first. `name` is the path of a layer
        and the place in it, or the path of a kernel. `error` is the root mean square of
        the change by rounding to 8 bits, divided by that of the values.
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
    """Returns a text whether quantization-aware training is worth it.

    `cost` is the AP that int8 costs, or None if it was not measured.
    """
    if cost is None:
        return (
            "To know how much AP int8 costs, pass a dataset as `evaluate` (--evaluate)."
        )
    training = "quantization-aware training (`model.quantize_aware()`, then `fit`)"
    verdict = "is worth its time" if cost > _WORTH_IT else "can gain little"
    return f"int8 costs {cost:.3f} AP: {training} {verdict}."


class _PassThrough(Quantizer):
    """Quantizer that changes nothing; `index` counts the places during a call."""

    def compute(self, model, image):
        self.index = -1
        with computing_with(quantizer=self):
            model(image, training=False)

    def point(self, name, x, limits=None):
        self.index += 1
        self.watch(name, x, limits)
        return x


class _RangeObserver(_PassThrough):
    """Records the lowest and highest value of each place in `limits`."""

    def __init__(self):
        self.limits = []

    def watch(self, name, x, limits):
        low, high = limits or (float(ops.min(x)), float(ops.max(x)))
        if self.index == len(self.limits):
            self.limits.append((0.0, 1e-5))  # zero must be one of the 256 values
        before = self.limits[self.index]
        self.limits[self.index] = (min(before[0], low), max(before[1], high))


class _Errors(_PassThrough):
    """Sums the squares of values and of their changes, by place and by kernel."""

    def __init__(self, limits):
        self._limits = limits
        self._sums = collections.defaultdict(lambda: np.zeros(2))

    def watch(self, name, x, limits):
        low, high = self._limits[self.index]
        rounded = tf.quantization.fake_quant_with_min_max_args(x, low, high)
        self._add(name, x, rounded)

    def kernel(self, kernel, axis):
        name = getattr(kernel, "path", None)  # None if it is computed from a kernel
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
