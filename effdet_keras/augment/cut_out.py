"""Rectangles of one color over the image."""

from __future__ import annotations

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
from effdet_keras.augment.holes import fill_rectangle
from effdet_keras.errors import InvalidValueError


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
