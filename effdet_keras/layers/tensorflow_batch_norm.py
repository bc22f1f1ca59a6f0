"""Batch norm in one operation, which only TensorFlow has."""

import tensorflow as tf


def fused_batch_norm(
    inputs, scale, offset, moving_mean, moving_variance, *, epsilon, training
):
    """Normalizes over all axes but the last.

    Args:
        inputs: float32 tensor `[B, H, W, C]`.
        scale, offset, moving_mean, moving_variance: float32 tensors `[C]`.
        epsilon: float, added to the variance.
        training: bool, whether to use the batch's statistics, not the moving ones.

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
