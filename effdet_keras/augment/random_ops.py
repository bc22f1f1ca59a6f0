"""Random numbers from seeds: the same seed gives the same numbers on every device.

These functions have fewer graph operations than `tf.random.stateless_*`, so that a
dataset starts sooner. Seeds are int tensors `[2]`. `unit` is a number from `uniform`.
"""

from __future__ import annotations  # a type of TensorFlow would import it

from effdet_keras._internal.optional_imports import tensorflow as tf

_PHILOX = 1  # the algorithm is named, so that all devices draw the same numbers


def uniform(seed, shape=()):
    """Returns random float32 numbers in [0, 1), a tensor of the given shape."""
    key, counter = _key_and_counter(seed)
    return tf.raw_ops.StatelessRandomUniformV2(
        shape=tf.convert_to_tensor(shape, tf.int32),
        key=key,
        counter=counter,
        alg=_PHILOX,
    )


def split(seed, count):
    """Derives a list of `count` independent seeds, int64 tensors `[2]`, from one."""
    key, counter = _key_and_counter(seed)
    seeds = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[count, 2], key=key, counter=counter, alg=_PHILOX, dtype=tf.int64
    )
    return tf.unstack(seeds, num=count)


def integer(unit, bound):
    """Maps `unit` to an int32 from 0 to `bound - 1`."""
    bound = tf.cast(bound, tf.int32)
    drawn = tf.cast(unit * tf.cast(bound, tf.float32), tf.int32)
    return tf.minimum(drawn, bound - 1)


def between(unit, low, high):
    """Maps `unit` to a number from `low` to `high`."""
    return low + (high - low) * unit


def around_zero(unit, most):
    """Maps `unit` to a number from `-most` to `most`."""
    return between(unit, -most, most)


def _key_and_counter(seed):
    """Returns key and counter of the generator, one from each number of the seed."""
    seed = tf.bitcast(tf.cast(seed, tf.int64), tf.uint64)
    key, high = tf.split(seed, 2)
    return key, tf.concat([tf.zeros([1], tf.uint64), high], axis=0)
