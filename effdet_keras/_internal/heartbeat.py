"""A sign of life every few seconds, and how it is told that there is none any more."""

import threading
import time

_EVERY = 20.0  # seconds between two signs
_SILENT = 90.0  # seconds without one, after which nobody is there
_LOOK = 2.0  # seconds between two looks


class Heartbeat:
    """Calls a function every few seconds in a thread of its own, until it says no.

    Args:
        beat: function without arguments; False ends it. An OSError, such as of a drive
            that is away for a moment, does not.

    Example:
        >>> heartbeat = Heartbeat(lambda: False)
        >>> heartbeat.start()
        >>> heartbeat.stop()
    """

    def __init__(self, beat):
        self._beat = beat
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self):
        self._thread.start()

    def stop(self):
        self._stopped.set()
        self._thread.join()

    def _run(self):
        while not self._stopped.wait(_EVERY):
            try:
                if self._beat() is False:
                    return
            except OSError:
                pass


def falls_silent(read, first):
    """Watches for a sign of life; returns as soon as there is one.

    No clock but this machine's own counts: those of two machines differ.

    Args:
        read: function without arguments that returns what changes with each sign.
        first: what it returned before.

    Returns:
        bool, whether it stayed the same for so long that nobody is there.
    """
    end = time.monotonic() + _SILENT
    while time.monotonic() < end:
        time.sleep(_LOOK)
        if read() != first:
            return False
    return True
