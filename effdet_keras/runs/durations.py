"""Durations as people write them: "90s", "20m", "1.5h"."""

from __future__ import annotations

import re

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smh])")


def is_duration(value: object) -> bool:
    """Whether it is text such as "20m", and more than nothing.

    Example:
        >>> is_duration("1.5h"), is_duration("20"), is_duration("0s")
        (True, False, False)
    """
    return (
        isinstance(value, str)
        and bool(_DURATION.fullmatch(value))
        and seconds_of(value) > 0
    )


def seconds_of(duration: str) -> float:
    """The seconds of a duration.

    Example:
        >>> seconds_of("90s"), seconds_of("1.5h")
        (90.0, 5400.0)
    """
    number, unit = _DURATION.fullmatch(duration).groups()
    return float(number) * _SECONDS[unit]


def in_words(seconds: float) -> str:
    """Seconds, as people write them.

    Example:
        >>> in_words(0.257), in_words(42), in_words(1234), in_words(5400)
        ('0.26 s', '42 s', '20.6 min', '1.5 h')
    """
    if seconds < 10:
        return f"{seconds:.2g} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
