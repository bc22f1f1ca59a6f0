"""Repeats data for `fit(steps_per_epoch=...)` as often as its steps need.

Keras ends an epoch when the data ends, even if fewer steps than `steps_per_epoch` were
done. With 24 images in batches of 8, epochs of `steps_per_epoch=2` have 2, 1, 2 and 1
steps, and a schedule that is as long as the training never reaches its end. The
reference repeats the data, and so does this module: an epoch begins where the one
before it stopped.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from effdet_keras.data.pipeline.image_reader import find_image_readers

_KERAS_BATCH_SIZE = 32  # Keras' default for arrays


def repeat(
    x: Any,
    y: Any = None,
    *,
    batch_size: int | None = None,
    shuffle: bool | str = True,
    first_step: int = 0,
) -> tuple[Any, Any]:
    """Returns data that repeats without end, as `x` and `y` of `keras.Model.fit`.

    Args:
        x: a `tf.data.Dataset`, an array of images, a `keras.utils.PyDataset` or a torch
            `DataLoader`. A generator is returned unchanged, because it cannot begin
            again.
        y: dict of ground truth, if `x` is an array.
        batch_size: int, the number of images per batch, if `x` is an array.
        shuffle: as in `keras.Model.fit`, bool, whether arrays have a new order in each
            pass; or "batch", for a new order of batches of neighboring images. It also
            applies to a `PyDataset`.
        first_step: int, the number of steps that a resumed training has already done.
            Data that repeats the same order starts after them. Batches of a
            `DetectionDataset` are set by `train/data_order.py` instead.
    """
    if hasattr(x, "element_spec"):  # tf.data
        return _repeated_tf_data(x, first_step), y
    if hasattr(x, "shape"):
        batch_size = batch_size or _KERAS_BATCH_SIZE
        return _RepeatedArrays(x, y, batch_size, shuffle, first_step), None
    if isinstance(x, keras.utils.PyDataset):
        is_endless = getattr(x, "num_batches", None) is None
        return (x if is_endless else _RepeatedBatches(x, shuffle, first_step)), y
    if hasattr(x, "__len__"):  # a torch DataLoader
        return _passes_over(x, first_step % len(x)), y
    return x, y


def _repeated_tf_data(dataset, first_step):
    length = int(dataset.cardinality())
    # It is endless, or distributed by a strategy.
    if length == -1 or not hasattr(dataset, "repeat"):
        return dataset
    endless = dataset.repeat()
    is_ours = bool(find_image_readers(dataset))
    if is_ours or length < 1 or first_step % length == 0:
        return endless
    return endless.skip(first_step % length)


def _passes_over(loader, first) -> Iterator[tuple]:
    for batch in itertools.islice(loader, first, None):
        yield tuple(batch)
    while True:
        for batch in loader:
            yield tuple(batch)


class _Endless(keras.utils.PyDataset):
    """Batches of one pass after the other, without end.

    The order of a pass depends only on the seed and the number of the pass. So the
    worker processes of a `PyDataset` agree on it.
    """

    def __init__(self, num_batches, first_step, **options):
        super().__init__(**options)
        self._batches_per_pass = num_batches
        self._first_step = first_step
        self._seed = np.random.randint(2**31)

    @property
    def num_batches(self):
        return None

    def __getitem__(self, index):
        number, place = divmod(index + self._first_step, self._batches_per_pass)
        return self.batch_of(number, place)

    def batch_of(self, number: int, place: int) -> tuple:
        """Returns batch `place` of pass `number`, both counted from 0."""
        raise NotImplementedError

    def shuffled(self, number: int, count: int) -> np.ndarray:
        """Returns the indices `0 .. count-1` in the order of pass `number`."""
        return np.random.default_rng([self._seed, number]).permutation(count)


class _RepeatedBatches(_Endless):
    """The batches of a `keras.utils.PyDataset`."""

    def __init__(self, batches, shuffle, first_step):
        super().__init__(
            batches.num_batches,
            first_step,
            workers=batches.workers,
            use_multiprocessing=batches.use_multiprocessing,
            max_queue_size=batches.max_queue_size,
        )
        self._batches, self._shuffle = batches, shuffle

    def batch_of(self, number, place):
        if self._shuffle:
            place = int(self.shuffled(number, self._batches_per_pass)[place])
        return self._batches[place]

    def on_epoch_begin(self):
        self._batches.on_epoch_begin()

    def on_epoch_end(self):
        self._batches.on_epoch_end()


class _RepeatedArrays(_Endless):
    """Batches of arrays of images and ground truth. The last one may be smaller."""

    def __init__(self, images, truth, batch_size, shuffle, first_step):
        super().__init__(math.ceil(len(images) / batch_size), first_step)
        self._arrays = keras.tree.map_structure(_as_numpy, (images, truth))
        self._num_images, self._batch_size = len(images), batch_size
        self._shuffle = shuffle

    def batch_of(self, number, place):
        if self._shuffle == "batch":
            place = int(self.shuffled(number, self._batches_per_pass)[place])
        rows = slice(place * self._batch_size, (place + 1) * self._batch_size)
        if self._shuffle is True:
            rows = self.shuffled(number, self._num_images)[rows]
        return keras.tree.map_structure(lambda array: array[rows], self._arrays)


def _as_numpy(array):
    """Returns an array that NumPy can index. A memory-mapped array is not read."""
    is_numpy = isinstance(array, np.ndarray)
    return array if is_numpy else keras.ops.convert_to_numpy(array)
