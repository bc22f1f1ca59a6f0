"""Records to batches: the `tf.data` pipeline of training and evaluation."""

from __future__ import annotations

import numbers

import numpy as np

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras._internal.processes import local_share
from effdet_keras.data.pipeline import augmenting, transforms
from effdet_keras.data.pipeline.image_reader import reader_behind
from effdet_keras.errors import InvalidValueError, check_argument, check_choice, require
from effdet_keras.labels import BACKGROUND
from effdet_keras.model.config import RESIZE_METHODS

_BATCHES_AHEAD = 2  # one in use, one ready; more only fills memory


def make_batches(
    reader,
    batch_size,
    *,
    image_size,
    training,
    seed,
    shuffle,
    flip_probability,
    scale_jitter,
    target_size,
    pad_value,
    max_boxes,
    drop_remainder,
    augment,
    share,
    resize_method,
):
    """Builds the `tf.data.Dataset` of `DetectionDataset.batches`: see there."""
    tf.require("`DetectionDataset.batches`")
    batch_size = _int("batch_size", batch_size)
    image_size = _sides("image_size", image_size)
    is_range = 0 < scale_jitter[0] <= scale_jitter[1]
    expected = "a lowest and a highest factor above zero"
    check_argument(is_range, "scale_jitter", scale_jitter, expected)
    check_choice("resize_method", resize_method, RESIZE_METHODS)
    is_right = resize_method == "half_pixel" or not reader.gives_masks
    rule = "Masks are only resized with 'half_pixel'"
    require(is_right, rule, resize_method=resize_method)
    records = reader.records
    require(records, "`batches` needs images: the dataset is empty", images=0)
    augmentation = augmenting.prepare(augment, reader)
    if augmentation is not None and not training:
        raise InvalidValueError(
            "`augment` changes the images of training only. Pass `training=True` "
            "with it, or leave it out"
        )
    # Where `augment` joins images, their boxes come together.
    most_boxes = max(int((~record.is_crowd).sum()) for record in records)
    most_boxes *= getattr(augmentation, "num_images", 1)
    are_enough = max_boxes is None or max_boxes >= most_boxes
    expected = f"None, or {most_boxes} or more: the boxes of any image"
    check_argument(are_enough, "max_boxes", max_boxes, expected)
    if drop_remainder is None:
        drop_remainder = training and len(records) >= batch_size
    local_batch_size = local_share(batch_size, share)
    if share[1] > 1:
        _check_can_be_shared(len(records), batch_size, drop_remainder, share[1])
        max_boxes = max_boxes or max(most_boxes, 1)  # one number for all processes

    if target_size is not None:
        target_size = _sides("target_size", target_size)
    window = transforms.Window(image_size, pad_value, resize_method, target_size)

    def load(index, epoch_seed):
        seed = tf.stack([epoch_seed, index])
        if augmentation is None:
            example = _read(reader, index)
        else:
            example = augmenting.apply(
                augmentation, lambda i: _read(reader, i), index, seed, len(records)
            )
        moved = ("image", "boxes", "labels", "mask")
        seen = {key: example[key] for key in moved if key in example}
        if training:
            draws = transforms.random_draws(seed, scale_jitter)
            # Written this way round the reference's draws flip here too.
            is_flipped = draws.flip > 1.0 - flip_probability
            seen = tf.cond(is_flipped, lambda: transforms.flip(seen), lambda: seen)
            placed = transforms.scale_jitter(seen, draws, window)
        else:
            placed = transforms.letterbox(seen, window)
        truth = {
            "boxes": placed["boxes"],
            "labels": placed["labels"],
            "image_id": example["image_id"],
            "image_scale": tf.where(example["is_there"], placed["image_scale"], 0.0),
        }
        if reader.gives_masks:
            truth["masks"] = placed["mask"]
        return placed["image"], truth

    order = EpochOrder(
        len(records),
        _int("seed", np.random.randint(2**31) if seed is None else seed, 0),
        training if shuffle is None else shuffle,
        batch_size,
        share,
    )
    with augmenting.plain_errors(reader):
        examples = _indices(order).map(
            # AutoGraph is for code of users, whose functions get it elsewhere.
            tf.autograph.experimental.do_not_convert(load),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
    examples = _reported(examples, reader, order.size)
    dataset = _batched(examples, local_batch_size, max_boxes, drop_remainder)
    reader.order = order
    reader_behind[dataset] = reader
    return dataset


def _read(reader, index):
    """The example at one place of the dataset, as `ImageReader.read` gives it."""
    kinds = {
        "image": (tf.uint8, [None, None, 3]),
        "boxes": (tf.float32, [None, 4]),
        "labels": (tf.int32, [None]),
        "image_id": (tf.int64, []),
        "is_there": (tf.bool, []),
    }
    if reader.gives_masks:
        kinds["mask"] = tf.uint8, [None, None]
    dtypes = [dtype for dtype, _ in kinds.values()]
    arrays = tf.numpy_function(reader.read, [index], dtypes, stateful=False)
    return {
        key: tf.ensure_shape(array, shape)
        for array, (key, (_, shape)) in zip(arrays, kinds.items())
    }


def _batched(examples, batch_size, max_boxes, drop_remainder):
    spec = examples.element_spec
    shapes = tf.nest.map_structure(lambda one: one.shape, spec)
    padding = tf.nest.map_structure(lambda one: tf.zeros([], one.dtype), spec)
    shapes[1].update(boxes=[max_boxes, 4], labels=[max_boxes])
    padding[1]["labels"] = tf.constant(BACKGROUND)
    dataset = examples.padded_batch(batch_size, shapes, padding, drop_remainder)
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


def _check_can_be_shared(size, batch_size, drop_remainder, count):
    sizes = {"num_images": size, "batch_size": batch_size}
    together = f"Where {count} processes train together, a"
    require(size >= batch_size, f"{together} dataset must fill a batch of all", **sizes)
    rule = f"{together} last batch must be full: leave `drop_remainder` out"
    is_full = drop_remainder or size % batch_size == 0
    require(is_full, rule, drop_remainder=drop_remainder, **sizes)


def _sides(name, size):
    sides = (size, size) if isinstance(size, numbers.Integral) else size
    return tuple(_int(name, side) for side in sides)


def _int(name, value, lowest=1):
    is_right = isinstance(value, numbers.Integral) and value >= lowest
    check_argument(is_right, name, value, f"an int of {lowest} or more")
    return int(value)


# --- The order of a pipeline's images, and their seeds: known for each epoch by itself.


class EpochOrder:
    """Which image is where in pass `e`, and its seed: of `seed` and `e` alone."""

    def __init__(self, size, seed, shuffle, batch_size, share=(0, 1)):
        self.batch_size = batch_size
        self._index, self._count = share
        self.epochs_trained = 0  # by calls of `fit`, which go on counting
        self.seed = seed
        self._size, self._shuffle = size, shuffle
        self.start_at(0)

    def start_at(self, number, skipped=0, per_pass=None):
        """Names the next pass, and how many of its batches the one after it gives."""
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
        drawn = self._of_pass(self._next)
        self._next += 1
        if skipped := self._skipped:
            used = self._per_pass
            drawn = tuple(
                # What nobody uses of a pass stays where it is.
                np.concatenate([now[skipped:used], then[:skipped], now[used:]])
                for now, then in zip(drawn, self._of_pass(self._next))
            )
        if self._count == 1:
            return drawn
        whole = self.size * self._count
        batches = [values[:whole].reshape(-1, self.batch_size) for values in drawn]
        shares = [np.split(part, self._count, axis=1)[self._index] for part in batches]
        return tuple(share.reshape(-1) for share in shares)

    def _of_pass(self, number):
        """Indices and seeds of a pass, of all processes together."""
        rng = np.random.default_rng([self.seed, number])
        shuffled = self._shuffle
        indices = rng.permutation(self._size) if shuffled else np.arange(self._size)
        seeds = np.full(self._size, rng.integers(2**62), np.int64)
        return indices.astype(np.int64), seeds
