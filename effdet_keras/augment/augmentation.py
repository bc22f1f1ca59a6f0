"""What an augmentation is: an example in, an example of changed pixels out."""

from __future__ import annotations

import math
from typing import Any

import keras

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.errors import InvalidValueError

Example = dict[str, Any]


class Augmentation:
    """Changes the image of an example, and moves its boxes with the pixels.

    This is the base class of all augmentations. A subclass has a method
    `augment(example, seed)`, and everything around it is here: `__call__` gives it
    tensors, and afterwards rounds the pixels to the dtype that came in, clips the
    boxes to the image and drops boxes without area.

    An example is a dict of

    - `"image"`: uint8 or float32 `[H, W, 3]`, pixels from 0 to 255;
    - `"boxes"`: float32 `[n, 4]`, `yxyx` in pixels of this image;
    - `"labels"`: int32 `[n]`;
    - `"mask"`: uint8 `[H, W]`, the class of each pixel, 255 where it has none, for a
      model with a segmentation head only.

    `n` may be 0. Other keys stay as they are. All work is done by TensorFlow, so
    that an augmentation runs inside `tf.data`.

    Attributes:
        num_images: int, the number of examples that one call takes: 1, except for
            `Mosaic` and `MixUp`, which are called with a list of examples.
        keeps_masks: bool, whether the mask it returns fits the image it returns: it
            moves no pixel, or the mask's as well. Batches with masks take no other. A
            subclass says so.

    Example:
        >>> import keras
        >>> import numpy as np
        >>> import effdet_keras as ek
        >>> @keras.saving.register_keras_serializable(package="example")
        ... class UpsideDown(ek.augment.Augmentation):
        ...     def augment(self, example: Example, seed: Any) -> Example:
        ...         height = float(example["image"].shape[0])
        ...         y0, x0, y1, x1 = np.moveaxis(example["boxes"].numpy(), 1, 0)
        ...         boxes = np.stack([height - y1, x0, height - y0, x1], axis=1)
        ...         return {**example, "image": example["image"][::-1], "boxes": boxes}
        >>> example = {
        ...     "image": np.zeros((10, 20, 3), "uint8"),
        ...     "boxes": np.float32([[0, 0, 4, 8]]), "labels": np.int32([5])}
        >>> UpsideDown()(example, seed=[0, 1])["boxes"].numpy().tolist()
        [[6.0, 0.0, 10.0, 8.0]]
    """

    num_images = 1
    keeps_masks = False

    def __call__(self, example: Example | list[Example], seed: Any) -> Example:
        """Augments one example, or a list of `num_images` examples.

        Args:
            example: dict of `"image"`, `"boxes"` and `"labels"`; where `num_images`
                is above 1, a list of that many dicts.
            seed: int tensor `[2]`: the same seed gives the same result.
        """
        # AutoGraph is for code of users: on ours it would only spend seconds.
        call = tf.autograph.experimental.do_not_convert(self._call)
        return call(example, tf.convert_to_tensor(seed))

    def _call(self, example, seed):
        examples = [self._tensors(one) for one in self._examples(example)]
        given = examples[0] if self.num_images == 1 else examples
        augment = self.augment
        if not (tf.executing_eagerly() or is_ours(augment)):
            augment = tf.function(augment)
        result = augment(given, seed)
        return {**examples[0], **tidy(result, examples[0]["image"].dtype)}

    def augment(self, example: Example | list[Example], seed: Any) -> Example:
        """Does the work of `__call__`; the part that a subclass writes.

        Args:
            example: as of `__call__`, of tensors.
            seed: int tensor `[2]`.

        Returns:
            Dict of `"image"` of any numeric dtype, `"boxes"`, which may lie outside
            the image, and `"labels"`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method `augment`")

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor, as plain values."""
        return {}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Augmentation:
        """Makes an augmentation of what `get_config` returned."""
        return cls(**config)

    def __repr__(self) -> str:
        arguments = ", ".join(f"{k}={v!r}" for k, v in self.get_config().items())
        return f"{type(self).__name__}({arguments})"

    def _examples(self, example):
        """The example, or the examples of a list, after a check of how many."""
        count = len(example) if isinstance(example, list | tuple) else None
        if count != (None if self.num_images == 1 else self.num_images):
            expected = (
                "one example, a dict"
                if self.num_images == 1
                else f"a list of {self.num_images} examples"
            )
            received = "a dict" if count is None else f"a list of {count}"
            raise InvalidValueError(
                f"`{type(self).__name__}` takes {expected}. Received: {received}"
            )
        return [example] if count is None else example

    def _tensors(self, example):
        missing = {"image", "boxes", "labels"} - set(example)
        if missing:
            raise InvalidValueError(
                '`example` must have the keys "image", "boxes" and "labels". '
                f"Received: {sorted(example)}"
            )
        return {
            **example,
            "image": tf.convert_to_tensor(example["image"]),
            "boxes": as_boxes(example["boxes"]),
            "labels": as_labels(example["labels"]),
        }


def is_ours(function):
    """Whether a function or method is of this package, not a user's."""
    return function.__module__.startswith("effdet_keras.")


def tidy(example, dtype):
    """An example as every augmentation returns it.

    Example:
        >>> tidied = tidy({"image": np.full((8, 8, 3), 9.7), "labels": [5, 6],
        ...     "boxes": [[-4.0, 2.0, 4.0, 6.0], [0.0, 8.0, 8.0, 9.0]]}, "uint8")
        >>> tidied["boxes"].numpy().tolist(), tidied["labels"].numpy().tolist()
        ([[0.0, 2.0, 4.0, 6.0]], [5])
        >>> int(tidied["image"][0, 0, 0])
        10
    """
    image = to_dtype(tf.convert_to_tensor(example["image"]), tf.as_dtype(dtype))
    boxes, labels = as_boxes(example["boxes"]), as_labels(example["labels"])
    boxes = clip_to_image(boxes, image)
    keep = tf.reduce_all(boxes[:, 2:] > boxes[:, :2], axis=1)
    return {
        **example,
        "image": tf.ensure_shape(image, [None, None, 3]),
        "boxes": tf.boolean_mask(boxes, keep),
        "labels": tf.boolean_mask(labels, keep),
    }


def to_dtype(image, dtype):
    """Pixels as `dtype`: rounded and cut off at 0 and 255 on the way to an integer."""
    if image.dtype == dtype:
        return image
    if dtype.is_integer and image.dtype.is_floating:
        image = tf.clip_by_value(tf.round(image), 0.0, 255.0)
    return tf.cast(image, dtype)


def clip_to_image(boxes, image):
    """Boxes, `[n, 4]` in pixels, cut off at the borders of the image."""
    height, width = size_of(image)
    return tf.clip_by_value(boxes, 0.0, tf.stack([height, width, height, width]))


def size_of(image):
    """Height and width of an image, float32 scalars."""
    size = tf.cast(tf.shape(image)[:2], tf.float32)
    return size[0], size[1]


def as_boxes(boxes):
    """Boxes as a float32 tensor `[n, 4]`; an empty list has none."""
    return tf.reshape(tf.cast(tf.convert_to_tensor(boxes), tf.float32), [-1, 4])


def as_labels(labels):
    """Labels as an int32 tensor `[n]`; an empty list has none."""
    return tf.reshape(tf.cast(tf.convert_to_tensor(labels), tf.int32), [-1])


def register(cls):
    """Lets Keras save and load a class of this package by its name."""
    return keras.saving.register_keras_serializable(package="effdet_keras")(cls)


def check_fraction(name, value):
    """`value` as a float, if it is from 0 to 1."""
    if not 0.0 <= value <= 1.0:
        raise InvalidValueError(
            f"`{name}` must be from 0 to 1. Received: {name}={value!r}"
        )
    return float(value)


def check_range(name, value, lowest, highest):
    """`value` as a pair of floats, if it rises and lies in a range."""
    pair = tuple(float(one) for one in value) if isinstance(value, list | tuple) else ()
    if len(pair) != 2 or not lowest <= pair[0] <= pair[1] <= highest:
        limits = f"from {lowest:g} to {highest:g}"
        if highest == math.inf:
            limits = f"of {lowest:g} or more"
        raise InvalidValueError(
            f"`{name}` must be a pair of numbers {limits}, the lower one first. "
            f"Received: {name}={value!r}"
        )
    return pair
