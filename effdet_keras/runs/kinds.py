"""The kinds of values that fields have: how they are checked, and said in errors."""

from __future__ import annotations

import dataclasses
import difflib
import math
import numbers
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from effdet_keras.errors import InvalidValueError


@dataclasses.dataclass(frozen=True)
class Kind:
    """The values that a field may have.

    `one | other` has the values of both.

    Args:
        expected: string, the values in words: "True or False".
        holds: function of a value, whether it is one of them.

    Example:
        >>> size = whole(1) | one_of("auto")
        >>> size.expected
        "a whole number of at least 1, or 'auto'"
        >>> size.holds(320), size.holds("auto"), size.holds(0)
        (True, True, False)
    """

    expected: str
    holds: Callable[[Any], bool]

    def __or__(self, other: Kind) -> Kind:
        return Kind(
            f"{self.expected}, or {other.expected}",
            lambda value: self.holds(value) or other.holds(value),
        )

    def check(self, field: str, value: Any) -> None:
        """Raises ValueError unless the value is one of these."""
        if not self.holds(value):
            raise InvalidValueError(
                f"`{field}` must be {self.expected}. Received: {field}={value!r}"
            )


def one_of(*words: str) -> Kind:
    """The kind of some words."""
    return Kind(
        ", ".join(map(repr, words)), lambda v: isinstance(v, str) and v in words
    )


def whole(least: int) -> Kind:
    """The kind of whole numbers from `least`."""

    def holds(value):
        is_whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        return is_whole and value >= least

    return Kind(f"a whole number of at least {least}", holds)


def number(words: str, holds: Callable[[float], bool]) -> Kind:
    """The kind of finite numbers of which `holds` is true; `words` say which."""
    return Kind(words, lambda value: _is_number(value) and holds(value))


def many(kind: Kind, words: str, count: int | None = None) -> Kind:
    """The kind of tuples of values of a kind: of `count`, or of any number."""

    def holds(value):
        if not isinstance(value, tuple) or not all(map(kind.holds, value)):
            return False
        return count is None or len(value) == count

    return Kind(words, holds)


AUTO = one_of("auto")
NOTHING = Kind("None", lambda value: value is None)
SWITCH = Kind("True or False", lambda value: isinstance(value, bool))
TEXT = Kind("text", lambda value: isinstance(value, str) and bool(value))
MAPPING = Kind("a mapping", lambda value: isinstance(value, dict))


def near(word: Any, known: Iterable[str]) -> str:
    """The known words that are like an unknown one, as a sentence to add.

    Example:
        >>> near("epoch", ["epochs", "steps"]), near("x", ["epochs"])
        (" Did you mean 'epochs'?", '')
    """
    close = difflib.get_close_matches(str(word), list(known), n=3)
    return f" Did you mean {' or '.join(map(repr, close))}?" if close else ""


def check_names(given: Mapping[str, Any], known: Iterable[str], what: str) -> None:
    """Raises ValueError for the first name that is not known; says near ones.

    Args:
        given: mapping by name.
        known: the names that there are.
        what: string, what has them, to begin the message with.

    Example:
        >>> check_names({"gama": 2.0}, ["alpha", "gamma"], "`loss`")
        Traceback (most recent call last):
            ...
        effdet_keras.errors.InvalidValueError: `loss` has no field 'gama'. Did you \
mean 'gamma'? It has: alpha, gamma
    """
    known = list(known)
    for name in given:
        if name not in known:
            raise InvalidValueError(
                f"{what} has no field {name!r}.{near(name, known)} It has: "
                f"{', '.join(known)}"
            )


def _is_number(value):
    is_real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return is_real and math.isfinite(value)
