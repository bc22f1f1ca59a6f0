"""The number of devices in a `tf.distribute` strategy, and sums over them."""

from effdet_keras._internal.optional_imports import tensorflow as tf


def num_replicas():
    """Returns how many devices share a batch; 1 without a strategy of TensorFlow."""
    return tf.distribute.get_strategy().num_replicas_in_sync


def sum_of_replicas(value):
    """Returns the sum of a value over the devices that `num_replicas` counts."""
    replica = tf.distribute.get_replica_context()
    if replica is None or num_replicas() == 1:
        return value
    return replica.all_reduce("SUM", value)
