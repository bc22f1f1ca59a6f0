"""Python calls within TensorFlow graphs, which must not run when Python ends."""

import atexit
import functools
import threading
import time

from effdet_keras._internal.optional_imports import tensorflow as tf

_PAUSE, _LONGEST_WAIT = 0.1, 10.0  # seconds
_under_way, _last_end = [], [0.0]  # the running calls; the time the last one ended
_python_ends = threading.Event()


def call_python(function, arguments, dtypes, **options):
    """Calls `tf.numpy_function` in `tf.data`, such that Python can end at any time.

    Threads of `tf.data` read ahead until Python ends. A thread that then waits for the
    interpreter would wait forever, and so would the process: after an error in `fit`,
    Ctrl-C, or a loop over batches that is left early.
    """
    call = functools.partial(_call, function)
    return tf.numpy_function(call, arguments, dtypes, **options)


def _call(function, *values):
    _under_way.append(function)
    try:
        if _python_ends.is_set():
            raise StopIteration  # for TensorFlow, this is the end of the data
        return function(*values)
    finally:
        _last_end[0] = time.monotonic()
        _under_way.pop()


@atexit.register
def _wait_for_calls():
    """Stops all reading ahead, and waits until no thread calls Python any more."""
    _python_ends.set()
    start = time.monotonic()
    while time.monotonic() - start < _LONGEST_WAIT:
        if not _under_way and time.monotonic() - _last_end[0] > _PAUSE:
            return
        time.sleep(_PAUSE / 10)
