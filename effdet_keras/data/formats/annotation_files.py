"""Exports of annotation tools: which files are theirs, and what they say.

The readers of CVAT, LabelMe, VIA, Label Studio, CreateML, Edge Impulse and others share
this. Boxes and classes are in the file of each tool.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
import reprlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from effdet_keras._internal.remote_path import (
    dropping_unreadable_copy,
    local_copy,
    path_of,
)
from effdet_keras._internal.yaml_text import read_text
from effdet_keras.data.formats import reading
from effdet_keras.data.formats.dataset_files import (
    split_folders,
    split_in_name,
    visible_files,
    visible_folders,
)
from effdet_keras.data.formats.image_paths import ANNOTATION_FOLDERS
from effdet_keras.errors import InvalidValueError

_HEAD = 1 << 16  # bytes of a file that show which tool wrote it
_SAMPLE = 100  # files of a large folder that show whether a tool wrote some of them


def head_of(path: Any, size: int = _HEAD) -> bytes:
    """The first bytes of a file, without blanks before them."""
    with open(local_copy(path), "rb") as file:
        return file.read(size).removeprefix(b"\xef\xbb\xbf").lstrip()


def read_json(path: Any, reader: str) -> Any:
    """What a json file holds."""
    copy = local_copy(path)
    with dropping_unreadable_copy(copy):
        try:  # `json` finds out which UTF it is
            return json.loads(copy.read_bytes().removeprefix(b"\xef\xbb\xbf"))
        except ValueError as error:
            raise InvalidValueError(
                f"`{reader}` expects a json file, and {str(path)!r} is no valid json: "
                f"{error}. Repair that place, such as a comma before a bracket"
            ) from error


def read_json_lines(path: Any, reader: str) -> list[tuple[int, Any]]:
    """The number of each line that is not blank, and the json in it."""
    found = []
    for number, line in enumerate(lines_of(path), 1):
        if not line.strip():
            continue
        try:
            found.append((number, json.loads(line)))
        except ValueError as error:
            raise InvalidValueError(
                f"`{reader}` expects a json object in each line. Received: "
                f"{str(path)!r}, line {number}, {reprlib.repr(line)}: {error}"
            ) from error
    return found


def lines_of(path: Any) -> list[str]:
    r"""The lines of a text file, as every program ends them: `\n`, `\r\n` or `\r`.

    `str.splitlines` also ends one at characters such as U+2028, which may be in json.
    """
    return re.split(r"\r\n|\n|\r", read_text(path))


def read_split(
    readers: dict[str, Callable],
    path: Any,
    split: str | None,
    tool: str,
    **options: Any,
) -> Any:
    """The dataset of one of the splits that a folder holds, by their readers."""
    if not readers:
        raise FileNotFoundError(f"{tool} is expected. Received: {str(path)!r}")
    return readers[reading.chosen_split(readers, split, path)](**options)


def read_path(
    read: Callable,
    readers: Callable,
    path: Any,
    split: str | None,
    tool: str,
    **options: Any,
) -> Any:
    """The dataset of a file, or of one of the splits that a folder holds.

    Args:
        read: reads a file, with `options`.
        readers: of a folder, the function that reads each of its splits.
        path: the file or folder, as the user gave it.
        split: name of the split, or None for the only one.
        tool: what is expected, for an error.
        options: of `read`.
    """
    path = path_of(path)
    if path.is_dir():
        return read_split(readers(path), path, split, tool, **options)
    if split is not None:
        reading.chosen_split([_split_of_file(path)], split, path)
    return read(path, **options)


def note_rotated(problems: Any, source: Any, rotated: Sequence[str]) -> None:
    """Notes how many boxes were rotated, and names one."""
    if rotated:
        number = "1 box is" if len(rotated) == 1 else f"{len(rotated):,} boxes are"
        problems.add_note("oriented box", source, f"{number} rotated: {rotated[0]}")


def has_other_labels(path: Any) -> bool:
    """Whether `labels` of a folder, or of its splits, has json or xml and no txt."""
    folders = [path / "labels", *(p / "labels" for p in split_folders(path).values())]
    has_other = False
    for folder in (folder for folder in folders if folder.is_dir()):
        for file in folder.rglob("*"):
            if file.suffix.lower() == ".txt":
                return False
            has_other |= file.suffix.lower() in (".json", ".xml", ".csv")
    return has_other


def class_order(listed: Iterable[str], found: Iterable[Any]) -> list[str]:
    """Names of classes: those of the tool's list in its order, then others, sorted."""
    listed = list(dict.fromkeys(listed))
    used = {name for image in found for name in image.classes}
    return [*listed, *sorted(used.difference(listed))]


def known_files(
    folder: Any, suffixes: Sequence[str], is_known: Callable[[Any], bool]
) -> list[Any]:
    """The files of a tool directly in a folder, sorted by name.

    Large folders are judged by a sample: a file for each image is of one tool, and each
    tool would open them all, or download them.
    """
    files = [path for path in visible_files(folder, *suffixes) if path.is_file()]
    sample = files[:: math.ceil(len(files) / _SAMPLE) or 1]
    if not any(map(is_known, sample)):
        return []
    return list(filter(is_known, files))


def files_by_split(
    path: Any, suffixes: Sequence[str], is_known: Callable[[Any], bool]
) -> dict[str, Any]:
    """The files of a tool that a path stands for, by the name of their split.

    A file is itself. In a folder they lie directly, or in `annotations` and the like,
    or in a folder for each split, such as `train` and `valid`.
    """
    if path.is_file():
        is_one = path.suffix.lower() in suffixes and is_known(path)
        return {_split_of_file(path): path} if is_one else {}
    for folder in (path, *annotation_folders(path)):
        files = known_files(folder, suffixes, is_known)
        if files:
            return _named_by_split(files)
    found = {}
    for split, folder in split_folders(path).items():
        files = known_files(folder, suffixes, is_known)
        for inner in [] if files else annotation_folders(folder):
            files = files or known_files(inner, suffixes, is_known)
        for file in files:
            is_one = len(files) == 1
            found[split if is_one else f"{split}_{file.stem}"] = file
    return found


def readers_by_split(
    read: Callable,
    path: Any,
    suffixes: Sequence[str],
    is_known: Callable[[Any], bool],
) -> dict[str, Callable]:
    """The function that reads each of `files_by_split`: `read` with its file."""
    files = files_by_split(path, suffixes, is_known)
    return {split: functools.partial(read, file) for split, file in files.items()}


def annotation_folders(path: Any) -> list[Any]:
    """The folders of a folder that are called as those of annotations are."""
    return [p for p in visible_folders(path) if p.name.lower() in ANNOTATION_FOLDERS]


def _named_by_split(files):
    """Files of one folder by the splits that their names mention, or by their names."""
    if len(files) == 1:
        return {_split_of_file(files[0]): files[0]}
    return dict(zip(reading.split_names([file.stem for file in files]), files))


def _split_of_file(file):
    """The split of a file that is alone: its name, or that of its folder, is one."""
    names = map(split_in_name, (file.stem, file.parent.name))
    return next(filter(None, names), reading.ONE_SPLIT)


def split_of_subset(name: str) -> str:
    """The split of a subset of a tool: "Train" is "train", and so is an empty name."""
    return reading.split_of_name(name.strip()) or reading.ONE_SPLIT


# --- What a file should say, where it may say anything.


def dict_of(value: Any) -> dict:
    """A json object, or an empty one of anything else, which lacks what is needed."""
    return value if isinstance(value, dict) else {}


def items_of(value: Any, place: Any, problems: Any) -> list[dict]:
    """The json objects of a list, which may be missing; a problem of anything else."""
    if value is None:
        return []
    if isinstance(value, list):
        return [dict_of(item) for item in value]
    detail = f"a list of objects is expected. Received: {reprlib.repr(value)}"
    problems.add("unreadable annotation", place, detail)
    return []


# --- Boxes of shapes, and numbers that can be meant.


def number_of(value: Any) -> float | None:
    """A finite number near an image, of a number or its text; else None."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if abs(number) <= reading.MAX_COORDINATE else None


def numbers_of(values: Iterable[Any]) -> list[float] | None:
    """All of the values as finite numbers, or None if one is not."""
    numbers = [number_of(value) for value in values]
    return None if None in numbers or not numbers else numbers


def points_of(values: Any) -> np.ndarray | None:
    """Points `[n, 2]`, x and y, of a list of pairs; None if they are no points."""
    if not isinstance(values, list | tuple):
        return None
    if not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in values):
        return None
    numbers = numbers_of(value for pair in values for value in pair)
    return None if numbers is None else np.asarray(numbers).reshape(-1, 2)


def hull_box(points: np.ndarray) -> tuple[float, float, float, float]:
    """Left, top, width, height of the smallest upright box around points `[n, 2]`."""
    left, top = points.min(axis=0).tolist()
    right, bottom = points.max(axis=0).tolist()
    return left, top, right - left, bottom - top


def turned_corners(corners: np.ndarray, degrees: float, pivot: Any) -> np.ndarray:
    """Points `[n, 2]` turned clockwise about a pivot, as y points downwards."""
    angle = math.radians(degrees)
    cos, sin = math.cos(angle), math.sin(angle)
    pivot = np.asarray(pivot, np.float64)
    return (corners - pivot) @ np.array([[cos, sin], [-sin, cos]]) + pivot


def corners_of(left: float, top: float, width: float, height: float) -> np.ndarray:
    """The four corners `[4, 2]` of a box."""
    right, bottom = left + width, top + height
    return np.array([[left, top], [right, top], [right, bottom], [left, bottom]])


def ellipse_box(
    center_x: float, center_y: float, radius_x: float, radius_y: float, degrees: float
) -> tuple[float, float, float, float]:
    """Left, top, width, height of the upright box around a turned ellipse."""
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    half_width = math.hypot(radius_x * cos, radius_y * sin)
    half_height = math.hypot(radius_x * sin, radius_y * cos)
    return (
        center_x - half_width,
        center_y - half_height,
        2 * half_width,
        2 * half_height,
    )


@dataclasses.dataclass
class Objects:
    """The objects of one image, as they are collected."""

    boxes: list = dataclasses.field(default_factory=list)  # left, top, width, height
    classes: list = dataclasses.field(default_factory=list)
    shapes: list = dataclasses.field(default_factory=list)  # outlines, or None

    def add(self, box: Sequence[float], name: str, shape: Any = None) -> None:
        """Adds one object."""
        self.boxes.append(box)
        self.classes.append(name)
        self.shapes.append(shape)

    def found(self, name: str, image: Any, **fields: Any) -> reading.Found:
        """The image with these objects, known by the name that the file gives it.

        `fields` are others of `reading.Found`, such as `is_crowd`.
        """
        return reading.Found(
            place=name,
            image=image,
            boxes=self.boxes,
            classes=self.classes,
            source_id=name,
            file_name=name,
            **fields,
        )


def polygon_shape(points: np.ndarray) -> list[np.ndarray] | None:
    """An outline as COCO has it, for masks; None of fewer than three points."""
    return [points.astype(np.float32).ravel()] if len(points) >= 3 else None
