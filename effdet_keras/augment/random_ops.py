"""Random numbers from seeds: the same seed gives the same numbers on every device.

With fewer operations of the graph than `tf.random.stateless_*` has, so that a dataset
starts sooner. Seeds are int tensors `[2]`; `unit` is a number of `uniform`.
"""

from __future__ import annotations  # a type of TensorFlow would import it

from effdet_keras._internal.optional_imports import tensorflow as tf

_PHILOX = 1  # named, so that all devices draw alike


def uniform(seed, shape=()):
    """Float32 numbers from 0 up to, but without, 1."""
    key, counter = _key_and_counter(seed)
    return tf.raw_ops.StatelessRandomUniformV2(
        shape=tf.convert_to_tensor(shape, tf.int32),
        key=key,
        counter=counter,
        alg=_PHILOX,
    )


def split(seed, count):
    """A list of `count` independent seeds made of one, int64 tensors `[2]`."""
    key, counter = _key_and_counter(seed)
    seeds = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[count, 2], key=key, counter=counter, alg=_PHILOX, dtype=tf.int64
    )
    return tf.unstack(seeds, num=count)


def integer(unit, bound):
    """An int32 from 0 up to, but without, `bound`."""
    bound = tf.cast(bound, tf.int32)
    drawn = tf.cast(unit * tf.cast(bound, tf.float32), tf.int32)
    return tf.minimum(drawn, bound - 1)


def between(unit, low, high):
    """A number from `low` to `high`."""
    return low + (high - low) * unit


def around_zero(unit, most):
    """A number from `-most` to `most`."""
    return between(unit, -most, most)


def _key_and_counter(seed):
    """What the generator counts with: one number of the seed each."""
    seed = tf.bitcast(tf.cast(seed, tf.int64), tf.uint64)
    key, high = tf.split(seed, 2)
    return key, tf.concat([tf.zeros([1], tf.uint64), high], axis=0)
