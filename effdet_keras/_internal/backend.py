"""Code that depends on the backend of Keras, for use in all other modules."""

import contextlib
import functools
from collections.abc import Callable

from effdet_keras._internal.optional_imports import jax, keras, torch
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.errors import InvalidStateError


def require_tensorflow(what, cure):
    """Raises `InvalidStateError` unless Keras runs on TensorFlow."""
    backend = keras.backend.backend()
    if backend != "tensorflow":
        raise InvalidStateError(f"{what}, and Keras runs on {backend}. {cure}")


def runs_on_tensorflow() -> bool:
    """Returns whether Keras runs on TensorFlow."""
    return keras.backend.backend() == "tensorflow"


def default_jit_compile():
    """Returns what `jit_compile="auto"` means on the current backend."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        return bool(tf.config.list_logical_devices("TPU"))
    return backend == "jax"


@contextlib.contextmanager
def without_tf32():
    """Makes Keras compute float32 with all of its bits within the block.

    By default, all three backends let recent graphics cards round the factors of a
    product to TF32, which has 10 of float32's 23 fraction bits.
    """
    backend = keras.backend.backend()
    if backend == "jax":
        with jax.default_matmul_precision("highest"):  # includes convolutions
            yield
    elif backend == "torch":
        cudnn, cuda = torch.backends.cudnn, torch.backends.cuda
        if hasattr(cudnn, "conv"):
            settings, name, off = (cudnn.conv, cuda.matmul), "fp32_precision", "ieee"
        else:  # before torch 2.9
            settings, name, off = (cudnn, cuda.matmul), "allow_tf32", False
        before = [getattr(setting, name) for setting in settings]
        try:
            for setting in settings:
                setattr(setting, name, off)
            yield
        finally:
            for setting, value in zip(settings, before):
                setattr(setting, name, value)
    else:
        before = tf.config.experimental.tensor_float_32_execution_enabled()
        try:
            tf.config.experimental.enable_tensor_float_32_execution(False)
            yield
        finally:
            tf.config.experimental.enable_tensor_float_32_execution(before)


def compiles_each_operation() -> bool:
    """Returns whether operations outside of functions compile for each new shape."""
    return keras.backend.backend() == "jax"


def runs_on_processors() -> bool:
    """Returns whether TensorFlow is the backend and has no device but CPUs."""
    if keras.backend.backend() != "tensorflow":
        return False
    return all(x.device_type == "CPU" for x in tf.config.list_logical_devices())


@functools.cache
def _has_xla():
    """Returns whether this TensorFlow was built with XLA for CPUs."""
    try:
        with tf.init_scope():
            tf.function(tf.negative, jit_compile=True, autograph=False)(1.0)
    except (tf.errors.OpError, ValueError):
        return False
    return True


def fused(function: Callable) -> Callable:
    """Returns a function of tensors that passes over memory only once on CPUs.

    Each of TensorFlow's operations reads and writes whole arrays. XLA is slow at
    convolutions, but it fuses element-wise operations into one (docs/speed.md). It
    computes in float32 even if all arguments are bfloat16.
    """

    def in_float32(*arguments):
        if any(getattr(x, "dtype", None) != tf.bfloat16 for x in arguments):
            return function(*arguments)
        result = function(*(tf.cast(x, tf.float32) for x in arguments))
        # XLA takes twice as long if it rounds the result of an exponential itself.
        bits = (tf.bitcast(result, tf.uint32) + 0x8000) // 0x10000
        return tf.bitcast(tf.cast(bits, tf.uint16), tf.bfloat16)

    @functools.cache
    def compiled():
        return tf.function(in_float32, jit_compile=True, autograph=False)

    @functools.wraps(function)
    def run(*arguments):
        if runs_on_processors() and _has_xla():
            return compiled()(*arguments)
        return function(*arguments)

    return run
