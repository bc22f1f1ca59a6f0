"""Random brightness, contrast, saturation and hue."""

from __future__ import annotations

import math
from typing import Any

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.augment import draws
from effdet_keras.augment.augmentation import Augmentation, Example, register
from effdet_keras.errors import InvalidValueError

# YIQ, the color space of NTSC: brightness, and two axes of color around it.
_TO_YIQ = (
    (0.299, 0.587, 0.114),
    (0.595716, -0.274453, -0.321263),
    (0.211456, -0.522591, 0.311135),
)


@register
class PhotometricDistortion(Augmentation):
    """Changes brightness, contrast, saturation and hue at random.

    After SSD (https://arxiv.org/abs/1512.02325, section 2.2), but all four at once,
    as one product of a matrix with each pixel. Hue and saturation turn and stretch
    the two axes of color of YIQ. Boxes stay as they are.

    Args:
        brightness: float, the most that is added to or taken from all pixels.
        contrast: float from 0 to 1; the distance of pixels from the mean is
            multiplied by a factor from `1 - contrast` to `1 + contrast`.
        saturation: float from 0 to 1, the same for the distance from gray.
        hue: float, the largest angle in degrees, to both sides.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> import numpy as np
        >>> import effdet_keras as ek
        >>> example = {"image": np.full((4, 4, 3), 100, "uint8"),
        ...     "boxes": np.zeros((0, 4)), "labels": np.zeros(0)}
        >>> brighter = ek.augment.PhotometricDistortion(brightness=32.0, contrast=0.0)
        >>> int(brighter(example, seed=[0, 1])["image"][0, 0, 0])
        103
    """

    keeps_masks = True

    def __init__(
        self,
        brightness: float = 32.0,
        contrast: float = 0.5,
        saturation: float = 0.5,
        hue: float = 18.0,
    ) -> None:
        for name, value, most in (
            ("brightness", brightness, 255.0),
            ("contrast", contrast, 1.0),
            ("saturation", saturation, 1.0),
            ("hue", hue, 180.0),
        ):
            if not 0.0 <= value <= most:
                raise InvalidValueError(
                    f"`{name}` must be from 0 to {most:g}. Received: {name}={value!r}"
                )
        self.brightness = float(brightness)
        self.contrast = float(contrast)
        self.saturation = float(saturation)
        self.hue = float(hue)

    def augment(self, example: Example, seed: Any) -> Example:
        pixels = tf.cast(example["image"], tf.float32)
        shape = tf.shape(pixels)
        most = [self.brightness, self.contrast, self.saturation, self.hue]
        drawn = draws.between(draws.uniform(seed, [4]), -1.0, 1.0) * tf.constant(most)
        brightness, contrast, saturation, hue = tf.unstack(drawn)
        pixels = tf.reshape(pixels, [-1, 3])
        mean = tf.reduce_mean(pixels)
        matrix = (1.0 + contrast) * _color_matrix(1.0 + saturation, hue)
        # Grays stay gray, so the mean is moved by contrast and brightness alone.
        pixels = tf.matmul(pixels, matrix, transpose_b=True)
        pixels = tf.clip_by_value(pixels - contrast * mean + brightness, 0.0, 255.0)
        return {**example, "image": tf.reshape(pixels, shape)}

    def get_config(self):
        return {
            "brightness": self.brightness,
            "contrast": self.contrast,
            "saturation": self.saturation,
            "hue": self.hue,
        }


def _color_matrix(saturation, hue):
    """The matrix `[3, 3]` on RGB that turns and stretches the axes of color."""
    radians = hue * (math.pi / 180.0)
    cos, sin = saturation * tf.cos(radians), saturation * tf.sin(radians)
    change = [[1.0, 0.0, 0.0], [0.0, cos, -sin], [0.0, sin, cos]]
    to_yiq = tf.constant(_TO_YIQ)
    return tf.linalg.inv(to_yiq) @ tf.stack(change) @ to_yiq
