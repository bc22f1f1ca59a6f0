"""The text format of the TF Object Detection API's label maps (.pbtxt)."""

import re

from effdet_keras._internal.proto_text import tokens as tokens_of
from effdet_keras.errors import InvalidValueError


def parse_label_map(text):
    """Returns the `(id, name)` of each item; raises ValueError for other text."""
    pairs = []
    tokens = tokens_of(text)
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


def escaped(name):
    """Returns a name as it stands between quotes."""
    name = name.replace("\\", "\\\\").replace('"', '\\"')
    return name.replace("\n", "\\n").replace("\r", "\\r")
