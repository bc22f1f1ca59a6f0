"""Batch norm: Keras' own, and on TensorFlow its fused kernel."""

import importlib

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="effdet_keras")
class BatchNormalization(keras.layers.BatchNormalization):
    """`keras.layers.BatchNormalization` over the last axis, faster on TensorFlow.

    Keras composes it of ten operations, each a pass over the largest arrays of a
    training step; TensorFlow's fused kernel takes a fifth of their time on a CPU,
    forward and backward, and lets the graph's optimizer merge it into a
    convolution before it. Numbers, variables and their names are the same.

    Args:
        **kwargs: arguments of `keras.layers.BatchNormalization`, except that `axis` is
            always the last, and that there are always a scale and an offset.

    Example:
        >>> x = ops.array([[[[1.0], [3.0]]]])
        >>> y = BatchNormalization(epsilon=0.0)(x, training=True)
        >>> ops.convert_to_numpy(y).ravel().round(4)
        array([-1.,  1.], dtype=float32)
    """

    def call(self, inputs, training=None, mask=None):
        if _fused_kernel is None or mask is not None or len(inputs.shape) != 4:
            return super().call(inputs, training=training, mask=mask)
        is_training = bool(training) and self.trainable
        if is_training and self.synchronized:
            return super().call(inputs, training=training)
        # The kernel's statistics are float32, as Keras' are under any policy.
        outputs, mean, variance = _fused_kernel(
            ops.cast(inputs, "float32"),
            ops.cast(self.gamma, "float32"),
            ops.cast(self.beta, "float32"),
            ops.cast(self.moving_mean, "float32"),
            ops.cast(self.moving_variance, "float32"),
            epsilon=self.epsilon,
            training=is_training,
        )
        if is_training:
            self._move(self.moving_mean, mean)
            self._move(self.moving_variance, variance)
        return ops.cast(outputs, self.compute_dtype)

    def _move(self, statistic, value):
        statistic.assign(
            ops.cast(statistic, "float32") * self.momentum
            + value * (1.0 - self.momentum)
        )


def _find_fused_kernel():
    if keras.backend.backend() != "tensorflow":
        return None
    module = importlib.import_module("effdet_keras.layers.tensorflow_batch_norm")
    return module.fused_batch_norm


_fused_kernel = _find_fused_kernel()
