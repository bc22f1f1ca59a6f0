"""Several COCO json files of one split, as the content of one."""

from __future__ import annotations

import collections
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple


def id_key(value: Any) -> Hashable:
    """The same text for an id and for the text of it, as some tools write it.

    Example:
        >>> id_key(7) == id_key("7"), id_key([7])
        (True, 'list: [7]')
    """
    if isinstance(value, int | str) and not isinstance(value, bool):
        return str(value)
    return f"{type(value).__name__}: {value!r}"


def merge_contents(contents: Sequence[dict]) -> dict[str, list]:
    """The lists of several json files as those of one.

    An image of the same `file_name` is the same image, and an equal annotation of it
    counts once. Ids are kept where they mean the same in all files; else images are
    counted, and categories with one name are the same.
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
    """The items of a list of all files, and the new id of each file's ids."""

    items: list
    ids: dict  # from (number of the file, key of the id there)


def _merge(contents, key, name_key):
    """Merges the items of a list that have the same name."""
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
    """A text that equal items share."""
    if isinstance(item, dict):
        item = sorted((str(k), repr(v)) for k, v in item.items() if k != without)
    return repr(item)
