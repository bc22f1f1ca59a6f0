"""Label maps, which give the classes of TFRecord files their names."""

import json
import os
import pathlib
import re
from collections.abc import Mapping, Sequence

from effdet_keras.errors import InvalidValueError

# What readers take as `class_names`: names, or a label map.
ClassNames = Sequence[str] | Mapping[int, str] | str | os.PathLike

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


def read_label_map(path):
    """Reads the names of classes.

    Two forms: the TF Object Detection API's text, `item { id: 1 name: 'cat' }`,
    in which `display_name` is taken where there is one; and google/automl's
    json, `{"cat": 1}`. Ids count from 1; 0, the background, is left out.

    Args:
        path: str or path of the file; `.json`, or else the text form.

    Returns:
        Dict of category id to name, by ascending id.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is of neither form, or an id or name repeats.

    Example:
        >>> import tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "label_map.pbtxt")
        >>> write_label_map(path, {3: "cat", 1: "dog"})
        >>> read_label_map(path)
        {1: 'dog', 3: 'cat'}
    """
    path = pathlib.Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        pairs = (
            _json_pairs(text) if path.suffix.lower() == ".json" else _pbtxt_pairs(text)
        )
    except (ValueError, RecursionError) as error:  # json of a thousand brackets
        raise InvalidValueError(
            "A label map must be items { id: 1 name: 'cat' } in a .pbtxt, or "
            f'{{"cat": 1}} in a .json. Received: {os.fspath(path)!r} ({error})'
        ) from error
    pairs = sorted((number, name) for number, name in pairs if number != 0)
    names = dict(pairs)
    if len(names) != len(pairs) or len(set(names.values())) != len(pairs):
        raise InvalidValueError(
            "A label map must give each class an id and a name of its own. "
            f"Received: {os.fspath(path)!r} with {pairs[:10]}"
        )
    return names


def write_label_map(path, names):
    """Writes names of classes in the TF Object Detection API's form.

    Args:
        path: str or path.
        names: dict of category id to name.

    Example: see `read_label_map`.
    """
    items = [
        f'item {{\n  id: {number}\n  name: "{_escaped(names[number])}"\n}}\n'
        for number in sorted(names)
    ]
    pathlib.Path(path).write_text("".join(items), encoding="utf-8")


def _json_pairs(text):
    content = json.loads(text)
    if not isinstance(content, dict) or not all(
        type(number) is int and number >= 0 for number in content.values()
    ):
        raise InvalidValueError("not an object of names and ids from 0")
    return [(number, name) for name, number in content.items()]


def _pbtxt_pairs(text):
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


def _escaped(name):
    name = name.replace("\\", "\\\\").replace('"', '\\"')
    return name.replace("\n", "\\n").replace("\r", "\\r")
