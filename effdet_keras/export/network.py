"""The network as exports trace it: float32, evaluated weights, a fixed graph."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from effdet_keras._internal.optional_imports import OptionalModule, keras
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.detect.detect import Images, image_sources, letterboxed
from effdet_keras.detect.postprocess import class_map_of
from effdet_keras.errors import require
from effdet_keras.model.config import EfficientDetConfig

if TYPE_CHECKING:
    from effdet_keras.data.dataset import DetectionDataset

_convert_to_constants = OptionalModule(
    "tensorflow.python.framework.convert_to_constants", install="tensorflow"
)


@contextlib.contextmanager
def evaluated(model, *, quantized=False):
    """The model to export: float32, with the weights that are evaluated.

    One of mixed precision is copied; so is a quantization-aware one, unless
    `quantized`.
    """
    from effdet_keras.model.network import copied

    averages = model.averages
    with averages.swapped() if averages is not None else contextlib.nullcontext():
        is_plain = quantized or model.quantization is None
        if is_plain and all(x.compute_dtype == "float32" for x in model.layers):
            yield model
        else:
            policy = keras.saving.serialize_keras_object(keras.DTypePolicy("float32"))
            yield copied(model, dtype=policy, quantization=None)


def network_function(
    model, batch_size=None, repeat=None, *, folds=False, finds_classes=False
):
    """The network as a `tf.function` of `images`, float32 `[B, H, W, 3]`, pixels 0-255.

    `repeat(x, times)` repeats rows and columns in operations that the target has. It
    `folds` batch norms into convolutions for a target that does not. With
    `finds_classes` the logits of a segmentation head become a `class_map`, uint8.
    """
    from effdet_keras.model.computing import computing_with

    shape = (batch_size, *model.config.image_size, 3)
    images = tf.TensorSpec(shape, tf.float32, name="images")

    @tf.function(input_signature=[images])
    def network(images):
        with computing_with(repeat=repeat, fold=_folded if folds else None):
            outputs = dict(model(images, training=False))
        if finds_classes and model.config.has_segmentation:
            logits = outputs.pop("segmentation_logits")
            size = model.config.image_size
            outputs["class_map"] = class_map_of(logits, size, argmax=tf.argmax)
        return outputs

    return network


def _folded(conv, x, batch_norm):
    """A convolution and its batch norm as one, with constants of kernel and bias."""
    layers, variance = keras.layers, batch_norm.moving_variance + batch_norm.epsilon
    scale = batch_norm.gamma * tf.math.rsqrt(variance)
    shift = batch_norm.beta - batch_norm.moving_mean * scale
    is_separable = isinstance(conv, layers.SeparableConv2D)
    kernel = conv.pointwise_kernel if is_separable else conv.kernel
    is_depthwise = isinstance(conv, layers.DepthwiseConv2D)
    changed = [(kernel, kernel * (scale[:, None] if is_depthwise else scale))]
    if conv.use_bias:
        changed.append((conv.bias, conv.bias * scale + shift))
    with keras.StatelessScope(changed):
        x = conv(x)
    return x if conv.use_bias else tf.nn.bias_add(x, shift)


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


def save_function(module, path, signatures):
    """Writes a SavedModel that nobody trains: the gradient of swish cannot be saved."""
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    tf.saved_model.save(module, os.fspath(path), signatures, options)


# --- The images that tell int8 the range of every number in a network.


def calibration_inputs(
    config: EfficientDetConfig, calibration: DetectionDataset | Images, limit: int
) -> list[Callable[[], np.ndarray]]:
    """Functions that each read one image as the network's input `[H, W, 3]`."""
    if hasattr(calibration, "records"):  # a `DetectionDataset`
        sources = [lambda i=i: calibration[i]["image"] for i in range(len(calibration))]
    else:
        found, _ = image_sources(calibration)
        sources = [lambda source=source: source for source in found]
    rule = "int8 needs at least one image to calibrate with"
    received = {"images": len(sources), "calibration_images": limit}
    require(sources and limit >= 1, rule, **received)
    chosen = np.linspace(0, len(sources) - 1, min(limit, len(sources)))
    return [
        lambda read=sources[int(i)]: letterboxed(config, read())[0]
        for i in chosen.round()
    ]
