"""The text format of protocol buffers, read without a schema.

Label maps (`.pbtxt`) and the `pipeline.config` of the TF Object Detection API are
written in it.
"""

from __future__ import annotations

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
    """The fields of one message, each with its values: text, or a `Message`."""

    def __init__(self, path: str = "") -> None:
        self.path = path
        self.fields: dict[str, list[Any]] = {}

    def place_of(self, name: str) -> str:
        """The path of a field."""
        return f"{self.path}.{name}" if self.path else name


def parse(text: str, kind: type[Message] = Message) -> Any:
    """Reads a text as the fields of one message, of this class."""
    message = kind()
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
        values = []
        if stream.take_mark("["):
            while not stream.take_mark("]"):
                values.append(_value(message, name, stream, has_colon, in_list=True))
        else:
            values.append(_value(message, name, stream, has_colon))
        if values:
            message.fields.setdefault(name, []).extend(values)
    if end is not None:
        raise InvalidValueError(f"`{message.path}` has no end: {end!r} is missing")


def _value(message, name, stream, has_colon, in_list=False):
    start = stream.take_mark(*_ENDS)
    if start:
        inner = type(message)(message.place_of(name))
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
