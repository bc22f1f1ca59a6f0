"""Ctrl-C and SIGTERM during a training: held back until a step, or a file, is whole."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """Stops a program by what it was sent, but not in the middle of something.

    A signal has the effect that it had before `listen`: Ctrl-C raises
    `KeyboardInterrupt`, and a handler of the program is called. SIGTERM, which would
    end the process, raises `SystemExit(143)`. Between `hold` and `release` that waits
    for `release`; but a second signal, if it is Ctrl-C, acts at once.

    Handlers are set in the main thread alone: in others Python allows none, and
    nothing changes. What ignores a signal goes on ignoring it.

    Example:
        >>> signals = StopSignals()
        >>> signals.listen()
        >>> signals.hold()
        >>> signal.raise_signal(signal.SIGTERM)
        >>> signals.received.name
        'SIGTERM'
        >>> try:
        ...     signals.release()
        ... except SystemExit as stop:
        ...     print("status", stop.code)
        ... finally:
        ...     signals.stop_listening()
        status 143
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self.is_at_once = False  # whether a second one allows no more time
        self._is_held = False
        self._before: dict[int, Any] = {}  # the handlers that were there

    def listen(self) -> None:
        """Takes the place of the handlers."""
        self.received, self.is_at_once, self._is_held = None, False, False
        self._before = {}
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _SIGNALS:
            # None is a handler of another language, which could not be put back.
            if signal.getsignal(number) not in (None, signal.SIG_IGN):
                self._before[number] = signal.signal(number, self._receive)

    def stop_listening(self) -> None:
        """Puts the handlers back, but for those that were replaced since.

        What replaced them may put this one back later: it then hands signals on.
        """
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._receive:
                signal.signal(number, handler)

    def hold(self) -> None:
        """From now on a signal waits."""
        self._is_held = True

    def release(self) -> None:
        """Lets signals act, and the one that waited."""
        self._is_held = False
        if self.received is not None:
            self._act(self.received)

    def _receive(self, number, frame):
        is_first = self.received is None
        if is_first:
            self.received = signal.Signals(number)
        elif number != signal.SIGINT:
            return  # schedulers may send SIGTERM more than once
        self.is_at_once = not is_first
        if self._is_held and is_first:
            _say(f"{self.received.name}: stopping after this step. Ctrl-C stops now.")
        else:
            self._act(number)

    def _act(self, number):
        handler = self._before[number]
        if handler == signal.SIG_DFL:
            raise SystemExit(128 + number)
        handler(number, None)
        self.received = None  # the program has dealt with it, and goes on


def _say(text):
    """Writes at once: a signal may come while `print` is at work, which must end."""
    with contextlib.suppress(OSError):  # nobody may be there to read it
        os.write(sys.__stderr__.fileno(), f"\n{text}\n".encode())
