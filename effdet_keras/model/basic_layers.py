"""Small layers, options that several layers share, and blocks that are recomputed."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Self

import keras
from keras import ops

from effdet_keras.errors import InvalidTypeError, InvalidValueError
from effdet_keras.model.batch_norm import (
    CAN_SYNCHRONIZE,
    BatchNormalization,
    other_variables_within,
)
from effdet_keras.model.fake_quantization import quantized


class _Options:
    """Makes a frozen dataclass part of a layer's `get_config`."""

    @classmethod
    def from_value(cls, value: Any) -> Self:
        """Returns options, made from `None`, options or what `serialize` wrote."""
        if value is None:
            return cls()
        if isinstance(value, dict):
            return keras.saving.deserialize_keras_object(value)
        if not isinstance(value, cls):
            raise InvalidTypeError(
                f"Expected a `{cls.__name__}` or None. Received: {value!r}"
            )
        return value

    def serialize(self) -> dict[str, Any]:
        """Returns what a layer's `get_config` holds; `from_value` reads it."""
        return keras.saving.serialize_keras_object(self)

    def get_config(self):
        return {
            field.name: value.serialize() if isinstance(value, _Options) else value
            for field in dataclasses.fields(self)
            for value in [getattr(self, field.name)]
        }

    @classmethod
    def from_config(cls, config):
        return cls(**config)


@keras.saving.register_keras_serializable(package="effdet_keras")
@dataclasses.dataclass(frozen=True)
class BatchNormOptions(_Options):
    """How the batch norms of a layer behave.

    Args:
        momentum: float, the share of the old moving statistics that is kept.
        epsilon: float, added to the variance.
        synchronized: bool, batch statistics over all replicas, on TensorFlow; of no
            account on JAX and torch.
        unbiased: bool, see `BatchNormalization`.
        frozen: bool, use the moving statistics in training as well, and train
            neither scale nor offset.

    Example:
        >>> bn = BatchNormOptions(frozen=True).layer("bn")
        >>> bn.trainable, bn.momentum
        (False, 0.99)
    """

    momentum: float = 0.99
    epsilon: float = 1e-3
    synchronized: bool = False
    unbiased: bool = False
    frozen: bool = False

    def layer(self, name: str, dtype: Any = None) -> BatchNormalization:
        """Returns a new `BatchNormalization` of that name."""
        return BatchNormalization(
            momentum=self.momentum,
            epsilon=self.epsilon,
            synchronized=self.synchronized and CAN_SYNCHRONIZE,
            unbiased=self.unbiased,
            trainable=not self.frozen,
            name=name,
            dtype=dtype,
        )


@keras.saving.register_keras_serializable(package="effdet_keras")
@dataclasses.dataclass(frozen=True)
class PyramidOptions(_Options):
    """How the nodes of a `BiFPN` are made.

    Args:
        graph: string, "bifpn" or "qufpn", see `pyramid_nodes`.
        weight_method: string, see `WeightedFusion`.
        activation: string, see `effdet_keras.model.config.ACTIVATIONS`.
        separable_conv: bool, separable or plain convolution in a node.
        conv_bn_act_pattern: bool, convolution, batch norm, activation instead
            of activation, convolution, batch norm.
        redundant_bias: bool, biases in convolutions that a batch norm follows.
        apply_bn_for_resampling, conv_after_downsample: bool, see `Resample`.
        downsampling, upsampling, padding: strings, see `Resample`.
        batch_norm: `BatchNormOptions` or None for its defaults.

    Example:
        >>> PyramidOptions(weight_method="sum").batch_norm.momentum
        0.99
    """

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

    def edge(self) -> dict[str, Any]:
        """Returns the arguments of the `Resample` of an edge."""
        return {
            "apply_bn": self.apply_bn_for_resampling,
            "conv_after_downsample": self.conv_after_downsample,
            "redundant_bias": self.redundant_bias,
            "downsampling": self.downsampling,
            "upsampling": self.upsampling,
            "padding": self.padding,
            "batch_norm": self.batch_norm,
        }


# --- The activations that a config can name.


@keras.saving.register_keras_serializable(package="effdet_keras")
def srelu(x):
    """Smooth ReLU: `x - log(1 + b * x) / b` above zero, else 0.

    In the reference `b` is the fourth power of a variable that starts at 20; here
    `b` is a constant with that starting value.
    """
    sharpness = 160_000.0
    positive = ops.relu(x)
    return positive - ops.log1p(sharpness * positive) / sharpness


_BY_NAME = {
    "swish": keras.activations.silu,
    "silu": keras.activations.silu,
    "swish_native": keras.activations.silu,
    "hswish": keras.activations.hard_silu,
    "hard_swish": keras.activations.hard_silu,
    "relu": keras.activations.relu,
    "relu6": keras.activations.relu6,
    "mish": keras.activations.mish,
    "srelu": srelu,
}


def get_activation(name: str) -> Callable[[Any], Any]:
    """Returns the activation function that a config's `activation` names.

    Raises:
        ValueError: If there is no activation of that name.

    Example:
        >>> float(get_activation("relu6")(ops.array(9.0)))
        6.0
    """
    if name not in _BY_NAME:
        raise InvalidValueError(
            f"`activation` must be one of {', '.join(_BY_NAME)}. "
            f"Received: activation={name!r}"
        )
    return _BY_NAME[name]


# --- Turns pixels 0-255 into the numbers that a network was trained on.


@keras.saving.register_keras_serializable(package="effdet_keras")
class Normalize(keras.layers.Layer):
    """Subtracts a mean from each color and divides by a standard deviation.

    It computes in float32 under every policy, since float16 cannot tell pixels
    above 128 from their neighbours after the division.

    Args:
        mean, stddev: three floats, of pixels 0-255.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: tensor `[B, H, W, 3]`, 0-255.

    Returns:
        Tensor `[B, H, W, 3]` in the policy's compute dtype.

    Example:
        >>> normal = Normalize((100.0, 100.0, 100.0), (50.0, 50.0, 50.0))
        >>> float(normal(ops.full((1, 1, 1, 3), 200.0))[0, 0, 0, 0])
        2.0
    """

    def __init__(self, mean: Any, stddev: Any, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
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

    def get_config(self):
        config = super().get_config()
        config.pop("autocast", None)
        return {**config, "mean": self.mean, "stddev": self.stddev}


# --- Stochastic depth: some samples leave a residual branch out.


@keras.saving.register_keras_serializable(package="effdet_keras")
class DropPath(keras.layers.Layer):
    """Drops whole samples of a branch in training and scales the others up.

    Stochastic depth (https://arxiv.org/abs/1603.09382): each sample survives
    with probability `p`, independently of the others, and is then divided by `p`, so
    that the mean stays the same.

    Args:
        survival_prob: float in (0, 1], the `p` above.
        seed: int or `keras.random.SeedGenerator`, for repeatable draws.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: tensor `[B, ...]`.
        training: bool, whether to drop anything.

    Returns:
        Tensor like `inputs`.

    Raises:
        ValueError: If `survival_prob` is not above 0 and at most 1.

    Example:
        >>> drop = DropPath(0.5, seed=0)
        >>> out = drop(ops.ones((100, 1)), training=True)
        >>> np.unique(ops.convert_to_numpy(out)).tolist()
        [0.0, 2.0]
    """

    def __init__(
        self, survival_prob: float = 0.8, seed: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if not 0 < survival_prob <= 1:
            raise InvalidValueError(
                "`survival_prob` must be above 0 and at most 1. "
                f"Received: survival_prob={survival_prob}"
            )
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

    def get_config(self):
        return {
            **super().get_config(),
            "survival_prob": self.survival_prob,
            "seed": self.seed,
        }


# --- Recomputing blocks in the backward pass, in the place of keeping their insides.

_is_on = contextvars.ContextVar("recomputing", default=False)


@contextlib.contextmanager
def recomputing(is_on: bool = True) -> Iterator[None]:
    """Within this context the blocks of a network keep nothing but their outputs.

    The backward pass computes the rest a second time (https://arxiv.org/abs/1604.06174):
    less memory, for about a third more time. Results and gradients are the same.

    Args:
        is_on: bool, False for no change.
    """
    token = _is_on.set(is_on)
    try:
        yield
    finally:
        _is_on.reset(token)


def call_block(block: keras.layers.Layer, inputs: Any, training: bool) -> Any:
    """Calls a block of a network, as the context says: see `recomputing`.

    Args:
        block: a layer that is built.
        inputs: tensor, or list of tensors.
        training: bool; without it nothing is recomputed.

    Returns:
        What the block returns.
    """
    if not (_is_on.get() and training):
        return block(inputs, training=training)
    more_trainable, more_others = other_variables_within(block)
    trainable = [*block.trainable_variables, *more_trainable]
    others = [*block.non_trainable_variables, *more_others]
    is_list = isinstance(inputs, (list, tuple))
    tensors = list(inputs) if is_list else [inputs]
    # Statistics and random states go in and come out as values. So the second time
    # draws the same random numbers, and statistics move once.
    states = [v.value for v in others]

    def run(*values):
        inputs = list(values[: len(tensors)]) if is_list else values[0]
        weights = values[len(tensors) :]
        mapping = zip([*trainable, *others], [*weights, *states], strict=True)
        with keras.StatelessScope(list(mapping)) as scope:
            outputs = block.call(inputs, training=True)
        return outputs, [scope.get_current_value(v) for v in others]

    outputs, moved = keras.remat(run)(*tensors, *[v.value for v in trainable])
    for variable, value in zip(others, moved):
        variable.assign(value)
    return outputs
