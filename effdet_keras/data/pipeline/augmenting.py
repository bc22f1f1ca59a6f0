"""Augmentations in the pipeline: their partner images, and errors that name both."""

from __future__ import annotations  # a type of TensorFlow would import it

import contextlib

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.augment.augmentation import (
    Compose,
    OfAnother,
    Sometimes,
    as_augmentation,
    fault_of,
    is_ours,
    with_autograph,
)
from effdet_keras.errors import InvalidValueError

_AUGMENT, _PARTNERS = 1, 2  # streams of random numbers beside those of the transforms
_FEW_PIXELS = 8  # boxes that end before it may be fractions of a tiny image


def prepare(augment, reader):
    """Makes one augmentation of what `batches` was given; a user's own is checked."""
    if augment is None:
        return None
    augmentation = _with_checks(as_augmentation(augment), reader)
    if reader.gives_masks and not augmentation.keeps_masks:
        raise InvalidValueError(
            f"{augmentation!r} moves, or may move, pixels but not masks. Leave it "
            "out; or pass `masks=False` to `batches` to train without masks; or, if it "
            'is your own, return "mask" as well and set `keeps_masks = True` in its '
            "class"
        )
    return augmentation


def apply(augmentation, read, index, seed, size):
    """Reads an example and, where the augmentation takes several, its partners."""
    example = read(index)
    own_seed = _fold(seed, _AUGMENT)
    if augmentation.num_images == 1:
        return augmentation(example, own_seed)
    places = partners(index, seed, augmentation.num_images - 1, size)
    others = [read(place) for place in tf.unstack(places)]
    return augmentation([example, *others], own_seed)


def partners(index, seed, count, size):
    """Draws `count` places of other images, unless there is no other."""
    if size == 1:
        return tf.fill([count], index)
    steps = tf.random.stateless_uniform(
        [count], _fold(seed, _PARTNERS), 1, size, tf.int64, alg="philox"
    )
    return (index + steps) % size


def _fold(seed, stream):
    return tf.random.fold_in(seed, stream, alg="philox")


@contextlib.contextmanager
def plain_errors(reader):
    """Raises the error of a user's function as it was, not as AutoGraph tells it."""
    try:
        yield
    except Exception:
        if reader.error is None:
            raise
        raise reader.error from None


def _with_checks(augmentation, reader):
    """The same augmentation with a check around each part that a user wrote."""
    if type(augmentation) is Compose:
        parts = [_with_checks(one, reader) for one in augmentation.augmentations]
        return Compose(parts)
    if type(augmentation) is Sometimes:
        inner = _with_checks(augmentation.augmentation, reader)
        return Sometimes(inner, augmentation.probability)
    is_tested = is_ours(augmentation.augment) and not hasattr(augmentation, "function")
    return augmentation if is_tested else _Checked(augmentation, reader)


class _Checked(OfAnother):
    """A user's augmentation, whose results are checked before they are tidied up."""

    def __init__(self, augmentation, reader):
        self.augmentation = augmentation
        self._reader = reader

    def augment(self, example, seed):
        first = example if self.num_images == 1 else example[0]
        try:
            result = with_autograph(self.augmentation.augment)(example, seed)
            image = tf.convert_to_tensor(result["image"])
            boxes = tf.cast(tf.convert_to_tensor(result["boxes"]), tf.float32)
            labels = tf.cast(tf.convert_to_tensor(result["labels"]), tf.int32)
        except Exception as error:
            reason = str(error).rstrip("\n.")  # with the lines of the user's code
            self._reader.error = InvalidValueError(
                f"The augmentation {self} failed: {type(error).__name__}: {reason}. It "
                'must return a dict with "image", "boxes" and "labels", made in '
                "TensorFlow; NumPy's go into `ek.augment.FromNumPy(function)`"
            )
            raise self._reader.error from error
        before = [tf.shape(first["image"]), first["boxes"], first["image_id"]]
        arguments = [tf.shape(image), boxes, labels, *before]
        dtypes = (tf.float32, tf.int32)
        boxes, labels = tf.numpy_function(
            self._check, arguments, dtypes, stateful=False
        )
        with tf.control_dependencies([boxes]):  # or TensorFlow complains first
            image = tf.identity(image)
        boxes = tf.ensure_shape(boxes, [None, 4])
        labels = tf.ensure_shape(labels, [None])
        return {**result, "image": image, "boxes": boxes, "labels": labels}

    def _check(self, shape, boxes, labels, shape_before, boxes_before, image_id):
        num_classes = len(self._reader.class_names)
        fault = fault_of(shape, boxes, labels)
        fault = fault or fault_of_values(
            shape, boxes, labels, num_classes, shape_before, boxes_before
        )
        if fault is not None:
            self._reader.error = InvalidValueError(
                f"The augmentation {self} returned {fault}. "
                f"It was given {self._reader.name_of(image_id)}"
            )
            raise self._reader.error
        return boxes.reshape(-1, 4), labels.reshape(-1)

    def __repr__(self):
        return repr(self.augmentation)


def fault_of_values(shape, boxes, labels, num_classes, shape_before, boxes_before):
    """Says what is wrong with labels and boxes of the right shapes, or None."""
    is_wrong = (labels < 0) | (labels >= num_classes)
    if is_wrong.any():
        last = num_classes - 1
        return f"the label {labels[is_wrong][0]}; labels are from 0 to {last}"
    # As fractions they would train, silently, on the first pixel of the image.
    is_same = 0 < len(boxes) == len(boxes_before)
    is_as_large = (shape[:2] * 4 >= shape_before[:2]).all()
    is_tiny = is_same and boxes.max() <= 1 and boxes_before[:, 2:].min() > _FEW_PIXELS
    if is_as_large and is_tiny:
        return f"the box {boxes[0].tolist()}; boxes are in pixels, not fractions"
    return None
