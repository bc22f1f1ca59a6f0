"""The text format of the TF Object Detection API's label maps (.pbtxt)."""

import re

from effdet_keras.errors import InvalidValueError

# Text protos: a string, a brace, or anything else without blanks and separators.
_TOKEN = re.compile(
    r"""(?P<blank>[\s,;]+|\#[^\n]*)
    | (?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    | (?P<mark>[{}<>:])
    | (?P<word>[^\s,;{}<>:"'\#]+)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)", re.DOTALL)
_LETTERS = {b"n": b"\n", b"t": b"\t", b"r": b"\r"}


def parse_label_map(text):
    """Returns the `(id, name)` of each item; raises ValueError for other text."""
    pairs = []
    tokens = _tokens(text)
    for kind, token in tokens:
        if (kind, token) != ("word", "item"):
            raise InvalidValueError(f"found {token!r} where `item` is expected")
        fields = _item(tokens)
        number, name = fields.get("id", ""), fields.get("name")
        name = fields.get("display_name") or name
        if not re.fullmatch(r"[0-9]{1,18}", number) or not name:
            raise InvalidValueError(f"an item with the fields {fields}")
        pairs.append((int(number), name))
    return pairs


def _item(tokens):
    """The fields of one item, those of messages inside it left out."""
    fields, depth, key = {}, 0, None
    for kind, token in tokens:
        if kind == "mark" and token in "{<":
            depth, key = depth + 1, None
        elif kind == "mark" and token in "}>":
            depth, key = depth - 1, None
            if depth <= 0:
                return fields
        elif kind == "mark" or depth != 1:
            continue
        elif key is None:
            key = token
        else:
            fields[key], key = token, None
    raise InvalidValueError("an item without an end")


def _tokens(text):
    """`(kind, token)` one by one, strings without quotes and escapes."""
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
            yield match.lastgroup, token


def _unescaped(text):
    # In bytes: text protos write what is not ASCII as the octal bytes of UTF-8.
    return _ESCAPE.sub(_byte, text.encode("utf-8")).decode("utf-8", errors="replace")


def _byte(match):
    code = match.group(1)
    if code[:1] == b"x" and len(code) > 1:
        return bytes([int(code[1:], 16)])
    if code.isdigit() and code < b"8":
        return bytes([int(code, 8) & 255])
    return _LETTERS.get(code, code)


def escaped(name):
    """Returns a name as it stands between quotes."""
    name = name.replace("\\", "\\\\").replace('"', '\\"')
    return name.replace("\n", "\\n").replace("\r", "\\r")
