"""The order of a pipeline's images, and their seeds: known for each epoch by itself."""

import numpy as np


class EpochOrder:
    """Which image is where in each pass over a dataset, and what it is augmented by.

    Pass `e` depends on `seed` and `e` alone, so that a training which starts at epoch
    `e` sees what an uninterrupted one sees there. A pipeline asks with `draw` for one
    pass after the other, from that on which `start_at` named.

    Where several processes train together, each draws its share of every batch. All
    shares together are what one process alone would draw.

    Args:
        size: int, the number of images.
        seed: int.
        shuffle: bool, whether each pass has an order of its own.
        batch_size: int, images of a batch of all processes together.
        share: `(index, count)`, which part of each batch this process has.

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
            number: int, the pass, from 0.
            skipped: int, batches at its beginning that nobody needs again. As many of
                the next pass follow, so that all passes have one length.
            per_pass: int, batches of a pass that are used, where `skipped` is not 0.
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
