"""Small layers, base classes and options of all layers, and recomputed blocks."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import keras
from keras import ops

from effdet_keras._internal.backend import fused
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.errors import check_argument
from effdet_keras.network.batch_norm import BatchNormalization, substituted_variables
from effdet_keras.network.computing import ON_TENSORFLOW, quantized


class ConfiguredLayer(keras.layers.Layer):
    """A layer whose config is its constructor's arguments, stored as attributes."""

    # Whether the block is recomputed in training: `compile(grad_checkpoint=True)`.
    recomputes = False

    def get_config(self):
        arguments = inspect.signature(type(self).__init__).parameters
        own = {name: getattr(self, name) for name in arguments if hasattr(self, name)}
        return super().get_config() | {
            name: dataclasses.asdict(value) if isinstance(value, _Options) else value
            for name, value in own.items()
        }


class _Options:
    """Base class of frozen dataclasses that are part of a layer's `get_config`."""

    @classmethod
    def from_value(cls, value):
        """Returns options from None (the defaults), options, or a dict of fields."""
        return value if isinstance(value, cls) else cls(**(value or {}))


@dataclasses.dataclass(frozen=True)
class BatchNormOptions(_Options):
    """Options of the batch norms of a layer, from fields of `EfficientDetConfig`."""

    momentum: float = 0.99  # the weight of the old moving statistics in an update
    epsilon: float = 1e-3
    synchronized: bool = False
    unbiased: bool = False
    frozen: bool = False

    def layer(self, name: str, dtype: Any = None) -> BatchNormalization:
        return BatchNormalization(
            momentum=self.momentum,
            epsilon=self.epsilon,
            # Keras allows it only on TensorFlow. JAX uses the statistics of the whole
            # batch anyway, and torch has one device.
            synchronized=self.synchronized and ON_TENSORFLOW,
            unbiased=self.unbiased,
            trainable=not self.frozen,
            name=name,
            dtype=dtype,
        )


@dataclasses.dataclass(frozen=True)
class PyramidOptions(_Options):
    """Options of `BiFPN` nodes: `fpn_...` and other fields of `EfficientDetConfig`."""

    graph: str = "bifpn"
    weight_method: str = "fastattn"
    activation: str = "swish"
    separable_conv: bool = True
    conv_bn_act_pattern: bool = False
    redundant_bias: bool = True
    apply_bn_for_resampling: bool = True
    conv_after_downsample: bool = False
    downsampling: str = "max"
    upsampling: str = "nearest"
    padding: str = "same"
    batch_norm: BatchNormOptions = BatchNormOptions()

    def __post_init__(self):
        batch_norm = BatchNormOptions.from_value(self.batch_norm)
        object.__setattr__(self, "batch_norm", batch_norm)


# --- Activations by name.


@keras.saving.register_keras_serializable(package="effdet_keras")
def swish(x):
    """Returns `x * sigmoid(x)`."""
    if not ON_TENSORFLOW:
        return keras.activations.silu(x)

    @tf.custom_gradient
    def swish_of(x):
        y = x * tf.sigmoid(x)
        return y, lambda upstream: _gradient_of_swish(x, y, upstream)

    return swish_of(x)


@fused
def _gradient_of_swish(x, y, upstream):
    """Returns `upstream * sigmoid(x) * (1 + x * (1 - sigmoid(x)))`."""
    slope = upstream * (1.0 + (x - y))
    return tf.raw_ops.SoftplusGrad(gradients=slope, features=x)


@keras.saving.register_keras_serializable(package="effdet_keras")
def srelu(x):
    """Returns the smooth ReLU: `x - log(1 + b * x) / b` above zero, otherwise 0.

    In the reference, `b` is the fourth power of a variable that starts at 20. Here `b`
    is a constant with that initial value, 160,000.
    """
    sharpness = 160_000.0
    positive = ops.relu(x)
    return positive - ops.log1p(sharpness * positive) / sharpness


def _mish(x):
    """Returns `x * tanh(softplus(x))`.

    Exports call it with symbolic tensors, which Keras' activation does not accept.
    """
    return x * ops.tanh(ops.softplus(x))


_ACTIVATIONS = {
    "swish": swish,
    "silu": swish,
    "swish_native": swish,
    "hswish": ops.hard_silu,
    "hard_swish": ops.hard_silu,
    "relu": keras.activations.relu,
    "relu6": keras.activations.relu6,
    "mish": _mish,
    "srelu": srelu,
}


def get_activation(name):
    """Returns the activation function of a name in a config."""
    return _ACTIVATIONS[name]


@keras.saving.register_keras_serializable(package="effdet_keras")
class Normalize(ConfiguredLayer):
    """Subtracts a mean from pixels 0-255 `[B, H, W, 3]`, and divides by a deviation.

    It computes in float32 under every dtype policy, because in float16 pixels above 128
    could not be told from their neighbors after the division.

    Args:
        mean, stddev: three floats each, one per color.
    """

    def __init__(self, mean, stddev, **kwargs):
        super().__init__(**{**kwargs, "autocast": False})
        self.mean = tuple(mean)
        self.stddev = tuple(stddev)
        self.built = True

    def call(self, inputs):
        x = quantized(self, "pixels", ops.cast(inputs, "float32"), (0.0, 255.0))
        low, high = 0.0 - max(self.mean), 255.0 - min(self.mean)
        x = x - ops.array(self.mean, "float32")
        x = quantized(self, "centered", x, (low, high))
        x = x / ops.array(self.stddev, "float32")
        low, high = low / min(self.stddev), high / min(self.stddev)
        return ops.cast(quantized(self, "scaled", x, (low, high)), self.compute_dtype)

    def compute_output_shape(self, input_shape):
        return input_shape

    def compute_output_spec(self, inputs):
        return keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)


@keras.saving.register_keras_serializable(package="effdet_keras")
class DropPath(ConfiguredLayer):
    """Drops whole samples of a branch in training, and scales up the others.

    This is stochastic depth (https://arxiv.org/abs/1603.09382). Each sample survives
    with probability `p`, independently of the others. Survivors are divided by `p`, so
    that the mean stays the same.

    Args:
        survival_prob: float above 0 and at most 1, `p`.
        seed: int, or None for a random seed.

    Raises:
        ValueError: If `survival_prob` is out of its range.
    """

    def __init__(self, survival_prob=0.8, seed=None, **kwargs):
        super().__init__(**kwargs)
        is_right, expected = 0 < survival_prob <= 1, "above 0 and at most 1"
        check_argument(is_right, "survival_prob", survival_prob, expected)
        self.survival_prob = survival_prob
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)
        self.built = True

    def call(self, inputs, training=False):
        if not training or self.survival_prob == 1:
            return inputs
        shape = (ops.shape(inputs)[0],) + (1,) * (len(inputs.shape) - 1)
        # Drawn in float32: float16 would round the probability.
        draw = keras.random.uniform(shape, dtype="float32", seed=self.seed_generator)
        survives = ops.cast(ops.floor(draw + self.survival_prob), inputs.dtype)
        return inputs / self.survival_prob * survives

    def compute_output_shape(self, input_shape):
        return input_shape


# --- Gradient checkpointing: blocks that are recomputed in the backward pass.


def call_block(block, inputs, training):
    """Calls a built block with a tensor or a list of tensors.

    If the block `recomputes`, in training its intermediate results are not stored, but
    recomputed in the backward pass (https://arxiv.org/abs/1604.06174, section 3).
    """
    if not (block.recomputes and training):
        return block(inputs, training=training)
    more_trainable, more_others = substituted_variables(block)
    trainable = [*block.trainable_variables, *more_trainable]
    others = [*block.non_trainable_variables, *more_others]
    is_list = isinstance(inputs, (list, tuple))
    tensors = list(inputs) if is_list else [inputs]
    # Statistics and random states are passed in and out as values. So the second
    # computation draws the same random numbers, and statistics are updated once.
    states = [ops.copy(v.value) for v in others]

    def run(*values):
        inputs = list(values[: len(tensors)]) if is_list else values[0]
        weights = values[len(tensors) :]
        mapping = zip([*trainable, *others], [*weights, *states], strict=True)
        with keras.StatelessScope(list(mapping)) as scope:
            outputs = block(inputs, training=True)  # `__call__` casts the weights
        return outputs, [scope.get_current_value(v) for v in others]

    outputs, moved = keras.remat(run)(*tensors, *[v.value for v in trainable])
    for variable, value in zip(others, moved):
        variable.assign(value)
    return outputs
