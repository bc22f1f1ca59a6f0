"""Rectangles of one color that hide parts of an image: cut-out and grid mask."""

from __future__ import annotations

import math
from typing import Any

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.augment import draws, hulls
from effdet_keras.augment.augmentation import (
    Augmentation,
    Example,
    check_fraction,
    check_range,
    register,
    size_of,
)
from effdet_keras.errors import InvalidValueError


def fill_rectangle(image, rectangle, fill):
    """Paints one rectangle.

    Args:
        image: tensor `[H, W, 3]`.
        rectangle: four int32 scalars, `yxyx`: the first row and column that is
            painted, and the first that is not any more. It may reach over the border.

    Example:
        >>> painted = fill_rectangle(np.zeros((1, 4, 3), "uint8"), (0, 1, 9, 3), 128)
        >>> painted.numpy()[0, :, 0].tolist()
        [0, 128, 128, 0]
    """
    image = tf.convert_to_tensor(image)
    inside = rectangle_mask(tf.shape(image), rectangle)[..., None]
    return tf.where(inside, tf.cast(fill, image.dtype), image)


def rectangle_mask(shape, rectangle):
    """Which pixels lie in a rectangle, bool `[H, W]`."""
    y0, x0, y1, x1 = rectangle
    rows, columns = tf.range(shape[0]), tf.range(shape[1])
    in_rows = (rows >= y0) & (rows < y1)
    in_columns = (columns >= x0) & (columns < x1)
    return in_rows[:, None] & in_columns[None]


# --- Rectangles of one color over the image.


@register
class CutOut(Augmentation):
    """Hides some random rectangles of the image.

    The network learns to see by more than one feature (DeVries and Taylor,
    https://arxiv.org/abs/1708.04552). Boxes stay as they are, except those that the
    rectangles hide nearly whole, which are dropped.

    Args:
        count: int, the number of rectangles.
        size: pair of floats from 0 to 1, the smallest and the largest side of a
            rectangle, as a share of the image's side.
        fill: float from 0 to 255, their color.
        min_visibility: float from 0 to 1; a box is dropped if the rectangles leave
            less than this share of its area.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> import numpy as np
        >>> import effdet_keras as ek
        >>> example = {"image": np.zeros((100, 100, 3), "uint8"),
        ...     "boxes": np.float32([[40, 20, 60, 80]]), "labels": np.int32([5])}
        >>> hidden = ek.augment.CutOut(2, size=(0.2, 0.2))(example, seed=[0, 1])
        >>> bool(400 <= (hidden["image"].numpy()[..., 0] == 128).sum() <= 800)
        True
    """

    keeps_masks = True

    def __init__(
        self,
        count: int = 3,
        *,
        size: tuple[float, float] = (0.05, 0.2),
        fill: float = 128.0,
        min_visibility: float = 0.1,
    ) -> None:
        if count < 1:
            raise InvalidValueError(
                f"`count` must be 1 or more. Received: count={count!r}"
            )
        self.count = int(count)
        self.size = check_range("size", size, 0.0, 1.0)
        self.fill = float(fill)
        self.min_visibility = check_fraction("min_visibility", min_visibility)

    def augment(self, example: Example, seed: Any) -> Example:
        image, boxes = example["image"], example["boxes"]
        units = draws.uniform(seed, [2, self.count, 2])
        limit = tf.stack(size_of(image))
        sides = tf.round(draws.between(units[0], *self.size) * limit)
        low = tf.floor((limit - sides) * units[1] + 0.5)  # [count, 2]
        holes = tf.concat([low, low + sides], axis=1)
        for hole in tf.unstack(tf.cast(holes, tf.int32)):
            image = fill_rectangle(image, tf.unstack(hole), self.fill)
        return {**example, "image": image, "boxes": self._seen(boxes, holes)}

    def _seen(self, boxes, holes):
        """The boxes, with zeros for those that are hidden."""
        start = tf.maximum(boxes[:, None, :2], holes[:, :2])
        end = tf.minimum(boxes[:, None, 2:], holes[:, 2:])
        hidden = tf.reduce_prod(tf.maximum(end - start, 0.0), axis=2)  # [n, count]
        # Where rectangles overlap, they hide less than this sum.
        left = hulls.areas(boxes) - tf.reduce_sum(hidden, axis=1)
        enough = left >= self.min_visibility * hulls.areas(boxes)
        return tf.where(enough[:, None], boxes, 0.0)

    def get_config(self):
        return {
            "count": self.count,
            "size": self.size,
            "fill": self.fill,
            "min_visibility": self.min_visibility,
        }


# --- A grid of squares over the image.


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
