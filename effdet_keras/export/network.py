"""The network for exports: in float32, with the evaluated weights, as a fixed graph."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from effdet_keras._internal.optional_imports import OptionalModule, keras
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.detect.detect import Images, image_sources, letterboxed, load_rgb
from effdet_keras.detect.postprocess import class_map_of
from effdet_keras.errors import InvalidValueError, check_choice, require
from effdet_keras.images import fault_of_pixels
from effdet_keras.network.config import EfficientDetConfig

if TYPE_CHECKING:
    from effdet_keras.data.dataset import DetectionDataset

_convert_to_constants = OptionalModule(
    "tensorflow.python.framework.convert_to_constants", install="tensorflow"
)


@contextlib.contextmanager
def evaluated(model, *, quantized=False):
    """Returns a context with the model to export: in float32, with evaluated weights.

    The evaluated weights are the moving averages, if there are any. A model in mixed
    precision is copied to float32. A quantization-aware model is copied without its
    quantization, unless `quantized`.
    """
    from effdet_keras.network.build import copied

    averages = model.averages
    with averages.swapped() if averages is not None else contextlib.nullcontext():
        is_plain = quantized or model.quantization is None
        if is_plain and all(x.compute_dtype == "float32" for x in model.layers):
            yield model
        else:
            policy = keras.saving.serialize_keras_object(keras.DTypePolicy("float32"))
            yield copied(model, dtype=policy, quantization=None)


def network_function(
    model, batch_size=None, repeat=None, *, folds=False, finds_classes=False, layers=()
):
    """Returns the network as a `tf.function` of `images`.

    `images` is float32 `[B, H, W, 3]`, pixels 0-255.

    Args:
        model: `EfficientDet`.
        batch_size: int, or None for any.
        repeat: function `repeat(x, times)` that repeats rows and columns with
            operations that the target supports, or None.
        folds: bool, whether to fold batch norms into convolutions, for targets that do
            not do this themselves.
        finds_classes: bool, whether to return the uint8 `class_map` instead of the
            logits of a segmentation head.
        layers: `layer_outputs` to return as well.
    """
    from effdet_keras.network.computing import computing_with

    shape = (batch_size, *model.config.image_size, 3)
    images = tf.TensorSpec(shape, tf.float32, name="images")
    network = model
    if layers:
        network = keras.Model(model.input, {**model.output, **layers})

    @tf.function(input_signature=[images])
    def function(images):
        with computing_with(repeat=repeat, fold=_folded if folds else None):
            outputs = dict(network(images, training=False))
        if finds_classes and model.config.has_segmentation:
            logits = outputs.pop("segmentation_logits")
            size = model.config.image_size
            outputs["class_map"] = class_map_of(logits, size, argmax=tf.argmax)
        return outputs

    return function


def layer_outputs(model, names):
    """Returns symbolic outputs of layers by name, for `network_function`.

    `names` is a list of layer names, or a string with commas between them. A layer that
    returns a list with a tensor per level gives `fpn_cells_p3` and so on.
    """
    if isinstance(names, str):
        names = [name.strip() for name in names.split(",")]
    known = [layer.name for layer in model.layers[1:]]  # without the input layer
    found = {}
    for name in names or ():
        check_choice("additional_outputs", name, known)
        output = model.get_layer(name).output
        if not isinstance(output, (list, tuple)):
            found[name] = output
            continue
        for level, tensor in enumerate(output, model.config.min_level):
            found[f"{name}_p{level}"] = tensor
    return found


def _folded(conv, x, batch_norm):
    """Applies a convolution into whose kernel and bias the batch norm is folded."""
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
    """Returns the output names of a frozen `network_function`, in their order."""
    names = ["class_logits", "box_deltas"] if config.has_detection else []
    if config.has_segmentation:
        names.append("class_map" if finds_classes else "segmentation_logits")
    return sorted(names)


def frozen(function):
    """Returns a function with constants for its variables, which kernels can fold."""
    concrete = function.get_concrete_function()
    return _convert_to_constants.convert_variables_to_constants_v2(concrete)


def save_function(module, path, signatures):
    """Writes a SavedModel without gradients, as that of swish cannot be saved."""
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    tf.saved_model.save(module, os.fspath(path), signatures, options)


# --- The calibration images, which show the range of every activation for int8.

CALIBRATION_IMAGES = 100  # images to calibrate with, by default
CHECK_IMAGES = 4  # images, enough for a check
_HELD_BACK = 10  # one of ten images is not for calibration, only for the check
_MIN_CONTRAST = 16  # between the darkest and the brightest value of an image
_Source = Callable[[], np.ndarray]  # reads an image `[H, W, 3]`


def calibration_inputs(
    config: EfficientDetConfig, calibration: DetectionDataset | Images, limit: int
) -> list[Callable[[], np.ndarray]]:
    """Returns functions, each of which reads an image as network input `[H, W, 3]`."""
    chosen, _ = divided_calibration(calibration, limit)
    return [lambda read=read: letterboxed(config, read())[0] for read in chosen]


def divided_calibration(
    calibration: DetectionDataset | Images, limit: int
) -> tuple[list[_Source], list[_Source]]:
    """Returns functions that read images to calibrate with, and images for the check.

    Both are spread evenly over all images. At most `limit` images are for calibration.
    If there are more than `limit` images, the check gets images that are not needed for
    calibration. Otherwise it gets one of ten images, so none of fewer than ten. The
    check gets four images at most.
    """
    if hasattr(calibration, "records"):  # a `DetectionDataset`
        sources = [lambda i=i: calibration[i]["image"] for i in range(len(calibration))]
    else:
        found, _ = image_sources(calibration)
        sources = [
            lambda source=source, i=i: load_rgb(source, f"image {i} of `calibration`")
            for i, source in enumerate(found)
        ]
    rule = "int8 needs at least one image to calibrate with"
    received = {"images": len(sources), "calibration_images": limit}
    require(sources and limit >= 1, rule, **received)
    places = range(len(sources))
    if len(sources) > limit:
        chosen = evenly(places, limit)
        used = set(chosen)
        held_back = evenly([x for x in places if x not in used], CHECK_IMAGES)
    else:
        held_back = evenly(places, min(CHECK_IMAGES, len(sources) // _HELD_BACK))
        chosen = [place for place in places if place not in held_back]
    return [sources[i] for i in chosen], [sources[i] for i in held_back]


def evenly(items: Sequence, count: int) -> list:
    """Returns at most `count` items, evenly spread, with the first and the last.

    Example:
        >>> evenly(range(9), 3)
        [0, 4, 8]
    """
    places = np.linspace(0, len(items) - 1, min(count, len(items))).round()
    return [items[int(place)] for place in places]


def check_calibration(calibration: DetectionDataset | Images, limit: int) -> None:
    """Raises ValueError for images that cannot show the ranges of activations.

    These are floats from 0 to 1, and images that all have a single color. A file that
    is calibrated with them agrees with the model on such images, but finds little in
    others.
    """
    chosen, _ = divided_calibration(calibration, limit)
    plain_colors = []
    for read in chosen:
        with warnings.catch_warnings(action="ignore"):  # it is an error below
            image = read()
        if (fault := fault_of_pixels(image, "an image of `calibration`")) is not None:
            raise InvalidValueError(fault.text)
        if int(image.max()) - int(image.min()) < _MIN_CONTRAST:
            plain_colors.append(np.rint(image.mean(axis=(0, 1))).astype(int).tolist())
    require(
        len(plain_colors) < len(chosen),
        "An int8 export needs images of the kind the model will see, to find the "
        "range of every number in the network. But every image of `calibration` has "
        "only one color. Pass photographs, such as `calibration=train`",
        images=len(chosen),
        colors=plain_colors[:3],
    )
