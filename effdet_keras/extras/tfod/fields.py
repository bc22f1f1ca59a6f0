"""Reads the fields of a `pipeline.config` by type."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from effdet_keras._internal.proto_text import Message
from effdet_keras.errors import InvalidValueError

_TRUE, _FALSE = ("true", "True", "t", "1"), ("false", "False", "f", "0")


class Fields(Message):
    """The fields of a message, which records the fields that were read.

    A field of a nested message has a name such as "optimizer.adam_optimizer".
    """

    def __init__(self, path: str = "") -> None:
        super().__init__(path)
        self._used: set[str] = set()

    @property
    def names(self) -> list[str]:
        """The names of the fields in the message."""
        return list(self.fields)

    @property
    def first(self) -> str:
        """The name of the first field; "nothing" if there is none."""
        return next(iter(self.fields), "nothing")

    def has(self, name: str) -> bool:
        """Returns whether the message has a field."""
        return name in self.fields

    def message(self, name: str) -> Fields:
        """Returns the message in a field; an empty message if it is absent."""
        first, _, rest = name.partition(".")
        found = (self.all(first, Fields) or [Fields(self.place_of(first))])[-1]
        return found.message(rest) if rest else found

    def get(self, name: str, default: Any, kind: type | None = None) -> Any:
        """Returns the last value of a field, as the type of its default or `kind`."""
        inner, _, name = name.rpartition(".")
        if inner:
            return self.message(inner).get(name, default, kind)
        values = self._all(name)
        return (
            self._read(name, values[-1], kind or type(default)) if values else default
        )

    def all(self, name: str, kind: type) -> list[Any]:
        """Returns all values of a repeated field."""
        return [self._read(name, value, kind) for value in self._all(name)]

    def take_all(self) -> None:
        """Marks all fields as read, including those of nested messages."""
        self._used |= set(self.fields)
        for values in self.fields.values():
            for value in values:
                if isinstance(value, Fields):
                    value.take_all()

    def left(self) -> Iterator[tuple[str, str]]:
        """Yields path and text of each value that was not read."""
        for name, values in self.fields.items():
            for value in values:
                if isinstance(value, Fields):
                    yield from value.left()
                    if not value.names and name not in self._used:
                        yield value.path, "{}"
                elif name not in self._used:
                    yield self.place_of(name), value

    def _all(self, name):
        self._used.add(name)
        return self.fields.get(name, [])

    def _read(self, name, value, kind):
        expected, read = _KINDS[kind]
        is_message = isinstance(value, Fields)
        found = "a message" if is_message else repr(value)
        if is_message == (kind is Fields):
            try:
                return read(value)
            except ValueError:
                pass
        raise InvalidValueError(
            f"`{self.place_of(name)}` must be {expected}. Received: {found}"
        )


def _switch(text):
    if text not in (*_TRUE, *_FALSE):
        raise ValueError
    return text in _TRUE


def _number(text):
    value = float(re.sub(r"(?<=[0-9.])[fF]$", "", text))
    if not math.isfinite(value):
        raise ValueError
    return value


# For each type, its description in errors, and the function that reads it.
_KINDS = {
    Fields: ("a message", lambda message: message),
    str: ("text", str),
    bool: ("true or false", _switch),
    int: ("a whole number", lambda text: int(text, 0)),
    float: ("a number", _number),
}
