"""Weighted fusion of feature maps: the paper's section 3.3."""

from __future__ import annotations

import functools
from typing import Any

import keras
from keras import ops

from effdet_keras.config import FUSION_METHODS
from effdet_keras.errors import InvalidValueError
from effdet_keras.layers.fake_quantization import quantized


@keras.saving.register_keras_serializable(package="effdet_keras")
class WeightedFusion(keras.layers.Layer):
    """Fuses feature maps of one shape into one, with learned weights.

    With a weight `w_i` for each input (https://arxiv.org/abs/1911.09070,
    section 3.3; "channel" methods have one for each input and channel):

        fastattn   sum_i(relu(w_i) * input_i) / (sum_i(relu(w_i)) + epsilon)
        attn       sum_i(softmax(w)_i * input_i)
        sum        sum_i(input_i), no weights

    The weights start at one, so a new layer is close to a plain average.

    Args:
        method: one of `effdet_keras.config.FUSION_METHODS`.
        epsilon: float above zero, added to the sum of weights.
        **kwargs: arguments of `keras.layers.Layer`, such as `name`, `dtype`.

    Call arguments:
        inputs: list of two or more tensors `[B, H, W, C]` of the same shape.

    Returns:
        Tensor `[B, H, W, C]`.

    Raises:
        ValueError: If `method` is unknown, there are fewer than two inputs, or
            their shapes differ.

    Example:
        >>> fuse = WeightedFusion()
        >>> fused = fuse([ops.ones((1, 2, 2, 8)), ops.zeros((1, 2, 2, 8))])
        >>> tuple(fused.shape), round(float(fused[0, 0, 0, 0]), 3)
        ((1, 2, 2, 8), 0.5)
    """

    def __init__(
        self, method: str = "fastattn", epsilon: float = 1e-4, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if method not in FUSION_METHODS:
            raise InvalidValueError(
                f"`method` must be one of {', '.join(FUSION_METHODS)}. "
                f"Received: method={method!r}"
            )
        self.method = method
        self.epsilon = epsilon

    def build(self, input_shape):
        if len(input_shape) < 2 or len({tuple(s) for s in input_shape}) != 1:
            raise InvalidValueError(
                "`WeightedFusion` expects two or more inputs of one shape. "
                f"Received: input_shape={input_shape}"
            )
        if self.method != "sum":
            channels = (input_shape[0][-1],) if "channel" in self.method else ()
            # One variable an input, since gradients are clipped one by one.
            self.fusion_weights = [
                self.add_weight(
                    shape=channels,
                    initializer="ones",
                    name=f"WSM_{i}" if i else "WSM",  # as published
                )
                for i in range(len(input_shape))
            ]

    def call(self, inputs):
        if self.method == "sum":
            return self._sum(inputs)
        weights = ops.stack([weight.value for weight in self.fusion_weights])
        if self.method.endswith("fastattn"):
            weights = ops.relu(weights)
            # In float16 epsilon is lost beside a sum near one. It is there for
            # the case of all weights at zero, where it is not.
            weights = weights / (ops.sum(weights, axis=0) + self.epsilon)
        else:
            weights = ops.softmax(weights, axis=0)
        return self._sum(
            [quantized(self, "term", x * weights[i]) for i, x in enumerate(inputs)]
        )

    def _sum(self, terms):
        return functools.reduce(lambda x, y: quantized(self, "sum", x + y), terms)

    def compute_output_shape(self, input_shape):
        return tuple(input_shape[0])

    def get_config(self):
        return {
            **super().get_config(),
            "method": self.method,
            "epsilon": self.epsilon,
        }
