"""Batch norm in one operation, and over all replicas: what only TensorFlow has."""

import tensorflow as tf


def fused_batch_norm(
    inputs, scale, offset, moving_mean, moving_variance, *, epsilon, training
):
    """Normalizes over all axes but the last.

    Args:
        inputs: float32 tensor `[B, H, W, C]`.
        scale, offset, moving_mean, moving_variance: float32 tensors `[C]`.

    Returns:
        Tuple of the result, like `inputs`, and the mean and the variance `[C]` that
        it was normalized by.

    Example:
        >>> ones, zeros = ops.ones((1,)), ops.zeros((1,))
        >>> images = ops.reshape(ops.array([1.0, 3.0]), (1, 1, 2, 1))
        >>> _, mean, variance = fused_batch_norm(
        ...     images, ones, zeros, zeros, ones, epsilon=1e-3, training=True
        ... )
        >>> mean.numpy(), variance.numpy()
        (array([2.], dtype=float32), array([1.], dtype=float32))
    """
    if not training:
        outputs, mean, variance = tf.compat.v1.nn.fused_batch_norm(
            inputs,
            scale,
            offset,
            moving_mean,
            moving_variance,
            epsilon=epsilon,
            is_training=False,
        )
        return outputs, mean, variance
    outputs, mean, variance = tf.compat.v1.nn.fused_batch_norm(
        inputs, scale, offset, epsilon=epsilon, is_training=True
    )
    # The kernel divides by n - 1, Keras by n.
    n = tf.cast(tf.size(inputs) // tf.size(scale), tf.float32)
    return outputs, mean, variance * (tf.maximum(n - 1.0, 1.0) / n)


def synchronized_batch_norm(inputs, scale, offset, *, epsilon):
    """Normalizes over all axes but the last, and over all replicas.

    Keras' own takes the variance as a difference of large numbers, and reduces three
    times where two are enough.

    Args:
        inputs: float32 tensor `[B, H, W, C]`, the part of the batch of this replica.
        scale, offset: float32 tensors `[C]`.

    Returns:
        Tuple of the result, like `inputs`, and the mean and the variance `[C]` of all
        replicas.

    Example:
        >>> ones, zeros = ops.ones((1,)), ops.zeros((1,))
        >>> images = ops.reshape(ops.array([1.0, 3.0]), (1, 1, 2, 1))
        >>> _, mean, variance = synchronized_batch_norm(
        ...     images, ones, zeros, epsilon=1e-3
        ... )
        >>> mean.numpy(), variance.numpy()
        (array([2.], dtype=float32), array([1.], dtype=float32))
    """
    axes = list(range(inputs.shape.rank - 1))
    count = tf.cast(tf.size(inputs) // tf.size(scale), tf.float32)
    total = _over_replicas(tf.concat([tf.reduce_sum(inputs, axes), [count]], 0))
    mean, count = total[:-1] / total[-1], total[-1]
    squares = tf.reduce_sum(tf.math.squared_difference(inputs, mean), axes)
    variance = _over_replicas(squares) / count
    outputs = tf.nn.batch_normalization(inputs, mean, variance, offset, scale, epsilon)
    return outputs, mean, variance


def num_replicas():
    """How many replicas train together."""
    return tf.distribute.get_strategy().num_replicas_in_sync


def _over_replicas(value):
    """The sum over all replicas; the value itself where there is one."""
    replica = tf.distribute.get_replica_context()
    if replica is None or num_replicas() == 1:
        return value
    return replica.all_reduce("SUM", value)
