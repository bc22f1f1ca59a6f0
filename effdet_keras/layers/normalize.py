"""Turns pixels 0-255 into the numbers that a network was trained on."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from effdet_keras.layers.fake_quantization import quantized


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
