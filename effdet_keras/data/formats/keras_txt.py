"""Reads text files of Keras ports of YOLOv3, with one line per image.

Roboflow calls the format "Keras TXT".
"""

from __future__ import annotations

import os
import re
import reprlib
from collections.abc import Callable
from typing import Any

import numpy as np

from effdet_keras._internal.remote_path import is_file
from effdet_keras._internal.yaml_text import read_text
from effdet_keras.data.dataset import DetectionDataset, count_of
from effdet_keras.data.formats import reading
from effdet_keras.data.formats.annotation_files import (
    Objects,
    head_of,
    numbers_of,
    read_path,
    readers_by_split,
)
from effdet_keras.data.formats.dataset_files import (
    split_folders,
    split_word_in,
    visible_files,
    visible_folders,
)
from effdet_keras.data.formats.image_paths import ImageLocator
from effdet_keras.data.formats.label_map import ClassNames, requested_classes
from effdet_keras.data.formats.yolo_names import lists_that_may_name, names_in_file
from effdet_keras.data.problems import Problems

_NAME, _CLASSES = "_annotations.txt", "_classes.txt"
_CLASS_FILES = (_CLASSES, "classes.txt", "model_data/classes.txt")
# Has commas, so it is not the name of an image.
_BOX = re.compile(r"[^\s,]+(?:,[^\s,]*)+")
_LABEL = re.compile(r"[^\s,]+(?:,[^\s,]+){3},(\d+)(?=\s|$)")  # the class of a box

# Matches part of a line in a file of another name: the end of an image name, and a box.
_ROW = re.compile(rb"\.\w{2,5}\s+\d[\d.]*(?:,\d[\d.]*){4}\s")


def from_keras_txt(
    path: str | os.PathLike[str],
    split: str | None = None,
    *,
    image_dir: str | os.PathLike[str] | None = None,
    class_names: ClassNames | None = None,
    on_error: str = "auto",
) -> DetectionDataset:
    """Reads `_annotations.txt` and `_classes.txt`, Roboflow's export "Keras TXT".

    A line is `a.jpg left,top,right,bottom,class left,top,...`, in pixels. The classes
    count from 0 in the order of `_classes.txt`, which has one name per line. Roboflow's
    exports for YOLOv4 have the same format. So do the lists of Keras' YOLOv3 and its
    ports, such as `train.txt` or `2007_train.txt`, with `classes.txt` beside them or in
    `model_data`. Without such a file, another one there is used whose name says that it
    has names of classes, and that has just as many, with a note; without that, the
    classes are called by their numbers, with a warning.

    A box that ends before it begins, as in images that were mirrored, is read with its
    corners in the other order. A warning counts such boxes.

    Args:
        path: the file, or a folder that contains it, or a folder with a folder for each
            split that contains one.
        split: name of a split of a folder, such as "train". None reads the only one.
        image_dir: folder of the images. None looks beside the file.
        class_names, on_error: see `load`.

    Returns:
        `DetectionDataset`. The classes are in the order of `_classes.txt`. `image_id`
        counts from 1 in the order of the lines; `source_id` is the name of the image.

    Raises:
        FileNotFoundError: If images are missing.
        ValueError: Depending on `on_error`, if a box is not four finite numbers and a
            class in the list.

    Example:
        >>> import pathlib, tempfile, PIL.Image
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> PIL.Image.new("RGB", (48, 32)).save(folder / "a.png")
        >>> _ = (folder / "_classes.txt").write_text("cat")
        >>> _ = (folder / "_annotations.txt").write_text("a.png 8,4,40,20,0")
        >>> from_keras_txt(folder)[0]["boxes"].tolist()
        [[4.0, 8.0, 20.0, 40.0]]
    """
    return read_path(
        _read_file,
        keras_txt_readers,
        path,
        split,
        f"`from_keras_txt` found no file {_NAME}: one",
        image_dir=image_dir,
        class_names=class_names,
        on_error=on_error,
    )


def keras_txt_readers(path: Any) -> dict[str, Callable]:
    """Finds such files; returns a dict from split to the function that reads each.

    If folders of splits have Roboflow's files, lists of the same images beside these
    folders and in them are not read.
    """
    places = [path, *split_folders(path).values()] if path.is_dir() else []
    is_known = _is_roboflow if any(is_file(p / _NAME) for p in places) else _is_known
    return readers_by_split(_read_file, path, (".txt",), is_known)


def _is_roboflow(file):
    return file.name == _NAME


def _is_known(file):
    """Returns whether a file has Roboflow's name, or a split's name and such lines."""
    if _is_roboflow(file):
        return True
    return bool(split_word_in(file.stem) and _ROW.search(head_of(file, 10_000) + b"\n"))


def _read_file(path, *, image_dir=None, class_names=None, on_error="auto"):
    """Returns the dataset of a file."""
    problems = Problems(f"`from_keras_txt` of {str(path)!r}", on_error)
    names = _class_list(path, class_names, problems)
    locator = ImageLocator(path, image_dir)
    lines = enumerate(read_text(path).splitlines(), 1)
    found = [
        _found(number, line, names, locator, problems)
        for number, line in lines
        if line.strip()
    ]
    _sort_corners(found, path, problems)
    classes = reading.named_classes(names, class_names)
    return reading.make_dataset(found, classes, problems, source=path)


def _sort_corners(found, path, problems):
    """Sorts the corners of boxes that end before they begin; reports how many do.

    Programs that mirror images and boxes often leave the corners in exchanged order.
    """
    count, first = 0, None
    for image in found:
        boxes = np.array(image.boxes, float).reshape(-1, 4)
        sides = boxes[:, 2:]
        are_behind = (sides < 0).any(axis=1)
        if are_behind.any():
            first = first or image.file_name
            count += int(are_behind.sum())
            boxes[:, :2] += np.minimum(sides, 0)
            boxes[:, 2:] = abs(sides)
            image.boxes = boxes
    if count:
        total = sum(len(image.classes) for image in found)
        detail = (
            f"{count:,} of {count_of(total, 'box', 'boxes')} end before they begin, "
            f"such as in {first!r}: their corners are read in the other order. If the "
            "numbers are left, top, width and height, write left,top,right,bottom"
        )
        problems.add("exchanged corners", path, detail)


def _class_list(path, class_names, problems):
    """Returns the class names in a file beside the annotations or one folder above.

    Without a file of a known name, they are the requested ones. Without these, they are
    those that `_guessed_classes` finds.
    """
    folders = path.parent, path.parent.parent
    places = [folder / name for folder in folders for name in _CLASS_FILES]
    file = next(filter(is_file, places), None)
    if file is not None:
        return _lines_of(file)
    if class_names is not None:
        return list(requested_classes(class_names)[0])
    return _guessed_classes(path, places[0], problems)


def _guessed_classes(path, place, problems):
    """Returns class names from a likely file, or else numbers; says so in both cases.

    The file is one beside the annotations or in `model_data` whose name says that it
    has names of classes, and that has as many. `place` is where a list should be.
    """
    count = _count_classes(path)
    if not count:
        return []  # an error follows that says more
    near = [f for f in visible_folders(path.parent) if f.name.startswith("mode")]
    files = lists_that_may_name((path.parent, *near), count)
    lists = {names: f for f in files if len(names := names_in_file(f)) == count}
    if len(lists) == 1:
        ((names, file),) = lists.items()
        detail = (
            f"the names of the classes are those of {str(file)!r}: "
            f"{reprlib.repr(list(names))}. If these are the wrong ones, write the "
            f"right names into {str(place)!r}, one in each line"
        )
        problems.add("lists of class names", str(path), detail)
        return list(names)
    cure = f"Pass `class_names`, or write {str(place)!r} with a name in each line"
    detail = (
        f"no file with the names of the classes was found ({_CLASSES}, ...): the "
        f"classes are called by their numbers, from '0' to '{count - 1}'. {cure}"
    )
    problems.add("classes without names", str(path), detail)
    return [str(number) for number in range(count)]


def _lines_of(file):
    # Blank lines between names are kept: without them, the classes would be shifted.
    return [line.strip() for line in read_text(file).rstrip().splitlines()]


def _count_classes(path):
    """Returns the number of classes in a file and in those of its other splits."""
    files = [path, *filter(_is_known, visible_files(path.parent, ".txt"))]
    numbers = [int(n) for f in set(files) for n in _LABEL.findall(read_text(f))]
    return 1 + max((n for n in numbers if n < reading.MAX_CLASSES), default=-1)


def _found(number, line, names, locator, problems):
    """Returns the image of a line; its name may have spaces."""
    words = line.split()
    first = next((i for i, w in enumerate(words) if i and _BOX.fullmatch(w)), None)
    boxes = [] if first is None else words[first:]
    name = line.strip() if first is None else line.split(words[first])[0].strip()
    objects = Objects()
    for text in boxes:
        numbers = numbers_of(text.split(","))
        is_box = numbers is not None and len(numbers) == 5
        is_number = is_box and numbers[4].is_integer() and numbers[4] >= 0
        if not is_number or numbers[4] >= len(names):
            kind = "unknown class" if is_number else "bad box"
            detail = (
                f"line {number}: left,top,right,bottom,class with a class below "
                f"{len(names)} is expected. Received: {text!r}"
            )
            problems.add(kind, name, detail)
            continue
        left, top, right, bottom, label = numbers
        objects.add((left, top, right - left, bottom - top), names[int(label)])
    return objects.found(name, locator.find(name))
