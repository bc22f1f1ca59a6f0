"""The network as exports trace it: float32, evaluated weights, a fixed graph."""

import contextlib

import keras

from effdet_keras._internal.optional_imports import OptionalModule
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.layers.resample import repeating_with
from effdet_keras.postprocess.class_map import class_map_of

_convert_to_constants = OptionalModule(
    "tensorflow.python.framework.convert_to_constants", install="tensorflow"
)


@contextlib.contextmanager
def evaluated(model, *, quantized=False):
    """The model to export: float32, with the weights that are evaluated.

    Moving averages are in the place of the weights, as in `COCOEvaluation`, and go
    back at the end. A model of mixed precision is copied into float32.

    Args:
        model: `EfficientDet`.
        quantized: bool, whether the network of a quantization-aware model rounds. If
            not, it is copied into one that is not.

    Yields:
        `EfficientDet`, the same or a copy.
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
        model: `EfficientDet`.
        batch_size: int, or None for any.
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
    """A function with its variables as constants, for kernels that fold them.

    Args:
        function: `tf.function` with one signature.

    Returns:
        `ConcreteFunction`; it returns a flat list, in the order of sorted names.
    """
    concrete = function.get_concrete_function()
    return _convert_to_constants.convert_variables_to_constants_v2(concrete)
