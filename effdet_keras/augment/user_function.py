"""A function that a user wrote, as an augmentation."""

from __future__ import annotations  # a type of TensorFlow would import it

from typing import Any

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.augment.augmentation import Augmentation, Example
from effdet_keras.errors import InvalidTypeError, InvalidValueError


class UserFunction(Augmentation):
    """Calls `function(example, seed)` and checks what it returns.

    Args:
        function: callable that takes an example and a seed, and returns an example.

    Example:
        >>> halve = UserFunction(lambda example, seed: {
        ...     **example, "image": example["image"] // 2})
        >>> image = np.full((4, 4, 3), 8, "uint8")
        >>> example = {"image": image, "boxes": [], "labels": []}
        >>> int(halve(example, [0, 1])["image"][0, 0, 0])
        4
    """

    def __init__(self, function: Any) -> None:
        self.function = function

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", None) or repr(self.function)

    def augment(self, example: Example, seed: Any) -> Example:
        function = self.function
        # With AutoGraph, so that `if` and `for` may depend on tensors.
        if not tf.executing_eagerly():
            function = tf.function(function)
        result = function(dict(example), seed)
        if not isinstance(result, dict) or not {"image", "boxes", "labels"} <= set(
            result
        ):
            received = sorted(result) if isinstance(result, dict) else type(result)
            raise InvalidTypeError(
                f"The augmentation {self.name!r} must return a dict with the keys "
                f'"image", "boxes" and "labels". Received: {received}'
            )
        self._check_shapes(result)
        return result

    def _check_shapes(self, result: Example) -> None:
        """Checks what is known before any image is read."""
        for key, shape, words in (
            ("image", [None, None, 3], "[H, W, 3]"),
            ("boxes", [None, 4], "[n, 4]"),
            ("labels", [None], "[n]"),
        ):
            tensor = tf.convert_to_tensor(result[key])
            empty = key != "image" and tensor.shape.num_elements() == 0
            if not empty and not tensor.shape.is_compatible_with(shape):
                raise InvalidValueError(
                    f"The augmentation {self.name!r} must return {key!r} of shape "
                    f"{words}. Received: shape={tuple(tensor.shape)}"
                )
        boxes = tf.convert_to_tensor(result["boxes"]).shape
        labels = tf.convert_to_tensor(result["labels"]).shape
        if boxes.rank and labels.rank and not boxes[:1].is_compatible_with(labels[:1]):
            raise InvalidValueError(
                f"The augmentation {self.name!r} must return one label for each box. "
                f"Received: {boxes[0]} boxes, {labels[0]} labels"
            )

    def get_config(self):
        return {"function": self.function}

    def __repr__(self):
        return self.name
