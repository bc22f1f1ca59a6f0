"""Tells apart the txt files of YOLO data: rows of boxes, lists, and class names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from effdet_keras._internal.yaml_text import read_text
from effdet_keras.data.formats.dataset_files import is_visible
from effdet_keras.data.formats.yolo_rows import is_of_another_format
from effdet_keras.images import IMAGE_SUFFIXES

_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.I | re.ASCII)
# Number of files to check: the first may be empty, for images without objects.
LOOKED_AT = 50
NAME_FILES = (
    "classes.txt",
    "obj.names",
    "_darknet.labels",
    "classes.names",
    "class_names.txt",
    "class_list.txt",
    "class.names",
    "names.txt",
    "notes.json",  # Label Studio's file
    "labels.txt",
    "predefined_classes.txt",  # LabelImg's file
    "obj.names.txt",
)


def lines_of(file: Any) -> list[str]:
    """Returns the lines of a list of files, without hidden files such as .DS_Store."""
    lines = [line.strip() for line in read_text(file).splitlines()]
    names = [re.split(r"[\\/]", line)[-1] for line in lines]
    return [line for line, name in zip(lines, names) if line and is_visible(name)]


def is_list(file: Any) -> bool:
    first = lines_of(file)[:1]
    return bool(first) and first[0].lower().endswith(IMAGE_SUFFIXES)


def are_labels(files: Sequence[Any], least: float = 1.0) -> bool:
    """Returns whether txt files hold boxes, by the first of them that is not empty.

    Args:
        files: paths. Of these, `LOOKED_AT` are checked.
        least: see `is_label_file`.
    """
    files = [file for file in files if file.name not in NAME_FILES]
    looks = (is_label_file(file, least) for file in files[:LOOKED_AT])
    return next((look for look in looks if look is not None), False)


def is_label_file(file: Any, least: float = 1.0) -> bool | None:
    """Returns whether a file holds rows of boxes, or None if it is empty.

    Args:
        file: path of the file.
        least: the share of the words in the first row that must be numbers. With 1.0,
            all words must be numbers: a class and at least the four of a box.
    """
    try:
        text = read_text(file)
    except (ValueError, OSError):
        return False
    if is_of_another_format(text):
        return True
    line = next((line.split() for line in text.splitlines() if line.strip()), None)
    if line is None:
        return None
    numbers = [word for word in line if _NUMBER.fullmatch(word)]
    if least < 1.0:
        return len(numbers) >= least * len(line)
    return len(line) == len(numbers) >= 5 and float(numbers[0]).is_integer()
