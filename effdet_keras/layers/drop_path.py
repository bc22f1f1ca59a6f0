"""Stochastic depth: some samples leave a residual branch out."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from effdet_keras.errors import InvalidValueError


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
