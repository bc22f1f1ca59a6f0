"""Reads the json of Apple's Create ML, with one file for all images."""

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
    dict_of,
    head_of,
    numbered,
    numbers_of,
    read_json,
    read_path,
    readers_by_split,
    usable_entries,
)
from effdet_keras.data.formats.image_paths import ImageLocator
from effdet_keras.data.formats.label_map import ClassNames
from effdet_keras.data.problems import Problems

_SUFFIXES = (".json",)
# Keys of the name of an image, and of its boxes, in the tools that write this format.
_NAMES = ("image", "imagefilename", "filename", "imageFilename")
_LISTS = ("annotations", "annotation")
_SIDES = ("x", "y", "width", "height")
_EXPECTED = "images, each with `image`, its name, and `annotations`"


def from_create_ml(
    path: str | os.PathLike[str],
    split: str | None = None,
    *,
    image_dir: str | os.PathLike[str] | None = None,
    class_names: ClassNames | None = None,
    on_error: str = "auto",
) -> DetectionDataset:
    """Reads a json file of Apple's Create ML, which describes all images of a folder.

    It is a list of `{"image": "a.jpg", "annotations": [{"label": "cat", "coordinates":
    {"x": 24, "y": 12, "width": 32, "height": 16}}]}`, with the center and the sides of
    each box in pixels. LabelImg, RectLabel and Roboflow write this format too.

    Args:
        path: the json file, or a folder that contains it, or a folder with a folder for
            each split that contains one each, such as Roboflow's
            `_annotations.createml.json`.
        split: name of a split of a folder. None reads the only one.
        image_dir: folder of the images. None looks beside the file and in `images`.
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
        >>> box = {"x": 24, "y": 12, "width": 32, "height": 16}
        >>> cat = {"label": "cat", "coordinates": box}
        >>> content = [{"image": "a.png", "annotations": [cat]}]
        >>> _ = (folder / "train.json").write_text(json.dumps(content))
        >>> from_create_ml(folder)[0]["boxes"].tolist()
        [[4.0, 8.0, 20.0, 40.0]]
    """
    return read_path(
        _read_file,
        create_ml_readers,
        path,
        split,
        "`from_create_ml` found no json file of Create ML: one",
        image_dir=image_dir,
        class_names=class_names,
        on_error=on_error,
    )


def create_ml_readers(path: Any) -> dict[str, Callable]:
    """Finds json files of Create ML; returns a dict from split to its reader."""
    return readers_by_split(_read_file, path, _SUFFIXES, is_create_ml)


def _read_file(path, *, image_dir=None, class_names=None, on_error="auto"):
    """Returns the dataset of a file."""
    problems = Problems(f"`from_create_ml` of {str(path)!r}", on_error)
    locator = ImageLocator(path, image_dir)
    found = [
        _found(name, annotations, locator, problems)
        for name, annotations in _read_images(path, problems)
    ]
    classes = reading.named_classes(class_order([], found), class_names)
    return reading.make_dataset(found, classes, problems, source=path)


def is_create_ml(path: Any) -> bool:
    """Returns whether a json file begins like those of Create ML."""
    head = head_of(path)
    if not head.startswith(b"["):
        return False
    has_image = any(f'"{name}"'.encode() in head for name in _NAMES)
    has_list = any(f'"{name}"'.encode() in head for name in _LISTS)
    is_other = b'"result"' in head or b'"data"' in head or b'"bbox"' in head
    return has_image and has_list and (b'"coordinates"' in head or not is_other)


def _read_images(path, problems):
    """Returns the `(name, annotations)` of each image.

    A file may have one entry per box.
    """
    content = read_json(path, "from_create_ml")
    rule = f"`from_create_ml` expects a json list of {_EXPECTED}"
    reading.require_content(isinstance(content, list), rule, path, content)
    images = {}
    for _, image in usable_entries(
        numbered(content), _is_image, _EXPECTED, path, problems
    ):
        name, boxes = _name_and_boxes(image)
        images.setdefault(name, []).extend(boxes)
    return images.items()


def _is_image(content):
    name, boxes = _name_and_boxes(dict_of(content))
    return isinstance(name, str) and isinstance(boxes, list)


def _name_and_boxes(image):
    """Returns the values of the keys for the name and for the boxes, or None."""
    return [
        next((image[key] for key in keys if key in image), None)
        for keys in (_NAMES, _LISTS)
    ]


def _found(name, annotations, locator, problems):
    objects = Objects()
    for annotation in annotations:
        given = annotation.get("coordinates") if isinstance(annotation, dict) else None
        given = given if isinstance(given, dict) else {}
        numbers = numbers_of(given.get(side) for side in _SIDES)
        label = str(annotation.get("label") or "").strip() if given else ""
        if numbers is None or not label:
            detail = (
                f"a `label` and the finite `coordinates` {', '.join(_SIDES)} are "
                f"expected. Received: {reprlib.repr(annotation)}"
            )
            problems.add("bad box", name, detail)
            continue
        x, y, width, height = numbers
        objects.add((x - width / 2, y - height / 2, width, height), label)
    return objects.found(name, locator.find(name))
