"""Augmentations one after the other, and augmentations that happen sometimes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.augment import draws
from effdet_keras.augment.augmentation import (
    Augmentation,
    Example,
    check_fraction,
    register,
    tidy,
)
from effdet_keras.errors import InvalidTypeError, InvalidValueError

_KEYS = ("image", "boxes", "labels")


@register
class Compose(Augmentation):
    """Applies augmentations one after the other.

    Wherever an augmentation is expected, a plain list of them does the same.

    Args:
        augmentations: list of `Augmentation`s and of functions
            `(example, seed) -> example`. One that takes several images, such as
            `Mosaic`, can only stand first.

    Raises:
        TypeError: If one of them cannot be called.
        ValueError: If one that takes several images does not stand first.

    Example:
        >>> import effdet_keras as ek
        >>> augment = ek.augment.Compose([
        ...     ek.augment.Sometimes(lambda example, seed: example, 0.5)])
        >>> augment.num_images
        1
    """

    def __init__(self, augmentations: Sequence[Augmentation | Callable]) -> None:
        self.augmentations = [as_augmentation(one) for one in augmentations]
        late = [x for x in self.augmentations[1:] if x.num_images > 1]
        if late:
            raise InvalidValueError(
                "An augmentation of several images must stand first, because it "
                f"reads the others from the dataset. Received: {late[0]!r} after "
                f"{self.augmentations[0]!r}"
            )

    @property
    def num_images(self) -> int:
        return self.augmentations[0].num_images if self.augmentations else 1

    @property
    def keeps_masks(self) -> bool:
        return all(one.keeps_masks for one in self.augmentations)

    def augment(self, example: Example | list[Example], seed: Any) -> Example:
        if not self.augmentations:
            return example
        seeds = draws.split(seed, len(self.augmentations))
        for augmentation, one in zip(self.augmentations, seeds):
            example = augmentation(example, one)
        return example

    def get_config(self):
        return {"augmentations": [_serialized(x) for x in self.augmentations]}

    @classmethod
    def from_config(cls, config):
        return cls([_deserialized(x) for x in config["augmentations"]])

    def __repr__(self):
        return f"Compose({self.augmentations!r})"


@register
class Sometimes(Augmentation):
    """Applies an augmentation to some examples and leaves the others as they are.

    Args:
        augmentation: `Augmentation`, a list of them, or a function
            `(example, seed) -> example`.
        probability: float from 0 to 1, the share of examples that it is applied to.

    Raises:
        TypeError: If `augmentation` cannot be called.
        ValueError: If `probability` is not from 0 to 1.

    Example:
        >>> import effdet_keras as ek
        >>> blank = lambda example, seed: {**example, "boxes": [], "labels": []}
        >>> augment = ek.augment.Sometimes(blank, probability=0.5)
        >>> example = {"image": np.zeros((8, 8, 3), "uint8"),
        ...     "boxes": np.float32([[0, 0, 4, 4]]), "labels": np.int32([5])}
        >>> [len(augment(example, [0, i])["boxes"]) for i in range(8)]
        [1, 1, 0, 0, 1, 0, 0, 0]
    """

    def __init__(
        self, augmentation: Augmentation | Sequence | Callable, probability: float
    ) -> None:
        self.augmentation = as_augmentation(augmentation)
        self.probability = check_fraction("probability", probability)

    @property
    def num_images(self) -> int:
        return self.augmentation.num_images

    @property
    def keeps_masks(self) -> bool:
        return self.augmentation.keeps_masks

    def augment(self, example: Example | list[Example], seed: Any) -> Example:
        first = example if self.num_images == 1 else example[0]
        of_coin, inner = draws.split(seed, 2)
        keys = (*_KEYS, "mask") if "mask" in first else _KEYS

        def applied():
            result = self.augmentation(example, inner)
            return tuple(result[key] for key in keys)

        def unchanged():
            same = tidy({key: first[key] for key in keys}, first["image"].dtype)
            return tuple(same[key] for key in keys)

        happens = draws.uniform(of_coin) < self.probability
        return dict(zip(keys, tf.cond(happens, applied, unchanged)))

    def get_config(self):
        return {
            "augmentation": _serialized(self.augmentation),
            "probability": self.probability,
        }

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "augmentation": _deserialized(config["augmentation"])})

    def __repr__(self):
        return f"Sometimes({self.augmentation!r}, probability={self.probability})"


def as_augmentation(augment):
    """An `Augmentation` of whatever users may pass as one.

    Args:
        augment: `Augmentation`, a list or tuple of them, or a function
            `(example, seed) -> example`.

    Example:
        >>> as_augmentation([]).num_images
        1
        >>> as_augmentation("mosaic")
        Traceback (most recent call last):
            ...
        effdet_keras.errors.InvalidTypeError: An augmentation is an \
`ek.augment.Augmentation`, a function `(example, seed) -> example`, or a list of \
these. Received: 'mosaic'
    """
    if isinstance(augment, Augmentation):
        return augment
    if isinstance(augment, list | tuple):
        return Compose(augment)
    if isinstance(augment, type) or not callable(augment):
        raise InvalidTypeError(
            "An augmentation is an `ek.augment.Augmentation`, a function "
            f"`(example, seed) -> example`, or a list of these. Received: {augment!r}"
        )
    return UserFunction(augment)


def _serialized(augmentation):
    if isinstance(augmentation, UserFunction):
        augmentation = augmentation.function
    return keras.saving.serialize_keras_object(augmentation)


def _deserialized(config):
    """The inverse; what is an object already stays as it is."""
    if isinstance(config, Augmentation) or callable(config):
        return config
    return keras.saving.deserialize_keras_object(config)


# --- A function that a user wrote, as an augmentation.


class UserFunction(Augmentation):
    """Calls `function(example, seed)` and checks what it returns.

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
