"""The traces of strong JPEG compression."""

from __future__ import annotations

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
