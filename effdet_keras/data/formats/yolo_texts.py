"""What a txt file of YOLO data is: rows of labels, a list of images, or class names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from effdet_keras._internal.yaml_text import read_text
from effdet_keras.data.formats.dataset_files import is_visible
from effdet_keras.data.formats.yolo_rows import is_of_another_format
from effdet_keras.images import IMAGE_SUFFIXES

_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.I | re.ASCII)
LOOKED_AT = 50  # files: the first may be empty, of images without objects
NAME_FILES = (
    "classes.txt",
    "obj.names",
    "_darknet.labels",
    "classes.names",
    "class_names.txt",
    "class_list.txt",
    "class.names",
    "names.txt",
    "notes.json",  # of Label Studio
    "labels.txt",
    "predefined_classes.txt",  # of LabelImg
    "obj.names.txt",
)


def lines_of(file: Any) -> list[str]:
    """The lines of a list of files, without hidden ones, such as a Mac's .DS_Store."""
    lines = [line.strip() for line in read_text(file).splitlines()]
    names = [re.split(r"[\\/]", line)[-1] for line in lines]
    return [line for line, name in zip(lines, names) if line and is_visible(name)]


def is_list(file: Any) -> bool:
    first = lines_of(file)[:1]
    return bool(first) and first[0].lower().endswith(IMAGE_SUFFIXES)


def are_labels(files: Sequence[Any], least: float = 1.0) -> bool:
    """Whether txt files hold boxes: the first of them that is not empty does."""
    files = [file for file in files if file.name not in NAME_FILES]
    looks = (is_label_file(file, least) for file in files[:LOOKED_AT])
    return next((look for look in looks if look is not None), False)


def is_label_file(file: Any, least: float = 1.0) -> bool | None:
    """Whether a file holds rows of boxes; None of an empty one.

    At least a share of the words of the first row are numbers: with 1.0 all, of a class
    and a box or more.
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
