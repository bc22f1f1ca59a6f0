"""What an augmentation is; several, sometimes, and functions of users as one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.augment import draws
from effdet_keras.errors import (
    InvalidTypeError,
    InvalidValueError,
    check_argument,
    require,
)

Example = dict[str, Any]

_KEYS = ("image", "boxes", "labels")
_SHAPES = {"image": [None, None, 3], "boxes": [None, 4], "labels": [None]}


@dataclasses.dataclass(eq=False, repr=False)
class Augmentation:
    """Changes the image of an example, and moves its boxes with the pixels.

    The base class of all augmentations. A subclass has a method `augment(example,
    seed)`; `__call__` gives it tensors, and afterwards rounds the pixels to the dtype
    that came in, clips the boxes to the image and drops boxes without area.

    An example is a dict of

    - `"image"`: uint8 or float32 `[H, W, 3]`, pixels from 0 to 255;
    - `"boxes"`: float32 `[n, 4]`, `yxyx` in pixels of this image;
    - `"labels"`: int32 `[n]`;
    - `"mask"`: uint8 `[H, W]`, the class of each pixel, 255 where it has none, for a
      model with a segmentation head only.

    Other keys stay as they are. All work is done by TensorFlow, inside `tf.data`.

    Attributes:
        num_images: int, the number of examples that one call takes: 1, except for
            `Mosaic` and `MixUp`, which are called with a list of examples.
        keeps_masks: bool, whether the mask it returns fits the image it returns, as a
            subclass says. Batches with masks take no other.

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

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if interval := field.metadata.get("interval"):
                value = getattr(self, field.name)
                if value is not None or not field.metadata["or_none"]:
                    value = checked(field.name, value, interval, field.default)
                setattr(self, field.name, value)

    def __call__(self, example: Example | list[Example], seed: Any) -> Example:
        """Augments one example, or a list of `num_images`; `seed` is an int `[2]`."""
        # AutoGraph is for code of users: on ours it would only spend seconds.
        call = tf.autograph.experimental.do_not_convert(self._call)
        return call(example, tf.convert_to_tensor(seed))

    def _call(self, example, seed):
        is_one = self.num_images == 1
        count = len(example) if isinstance(example, list | tuple) else None
        if count != (None if is_one else self.num_images):
            many = f"a list of {self.num_images} examples"
            received = "a dict" if count is None else f"a list of {count}"
            raise InvalidValueError(
                f"`{type(self).__name__}` takes "
                f"{'one example, a dict' if is_one else many}. Received: {received}"
            )
        examples = [_tensors(one) for one in ([example] if is_one else example)]
        result = with_autograph(self.augment)(examples[0] if is_one else examples, seed)
        return {**examples[0], **tidy(result, examples[0]["image"].dtype)}

    def augment(self, example: Example | list[Example], seed: Any) -> Example:
        """Does the work of `__call__`; the part that a subclass writes.

        Returns:
            Dict of `"image"` of any numeric dtype, `"boxes"`, which may lie outside
            the image, and `"labels"`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method `augment`")

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor, as plain values."""
        return {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Augmentation:
        """Makes an augmentation of what `get_config` returned."""
        return cls(**config)

    def __repr__(self) -> str:
        arguments = ", ".join(f"{k}={v!r}" for k, v in self.get_config().items())
        return f"{type(self).__name__}({arguments})"


def register(cls):
    """Lets Keras save and load a class of this package by its name."""
    return keras.saving.register_keras_serializable(package="effdet_keras")(cls)


def parameter(default: Any, interval: str, *, or_none: bool = False) -> Any:
    """A number, or a pair, and the interval that it must lie in, such as "(0, 1]"."""
    metadata = {"interval": interval, "or_none": or_none}
    return dataclasses.field(default=default, metadata=metadata)


def checked(name, value, interval, default):
    """`value` with the type of `default`, if it lies in an interval."""
    low, high = map(float, interval[1:-1].split(","))
    is_pair = isinstance(default, tuple)
    numbers = value if is_pair else [value]
    is_right = (
        isinstance(numbers, list | tuple)
        and len(numbers) == (2 if is_pair else 1)
        and all(low <= x <= high for x in numbers)
        and (interval[0] == "[" or numbers[0] != low)
        and (interval[-1] == "]" or numbers[-1] != high)
        and numbers[0] <= numbers[-1]
    )
    what = "two numbers, the lower one first, in" if is_pair else "in"
    check_argument(is_right, name, value, f"{what} {interval}")
    if is_pair:
        return tuple(type(default[0])(x) for x in numbers)
    return type(default)(value)


def is_ours(function):
    """Whether a function or method is of this package, not a user's."""
    return (getattr(function, "__module__", "") or "").startswith("effdet_keras.")


def with_autograph(function):
    """Inside a graph, a user's function whose `if` and `for` may ask tensors."""
    if tf.executing_eagerly() or is_ours(function):
        return function
    return tf.function(function)


def tidy(example, dtype):
    """An example as every augmentation returns it: boxes inside, with an area."""
    image = to_dtype(tf.convert_to_tensor(example["image"]), tf.as_dtype(dtype))
    boxes, labels = as_boxes(example["boxes"]), as_labels(example["labels"])
    boxes = tf.clip_by_value(boxes, 0.0, tf.tile(tf.stack(size_of(image)), [2]))
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


def _tensors(example):
    rule = '`example` must have the keys "image", "boxes" and "labels"'
    require({*_KEYS} <= {*example}, rule, keys=sorted(example))
    boxes, labels = as_boxes(example["boxes"]), as_labels(example["labels"])
    image = tf.convert_to_tensor(example["image"])
    return {**example, "image": image, "boxes": boxes, "labels": labels}


# --- Several augmentations as one, and one that happens sometimes.


@register
class Compose(Augmentation):
    """Applies augmentations one after the other, as a plain list of them does."""

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


class OfAnother(Augmentation):
    """What does something with one other augmentation."""

    augmentation: Augmentation

    @property
    def num_images(self) -> int:
        return self.augmentation.num_images

    @property
    def keeps_masks(self) -> bool:
        return self.augmentation.keeps_masks


@register
class Sometimes(OfAnother):
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
        self.probability = checked("probability", probability, "[0, 1]", 0.5)

    def augment(self, example: Example | list[Example], seed: Any) -> Example:
        first = example if self.num_images == 1 else example[0]
        _, inner = draws.split(seed, 2)
        keys = (*_KEYS, "mask") if "mask" in first else _KEYS

        def applied():
            result = self.augmentation(example, inner)
            return tuple(result[key] for key in keys)

        def unchanged():
            same = tidy({key: first[key] for key in keys}, first["image"].dtype)
            return tuple(same[key] for key in keys)

        return dict(zip(keys, tf.cond(self.happens(seed), applied, unchanged)))

    def happens(self, seed: Any) -> Any:
        """Whether it applies with this seed, a bool tensor."""
        of_coin, _ = draws.split(seed, 2)
        return draws.uniform(of_coin) < self.probability

    def get_config(self):
        config = {"augmentation": _serialized(self.augmentation)}
        return {**config, "probability": self.probability}

    @classmethod
    def from_config(cls, config):
        return cls(_deserialized(config["augmentation"]), config["probability"])

    def __repr__(self):
        return f"Sometimes({self.augmentation!r}, probability={self.probability})"


def as_augmentation(augment):
    """An `Augmentation` of one, of a list of them, or of a function of a user."""
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


# --- Functions of users: of tensors, and of arrays.


class _OfFunction(Augmentation):
    """What has one argument, a function."""

    function: Any

    def get_config(self):
        return {"function": self.function}

    @property
    def name(self) -> str:
        """The name of the function, for messages."""
        return getattr(self.function, "__name__", None) or repr(self.function)


class UserFunction(_OfFunction):
    """Calls `function(example, seed)` and checks what it returns."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def augment(self, example: Example, seed: Any) -> Example:
        result = with_autograph(self.function)(dict(example), seed)
        if not isinstance(result, dict) or not {*_KEYS} <= {*result}:
            received = sorted(result) if isinstance(result, dict) else type(result)
            raise InvalidTypeError(
                f"The augmentation {self.name!r} must return a dict with the keys "
                f'"image", "boxes" and "labels". Received: {received}'
            )
        # What is known before any image is read.
        shapes = (tf.convert_to_tensor(result[key]).shape for key in _KEYS)
        if fault := fault_of_shapes(*shapes):
            raise InvalidValueError(f"The augmentation {self.name!r} returned {fault}")
        return result

    def __repr__(self):
        return self.name


@register
class FromNumPy(_OfFunction):
    """Lets a function of NumPy arrays augment, your own or another library's.

    The function runs in Python, one image at a time, so it is slower than the
    augmentations of this package. The guide shows Albumentations through it.

    Args:
        function: callable `(image, boxes, labels, rng) -> (image, boxes, labels)`.
            `image` is uint8 `[H, W, 3]`, `boxes` float32 `[n, 4]`, `yxyx` in pixels
            of it, `labels` int32 `[n]`, and `rng` a `numpy.random.Generator` of its
            own for each image, so that a seed repeats its augmentation. The result may
            have another size, and fewer or more boxes, with one label for each.

    Raises:
        TypeError: If `function` cannot be called.

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
        rule = "`function` must be callable as (image, boxes, labels, rng)"
        require(callable(function), rule, InvalidTypeError, function=function)
        self.function = function

    def augment(self, example: Example, seed: Any) -> Example:
        return self._called(self._call_function, example, seed)

    def _called(self, function, example, seed, *more):
        """The example with what `function` makes of its arrays, in Python."""
        image = to_dtype(example["image"], tf.uint8)
        arguments = [*more, image, example["boxes"], example["labels"], seed]
        dtypes = (tf.uint8, tf.float32, tf.int32)
        arrays = tf.numpy_function(function, arguments, dtypes)
        shaped = {
            key: tf.ensure_shape(array, _SHAPES[key])
            for key, array in zip(_KEYS, arrays)
        }
        return {**example, **shaped}

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
        dtypes = (None, "float32", "int32")
        image, boxes, labels = map(np.asarray, result, dtypes)
        fault = fault_of(image.shape, boxes, labels)
        if fault is None and image.dtype != np.uint8:
            fault = f"an image of dtype {image.dtype}; expected uint8"
        if fault is not None:
            raise InvalidValueError(f"The function {self.name!r} returned {fault}")
        return image, boxes.reshape(-1, 4), labels.reshape(-1)

    def __repr__(self):
        return f"FromNumPy({self.name})"


def fault_of(image_shape, boxes, labels):
    """Says what is wrong with the arrays that a function returned, or None."""
    if fault := fault_of_shapes(image_shape, boxes.shape, labels.shape):
        return fault
    boxes = boxes.reshape(-1, 4)
    rules = {
        "boxes must be finite": ~np.isfinite(boxes),
        "boxes are (y_min, x_min, y_max, x_max)": boxes[:, 2:] < boxes[:, :2],
    }
    for rule, is_wrong in rules.items():
        if is_wrong.any():
            return f"the box {boxes[is_wrong.any(axis=1)][0].tolist()}; {rule}"
    return None


def fault_of_shapes(image, boxes, labels):
    """Says what is wrong with shapes, whose unknown sides are None, or None."""
    image, boxes, labels = map(tf.TensorShape, (image, boxes, labels))
    if not image.is_compatible_with(_SHAPES["image"]) or image.num_elements() == 0:
        return f"an image of shape {image.as_list()}; expected [H, W, 3]"
    has_boxes, has_labels = (x.num_elements() != 0 for x in (boxes, labels))
    if has_boxes and not boxes.is_compatible_with(_SHAPES["boxes"]):
        return f"boxes of shape {boxes.as_list()}; expected [n, 4]"
    one_each = boxes[:1] if has_boxes else tf.TensorShape([0])
    if not one_each.is_compatible_with(labels if has_labels else [0]):
        return (
            f"{one_each[0]} boxes, but labels of shape {labels.as_list()}; expected "
            "one label for each box"
        )
    return None
