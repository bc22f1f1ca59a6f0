"""How many devices of a `tf.distribute` strategy share a batch, and sums over them."""

from effdet_keras._internal.optional_imports import tensorflow as tf


def num_replicas():
    """How many devices of TensorFlow's strategy share a batch; 1 without one."""
    return tf.distribute.get_strategy().num_replicas_in_sync


def sum_of_replicas(value):
    """The sum over the devices that `num_replicas` counts."""
    replica = tf.distribute.get_replica_context()
    if replica is None or num_replicas() == 1:
        return value
    return replica.all_reduce("SUM", value)
