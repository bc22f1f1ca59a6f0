"""Python within TensorFlow's graphs, none of which is under way when Python ends."""

import atexit
import functools
import time

from effdet_keras._internal.optional_imports import tensorflow as tf

_PAUSE, _LONGEST_WAIT = 0.1, 10.0  # seconds
_under_way, _ended_at = [], [0.0]  # an entry for each call; of the last one
_ends = []


def call_python(function, arguments, dtypes, **options):
    """`tf.numpy_function` for `tf.data`, whose threads read ahead until Python ends.

    A thread that then waits for the interpreter waits for ever, and so would the
    process: after an error in `fit`, Ctrl-C, or a loop over batches that is left early.
    """
    call = functools.partial(_call, function)
    return tf.numpy_function(call, arguments, dtypes, **options)


def _call(function, *values):
    _under_way.append(function)
    try:
        if _ends:
            raise StopIteration  # for TensorFlow the end of the data, said to nobody
        return function(*values)
    finally:
        _ended_at[0] = time.monotonic()
        _under_way.pop()


@atexit.register
def _wait_for_calls():
    """Stops all reading ahead, and waits until no thread asks for more."""
    _ends.append(True)
    start = time.monotonic()
    while time.monotonic() - start < _LONGEST_WAIT:
        if not _under_way and time.monotonic() - _ended_at[0] > _PAUSE:
            return
        time.sleep(_PAUSE / 10)
