"""`Augmentation`, the base class, and wrappers that combine and adapt augmentations."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from effdet_keras._internal.number_ranges import (
    check_number,
    check_number_fields,
    number,
    range_of,
    rising_pair,
)
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras._internal.philox import Stream
from effdet_keras._internal.python_calls import call_python
from effdet_keras.augment import random_ops
from effdet_keras.errors import InvalidTypeError, InvalidValueError

Example = dict[str, Any]

_KEYS = ("image", "boxes", "labels")
_SHAPES = {"image": [None, None, 3], "boxes": [None, 4], "labels": [None]}


@dataclasses.dataclass(eq=False)
class Augmentation:
    """Base class of augmentations, which change an image and move its boxes with it.

    A subclass implements `augment(example, seed)`. `__call__` passes tensors to this
    method. Afterwards it rounds the pixels to the dtype of the input image, clips the
    boxes to the image, and drops boxes without area.

    An example is a dict of

    - `"image"`: uint8 or float32 `[H, W, 3]`, pixels from 0 to 255;
    - `"boxes"`: float32 `[n, 4]`, `yxyx` in pixels of this image;
    - `"labels"`: int32 `[n]`;
    - `"mask"`, only for a model with a segmentation head: uint8 `[H, W]`, the class of
      each pixel, or 255 for a pixel without a class.

    Other keys are passed through. TensorFlow does all the work, inside `tf.data`. If
    TensorFlow is not installed, batches call `augment_arrays` instead, which does the
    same on NumPy arrays, with a seed of two ints. `Mosaic`, `FromNumPy` and
    `RandomApply` implement it, and a subclass may implement it as well.

    Attributes:
        num_images: int, the number of examples that one call takes. It is 1, except for
            `Mosaic` and `MixUp`, which take a list of examples.
        keeps_masks: bool, whether the returned mask fits the returned image. A subclass
            sets it. Batches with masks accept only augmentations that keep masks.
        fits_any_resolution: bool, whether the augmentation also works on a smaller
            version of the image, with boxes to match. Large JPEG files can then be
            decoded at a reduced size, which takes less time.

    Example:
        >>> import numpy as np
        >>> import effdet_keras as ek
        >>> class UpsideDown(ek.augment.Augmentation):
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
    fits_any_resolution = False

    def __post_init__(self) -> None:
        check_number_fields(self)
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if range_of(field) is not None and value is not None:
                setattr(self, field.name, _typed_like(field.default, value))

    def __call__(self, example: Example | list[Example], seed: Any) -> Example:
        """Augments one example.

        Args:
            example: dict as described above, or a list of `num_images` such dicts if
                that is more than one.
            seed: int tensor or sequence of two ints. The same seed gives the same
                result.

        Returns:
            Dict of tensors with the keys of the example, or of the first one in a list.
            The image has the dtype of that example's image.
        """
        # AutoGraph is only for users' code: for ours it would just take seconds.
        call = tf.autograph.experimental.do_not_convert(self._call)
        return call(example, tf.convert_to_tensor(seed))

    def _call(self, example, seed):
        is_one = self.num_images == 1
        examples = [_tensors(one) for one in ([example] if is_one else example)]
        result = with_autograph(self.augment)(examples[0] if is_one else examples, seed)
        return {**examples[0], **sanitize_boxes(result, examples[0]["image"].dtype)}

    def augment(self, example: Example | list[Example], seed: Any) -> Example:
        """Augments one example; a subclass implements this method for `__call__`.

        Args:
            example: dict of tensors, or a list of `num_images` such dicts.
            seed: int tensor `[2]`.

        Returns:
            Dict of `"image"`, of any numeric dtype; `"boxes"`, which may reach out of
            the image; `"labels"`; and `"mask"`, if the augmentation keeps masks and the
            example has one.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method `augment`")

    @property
    def needs_tensorflow(self) -> bool:
        """Whether batches need TensorFlow, because `augment_arrays` is missing."""
        return type(self).augment_arrays is Augmentation.augment_arrays

    def augment_arrays(self, example: Example | list[Example], seed: Any) -> Example:
        """Does the same as `augment` on NumPy arrays; a subclass may implement it.

        Args:
            example: dict of NumPy arrays, or a list of `num_images` such dicts.
            seed: pair of ints.

        Returns:
            Dict of NumPy arrays, with the keys that `augment` returns.
        """
        raise NotImplementedError(f"{type(self).__name__} has no `augment_arrays`")

    def call_arrays(self, example: Example | list[Example], seed: Any) -> Example:
        """Does the same as `__call__` on NumPy arrays, by means of `augment_arrays`.

        Args:
            example: dict of NumPy arrays, or a list of `num_images` such dicts.
            seed: pair of ints.

        Returns:
            Dict of NumPy arrays.
        """
        first = example if self.num_images == 1 else example[0]
        result = sanitize_arrays(self.augment_arrays(example, seed), first["image"])
        return {**first, **result}


def parameter(default: Any, interval: str, **options: Any) -> Any:
    """Returns a dataclass field for a number, or a pair of numbers, in an interval.

    Args:
        default: the default value. If it is a tuple, the field takes a pair of numbers,
            the lower one first; if it is an int, the field takes a whole number.
        interval: str, the allowed interval, such as "(0, 1]".
        **options: arguments of `NumberRange`.
    """
    if isinstance(default, tuple):
        return rising_pair(default, interval, **options)
    return number(default, interval, whole=isinstance(default, int), **options)


def _typed_like(default, value):
    """Converts a field's numbers to its default's type: TensorFlow tells 5 from 5.0."""
    if isinstance(default, tuple):
        return tuple(type(default[0])(one) for one in value)
    return type(default)(value)


def is_ours(function):
    """Returns whether a function or method is part of this package, not a user's."""
    return (getattr(function, "__module__", "") or "").startswith("effdet_keras.")


def with_autograph(function):
    """Returns a user's function, which may use `if` and `for` on tensors in a graph."""
    if tf.executing_eagerly() or is_ours(function):
        return function
    return tf.function(function)


def sanitize_boxes(example, dtype):
    """Returns an example with boxes clipped to the image, and only those with an area.

    Args:
        example: dict of an image, boxes, labels and maybe other keys.
        dtype: the dtype of the new image.
    """
    example = _tensors(example)
    image, boxes, labels = (example[key] for key in _KEYS)
    image = to_dtype(image, tf.as_dtype(dtype))
    boxes = tf.clip_by_value(boxes, 0.0, tf.tile(tf.stack(size_of(image)), [2]))
    keep = tf.reduce_all(boxes[:, 2:] > boxes[:, :2], axis=1)
    return {
        **example,
        "image": tf.ensure_shape(image, [None, None, 3]),
        "boxes": tf.boolean_mask(boxes, keep),
        "labels": tf.boolean_mask(labels, keep),
    }


def to_dtype(image, dtype):
    """Casts pixels to `dtype`; from float to int, rounds and clips them to 0 to 255."""
    if image.dtype == dtype:
        return image
    if dtype.is_integer and image.dtype.is_floating:
        image = tf.clip_by_value(tf.round(image), 0.0, 255.0)
    return tf.cast(image, dtype)


def sanitize_arrays(example, original):
    """Does the same as `sanitize_boxes` in NumPy, for the dtype of image `original`."""
    image = np.asarray(example["image"])
    if image.dtype != original.dtype:
        if original.dtype.kind in "iu" and image.dtype.kind == "f":
            image = np.clip(np.round(image), 0, 255)
        image = image.astype(original.dtype)
    boxes = np.asarray(example["boxes"], np.float32).reshape(-1, 4)
    labels = np.asarray(example["labels"], np.int32).reshape(-1)
    boxes = np.clip(boxes, np.float32(0), np.tile(np.float32(image.shape[:2]), 2))
    keep = (boxes[:, 2:] > boxes[:, :2]).all(axis=1)
    return {**example, "image": image, "boxes": boxes[keep], "labels": labels[keep]}


def size_of(image):
    """Returns the height and the width of an image, float32 scalars."""
    size = tf.cast(tf.shape(image)[:2], tf.float32)
    return size[0], size[1]


def _tensors(example):
    """Converts an example to tensors; empty lists give boxes `[0, 4]`, labels `[0]`."""
    boxes = tf.cast(tf.convert_to_tensor(example["boxes"]), tf.float32)
    labels = tf.cast(tf.convert_to_tensor(example["labels"]), tf.int32)
    return {
        **example,
        "image": tf.convert_to_tensor(example["image"]),
        "boxes": tf.reshape(boxes, [-1, 4]),
        "labels": tf.reshape(labels, [-1]),
    }


# --- Several augmentations as one, and one that is applied at random.


class Compose(Augmentation):
    """Applies augmentations one after the other; a plain list does the same.

    Args:
        augmentations: sequence of `Augmentation`s or functions
            `(example, seed) -> example`. Only the first may take several images,
            because the dataset reads the other images.

    Raises:
        ValueError: If a later augmentation takes several images.
        TypeError: If one of them is not an augmentation.

    Example:
        >>> import effdet_keras as ek
        >>> example = {"image": np.zeros((100, 100, 3), "uint8"),
        ...     "boxes": np.float32([[40, 20, 60, 80]]), "labels": np.int32([5])}
        >>> both = Compose([ek.augment.Rotate(0.0), ek.augment.Blur()])
        >>> both(example, seed=[0, 1])["boxes"].numpy().tolist()
        [[40.0, 20.0, 60.0, 80.0]]
    """

    def __init__(self, augmentations: Sequence[Augmentation | Callable]) -> None:
        self.augmentations = [as_augmentation(one) for one in augmentations]
        late = [x for x in self.augmentations[1:] if x.num_images > 1]
        if late:
            raise InvalidValueError(
                "An augmentation of several images must be the first one, because it "
                f"reads the others from the dataset. Received: {late[0]!r} after "
                f"{self.augmentations[0]!r}"
            )

    @property
    def num_images(self) -> int:
        return self.augmentations[0].num_images if self.augmentations else 1

    @property
    def keeps_masks(self) -> bool:
        return all(one.keeps_masks for one in self.augmentations)

    @property
    def fits_any_resolution(self) -> bool:
        return all(one.fits_any_resolution for one in self.augmentations)

    def augment(self, example: Example | list[Example], seed: Any) -> Example:
        if not self.augmentations:
            return example
        seeds = random_ops.split(seed, len(self.augmentations))
        for augmentation, one in zip(self.augmentations, seeds):
            example = augmentation(example, one)
        return example

    @property
    def needs_tensorflow(self) -> bool:
        return any(one.needs_tensorflow for one in self.augmentations)

    def augment_arrays(self, example: Example | list[Example], seed: Any) -> Example:
        seeds = Stream(seed).split(len(self.augmentations))
        for augmentation, one in zip(self.augmentations, seeds):
            example = augmentation.call_arrays(example, one)
        return example

    def __repr__(self):
        return f"Compose({self.augmentations!r})"


class MixWithOther(Augmentation):
    """Base class of augmentations that wrap one other augmentation."""

    augmentation: Augmentation

    @property
    def num_images(self) -> int:
        return self.augmentation.num_images

    @property
    def keeps_masks(self) -> bool:
        return self.augmentation.keeps_masks

    @property
    def fits_any_resolution(self) -> bool:
        return self.augmentation.fits_any_resolution

    @property
    def needs_tensorflow(self) -> bool:
        return self.augmentation.needs_tensorflow


class RandomApply(MixWithOther):
    """Applies an augmentation to random examples, and leaves the others unchanged.

    Args:
        augmentation: `Augmentation`, a list of them, or a function
            `(example, seed) -> example`.
        probability: float in [0, 1], the probability that it is applied to an example.

    Raises:
        TypeError: If `augmentation` cannot be called.
        ValueError: If `probability` is not in [0, 1].

    Example:
        >>> import effdet_keras as ek
        >>> blank = lambda example, seed: {**example, "boxes": [], "labels": []}
        >>> augment = ek.augment.RandomApply(blank, probability=0.5)
        >>> example = {"image": np.zeros((8, 8, 3), "uint8"),
        ...     "boxes": np.float32([[0, 0, 4, 4]]), "labels": np.int32([5])}
        >>> [len(augment(example, [0, i])["boxes"]) for i in range(8)]
        [1, 1, 0, 0, 1, 0, 0, 0]
    """

    def __init__(
        self, augmentation: Augmentation | Sequence | Callable, probability: float
    ) -> None:
        self.augmentation = as_augmentation(augmentation)
        check_number("probability", probability, "[0, 1]")
        self.probability = float(probability)

    def augment(self, example: Example | list[Example], seed: Any) -> Example:
        first = example if self.num_images == 1 else example[0]
        of_coin, inner = random_ops.split(seed, 2)
        happens = random_ops.uniform(of_coin) < self.probability
        keys = (*_KEYS, "mask") if "mask" in first else _KEYS

        def applied():
            result = self.augmentation(example, inner)
            return tuple(result[key] for key in keys)

        def unchanged():
            same = sanitize_boxes(
                {key: first[key] for key in keys}, first["image"].dtype
            )
            return tuple(same[key] for key in keys)

        return dict(zip(keys, tf.cond(happens, applied, unchanged)))

    def augment_arrays(self, example: Example | list[Example], seed: Any) -> Example:
        first = example if self.num_images == 1 else example[0]
        of_coin, inner = Stream(seed).split(2)
        if Stream(of_coin).uniform() < np.float32(self.probability):
            return self.augmentation.call_arrays(example, inner)
        return first

    def __repr__(self):
        return f"RandomApply({self.augmentation!r}, probability={self.probability})"


def as_augmentation(augment):
    """Returns an augmentation, a list of them, or a function as one `Augmentation`.

    Raises:
        TypeError: If `augment` is none of these.
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


# --- Users' functions, on tensors and on NumPy arrays.


class UserFunction(Augmentation):
    """Augments by a user's `function(example, seed) -> example` on tensors."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def augment(self, example: Example, seed: Any) -> Example:
        return with_autograph(self.function)(dict(example), seed)

    def __repr__(self):
        return repr(getattr(self.function, "__name__", self.function))


class FromNumPy(Augmentation):
    """Augments by a function on NumPy arrays, your own or another library's.

    The function runs in Python, one image at a time, so it is slower than the
    augmentations of this package. The guide shows how to use Albumentations with it.

    Args:
        function: callable `(image, boxes, labels, rng) -> (image, boxes, labels)`.
            `image` is uint8 `[H, W, 3]`, `boxes` float32 `[n, 4]`, `yxyx` in pixels of
            the image, and `labels` int32 `[n]`. `rng` is a `numpy.random.Generator`,
            a new one for each image, so that a seed repeats its augmentation. The
            returned image must be uint8, but may have another size. There may be fewer
            or more boxes, with one label for each.

    Raises:
        ValueError: When called, if the function returns invalid arrays.

    Example:
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
        self.function = function

    def augment(self, example: Example, seed: Any) -> Example:
        image = to_dtype(example["image"], tf.uint8)
        arguments = [image, example["boxes"], example["labels"], seed]
        dtypes = (tf.uint8, tf.float32, tf.int32)
        arrays = call_python(self._call_function, arguments, dtypes)
        shaped = {
            key: tf.ensure_shape(array, _SHAPES[key])
            for key, array in zip(_KEYS, arrays)
        }
        return {**example, **shaped}

    def augment_arrays(self, example: Example, seed: Any) -> Example:
        image = sanitize_arrays(example, np.zeros(0, np.uint8))["image"]
        arrays = self._call_function(image, example["boxes"], example["labels"], seed)
        return {**example, **dict(zip(_KEYS, arrays))}

    def _call_function(self, image, boxes, labels, seed):
        # A generator takes no negative numbers, which a seed may have.
        rng = np.random.default_rng([int(x) % 2**64 for x in seed])
        # The function gets copies, because the arrays belong to TensorFlow.
        image, boxes, labels = map(
            np.asarray,
            self.function(image.copy(), boxes.copy(), labels.copy(), rng),
            (None, "float32", "int32"),
        )
        fault = fault_of(image.shape, boxes, labels)
        if fault is None and image.dtype != np.uint8:
            fault = f"an image of dtype {image.dtype}; expected uint8"
        if fault is not None:
            raise InvalidValueError(f"{self} returned {fault}")
        return image, boxes.reshape(-1, 4), labels.reshape(-1)

    def __repr__(self):
        return f"FromNumPy({getattr(self.function, '__name__', self.function)})"


def fault_of(image_shape, boxes, labels):
    """Describes the fault of the arrays that a function returned, or returns None.

    Args:
        image_shape: sequence of int, the shape of the image.
        boxes: float array, `[n, 4]` if it is right.
        labels: int array, `[n]` if it is right.
    """
    if len(image_shape) != 3 or image_shape[2] != 3 or 0 in image_shape:
        return f"an image of shape {[*map(int, image_shape)]}; expected [H, W, 3]"
    if boxes.size and boxes.shape[1:] != (4,):
        return f"boxes of shape {boxes.shape}; expected [n, 4]"
    boxes = boxes.reshape(-1, 4)
    if labels.shape != (len(boxes),):
        return (
            f"{len(boxes)} boxes, but labels of shape {labels.shape}; expected one "
            "label for each box"
        )
    rules = {
        "boxes must be finite": ~np.isfinite(boxes),
        "boxes are (y_min, x_min, y_max, x_max)": boxes[:, 2:] < boxes[:, :2],
    }
    for rule, is_wrong in rules.items():
        if is_wrong.any():
            return f"the box {boxes[is_wrong.any(axis=1)][0].tolist()}; {rule}"
    return None
