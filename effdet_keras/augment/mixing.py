"""Augmentations that make one image out of several: mosaic and mix-up."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras._internal.philox import Stream
from effdet_keras._internal.resizing import resize_image, resize_mask
from effdet_keras.augment import random_ops
from effdet_keras.augment.augmentation import Augmentation, Example, parameter, size_of
from effdet_keras.augment.warps import crop
from effdet_keras.box_ops import area


@dataclasses.dataclass(eq=False)
class Mosaic(Augmentation):
    """Combines four images into one, as the quarters around a random point.

    The result shows more and smaller objects, in unusual surroundings (YOLOv4,
    https://arxiv.org/abs/2004.10934, section 3.3). It has the size of the first image.
    Each image is scaled, with its aspect ratio, until it covers its quarter, and a
    random window of it is cropped to fit.

    The dataset reads the three other images, so `Mosaic` must be first in a list.

    Args:
        center: pair of floats in [0, 1], the range of the common corner of the
            quarters, relative to the height and the width.
        zoom: pair of floats in [1, 100], the smallest and the largest factor on the
            scale at which an image just covers its quarter.
        min_visibility: float in [0, 1]. A box is dropped if less than this share of its
            area stays in the window.

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
    fits_any_resolution = True

    _: dataclasses.KW_ONLY
    center: tuple[float, float] = parameter((0.3, 0.7), "[0, 1]")
    zoom: tuple[float, float] = parameter((1.0, 1.5), "[1, 100]")
    min_visibility: float = parameter(0.2, "[0, 1]")

    def augment(self, example: list[Example], seed: Any) -> Example:
        # At least two pixels per side, one for each quarter.
        height, width = tf.unstack(tf.maximum(size_of(example[0]["image"]), 2.0))
        units = random_ops.uniform(seed, [5, 3])
        share = random_ops.between(units[0], *self.center)
        y = tf.clip_by_value(tf.round(share[0] * height), 1.0, height - 1.0)
        x = tf.clip_by_value(tf.round(share[1] * width), 1.0, width - 1.0)
        corners = [(0.0, 0.0), (0.0, x), (y, 0.0), (y, x)]
        sizes = [(y, x), (y, width - x), (height - y, x), (height - y, width - x)]
        quarters = [
            self._quarter(one, tf.stack(size), tf.stack(place), units[i + 1])
            for i, (one, size, place) in enumerate(zip(example, sizes, corners))
        ]
        mosaic = {}
        for key in quarters[0]:
            arrays = [quarter[key] for quarter in quarters]
            if key in ("image", "mask"):
                arrays = [tf.concat(arrays[:2], axis=1), tf.concat(arrays[2:], axis=1)]
            mosaic[key] = tf.concat(arrays, axis=0)
        return mosaic

    def _quarter(self, example, size, place, units):
        """Returns a window of an example, scaled and moved to its quarter."""
        whole = tf.stack(size_of(example["image"]))
        scale = tf.reduce_max(size / whole) * random_ops.between(units[0], *self.zoom)
        sides = tf.clip_by_value(tf.round(size / scale), 1.0, whole)
        low = tf.floor(units[1:] * (whole - sides + 1.0))
        cut = crop(example, tf.concat([low, low + sides], axis=0), self.min_visibility)
        pixels = tf.cast(size, tf.int32)
        quarter = {
            "image": tf.image.resize(cut["image"], pixels),
            # Dropped boxes have no area, and still have none after they are moved.
            "boxes": cut["boxes"] * tf.tile(size / sides, [2]) + tf.tile(place, [2]),
            "labels": example["labels"],
        }
        if "mask" in cut:
            mask = tf.convert_to_tensor(cut["mask"])[..., None]
            quarter["mask"] = tf.image.resize(mask, pixels, method="nearest")[..., 0]
        return quarter

    # The same computation in NumPy, for batches without TensorFlow.

    def augment_arrays(self, example: list[Example], seed: Any) -> Example:
        shape = np.float32(example[0]["image"].shape[:2])
        height, width = np.maximum(shape, np.float32(2))
        units = Stream(seed).uniform((5, 3))
        share = random_ops.between(units[0], *np.float32(self.center))
        one = np.float32(1)
        y = np.clip(np.round(share[0] * height), one, height - one)
        x = np.clip(np.round(share[1] * width), one, width - one)
        corners = np.float32([(0, 0), (0, x), (y, 0), (y, x)])
        ends = np.float32([(y, x), (y, width), (height, x), (height, width)])
        quarters = [
            self._quarter_arrays(*each, units[i + 1])
            for i, each in enumerate(zip(example, ends - corners, corners))
        ]
        mosaic = {}
        for key in quarters[0]:
            arrays = [quarter[key] for quarter in quarters]
            if key in ("image", "mask"):
                arrays = [np.concatenate(two, 1) for two in (arrays[:2], arrays[2:])]
            mosaic[key] = np.concatenate(arrays)
        return mosaic

    def _quarter_arrays(self, example, size, place, units):
        """Does the same as `_quarter` in NumPy."""
        one = np.float32(1)
        whole = np.float32(example["image"].shape[:2])
        zoom = random_ops.between(units[0], *np.float32(self.zoom))
        scale = np.max(size / whole) * zoom
        sides = np.clip(np.round(size / scale), one, whole)
        low = np.floor(units[1:] * (whole - sides + one))
        (y0, x0), (y1, x1) = low.astype(int), (low + sides).astype(int)
        points = example["boxes"].reshape(-1, 2, 2)
        boxes = (np.clip(points, low, low + sides) - low).reshape(-1, 4)
        visible = area(boxes) >= np.float32(self.min_visibility) * area(
            example["boxes"]
        )
        boxes = np.where(visible[:, None], boxes, np.float32(0))
        pixels = size.astype(int).tolist()
        quarter = {
            "image": resize_image(example["image"][y0:y1, x0:x1], pixels),
            "boxes": boxes * np.tile(size / sides, 2) + np.tile(place, 2),
            "labels": example["labels"],
        }
        if "mask" in example:
            quarter["mask"] = resize_mask(example["mask"][y0:y1, x0:x1], pixels)
        return quarter


@dataclasses.dataclass(eq=False)
class MixUp(Augmentation):
    """Blends two images, and keeps the boxes of both.

    After Zhang et al., "Bag of Freebies for Training Object Detection Neural
    Networks" (https://arxiv.org/abs/1902.04103). The second image is scaled, with its
    aspect ratio, until it fits into the first, and placed there at random. In this
    region, each pixel is the weighted mean of both images.

    The dataset reads the second image, so `MixUp` must be first in a list.

    Args:
        min_weight: float in (0, 0.5]. The weight of the first image is drawn from
            `min_weight` to `1 - min_weight`, so that both images are visible.

    Raises:
        ValueError: If `min_weight` is out of range.

    Example:
        >>> import numpy as np
        >>> import effdet_keras as ek
        >>> examples = [
        ...     {"image": np.full((80, 80, 3), i, "uint8"), "labels": np.int32([i]),
        ...      "boxes": np.float32([[0, 0, 40, 80]])} for i in (100, 200)]
        >>> mixed = ek.augment.MixUp(min_weight=0.5)(examples, seed=[0, 1])
        >>> int(mixed["image"][0, 0, 0]), mixed["labels"].numpy().tolist()
        (150, [100, 200])
    """

    num_images = 2
    fits_any_resolution = True

    min_weight: float = parameter(0.35, "(0, 0.5]")

    def augment(self, example: list[Example], seed: Any) -> Example:
        first, second = example
        weight, *corners = tf.unstack(random_ops.uniform(seed, [3]))
        weight = random_ops.between(weight, self.min_weight, 1.0 - self.min_weight)
        limit = tf.stack(size_of(first["image"]))
        size = tf.stack(size_of(second["image"]))
        scaled = size * tf.reduce_min(limit / size)
        scaled = tf.clip_by_value(tf.round(scaled), 1.0, limit)
        low = tf.floor(tf.stack(corners) * (limit - scaled + 1.0))
        image = tf.cast(first["image"], tf.float32)
        upper, middle, lower = _parts(image, low[0], scaled[0], axis=0)
        left, inside, right = _parts(middle, low[1], scaled[1], axis=1)
        other = tf.image.resize(second["image"], tf.cast(scaled, tf.int32))
        inside = weight * inside + (1.0 - weight) * other
        middle = tf.concat([left, inside, right], axis=1)
        boxes = second["boxes"] * tf.tile(scaled / size, [2]) + tf.tile(low, [2])
        return {
            "image": tf.concat([upper, middle, lower], axis=0),
            "boxes": tf.concat([first["boxes"], boxes], axis=0),
            "labels": tf.concat([first["labels"], second["labels"]], axis=0),
        }


def _parts(image, start, length, axis):
    """Splits an image along an axis into the parts before, inside and after a range."""
    start, length = tf.cast(start, tf.int32), tf.cast(length, tf.int32)
    rest = tf.shape(image)[axis] - start - length
    return tf.split(image, tf.stack([start, length, rest]), axis=axis, num=3)
