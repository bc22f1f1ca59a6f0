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
    """The fields of one message, read by type; and which of them were asked for."""

    def __init__(self, path: str = "") -> None:
        super().__init__(path)
        self._used: set[str] = set()

    @property
    def names(self) -> list[str]:
        """The fields that it has."""
        return list(self.fields)

    def has(self, name: str) -> bool:
        """Whether a field is there."""
        return name in self.fields

    def message(self, name: str) -> Fields:
        """The message in a field; an empty one where there is none."""
        return (self.messages(name) or [Fields(self.place_of(name))])[-1]

    def messages(self, name: str) -> list[Fields]:
        """The messages in a field that may be there several times."""
        return [self._checked(name, v, Fields, "a message") for v in self._all(name)]

    def text(self, name: str, otherwise: str) -> str:
        """A string or the name of an enum."""
        return self._last(name, otherwise, lambda text: text, "text")

    def texts(self, name: str) -> list[str]:
        """The strings of a field that may be there several times."""
        return [self._checked(name, value, str, "text") for value in self._all(name)]

    def switch(self, name: str, otherwise: bool) -> bool:
        """True or False."""
        return self._last(name, otherwise, _switch, "true or false")

    def whole(self, name: str, otherwise: Any) -> Any:
        """An int; `otherwise` may be None."""
        return self._last(name, otherwise, lambda t: int(t, 0), "a whole number")

    def number(self, name: str, otherwise: Any) -> Any:
        """A float; `otherwise` may be None."""
        return self._last(name, otherwise, _number, "a number")

    def numbers(self, name: str) -> list[float]:
        """The floats of a field that may be there several times."""
        return [self._read(name, text, _number, "a number") for text in self._all(name)]

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

    def _last(self, name, otherwise, read, expected):
        values = self._all(name)
        return self._read(name, values[-1], read, expected) if values else otherwise

    def _read(self, name, text, read, expected):
        text = self._checked(name, text, str, expected)
        try:
            return read(text)
        except ValueError:
            raise InvalidValueError(
                f"`{self.place_of(name)}` must be {expected}. Received: {text!r}"
            ) from None

    def _checked(self, name, value, kind, expected):
        if not isinstance(value, kind):
            found = "text" if isinstance(value, str) else "a message"
            raise InvalidValueError(
                f"`{self.place_of(name)}` must be {expected}. Received: {found}"
            )
        return value


def _switch(text):
    if text not in (*_TRUE, *_FALSE):
        raise InvalidValueError(f"not a switch: {text!r}")
    return text in _TRUE


def _number(text):
    value = float(re.sub(r"(?<=[0-9.])[fF]$", "", text))
    if not math.isfinite(value):
        raise InvalidValueError(f"not a finite number: {text!r}")
    return value
