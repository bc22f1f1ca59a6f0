"""Reads the exports JSON and JSON-MIN of Label Studio."""

from __future__ import annotations

import collections
import os
import re
import urllib.parse
from collections.abc import Callable
from typing import Any

import numpy as np

from effdet_keras._internal.remote_path import is_file
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.formats import reading
from effdet_keras.data.formats.annotation_files import (
    Objects,
    class_order,
    corners_of,
    dict_of,
    ellipse_box,
    head_of,
    hull_box,
    note_rotated,
    number_of,
    numbered,
    numbers_of,
    points_of,
    polygon_shape,
    read_json,
    read_path,
    readers_by_split,
    turned_corners,
    usable_entries,
)
from effdet_keras.data.formats.image_paths import ImageLocator, path_parts
from effdet_keras.data.formats.label_map import ClassNames
from effdet_keras.data.problems import Problems
from effdet_keras.errors import InvalidValueError
from effdet_keras.images import IMAGE_SUFFIXES

_SUFFIXES = (".json",)
# The second is that of versions before 1.0.
_ANNOTATIONS = ("annotations", "completions")
# Keys of the image in the data of a task. Without these, an image is known by its
# suffix.
_IMAGE_KEYS = ("image", "img", "image_url", "url", "ocr")
_UPLOADED = re.compile(r"[0-9a-f]{8}-(?=.)")  # what an upload puts before a name
_WITHOUT_BOX = ("keypoint", "brush", "bitmask", "vector")


def from_label_studio(
    path: str | os.PathLike[str],
    split: str | None = None,
    *,
    image_dir: str | os.PathLike[str] | None = None,
    class_names: ClassNames | None = None,
    on_error: str = "auto",
    masks: bool = False,
) -> DetectionDataset:
    """Reads an export of Label Studio in its format JSON or JSON-MIN.

    Reads rectangles, ellipses and outlines (`polygonlabels`), whose coordinates are
    percentages of the image. A shape that is not an upright rectangle becomes the
    upright box around it; rotated rectangles are counted in a note. Key points and
    brushes are left out, with a warning. If a task has several annotations, the latest
    one that was not cancelled is read. Tasks without an annotation are left out, with a
    warning. Predictions are not read.

    Label Studio does not export uploaded images with JSON: put them beside the file, or
    into `images`. They are found with and without the eight hexadecimal digits that an
    upload puts before their names, and by the path in `/data/local-files/?d=...`.

    Args:
        path: the json file, or a folder that contains it.
        split: name of a split of a folder. None reads the only one.
        image_dir: folder of the images. None looks beside the file and in `images`.
        class_names, on_error: see `load`.
        masks: whether to keep outlines for a segmentation head, as `from_coco` does.

    Returns:
        `DetectionDataset`. The classes are sorted, because the file does not have their
        order. `image_id` counts from 1 in the order of the tasks; `source_id` is the id
        of the task.

    Raises:
        FileNotFoundError: If the file or images are missing.
        ValueError: If the file is no such export or has no annotated task, or,
            depending on `on_error`, if a region has no finite numbers, or not exactly
            one label.

    Example:
        >>> import json, pathlib, tempfile, PIL.Image
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> PIL.Image.new("RGB", (50, 40)).save(folder / "a.png")
        >>> box = {"x": 20, "y": 10, "width": 60, "height": 50, "rotation": 0,
        ...        "rectanglelabels": ["cat"]}
        >>> region = {"id": "k1", "type": "rectanglelabels", "value": box,
        ...           "original_width": 50, "original_height": 40}
        >>> task = {"id": 7, "data": {"image": "/data/upload/1/0f1e2d3c-a.png"},
        ...         "annotations": [{"result": [region]}]}
        >>> _ = (folder / "project.json").write_text(json.dumps([task]))
        >>> from_label_studio(folder)[0]["boxes"].tolist()
        [[4.0, 10.0, 24.0, 40.0]]
    """
    return read_path(
        _read_file,
        label_studio_readers,
        path,
        split,
        "`from_label_studio` found no json file of Label Studio: one",
        image_dir=image_dir,
        class_names=class_names,
        on_error=on_error,
        masks=masks,
    )


def label_studio_readers(path: Any) -> dict[str, Callable]:
    """Finds exports of Label Studio; returns a dict from split to its reader."""
    return readers_by_split(_read_file, path, _SUFFIXES, is_label_studio)


def _read_file(path, *, image_dir=None, class_names=None, on_error="auto", masks=False):
    """Returns the dataset of a file."""
    problems = Problems(f"`from_label_studio` of {str(path)!r}", on_error)
    locator = ImageLocator(path, image_dir)
    found, rotated = [], []
    for number, task in enumerate(_read_tasks(path, problems)):
        place = f"task {task.get('id', number)}"
        name, regions = _image_name(task), _regions_of(task)
        if regions is None:
            problems.add("unlabelled image", name, f"{place} has no annotation")
        else:
            source_id = task.get("id", number)
            found.append(
                _found(name, source_id, regions, locator, problems, rotated, masks)
            )
    if not found:
        problems.finish()
        raise InvalidValueError(
            f"`from_label_studio` found no task with an annotation in {str(path)!r}; "
            "predictions are not read. Export the project once its tasks are labelled"
        )
    note_rotated(problems, path.name, rotated)
    classes = reading.named_classes(class_order([], found), class_names)
    return reading.make_dataset(found, classes, problems, source=path)


def is_label_studio(path: Any) -> bool:
    """Returns whether a json file begins like an export of Label Studio."""
    head = head_of(path)
    if not head.startswith(b"["):
        return False
    has_list = any(f'"{name}"'.encode() in head for name in _ANNOTATIONS)
    if b'"predictions"' in head and not has_list:
        return False  # tasks to import into Label Studio, not annotated yet
    is_full = has_list and (b'"result"' in head or b'"data"' in head)
    is_short = b'"annotation_id"' in head and b'"lead_time"' in head
    return is_full or is_short or (b'labels"' in head and b'"original_width"' in head)


# --- Tasks: their image, and the regions of the annotation that is read.


def _read_tasks(path, problems):
    content = read_json(path, "from_label_studio")
    content = [content] if isinstance(content, dict) else content
    expected = "tasks, each with `data` and `annotations`"
    rule = (
        f"`from_label_studio` expects a json list of {expected}, as the export formats "
        "JSON and JSON-MIN have them"
    )
    reading.require_content(isinstance(content, list), rule, path, content)
    tasks = numbered(content, "task")
    tasks = usable_entries(tasks, _is_task, expected, path, problems)
    return [task for _, task in tasks]


def _is_task(content):
    task = dict_of(content)
    return isinstance(task.get("data", task), dict) and _image_name(task) is not None


def _image_name(task):
    """Returns the address of the image of a task, or None."""
    data = task.get("data", task)
    texts = {key: value for key, value in data.items() if isinstance(value, str)}
    named = [texts[key] for key in _IMAGE_KEYS if key in texts]
    files = [t for t in texts.values() if t.lower().endswith(IMAGE_SUFFIXES)]
    return next(iter(named + files), None)


def _regions_of(task):
    """Returns the regions of the annotation that is read, or None if there is none."""
    if "data" not in task:  # JSON-MIN: a list of values for each control
        lists = [v for key, v in task.items() if isinstance(v, list)]
        regions = [r for regions in lists for r in regions if isinstance(r, dict)]
        return [{"value": r, **_sizes_of(r)} for r in regions if "original_width" in r]
    lists = [task[key] for key in _ANNOTATIONS if isinstance(task.get(key), list)]
    done = [a for annotations in lists for a in annotations if isinstance(a, dict)]
    done = [a for a in done if not (a.get("was_cancelled") or a.get("skipped"))]
    if not done:
        return None
    # The last annotation is taken if times are missing or equal.
    latest = max(range(len(done)), key=lambda i: (_time_of(done[i]), i))
    results = done[latest].get("result")
    return _joined_by_id(results) if isinstance(results, list) else None


def _time_of(annotation):
    return str(annotation.get("updated_at") or annotation.get("created_at") or "")


def _sizes_of(region):
    keys = ("original_width", "original_height", "image_rotation", "item_index")
    return {key: region[key] for key in keys if key in region}


def _joined_by_id(results):
    """Returns the regions; two results with the same id are one region.

    The controls `Labels` and `Rectangle` write two such results.
    """
    regions = collections.OrderedDict()
    for number, result in enumerate(results):
        if not isinstance(result, dict) or not isinstance(result.get("value"), dict):
            continue
        key = str(result.get("id", number))
        region = regions.setdefault(key, {"value": {}})
        value = {**region["value"], **result["value"]}
        regions[key] = {**region, **result, "value": value}
    # Results for the whole image, such as choices, have no geometry.
    return [r for r in regions.values() if _kind_of(r["value"]) is not None]


# --- Regions: their boxes, in fractions of the image.


def _kind_of(value):
    """Returns the kind of a region by its keys; None if it has no geometry."""
    if "points" in value:
        return "polygon"
    if "radiusX" in value:
        return "ellipse"
    if "rle" in value or "imageDataURL" in value:
        return "brush"
    if {"x", "y"} <= value.keys() and (
        "keypointlabels" in value or "height" not in value
    ):
        return "keypoint"
    return "rectangle" if {"x", "y", "width", "height"} <= value.keys() else None


def _labels_of(value):
    """Returns the labels of a region: the list in `rectanglelabels` or in `labels`."""
    lists = [
        v for k, v in value.items() if k.endswith("labels") and isinstance(v, list)
    ]
    return list(dict.fromkeys(str(name).strip() for names in lists for name in names))


def _found(name, source_id, regions, locator, problems, rotated, masks):
    objects, sizes = Objects(), []
    for number, region in enumerate(regions):
        value, place = region["value"], f"region {region.get('id', number)}"
        kind, labels = _kind_of(value), _labels_of(value)
        if kind in _WITHOUT_BOX:
            problems.add("unread shape", name, f"{place}: {kind} of {labels}")
            continue
        size = numbers_of((region.get("original_width"), region.get("original_height")))
        size = size if size and min(size) > 0 else None
        sizes += [size] if size else []
        rotation = number_of(value.get("rotation", 0))
        points = None if rotation is None else _outline(kind, value, rotation, size)
        fault = _fault_of(region, labels, points, rotation, size)
        if fault:
            problems.add("bad box", name, f"{place}: {fault}")
            continue
        if rotation % 360 and kind == "rectangle":
            rotated.append(f"{labels[0]!r} by {rotation:g} degrees in {name}")
        outline = None
        if kind == "polygon" and size:
            outline = polygon_shape(points / 100 * size)
        objects.add(np.divide(hull_box(points), 100), labels[0], outline)
    width, height = sizes[0] if sizes else (None, None)
    image = _locate(name, locator)
    return reading.Found(
        place=name,
        image=image,
        boxes=objects.boxes,
        classes=objects.classes,
        source_id=source_id if isinstance(source_id, int | str) else str(source_id),
        file_name=_UPLOADED.sub("", image.name, count=1),
        image_size=reading.check_size(height, width),
        normalized_coordinates=True,
        shapes=tuple(objects.shapes) if masks else None,
    )


def _fault_of(region, labels, points, rotation, size):
    """Returns a text that says what is wrong with a region, or None."""
    if region.get("item_index"):
        return (
            "the task has several images, but only tasks with one image each can be "
            "read"
        )
    if number_of(region.get("image_rotation", 0)):
        return (
            f"the image was turned by {region['image_rotation']} degrees in Label "
            "Studio: turn the file as well, and annotate it again"
        )
    if len(labels) != 1:
        return f"one label is expected. Received: {labels}"
    if rotation and rotation % 360 and not size:
        return "a rotated shape must have `original_width` and `original_height`"
    if points is None:
        given = {k: v for k, v in region["value"].items() if not k.endswith("labels")}
        return (
            f"finite numbers are expected, in percent of the image. Received: {given}"
        )
    return None


def _outline(kind, value, rotation, size):
    """Returns points `[n, 2]` in percent whose hull is the box of a region, or None."""
    if kind == "polygon":
        points = points_of(value["points"])
        return None if points is None or not len(points) else points
    names = ("x", "y", "width", "height")
    if kind == "ellipse":
        names = ("x", "y", "radiusX", "radiusY")
    numbers = numbers_of(value.get(name) for name in names)
    if numbers is None:
        return None
    # Angles are measured in pixels, and the sides of the image differ.
    scale = np.divide(size or (1, 1), max(size or (1, 1)))
    x, y, a, b = np.multiply(numbers, np.tile(scale, 2)).tolist()
    if kind == "ellipse":
        points = corners_of(*ellipse_box(x, y, a, b, rotation))
    else:  # rotated clockwise about its first corner
        points = turned_corners(corners_of(x, y, a, b), rotation, (x, y))
    return points / scale


# --- Images, which have addresses of Label Studio's server as names.


def _locate(name, locator):
    """Returns the path of an image, with or without the prefix of an upload."""
    *folders, last = path_parts(name) or [""]
    texts = (last, urllib.parse.unquote(last))
    others = [_UPLOADED.sub("", text, count=1) for text in texts]
    paths = (
        locator.find("/".join([*folders, text]))
        for text in dict.fromkeys((*texts, *others))
    )
    expected = next(paths)
    if is_file(expected):
        return expected
    found = next(filter(is_file, paths), None)
    renamed = (locator.find_renamed(name, _uploaded_name) for name in others)
    return found or next(filter(None, renamed), expected)


def _uploaded_name(name):
    """Returns a name as an upload changes it.

    Spaces become `_`; other special characters are removed.
    """
    return re.sub(r"[^-\w.]", "", name.strip().replace(" ", "_"))
