"""Label maps: which name the class of each category id has."""

from __future__ import annotations

import json
import numbers
import os
import pathlib
import re
from collections.abc import Mapping, Sequence

from effdet_keras._internal.proto_text import parse
from effdet_keras._internal.whole_files import replacing
from effdet_keras._internal.yaml_text import load_yaml, read_text
from effdet_keras.category_ids import extend_category_ids
from effdet_keras.errors import InvalidTypeError, InvalidValueError, check_argument
from effdet_keras.weights.presets import COCO_CATEGORY_IDS, COCO_CLASS_NAMES

# What readers take as `class_names`: names, or a label map.
ClassNames = Sequence[str] | Mapping[int, str] | str | os.PathLike


_VOC_NAMES = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair"),
    *("cow", "diningtable", "dog", "horse", "motorbike", "person", "pottedplant"),
    *("sheep", "sofa", "train", "tvmonitor"),
)

# The label maps that google/automl knows by name.
NAMED_LABEL_MAPS = {
    "coco": {
        category_id: name
        for category_id, name in zip(COCO_CATEGORY_IDS, COCO_CLASS_NAMES)
        if not name.startswith("unused-")
    },
    "voc": dict(enumerate(_VOC_NAMES, 1)),
    "waymo": {1: "vehicle", 2: "pedestrian", 3: "cyclist"},
}


def label_map_of(label_map: Mapping[int, str] | str | os.PathLike) -> dict[int, str]:
    """Returns a label map, however it is given."""
    if isinstance(label_map, Mapping):
        try:
            return _checked(_mapping_pairs(label_map), "a dict")
        except ValueError as error:
            raise InvalidValueError(
                f"A label map must be a dict such as {{1: 'cat'}}. {error}"
            ) from error
    if isinstance(label_map, str) and label_map in NAMED_LABEL_MAPS:
        return dict(NAMED_LABEL_MAPS[label_map])
    expected = (
        f"A label map must be a dict from category id to name, one of "
        f"{list(NAMED_LABEL_MAPS)}, or the path of a .pbtxt, .json or .yaml file. "
        f"Received: {label_map!r}"
    )
    if not isinstance(label_map, str | os.PathLike):
        raise InvalidTypeError(expected)
    if os.path.isfile(label_map):
        return read_label_map(label_map)
    if pathlib.Path(label_map).suffix:
        raise FileNotFoundError(f"{expected}, which is not there")
    raise InvalidValueError(f"{expected}. Names alone must be a list of names")


def requested_classes(
    class_names: ClassNames,
) -> tuple[tuple[str, ...], list[int] | None]:
    """The names that `class_names` of a reader stands for, and ids if it has any."""
    if isinstance(class_names, str | os.PathLike | Mapping):
        label_map = label_map_of(class_names)
        names, ids = tuple(label_map.values()), list(label_map)
    else:
        names, ids = tuple(class_names), None
    are_names = names and all(isinstance(name, str) for name in names)
    expected = "a list of names, or a label map"
    check_argument(are_names, "class_names", class_names, expected)
    return names, ids


def ids_of_classes(
    class_names: Sequence[str],
    known: Mapping[int, str],
    ids: Sequence[int] | None = None,
) -> list[int]:
    """Gives each class its id in a file, else the one asked for, else an unused one."""
    id_of = {name: category_id for category_id, name in known.items()}
    for name, category_id in zip(class_names, ids or ()):
        if name not in id_of and category_id not in known:
            id_of[name] = category_id
    return extend_category_ids(class_names, id_of)


def read_label_map(path: str | os.PathLike) -> dict[int, str]:
    """The names in a .json or .yaml of google/automl's, or a .pbtxt, from id 1."""
    path = pathlib.Path(path)
    read = {".json": _json_pairs, ".yaml": _yaml_pairs, ".yml": _yaml_pairs}
    try:
        pairs = read.get(path.suffix.lower(), _text_pairs)(read_text(path))
    except (ValueError, RecursionError) as error:  # json of a thousand brackets
        raise InvalidValueError(
            "A label map must be items { id: 1 name: 'cat' } in a .pbtxt, "
            '{"cat": 1} in a .json, or lines `1: cat` in a .yaml. '
            f"Received: {os.fspath(path)!r} ({error})"
        ) from error
    return _checked(pairs, repr(os.fspath(path)))


def _checked(pairs, source):
    pairs = sorted((number, name) for number, name in pairs if number != 0)
    names = dict(pairs)
    if len(names) != len(pairs) or len(set(names.values())) != len(pairs):
        raise InvalidValueError(
            "A label map must give each class an id and a name of its own. "
            f"Received: {source} with {pairs[:10]}"
        )
    return names


def write_label_map(path: str | os.PathLike, names: Mapping[int, str]) -> None:
    """Writes names of classes in the TF Object Detection API's format."""
    codes = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"})
    items = [
        f'item {{\n  id: {number}\n  name: "{names[number].translate(codes)}"\n}}\n'
        for number in sorted(names)
    ]
    with replacing(path) as partial:
        partial.write_text("".join(items), encoding="utf-8")


def _json_pairs(text):
    content = json.loads(text)
    if not isinstance(content, dict) or not all(
        type(number) is int and number >= 0 for number in content.values()
    ):
        raise InvalidValueError("not an object of names and ids from 0")
    return [(number, name) for name, number in content.items()]


def _yaml_pairs(text):
    content = load_yaml(text, names=True)
    if isinstance(content, dict) and isinstance(content.get("label_map"), dict):
        content = content["label_map"]  # a file of google/automl's `--hparams`
    if not isinstance(content, dict):
        raise InvalidValueError("not a mapping of ids to names")
    return _mapping_pairs(content)


def _mapping_pairs(label_map):
    pairs = []
    for number, name in label_map.items():
        if isinstance(number, str) and re.fullmatch(r"[0-9]{1,18}", number):
            number = int(number)
        is_id = isinstance(number, numbers.Integral) and not isinstance(number, bool)
        if not is_id or number < (0 if name == "background" else 1):
            raise InvalidValueError(f"Ids must be ints from 1. Received: {number!r}")
        if not isinstance(name, str) or not name:
            raise InvalidValueError(
                f"Names must be text (in yaml: in quotes). Received: {number}: {name!r}"
            )
        pairs.append((int(number), name))
    return pairs


def _text_pairs(text):
    """The `(id, name)` of each item of the TF Object Detection API's text."""
    content = parse(text)
    other = [name for name in content.fields if name != "item"]
    if other:
        raise InvalidValueError(f"found {other[0]!r} where `item` is expected")
    pairs = []
    for item in content.fields.get("item", ()):
        if isinstance(item, str):
            raise InvalidValueError(f"`item` must be a message. Received: {item!r}")
        texts = {n: v[-1] for n, v in item.fields.items() if isinstance(v[-1], str)}
        number = texts.get("id", "")
        name = texts.get("display_name") or texts.get("name")
        if not re.fullmatch(r"[0-9]{1,18}", number) or not name:
            raise InvalidValueError(f"an item with the id {number!r}, name {name!r}")
        pairs.append((int(number), name))
    return pairs
