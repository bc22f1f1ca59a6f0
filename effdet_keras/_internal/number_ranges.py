"""Declares the range of a number once, where the field or argument is declared.

A dataclass declares its numbers with `number`, `whole_number`, `rising_pair` or
`several`, and its `__post_init__` calls `check_number_fields(self)`. A function checks
an argument with `check_number` or `check_whole_number`. Bools, text, NaN and infinity
are never accepted as numbers. `tests/test_number_ranges.py` finds fields without a
range.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from effdet_keras.errors import check_argument

_METADATA_KEY = "range"
# The seeds that NumPy accepts, and therefore `keras.utils.set_random_seed`.
SEEDS = "[0, 4294967295]"
_COUNTS = {2: "two", 3: "three", 4: "four"}


@dataclasses.dataclass(frozen=True)
class NumberRange:
    """The values that a field or argument may have: numbers of an interval.

    Args:
        interval: string, the two ends, such as "(0, 1]". A square bracket includes the
            end, a round bracket excludes it. An infinite end has a round bracket,
            because no value may be infinite.
        whole: bool, whether numbers must be whole.
        form: string, the allowed types of value: "number"; "sequence", such as a tuple;
            "dict", numbers by name; or two of them. In "sequence with pairs", elements
            may also be pairs of numbers.
        count: int, the length of a sequence; None for one or more.
        rising: bool, whether each number of a sequence must be at least the one before.
        others: tuple of allowed values outside of the interval, such as `None` and
            "auto".

    Example:
        >>> NumberRange("(0, 1]").check("share", 1)
        >>> NumberRange("(0, 1]").check("share", 0)
        Traceback (most recent call last):
            ...
        effdet_keras.errors.InvalidValueError: `share` must be a number above 0 and \
at most 1. Received: share=0
    """

    interval: str
    whole: bool = False
    form: Literal[
        "number",
        "sequence",
        "dict",
        "number or sequence",
        "number or dict",
        "sequence with pairs",
    ] = "number"
    count: int | None = None
    rising: bool = False
    others: tuple = ()

    def check(self, name: str, value: Any) -> None:
        """Raises `InvalidValueError` with the argument's name if a value is invalid."""
        check_argument(self.contains(value), name, value, self.description)

    def contains(self, value: Any) -> bool:
        """Returns whether a value has an allowed type and is in the range."""
        is_plain = isinstance(value, (str, numbers.Real, type(None)))
        # Compare types as well, because True equals 1.
        if is_plain and any(type(value) is type(x) and value == x for x in self.others):
            return True
        if isinstance(value, str):
            return False
        if isinstance(value, Mapping):
            return "dict" in self.form and all(map(self._is_number, value.values()))
        if _is_sequence(value):
            return "sequence" in self.form and self._has_sequence(value)
        return "number" in self.form and self._is_number(value)

    @property
    def description(self) -> str:
        """What is expected, as text for an error message."""
        kind = "whole number" if self.whole else "number"
        one = f"a {kind} {self._ends}".rstrip()
        many = f"{kind}s {self._ends}".rstrip().replace("that is", "that are")
        counted = f"{_COUNTS.get(self.count, self.count or '')} {many}".strip()
        if self.rising:
            counted += ", none lower than the one before"
        if "pairs" in self.form:
            counted += ", or pairs of them"
        words = {"number": one, "sequence": counted, "dict": f"a dict of {many}"}
        parts = [words[form] for form in words if form in self.form]
        return ", or ".join([*parts, *(repr(other) for other in self.others)])

    @property
    def _ends(self):
        """The interval as text, such as "above 0 and at most 1"."""
        low, high = self._limits
        is_low_inside, is_high_inside = (
            self.interval[0] == "[",
            self.interval[-1] == "]",
        )
        if low == -math.inf and high == math.inf:
            return "" if self.whole else "that is finite"
        if is_low_inside and is_high_inside:
            return f"from {low:.15g} to {high:.15g}"
        parts = []
        if low > -math.inf:
            parts.append(
                f"of at least {low:.15g}" if is_low_inside else f"above {low:.15g}"
            )
        if high < math.inf:
            parts.append(
                f"at most {high:.15g}" if is_high_inside else f"below {high:.15g}"
            )
        return " and ".join(parts)

    @property
    def _limits(self):
        low, high = map(float, self.interval[1:-1].split(","))
        return low, high

    def _is_number(self, value):
        kind = numbers.Integral if self.whole else numbers.Real
        if isinstance(value, bool) or not isinstance(value, kind):
            return False
        low, high = self._limits
        is_above = low <= value if self.interval[0] == "[" else low < value
        is_below = value <= high if self.interval[-1] == "]" else value < high
        return bool(is_above and is_below and math.isfinite(value))

    def _has_sequence(self, values):
        if "pairs" in self.form and any(map(_is_sequence, values)):
            pairs = [pair for pair in values if _is_sequence(pair)]
            singles = [one for one in values if not _is_sequence(one)]
            numbers_in_pairs = [one for pair in pairs for one in pair]
            are_numbers = all(map(self._is_number, [*numbers_in_pairs, *singles]))
            return are_numbers and {len(pair) for pair in pairs} == {2}
        if len(values) != self.count and (self.count is not None or not len(values)):
            return False
        if not all(map(self._is_number, values)):
            return False
        steps = itertools.pairwise(values)
        return not self.rising or all(first <= second for first, second in steps)


def _is_sequence(value):
    is_array = getattr(value, "ndim", 0) > 0  # does not import NumPy, for `--help`
    return is_array or (isinstance(value, Sequence) and not isinstance(value, str))


# --- Fields of dataclasses.


def number(default: Any, interval: str, **options: Any) -> Any:
    """Returns a dataclass field for a number in an interval.

    Args:
        default: the default. One that is not a number, such as None, is also allowed as
            a value. `dataclasses.MISSING` makes a field without a default.
        interval: string, as in `NumberRange`.
        **options: other arguments of `NumberRange`.
    """
    is_number = isinstance(default, (numbers.Real, tuple)) or (
        default is dataclasses.MISSING
    )
    others = (*(() if is_number else (default,)), *options.pop("others", ()))
    allowed = NumberRange(interval, others=others, **options)
    metadata = {_METADATA_KEY: allowed}
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def whole_number(default: Any, interval: str, **options: Any) -> Any:
    """Returns a dataclass field for a whole number; see `number`."""
    return number(default, interval, whole=True, **options)


def rising_pair(default: Any, interval: str, **options: Any) -> Any:
    """Returns a field for two numbers, the lower first; whole if the default's are."""
    whole = isinstance(default, tuple) and isinstance(default[0], int)
    form = {"form": "sequence", "count": 2, "rising": True, "whole": whole}
    return number(default, interval, **{**form, **options})


def several(default: Any, interval: str, count: int | None = None, **options: Any):
    """Returns a field for a sequence of `count` numbers, or of one or more."""
    return number(default, interval, **{"form": "sequence", **options}, count=count)


def range_of(field: dataclasses.Field) -> NumberRange | None:
    """Returns the range that a field declares, or None."""
    return field.metadata.get(_METADATA_KEY)


def check_number_fields(instance: Any) -> None:
    """Raises `InvalidValueError` for the first field that is outside of its range.

    Example:
        >>> @dataclasses.dataclass
        ... class Options:
        ...     share: float = number(0.5, "[0, 1]")
        ...     def __post_init__(self):
        ...         check_number_fields(self)
        >>> Options(share=1.5)
        Traceback (most recent call last):
            ...
        effdet_keras.errors.InvalidValueError: `share` must be a number from 0 to 1. \
Received: share=1.5
    """
    for field in dataclasses.fields(instance):
        if (allowed := range_of(field)) is not None:
            allowed.check(field.name, getattr(instance, field.name))


# --- Arguments of functions.


def check_number(name: str, value: Any, interval: str, **options: Any) -> None:
    """Raises `InvalidValueError` unless an argument is a number in the interval."""
    NumberRange(interval, **options).check(name, value)


def check_whole_number(name: str, value: Any, interval: str, **options: Any) -> None:
    """Raises `InvalidValueError` unless it is a whole number in the interval."""
    NumberRange(interval, whole=True, **options).check(name, value)
