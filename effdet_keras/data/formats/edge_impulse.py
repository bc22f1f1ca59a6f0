"""Reads Edge Impulse's `bounding_boxes.labels`, a json file for all images."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Callable
from typing import Any

from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.formats import reading
from effdet_keras.data.formats.annotation_files import (
    Objects,
    class_order,
    items_of,
    numbers_of,
    read_json,
    read_path,
    readers_by_split,
)
from effdet_keras.data.formats.image_paths import ImageLocator
from effdet_keras.data.formats.label_map import ClassNames
from effdet_keras.data.problems import Problems

_NAME = "bounding_boxes.labels"
_SIDES = ("x", "y", "width", "height")


def from_edge_impulse(
    path: str | os.PathLike[str],
    split: str | None = None,
    *,
    image_dir: str | os.PathLike[str] | None = None,
    class_names: ClassNames | None = None,
    on_error: str = "auto",
) -> DetectionDataset:
    """Reads a `bounding_boxes.labels` of Edge Impulse, a json file beside the images.

    Its `boundingBoxes` have a list of objects for each image. An object has `label`,
    `x`, `y`, `width` and `height`: the top left corner and the sides, in pixels.

    Args:
        path: the file, or a folder that contains it, or a folder with `training` and
            `testing` that contain one each.
        split: name of a split of a folder, such as "training". None reads the only one.
        image_dir: folder of the images. None looks beside the file.
        class_names, on_error: see `load`.

    Returns:
        `DetectionDataset`. The classes are sorted. `image_id` counts from 1 in the
        order of the file; `source_id` is the name of the image.

    Raises:
        FileNotFoundError: If the file or images are missing.
        ValueError: If the file does not have this format, or, depending on `on_error`,
            if a box has no label or no finite numbers.

    Example:
        >>> import json, pathlib, tempfile, PIL.Image
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> PIL.Image.new("RGB", (48, 32)).save(folder / "a.png")
        >>> cat = {"label": "cat", "x": 8, "y": 4, "width": 32, "height": 16}
        >>> content = {"version": 1, "type": "bounding-box-labels",
        ...            "boundingBoxes": {"a.png": [cat]}}
        >>> _ = (folder / "bounding_boxes.labels").write_text(json.dumps(content))
        >>> from_edge_impulse(folder)[0]["boxes"].tolist()
        [[4.0, 8.0, 20.0, 40.0]]
    """
    return read_path(
        _read_file,
        edge_impulse_readers,
        path,
        split,
        f"`from_edge_impulse` found no file {_NAME}: one",
        image_dir=image_dir,
        class_names=class_names,
        on_error=on_error,
    )


def edge_impulse_readers(path: Any) -> dict[str, Callable]:
    """Finds `bounding_boxes.labels`; returns a dict from split to its reader."""
    return readers_by_split(
        _read_file, path, (".labels",), lambda file: file.name == _NAME
    )


def _read_file(path, *, image_dir=None, class_names=None, on_error="auto"):
    """Returns the dataset of a file."""
    problems = Problems(f"`from_edge_impulse` of {str(path)!r}", on_error)
    content = read_json(path, "from_edge_impulse")
    images = content.get("boundingBoxes") if isinstance(content, dict) else None
    rule = "`from_edge_impulse` expects a json object with `boundingBoxes`"
    reading.require_content(isinstance(images, dict), rule, path, content)
    locator = ImageLocator(path, image_dir)
    found = [
        _found(name, items_of(boxes, name, problems), locator, problems)
        for name, boxes in images.items()
    ]
    classes = reading.named_classes(class_order([], found), class_names)
    return reading.make_dataset(found, classes, problems, source=path)


def _found(name, boxes, locator, problems):
    objects = Objects()
    for box in boxes:
        numbers = numbers_of(box.get(side) for side in _SIDES)
        label = str(box.get("label") or "").strip()
        if numbers is None or not label:
            detail = (
                f"a `label` and the finite {', '.join(_SIDES)} are expected. "
                f"Received: {reprlib.repr(box)}"
            )
            problems.add("bad box", name, detail)
        else:
            objects.add(numbers, label)
    return objects.found(name, locator.find(name))
