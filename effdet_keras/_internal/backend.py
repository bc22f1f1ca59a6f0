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
    """Returns what `jit_compile="auto"` means here, on the backend that runs.

    Keras' own "auto" is XLA wherever every layer supports it, on CPUs as well, where
    it makes depthwise convolutions 7 to 20 times slower.

    Returns:
        Bool. On TensorFlow True on a TPU, which runs nothing but XLA. On JAX True:
        without it JAX runs one operation at a time. On torch False: compiling takes
        minutes before the first step.

    Example:
        >>> default_jit_compile() in (True, False)
        True
    """
    backend = keras.backend.backend()
    if backend == "tensorflow":
        return bool(tf.config.list_logical_devices("TPU"))
    return backend == "jax"
