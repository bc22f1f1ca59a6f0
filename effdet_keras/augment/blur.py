"""Gaussian blur of random width."""

from __future__ import annotations

import math
from typing import Any

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.augment import draws
from effdet_keras.augment.augmentation import (
    Augmentation,
    Example,
    check_range,
    register,
)


@register
class Blur(Augmentation):
    """Blurs the image with a Gaussian of random width, like a lens out of focus.

    Boxes stay as they are.

    Args:
        sigma: pair of floats above 0, the smallest and the largest standard
            deviation of the Gaussian, in pixels.

    Raises:
        ValueError: If the numbers are out of range.

    Example:
        >>> import numpy as np
        >>> import effdet_keras as ek
        >>> image = np.zeros((9, 9, 3), "uint8")
        >>> image[4, 4] = 255
        >>> example = {
        ...     "image": image, "boxes": np.zeros((0, 4)), "labels": np.zeros(0)}
        >>> blurred = ek.augment.Blur((1.0, 1.0))(example, seed=[0, 1])["image"]
        >>> blurred.numpy()[4, 2:7, 0].tolist()
        [6, 25, 41, 25, 6]
    """

    keeps_masks = True

    def __init__(self, sigma: tuple[float, float] = (0.3, 2.0)) -> None:
        self.sigma = check_range("sigma", sigma, 1e-3, math.inf)

    def augment(self, example: Example, seed: Any) -> Example:
        pixels = tf.cast(example["image"], tf.float32)[None]
        sigma = draws.between(draws.uniform(seed), *self.sigma)
        radius = math.ceil(3.0 * self.sigma[1])
        steps = tf.range(-radius, radius + 1, dtype=tf.float32)
        weights = tf.nn.softmax(-tf.square(steps / sigma) / 2.0)
        # Down, then across: a Gaussian is a product of the two.
        for shape in ([-1, 1, 1, 1], [1, -1, 1, 1]):
            pixels = _weighted_mean(pixels, tf.reshape(weights, shape))
        return {**example, "image": pixels[0]}

    def get_config(self):
        return {"sigma": self.sigma}


def _weighted_mean(pixels, weights):
    """The mean of neighbors `[1, H, W, 3]`, of those inside the image."""
    one, channels = [1, 1, 1, 1], [1, 1, 3, 1]
    total = tf.nn.depthwise_conv2d(pixels, tf.tile(weights, channels), one, "SAME")
    # Along the other axis all sums are alike: a line of ones is enough.
    is_down = weights.shape[1] == 1
    line = pixels[:, :, :1, :1] if is_down else pixels[:, :1, :, :1]
    inside = tf.nn.depthwise_conv2d(tf.ones_like(line), weights, one, "SAME")
    return total / inside
