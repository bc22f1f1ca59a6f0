"""Options that several layers share, as values that travel in their configs."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import keras

from effdet_keras.errors import InvalidTypeError
from effdet_keras.layers.batch_norm import CAN_SYNCHRONIZE, BatchNormalization


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
        activation: string, see `effdet_keras.config.ACTIVATIONS`.
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
