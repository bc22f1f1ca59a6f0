"""Slanting by a random amount."""

from __future__ import annotations

from typing import Any

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.augment import draws, warp
from effdet_keras.augment.augmentation import (
    Augmentation,
    Example,
    check_fraction,
    register,
    size_of,
)
from effdet_keras.errors import InvalidValueError


@register
class Shear(Augmentation):
    """Slants the image by random amounts: an upright rectangle becomes a rhomboid.

    At 0.1 along x, each row lies a tenth of a pixel further than the row above it.
    The center of the image stays in its place. A new box is the smallest one around
    what the image still shows of the slanted box.

    Args:
        along_x: float from 0, but below 1, the largest amount, to both sides.
        along_y: float from 0, but below 1, the same for columns.
        fill: float from 0 to 255, the color of the corners that come in.
        min_visibility: float from 0 to 1; a box is dropped if less of it than this
            stays in the image.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> import numpy as np
        >>> import effdet_keras as ek
        >>> example = {"image": np.zeros((100, 100, 3), "uint8"),
        ...     "boxes": np.float32([[40, 20, 60, 80]]), "labels": np.int32([5])}
        >>> slanted = ek.augment.Shear(0.3, 0.0)(example, seed=[0, 2])
        >>> slanted["boxes"].numpy().round().tolist()
        [[40.0, 18.0, 60.0, 82.0]]
    """

    keeps_masks = True

    def __init__(
        self,
        along_x: float = 0.15,
        along_y: float = 0.15,
        *,
        fill: float = 128.0,
        min_visibility: float = 0.1,
    ) -> None:
        for name, value in (("along_x", along_x), ("along_y", along_y)):
            if not 0.0 <= value < 1.0:
                raise InvalidValueError(
                    f"`{name}` must be from 0, but below 1. Received: {name}={value!r}"
                )
        self.along_x = float(along_x)
        self.along_y = float(along_y)
        self.fill = float(fill)
        self.min_visibility = check_fraction("min_visibility", min_visibility)

    def augment(self, example: Example, seed: Any) -> Example:
        unit_x, unit_y = tf.unstack(draws.uniform(seed, [2]))
        along_x = draws.between(unit_x, -self.along_x, self.along_x)
        along_y = draws.between(unit_y, -self.along_y, self.along_y)
        matrix = warp.shear(along_x, along_y)
        matrix = warp.around_center(matrix, *size_of(example["image"]))
        return warp.warp(
            example, matrix, fill=self.fill, min_visibility=self.min_visibility
        )

    def get_config(self):
        return {
            "along_x": self.along_x,
            "along_y": self.along_y,
            "fill": self.fill,
            "min_visibility": self.min_visibility,
        }
