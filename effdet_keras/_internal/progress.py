"""How many images of a list are done, in one line that writes over itself."""

import sys
import time

_INTERVAL = 0.2  # seconds between two states of the line


class Progress:
    """Shows the progress of work on a known number of things, on standard output."""

    def __init__(self, total, unit):
        self._total, self._unit = total, unit
        self._start = self._shown = time.monotonic()

    def update(self, done):
        """Writes the line, unless it was written just before, and work goes on."""
        now, is_end = time.monotonic(), done >= self._total
        is_terminal = sys.stdout.isatty()
        if not is_end and (not is_terminal or now - self._shown < _INTERVAL):
            return
        self._shown = now
        speed = done / max(now - self._start, 1e-9)
        text = f"{done}/{self._total} {self._unit}, {speed:.3g} per second"
        start, end = "\r" if is_terminal else "", "\n" if is_end else ""
        print(f"{start}{text:<60}", end=end, flush=True)
