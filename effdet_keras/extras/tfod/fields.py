"""The fields of a `pipeline.config`, each read as what it is there."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from effdet_keras._internal.proto_text import Message
from effdet_keras.errors import InvalidValueError

_TRUE, _FALSE = ("true", "True", "t", "1"), ("false", "False", "f", "0")


class Fields(Message):
    """The fields of one message, read by type; and which of them were asked for.

    A field of a message in a message has a name such as "optimizer.adam_optimizer".
    """

    def __init__(self, path: str = "") -> None:
        super().__init__(path)
        self._used: set[str] = set()

    @property
    def names(self) -> list[str]:
        """The fields that it has."""
        return list(self.fields)

    @property
    def first(self) -> str:
        """The first of them."""
        return next(iter(self.fields), "nothing")

    def has(self, name: str) -> bool:
        """Whether a field is there."""
        return name in self.fields

    def message(self, name: str) -> Fields:
        """The message in a field; an empty one where there is none."""
        first, _, rest = name.partition(".")
        found = (self.all(first, Fields) or [Fields(self.place_of(first))])[-1]
        return found.message(rest) if rest else found

    def get(self, name: str, default: Any, kind: type | None = None) -> Any:
        """The last value of a field, of the type of its default, or of `kind`."""
        inner, _, name = name.rpartition(".")
        if inner:
            return self.message(inner).get(name, default, kind)
        values = self._all(name)
        return (
            self._read(name, values[-1], kind or type(default)) if values else default
        )

    def all(self, name: str, kind: type) -> list[Any]:
        """The values of a field that may be there several times."""
        return [self._read(name, value, kind) for value in self._all(name)]

    def take_all(self) -> None:
        """Asks for everything that is in it."""
        self._used |= set(self.fields)
        for values in self.fields.values():
            for value in values:
                if isinstance(value, Fields):
                    value.take_all()

    def left(self) -> Iterator[tuple[str, str]]:
        """Path and text of each value that nobody asked for."""
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


# By type: what it is called, and how it is read.
_KINDS = {
    Fields: ("a message", lambda message: message),
    str: ("text", str),
    bool: ("true or false", _switch),
    int: ("a whole number", lambda text: int(text, 0)),
    float: ("a number", _number),
}
