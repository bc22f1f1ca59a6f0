"""Records to batches: the `tf.data` pipeline of training and evaluation."""

import numbers

import numpy as np

from effdet_keras._internal.label_constants import BACKGROUND
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.config import RESIZE_METHODS
from effdet_keras.data.pipeline import augmenting, transforms
from effdet_keras.data.pipeline.image_reader import register_reader
from effdet_keras.data.pipeline.order import EpochOrder
from effdet_keras.distribution.processes import local_share
from effdet_keras.errors import InvalidValueError

_BATCHES_AHEAD = 2  # one in use, one ready; more only fills memory


def make_batches(
    records,
    reader,
    batch_size,
    *,
    image_size,
    training,
    seed,
    shuffle,
    flip_probability,
    scale_jitter,
    pad_value,
    max_boxes,
    drop_remainder,
    augment=None,
    share=(0, 1),
    resize_method="half_pixel",
):
    """Builds the `tf.data.Dataset` of `DetectionDataset.batches`: see there.

    `records` are counted here and read by `reader`, an `ImageReader`.
    """
    tf.require("`DetectionDataset.batches`")
    batch_size = _positive_int("batch_size", batch_size)
    image_size = _height_width(image_size)
    seed = _seed(seed)
    shuffle = training if shuffle is None else shuffle
    _check_augmentation(flip_probability, scale_jitter, pad_value)
    if resize_method not in RESIZE_METHODS:
        raise InvalidValueError(
            f"`resize_method` must be one of {', '.join(map(repr, RESIZE_METHODS))}. "
            f"Received: resize_method={resize_method!r}"
        )
    if not records:
        raise InvalidValueError(
            "`batches` needs at least one image. The dataset is empty"
        )
    augmentation = augmenting.prepare(augment, reader)
    images_in_one = getattr(augmentation, "num_images", 1)
    if augmentation is not None and not training:
        raise InvalidValueError(
            "`augment` changes the images of training only. Pass `training=True` "
            "with it, or leave it out"
        )
    if max_boxes is not None:
        max_boxes = _positive_int("max_boxes", max_boxes)
        _check_fits(records, max_boxes, images_in_one)
    if drop_remainder is None:
        drop_remainder = training and len(records) >= batch_size
    local_batch_size = local_share(batch_size, share)
    if share[1] > 1:
        _check_can_be_shared(records, batch_size, drop_remainder, share[1])
        if max_boxes is None:  # one number for the batches of all processes
            max_boxes = max(_most_boxes(records)[0] * images_in_one, 1)

    def read(index):
        return _read(reader, index)

    def load(index, epoch_seed):
        seed = tf.stack([epoch_seed, index])
        if augmentation is None:
            example = read(index)
        else:
            example = augmenting.apply(augmentation, read, index, seed, len(records))
        arrays = example["image"], example["boxes"], example["labels"]
        letterboxed = {
            "image_size": image_size,
            "pad_value": pad_value,
            "resize_method": resize_method,
        }
        if training:
            arrays = _jittered(
                *arrays, seed, flip_probability, scale_jitter, letterboxed
            )
        else:
            arrays = transforms.letterbox(*arrays, **letterboxed)
        return _with_truth(example, *arrays)

    order = EpochOrder(len(records), seed, shuffle, batch_size, share)
    with augmenting.plain_errors(reader):
        examples = _indices(order).map(
            # AutoGraph is for code of users, whose functions get it elsewhere.
            tf.autograph.experimental.do_not_convert(load),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
    examples = _reported(examples, reader, order.size)
    dataset = _batched(
        examples, local_batch_size, image_size, max_boxes, drop_remainder
    )
    reader.order = order
    register_reader(dataset, reader)
    return dataset


def _read(reader, index):
    """The example at one place of the dataset, as `ImageReader.read` gives it."""
    image, boxes, labels, image_id, is_there = tf.numpy_function(
        reader.read,
        [index],
        (tf.uint8, tf.float32, tf.int32, tf.int64, tf.bool),
        stateful=False,
    )
    return {
        "image": tf.ensure_shape(image, [None, None, 3]),
        "boxes": tf.ensure_shape(boxes, [None, 4]),
        "labels": tf.ensure_shape(labels, [None]),
        "image_id": tf.ensure_shape(image_id, []),
        "is_there": tf.ensure_shape(is_there, []),
    }


def _jittered(image, boxes, labels, seed, flip_probability, scale_jitter, letterboxed):
    """An image flipped and scaled at random: what every training image goes through."""
    draws = transforms.random_draws(seed, scale_jitter)
    # Written this way round the reference's draws flip here too.
    image, boxes = tf.cond(
        draws.flip > 1.0 - flip_probability,
        lambda: transforms.flip(image, boxes),
        lambda: (image, boxes),
    )
    return transforms.scale_jitter(image, boxes, labels, draws, **letterboxed)


def _with_truth(example, image, boxes, labels, image_scale):
    """What `fit` gets of an example: an image and its ground truth."""
    truth = {
        "boxes": boxes,
        "labels": labels,
        "image_id": example["image_id"],
        "image_scale": tf.where(example["is_there"], image_scale, 0.0),
    }
    return image, truth


def _batched(examples, batch_size, image_size, max_boxes, drop_remainder):
    padded_shapes = (
        [*image_size, 3],
        {
            "boxes": [max_boxes, 4],
            "labels": [max_boxes],
            "image_id": [],
            "image_scale": [],
        },
    )
    padding = {"boxes": 0.0, "labels": BACKGROUND, "image_id": np.int64(0)}
    dataset = examples.padded_batch(
        batch_size,
        padded_shapes,
        padding_values=(0.0, {**padding, "image_scale": 0.0}),
        drop_remainder=drop_remainder,
    )
    options = tf.data.Options()
    # There are no files to share out among workers, only indices.
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.DATA
    )
    return dataset.prefetch(_BATCHES_AHEAD).with_options(options)


def _indices(order):
    """A dataset of `(index, seed of the epoch)`, in a new order at each iteration."""

    def start_epoch(_):
        drawn = tf.numpy_function(order.draw, [], (tf.int64, tf.int64))
        drawn = tuple(tf.ensure_shape(array, [order.size]) for array in drawn)
        return tf.data.Dataset.from_tensor_slices(drawn)

    dataset = tf.data.Dataset.range(1).flat_map(start_epoch)
    return dataset.apply(tf.data.experimental.assert_cardinality(order.size))


def _reported(examples, reader, size):
    """`examples`, and after the last of them the reader's report."""

    def report(_):
        reader.report()
        return np.bool_(False)

    # A dataset of one element that is asked for and then left out.
    end = tf.data.Dataset.range(1).filter(
        lambda i: tf.ensure_shape(tf.numpy_function(report, [i], tf.bool), [])
    )
    dataset = examples.concatenate(end.flat_map(lambda _: examples))
    return dataset.apply(tf.data.experimental.assert_cardinality(size))


def _seed(seed):
    if seed is None:
        seed = np.random.randint(2**31)
    if not isinstance(seed, numbers.Integral) or seed < 0:
        raise InvalidValueError(
            f"`seed` must be an int from 0, or None. Received: seed={seed!r}"
        )
    return int(seed)


def _check_augmentation(flip_probability, scale_jitter, pad_value):
    if not 0 <= flip_probability <= 1:
        raise InvalidValueError(
            "`flip_probability` must lie between 0 and 1. "
            f"Received: flip_probability={flip_probability}"
        )
    if len(scale_jitter) != 2 or not 0 < scale_jitter[0] <= scale_jitter[1]:
        raise InvalidValueError(
            "`scale_jitter` must be a lowest and a highest factor above zero. "
            f"Received: scale_jitter={scale_jitter}"
        )
    if np.shape(pad_value) != (3,):
        raise InvalidValueError(
            "`pad_value` must be three numbers: red, green, blue. "
            f"Received: pad_value={pad_value}"
        )


def _check_fits(records, max_boxes, images_in_one):
    count, most = _most_boxes(records)
    if count * images_in_one > max_boxes:
        joined = f", and `augment` joins {images_in_one}" if images_in_one > 1 else ""
        raise InvalidValueError(
            "`max_boxes` must hold all boxes of every image. Received: "
            f"max_boxes={max_boxes}; image_id={most.image_id} has {count}{joined}. "
            f"Pass max_boxes={count * images_in_one} or leave it out"
        )


def _most_boxes(records):
    """The number of boxes of the record that has most, and the record."""
    most = max(records, key=lambda record: (~record.is_crowd).sum())
    return int((~most.is_crowd).sum()), most


def _check_can_be_shared(records, batch_size, drop_remainder, count):
    if len(records) < batch_size:
        raise InvalidValueError(
            f"Where {count} processes train together, a dataset must fill a batch of "
            f"all. Received: {len(records)} images, batch_size={batch_size}"
        )
    if not drop_remainder and len(records) % batch_size:
        raise InvalidValueError(
            f"Where {count} processes train together, a last batch that is not full "
            "cannot be shared out: leave `drop_remainder` out. Received: "
            f"drop_remainder=False, {len(records)} images, batch_size={batch_size}"
        )


def _positive_int(name, value):
    if not isinstance(value, numbers.Integral) or value < 1:
        raise InvalidValueError(
            f"`{name}` must be an int above zero. Received: {name}={value!r}"
        )
    return int(value)


def _height_width(image_size):
    if isinstance(image_size, numbers.Integral):
        image_size = (image_size, image_size)
    if len(image_size) != 2:
        raise InvalidValueError(
            "`image_size` must be an int or (height, width). "
            f"Received: image_size={image_size}"
        )
    return tuple(_positive_int("image_size", side) for side in image_size)
