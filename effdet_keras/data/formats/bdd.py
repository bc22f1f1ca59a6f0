"""Reads the json of BDD100K and Scalabel, with one file for all images."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Callable
from typing import Any

import numpy as np

from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.formats import reading
from effdet_keras.data.formats.annotation_files import (
    Objects,
    class_order,
    dict_of,
    head_of,
    hull_box,
    items_of,
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

_CORNERS = ("x1", "y1", "x2", "y2")


def from_bdd(
    path: str | os.PathLike[str],
    split: str | None = None,
    *,
    image_dir: str | os.PathLike[str] | None = None,
    class_names: ClassNames | None = None,
    on_error: str = "auto",
) -> DetectionDataset:
    """Reads the labels with a `box2d` in a json file of BDD100K or Scalabel.

    The file is a list of images, or an object with such a list as `frames`. Each image
    has its `name` and `labels`. Labels without a box, such as lanes and drivable areas,
    are not objects.

    Args:
        path: the json file, or a folder that contains it, or a folder with `labels`,
            which contains it, and `images`. Several files are splits by their names.
        split: name of a split of a folder. None reads the only one.
        image_dir: folder of the images. None looks near the file.
        class_names, on_error: see `load`.

    Returns:
        `DetectionDataset`. The classes are sorted. Objects with the attribute `crowd`
        are crowds. `image_id` counts from 1 in the order of the file; `source_id` is
        the name of the image.

    Raises:
        FileNotFoundError: If the file or images are missing.
        ValueError: If the file does not have this format, or, depending on `on_error`,
            if a box is not two corners of finite numbers and a category.

    Example:
        >>> import json, pathlib, tempfile, PIL.Image
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> PIL.Image.new("RGB", (48, 32)).save(folder / "a.png")
        >>> car = {"category": "car", "box2d": {"x1": 8, "y1": 4, "x2": 40, "y2": 20}}
        >>> content = [{"name": "a.png", "labels": [car]}]
        >>> _ = (folder / "det_train.json").write_text(json.dumps(content))
        >>> from_bdd(folder)[0]["boxes"].tolist()
        [[4.0, 8.0, 20.0, 40.0]]
    """
    return read_path(
        _read_file,
        bdd_readers,
        path,
        split,
        "`from_bdd` found no json file of BDD100K: one",
        image_dir=image_dir,
        class_names=class_names,
        on_error=on_error,
    )


def bdd_readers(path: Any) -> dict[str, Callable]:
    """Finds json files of BDD100K; returns a dict from split to its reader."""
    return readers_by_split(_read_file, path, (".json",), is_bdd)


def _read_file(path, *, image_dir=None, class_names=None, on_error="auto"):
    """Returns the dataset of a file."""
    problems = Problems(f"`from_bdd` of {str(path)!r}", on_error)
    locator = ImageLocator(path, image_dir)
    found = [_found(image, locator, problems) for image in _read_images(path, problems)]
    classes = reading.named_classes(class_order([], found), class_names)
    return reading.make_dataset(found, classes, problems, source=path)


def is_bdd(path: Any) -> bool:
    """Returns whether a json file begins like those of BDD100K and Scalabel."""
    head = head_of(path)
    return b'"name"' in head and b'"labels"' in head and b'"box2d"' in head


def _read_images(path, problems):
    content = read_json(path, "from_bdd")
    images = content.get("frames") if isinstance(content, dict) else content
    expected = "images, each with `name` and `labels`"
    rule = f"`from_bdd` expects a json list of {expected}"
    reading.require_content(isinstance(images, list), rule, path, content)
    usable = usable_entries(numbered(images), _is_image, expected, path, problems)
    return [image for _, image in usable]


def _is_image(content):
    return isinstance(dict_of(content).get("name"), str)


def _found(image, locator, problems):
    name, objects, crowds = image["name"], Objects(), []
    for label in items_of(image.get("labels"), name, problems):
        box = label.get("box2d")
        if box is None:
            continue
        category = str(label.get("category") or "").strip()
        corners = numbers_of(dict_of(box).get(k) for k in _CORNERS)
        if corners is None or not category:
            detail = f"a `category` and the finite {', '.join(_CORNERS)} are expected. "
            problems.add("bad box", name, f"{detail}Received: {reprlib.repr(label)}")
            continue
        objects.add(hull_box(np.array(corners).reshape(2, 2)), category)
        crowds.append(bool(dict_of(label.get("attributes")).get("crowd")))
    return objects.found(
        name,
        locator.find(name),
        is_crowd=crowds,
    )
