"""What a COCO json file says: its classes, images and annotations, checked."""

import collections
import itertools
import json
import os
import reprlib

import numpy as np

from effdet_keras._internal.cache_folder import kept_if_readable
from effdet_keras._internal.remote_path import local_copy
from effdet_keras.data.dataset import check_class_names
from effdet_keras.data.formats.label_map import ids_of_classes, requested_classes
from effdet_keras.data.formats.record_building import (
    are_coordinates,
    unknown_class,
    whole_number,
)
from effdet_keras.errors import InvalidValueError

_MAX_ID = 2**63 - 1  # ids travel as int64


def read_json(annotations):
    """Returns the content of a json file or dict, and what messages call it."""
    if isinstance(annotations, dict):
        content, source = annotations, "a dict"
    else:
        source = os.fspath(annotations)
        copy = local_copy(annotations)
        with kept_if_readable(copy):
            content = _content_of(copy, source)
    needed = ("images", "annotations", "categories")
    if not isinstance(content, dict) or not all(
        isinstance(content.get(key), list) for key in needed
    ):
        found = (
            {key: type(value).__name__ for key, value in content.items()}
            if isinstance(content, dict)
            else type(content).__name__
        )
        raise InvalidValueError(
            "`from_coco` expects a json object with the lists `images`, "
            f"`annotations` and `categories`. Received: {source!r} with "
            f"{reprlib.repr(found)}"
        )
    return content, source


def _content_of(path, source):
    with open(path, "rb") as file:
        data = file.read()
    try:
        return json.loads(data)  # finds out which UTF it is
    except (ValueError, RecursionError) as error:
        raise InvalidValueError(
            f"`from_coco` expects a json file. Received: {source!r} ({error})"
        ) from error


def read_classes(content, class_names, sidecar, source):
    """The name and the category id of each label; the sidecar with today's names."""
    categories = content["categories"]
    ids = [_get(category, "id") for category in categories]
    if not all(map(is_id, ids)) or len(set(ids)) != len(ids):
        raise InvalidValueError(
            "Each category must have an int `id` of its own. "
            f"Received: {source!r} with ids {reprlib.repr(ids)}"
        )
    names = [_get(category, "name") for category in categories]
    if not all(isinstance(name, str | int) for name in names):
        raise InvalidValueError(
            "Each category must have a `name`. "
            f"Received: {source!r} with names {reprlib.repr(names)}"
        )
    name_of = {i: str(name) for i, name in sorted(zip(ids, names))}
    name_of = _without_useless_names(name_of, content["annotations"])
    check_class_names(tuple(name_of.values()), f"{source!r}")
    if sidecar is not None:
        written = enumerate(sidecar.category_ids)
        sidecar = sidecar.renamed({i: name_of[k] for i, k in written if k in name_of})
    if class_names is None and sidecar is not None:
        same = sorted(sidecar.class_names) == sorted(name_of.values())
        class_names = sidecar.class_names if same else None  # its order
    if class_names is None:
        return tuple(name_of.values()), list(name_of), sidecar
    class_names, ids = requested_classes(class_names)
    return class_names, ids_of_classes(class_names, name_of, ids), sidecar


def _without_useless_names(name_of, annotations):
    """Without classes of no annotation whose name is blank, or that of another one.

    Roboflow's exports have a class named as the dataset, which may be taken.
    """
    uses = collections.Counter(name for name in name_of.values() if name.strip())
    if len(uses) == len(name_of):
        return name_of
    used = {whole_number(_get(a, "category_id")) for a in annotations}
    return {i: name for i, name in name_of.items() if uses[name] == 1 or i in used}


def read_images(images, source, problems):
    """The usable items of `images` by their id."""
    found = {}
    for i, image in enumerate(images):
        key = _key(_get(image, "id"))
        file_name = _get(image, "file_name")
        if key is None or not isinstance(file_name, str) or not file_name:
            problems.add(
                "unreadable annotation",
                source,
                f"images[{i}] needs an `id` and a `file_name`: {reprlib.repr(image)}",
            )
        elif key in found:
            problems.add("duplicate id", file_name, f"image id {key!r} repeats")
        else:
            found[key] = image
    return found


def group_annotations(annotations, images, category_ids, source, problems):
    """`(annotation id, label, annotation)` by the key of the image."""
    # Most of it all at once, one by one only to name what is wrong: COCO has
    # 860,000 annotations.
    annotations = _only_dicts(annotations, source, problems)
    good = _good_boxes(annotations)
    if not all(good):
        _name_bad_boxes(annotations, good, images, source, problems)
    label_of = {category_id: label for label, category_id in enumerate(category_ids)}
    groups = {key: [] for key in images}
    unknown, strangers = collections.Counter(), collections.Counter()
    rows = zip(
        _annotation_ids(annotations),
        good,
        _as_ids([a.get("category_id") for a in annotations]),
        _as_ids([a.get("image_id") for a in annotations]),
        annotations,
    )
    for annotation_id, is_good, category_id, image_key, annotation in rows:
        if image_key not in groups:
            strangers[reprlib.repr(annotation.get("image_id"))] += 1
        elif category_id not in label_of:
            unknown[reprlib.repr(annotation.get("category_id"))] += 1
        elif is_good:
            label = label_of[category_id]
            groups[image_key].append((annotation_id, label, annotation))
    if annotations and strangers.total() == len(annotations):
        problems.add("only stray annotations", source, _no_id_fits(strangers, images))
        strangers.clear()
    for image_id, count in strangers.items():
        detail = f"{_number(count)} of image_id {image_id}, which is not in `images`"
        problems.add("stray annotation", source, detail)
    for category_id, count in unknown.items():
        detail = unknown_class(f"category id {category_id}", count)
        problems.add("unknown class", source, detail)
    return groups


def _no_id_fits(strangers, images):
    image_id, image = next(iter(strangers)), next(iter(images), None)
    return (
        f"none of the {strangers.total():,} annotations has the id of an image: "
        f"`image_id` is such as {image_id}, and `id` of `images` such as {image!r}"
    )


def _only_dicts(annotations, source, problems):
    if all(isinstance(annotation, dict) for annotation in annotations):
        return annotations
    for i, annotation in enumerate(annotations):
        if not isinstance(annotation, dict):
            detail = f"annotations[{i}] is {reprlib.repr(annotation)}"
            problems.add("unreadable annotation", source, detail)
    return [annotation for annotation in annotations if isinstance(annotation, dict)]


def _good_boxes(annotations):
    boxes = [annotation.get("bbox") for annotation in annotations]
    if not boxes or _are_boxes(boxes):
        return [True] * len(boxes)
    return [_are_boxes([box]) for box in boxes]


def _are_boxes(boxes):
    if not all(type(box) in (list, tuple) and len(box) == 4 for box in boxes):
        return False
    types = set(map(type, itertools.chain.from_iterable(boxes)))
    if not types <= {int, float}:
        return False
    try:
        return bool(are_coordinates(np.asarray(boxes, np.float64)).all())
    except OverflowError:  # an int of hundreds of digits
        return False


def _name_bad_boxes(annotations, good, images, source, problems):
    for annotation, is_good in zip(annotations, good):
        if not is_good:
            image = images.get(_key(annotation.get("image_id")), {})
            problems.add(
                "bad box",
                image.get("file_name", source),
                f"bbox={reprlib.repr(annotation.get('bbox'))} of annotation "
                f"{reprlib.repr(annotation.get('id'))} is not four finite numbers: "
                "left, top, width, height",
            )


def _annotation_ids(annotations):
    ids = [annotation.get("id") for annotation in annotations]
    if all(map(is_id, ids)) and len(set(ids)) == len(ids):
        return ids
    # pycocotools keeps annotations by id: without one each, some are lost.
    return range(1, len(annotations) + 1)


def _as_ids(values):
    if set(map(type, values)) <= {int, str}:
        return values
    return [_key(value) for value in values]


def _key(value):
    """An id by which things find each other, or None."""
    return value if isinstance(value, str) else whole_number(value)


def _get(item, key):
    return item.get(key) if isinstance(item, dict) else None


def is_id(value):
    """Says whether a value is an int that can be an id."""
    return type(value) is int and abs(value) <= _MAX_ID


def _number(count):
    return "1 annotation" if count == 1 else f"{count:,} annotations"
