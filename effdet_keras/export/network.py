"""The network as exports trace it: float32, evaluated weights, a fixed graph."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from effdet_keras._internal.optional_imports import OptionalModule
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.detect.detect import Images, image_sources, letterboxed
from effdet_keras.detect.postprocess import class_map_of
from effdet_keras.errors import InvalidValueError
from effdet_keras.model.config import EfficientDetConfig
from effdet_keras.model.fake_quantization import quantizing_with, rounded_kernel
from effdet_keras.model.resample import repeating_with

_convert_to_constants = OptionalModule(
    "tensorflow.python.framework.convert_to_constants", install="tensorflow"
)


@contextlib.contextmanager
def evaluated(model, *, quantized=False):
    """The model to export: float32, with the weights that are evaluated.

    Moving averages are in the place of the weights, as in `COCOEvaluation`, and go
    back at the end. A model of mixed precision is copied into float32.

    Args:
        quantized: bool, whether the network of a quantization-aware model rounds. If
            not, it is copied into one that is not.
    """
    averages = model.averages
    with averages.swapped() if averages is not None else contextlib.nullcontext():
        is_plain = quantized or model.quantization is None
        yield model if is_plain and _is_float32(model) else _in_float32(model)


def _is_float32(model):
    return all(layer.compute_dtype == "float32" for layer in model.layers)


def _in_float32(model):
    policy = keras.saving.serialize_keras_object(keras.DTypePolicy("float32"))
    config = {**model.get_config(), "dtype": policy, "quantization": None}
    copy = type(model).from_config(config)
    copy.set_weights(model.get_weights())
    return copy


def network_function(model, batch_size=None, repeat=None, *, finds_classes=False):
    """The network as a `tf.function` of one signature.

    Args:
        repeat: function of `(x, times)` that repeats the rows and columns of
            `[B, H, W, C]`, in operations that the target has; see
            `layers.resample.repeating_with`. None for the layers' own.
        finds_classes: bool, whether it returns the `class_map` `[B, H, W]` of a
            segmentation head, uint8, in the place of its logits.

    Returns:
        `tf.function` of `images`, float32 `[B, H, W, 3]`, pixels 0-255. It returns
        a dict of `class_logits` `[B, N, C]` and `box_deltas` `[B, N, 4]`, and of a
        segmentation head `segmentation_logits` `[B, h, w, K]`.
    """
    shape = (batch_size, *model.config.image_size, 3)
    images = tf.TensorSpec(shape, tf.float32, name="images")

    @tf.function(input_signature=[images])
    def network(images):
        with repeating_with(repeat):
            outputs = dict(model(images, training=False))
        if finds_classes and model.config.has_segmentation:
            logits = outputs.pop("segmentation_logits")
            size = model.config.image_size
            outputs["class_map"] = class_map_of(logits, size, argmax=tf.argmax)
        return outputs

    return network


def output_names(config, *, finds_classes=False):
    """Names of what `frozen` of a `network_function` returns, in its order."""
    names = ["class_logits", "box_deltas"] if config.has_detection else []
    if config.has_segmentation:
        names.append("class_map" if finds_classes else "segmentation_logits")
    return sorted(names)


def frozen(function):
    """A function with its variables as constants, for kernels that fold them."""
    concrete = function.get_concrete_function()
    return _convert_to_constants.convert_variables_to_constants_v2(concrete)


# --- Where an int8 file loses most: what each place of a network loses by rounding.

IMAGES = 4  # to measure with: each is computed twice, operation by operation
WORTH_IT = 0.005  # AP that int8 costs


def rounding_errors(
    model: Any, inputs: Sequence[Callable[[], np.ndarray]]
) -> list[tuple[str, float]]:
    """What each place of a float network loses if it alone is rounded to 8 bits.

    Args:
        inputs: functions that read one image each, `[H, W, 3]`; at least one.

    Returns:
        List of `(name, error)`, the largest error first. The name is the path of a
        layer and the place in it, or the path of a kernel. The error is the root mean
        square of the change, as a share of the root mean square of the numbers.
    """
    images = [read()[None] for read in inputs]
    seen = _Seen()
    for image in images:
        seen.compute(model, image)
    errors = _Errors(seen.limits)
    for image in images:
        errors.compute(model, image)
    return errors.largest_first()


def advice_of(cost: float | None) -> str:
    """Whether quantization-aware training is worth it.

    Example:
        >>> advice_of(0.002)
        'int8 costs 0.002 AP: quantization-aware training has little to win.'
    """
    if cost is None:
        return (
            "Give a dataset as `evaluate` to know what int8 costs: above "
            f"{WORTH_IT} AP, quantization-aware training (`model.quantize_aware()`) is "
            "worth its time."
        )
    if cost <= WORTH_IT:
        return (
            f"int8 costs {cost:.3f} AP: quantization-aware training has little to win."
        )
    return (
        f"int8 costs {cost:.3f} AP: quantization-aware training "
        "(`model.quantize_aware()`, then `fit`) is worth its time."
    )


class _Watching:
    """Quantizer that changes nothing. `index` counts the places of a call."""

    def compute(self, model, image):
        self.index = -1
        with quantizing_with(self):
            model(image, training=False)

    def point(self, name, x, limits=None):
        self.index += 1
        self.watch(name, x, limits)
        return x

    def kernel(self, kernel, axis):
        return kernel

    def bias(self, bias):
        return bias

    def normalized(self, batch_norm, training):
        return batch_norm(False)


class _Seen(_Watching):
    """The lowest and highest number of each place: `limits`."""

    def __init__(self):
        self.limits = []

    def watch(self, name, x, limits):
        low, high = limits or (float(ops.min(x)), float(ops.max(x)))
        if self.index == len(self.limits):
            self.limits.append((0.0, 1e-5))  # zero is always among the 256 numbers
        before = self.limits[self.index]
        self.limits[self.index] = (min(before[0], low), max(before[1], high))


class _Errors(_Watching):
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


# --- The images that tell int8 the range of every number in a network.


def calibration_inputs(
    config: EfficientDetConfig,
    calibration: DetectionDataset | Images,
    limit: int,
) -> list[Callable[[], np.ndarray]]:
    """Functions that each read one image as the network's input `[H, W, 3]`."""
    if isinstance(calibration, DetectionDataset):
        sources = [lambda i=i: calibration[i]["image"] for i in range(len(calibration))]
    else:
        found, _ = image_sources(calibration)
        sources = [lambda source=source: source for source in found]
    if not sources or limit < 1:
        raise InvalidValueError(
            "int8 needs at least one image to calibrate with. Received: "
            f"{len(sources)} images, calibration_images={limit}"
        )
    chosen = np.linspace(0, len(sources) - 1, min(limit, len(sources)))
    return [
        lambda read=sources[int(i)]: letterboxed(config, read())[0]
        for i in chosen.round()
    ]
