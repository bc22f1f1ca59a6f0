"""Data that `fit(steps_per_epoch=...)` goes through as often as its steps need.

Keras ends an epoch where the data ends, although fewer steps were done than asked for:
24 images in batches of 8 give `steps_per_epoch=2` epochs of 2, 1, 2, 1 steps, and a
schedule that is as long as the training never comes to its end. The reference repeats
the data, and so does this: an epoch begins where the one before it stopped.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from effdet_keras.data.pipeline.image_reader import find_image_readers

_KERAS_BATCH_SIZE = 32  # Keras' own, of arrays


def repeat(
    x: Any,
    y: Any = None,
    *,
    batch_size: int | None = None,
    shuffle: bool | str = True,
    first_step: int = 0,
) -> tuple[Any, Any]:
    """Returns data without end, as `x` and `y` of `keras.Model.fit`.

    Args:
        x: what `fit` takes: a `tf.data.Dataset`, an array of images, a
            `keras.utils.PyDataset` or a torch `DataLoader`. A generator is returned as
            it is: it cannot begin again.
        y: dict of ground truth, where `x` is an array.
        batch_size: int, images per batch, where `x` is an array.
        shuffle: as in `keras.Model.fit`: whether arrays are in another order in each
            pass, and "batch" for batches of neighbours in another order. It counts for
            a `PyDataset` too.
        first_step: int, the steps that a training which goes on has done already, so
            that it finds its place in data that repeats its order. Batches of our own
            `DetectionDataset` are put in their place by `train/data_order.py`.
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
    if length == -1 or not hasattr(dataset, "repeat"):  # it is endless; distributed
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

    The order of a pass depends on the seed and the number of the pass alone, so that
    the worker processes of a `PyDataset` agree on it.
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
        """The batch at a place of one pass."""
        raise NotImplementedError

    def shuffled(self, number: int, count: int) -> np.ndarray:
        """So many indices, in the order of one pass."""
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
    """Batches of the images and the ground truth of arrays; the last may be small."""

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
    """An array that NumPy can index; one on a disk stays there."""
    is_numpy = isinstance(array, np.ndarray)
    return array if is_numpy else keras.ops.convert_to_numpy(array)
