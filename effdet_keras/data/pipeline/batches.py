"""Records to batches: the `tf.data` pipeline of training and evaluation."""

from __future__ import annotations

import numbers

import numpy as np

from effdet_keras._internal.label_constants import BACKGROUND
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras._internal.processes import local_share
from effdet_keras.data.pipeline import augmenting, transforms
from effdet_keras.data.pipeline.image_reader import register_reader
from effdet_keras.errors import InvalidValueError
from effdet_keras.model.config import RESIZE_METHODS

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
    if reader.gives_masks and resize_method != "half_pixel":
        raise InvalidValueError(
            "Masks are only resized with 'half_pixel'. Received: "
            f"resize_method={resize_method!r}, masks=True"
        )
    if not records:
        raise InvalidValueError(
            "`batches` needs at least one image. The dataset is empty"
        )
    augmentation = augmenting.prepare(augment, reader)
    if augmentation is not None and reader.gives_masks:
        augmenting.check_keeps_masks(augmentation)
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
        letterboxed = {
            "image_size": image_size,
            "pad_value": pad_value,
            "resize_method": resize_method,
        }
        if training:
            return _jittered(example, seed, flip_probability, scale_jitter, letterboxed)
        return _letterboxed(example, letterboxed)

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
        examples,
        local_batch_size,
        image_size,
        max_boxes,
        drop_remainder,
        has_masks=reader.gives_masks,
    )
    reader.order = order
    register_reader(dataset, reader)
    return dataset


def _read(reader, index):
    """The example at one place of the dataset, as `ImageReader.read` gives it."""
    dtypes = (tf.uint8, tf.float32, tf.int32, tf.int64, tf.bool)
    dtypes += (tf.uint8,) if reader.gives_masks else ()
    image, boxes, labels, image_id, is_there, *masks = tf.numpy_function(
        reader.read, [index], dtypes, stateful=False
    )
    masked = {"mask": tf.ensure_shape(masks[0], [None, None])} if masks else {}
    return {
        **masked,
        "image": tf.ensure_shape(image, [None, None, 3]),
        "boxes": tf.ensure_shape(boxes, [None, 4]),
        "labels": tf.ensure_shape(labels, [None]),
        "image_id": tf.ensure_shape(image_id, []),
        "is_there": tf.ensure_shape(is_there, []),
    }


def _jittered(example, seed, flip_probability, scale_jitter, letterboxed):
    """An example flipped and scaled at random, as every one of training is."""
    image, boxes, labels = example["image"], example["boxes"], example["labels"]
    draws = transforms.random_draws(seed, scale_jitter)
    # Written this way round the reference's draws flip here too.
    is_flipped = draws.flip > 1.0 - flip_probability
    image, boxes = tf.cond(
        is_flipped,
        lambda: transforms.flip(image, boxes),
        lambda: (image, boxes),
    )
    masks = {}
    if "mask" in example:
        mask, image_size = example["mask"], letterboxed["image_size"]
        mask = tf.cond(is_flipped, lambda: tf.reverse(mask, [1]), lambda: mask)
        place = transforms.jitter_place(image, draws, image_size)
        masks["masks"] = transforms.place_mask(mask, place, image_size)
    arrays = transforms.scale_jitter(image, boxes, labels, draws, **letterboxed)
    return _with_truth(example, *arrays, masks)


def _letterboxed(example, letterboxed):
    """An example as every one of evaluation is."""
    image, masks = example["image"], {}
    if "mask" in example:
        image_size = letterboxed["image_size"]
        place = transforms.letterbox_place(image, image_size)
        masks["masks"] = transforms.place_mask(example["mask"], place, image_size)
    arrays = image, example["boxes"], example["labels"]
    return _with_truth(example, *transforms.letterbox(*arrays, **letterboxed), masks)


def _with_truth(example, image, boxes, labels, image_scale, masks):
    """What `fit` gets of an example: an image and its ground truth."""
    truth = {
        **masks,
        "boxes": boxes,
        "labels": labels,
        "image_id": example["image_id"],
        "image_scale": tf.where(example["is_there"], image_scale, 0.0),
    }
    return image, truth


def _batched(examples, batch_size, image_size, max_boxes, drop_remainder, *, has_masks):
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
    if has_masks:
        padded_shapes[1]["masks"] = [*image_size]
        padding["masks"] = np.uint8(0)  # of which none is needed
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


# --- The order of a pipeline's images, and their seeds: known for each epoch by itself.


class EpochOrder:
    """Which image is where in each pass over a dataset, and what it is augmented by.

    Pass `e` depends on `seed` and `e` alone, so that a training which starts at epoch
    `e` sees what an uninterrupted one sees there. A pipeline asks with `draw` for one
    pass after the other, from that on which `start_at` named.

    Where several processes train together, each draws its share of every batch. All
    shares together are what one process alone would draw.

    Example:
        >>> order = EpochOrder(4, seed=0, shuffle=True, batch_size=2)
        >>> (first, _), (second, _) = order.draw(), order.draw()
        >>> order.start_at(1)
        >>> bool((order.draw()[0] == second).all())
        True
    """

    def __init__(self, size, seed, shuffle, batch_size, share=(0, 1)):
        self.batch_size = batch_size
        self._index, self._count = share
        self.epochs_trained = 0  # by calls of `fit`, which go on counting
        self.seed = seed
        self._size, self._shuffle = size, shuffle
        self.start_at(0)

    def start_at(self, number, skipped=0, per_pass=None):
        """Names the pass with which the next iteration begins, and a place in it.

        Args:
            skipped: int, batches at its beginning that nobody needs again. As many of
                the next pass follow, so that all passes have one length.
        """
        self._next = number
        self._skipped = skipped * self.batch_size
        self._per_pass = (per_pass or 0) * self.batch_size

    def can_skip(self, per_pass):
        """Whether a pass of so many batches is one of whole batches."""
        return per_pass * self.batch_size <= self._size

    @property
    def size(self):
        """How many indices `draw` returns: of several processes whole batches alone."""
        if self._count == 1:
            return self._size
        return self._size // self.batch_size * self.batch_size // self._count

    def draw(self):
        """Returns the indices of the next pass, and the seed of each: int64 arrays."""
        return tuple(map(self._share_of, self._draw_all()))

    def _share_of(self, values):
        if self._count == 1:
            return values
        batches = values[: self.size * self._count].reshape(-1, self.batch_size)
        return np.split(batches, self._count, axis=1)[self._index].reshape(-1)

    def _draw_all(self):
        """What all processes together draw."""
        indices, seeds = self._of_pass(self._next)
        self._next += 1
        if not self._skipped:
            return indices, seeds
        used, skipped = self._per_pass, self._skipped
        after = self._of_pass(self._next)
        return tuple(
            # What nobody uses of a pass stays where it is.
            np.concatenate([now[skipped:used], then[:skipped], now[used:]])
            for now, then in zip((indices, seeds), after)
        )

    def _of_pass(self, number):
        rng = np.random.default_rng([self.seed, number])
        shuffled = self._shuffle
        indices = rng.permutation(self._size) if shuffled else np.arange(self._size)
        seeds = np.full(self._size, rng.integers(2**62), np.int64)
        return indices.astype(np.int64), seeds
