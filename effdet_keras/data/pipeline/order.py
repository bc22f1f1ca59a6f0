"""The order of a pipeline's images, and their seeds: known for each epoch by itself."""

import numpy as np


class EpochOrder:
    """Which image is where in each pass over a dataset, and what it is augmented by.

    Pass `e` depends on `seed` and `e` alone, so that a training which starts at epoch
    `e` sees what an uninterrupted one sees there. A pipeline asks with `draw` for one
    pass after the other, from that on which `start_at` named.

    Args:
        size: int, the number of images.
        seed: int.
        shuffle: bool, whether each pass has an order of its own.
        batch_size: int.

    Example:
        >>> order = EpochOrder(4, seed=0, shuffle=True, batch_size=2)
        >>> (first, _), (second, _) = order.draw(), order.draw()
        >>> order.start_at(1)
        >>> bool((order.draw()[0] == second).all())
        True
    """

    def __init__(self, size, seed, shuffle, batch_size):
        self.batch_size = batch_size
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

    def draw(self):
        """Returns the indices of the next pass, and the seed of each: int64 arrays."""
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
