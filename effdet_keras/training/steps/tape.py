"""Gradients of variables on TensorFlow, some of which a loss may not use."""

import tensorflow as tf


def gradients_of(tape, target, variables):
    """The gradients of a scalar, zeros for what it does not depend on.

    The tape's own `unconnected_gradients="zero"` cannot make zeros of a Keras variable
    where a step runs eagerly.

    Args:
        tape: `tf.GradientTape`.
        target: float scalar.
        variables: list of Keras variables.

    Returns:
        List of float tensors, one per variable.
    """
    gradients = tape.gradient(target, variables)
    return [
        tf.zeros_like(variable.value) if gradient is None else gradient
        for gradient, variable in zip(gradients, variables, strict=True)
    ]
