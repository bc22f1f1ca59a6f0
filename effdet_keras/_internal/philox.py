"""TensorFlow's random numbers of a seed, in NumPy: for batches without TensorFlow.

The counter-based generator Philox 4x32 with 10 rounds (Salmon et al., "Parallel random
numbers: as easy as 1, 2, 3", https://doi.org/10.1145/2063384.2063405). `Stream` counts
as `augment/random_ops.py` does, `scrambled` as `tf.random.stateless_uniform` with
`alg="philox"`, so that a training draws the same numbers with and without TensorFlow.
Seeds are pairs of ints, of which 64 bits each count.
"""

from __future__ import annotations

import numpy as np

_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10
_32_BITS, _64_BITS = 2**32 - 1, 2**64 - 1
_SCRAMBLING_KEY = 0x02461E293EC8F720  # TensorFlow's, for seeds that are small numbers


class Stream:
    """Numbers of one seed, always from the first on.

    Example:
        >>> f"{Stream((1, 2)).uniform():.4f}"
        '0.4064'
    """

    def __init__(self, seed):
        self._key, self._high = (int(number) & _64_BITS for number in seed)

    @classmethod
    def scrambled(cls, seed):
        """The numbers that `tf.random.stateless_uniform` draws of a seed."""
        first, second = (int(number) & _64_BITS for number in seed)
        return cls(_pairs(_block(_SCRAMBLING_KEY, first, second)))

    def uniform(self, shape=()):
        """Numbers from 0 up to, but without, 1: float32 of a shape."""
        bits = self._words(int(np.prod(shape)))
        mantissas = np.uint32(0x3F800000) | (np.array(bits, np.uint32) & 0x7FFFFF)
        return (mantissas.view(np.float32) - np.float32(1)).reshape(shape)

    def uniform_float64(self, count):
        """As `uniform`, float64 `[count]`."""
        words = np.array(self._words(2 * count), np.uint64).reshape(-1, 2)
        mantissas = (words[:, 0] & np.uint64(0xFFFFF)) << np.uint64(32) | words[:, 1]
        return (mantissas | np.uint64(1023 << 52)).view(np.float64) - 1.0

    def integers(self, count):
        """Ints of all 64 bits, int64 `[count]`."""
        return np.array(_pairs(self._words(2 * count)), np.uint64).view(np.int64)

    def integers_below(self, low, high, count):
        """Ints from `low` up to, but without, `high`: int64 `[count]`."""
        drawn = self.integers(count).view(np.uint64) % np.uint64(high - low)
        return drawn.astype(np.int64) + low

    def split(self, count):
        """So many independent seeds."""
        return self.integers(2 * count).reshape(count, 2).tolist()

    def _words(self, count):
        """The first `count` numbers of 32 bits, four to a block."""
        blocks = range(-(-count // 4))
        return [x for low in blocks for x in _block(self._key, low, self._high)][:count]


def fold_in(seed, number):
    """The seed `tf.random.fold_in(seed, number, alg="philox")`, with an int64 seed."""
    words = Stream.scrambled(seed)._words(1)
    return np.array(words, np.uint32).view(np.int32).item(), number


def _pairs(words):
    """Each two numbers of 32 bits as one of 64, the lower one first."""
    return [low | high << 32 for low, high in zip(words[::2], words[1::2])]


def _block(key, low, high):
    """The four numbers of 32 bits of a key and a counter of `low` and `high` bits."""
    keys = [key & _32_BITS, key >> 32]
    words = [low & _32_BITS, low >> 32, high & _32_BITS, high >> 32]
    for _ in range(_ROUNDS):
        first, second = _MULTIPLIERS[0] * words[0], _MULTIPLIERS[1] * words[2]
        words = [
            (second >> 32) ^ words[1] ^ keys[0],
            second & _32_BITS,
            (first >> 32) ^ words[3] ^ keys[1],
            first & _32_BITS,
        ]
        keys = [(k + step) & _32_BITS for k, step in zip(keys, _KEY_STEPS)]
    return words
