"""Checks and measures the data of `fit`, and explains why a batch is rejected."""

from __future__ import annotations

import contextlib
import inspect
import os
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from effdet_keras._internal.backend import runs_on_processors
from effdet_keras._internal.number_ranges import NumberRange
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras._internal.processes import current_processes
from effdet_keras.box_ops import as_tensor
from effdet_keras.data.dataset import (
    DetectionDataset,
    require_boxes,
    what_to_expect,
)
from effdet_keras.data.pipeline.image_reader import ImageReader, find_image_readers
from effdet_keras.data.pipeline.numpy_batches import ENDLESS
from effdet_keras.errors import (
    InvalidTypeError,
    InvalidValueError,
    NonFiniteLossError,
    require,
)
from effdet_keras.images import check_pixels
from effdet_keras.labels import (
    BACKGROUND,
    IGNORED_PIXEL,
    category_ids_or_default,
    extend_category_ids,
)
from effdet_keras.train.optimizers import steps_done


def require_single_process(what: str) -> None:
    """Raises ValueError if several processes run: all would do the same, and wait."""
    if current_processes().count > 1:
        raise InvalidValueError(
            f"{what} cannot divide its work among several processes. To compute losses "
            "and AP with several processes, use the callback `COCOEvaluation(dataset, "
            "losses=True)` or its method `evaluate(model)`."
        )


def warn_if_nothing_is_left(
    epochs: int, initial_epoch: int | None, position: Any
) -> None:
    """Warns if `fit` would train no epoch.

    If `fit` resumes from a checkpoint, `print_resume_message` has already warned.
    """
    if position is None and initial_epoch and initial_epoch >= epochs:
        warnings.warn(
            f"There is nothing to train from `initial_epoch={initial_epoch}` to "
            f"`epochs={epochs}`: `epochs` is the number of the last epoch, not the "
            "number of epochs to add.",
            stacklevel=3,
        )


def split_validation(x: Any, y: Any, fraction: float) -> tuple[Any, Any, tuple]:
    """Splits arrays as Keras' `validation_split`: the last part is for validation.

    `fit` splits here and not in Keras, so that the learning-rate schedule gets the
    length of a training on the remaining images.

    Args:
        x: array of images `[N, H, W, 3]`.
        y: dict of arrays of ground truth with the same first axis.
        fraction: float in (0, 1), the fraction of images for validation.

    Returns:
        Tuple of the training images, their ground truth, and the pair of validation
        images and their ground truth.

    Raises:
        ValueError: If the data is not arrays, or one of the two parts would be empty.
    """
    require(
        hasattr(x, "shape") and isinstance(y, Mapping),
        "`validation_split` works only with arrays. Split a `DetectionDataset` with "
        "`train, valid = dataset.split(0.8)`, and batches with `take` and `skip`",
        x_type=type(x).__name__,
    )
    count = int(len(x) * (1.0 - fraction))
    rule = (
        "`validation_split` must leave at least one image for training and one for "
        "validation"
    )
    require(0 < count < len(x), rule, validation_split=fraction, images=len(x))
    first = {name: values[:count] for name, values in y.items()}
    last = {name: values[count:] for name, values in y.items()}
    return x[:count], first, (x[count:], last)


def check_data(model, x, y=None, *, trains=False):
    """Raises ValueError if `model` cannot use the data `x`. Draws no batch of a stream.

    With `trains`, the data must also contain boxes, if that can be known here.
    """
    config = model.config
    for reader in find_image_readers(x):
        if config.has_detection:
            if trains:
                require_boxes(reader.records, "a dataset")
            names = reader.class_names, model.class_names
            _check_classes("classes", "class_names", *names, config.num_classes)
        if config.has_segmentation and reader.seg_class_names is not None:
            names = reader.seg_class_names, model.seg_class_names
            count = config.seg_num_classes
            _check_classes("classes of pixels", "seg_class_names", *names, count)
    refuse_other_forms(x, y)
    require(
        not (x is None or isinstance(x, (str, list, tuple, dict))),
        "`fit` and `evaluate` take a `DetectionDataset`, as "
        "`effdet_keras.data.load(path)` returns it; batches of `(images, ground "
        "truth)`; or arrays, which are images `[B, H, W, 3]` and a dict of ground "
        "truth",
        x_type=type(x).__name__,
    )
    if hasattr(x, "element_spec"):  # tf.data
        spec = x.element_spec
        refuse_other_forms(spec)
        size = int(x.cardinality())
        require(size != 0, "The dataset is empty", cardinality=size)
        _check_images(model, keras.tree.flatten(spec)[0].shape)
        if isinstance(spec, tuple) and len(spec) > 1 and isinstance(spec[1], Mapping):
            _check_shapes(spec[1], config)
    elif hasattr(x, "shape"):
        _check_arrays(model, x, y, trains)
    elif hasattr(x, "__len__"):
        require(len(x) > 0, "The dataset is empty", length=len(x))
        if isinstance(x, keras.utils.PyDataset):
            refuse_other_forms(x[0])


def check_images_of_predict(model: Any, x: Any) -> None:
    """Raises an error for data that `predict` cannot take. Draws no batch of a stream.

    Raises:
        ValueError: If there are no images, or they have another size than the model's.
        TypeError: If `x` is a path, a list of paths, or None.
    """
    paths = x if isinstance(x, (list, tuple)) else [x]
    require(
        not any(one is None or isinstance(one, (str, os.PathLike)) for one in paths),
        "`predict` takes a `DetectionDataset`, an array of images `[B, H, W, 3]` in "
        "the size of the model's input, or batches of such arrays. For paths, and for "
        "images of any size, use `detect`",
        InvalidTypeError,
        x=x,
    )
    if hasattr(x, "element_spec"):  # tf.data
        size = int(x.cardinality()) if hasattr(x, "cardinality") else None
        require(size != 0, "The dataset is empty", cardinality=size)
        _check_images(model, keras.tree.flatten(x.element_spec)[0].shape)
    elif hasattr(x, "shape"):
        _check_array_of_images(model, x)
    elif hasattr(x, "__len__"):
        require(len(x) > 0, "The dataset is empty", length=len(x))


def is_endless(data: Any) -> bool:
    """Returns whether data is a `tf.data.Dataset` or the like that repeats for ever."""
    return hasattr(data, "cardinality") and int(data.cardinality()) == ENDLESS


def require_end(data: Any, argument: str, steps: int | None) -> None:
    """Raises ValueError for a `tf.data.Dataset` that never ends, without `steps`.

    `argument` is the name of `steps`. Keras would draw batches for ever.
    """
    require(
        steps is not None or not is_endless(data),
        f"The dataset repeats without end: pass `{argument}`, or leave out `repeat()`",
        **{argument: steps},
    )


# Arguments of `fit`, `evaluate` and `predict` that are numbers. None is Keras' default.
_LENGTHS = {
    "batch_size": NumberRange("[1, inf)", whole=True, others=(None,)),
    "epochs": NumberRange("[0, inf)", whole=True, others=(None,)),
    "initial_epoch": NumberRange("[0, inf)", whole=True, others=(None,)),
    "steps": NumberRange("[1, inf)", whole=True, others=(None,)),
    "steps_per_execution": NumberRange("[1, inf)", whole=True),
    "steps_per_epoch": NumberRange("[1, inf)", whole=True, others=(None,)),
    "validation_split": NumberRange("[0, 1)", others=(None,)),
    "validation_steps": NumberRange("[1, inf)", whole=True, others=(None,)),
    "validation_batch_size": NumberRange("[1, inf)", whole=True, others=(None,)),
    "validation_freq": NumberRange(
        "[1, inf)", whole=True, form="number or sequence", others=(None,)
    ),
}


def check_lengths(**arguments: Any) -> None:
    """Raises ValueError for an argument out of its range. Skips unknown arguments.

    Example:
        >>> check_lengths(batch_size=0, shuffle=True)
        Traceback (most recent call last):
            ...
        effdet_keras.errors.InvalidValueError: `batch_size` must be a whole number of \
at least 1, or None. Received: batch_size=0
    """
    for name, value in arguments.items():
        if name in _LENGTHS:
            _LENGTHS[name].check(name, value)


def print_training_hints(model, data):
    """Prints hints before the first step.

    One is about the time that XLA needs to compile on CPUs. Others, for a new training
    on a `DetectionDataset`, are about few images or few boxes of a class.
    """
    compiles = model.jit_compile and not model.run_eagerly
    if compiles and model.train_function is None and runs_on_processors():
        print(
            "With `jit_compile=True`, XLA compiles the training step before it runs "
            "for the first time. On CPUs that takes a minute or more for small "
            "models, and many minutes for large models or on a busy machine; nothing "
            'is printed meanwhile. With `compile(jit_compile="auto")` training begins '
            "at once.",
            flush=True,
        )
    is_new = model.settings is not None and not steps_done(model.optimizer)
    if is_new and isinstance(data, DetectionDataset):
        for sentence in what_to_expect(data):
            print(sentence, flush=True)


_KERAS_CV_CONVERSION = """\
Batches of KerasCV and KerasHub hold boxes in a format that only you know. These lines \
make `(images, ground truth)` of them, here of "xyxy" in pixels of the input:

    def convert(images, truth):
        x0, y0, x1, y1 = tf.unstack(tf.cast(truth["boxes"], "float32"), axis=-1)
        return images, {"boxes": tf.stack([y0, x0, y1, x1], -1), "labels": truth["%s"]}
    data = data.map(%s)
"""
_RAGGED_CONVERSION = """\
Ragged boxes or labels must be padded, labels with -1:

    def convert(images, truth):
        padded = {"boxes": truth["boxes"].to_tensor(), "labels": \
truth["labels"].to_tensor(-1)}
        return images, padded
    data = data.map(convert)
"""
_RAGGED_IMAGES = (
    "Images of different sizes must be resized to the model's `image_size`, together "
    "with their boxes. A `DetectionDataset` does that: see `ek.data.from_arrays` and "
    "`effdet_keras.data.load`"
)


def refuse_other_forms(x: Any, y: Any = None) -> None:
    """Raises ValueError for batches in the format of KerasCV, and for ragged batches.

    The message contains code that converts them. `x` and `y` are data, or a
    description of data such as the `element_spec` of `tf.data`.
    """
    pair = x if isinstance(x, tuple) and len(x) > 1 else (x, y)
    images, truth = pair[0], pair[1]
    is_whole = isinstance(images, Mapping) and "bounding_boxes" in images
    if is_whole:  # {"images", "bounding_boxes"}
        truth = images["bounding_boxes"]
    if isinstance(truth, Mapping) and "bounding_boxes" in truth:
        is_whole, truth = True, truth["bounding_boxes"]
    if not isinstance(truth, Mapping):
        return
    is_ragged = any(_is_ragged(values) for values in truth.values())
    names = {"boxes", "labels"} <= set(truth)
    if is_whole or ("classes" in truth and not names):
        labels = "labels" if "labels" in truth else "classes"
        convert = "convert"
        if is_whole:
            convert = 'lambda x: convert(x["images"], x["bounding_boxes"])'
        dense = "Ragged ones first need `.to_tensor()`, labels `.to_tensor(-1)`. "
        raise InvalidValueError(
            f"{_KERAS_CV_CONVERSION % (labels, convert)}{dense if is_ragged else ''}"
            f"Received: keys={sorted(truth)}"
        )
    if _is_ragged(images):
        raise InvalidValueError(_RAGGED_IMAGES)
    if is_ragged:
        ragged = sorted(name for name, values in truth.items() if _is_ragged(values))
        raise InvalidValueError(f"{_RAGGED_CONVERSION}Received: ragged={ragged}")


def _is_ragged(values):
    """Whether values are a `tf.RaggedTensor`, its spec, or rows of several lengths."""
    if "Ragged" in type(values).__name__:
        return True
    if isinstance(values, np.ndarray):
        return values.dtype == object
    is_list = isinstance(values, (list, tuple))
    return is_list and len({len(v) for v in values if hasattr(v, "__len__")}) > 1


def check_truth(truth, sample_weight, config):
    """Raises ValueError unless the ground truth of a batch has what the heads need."""
    refuse_other_forms(None, truth)
    refuse_sample_weight(sample_weight)
    keys = set(truth if isinstance(truth, dict) else ())
    require(
        "masks" in keys or not config.has_segmentation,
        "A model with a segmentation head needs 'masks' `[B, H, W]` in the ground "
        "truth: the class of each pixel, and 255 for pixels without a class. A "
        "dataset has masks if you read it with `from_coco(..., masks=True)` or call "
        "`dataset.with_masks(folder, names)`",
        keys=sorted(keys) or type(truth),
    )
    require(
        {"boxes", "labels"} <= keys or not config.has_detection,
        "The ground truth of a batch must be a dict with 'boxes' `[B, M, 4]` (yxyx, "
        "in pixels) and 'labels' `[B, M]` (-1 for padding)",
        keys=sorted(keys) or type(truth),
    )
    if keys:
        _check_shapes(truth, config)


_NUMBERS_OF_BOXES = {
    "boxes": "numbers `[B, M, 4]`: `M` boxes in each of `B` images",
    "labels": "class numbers `[B, M]`: one for each box, and not one-hot",
    "weights": "numbers `[B, M]`: one for each box",
}


def _check_shapes(truth, config):
    """Raises ValueError for ground truth that is text or has a wrong shape.

    The values of `truth` are arrays, tensors, or specs of tensors. Unknown dimensions
    are not checked.
    """
    rules = {}
    if config.has_detection:
        rules = _NUMBERS_OF_BOXES
    if config.has_segmentation:
        rules = {**rules, "masks": "numbers `[B, H, W]`: one for each pixel"}
    shapes = {name: _shape_of(truth[name]) for name in rules if name in truth}
    rows = (shapes.get("boxes") or (None, None))[:2]
    for name, shape in shapes.items():
        expected = {"boxes": (None, None, 4), "masks": (None,) * 3}.get(name, rows)
        is_right = shape is None or (
            len(shape) == len(expected)
            and all(None in pair or pair[0] == pair[1] for pair in zip(shape, expected))
        )
        require(
            is_right and not _is_text(truth[name]),
            f"'{name}' of the ground truth must be {rules[name]}",
            dtype=getattr(truth[name], "dtype", None),
            **shapes,
        )


def _shape_of(values):
    """Returns a shape as a tuple; None for a list, or if the rank is not known."""
    shape = getattr(values, "shape", None)
    is_known = shape is not None and getattr(shape, "rank", 0) is not None
    return tuple(shape) if is_known else None


def _is_text(values):
    dtype = getattr(values, "dtype", None)
    dtype = getattr(dtype, "as_numpy_dtype", dtype)  # of TensorFlow
    return dtype is object or getattr(dtype, "kind", "f") in "USO"


def refuse_sample_weight(sample_weight: Any) -> None:
    """Raises ValueError if Keras passes weights of images."""
    rule = (
        "`EfficientDet` does not accept `sample_weight`: put `weights` into the "
        "ground truth instead"
    )
    require(sample_weight is None, rule, type=type(sample_weight))


def batch_size_and_steps(x, batch_size, steps_per_epoch, *, must_know=True):
    """Returns the images per step and the steps per epoch of data that `fit` takes.

    The images per step are those of all processes together. If the data does not tell
    a number, it is 1 with `must_know=False`, and otherwise a ValueError is raised.
    """
    if hasattr(x, "element_spec"):  # tf.data
        batch = keras.tree.flatten(x.element_spec)[0].shape[0]
        if batch is None:
            first = next(iter(x), None)
            require(first is not None, "The dataset is empty", x=x)
            batch = len(keras.tree.flatten(first)[0])
        steps = int(x.cardinality())
    elif hasattr(x, "shape"):  # arrays
        batch = batch_size or 32
        steps = -(-len(x) // batch)
    elif hasattr(x, "__len__"):
        steps, batch = len(x), getattr(x, "batch_size", batch_size)  # a DataLoader
        if hasattr(x, "__getitem__"):  # keras.utils.PyDataset
            batch = len(keras.tree.flatten(x[0])[0])
    else:
        batch, steps = batch_size, -1
    steps = steps_per_epoch or steps
    if not must_know:
        batch, steps = batch or 1, max(steps, 1)
    require(
        batch is not None and steps >= 1,
        "The learning-rate schedule needs the batch size and the number of steps per "
        "epoch, which cannot be read from this data: pass `steps_per_epoch` (and "
        "`batch_size`) to `fit`, or call `compile` with a schedule or an optimizer of "
        "your own",
        x=x,
    )
    # Each of several processes has its share of a batch.
    return batch * current_processes().count, steps


def num_images(x, batch_size, steps_per_epoch):
    """Returns the number of training images.

    If the data does not tell it, it is `batch_size * steps_per_epoch`.
    """
    if readers := find_image_readers(x):
        return sum(len(reader.records) for reader in readers)
    return len(x) if hasattr(x, "shape") else batch_size * steps_per_epoch


def _check_classes(what, argument, names, known, count):
    """Raises ValueError if a label has different class names in dataset and model."""
    names = tuple(names)
    known = (None,) * count if known is None else tuple(known)
    if len(names) > count or any(
        other not in (None, name) for name, other in zip(names, known)
    ):
        raise InvalidValueError(
            f"The dataset and the model must have the same {what} in the same order. "
            f"Received: a dataset with {len(names)}: {', '.join(names[:8])}; a model "
            f"with {count}: {', '.join(map(str, known[:8]))}. Make the model with "
            f"`{argument}=dataset.{argument}`, or read the dataset with "
            f"`{argument}=model.{argument}`."
        )


def _check_arrays(model, images, truth, trains):
    """Raises ValueError if images and ground truth cannot be used with the model."""
    _check_array_of_images(model, images)
    check_truth(truth, None, model.config)
    no_arrays = [n for n, v in truth.items() if not hasattr(v, "shape") or _is_text(v)]
    rule = (
        "Each entry of the ground truth must be an array of numbers, as `np.array` "
        "makes it of a list"
    )
    require(not no_arrays, rule, **{n: type(truth[n]).__name__ for n in no_arrays})
    fault = explain_batch(truth, model.config)
    if fault is not None:
        raise InvalidValueError(f"{fault}.")
    if trains and model.config.has_detection:
        labels = ops.convert_to_numpy(truth["labels"])
        has_box = ops.convert_to_numpy(truth["boxes"]).any(axis=-1)
        require(
            bool(((labels >= 0) & has_box).any()),
            "The ground truth has no box, so there is nothing to learn: all rows are "
            "padding (label -1, or a box of four zeros)",
            labels=labels.shape,
        )


def _check_array_of_images(model, images):
    """Raises ValueError for an array without images, or of images of another size."""
    if not len(images):
        raise InvalidValueError(
            f"The array `x` has no images. Received: x.shape={images.shape}"
        )
    _check_images(model, images.shape)


def _check_images(model, shape):
    """Raises ValueError for the shape of a batch that does not fit the model's input.

    Unknown dimensions of `shape` are None.
    """
    expected = (None, *model.config.image_size, 3)
    if getattr(shape, "rank", 4) is None:
        return
    require(
        len(shape) == 4
        and all(None in pair or pair[0] == pair[1] for pair in zip(shape, expected)),
        "Images must come in batches (`.batch(size)` makes them), and their size must "
        "be the model's `image_size`: set `image_size` in `batches` or in "
        "`from_preset`",
        expected=expected,
        shape=tuple(shape),
    )


# --- Checks of the pixels of the first batch, without drawing an extra batch.

_SPREAD = 16  # number of evenly spaced images of an array that are checked


def with_checked_pixels(data: Any, context: ErrorContext) -> Any:
    """Returns the data of a call, in which the context checks the first batch.

    Arrays (16 of their images) and a `keras.utils.PyDataset` are checked here. A
    `tf.data.Dataset` and a generator are checked when they yield their first batch. Of
    a torch `DataLoader`, the first example of its dataset is checked.

    Pixels that are not finite are not an error here during training: the training step
    itself rejects them, and its error names the images.
    """
    if isinstance(data, (dict, list, tuple)) or data is None:
        return data
    if hasattr(data, "element_spec"):  # tf.data; a distributed dataset is not checked
        return (
            _tf_data_with_check(data, context) if hasattr(data, "enumerate") else data
        )
    if hasattr(data, "shape"):
        step = max(1, len(data) // _SPREAD)
        context.check_pixels(data[::step][:_SPREAD], "the images")
    elif inspect.isgenerator(data):
        return _generator_with_check(data, context)
    elif isinstance(data, keras.utils.PyDataset):
        context.check_pixels(_images_of(data[0]), "the first batch")
    elif hasattr(getattr(data, "dataset", None), "__getitem__"):  # a DataLoader
        example = _images_of(data.dataset[0])
        if hasattr(example, "shape"):
            context.check_pixels(example, "the first image")
    return data


def with_checked_validation_pixels(validation_data: Any, context: ErrorContext) -> Any:
    """Applies `with_checked_pixels` to the `validation_data` of `fit`, also a tuple."""
    if not isinstance(validation_data, (list, tuple)):
        return with_checked_pixels(validation_data, context)
    x, *rest = validation_data
    return (with_checked_pixels(x, context), *rest)


def _images_of(batch):
    return keras.tree.flatten(batch)[0]


def _generator_with_check(batches, context):
    first = next(batches, None)
    if first is not None:
        context.check_pixels(_images_of(first), "the first batch")
        yield first
        yield from batches


def _tf_data_with_check(data, context):
    """Returns a `tf.data.Dataset` that checks only its first batch, in Python."""

    def check(images):
        context.check_pixels(images, "the first batch")
        return np.int64(0)

    def passed(index, *batch):
        structure = batch[0] if len(batch) == 1 else batch
        images = _images_of(structure)

        def look():
            return tf.numpy_function(check, [images], tf.int64)

        with tf.control_dependencies([tf.cond(index > 0, lambda: index, look)]):
            return keras.tree.map_structure(tf.identity, structure)

    # AutoGraph is not needed here: it is for code that users write.
    passed = tf.autograph.experimental.do_not_convert(passed)
    return data.enumerate().map(lambda index, batch: passed(index, batch))


# --- Rules for the ground truth of a batch, and explanations of what breaks them.


def is_valid_batch(truth, config):
    """Returns whether the ground truth of a batch is valid, as a bool scalar.

    All labels must be whole numbers below `num_classes`. A row with the label -1, or
    with four zeros as its box, is padding, and its box is not checked. A label below -1
    is allowed only with four zeros.

    Boxes must be finite, must not end before they begin, must have their center in the
    image, and must be in pixels. If a batch has two or more boxes, and all lie between
    0 and 1, they are taken for normalized boxes, which are wrong. `weights` of boxes
    must be finite and at least 0.

    Pixels of `masks` must be whole numbers from 0 to below `seg_num_classes`, or 255.
    """
    wrong = []
    if config.has_detection:
        faults = list(_faults(truth, config).values())
        wrong.append(ops.any(ops.stack(faults)))
    if config.has_segmentation:
        pixels = _wrong_pixels(truth["masks"], config.seg_num_classes)
        wrong.append(ops.any(pixels))
    return ops.logical_not(ops.any(ops.stack(wrong)))


def explain_batch(truth, config):
    """Returns a text about the first rule of `is_valid_batch` that a batch breaks.

    It is None if the batch is valid.
    """
    checked = {"boxes", "labels", "weights", "masks"} & set(truth)
    truth = {name: ops.convert_to_numpy(truth[name]) for name in checked}
    faults = _faults(truth, config) if config.has_detection else {}
    for rule, rows in faults.items():
        for image, row in np.argwhere(ops.convert_to_numpy(rows)).tolist():
            box = truth["boxes"][image, row].tolist()
            weight = ""
            if "weights" in truth:
                weight = f" and weight {truth['weights'][image, row]}"
            return (
                f"{rule}. Received: label {truth['labels'][image, row]} with box {box}"
                f"{weight} in row {row} of image {image}"
            )
    if config.has_segmentation:
        wrong = _wrong_pixels(truth["masks"], config.seg_num_classes)
        for image, row, column in np.argwhere(ops.convert_to_numpy(wrong)).tolist():
            return (
                "Each pixel of a mask must be a class, a whole number from 0 to "
                f"{config.seg_num_classes - 1} (the model's `seg_num_classes` is "
                f"{config.seg_num_classes}), or {IGNORED_PIXEL} for no class. "
                f"Received: {truth['masks'][image, row, column]} in row {row}, column "
                f"{column} of mask {image}"
            )
    return None


def _wrong_pixels(masks, num_classes):
    given = ops.convert_to_tensor(masks)
    masks = ops.cast(given, "int32")
    is_known = ((masks >= 0) & (masks < num_classes)) | (masks == IGNORED_PIXEL)
    # The cast truncates 0.7 to 0, which is another class.
    return ~(is_known & (given == ops.cast(masks, given.dtype)))


def _faults(truth, config):
    """Returns a dict from the text of each rule to a mask of the rows that break it.

    The masks are bool `[B, M]`.
    """
    image_size, num_classes = config.image_size, config.num_classes
    boxes = as_tensor(truth["boxes"])
    given = ops.convert_to_tensor(truth["labels"])
    labels = ops.cast(given, "int32")
    low, high = ops.split(boxes, 2, axis=-1)
    # NaN is not equal to 0, so a row with NaN counts as used.
    has_box = ops.any(boxes != 0.0, axis=-1)
    used = (labels >= 0) & has_box
    center = (low + high) / 2
    limit = ops.convert_to_tensor(image_size, dtype="float32")
    inside = ops.all((center >= 0.0) & (center <= limit), axis=-1)
    finite = ops.all(ops.isfinite(boxes), axis=-1)
    tiny = ops.all((boxes >= 0.0) & (boxes <= 1.0), axis=-1)
    # One such box may be the rest of an object after a crop; two are no accident.
    all_tiny = ops.all(tiny | ~used) & (ops.sum(ops.cast(used, "int32")) > 1)
    faults = {
        "Labels must be whole numbers": given != ops.cast(labels, given.dtype),
        "Labels must start at 0, and be -1 only in rows of padding": (
            (labels < BACKGROUND) & has_box
        ),
        "Labels must start at 0 and be below the model's `num_classes`, "
        f"{num_classes}": labels >= num_classes,
        "Boxes must be finite numbers": used & ~finite,
        "Boxes must be `yxyx`, which is top, left, bottom, right; this box ends "
        "before it begins": used & ops.any(high < low, axis=-1),
        "Boxes must be `yxyx` in pixels of the model's input, whose (height, width) "
        f"is {tuple(image_size)}; the center of this box lies outside. Are x and y "
        "swapped, or do the boxes belong to the image before it was resized?": (
            used & finite & ~inside
        ),
        "Boxes must be in pixels, but all boxes of this batch lie between 0 and 1. "
        "Multiply them by the height and width of the input": used & all_tiny,
    }
    if "weights" in truth:
        weights = as_tensor(truth["weights"])
        is_weight = ops.isfinite(weights) & (weights >= 0.0)
        faults["`weights` must be finite numbers of at least 0"] = used & ~is_weight
    return faults


# --- The errors of one call of `fit`, `evaluate` or `predict`.


class ErrorContext:
    """Makes errors of one call of `fit`, `evaluate` or `predict` understandable.

    It knows the data of the call, so that errors can name images.

    Args:
        data: the data of the call, or None.
    """

    # Whether the call trains. Errors then add that the batch did not change the model.
    trains = False

    def __init__(self, data: Any = None) -> None:
        self._readers: list[ImageReader] = list(find_image_readers(data))
        # The error that stopped a step. The backend may wrap it in an error of its own.
        self._error = None
        for reader in self._readers:
            reader.error = None

    def check_pixels(self, images: Any, what: str) -> None:
        """Checks a batch with `images.check_pixels`, and remembers the error.

        `plain_errors` raises the remembered error if the backend has wrapped it. During
        training, pixels that are not finite are left to the training step.
        """
        pixels = ops.convert_to_numpy(images) if ops.is_tensor(images) else images
        pixels = np.asarray(pixels)
        if self.trains and pixels.dtype.kind == "f" and not np.isfinite(pixels).all():
            return
        try:
            check_pixels(pixels, what)
        except InvalidValueError as error:
            ending = " This batch did not change the model." if self.trains else ""
            self._error = InvalidValueError(f"{error}{ending}")
            raise self._error from None

    @contextlib.contextmanager
    def plain_errors(self) -> Iterator[None]:
        """Context that raises the original error of a step.

        Without it, the error of the backend would be raised, which wraps the original.
        """
        try:
            yield
        except Exception as error:
            errors = [self._error, *(reader.error for reader in self._readers)]
            errors.append(current_processes().plain_error(error))
            plain = next((e for e in errors if e is not None), error)
            if plain is error:
                raise
            raise plain from None

    def refusal(self, truth: dict | None, config: Any, step: int | None) -> Exception:
        """Returns the error for a batch whose loss is NaN or infinite.

        Args:
            truth: ground truth of the batch, or None if it is not known which batch it
                was.
            config: `EfficientDetConfig`.
            step: int, the 1-based training step. None for an evaluation.

        Returns:
            `InvalidValueError` if the ground truth is wrong, else `NonFiniteLossError`.
        """
        where = "an evaluation step" if step is None else f"training step {step}"
        if truth is None:
            fault = None
            batch = (
                f"It is the batch of {where} or of another step that ran together with "
                "it. Compile with `steps_per_execution=1` to see its images"
            )
        else:
            fault = explain_batch(truth, config)
            batch = f"The batch of {where} {self._names(truth.get('image_id'))}"
        if fault is not None:
            self._error = InvalidValueError(
                f"{fault}. {batch}. This batch did not change the model."
            )
            return self._error
        error = NonFiniteLossError(
            "The loss is not finite, or its gradients or the statistics of batch norm "
            f"are not. {batch}. This batch did not change the model, which can still "
            "be saved. Usual causes: a learning rate that is too high for the batch "
            "size; no `clip_norm`; float16, where bfloat16 could hold the values; or "
            "pixels that are not finite or far outside of 0 to 255."
        )
        # Another replica may have found before that its ground truth is wrong. That
        # error explains more, so it is kept.
        self._error = self._error or error
        return error

    def _names(self, image_ids):
        if image_ids is None:
            return "names no images (its ground truth has no 'image_id')"
        ids = ops.convert_to_numpy(image_ids).reshape(-1).tolist()
        if len(self._readers) == 1:
            return f"has the images {', '.join(map(self._readers[0].name_of, ids))}"
        return f"has the images with `image_id` {', '.join(map(str, ids))}"


# --- A model takes the class names and category ids of its training dataset.


def adopt_classes(model: Any, data: Any) -> None:
    """Gives a model the class names and category ids of its dataset.

    - A segmentation head without `seg_class_names` takes those of the dataset, if their
      number fits.
    - A model that has `category_ids` changes nothing else, and neither does data
      without a dataset or of datasets with different classes.
    - A model without `class_names` takes names and ids, if their number fits.
    - A model with the same names takes the ids.
    - A model whose names include all of the dataset's takes the dataset's ids for these
      classes, if one differs from the default id. Its other classes get unused ids.
    """
    sources = [data] if isinstance(data, DetectionDataset) else find_image_readers(data)
    _adopt_seg_class_names(model, sources)
    known = {(tuple(c.class_names), tuple(c.category_ids)) for c in sources}
    if model.category_ids is not None or len(known) != 1:
        return
    ((names, ids),) = known
    if model.class_names is None:
        if len(names) == model.num_classes:
            model.class_names, model.category_ids = names, ids
        return
    if tuple(model.class_names) == names:
        model.category_ids = ids
        return
    id_of = dict(zip(names, ids))
    default = dict(
        zip(model.class_names, category_ids_or_default(None, model.num_classes))
    )
    is_part = set(names) <= set(default)
    if is_part and any(default[name] != id_of[name] for name in names):
        model.category_ids = tuple(extend_category_ids(model.class_names, id_of))


def _adopt_seg_class_names(model, sources):
    known = {source.seg_class_names for source in sources} - {None}
    config = model.config
    if not config.has_segmentation or model.seg_class_names is not None:
        return
    if len(known) == 1 and len(names := known.pop()) == config.seg_num_classes:
        model.seg_class_names = names
