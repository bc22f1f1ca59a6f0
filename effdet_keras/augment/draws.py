"""Random numbers from seeds: the same seed gives the same numbers on every device."""

from __future__ import annotations  # a type of TensorFlow would import it

from effdet_keras._internal.optional_imports import tensorflow as tf

_ALGORITHM = "philox"  # named, so that all devices draw alike


def split(seed, count):
    """Independent seeds made of one.

    Args:
        seed: int tensor `[2]`.
        count: int, the number of seeds.

    Returns:
        List of `count` int tensors `[2]`.

    Example:
        >>> [tuple(one.shape) for one in split([0, 1], 3)]
        [(2,), (2,), (2,)]
    """
    seeds = tf.random.split(seed, num=count, alg=_ALGORITHM)
    return tf.unstack(seeds, num=count)


def uniform(seed, shape=(), low=0.0, high=1.0):
    """Float32 numbers from `low` up to, but without, `high`.

    Args:
        seed: int tensor `[2]`.
        shape: tuple of ints, or an int tensor.
        low: float or tensor, the lowest number.
        high: float or tensor, the upper end.

    Returns:
        Float32 tensor of `shape`.

    Example:
        >>> bool(2.0 <= uniform([0, 1], low=2.0, high=3.0) < 3.0)
        True
    """
    unit = tf.random.stateless_uniform(shape, seed, alg=_ALGORITHM)
    return low + (high - low) * unit


def integer(seed, bound, shape=()):
    """Int32 numbers from 0 up to, but without, `bound`.

    Args:
        seed: int tensor `[2]`.
        bound: int or int tensor above 0.
        shape: tuple of ints, or an int tensor.

    Returns:
        Int32 tensor of `shape`.

    Example:
        >>> int(integer([0, 1], 1))
        0
    """
    bound = tf.cast(bound, tf.int32)
    # Not `maxval=`: with it TensorFlow takes a number's remainder, at other cost.
    drawn = tf.cast(uniform(seed, shape) * tf.cast(bound, tf.float32), tf.int32)
    return tf.minimum(drawn, bound - 1)


def happens(seed, probability):
    """Whether something of a given probability happens, a bool scalar.

    Args:
        seed: int tensor `[2]`.
        probability: float from 0 to 1; 0 never happens, 1 always.

    Returns:
        Bool tensor, a scalar.

    Example:
        >>> bool(happens([0, 1], 0.0)), bool(happens([0, 1], 1.0))
        (False, True)
    """
    return uniform(seed) < probability


def normal(seed, shape=()):
    """Float32 numbers of the standard normal distribution.

    Args:
        seed: int tensor `[2]`.
        shape: tuple of ints, or an int tensor.

    Returns:
        Float32 tensor of `shape`.

    Example:
        >>> tuple(normal([0, 1], (2, 3)).shape)
        (2, 3)
    """
    return tf.random.stateless_normal(shape, seed, alg=_ALGORITHM)
