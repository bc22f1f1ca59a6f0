"""Augmentations of NumPy arrays, such as Albumentations, inside `tf.data`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.augment.augmentation import Augmentation, Example, register, to_dtype
from effdet_keras.errors import InvalidTypeError, InvalidValueError


@register
class FromNumPy(Augmentation):
    """Lets a function of NumPy arrays augment, your own or another library's.

    The function runs in Python, one image at a time, so it is slower than the
    augmentations of this package, which run beside each other. The guide shows
    Albumentations through it.

    Args:
        function: callable `(image, boxes, labels, rng) -> (image, boxes, labels)`.
            `image` is uint8 `[H, W, 3]`, `boxes` float32 `[n, 4]`, `yxyx` in pixels
            of it, `labels` int32 `[n]`, and `rng` a `numpy.random.Generator` of its
            own for each image, so that a seed repeats its augmentation. The image
            that it returns may have another size, and there may be fewer or more
            boxes, with one label for each.

    Raises:
        TypeError: If `function` cannot be called.

    Example:
        >>> import numpy as np
        >>> import effdet_keras as ek
        >>> def noise(image, boxes, labels, rng):
        ...     noisy = image + rng.normal(0.0, 5.0, image.shape)
        ...     return noisy.clip(0, 255).astype("uint8"), boxes, labels
        >>> augment = ek.augment.FromNumPy(noise)
        >>> example = {"image": np.full((4, 4, 3), 100, "uint8"),
        ...     "boxes": np.float32([[0, 0, 2, 2]]), "labels": np.int32([5])}
        >>> noisy = augment(example, seed=[0, 1])["image"].numpy()
        >>> bool(noisy.std() > 0), noisy.dtype.name
        (True, 'uint8')
    """

    def __init__(self, function: Callable) -> None:
        if not callable(function):
            raise InvalidTypeError(
                "`function` must be callable as (image, boxes, labels, rng). "
                f"Received: function={function!r}"
            )
        self.function = function

    def augment(self, example: Example, seed: Any) -> Example:
        image = to_dtype(example["image"], tf.uint8)
        arguments = [image, example["boxes"], example["labels"], seed]
        dtypes = (tf.uint8, tf.float32, tf.int32)
        image, boxes, labels = tf.numpy_function(self._call_function, arguments, dtypes)
        return {
            **example,
            "image": tf.ensure_shape(image, [None, None, 3]),
            "boxes": tf.ensure_shape(boxes, [None, 4]),
            "labels": tf.ensure_shape(labels, [None]),
        }

    def _call_function(self, image, boxes, labels, seed):
        # A generator takes numbers from 0; a seed may have others.
        rng = np.random.default_rng([int(x) % 2**64 for x in seed])
        # Copies: the arrays belong to TensorFlow.
        result = self.function(image.copy(), boxes.copy(), labels.copy(), rng)
        if not isinstance(result, tuple | list) or len(result) != 3:
            raise InvalidTypeError(
                f"The function {self.name!r} must return (image, boxes, labels). "
                f"Received: {type(result).__name__}"
            )
        image = np.asarray(result[0])
        if image.ndim != 3 or image.shape[2] != 3 or 0 in image.shape:
            raise InvalidValueError(
                f"The function {self.name!r} must return an image [H, W, 3]. "
                f"Received: shape={image.shape}"
            )
        if image.dtype != np.uint8:
            raise InvalidTypeError(
                f"The function {self.name!r} must return an image of dtype uint8. "
                f"Received: dtype={image.dtype}"
            )
        return image, *self._checked(result[1], result[2])

    def _checked(self, boxes, labels):
        """The boxes and labels that the function returned, as arrays."""
        boxes = np.asarray(boxes, np.float32)
        labels = np.asarray(labels, np.int32)
        boxes = boxes.reshape(0, 4) if boxes.size == 0 else boxes
        if boxes.ndim != 2 or boxes.shape[1] != 4 or not np.isfinite(boxes).all():
            raise InvalidValueError(
                f"The function {self.name!r} must return boxes [n, 4] of finite "
                f"numbers. Received: shape={boxes.shape}"
            )
        if labels.shape != boxes.shape[:1]:
            raise InvalidValueError(
                f"The function {self.name!r} must return one label for each box. "
                f"Received: {len(boxes)} boxes, labels of shape {labels.shape}"
            )
        return boxes, labels

    @property
    def name(self) -> str:
        """The name of the function, for messages."""
        return getattr(self.function, "__name__", None) or repr(self.function)

    def get_config(self):
        return {"function": self.function}

    def __repr__(self):
        return f"FromNumPy({self.name})"
