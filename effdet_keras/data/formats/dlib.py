"""Reads the xml files of dlib and its program imglab, one file for all images."""

from __future__ import annotations

import os
import re
import reprlib
from collections.abc import Callable
from typing import Any

from effdet_keras.data.dataset import DetectionDataset, count_of
from effdet_keras.data.formats import reading
from effdet_keras.data.formats.annotation_files import (
    Objects,
    class_of_unnamed,
    class_order,
    head_of,
    numbered,
    numbers_of,
    read_path,
    read_xml,
    readers_by_split,
    usable_entries,
)
from effdet_keras.data.formats.image_paths import ImageLocator
from effdet_keras.data.formats.label_map import ClassNames
from effdet_keras.data.problems import Problems

_SIDES = ("left", "top", "width", "height")
_DATASET = re.compile(rb"<dataset\b[^>]*>.*?<images\b", re.DOTALL)


def from_dlib(
    path: str | os.PathLike[str],
    split: str | None = None,
    *,
    image_dir: str | os.PathLike[str] | None = None,
    class_names: ClassNames | None = None,
    on_error: str = "auto",
) -> DetectionDataset:
    """Reads the boxes in an xml file that imglab has written, the program of dlib.

    The file has an `<image file="a.jpg">` for each image, with a `<box>` for each
    object: `left`, `top`, `width` and `height` in pixels, and usually a `<label>`.
    Boxes without a label are of the class "object", or of the only one in
    `class_names`. Key points (`<part>`) are not read.

    Args:
        path: the xml file, or a folder that contains it. Several files are splits by
            their names, such as `training.xml` and `testing.xml`.
        split: name of a split of a folder. None reads the only one.
        image_dir: folder of the images. None looks near the file.
        class_names, on_error: see `load`.

    Returns:
        `DetectionDataset`. The classes are sorted. A box with `ignore="1"` is a crowd:
        neither training nor evaluation count what is found there. `image_id` counts
        from 1 in the order of the file; `source_id` is the name of the image.

    Raises:
        FileNotFoundError: If the file or images are missing.
        ValueError: If the file does not have this format, or, depending on `on_error`,
            if a box does not have four finite numbers.

    Example:
        >>> import pathlib, tempfile, PIL.Image
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> PIL.Image.new("RGB", (48, 32)).save(folder / "a.png")
        >>> _ = (folder / "training.xml").write_text('''<dataset><images>
        ...   <image file="a.png">
        ...     <box left="8" top="4" width="32" height="16"><label>cat</label></box>
        ...   </image>
        ... </images></dataset>''')
        >>> from_dlib(folder)[0]["boxes"].tolist()
        [[4.0, 8.0, 20.0, 40.0]]
    """
    return read_path(
        _read_file,
        dlib_readers,
        path,
        split,
        "`from_dlib` found no xml file of imglab: one",
        image_dir=image_dir,
        class_names=class_names,
        on_error=on_error,
    )


def dlib_readers(path: Any) -> dict[str, Callable]:
    """Finds xml files of imglab; returns a dict from split to its reader."""
    return readers_by_split(
        _read_file, path, (".xml",), lambda file: bool(_DATASET.search(head_of(file)))
    )


def _read_file(path, *, image_dir=None, class_names=None, on_error="auto"):
    """Returns the dataset of a file."""
    problems = Problems(f"`from_dlib` of {str(path)!r}", on_error)
    locator = ImageLocator(path, image_dir)
    images = _read_images(path, problems)
    unnamed = sum(not box["label"] for image in images for box in image["boxes"])
    lacking = count_of(unnamed, "box has", "boxes have")
    name = class_of_unnamed(unnamed, lacking, class_names, path, problems)
    found = [_found(image, name, locator, problems) for image in images]
    classes = reading.named_classes(class_order([], found), class_names)
    return reading.make_dataset(found, classes, problems, source=path)


def _read_images(path, problems):
    """Returns a dict for each image: its attributes, and its boxes as dicts."""
    rule = "`from_dlib` expects an xml file of imglab, with <dataset> and <images>"
    root = read_xml(path, rule)
    images = root.find("images")
    is_ours = root.tag == "dataset" and images is not None
    reading.require_content(is_ours, rule, path, f"<{root.tag}>")
    entries = [
        {**image.attrib, "boxes": [_box(box) for box in image.findall("box")]}
        for image in images.findall("image")
    ]
    expected = "an <image> with the attribute `file`"
    usable = usable_entries(
        numbered(entries, "image"), lambda e: e.get("file"), expected, path, problems
    )
    return [entry for _, entry in usable]


def _box(element):
    return {**element.attrib, "label": element.findtext("label", "").strip()}


def _found(image, unnamed, locator, problems):
    name, objects, crowds = image["file"], Objects(), []
    for box in image["boxes"]:
        numbers = numbers_of(box.get(side) for side in _SIDES)
        if numbers is None:
            detail = f"the finite {', '.join(_SIDES)} of a <box> are expected. "
            problems.add("bad box", name, f"{detail}Received: {reprlib.repr(box)}")
            continue
        objects.add(numbers, box["label"] or unnamed)
        crowds.append(box.get("ignore") == "1")
    return objects.found(name, locator.find(name), is_crowd=crowds)
