"""What `fit` and `evaluate` are given: checked before training, and measured."""

from __future__ import annotations

import reprlib

import keras
import numpy as np

from effdet_keras._internal.processes import current_processes
from effdet_keras.data.pipeline.image_reader import readers_of
from effdet_keras.errors import InvalidValueError
from effdet_keras.train.truth import explain_batch

_MAX_PIXEL = 1024.0  # a few times white: augmentation may go beyond 255


def check_data(model, x, y=None):
    """Raises ValueError if `model` cannot train on `x`, as far as that shows at once.

    Checks what costs nothing: shapes, class names, arrays. It draws no batch of a
    stream.
    """
    for reader in readers_of(x):
        _check_classes(model, reader)
        _check_seg_classes(model, reader)
    if x is None or isinstance(x, (str, list, tuple, dict)):
        raise InvalidValueError(
            "`fit` and `evaluate` take a `DetectionDataset`, batches of `(images, "
            "ground truth)` (`tf.data.Dataset`, `keras.utils.PyDataset`), or arrays: "
            "images `[B, H, W, 3]` and a dict of ground truth. Received: x of type "
            f"{type(x).__name__}. `effdet_keras.data.load(path)` reads files."
        )
    if hasattr(x, "element_spec"):  # tf.data
        if int(x.cardinality()) == 0:
            raise InvalidValueError("The dataset is empty: its `cardinality()` is 0.")
        _check_images(model, keras.tree.flatten(x.element_spec)[0].shape)
        _check_truth_spec(x.element_spec)
    elif hasattr(x, "shape"):
        _check_arrays(model, x, y)
    elif hasattr(x, "__len__") and len(x) == 0:
        raise InvalidValueError("The dataset is empty: its length is 0.")


def check_validation_data(model, data):
    """`check_data` for the `validation_data` of `fit`: data, or `(images, truth)`."""
    if isinstance(data, (tuple, list)):
        check_data(model, *data[:2])
    elif data is not None:
        check_data(model, data)


def check_truth(truth, sample_weight, config):
    """Raises ValueError unless the ground truth of a batch has what the heads need."""
    if sample_weight is not None:
        raise InvalidValueError(
            "`EfficientDet` does not take `sample_weight` or `class_weight`. Set "
            "`alpha` and `gamma` of `DetectionLoss` in `compile(loss=...)`."
        )
    keys = set(truth if isinstance(truth, dict) else ())
    if config.has_segmentation and "masks" not in keys:
        raise InvalidValueError(
            "A model with a segmentation head needs 'masks' `[B, H, W]` in the ground "
            "truth of a batch: the class of each pixel, 255 where it has none. "
            f"Received: {sorted(keys) or type(truth)}. Datasets have them with "
            "`from_coco(..., masks=True)` or `dataset.with_masks(folder, names)`."
        )
    if config.has_detection and not {"boxes", "labels"} <= keys:
        raise InvalidValueError(
            "The ground truth of a batch must be a dict with 'boxes' `[B, M, 4]` "
            "(yxyx, pixels) and 'labels' `[B, M]` (-1 is padding). "
            f"Received: {sorted(truth) if isinstance(truth, dict) else type(truth)}"
        )


def batch_size_and_steps(x, batch_size, steps_per_epoch):
    """Images per step, and steps per epoch, of anything that `fit` takes."""
    if hasattr(x, "element_spec"):  # tf.data
        batch = keras.tree.flatten(x.element_spec)[0].shape[0]
        if batch is None:
            batch = len(_first_batch(x))
        steps = int(x.cardinality())
    elif hasattr(x, "shape"):  # arrays
        batch = batch_size or 32
        steps = -(-len(x) // batch)
    elif hasattr(x, "__len__") and hasattr(x, "__getitem__"):  # keras.utils.PyDataset
        batch = len(keras.tree.flatten(x[0])[0])
        steps = len(x)
    elif hasattr(x, "__len__"):  # torch.utils.data.DataLoader
        batch, steps = getattr(x, "batch_size", batch_size), len(x)
    else:
        batch, steps = batch_size, -1
    steps = steps_per_epoch or steps
    if batch is None or steps < 1:
        raise InvalidValueError(
            "The learning-rate schedule needs the batch size and the steps per epoch, "
            f"and this data does not tell them. Received: x={x!r}, "
            f"batch_size={batch_size}, steps_per_epoch={steps_per_epoch}. Give "
            "`steps_per_epoch` (and `batch_size`) to `fit`; or `compile` with a "
            "schedule or an optimizer that has its own learning rate."
        )
    # Of several processes each has its part of a batch.
    return batch * current_processes().count, steps


def num_images(x, batch_size, steps_per_epoch):
    """How many images there are to train on, as far as the data tells.

    `model.batches(dataset).repeat()` tells of its dataset, whatever the steps.
    """
    readers = readers_of(x)
    if readers:
        return sum(reader.num_images for reader in readers)
    return len(x) if hasattr(x, "shape") else batch_size * steps_per_epoch


def _check_classes(model, reader):
    """Raises ValueError unless a label names the same class in dataset and model."""
    names, known = tuple(reader.class_names), model.class_names
    count = model.num_classes
    if not model.config.has_detection:
        return
    if len(names) > count:
        raise InvalidValueError(
            f"The dataset has {len(names)} classes, {_short(names)}, but the model "
            f"`num_classes` {count}, so labels from {count} on have no output. Make "
            "it with `class_names=dataset.class_names`."
        )
    if known is not None and names != tuple(known)[: len(names)]:
        raise InvalidValueError(
            "Dataset and model must name the same classes in the same order. "
            f"Received: a dataset with {_short(names)}, a model with "
            f"{_short(known)}. Read the data with `class_names=model.class_names`, "
            "or make the model with `class_names=dataset.class_names`."
        )


def _check_seg_classes(model, reader):
    """Raises ValueError unless a class of pixels is the same in dataset and model."""
    names, known = reader.seg_class_names, model.seg_class_names
    if not model.config.has_segmentation or names is None:
        return
    count = model.config.seg_num_classes
    if len(names) > count:
        raise InvalidValueError(
            f"The dataset has {len(names)} classes of pixels, {_short(names)}, but the "
            f"model `seg_num_classes` {count}. Make it with "
            "`seg_class_names=dataset.seg_class_names`."
        )
    if known is not None and tuple(names) != tuple(known)[: len(names)]:
        raise InvalidValueError(
            "Dataset and model must name the same classes of pixels in the same order. "
            f"Received: a dataset with {_short(names)}, a model with {_short(known)}."
        )


def _check_arrays(model, images, truth):
    if len(images) == 0:
        raise InvalidValueError(
            f"There are no images. Received: x.shape={images.shape}"
        )
    _check_images(model, images.shape)
    _check_pixels(images)
    check_truth(truth, None, model.config)
    if model.config.has_segmentation:
        _check_masks(truth, len(images))
    if model.config.has_detection:
        _check_boxes(truth, len(images))
    fault = explain_batch(truth, model.config)
    if fault is not None:
        raise InvalidValueError(f"{fault}.")


def _check_masks(truth, count):
    masks = np.asarray(truth["masks"])
    if masks.ndim != 3 or len(masks) != count or masks.dtype.kind not in "iu":
        raise InvalidValueError(
            f"`masks` must be ints `[B, H, W]`, one for each of the {count} images. "
            f"Received: masks.shape={masks.shape}, dtype={masks.dtype}"
        )


def _check_boxes(truth, count):
    boxes, labels = _rows(truth, "boxes"), _rows(truth, "labels")
    if boxes.shape != (*labels.shape, 4) or len(boxes) != count:
        raise InvalidValueError(
            "`boxes` must be `[B, M, 4]` and `labels` `[B, M]`, with a row for each "
            f"of the {count} images. Received: boxes.shape={boxes.shape}, "
            f"labels.shape={labels.shape}"
        )


def _check_pixels(images):
    """Raises where a pixel is no number, or far from 0 to 255; ints are taken as is."""
    for number in range(len(images)):
        pixels = np.asarray(images[number])
        if pixels.dtype.kind != "f":
            return
        if not np.isfinite(pixels).all():
            raise InvalidValueError(
                "Pixels must be finite numbers. Received: an image with NaN or "
                f"infinite pixels, x[{number}]"
            )
        if np.abs(pixels).max(initial=0) > _MAX_PIXEL:
            raise InvalidValueError(
                "Pixels are numbers from 0 to 255: mean and standard deviation are the "
                f"model's own. Received: x[{number}] with {pixels.min():.3g} to "
                f"{pixels.max():.3g}. Images of 16 bits are divided by 257."
            )


def _rows(truth, name):
    """The numbers of an array of ground truth; raises for lists of unequal length."""
    try:
        rows = np.asarray(truth[name])
    except ValueError:  # NumPy's word for it is "inhomogeneous"
        rows = np.asarray(truth[name], dtype=object)
    if rows.dtype.kind not in "iuf":
        raise InvalidValueError(
            f"`{name}` must be one array of numbers, with as many rows for each image: "
            "fill up with zeros for `boxes` and -1 for `labels`. Received: "
            f"{reprlib.repr(truth[name])}. `effdet_keras.data.from_arrays` takes lists "
            "of any length, and `class_names`."
        )
    return rows


def _check_truth_spec(spec):
    """The same, of the ground truth of a `tf.data.Dataset` that tells of it."""
    truth = spec[1] if isinstance(spec, tuple) and len(spec) > 1 else {}
    for name in ("boxes", "labels", "masks"):
        part = truth.get(name) if isinstance(truth, dict) else None
        is_ragged = hasattr(part, "ragged_rank")
        if part is None or not (is_ragged or part.dtype.name == "string"):
            continue
        raise InvalidValueError(
            f"`{name}` must be a tensor of numbers, with as many rows for each image. "
            f"Received: {part}. `padded_batch` fills up: with zeros for `boxes`, -1 "
            "for `labels` and 255 for `masks`."
        )


def check_batch_size(batch_size):
    """Raises ValueError unless it is None or a number of images."""
    if batch_size is not None and batch_size < 1:
        raise InvalidValueError(
            f"`batch_size` must be 1 or more. Received: batch_size={batch_size}"
        )


def _first_batch(batches):
    """The images of the first batch of a stream."""
    first = next(iter(batches), None)
    if first is None:
        raise InvalidValueError("The dataset is empty: it has no batch.")
    return keras.tree.flatten(first)[0]


def _check_images(model, shape):
    """`shape` is that of a batch, with None for what is not known."""
    if shape is None or getattr(shape, "rank", 4) is None:
        return
    shape, expected = tuple(shape), (*model.config.image_size, 3)
    if len(shape) == 3:
        raise InvalidValueError(
            "`fit` takes batches of images `[B, H, W, 3]`. Received single images of "
            f"shape {shape}: call `.batch(batch_size)` on the data first"
        )
    differs = [s is not None and s != e for s, e in zip(shape[1:], expected)]
    if len(shape) != 4 or any(differs):
        raise InvalidValueError(
            f"The model takes images of shape (batch, {', '.join(map(str, expected))}"
            f"). Received: images of shape {shape}. Give `image_size` to `batches` or "
            "`from_preset` so that they agree."
        )


def _short(names, shown=8):
    return ", ".join(names[:shown]) + (", ..." if len(names) > shown else "")
