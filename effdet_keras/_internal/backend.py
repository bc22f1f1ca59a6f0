"""What depends on the backend that Keras runs on, wherever it is asked."""

from effdet_keras._internal.optional_imports import keras
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.errors import InvalidStateError


def require_tensorflow(what, cure):
    """Refuses what TensorFlow alone can do."""
    backend = keras.backend.backend()
    if backend != "tensorflow":
        raise InvalidStateError(f"{what}, and Keras runs on {backend}. {cure}")


def default_jit_compile():
    """Returns what `jit_compile="auto"` means here, on the backend that runs."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        return bool(tf.config.list_logical_devices("TPU"))
    return backend == "jax"
