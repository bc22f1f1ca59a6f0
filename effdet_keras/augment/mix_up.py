"""Two images on top of each other."""

from __future__ import annotations

from typing import Any

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.augment import draws
from effdet_keras.augment.augmentation import Augmentation, Example, register, size_of
from effdet_keras.errors import InvalidValueError


@register
class MixUp(Augmentation):
    """Blends two images, and keeps the boxes of both.

    After Zhang et al., "Bag of Freebies for Training Object Detection Neural
    Networks" (https://arxiv.org/abs/1902.04103). The second image is scaled, its
    shape kept, until it fits into the first, and lies at a random place of it. There
    each pixel is a weighted mean of both images.

    The dataset reads the second image, so `MixUp` must stand first in a list.

    Args:
        min_weight: float above 0 and up to 0.5: the weight of the first image is
            drawn from `min_weight` to `1 - min_weight`, so that both are seen.

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

    def __init__(self, min_weight: float = 0.35) -> None:
        if not 0.0 < min_weight <= 0.5:
            raise InvalidValueError(
                "`min_weight` must be above 0 and up to 0.5. "
                f"Received: min_weight={min_weight!r}"
            )
        self.min_weight = float(min_weight)

    def augment(self, example: list[Example], seed: Any) -> Example:
        first, second = example
        weight, *places = tf.unstack(draws.uniform(seed, [3]))
        weight = draws.between(weight, self.min_weight, 1.0 - self.min_weight)
        limit = tf.stack(size_of(first["image"]))
        size = tf.stack(size_of(second["image"]))
        scaled = size * tf.reduce_min(limit / size)
        scaled = tf.clip_by_value(tf.round(scaled), 1.0, limit)
        low = tf.floor(tf.stack(places) * (limit - scaled + 1.0))
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

    def get_config(self):
        return {"min_weight": self.min_weight}


def _parts(image, start, length, axis):
    """An image cut in three: what is before, inside and after a range."""
    start, length = tf.cast(start, tf.int32), tf.cast(length, tf.int32)
    rest = tf.shape(image)[axis] - start - length
    return tf.split(image, tf.stack([start, length, rest]), axis=axis, num=3)
