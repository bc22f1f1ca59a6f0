"""Four images as the quarters of one."""

from __future__ import annotations

from typing import Any

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.augment import draws
from effdet_keras.augment.augmentation import (
    Augmentation,
    Example,
    check_fraction,
    check_range,
    register,
    size_of,
)
from effdet_keras.augment.random_crop import crop


@register
class Mosaic(Augmentation):
    """Puts four images together, around a random point, as the quarters of one.

    An image then shows more objects, smaller ones, and in unusual surroundings
    (YOLOv4, https://arxiv.org/abs/2004.10934, section 3.3), which helps most where
    training starts from random weights. The result is as large as the first image.
    Each image is scaled, its shape kept, until it covers its quarter, and a random
    window of it is cut out to fit.

    The dataset reads the three others, so `Mosaic` must stand first in a list.

    Args:
        center: pair of floats from 0 to 1, between which the common corner of the
            quarters lies, as a share of the sides.
        zoom: pair of floats from 1, the smallest and the largest factor on the scale
            at which an image just covers its quarter.
        min_visibility: float from 0 to 1; a box is dropped if less of it than this
            stays in the window.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> import numpy as np
        >>> import effdet_keras as ek
        >>> examples = [
        ...     {"image": np.full((80, 80, 3), i, "uint8"), "labels": np.int32([i]),
        ...      "boxes": np.float32([[0, 0, 80, 80]])} for i in range(4)]
        >>> mosaic = ek.augment.Mosaic(center=(0.5, 0.5))(examples, seed=[0, 1])
        >>> mosaic["boxes"].numpy().round().tolist()[:2]
        [[0.0, 0.0, 40.0, 40.0], [0.0, 40.0, 40.0, 80.0]]
        >>> mosaic["image"].numpy()[::79, ::79, 0].tolist()
        [[0, 1], [2, 3]]
    """

    num_images = 4
    keeps_masks = True

    def __init__(
        self,
        *,
        center: tuple[float, float] = (0.3, 0.7),
        zoom: tuple[float, float] = (1.0, 1.5),
        min_visibility: float = 0.2,
    ) -> None:
        self.center = check_range("center", center, 0.0, 1.0)
        self.zoom = check_range("zoom", zoom, 1.0, 100.0)
        self.min_visibility = check_fraction("min_visibility", min_visibility)

    def augment(self, example: list[Example], seed: Any) -> Example:
        # At least two pixels: one for each quarter.
        height, width = tf.unstack(tf.maximum(size_of(example[0]["image"]), 2.0))
        units = draws.uniform(seed, [5, 3])
        share = draws.between(units[0], *self.center)
        y = tf.clip_by_value(tf.round(share[0] * height), 1.0, height - 1.0)
        x = tf.clip_by_value(tf.round(share[1] * width), 1.0, width - 1.0)
        corners = [(0.0, 0.0), (0.0, x), (y, 0.0), (y, x)]
        sizes = [(y, x), (y, width - x), (height - y, x), (height - y, width - x)]
        quarters = [
            self._quarter(one, tf.stack(size), tf.stack(corner), units[i + 1])
            for i, (one, size, corner) in enumerate(zip(example, sizes, corners))
        ]
        masks = {"mask": _joined(quarters, "mask")} if "mask" in quarters[0] else {}
        return {
            **masks,
            "image": _joined(quarters, "image"),
            "boxes": tf.concat([quarter["boxes"] for quarter in quarters], axis=0),
            "labels": tf.concat([quarter["labels"] for quarter in quarters], axis=0),
        }

    def _quarter(self, example, size, corner, units):
        """A window of an example, scaled to the size of a quarter and put there."""
        whole = tf.stack(size_of(example["image"]))
        scale = tf.reduce_max(size / whole) * draws.between(units[0], *self.zoom)
        sides = tf.clip_by_value(tf.round(size / scale), 1.0, whole)
        low = tf.floor(units[1:] * (whole - sides + 1.0))
        window = tf.concat([low, low + sides], axis=0)
        cut = crop(example, window, self.min_visibility)
        size_in_pixels = tf.cast(size, tf.int32)
        masks = {}
        if "mask" in cut:
            mask = tf.convert_to_tensor(cut["mask"])[..., None]
            mask = tf.image.resize(mask, size_in_pixels, method="nearest")[..., 0]
            masks["mask"] = mask
        image = tf.image.resize(cut["image"], size_in_pixels)
        boxes = cut["boxes"] * tf.tile(size / sides, [2])
        # Boxes without area stay so at any place.
        boxes += tf.tile(corner, [2])
        return {**masks, "image": image, "boxes": boxes, "labels": example["labels"]}

    def get_config(self):
        return {
            "center": self.center,
            "zoom": self.zoom,
            "min_visibility": self.min_visibility,
        }


def _joined(quarters, key):
    """The arrays `[H, W, ...]` of four quarters as one, row by row."""
    arrays = [quarter[key] for quarter in quarters]
    rows = [tf.concat(arrays[:2], axis=1), tf.concat(arrays[2:], axis=1)]
    return tf.concat(rows, axis=0)
