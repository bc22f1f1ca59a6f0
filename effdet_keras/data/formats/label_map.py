"""Label maps: the name of the class of each category id."""

from __future__ import annotations

import functools
import json
import os
import pathlib
from collections.abc import Mapping, Sequence

from effdet_keras._internal.proto_text import parse
from effdet_keras._internal.yaml_text import load_yaml, read_text
from effdet_keras.errors import InvalidValueError, check_argument, require
from effdet_keras.labels import extend_category_ids
from effdet_keras.weights.presets import COCO_CATEGORY_IDS, COCO_CLASS_NAMES

# The types of the argument `class_names` of readers: names, or a label map.
ClassNames = Sequence[str] | Mapping[int, str] | str | os.PathLike


_VOC_NAMES = """
    aeroplane bicycle bird boat bottle bus car cat chair cow diningtable dog horse
    motorbike person pottedplant sheep sofa train tvmonitor
""".split()

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


def label_map_of(
    label_map: Mapping[int, str] | str | os.PathLike, *, drop_zero: bool = False
) -> dict[int, str]:
    """Returns a label map as a dict from category id to name.

    Args:
        label_map: dict from category id to name; "coco", "voc" or "waymo"; or path of a
            .pbtxt, .json or .yaml file.
        drop_zero: whether to leave out id 0: see `read_label_map`.

    Returns:
        Dict in ascending order of the ids.

    Raises:
        ValueError: If it is none of these, or ids are below 1, or ids or names repeat.

    Example:
        >>> label_map_of({2: "dog", 1: "cat"}), label_map_of("waymo")[3]
        ({1: 'cat', 2: 'dog'}, 'cyclist')
    """
    if isinstance(label_map, Mapping):
        return _checked(label_map.items(), drop_zero)
    if isinstance(label_map, str) and label_map in NAMED_LABEL_MAPS:
        return dict(NAMED_LABEL_MAPS[label_map])
    if os.path.isfile(label_map):
        return read_label_map(label_map, drop_zero=drop_zero)
    raise InvalidValueError(
        "A label map must be a dict from category id to name, one of "
        f"{list(NAMED_LABEL_MAPS)}, or the path of a .pbtxt, .json or .yaml file. "
        f"Received: {label_map!r}. To give names without ids, pass a list of names"
    )


def requested_classes(
    class_names: ClassNames,
) -> tuple[tuple[str, ...], list[int] | None]:
    """Returns the names that the `class_names` of a reader means, and ids or None.

    Ids are those of a label map. A list of names has none.

    Example:
        >>> requested_classes(["cat", "dog"]), requested_classes({3: "cat"})
        ((('cat', 'dog'), None), (('cat',), [3]))
    """
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
    """Gives each class a category id.

    The id is that of its name in the file, or else the requested one if it is unused,
    or else an unused one.

    Args:
        class_names: names of the classes, in the order of the labels.
        known: dict from the ids in the file to their names.
        ids: requested id of each class, or None.

    Returns:
        List of ids.
    """
    id_of = {name: category_id for category_id, name in known.items()}
    for name, category_id in zip(class_names, ids or ()):
        if name not in id_of and category_id not in known:
            id_of[name] = category_id
    return extend_category_ids(class_names, id_of)


_NAME_KEYS = ("display_name", "name")  # keys of the name in an item of a .pbtxt


def read_label_map(
    path: str | os.PathLike,
    *,
    drop_zero: bool = False,
    name_keys: Sequence[str] = _NAME_KEYS,
) -> dict[int, str]:
    """Reads a label map from a .pbtxt file or from google/automl's .json or .yaml.

    Args:
        path: path of the file.
        drop_zero: whether to take id 0 for the background and leave it out, whatever
            its name. An id 0 named "background" is always left out.
        name_keys: keys of an item of a .pbtxt; its name is the value of the first key
            that it has.

    Returns:
        Dict from category id, 1 or more, to name, in ascending order of the ids.

    Raises:
        ValueError: If the file is no label map, or ids or names repeat.
    """
    path = pathlib.Path(path)
    read = {".json": _json_pairs, ".yaml": _yaml_pairs, ".yml": _yaml_pairs}
    read_items = functools.partial(_text_pairs, name_keys=name_keys)
    read_pairs = read.get(path.suffix.lower(), read_items)
    try:
        return _checked(read_pairs(read_text(path)), drop_zero)
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidValueError(
            "A label map must be items { id: 1 name: 'cat' } in a .pbtxt, "
            '{"cat": 1} in a .json, or lines `1: cat` in a .yaml. '
            f"Received: {str(path)!r} ({error})"
        ) from error


def _checked(pairs, drop_zero=False):
    """Returns a label map from pairs, in ascending order of ids, without background."""
    given = list(pairs)
    pairs = [(_category_id(number), name) for number, name in given]
    pairs = [(i, n) for i, n in pairs if i or not (drop_zero or n == "background")]
    are_pairs = all(n > 0 and isinstance(name, str) and name for n, name in pairs)
    names = dict(sorted(pairs)) if are_pairs else {}
    is_right = are_pairs and len(names) == len(set(names.values())) == len(pairs)
    rule = "A label map must give each class an id from 1 and a name of its own"
    require(is_right, rule, pairs=given[:10])
    return names


def _category_id(value):
    """Returns the whole number that a value is, or that its text means; else -1."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return -1
    return -1 if isinstance(value, float) and value != number else number


def write_label_map(path: str | os.PathLike, names: Mapping[int, str]) -> None:
    """Writes names of classes as a .pbtxt of the TF Object Detection API.

    Args:
        path: path of the new file.
        names: dict from category id to name.
    """
    codes = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"})
    items = [
        f'item {{\n  id: {number}\n  name: "{names[number].translate(codes)}"\n}}\n'
        for number in sorted(names)
    ]
    pathlib.Path(path).write_text("".join(items), encoding="utf-8")


def _json_pairs(text):
    return [(number, name) for name, number in json.loads(text).items()]


def _yaml_pairs(text):
    content = load_yaml(text, names=True)
    # The content may also be that of a file for google/automl's `--hparams`.
    return content.get("label_map", content).items()


def _text_pairs(text, name_keys):
    """Returns the `(id, name)` of each item of a .pbtxt label map."""
    pairs = []
    for item in parse(text).fields.get("item", ()):
        values = {key: values[-1] for key, values in item.fields.items()}
        name = next((values[key] for key in name_keys if values.get(key)), None)
        if name is None or "id" not in values:
            raise InvalidValueError(f"an item with the values {values}")
        pairs.append((values["id"], name))
    return pairs
