"""Rotation by a random angle."""

from __future__ import annotations

from typing import Any

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
class Rotate(Augmentation):
    """Turns the image around its center by a random angle.

    A new box is the smallest one around what the image still shows of the turned box.
    It is wider than what was annotated unless that fills its box to the corners, and
    the more so the larger the angle: use large angles only where a box of some slack
    does no harm.

    Args:
        degrees: float, the largest angle, to both sides.
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
        >>> rotated = ek.augment.Rotate(30.0)(example, seed=[0, 2])
        >>> rotated["boxes"].numpy().round().tolist()
        [[32.0, 18.0, 68.0, 82.0]]
    """

    keeps_masks = True

    def __init__(
        self, degrees: float = 15.0, *, fill: float = 128.0, min_visibility: float = 0.1
    ) -> None:
        if not 0.0 <= degrees <= 180.0:
            raise InvalidValueError(
                f"`degrees` must be from 0 to 180. Received: degrees={degrees!r}"
            )
        self.degrees = float(degrees)
        self.fill = float(fill)
        self.min_visibility = check_fraction("min_visibility", min_visibility)

    def augment(self, example: Example, seed: Any) -> Example:
        degrees = draws.between(draws.uniform(seed), -self.degrees, self.degrees)
        matrix = warp.rotation(degrees, *size_of(example["image"]))
        return warp.warp(
            example, matrix, fill=self.fill, min_visibility=self.min_visibility
        )

    def get_config(self):
        return {
            "degrees": self.degrees,
            "fill": self.fill,
            "min_visibility": self.min_visibility,
        }
