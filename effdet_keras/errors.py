"""The errors of this package, checks that raise them, and helpers for their texts."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection


def first_line(error):
    """Returns the first line of an error's text, or the name of its class.

    Example:
        >>> first_line(ValueError("no such file\\nin many lines"))
        'no such file'
        >>> first_line(KeyError())
        'KeyError'
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def reason_of(error):
    """Returns an error in one line, with its class unless it is of this package.

    Example:
        >>> reason_of(RuntimeError("no such operation\\nin many lines"))
        'RuntimeError: no such operation'
    """
    kind = "" if isinstance(error, EffDetError) else f"{type(error).__name__}: "
    return f"{kind}{first_line(error)}"


# Control characters except tab and newline; line separators and marks that change the
# direction of text, which can hide text beside them; and surrogates, which stand for
# undecodable bytes of file names, and which no terminal can write.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: object) -> str:
    """Returns a text with its control characters escaped, safe to print.

    Names of classes, arrays and files may come from strangers. A terminal obeys the
    control characters in them: it would show another text, or worse.

    Example:
        >>> print(printable("a cat\x1b[2J\x07"))
        a cat\\x1b[2J\\x07
    """

    def escaped(match):
        return match[0].encode("unicode_escape").decode("ascii")

    return _UNPRINTABLE.sub(escaped, str(text))


# --- The errors that this package raises if the caller can correct something.

__all__ = [
    "EffDetError",
    "InvalidStateError",
    "InvalidTypeError",
    "InvalidValueError",
    "MissingPackageError",
    "NonFiniteLossError",
]


class EffDetError(Exception):
    """The base class of all errors of this package.

    The message names the value that was wrong and what to do about it.

    Example:
        >>> import effdet_keras as ek
        >>> try:
        ...     ek.EfficientDet.from_preset("efficientdet-d9")
        ... except ek.errors.EffDetError as error:
        ...     print(type(error).__name__, isinstance(error, ValueError))
        InvalidValueError True
    """

    def __str__(self) -> str:
        return printable(super().__str__())


class InvalidValueError(EffDetError, ValueError):
    """An argument, a file or a dataset contains a wrong value."""


class InvalidTypeError(EffDetError, TypeError):
    """An argument has the wrong type, or a name that is not accepted."""


class InvalidStateError(EffDetError, RuntimeError):
    """The call is right, but not now: for instance, the model is not built yet."""


class MissingPackageError(EffDetError, ImportError):
    """An optional package is not installed; the message has the `pip install` line."""


class NonFiniteLossError(EffDetError, FloatingPointError):
    """A loss is NaN or infinite, and the training step was rejected."""


# --- Checks.


def require(is_right, rule, error=InvalidValueError, /, **received):
    """Raises an error with a rule and the received values, unless `is_right`.

    Example:
        >>> require(3 > 4, "`size` must be above 4", size=3)
        Traceback (most recent call last):
            ...
        effdet_keras.errors.InvalidValueError: `size` must be above 4. Received: size=3
    """
    if not is_right:
        values = ", ".join(f"{name}={value!r}" for name, value in received.items())
        raise error(f"{rule}. Received: {values}")


def check_argument(is_right: object, name: str, value: object, expected: str) -> None:
    """Raises `InvalidValueError` unless `is_right`, with the `expected` values."""
    require(is_right, f"`{name}` must be {expected}", **{name: value})


def check_choice(name: str, value: object, choices: Collection[str], others="") -> None:
    """Raises `InvalidValueError` unless an argument is one of the choices."""
    listed = ", ".join(map(repr, choices))
    check_argument(value in choices, name, value, f"one of {listed}{others}")


def check_pattern(name: str, pattern: object) -> None:
    """Raises `InvalidValueError` unless an argument is a valid regular expression.

    Example:
        >>> check_pattern("freeze", "(")
        Traceback (most recent call last):
            ...
        effdet_keras.errors.InvalidValueError: `freeze` must be a valid regular \
expression. Received: freeze='(' (missing ), unterminated subpattern at position 0)
    """
    try:
        re.compile(pattern)
    except (re.error, TypeError) as error:
        raise InvalidValueError(
            f"`{name}` must be a valid regular expression. Received: "
            f"{name}={pattern!r} ({error})"
        ) from error


def check_fields(given: Collection[str], known: Collection[str], what: str) -> None:
    """Raises `InvalidValueError` for the first name that is not a known field."""
    for name in given:
        if name not in known:
            raise InvalidValueError(
                f"{what} has no field {name!r}.{hint(name, known)} It has: "
                f"{', '.join(known)}"
            )


def hint(word, known, cutoff=0.6):
    """Returns a sentence with the known word that was probably meant, or "".

    Example:
        >>> hint("cosin", ["cosine", "linear"])
        " Did you mean 'cosine'?"
    """
    close = difflib.get_close_matches(str(word), list(known), n=1, cutoff=cutoff)
    return f" Did you mean {close[0]!r}?" if close else ""
