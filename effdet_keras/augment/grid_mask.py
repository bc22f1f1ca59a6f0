"""A grid of squares over the image."""

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
    size_of,
)
from effdet_keras.errors import InvalidValueError


@register
class GridMask(Augmentation):
    """Hides the squares of a regular grid (https://arxiv.org/abs/2001.04086).

    The grid has a random period and a random place, and is turned by a random angle.
    Boxes stay as they are: the squares lie apart, so each object of some size is
    seen in part.

    Args:
        ratio: float between 0 and 1; a hidden square has sides of `1 - ratio` of
            the period.
        period: pair of floats above 0, the smallest and the largest period, as a
            share of the image's short side.
        degrees: float, the largest angle of the grid, to both sides.
        fill: float from 0 to 255, the color of the squares.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> import numpy as np
        >>> import effdet_keras as ek
        >>> example = {"image": np.full((200, 200, 3), 255, "uint8"),
        ...     "boxes": np.float32([[40, 20, 60, 80]]), "labels": np.int32([5])}
        >>> masked = ek.augment.GridMask(ratio=0.5)(example, seed=[0, 1])
        >>> hidden = (masked["image"].numpy()[..., 0] == 128).mean()
        >>> bool(0.1 < hidden < 0.4)  # about 0.5 * 0.5
        True
    """

    keeps_masks = True

    def __init__(
        self,
        ratio: float = 0.6,
        *,
        period: tuple[float, float] = (0.2, 0.6),
        degrees: float = 10.0,
        fill: float = 128.0,
    ) -> None:
        if not 0.0 < ratio < 1.0:
            raise InvalidValueError(
                f"`ratio` must be between 0 and 1. Received: ratio={ratio!r}"
            )
        self.ratio = float(ratio)
        self.period = check_range("period", period, 1e-3, math.inf)
        self.degrees = float(degrees)
        self.fill = float(fill)

    def augment(self, example: Example, seed: Any) -> Example:
        image = example["image"]
        height, width = size_of(image)
        units = tf.unstack(draws.uniform(seed, [4]))
        period = draws.between(units[0], *self.period) * tf.minimum(height, width)
        period = tf.maximum(period, 2.0)
        degrees = draws.between(units[1], -self.degrees, self.degrees)
        radians = degrees * (math.pi / 180.0)
        y = (tf.range(height) + 0.5)[:, None] / period
        x = (tf.range(width) + 0.5)[None] / period
        cos, sin = tf.cos(radians), tf.sin(radians)
        across = self._is_hidden(x * cos + y * sin + units[2])
        down = self._is_hidden(y * cos - x * sin + units[3])
        hidden = tf.logical_and(across, down)[..., None]
        fill = tf.cast(self.fill, image.dtype)
        return {**example, "image": tf.where(hidden, fill, image)}

    def _is_hidden(self, periods):
        return periods - tf.floor(periods) >= self.ratio

    def get_config(self):
        return {
            "ratio": self.ratio,
            "period": self.period,
            "degrees": self.degrees,
            "fill": self.fill,
        }
