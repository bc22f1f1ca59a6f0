"""The input pipeline in NumPy, with threads, for use without TensorFlow.

It makes the same images, boxes and keys as `batches.py`, in the same order and from the
same random numbers. So a seed gives the same training with and without TensorFlow,
except for the rounding of pixels.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import itertools
import math
import os
import threading
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from effdet_keras._internal.philox import Stream, fold_in
from effdet_keras.augment.augmentation import Augmentation
from effdet_keras.data.pipeline import numpy_transforms
from effdet_keras.data.pipeline.image_reader import ImageReader
from effdet_keras.data.pipeline.transforms import Window
from effdet_keras.errors import InvalidTypeError
from effdet_keras.labels import BACKGROUND

_BATCHES_AHEAD = 2  # one in use and one ready; more would only fill memory
_MOST_THREADS = 16  # more threads would wait for the GIL
ENDLESS = -1  # equal to `tf.data.INFINITE_CARDINALITY`
AUGMENT, PARTNERS = 1, 2  # streams of random numbers beside those of the transforms


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExampleLoader:
    """Reads an example, augments it and resizes it to the network's input.

    Attributes:
        reader: `ImageReader`.
        augmentation: `Augmentation` or None.
        window: `Window`, the size of the input and how images are placed in it.
        training: bool, whether to flip and to apply scale jitter.
        flip_probability: float in [0, 1].
        scale_jitter: pair of floats, the lowest and highest factor on the target size.
        factors: floats `[n]`, the repeat factors of `balance`, or None.
    """

    reader: ImageReader
    augmentation: Augmentation | None
    window: Window
    training: bool
    flip_probability: float
    scale_jitter: tuple[float, float]
    factors: Any = None  # None draws all images with the same probability

    def __call__(self, index: int, epoch_seed: int) -> tuple[np.ndarray, dict]:
        """Returns the image at an index of the dataset, and its ground truth.

        Args:
            index: int, the index of the image.
            epoch_seed: int, the seed of the epoch.

        Returns:
            float32 `[height, width, 3]`, and a dict like one element of the ground
            truth of `DetectionDataset.batches`, with boxes that are not padded.
        """
        seed = epoch_seed, index
        example = self._augmented(index, seed)
        moved = ("image", "boxes", "labels", "mask")
        seen = {key: example[key] for key in moved if key in example}
        if self.training:
            draws = numpy_transforms.random_draws(seed, self.scale_jitter)
            if draws.flip > np.float32(1.0 - self.flip_probability):
                seen = numpy_transforms.flip(seen)
            placed = numpy_transforms.scale_jitter(seen, draws, self.window)
        else:
            placed = numpy_transforms.letterbox(seen, self.window)
        scale = placed["image_scale"] if example["is_there"] else np.float32(0)
        truth = {
            "boxes": placed["boxes"],
            "labels": placed["labels"],
            "image_id": example["image_id"],
            "image_scale": scale,
        }
        if self.reader.gives_masks:
            truth["masks"] = placed["mask"]
        return placed["image"], truth

    def _read(self, index):
        keys = ("image", "boxes", "labels", "image_id", "is_there", "mask")
        return dict(zip(keys, self.reader.read(index)))

    def _augmented(self, index, seed):
        """Reads an example, with partners if necessary, and returns it augmented."""
        example = self._read(index)
        if self.augmentation is None:
            return example
        own_seed = fold_in(seed, AUGMENT)
        if self.augmentation.num_images == 1:
            return self.augmentation.call_arrays(example, own_seed)
        count, size = self.augmentation.num_images - 1, len(self.reader.records)
        places = partners(index, seed, count, size, self.factors)
        others = [self._read(int(place)) for place in places]
        return self.augmentation.call_arrays([example, *others], own_seed)


def partners(index, seed, count, size, factors=None):
    """Draws `count` indices of other images; `index` itself if there is no other."""
    if size == 1:
        return np.full(count, index)
    stream = Stream.scrambled(fold_in(seed, PARTNERS))
    if factors is None:
        return (index + stream.integers_below(1, size, count)) % size
    ends = np.cumsum(factors / np.sum(factors))[:-1]
    places = np.searchsorted(ends, stream.uniform_float64(count), "right")
    return np.where(places == index, (places + 1) % size, places)


class NumPyBatches(keras.utils.PyDataset):
    """Batches of `(images, ground truth)` as `DetectionDataset.batches` makes them.

    A batch depends only on its index and on the position of the order. Threads read the
    next batches while one is in use. Keras' own workers are not used: each would read a
    whole batch, and all of these batches would be in memory at once.

    `cardinality`, `element_spec`, `take`, `repeat` and `as_numpy_iterator` work like
    those of a `tf.data.Dataset`.

    Args:
        load: `ExampleLoader`.
        order: `EpochOrder`.
        batch_size: int, images per batch of this process.
        drop_remainder: bool, whether to leave out a last batch that is not full.
        max_boxes: int, rows of boxes in every batch; or None.
        box_step: int. Without `max_boxes`, rows are padded to a multiple of this.
    """

    def __init__(
        self,
        load: ExampleLoader,
        order: Any,
        batch_size: int,
        *,
        drop_remainder: bool,
        max_boxes: int | None,
        box_step: int,
    ) -> None:
        super().__init__(workers=1)  # the threads are those of `_threads`
        self.image_reader = load.reader
        self._load, self._order, self._batch_size = load, order, batch_size
        self._drop_remainder = drop_remainder
        self._max_boxes, self._box_step = max_boxes, box_step
        cut = math.floor if drop_remainder else math.ceil
        self.batches_per_pass = cut(order.size / batch_size)
        self._passes: int | None = 1  # None means without end
        self._read_ahead = _ReadAhead()

    def cardinality(self) -> int:
        """Returns the number of batches in one iteration, or -1 if it is endless."""
        return ENDLESS if self._passes is None else self._passes * self.batches_per_pass

    def __len__(self) -> int:
        if self._passes is None:
            raise InvalidTypeError("The dataset is infinite: it has no length.")
        return self.cardinality()

    @property
    def num_batches(self) -> int | None:
        return None if self._passes is None else self.cardinality()

    @property
    def element_spec(self) -> tuple:
        """The shapes and dtypes of a batch."""
        rows = self._batch_size if self._drop_remainder else None
        boxes, size = self._max_boxes, self._load.window.image_size
        shapes = {
            "boxes": ((rows, boxes, 4), "float32"),
            "labels": ((rows, boxes), "int32"),
            "image_id": ((rows,), "int64"),
            "image_scale": ((rows,), "float32"),
        }
        if self.image_reader.gives_masks:
            shapes["masks"] = ((rows, *size), "uint8")
        truth = {name: keras.KerasTensor(*spec) for name, spec in shapes.items()}
        return keras.KerasTensor((rows, *size, 3), "float32"), truth

    def take(self, count: int) -> NumPyBatches:
        """Returns the first `count` batches of each pass, or all if it is negative."""
        most = self.batches_per_pass
        return self._with(batches_per_pass=most if count < 0 else min(count, most))

    def repeat(self, count: int | None = None) -> NumPyBatches:
        """Repeats the passes `count` times, each in a new order; None is endless."""
        return self._with(_passes=count)

    def _with(self, **changes):
        copy = object.__new__(type(self))
        copy.__dict__.update({**self.__dict__, **changes, "_read_ahead": _ReadAhead()})
        return copy

    def as_numpy_iterator(self) -> Iterator[tuple]:
        """Returns an iterator over the batches, the same as `iter(self)`."""
        return iter(self)

    def __iter__(self) -> Iterator[tuple]:
        """Yields the batches of one iteration; the next iteration has a new order."""
        position, read_ahead = self._order.position, _ReadAhead()
        self._order.start_at(position[0] + (self._passes or 1))
        length = self.num_batches
        for index in itertools.count() if length is None else range(length):
            yield self._batch(position, index, read_ahead)

    def __getitem__(self, index: int) -> tuple:
        """Returns a batch of the epoch that `fit` has started, by its index."""
        return self._batch(self._order.position, index, self._read_ahead)

    def on_epoch_end(self) -> None:
        """Advances the order; `EfficientDet.fit` sets the epoch itself."""
        if self._passes is not None:  # else one iteration goes on through all epochs
            self._order.start_at(self._order.position[0] + self._passes)

    def _batch(self, position, index, read_ahead):
        """Returns a batch, counted from a position, and starts to read the next."""
        length = self.num_batches
        stop = index + 1 + _BATCHES_AHEAD
        keys = [
            (position, i)
            for i in range(index, stop if length is None else min(stop, length))
        ]
        batch = self._collated(read_ahead.get(keys, self._examples))
        if (index + 1) % self.batches_per_pass == 0:
            self.image_reader.report()
        return batch

    def _examples(self, position, index):
        """Returns the calls that load the examples of a batch."""
        number, place = divmod(index, self.batches_per_pass)
        indices, seeds = self._drawn(position, number)
        rows = slice(place * self._batch_size, (place + 1) * self._batch_size)
        pairs = zip(indices[rows].tolist(), seeds[rows].tolist())
        return [functools.partial(self._load, *pair) for pair in pairs]

    def _drawn(self, position, number):
        """Returns the order of a pass.

        The last order is cached, because it takes milliseconds for a large dataset.
        """
        known = self.__dict__.get("_last_drawn")
        if known is None or known[0] != (position, number):
            drawn = self._order.pass_from(position, number)
            known = self._last_drawn = (position, number), drawn
        return known[1]

    def _collated(self, examples):
        """Stacks examples: images `[B, H, W, 3]`, and a dict with padded boxes."""
        images, truths = zip(*examples)
        most = max(len(truth["labels"]) for truth in truths)
        count = self._max_boxes
        if count is None:
            step = self._box_step
            count = step * max(-(-most // step), 1) if step > 1 else most
        boxes = np.zeros((len(truths), count, 4), np.float32)
        labels = np.full((len(truths), count), BACKGROUND, np.int32)
        for row, truth in enumerate(truths):
            boxes[row, : len(truth["boxes"])] = truth["boxes"]
            labels[row, : len(truth["labels"])] = truth["labels"]
        rest = {
            name: np.stack([truth[name] for truth in truths])
            for name in truths[0]
            if name not in ("boxes", "labels")
        }
        return np.stack(images), {"boxes": boxes, "labels": labels, **rest}


class _ReadAhead:
    """The batches of one iteration that threads have read or are reading."""

    def __init__(self):
        self._futures = {}  # from the key of a batch to the futures of its examples
        self._lock = threading.Lock()  # Keras' own workers may ask for batches

    def get(self, keys, calls_of):
        """Returns the batch of the first key, and starts to read those of the others.

        Args:
            keys: list of hashable keys, one per batch.
            calls_of: function of the parts of a key, which returns the functions to
                call for the examples of that batch.

        Returns:
            List of the examples of the first batch.
        """
        with self._lock:
            for key in [key for key in self._futures if key not in keys]:
                for future in self._futures.pop(key):  # left from an ended iteration
                    future.cancel()
            for key in keys:
                if key not in self._futures:
                    calls = calls_of(*key)
                    self._futures[key] = [_threads().submit(call) for call in calls]
            futures = self._futures.pop(keys[0])
        return [future.result() for future in futures]


@functools.cache
def _threads():
    count = min(os.cpu_count() or 1, _MOST_THREADS)
    return concurrent.futures.ThreadPoolExecutor(count, "effdet_keras-batches")
