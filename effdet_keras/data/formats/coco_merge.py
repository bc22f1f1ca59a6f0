"""Merges the contents of several COCO json files of one split."""

from __future__ import annotations

import collections
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple


def id_key(value: Any) -> Hashable:
    """Returns a key that is the same for an id and for that id written as a string.

    Some tools write ids as strings. The key of a value that cannot be an id also has
    its type.

    Args:
        value: id of an image or a category, as the json file has it.

    Returns:
        Hashable key.

    Example:
        >>> id_key(7) == id_key("7"), id_key([7])
        (True, 'list: [7]')
    """
    if isinstance(value, int | str) and not isinstance(value, bool):
        return str(value)
    return f"{type(value).__name__}: {value!r}"


def merge_contents(contents: Sequence[dict]) -> dict[str, list]:
    """Merges the lists of several COCO json files into those of one file.

    Images with the same `file_name` are one image, and equal annotations of it count
    once. Categories with the same name are one category. Ids are kept if no id stands
    for two names over all files; otherwise images, or categories, are numbered from 1.

    Args:
        contents: contents of the files: dicts with the lists `images`, `annotations`
            and `categories`.

    Returns:
        Dict with these three lists.

    Example:
        >>> cat = {"id": 1, "name": "cat"}
        >>> first = {"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": [],
        ...          "categories": [cat]}
        >>> second = {**first, "images": [{"id": 1, "file_name": "b.jpg"}]}
        >>> merge_contents([first, second])["images"]
        [{'id': 1, 'file_name': 'a.jpg'}, {'id': 2, 'file_name': 'b.jpg'}]
    """
    images = _merge(contents, "images", "file_name")
    categories = _merge(contents, "categories", "name")
    annotations = {}
    for number, content in enumerate(contents):
        for item in content["annotations"]:
            if isinstance(item, dict):
                image = (number, id_key(item.get("image_id")))
                category = (number, id_key(item.get("category_id")))
                item = {
                    **item,
                    "image_id": images.ids.get(image, item.get("image_id")),
                    "category_id": categories.ids.get(
                        category, item.get("category_id")
                    ),
                }
            annotations.setdefault(_text_of(item, without="id"), item)
    return {
        "images": images.items,
        "annotations": list(annotations.values()),
        "categories": categories.items,
    }


class _Merged(NamedTuple):
    """The merged items of a list, and the new id for each id of each file."""

    items: list
    ids: dict  # keys: (number of the file, `id_key` of the id there)


def _merge(contents, key, name_key):
    """Merges the items of one list that have the same name."""
    pairs = [(number, item) for number, c in enumerate(contents) for item in c[key]]
    names_of_id = collections.defaultdict(set)
    for _, item in pairs:
        if isinstance(item, dict):
            names_of_id[id_key(item.get("id"))].add(id_key(item.get(name_key)))
    are_kept = all(len(names) == 1 for names in names_of_id.values())
    merged, ids = {}, {}
    for number, item in pairs:
        if not isinstance(item, dict):
            merged.setdefault(_text_of(item), item)
            continue
        new = item if are_kept else {**item, "id": len(merged) + 1}
        first = merged.setdefault(id_key(item.get(name_key)), new)
        ids[number, id_key(item.get("id"))] = first.get("id")
    return _Merged(list(merged.values()), ids)


def _text_of(item, without=None):
    """Returns a text that is the same for equal items."""
    if isinstance(item, dict):
        item = sorted((str(k), repr(v)) for k, v in item.items() if k != without)
    return repr(item)
