"""The `tf.data` pipeline of training and evaluation, from records to batches."""

from __future__ import annotations

import functools
import numbers

import numpy as np

from effdet_keras._internal.backend import default_jit_compile
from effdet_keras._internal.number_ranges import check_number, check_whole_number
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras._internal.processes import per_process_batch_size
from effdet_keras._internal.python_calls import call_python
from effdet_keras.augment.augmentation import (
    Compose,
    MixWithOther,
    RandomApply,
    as_augmentation,
    fault_of,
    is_ours,
    with_autograph,
)
from effdet_keras.data.balance import balanced_places, repeat_factors
from effdet_keras.data.pipeline import transforms
from effdet_keras.data.pipeline.image_reader import reader_behind
from effdet_keras.data.pipeline.numpy_batches import (
    AUGMENT,
    PARTNERS,
    ExampleLoader,
    NumPyBatches,
)
from effdet_keras.errors import InvalidValueError, check_argument, check_choice, require
from effdet_keras.labels import BACKGROUND
from effdet_keras.network.config import RESIZE_METHODS

_BATCHES_AHEAD = 2  # one in use and one ready; more would only fill memory
_MOST_PADDING = 512  # rows of boxes, more than enough for most datasets


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
    balance,
):
    """Builds the result of `DetectionDataset.batches`: see there for the arguments.

    Args:
        reader: `ImageReader` of the dataset.

    Returns:
        `tf.data.Dataset`, or `NumPyBatches` if TensorFlow is not installed.
    """
    if tf.is_installed():
        tf.require("`DetectionDataset.batches`")
    batch_size = _int("batch_size", batch_size)
    image_size = _sides("image_size", image_size)
    if target_size is not None:
        target_size = _sides("target_size", target_size)
    form = {"form": "sequence", "count": 2, "rising": True}
    check_number("scale_jitter", scale_jitter, "(0, inf)", **form)
    check_number("flip_probability", flip_probability, "[0, 1]")
    check_number("pad_value", pad_value, "[0, 255]", form="sequence", count=3)
    check_whole_number("max_boxes", max_boxes, "[0, inf)", others=(None,))
    check_choice("resize_method", resize_method, RESIZE_METHODS)
    is_right = resize_method == "half_pixel" or not reader.gives_masks
    rule = "Masks are only resized with 'half_pixel'"
    require(is_right, rule, resize_method=resize_method)
    records = reader.records
    require(records, "`batches` needs images: the dataset is empty", images=0)
    factors = None
    if balance is not None:
        factors = repeat_factors(records, len(reader.class_names), balance)
        rule = "`balance` needs `training=True`, and the random order of training"
        is_right = training and shuffle in (None, True)
        require(is_right, rule, balance=balance, training=training, shuffle=shuffle)
    augmentation = _checked_augmentation(augment, reader)
    if augmentation is not None and not training:
        raise InvalidValueError(
            "`augment` changes the images of training only. Pass `training=True` "
            "with it, or leave it out"
        )
    fits = getattr(augmentation, "fits_any_resolution", True)
    if training and fits and not reader.gives_masks:
        largest = scale_jitter[1]
        reader.shown = tuple(largest * side for side in target_size or image_size)
    # If `augment` joins several images, the result may have the boxes of all.
    most_boxes = max(int((~record.is_crowd).sum()) for record in records)
    most_boxes *= getattr(augmentation, "num_images", 1)
    are_enough = max_boxes is None or max_boxes >= most_boxes
    expected = f"None, or {most_boxes} or more: the boxes of any image"
    check_argument(are_enough, "max_boxes", max_boxes, expected)
    if drop_remainder is None:
        drop_remainder = training and len(records) >= batch_size
    local_batch_size = per_process_batch_size(batch_size, share[1])
    if share[1] > 1:
        _check_can_be_shared(len(records), batch_size, drop_remainder, share[1])
        max_boxes = max_boxes or max(most_boxes, 1)  # one number for all processes

    window = transforms.Window(image_size, pad_value, resize_method, target_size)

    def load(index, epoch_seed):
        """Returns one image, augmented and resized, and a dict of its ground truth."""
        seed = tf.stack([epoch_seed, index])
        example = _augmented(augmentation, reader, index, seed, factors)
        moved = ("image", "boxes", "labels", "mask")
        seen = {key: example[key] for key in moved if key in example}
        if training:
            draws = transforms.random_draws(seed, scale_jitter)
            # With this comparison, the reference's random numbers flip here too.
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
        factors,
    )
    box_step = 1
    if max_boxes is None and default_jit_compile():
        box_step = min(max(most_boxes, 1), _MOST_PADDING)
    reader.order = order
    if not tf.is_installed():
        example_loader = ExampleLoader(
            reader=reader,
            augmentation=augmentation,
            window=window,
            training=training,
            flip_probability=flip_probability,
            scale_jitter=scale_jitter,
            factors=factors,
        )
        return NumPyBatches(
            example_loader,
            order,
            local_batch_size,
            drop_remainder=drop_remainder,
            max_boxes=max_boxes,
            box_step=box_step,
        )
    # This code needs no AutoGraph. Users' functions get it in `with_autograph`.
    load = tf.autograph.experimental.do_not_convert(load)
    parallel = {"num_parallel_calls": tf.data.AUTOTUNE, "deterministic": True}
    try:
        examples = _indices(order).map(load, **parallel)
    except Exception:
        if reader.error is None:
            raise
        raise reader.error from None  # the original error, without AutoGraph's words
    examples = _reported(examples, reader, order.size)
    dataset = _batched(examples, local_batch_size, max_boxes, drop_remainder)
    if max_boxes is None and default_jit_compile():
        padded = functools.partial(_with_few_shapes, step=box_step)
        dataset = dataset.map(tf.autograph.experimental.do_not_convert(padded))
    dataset = dataset.prefetch(_BATCHES_AHEAD)
    reader_behind[dataset] = reader
    return dataset


def _read(reader, index):
    """Returns the example at an index as a dict of tensors, see `ImageReader.read`."""
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
    arrays = call_python(reader.read, [index], dtypes, stateful=False)
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
    # There are no files to distribute among workers, only indices.
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.DATA
    )
    # While its thread for autotuning sleeps, tf.data sometimes misses that an iterator
    # is deleted: training then waits before an epoch for up to as long as the epoch
    # before it (benchmarks/epoch_pause.py). Without autotuning, `AUTOTUNE` means one
    # image for each processor, and at most 16.
    options.autotune.enabled = False
    return dataset.with_options(options)


def _with_few_shapes(images, truth, step):
    """Pads to a multiple of `step` boxes: XLA compiles a program for each number."""
    count = tf.shape(truth["labels"])[1]
    missing = step * tf.maximum((count + step - 1) // step, 1) - count
    boxes = tf.pad(truth["boxes"], [[0, 0], [0, missing], [0, 0]])
    labels = tf.pad(truth["labels"], [[0, 0], [0, missing]], constant_values=BACKGROUND)
    return images, {**truth, "boxes": boxes, "labels": labels}


def _indices(order):
    """Returns a dataset of `(index, epoch seed)`, in a new order in each iteration."""

    def start_epoch(_):
        drawn = call_python(order.draw, [], (tf.int64, tf.int64))
        drawn = tuple(tf.ensure_shape(array, [order.size]) for array in drawn)
        return tf.data.Dataset.from_tensor_slices(drawn)

    dataset = tf.data.Dataset.range(1).flat_map(start_epoch)
    return dataset.apply(tf.data.experimental.assert_cardinality(order.size))


def _reported(examples, reader, size):
    """Returns `examples`, with the reader's report printed after the last one."""

    def report(_):
        reader.report()
        return np.bool_(False)

    # A dataset with one element, which is evaluated, prints, and is filtered out.
    end = tf.data.Dataset.range(1).filter(
        lambda i: tf.ensure_shape(call_python(report, [i], tf.bool), [])
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
    form = {"form": "number or sequence", "count": 2}
    check_whole_number(name, size, "[1, inf)", **form)
    sides = (size, size) if isinstance(size, numbers.Integral) else size
    return tuple(map(int, sides))


def _int(name, value, lowest=1):
    check_whole_number(name, value, f"[{lowest}, inf)")
    return int(value)


# --- Augmentations: their partner images, and errors that name augmentation and image.

# Boxes up to 1 look like fractions only if, before, all of them ended beyond this many
# pixels.
_FEW_PIXELS = 8
# No augmentation turns an image with a brighter pixel than this into one whose pixels
# are at most 1.
_BRIGHT = 64


def _checked_augmentation(augment, reader):
    """Returns `augment` as one augmentation, with checks around a user's own code."""
    if augment is None:
        return None
    augmentation = _with_checks(as_augmentation(augment), reader)
    if augmentation.needs_tensorflow and not tf.is_installed():
        tf.require(
            f"`augment={augmentation!r}`, like all but `Mosaic`, `FromNumPy` and "
            "`RandomApply` of these,"
        )
    if reader.gives_masks and not augmentation.keeps_masks:
        raise InvalidValueError(
            f"{augmentation!r} moves, or may move, pixels but not masks. Leave it "
            "out; or pass `masks=False` to `batches` to train without masks; or, if it "
            'is your own, return "mask" as well and set `keeps_masks = True` in its '
            "class"
        )
    return augmentation


def _augmented(augmentation, reader, index, seed, factors=None):
    """Reads an example, with partners if necessary, and returns it augmented."""
    example = _read(reader, index)
    if augmentation is None:
        return example
    own_seed = _fold(seed, AUGMENT)
    if augmentation.num_images == 1:
        return augmentation(example, own_seed)
    count, size = augmentation.num_images - 1, len(reader.records)
    places = _partners(index, seed, count, size, factors)
    others = [_read(reader, place) for place in tf.unstack(places)]
    return augmentation([example, *others], own_seed)


def _partners(index, seed, count, size, factors=None):
    """Draws `count` indices of other images; `index` itself if there is no other."""
    if size == 1:
        return tf.fill([count], index)
    if factors is not None:  # the probability of an image is proportional to its factor
        ends = np.cumsum(factors / np.sum(factors))[:-1]
        shares = tf.random.stateless_uniform(
            [count], _fold(seed, PARTNERS), alg="philox", dtype=tf.float64
        )
        places = tf.searchsorted(tf.constant(ends), shares, "right", tf.int64)
        return tf.where(places == index, (places + 1) % size, places)
    steps = tf.random.stateless_uniform(
        [count], _fold(seed, PARTNERS), 1, size, tf.int64, alg="philox"
    )
    return (index + steps) % size


def _fold(seed, stream):
    return tf.random.fold_in(seed, stream, alg="philox")


def _with_checks(augmentation, reader):
    """Returns the augmentation with a check around each part that a user wrote."""
    if type(augmentation) is Compose:
        parts = [_with_checks(one, reader) for one in augmentation.augmentations]
        return Compose(parts)
    if type(augmentation) is RandomApply:
        inner = _with_checks(augmentation.augmentation, reader)
        return RandomApply(inner, augmentation.probability)
    is_tested = is_ours(augmentation.augment) and not hasattr(augmentation, "function")
    return augmentation if is_tested else _Checked(augmentation, reader)


class _Checked(MixWithOther):
    """A user's augmentation whose results are checked before they are sanitized."""

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
            reason = str(error).rstrip("\n.")  # it quotes lines of the user's code
            self._reader.error = InvalidValueError(
                f"The augmentation {self} failed: {type(error).__name__}: {reason}. It "
                'must return a dict with "image", "boxes" and "labels", made in '
                "TensorFlow; NumPy's go into `ek.augment.FromNumPy(function)`"
            )
            raise self._reader.error from error
        before = [tf.shape(first["image"]), first["boxes"], first["image_id"]]
        ranges = [_range_of(image), _range_of(first["image"])]
        arguments = [tf.shape(image), boxes, labels, *before, *ranges]
        dtypes = (tf.float32, tf.int32)
        boxes, labels = call_python(self._check, arguments, dtypes, stateful=False)
        with tf.control_dependencies([boxes]):  # so that our error comes first
            image = tf.identity(image)
        boxes = tf.ensure_shape(boxes, [None, 4])
        labels = tf.ensure_shape(labels, [None])
        return {**result, "image": image, "boxes": boxes, "labels": labels}

    def augment_arrays(self, example, seed):
        first = example if self.num_images == 1 else example[0]
        try:
            result = self.augmentation.augment_arrays(example, seed)
            image = np.asarray(result["image"])
            boxes = np.asarray(result["boxes"], np.float32)
            labels = np.asarray(result["labels"], np.int32)
        except Exception as error:
            self._reader.error = InvalidValueError(
                f"The augmentation {self} failed: {type(error).__name__}: {error}"
            )
            raise self._reader.error from error
        before = first["image"]
        boxes, labels = self._check(
            np.array(image.shape),
            boxes,
            labels,
            np.array(before.shape),
            first["boxes"],
            first["image_id"],
            (image.min(), image.max()),  # NaN if a pixel is NaN
            (before.min(), before.max()),
        )
        return {**result, "image": image, "boxes": boxes, "labels": labels}

    def _check(
        self,
        shape,
        boxes,
        labels,
        shape_before,
        boxes_before,
        image_id,
        pixel_range,
        pixel_range_before,
    ):
        """Returns boxes `[n, 4]` and labels `[n]`; raises if the result is invalid."""
        num_classes = len(self._reader.class_names)
        fault = fault_of(shape, boxes, labels)
        fault = fault or fault_of_range(pixel_range, pixel_range_before)
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


def _range_of(image):
    """Returns the lowest and highest pixel value, float32 `[2]`; NaN if one is NaN."""
    image = tf.cast(image, tf.float32)
    numbers = tf.stack([tf.reduce_min(image), tf.reduce_max(image)])
    return numbers + 0.0 * tf.reduce_sum(image)  # minimum and maximum may hide a NaN


def fault_of_range(pixel_range, pixel_range_before):
    """Describes the fault of the pixels that an augmentation returned, or None.

    Args:
        pixel_range: pair of numbers, the lowest and highest pixel value of the result.
        pixel_range_before: the same of the image before the augmentation.
    """
    low, high = map(float, pixel_range)
    if not np.isfinite([low, high]).all():
        return "an image with NaN or infinite pixels; they are numbers from 0 to 255"
    # With pixels from 0 to 1, training would silently see black images.
    if 0 < high <= 1 and pixel_range_before[1] > _BRIGHT:
        return f"pixels from {low:.3g} to {high:.3g}; they are from 0 to 255"
    return None


def fault_of_values(shape, boxes, labels, num_classes, shape_before, boxes_before):
    """Describes the fault of labels and boxes of the right shapes, or None.

    Args:
        shape: ints, `[H, W, 3]` of the image that an augmentation returned.
        boxes: float32 `[n, 4]`, `yxyx` in pixels of that image.
        labels: int32 `[n]`.
        num_classes: int.
        shape_before: ints, `[H, W, 3]` of the image before the augmentation.
        boxes_before: float32 `[m, 4]`, `yxyx` in pixels of that image.
    """
    is_wrong = (labels < 0) | (labels >= num_classes)
    if is_wrong.any():
        last = num_classes - 1
        return f"the label {labels[is_wrong][0]}; labels are from 0 to {last}"
    # With coordinates from 0 to 1, training would silently see boxes in one pixel, the
    # first of the image.
    is_same = 0 < len(boxes) == len(boxes_before)
    is_as_large = (shape[:2] * 4 >= shape_before[:2]).all()
    is_tiny = is_same and boxes.max() <= 1 and boxes_before[:, 2:].min() > _FEW_PIXELS
    if is_as_large and is_tiny:
        return f"the box {boxes[0].tolist()}; boxes are in pixels, not fractions"
    return None


# --- The order of the images and their seeds in each epoch, independent of the others.


class EpochOrder:
    """The order and the seeds of the images in each pass over the dataset.

    Those of pass `e` depend on `seed` and `e` only. With `factors`, the repeat factors
    of `data/balance.py`, a pass contains some images several times, each time with a
    different seed, but has the same number of images as without.

    Args:
        size: int, the number of images in the dataset.
        seed: int, at least 0.
        shuffle: bool, whether each pass has a new order.
        batch_size: int, images per batch of all processes together.
        share: `(index, count)` of this process, see `DetectionDataset.batches`.
        factors: floats `[size]`, the repeat factors of the images, or None.
    """

    def __init__(self, size, seed, shuffle, batch_size, share=(0, 1), factors=None):
        self._factors = factors
        self.batch_size = batch_size
        self._index, self._count = share
        self.epochs_trained = 0  # in all calls of `fit` so far
        self.seed = seed
        self._size, self._shuffle = size, shuffle
        self.start_at(0)

    def start_at(self, number, skipped=0, per_pass=None):
        """Sets the next pass, and how many of its batches are replaced.

        Args:
            number: int, the number of the next pass.
            skipped: int, how many batches are left out at its start. As many batches of
                the following pass are appended in their place.
            per_pass: int, the number of batches in a pass, needed if any are skipped.
        """
        self._next = number
        self._skipped = skipped * self.batch_size
        self._per_pass = (per_pass or 0) * self.batch_size

    def can_skip(self, per_pass):
        """Returns whether the dataset has images for `per_pass` full batches."""
        return per_pass * self.batch_size <= self._size

    @property
    def size(self):
        """How many indices `draw` returns; several processes use full batches only."""
        if self._count == 1:
            return self._size
        return self._size // self.batch_size * self.batch_size // self._count

    @property
    def position(self):
        """The position set by `start_at`: pass, images skipped, images per pass."""
        return self._next, self._skipped, self._per_pass

    def draw(self):
        """Returns the image indices and the seeds of the next pass, int64 arrays."""
        position = self.position
        self._next += 1
        return self.pass_from(position)

    def pass_from(self, position, later=0):
        """Returns what `draw` returns at a position, or `later` passes after it."""
        number, skipped, used = position
        number += later
        drawn = self._order_of_pass(number)
        if skipped:
            drawn = tuple(
                # The images after those that are used stay in place.
                np.concatenate([now[skipped:used], then[:skipped], now[used:]])
                for now, then in zip(drawn, self._order_of_pass(number + 1))
            )
        if self._count == 1:
            return drawn
        whole = self.size * self._count
        batches = [values[:whole].reshape(-1, self.batch_size) for values in drawn]
        shares = [np.split(part, self._count, axis=1)[self._index] for part in batches]
        return tuple(share.reshape(-1) for share in shares)

    def _order_of_pass(self, number):
        """Returns the indices and seeds of a pass for all processes together."""
        rng = np.random.default_rng([self.seed, number])
        if self._factors is not None:
            indices = balanced_places(self._factors, rng)
            return indices, rng.integers(2**62) + _times_before(indices)
        shuffled = self._shuffle
        indices = rng.permutation(self._size) if shuffled else np.arange(self._size)
        seeds = np.full(self._size, rng.integers(2**62), np.int64)
        return indices.astype(np.int64), seeds


def _times_before(indices):
    """Returns how often each int occurs before its place in the array, int64."""
    order = np.argsort(indices, kind="stable")
    sorted_indices = indices[order]
    firsts = np.searchsorted(sorted_indices, sorted_indices)
    times = np.empty(len(indices), np.int64)
    times[order] = np.arange(len(indices)) - firsts
    return times
