"""The gradient of a scalar function of one tensor, on whichever backend runs."""

import keras
import numpy as np
from keras import ops


def gradient(function, point):
    """Gives `d function / d point` as a NumPy array."""
    point = np.asarray(point)
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        x = tf.constant(point)
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = function(x)
        return tape.gradient(value, x).numpy()
    if backend == "jax":
        import jax

        # Compiled as a whole: op by op, each shape costs a compilation an op.
        return np.asarray(jax.jit(jax.grad(function))(point))
    x = ops.convert_to_tensor(point).requires_grad_()
    function(x).backward()
    return x.grad.cpu().numpy()


def compiled(function):
    """Compiles a function of tensors the way the backend's `fit` would."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.function(function)
    if backend == "jax":
        import jax

        return jax.jit(function)
    return function
