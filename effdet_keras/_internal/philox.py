"""TensorFlow's random numbers in NumPy, for batches without TensorFlow.

This is the counter-based generator Philox 4x32 with 10 rounds (Salmon et al., "Parallel
random numbers: as easy as 1, 2, 3", https://doi.org/10.1145/2063384.2063405). `Stream`
counts like `augment/random_ops.py`, and `Stream.scrambled` like
`tf.random.stateless_uniform` with `alg="philox"`. So a training draws the same numbers
with and without TensorFlow. Seeds are pairs of ints, of which 64 bits each are used.
"""

from __future__ import annotations

import numpy as np

_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10
_32_BITS, _64_BITS = 2**32 - 1, 2**64 - 1
_SCRAMBLING_KEY = 0x02461E293EC8F720  # of TensorFlow; it spreads small seeds


class Stream:
    """The random numbers of one seed. Each method starts again with the first number.

    Example:
        >>> f"{Stream((1, 2)).uniform():.4f}"
        '0.4064'
    """

    def __init__(self, seed):
        self._key, self._high = (int(number) & _64_BITS for number in seed)

    @classmethod
    def scrambled(cls, seed):
        """Returns the stream that `tf.random.stateless_uniform` draws from a seed."""
        first, second = (int(number) & _64_BITS for number in seed)
        return cls(_pairs(_block(_SCRAMBLING_KEY, first, second)))

    def uniform(self, shape=()):
        """Returns float32 numbers in [0, 1) of a shape."""
        bits = self._words(int(np.prod(shape)))
        mantissas = np.uint32(0x3F800000) | (np.array(bits, np.uint32) & 0x7FFFFF)
        return (mantissas.view(np.float32) - np.float32(1)).reshape(shape)

    def uniform_float64(self, count):
        """Returns float64 numbers `[count]` in [0, 1)."""
        words = np.array(self._words(2 * count), np.uint64).reshape(-1, 2)
        mantissas = (words[:, 0] & np.uint64(0xFFFFF)) << np.uint64(32) | words[:, 1]
        return (mantissas | np.uint64(1023 << 52)).view(np.float64) - 1.0

    def integers(self, count):
        """Returns int64 `[count]`, with all 64 bits random."""
        return np.array(_pairs(self._words(2 * count)), np.uint64).view(np.int64)

    def integers_below(self, low, high, count):
        """Returns int64 `[count]`, from `low` (included) to `high` (excluded)."""
        drawn = self.integers(count).view(np.uint64) % np.uint64(high - low)
        return drawn.astype(np.int64) + low

    def split(self, count):
        """Returns `count` independent seeds."""
        return self.integers(2 * count).reshape(count, 2).tolist()

    def _words(self, count):
        """Returns the first `count` numbers of 32 bits; a block has four."""
        blocks = range(-(-count // 4))
        return [x for low in blocks for x in _block(self._key, low, self._high)][:count]


def fold_in(seed, number):
    """Returns `tf.random.fold_in(seed, number, alg="philox")` for an int64 seed."""
    words = Stream.scrambled(seed)._words(1)
    return np.array(words, np.uint32).view(np.int32).item(), number


def _pairs(words):
    """Joins pairs of 32-bit numbers to 64-bit numbers, the lower half first."""
    return [low | high << 32 for low, high in zip(words[::2], words[1::2])]


def _block(key, low, high):
    """Returns four 32-bit numbers for a key and the two halves of a counter."""
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
