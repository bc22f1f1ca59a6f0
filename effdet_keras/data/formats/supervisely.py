"""Reads projects of Supervisely, with a json file for each image in `ann`."""

from __future__ import annotations

import base64
import collections
import functools
import os
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from effdet_keras._internal.remote_path import for_each, is_file, path_of
from effdet_keras._internal.whole_files import is_remote
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.formats import reading
from effdet_keras.data.formats.annotation_files import (
    Objects,
    class_order,
    dict_of,
    hull_box,
    numbers_of,
    points_of,
    polygon_shape,
    read_json,
    read_split,
)
from effdet_keras.data.formats.dataset_files import (
    DEPTH,
    split_in_name,
    visible_files,
    visible_folders,
)
from effdet_keras.data.formats.image_paths import ImageLocator
from effdet_keras.data.formats.label_map import ClassNames
from effdet_keras.data.problems import Problems
from effdet_keras.images import read_mask

_NESTED = "datasets"  # the folder that has the datasets inside a dataset
_WITHOUT_BOX = ("point", "line", "polyline", "graph", "cuboid", "any")


def from_supervisely(
    path: str | os.PathLike[str],
    split: str | None = None,
    *,
    class_names: ClassNames | None = None,
    on_error: str = "auto",
    masks: bool = False,
) -> DetectionDataset:
    """Reads a project of Supervisely: `ann/a.jpg.json` for each `img/a.jpg`.

    Rectangles, outlines (`polygon`) and bitmaps become the upright box around them.
    Points and lines are left out, with a warning.

    Args:
        path: folder with `ann` and `img`; or folder of a project, with a folder for
            each of its datasets, which are the splits. A dataset inside the `datasets`
            of another one has its own name as split. If two datasets have the same
            name, or an outer one is named after a split, the names of the outer ones
            come first: `fruits_apple`.
        split: name of a dataset of the project. None reads the only one.
        class_names, on_error: see `load`.
        masks: whether to keep outlines for a segmentation head, as `from_coco` does.

    Returns:
        `DetectionDataset`. The classes are in the order of `meta.json`; others are
        sorted. `image_id` counts from 1 in the order of the names; `source_id` is the
        name of the image.

    Raises:
        FileNotFoundError: If there are no such folders, or images are missing.
        ValueError: If there are several datasets and `split` is None, or,
            depending on `on_error`, if a file is no json with `objects`, or a shape has
            no class or no points.

    Example:
        >>> import json, pathlib, tempfile, PIL.Image
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> (folder / "ann").mkdir(); (folder / "img").mkdir()
        >>> PIL.Image.new("RGB", (48, 32)).save(folder / "img" / "a.png")
        >>> cat = {"classTitle": "cat", "geometryType": "rectangle",
        ...        "points": {"exterior": [[8, 4], [40, 20]], "interior": []}}
        >>> content = {"size": {"height": 32, "width": 48}, "objects": [cat]}
        >>> _ = (folder / "ann" / "a.png.json").write_text(json.dumps(content))
        >>> from_supervisely(folder)[0]["boxes"].tolist()
        [[4.0, 8.0, 20.0, 40.0]]
    """
    path = path_of(path)
    if not _is_dataset(path):
        options = {"class_names": class_names, "on_error": on_error, "masks": masks}
        tool = "`from_supervisely` found no folder with `ann` and `img`: one"
        return read_split(supervisely_readers(path), path, split, tool, **options)
    problems = Problems(f"`from_supervisely` of {str(path)!r}", on_error)
    files = visible_files(path / "ann", ".json")
    contents = for_each(lambda file: _read(file, problems), files)
    locator = ImageLocator(path / "img" / "ann.json", path / "img")
    found = [
        _found(file, content, locator, problems, masks)
        for file, content in zip(files, contents)
        if content is not None
    ]
    classes = class_order(_titles(path), found)
    classes = reading.named_classes(classes, class_names)
    return reading.make_dataset(found, classes, problems, source=path)


def supervisely_readers(path: Any) -> dict[str, Callable]:
    """Finds datasets of Supervisely; returns a dict from split to its reader."""
    if not path.is_dir():
        return {}
    if _is_dataset(path):
        return {reading.ONE_SPLIT: functools.partial(from_supervisely, path)}
    # Without this file, these may be unrelated folders that have a dataset each.
    if not is_file(path / "meta.json"):
        return {}
    folders = list(_datasets_in(path))
    if len(folders) == 1:
        return {reading.ONE_SPLIT: functools.partial(from_supervisely, folders[0])}
    names = _names_of({folder: _parts_of(folder, path) for folder in folders})
    return {
        names[folder]: functools.partial(from_supervisely, folder) for folder in folders
    }


def _datasets_in(folder, depth=0):
    """Yields the datasets in a project or in another dataset, outer ones first."""
    for place in visible_folders(folder):
        if _is_dataset(place):
            yield place
        inner = place / _NESTED
        if depth < DEPTH and inner.is_dir() and not _is_link(inner):
            yield from _datasets_in(inner, depth + 1)


def _is_link(folder):
    return not is_remote(folder) and (folder.is_symlink() or folder.parent.is_symlink())


def _parts_of(folder, project):
    """Returns the names of the datasets around a dataset, and its own as the last."""
    parts = folder.parts[len(project.parts) :]
    return parts[::2]  # every second part is `datasets`


def _names_of(parts_of):
    """Returns a name for each dataset.

    It is the dataset's own name, or, if that is not unique or an outer dataset is named
    after a split, the names of the outer datasets and its own.
    """
    counts = collections.Counter(parts[-1] for parts in parts_of.values())
    names = {}
    for folder, parts in parts_of.items():
        has_split = any(split_in_name(part) for part in parts[:-1])
        is_short = counts[parts[-1]] == 1 and not has_split
        name = parts[-1] if is_short else "_".join(parts)
        while name in names.values():
            name += "_"
        names[folder] = name
    return names


def _is_dataset(path):
    annotations = path / "ann"
    return (path / "img").is_dir() and any(annotations.glob("*.json"))


def _titles(path):
    """Returns the classes of a project, in its order."""
    path = path if is_remote(path) else path.absolute()
    places = [path, path.parent]
    while places[-1].name == _NESTED and (places[-1].parent / "ann").is_dir():
        places.append(places[-1].parent.parent)
    for file in (place / "meta.json" for place in places):
        if is_file(file):
            content = read_json(file, "from_supervisely")
            classes = content.get("classes") if isinstance(content, dict) else None
            rule = "`from_supervisely` expects a list `classes`"
            is_list = classes is None or isinstance(classes, list)
            reading.require_content(is_list, rule, file, content)
            return [
                str(item["title"])
                for item in classes or []
                if isinstance(item, dict)
                and "title" in item
                and item.get("shape") not in _WITHOUT_BOX[:-1]
            ]
    return []


def _read(path, problems):
    try:
        content = read_json(path, "from_supervisely")
        rule = "`from_supervisely` expects a json object with a list of `objects`"
        is_one = isinstance(content, dict) and isinstance(content.get("objects"), list)
        reading.require_content(is_one, rule, path, content)
        return content
    except ValueError as error:
        problems.add("unreadable annotation", path.name, str(error))
        return None


def _found(file, content, locator, problems, masks):
    objects = Objects()
    for number, item in enumerate(map(dict_of, content["objects"])):
        place = f"objects[{number}]"
        kind, title = item.get("geometryType"), str(item.get("classTitle") or "")
        if kind in _WITHOUT_BOX:
            problems.add("unread shape", file.name, f"{place}: {kind} of {title!r}")
            continue
        points = _points_of(kind, item)
        if points is None or not title:
            detail = f"{place}: a `classTitle` and points of two finite numbers are "
            detail += f"expected. Received: {title!r}, {kind!r}"
            problems.add("bad box", file.name, detail)
            continue
        outline = polygon_shape(points) if kind == "polygon" else None
        objects.add(hull_box(points), title, outline)
    name = file.stem  # `a.jpg` of `a.jpg.json`; in old projects `a` of `a.json`
    image = locator.find(name)
    if not is_file(image):
        image = locator.find_frame(name) or image
    size = dict_of(content.get("size"))
    return reading.Found(
        place=file.name,
        image=image,
        boxes=objects.boxes,
        classes=objects.classes,
        source_id=image.name,
        file_name=image.name,
        image_size=reading.check_size(size.get("height"), size.get("width")),
        shapes=tuple(objects.shapes) if masks else None,
    )


def _points_of(kind, item):
    """Returns points `[n, 2]` whose upright hull is the box of an object, or None."""
    if kind == "bitmap":
        return _bitmap_corners(dict_of(item.get("bitmap")))
    points = points_of(dict_of(item.get("points")).get("exterior"))
    is_shape = kind in ("rectangle", "polygon") and points is not None
    return points if is_shape and len(points) > 1 else None


def _bitmap_corners(bitmap):
    """Returns the corners of the pixels in a bitmap, or None.

    A bitmap is a PNG file, compressed by zlib, in base64.
    """
    origin = bitmap.get("origin")
    origin = numbers_of(origin) if isinstance(origin, list) else None
    try:
        data = zlib.decompress(base64.b64decode(str(bitmap.get("data"))))
        pixels = read_mask(data)
    except (ValueError, zlib.error):
        return None
    rows, columns = np.nonzero(pixels)
    if origin is None or len(origin) != 2 or not len(rows):
        return None
    low, high = (columns.min(), rows.min()), (columns.max() + 1, rows.max() + 1)
    return np.add([low, high], origin)
