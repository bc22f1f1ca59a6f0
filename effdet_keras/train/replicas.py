"""Combines the replicas of a `tf.distribute` strategy within a step.

With one device, the functions do the same without communication.
"""

import tensorflow as tf

from effdet_keras._internal.replicas import num_replicas, sum_of_replicas


def sum_over_replicas(gradients):
    """Returns the sum of the gradients of all replicas.

    Because the sum is clipped, N replicas give the same result as one device. The
    reference clips before it sums.
    """
    if num_replicas() == 1:
        return [tf.convert_to_tensor(gradient) for gradient in gradients]
    replica = tf.distribute.get_replica_context()
    gradients = replica.all_reduce("SUM", gradients)
    return [tf.convert_to_tensor(gradient) for gradient in gradients]


def divide_among_replicas(gradients):
    """Returns gradients divided by the number of replicas.

    All replicas hold the same gradients. Their sum over the replicas then gives them.
    """
    count = num_replicas()
    return gradients if count == 1 else [gradient / count for gradient in gradients]


def on_all_replicas(condition):
    """Returns whether a condition is true on every replica.

    So either all replicas reject a batch, or none does.
    """
    if num_replicas() == 1:
        return condition
    return sum_of_replicas(tf.cast(~condition, tf.float32)) == 0.0


NOT_FINITE = "effdet_keras: this batch is not finite"  # in the error of `run_if`


def run_if(condition, function, *arguments, asserts=False):
    """Calls `function(*arguments)` if a condition is true.

    The condition must be equal on all replicas. If it is false, the function is not
    called.

    With `asserts`, on one device, an assertion is used instead of `tf.cond`. If it
    fails, the step ends with an `InvalidArgumentError` that contains `NOT_FINITE`. That
    is faster: a branch of `tf.cond` is a separate function, here with 2,000 inputs, and
    D0's first step takes 12.6 s of CPU with it instead of 9.0 s (at 128 pixels). XLA
    ignores assertions.

    Replicas assign to variables together, which TensorFlow does not allow inside a
    condition of one replica. So one condition has to enclose all replicas.
    """
    if num_replicas() == 1 and asserts:
        with tf.control_dependencies([tf.debugging.Assert(condition, [NOT_FINITE])]):
            function(*arguments)
        return
    if num_replicas() == 1:
        tf.cond(condition, lambda: _call(function, arguments), lambda: False)
        return

    def on_each_replica(strategy, condition, *arguments):
        first = strategy.experimental_local_results(condition)[0]
        extended = strategy.extended
        tf.cond(
            first,
            lambda: _call(extended.call_for_each_replica, (function, arguments)),
            lambda: False,
        )

    replica = tf.distribute.get_replica_context()
    replica.merge_call(on_each_replica, args=(condition, *arguments))


def _call(function, arguments):
    function(*arguments)
    return True
