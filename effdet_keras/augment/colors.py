"""Colors, JPEG noise and blur: what changes pixels and moves no box."""

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
    to_dtype,
)
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


# --- The traces of strong JPEG compression.


@register
class JPEGNoise(Augmentation):
    """Compresses the image as JPEG with a random quality, and decodes it again.

    Boxes stay as they are.

    Args:
        quality: pair of ints from 1 to 100, the lowest and the highest quality.

    Raises:
        ValueError: If the numbers are out of range.

    Example:
        >>> import numpy as np
        >>> import effdet_keras as ek
        >>> example = {"image": np.full((16, 16, 3), 100, "uint8"),
        ...     "boxes": np.float32([[0, 0, 8, 8]]), "labels": np.int32([5])}
        >>> compressed = ek.augment.JPEGNoise((20, 60))(example, seed=[0, 1])
        >>> compressed["image"].dtype.name, tuple(compressed["image"].shape)
        ('uint8', (16, 16, 3))
    """

    keeps_masks = True

    def __init__(self, quality: tuple[int, int] = (20, 90)) -> None:
        low, high = check_range("quality", quality, 1, 100)
        self.quality = (int(low), int(high))

    def augment(self, example: Example, seed: Any) -> Example:
        low, high = self.quality
        quality = low + draws.integer(draws.uniform(seed), high - low + 1)
        return {**example, "image": compressed(example["image"], quality)}

    def get_config(self):
        return {"quality": self.quality}


def compressed(image, quality):
    """An image after JPEG of a quality, an int32 scalar from 0 to 100."""
    image = to_dtype(image, tf.uint8)
    encoded = tf.raw_ops.EncodeJpegVariableQuality(images=image, quality=quality)
    return tf.io.decode_jpeg(encoded, channels=3)


# --- Gaussian blur of random width.


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
