"""A random window of the image that keeps objects."""

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


@register
class RandomCrop(Augmentation):
    """Cuts a random window out of the image, one that shows an object.

    After SSD (https://arxiv.org/abs/1512.02325, section 2.2): windows are drawn until
    one shows at least one object well. If none of them does, the image stays whole;
    an image without boxes takes the first window. What the window cuts off is gone,
    and boxes are clipped to it.

    Args:
        area: pair of floats from 0 to 1, the smallest and the largest share of the
            image's area that a window has.
        aspect_ratio: pair of floats above 0, the lowest and the highest ratio of the
            window's width to its height, times the ratio of the image.
        min_covered: float from 0 to 1; a window shows an object well if it has at
            least this share of its box.
        min_visibility: float from 0 to 1; a box is dropped if less of it than this
            stays in the window.
        tries: int, how many windows are drawn.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> import numpy as np
        >>> import effdet_keras as ek
        >>> example = {"image": np.zeros((100, 100, 3), "uint8"),
        ...     "boxes": np.float32([[40, 20, 60, 80]]), "labels": np.int32([5])}
        >>> cropped = ek.augment.RandomCrop(area=(0.3, 0.5))(example, seed=[0, 1])
        >>> height, width, _ = cropped["image"].shape
        >>> bool(0.29 < height * width / 10000 < 0.51), len(cropped["boxes"])
        (True, 1)
    """

    keeps_masks = True

    def __init__(
        self,
        *,
        area: tuple[float, float] = (0.3, 1.0),
        aspect_ratio: tuple[float, float] = (0.5, 2.0),
        min_covered: float = 0.7,
        min_visibility: float = 0.3,
        tries: int = 20,
    ) -> None:
        self.area = check_range("area", area, 1e-3, 1.0)
        self.aspect_ratio = check_range("aspect_ratio", aspect_ratio, 1e-3, math.inf)
        self.min_covered = check_fraction("min_covered", min_covered)
        self.min_visibility = check_fraction("min_visibility", min_visibility)
        if tries < 1:
            raise InvalidValueError(
                f"`tries` must be 1 or more. Received: tries={tries!r}"
            )
        self.tries = int(tries)

    def augment(self, example: Example, seed: Any) -> Example:
        image, boxes = example["image"], example["boxes"]
        height, width = size_of(image)
        windows = self._windows(seed, height, width)  # [tries, 4]
        low = tf.maximum(boxes[:, :2], windows[:, None, :2])
        high = tf.minimum(boxes[:, 2:], windows[:, None, 2:])
        inside = tf.reduce_prod(tf.maximum(high - low, 0.0), axis=2)  # [tries, n]
        is_well_shown = inside >= self.min_covered * hulls.areas(boxes)
        is_good = tf.reduce_any(is_well_shown, axis=1) | (tf.shape(boxes)[0] == 0)
        whole = tf.stack([0.0, 0.0, height, width])
        # The last one is the whole image, which is good always.
        windows = tf.concat([windows, whole[None]], axis=0)
        choice = tf.argmax(tf.concat([is_good, [True]], axis=0))
        return crop(example, windows[choice], self.min_visibility)

    def _windows(self, seed, height, width):
        """Windows of whole pixels, in the order in which they are tried."""
        units = tf.unstack(draws.uniform(seed, [4, self.tries]))
        area = draws.between(units[0], *self.area)
        low, high = (math.log(x) for x in self.aspect_ratio)
        ratio = tf.exp(draws.between(units[1], low, high))
        rows = tf.minimum(tf.sqrt(area / ratio), 1.0)
        columns = tf.minimum(area / rows, 1.0)
        rows = tf.maximum(tf.round(tf.minimum(area / columns, 1.0) * height), 1.0)
        columns = tf.maximum(tf.round(columns * width), 1.0)
        y = tf.floor(units[2] * (height - rows + 1.0))
        x = tf.floor(units[3] * (width - columns + 1.0))
        return tf.stack([y, x, y + rows, x + columns], axis=1)

    def get_config(self):
        return {
            "area": self.area,
            "aspect_ratio": self.aspect_ratio,
            "min_covered": self.min_covered,
            "min_visibility": self.min_visibility,
            "tries": self.tries,
        }


def crop(example, window, min_visibility):
    """Cuts a window out of an example.

    Args:
        example: dict of `"image"`, `"boxes"`, `"labels"`.
        window: float32 tensor `[4]`, `yxyx`, whole numbers inside the image.
        min_visibility: float, the least share of a box that must lie in the window.

    Returns:
        Dict of the same keys, with as many boxes: zeros for those out of sight.

    Example:
        >>> cropped = crop({"image": np.zeros((9, 9, 3)), "labels": np.int32([5]),
        ...     "boxes": np.float32([[2, 2, 6, 6]])}, np.float32([1, 3, 8, 8]), 0.5)
        >>> tuple(cropped["image"].shape), cropped["boxes"].numpy().tolist()
        ((7, 5, 3), [[1.0, 0.0, 5.0, 3.0]])
    """
    y0, x0, y1, x1 = tf.unstack(tf.cast(window, tf.int32))
    boxes = tf.convert_to_tensor(example["boxes"])
    low, high = window[:2], window[2:]
    corners = tf.clip_by_value(tf.reshape(boxes, [-1, 2, 2]), low, high) - low
    cut = tf.reshape(corners, [-1, 4])
    cut = hulls.without_hidden(cut, hulls.areas(boxes), min_visibility)
    cropped = {**example, "image": example["image"][y0:y1, x0:x1], "boxes": cut}
    if "mask" in example:
        cropped["mask"] = example["mask"][y0:y1, x0:x1]
    return cropped
