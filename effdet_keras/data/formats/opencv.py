"""Reads the text files of OpenCV's `opencv_annotation`, one line for each image."""

from __future__ import annotations

import os
import re
import reprlib
from collections.abc import Callable
from typing import Any

from effdet_keras._internal.yaml_text import read_text
from effdet_keras.data.dataset import DetectionDataset, count_of
from effdet_keras.data.formats import reading
from effdet_keras.data.formats.annotation_files import (
    Objects,
    class_of_unnamed,
    class_order,
    head_of,
    numbers_of,
    read_path,
    readers_by_split,
)
from effdet_keras.data.formats.dataset_files import split_word_in, visible_files
from effdet_keras.data.formats.image_paths import ImageLocator
from effdet_keras.data.formats.label_map import ClassNames
from effdet_keras.data.problems import Problems
from effdet_keras.images import IMAGE_SUFFIXES

_SUFFIXES = (".txt", ".dat", ".info", ".lst")
_NAMES = (
    r"annot(ation)?s?|info|pos(itives?)?|positive_?(images|samples)|samples|objects|"
    r"bbox(es)?|labels?"
)
_NEGATIVES = re.compile(r"bg|neg(ative)?s?|backgrounds?", re.IGNORECASE)
_IS_NAME = re.compile(_NAMES, re.IGNORECASE)
_ENDINGS = "|".join(suffix[1:] for suffix in IMAGE_SUFFIXES)
_LINE = re.compile(rf"(?P<name>.*?\.(?:{_ENDINGS}))\s+(?P<numbers>.*)", re.IGNORECASE)
# Of the first line: an image, and the count and the numbers of its boxes.
_FIRST = re.compile(
    rf"\S[^\n]*?\.(?:{_ENDINGS})[ \t]+\d+(?:(?:[ \t]+-?[\d.]+){{4}})*[ \t\r]*(?:\n|$)",
    re.IGNORECASE,
)


def from_opencv(
    path: str | os.PathLike[str],
    split: str | None = None,
    *,
    image_dir: str | os.PathLike[str] | None = None,
    class_names: ClassNames | None = None,
    on_error: str = "auto",
) -> DetectionDataset:
    """Reads the annotations with which OpenCV's cascades of classifiers are trained.

    A line is `a.jpg 2 left top width height left top width height`: an image, the
    number of its boxes, and the boxes, in pixels. All boxes are of one class, which is
    called "object", or as the only one of `class_names`. A list of images beside the
    file that is called `bg.txt`, `negatives.txt` or the like names images without
    objects.

    Args:
        path: the file; or a folder that contains it as `annotations.txt`, `info.dat`,
            `positives.txt` or the like, or as one file for each split.
        split: name of a split of a folder. None reads the only one.
        image_dir: folder of the images. None looks near the file.
        class_names, on_error: see `load`.

    Returns:
        `DetectionDataset`. `image_id` counts from 1 in the order of the lines, the
        images without objects last; `source_id` is the name of the image.

    Raises:
        FileNotFoundError: If the file or images are missing.
        ValueError: Depending on `on_error`, if a line does not have four finite numbers
            for each of its boxes.

    Example:
        >>> import pathlib, tempfile, PIL.Image
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> PIL.Image.new("RGB", (48, 32)).save(folder / "a.png")
        >>> _ = (folder / "annotations.txt").write_text("a.png 1 8 4 32 16")
        >>> from_opencv(folder, class_names=["cat"])[0]["boxes"].tolist()
        [[4.0, 8.0, 20.0, 40.0]]
    """
    return read_path(
        _read_file,
        opencv_readers,
        path,
        split,
        "`from_opencv` found no file of OpenCV, such as annotations.txt: one",
        image_dir=image_dir,
        class_names=class_names,
        on_error=on_error,
    )


def opencv_readers(path: Any) -> dict[str, Callable]:
    """Finds files of opencv_annotation; returns a dict from split to its reader."""
    return readers_by_split(_read_file, path, _SUFFIXES, _is_known)


def _is_known(file):
    """Returns whether a file has a usual name or that of a split, and such lines."""
    has_name = _IS_NAME.fullmatch(file.stem) or split_word_in(file.stem)
    return bool(has_name) and is_opencv(head_of(file, 2000))


def is_opencv(head: bytes) -> bool:
    """Returns whether a file that begins so is one of opencv_annotation.

    Other files have rows of an image, a class number and one box. There, only the
    number 1 is the count of the boxes, so half of the lines must have the right count.
    """
    text = head.decode(errors="replace")
    if not _FIRST.match(text):
        return False
    whole = text[: text.rfind("\n")] if "\n" in text else text
    matches = [_LINE.fullmatch(s.strip()) for s in whole.splitlines() if s.strip()]
    fitting = [m for m in matches if m and _boxes_in(m["numbers"]) is not None]
    return 2 * len(fitting) >= len(matches)


def _boxes_in(text):
    """Returns the numbers of the boxes in a line, or None if their count differs."""
    values = numbers_of(text.split())
    if values is None or len(values) != 1 + 4 * values[0]:
        return None
    return values[1:]


def _read_file(path, *, image_dir=None, class_names=None, on_error="auto"):
    """Returns the dataset of a file."""
    problems = Problems(f"`from_opencv` of {str(path)!r}", on_error)
    locator = ImageLocator(path, image_dir)
    lines = [line.strip() for line in read_text(path).splitlines()]
    count = sum(bool(line) for line in lines)
    lacking = count_of(count, "line has", "lines have")
    label = class_of_unnamed(count, lacking, class_names, path, problems)
    found = [
        _found(line, number, label, locator, problems)
        for number, line in enumerate(lines, 1)
        if line
    ]
    known = {image.source_id for image in found}
    negatives = [name for name in _negatives_beside(path) if name not in known]
    found += [Objects().found(name, locator.find(name)) for name in negatives]
    classes = reading.named_classes(class_order([], found), class_names)
    return reading.make_dataset(found, classes, problems, source=path)


def _negatives_beside(path):
    """Returns the names of images in lists of images without objects beside a file."""
    lists = [f for f in visible_files(path.parent, *_SUFFIXES) if f != path]
    names = [
        line.strip()
        for file in lists
        if _NEGATIVES.fullmatch(file.stem)
        for line in read_text(file).splitlines()
    ]
    return dict.fromkeys(n for n in names if n.lower().endswith(IMAGE_SUFFIXES))


def _found(line, number, label, locator, problems):
    match = _LINE.fullmatch(line)
    name = line if match is None else match["name"]
    values = None if match is None else _boxes_in(match["numbers"])
    if values is None:
        detail = (
            f"line {number}: an image, the number of its boxes, and left, top, width "
            f"and height of each are expected. Received: {reprlib.repr(line)}"
        )
        problems.add("bad box", name, detail)
        values = []
    objects = Objects()
    for first in range(0, len(values), 4):
        objects.add(values[first : first + 4], label)
    return objects.found(name, locator.find(name))
