"""Reads and writes the text format of protocol buffers, without a schema.

Label maps (`.pbtxt`) and the `pipeline.config` of the TF Object Detection API have this
format.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.text_format import ParseError, Tokenizer

from effdet_keras.errors import InvalidValueError

_ENDS = {"{": "}", "<": ">"}
_MARKS = tuple("{}<>:[],;")
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"})


class Enum(str):
    """The name of an enumeration's value, which is written without quotes."""


def message_text(fields: Mapping[str, Any], indent: str = "") -> str:
    """Returns the text of one message.

    Args:
        fields: dict of name to value: a bool, number, string or `Enum`; a dict for a
            nested message; a list for a repeated field.
        indent: string, in front of each line.

    Example:
        >>> print(message_text({"name": "cat", "size": [1, 2], "kind": Enum("PET")}))
        name: "cat"
        size: 1
        size: 2
        kind: PET
        <BLANKLINE>
    """
    lines = []
    for name, value in fields.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, Mapping):
                inner = message_text(one, indent + "  ")
                lines.append(f"{indent}{name} {{\n{inner}{indent}}}\n")
            else:
                lines.append(f"{indent}{name}: {_scalar_text(one)}\n")
    return "".join(lines)


def _scalar_text(value):
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and not isinstance(value, Enum):
        escaped = value.translate(_ESCAPES)
        return f'"{escaped}"'
    return str(value)


class Message:
    """The fields of one message; each has a list of values, text or `Message`."""

    def __init__(self, path: str = "") -> None:
        self.path = path
        self.fields: dict[str, list[Any]] = {}

    def place_of(self, name: str) -> str:
        """Returns the path of a field."""
        return f"{self.path}.{name}" if self.path else name


def parse(text: str, kind: type[Message] = Message) -> Any:
    """Parses a text as one message of the given class."""
    message = kind()
    try:
        _read_fields(message, Tokenizer(text.split("\n")), end="")
    except ParseError as error:
        raise InvalidValueError(str(error)) from error
    return message


def _read_fields(message, tokens, end):
    """Reads fields into `message` up to and including the token `end`."""
    while not tokens.TryConsume(end):
        if tokens.AtEnd():
            raise InvalidValueError(f"`{message.path}` has no end: {end!r} is missing")
        name = tokens.ConsumeIdentifier()
        has_colon = tokens.TryConsume(":")
        values = []
        if tokens.TryConsume("["):
            while not tokens.TryConsume("]"):
                values.append(_value(message, name, tokens, has_colon))
                tokens.TryConsume(",")
        else:
            values.append(_value(message, name, tokens, has_colon))
        if values:
            message.fields.setdefault(name, []).extend(values)
        while tokens.token in (",", ";"):
            tokens.NextToken()


def _value(message, name, tokens, has_colon):
    start = tokens.token
    if start in _ENDS:
        tokens.NextToken()
        inner = type(message)(message.place_of(name))
        _read_fields(inner, tokens, _ENDS[start])
        return inner
    if not start or start in _MARKS or not has_colon:
        raise InvalidValueError(
            f"found {start!r} where the value of `{message.place_of(name)}` is expected"
        )
    if start[0] in "\"'":  # adjacent strings are concatenated
        return tokens.ConsumeByteString().decode("utf-8", errors="replace")
    tokens.NextToken()
    return start
