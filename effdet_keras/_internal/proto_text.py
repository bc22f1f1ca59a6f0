"""The text format of protocol buffers, read without a schema.

Label maps (`.pbtxt`) and the `pipeline.config` of the TF Object Detection API are
written in it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from effdet_keras.errors import InvalidValueError

# A string, a mark, or anything else without blanks and separators.
_TOKEN = re.compile(
    r"""(?P<blank>[\s,;]+|\#[^\n]*)
    | (?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    | (?P<mark>[{}<>:\[\]])
    | (?P<word>[^\s,;{}<>:\[\]"'\#]+)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)", re.DOTALL)
_LETTERS = {b"n": b"\n", b"t": b"\t", b"r": b"\r"}
_ENDS = {"{": "}", "<": ">"}
_TRUE, _FALSE = ("true", "True", "t", "1"), ("false", "False", "f", "0")


def tokens(text: str) -> Iterator[tuple[str, str]]:
    """`(kind, token)` one by one: "string" (its content), "mark" or "word"."""
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise InvalidValueError(
                f"a string without an end: {text[place : place + 20]!r}"
            )
        place, token = match.end(), match.group()
        if match.lastgroup == "string":
            yield "string", _unescaped(token[1:-1])
        elif match.lastgroup != "blank":
            yield str(match.lastgroup), token


def _unescaped(text):
    # In bytes: what is not ASCII is written as the octal bytes of UTF-8.
    return _ESCAPE.sub(_byte, text.encode("utf-8")).decode("utf-8", errors="replace")


def _byte(match):
    code = match.group(1)
    if code[:1] == b"x" and len(code) > 1:
        return bytes([int(code[1:], 16)])
    if code.isdigit() and code < b"8":
        return bytes([int(code, 8) & 255])
    return _LETTERS.get(code, code)


class Message:
    """The fields of one message, and which of them were asked for."""

    def __init__(self, path: str = "") -> None:
        self.path = path
        self._fields: dict[str, list[Any]] = {}
        self._used: set[str] = set()

    def add(self, name: str, value: Any) -> None:
        """Adds a value of a field: text, or a `Message`."""
        self._fields.setdefault(name, []).append(value)

    @property
    def names(self) -> list[str]:
        """The fields that it has."""
        return list(self._fields)

    def place_of(self, name: str) -> str:
        """The path of a field."""
        return f"{self.path}.{name}" if self.path else name

    def has(self, name: str) -> bool:
        """Whether a field is there."""
        return name in self._fields

    def message(self, name: str) -> Message:
        """The message in a field; an empty one where there is none."""
        return (self.messages(name) or [Message(self.place_of(name))])[-1]

    def messages(self, name: str) -> list[Message]:
        """The messages in a field that may be there several times."""
        return [self._checked(name, v, Message, "a message") for v in self._all(name)]

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
        self._used |= set(self._fields)
        for values in self._fields.values():
            for value in values:
                if isinstance(value, Message):
                    value.take_all()

    def left(self) -> Iterator[tuple[str, str]]:
        """Path and text of each value that nobody asked for."""
        for name, values in self._fields.items():
            for value in values:
                if isinstance(value, Message):
                    yield from value.left()
                    if not value.names and name not in self._used:
                        yield value.path, "{}"
                elif name not in self._used:
                    yield self.place_of(name), value

    def _all(self, name):
        self._used.add(name)
        return self._fields.get(name, [])

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


def parse(text: str) -> Message:
    """Reads a text as the fields of one message."""
    message = Message()
    _read_fields(message, _Stream(text), end=None)
    return message


class _Stream:
    """Tokens, of which one can be looked at."""

    def __init__(self, text):
        self._tokens = tokens(text)
        self.next = next(self._tokens, None)

    def take(self):
        token, self.next = self.next, next(self._tokens, None)
        return token

    def take_mark(self, *marks):
        """The mark that comes next, if it is one of these."""
        if self.next is not None and self.next[0] == "mark" and self.next[1] in marks:
            return self.take()[1]
        return None


def _read_fields(message, stream, end):
    while stream.next is not None:
        if end is not None and stream.take_mark(end):
            return
        kind, name = stream.take()
        if kind != "word":
            raise InvalidValueError(
                f"found {name!r} where the name of a field is expected, in "
                f"`{message.path or 'the file'}`"
            )
        has_colon = stream.take_mark(":") is not None
        if stream.take_mark("["):
            while not stream.take_mark("]"):
                value = _value(message, name, stream, has_colon, in_list=True)
                message.add(name, value)
        else:
            message.add(name, _value(message, name, stream, has_colon))
    if end is not None:
        raise InvalidValueError(f"`{message.path}` has no end: {end!r} is missing")


def _value(message, name, stream, has_colon, in_list=False):
    start = stream.take_mark(*_ENDS)
    if start:
        inner = Message(message.place_of(name))
        _read_fields(inner, stream, _ENDS[start])
        return inner
    if stream.next is None or stream.next[0] == "mark" or not has_colon:
        found = "the end" if stream.next is None else repr(stream.next[1])
        raise InvalidValueError(
            f"found {found} where the value of `{message.place_of(name)}` is expected"
        )
    kind, text = stream.take()
    # Strings side by side are one, but for those of a list, which commas part.
    while kind == "string" and not in_list and (stream.next or ("",))[0] == "string":
        text += stream.take()[1]
    return text
