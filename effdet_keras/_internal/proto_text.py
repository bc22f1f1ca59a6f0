"""The words of the text format of protocol buffers, as in label maps (`.pbtxt`)."""

from __future__ import annotations

import re
from collections.abc import Iterator

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
