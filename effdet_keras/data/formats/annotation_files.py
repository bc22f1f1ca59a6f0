"""Exports of annotation tools: which files are theirs, and the images that they name.

The readers of CVAT, LabelMe, VIA, Label Studio, CreateML, Edge Impulse and others share
this. Boxes and classes are in the file of each tool.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import json
import math
import pathlib
import re
import reprlib
import urllib.parse
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from effdet_keras._internal.remote_path import (
    dropping_unreadable_copy,
    is_file,
    local_copy,
    path_of,
)
from effdet_keras._internal.whole_files import is_remote, path_in_address
from effdet_keras.data.formats import reading
from effdet_keras.data.formats.dataset_files import (
    visible_files,
    visible_folders,
    walk,
)
from effdet_keras.errors import InvalidValueError
from effdet_keras.images import IMAGE_SUFFIXES

# Folders beside the images, or around the folders of splits, that hold annotations.
ANNOTATION_FOLDERS = (
    "annotations",
    "Annotations",
    "annotation",
    "annots",
    "labels",
    "Labels",
    "label",
    "json",
    "jsons",
    "xml",
    "metadata",
)
_HEAD = 1 << 16  # bytes of a file that show which tool wrote it
# A word of a file's or folder's name that is the name of a split.
_SPLIT = re.compile(r"(train|val|valid|validat|test)(ing|ion|set)?(\d{4})?", re.I)
_WORDS = re.compile(r"[^A-Za-z0-9]+")
_IMAGE_FOLDERS = ("images", "Images", "imgs", "img", "JPEGImages", "data")


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
                f"`{reader}` expects a json file. Received: {str(path)!r} ({error})"
            ) from error


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


def check_split(split: str | None, names: Iterable[str], path: Any) -> None:
    """Raises an error if a split is asked for that a file does not hold."""
    if split is not None:
        reading.chosen_split(list(names) or [reading.ONE_SPLIT], split, path)


def note_rotated(problems: Any, source: Any, rotated: Sequence[str]) -> None:
    """Notes how many boxes were rotated, and names one."""
    if rotated:
        number = "1 box is" if len(rotated) == 1 else f"{len(rotated):,} boxes are"
        problems.add_note("oriented box", source, f"{number} rotated: {rotated[0]}")


def has_other_labels(path: Any) -> bool:
    """Whether `labels` of a folder, or of its splits, has json or xml and no txt."""
    folders = [path / "labels", *(p / "labels" for p in split_folders(path))]
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
    """The files of a tool directly in a folder, sorted by name."""
    return [
        path
        for path in visible_files(folder, *suffixes)
        if path.is_file() and is_known(path)
    ]


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
    for folder in split_folders(path):
        files = known_files(folder, suffixes, is_known)
        for inner in [] if files else annotation_folders(folder):
            files = files or known_files(inner, suffixes, is_known)
        for file in files:
            is_one = len(files) == 1
            found[folder.name if is_one else f"{folder.name}_{file.stem}"] = file
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


def split_folders(path: Any) -> list[Any]:
    """The folders directly in a folder that are called after a split, sorted."""
    return [folder for folder in visible_folders(path) if _split_in(folder.name)]


def annotation_folders(path: Any) -> list[Any]:
    """The folders of a folder that are called as those of annotations are."""
    return [p for p in visible_folders(path) if p.name in ANNOTATION_FOLDERS]


def _named_by_split(files):
    """Files of one folder by the splits that their names mention, or by their names."""
    if len(files) == 1:
        return {_split_of_file(files[0]): files[0]}
    return dict(zip(reading.split_names([file.stem for file in files]), files))


def _split_of_file(file):
    """The split of a file that is alone: its name, or that of its folder, is one."""
    names = (file.stem, file.parent.name)
    return next((n for n in names if _SPLIT.fullmatch(n)), reading.ONE_SPLIT)


def split_of_subset(name: str) -> str:
    """The split of a subset of a tool: "Train" is "train", and so is an empty name."""
    split = name.strip().lower() if is_split(name.strip()) else name.strip()
    return reading.split_of_name(split) or reading.ONE_SPLIT


def is_split(name: str) -> bool:
    """Whether a name is that of a split, such as "train" or "val2017"."""
    return _SPLIT.fullmatch(name) is not None


def _split_in(name):
    """The name of a split in the name of a file, or None."""
    words = [word for word in _WORDS.split(name) if _SPLIT.fullmatch(word)]
    return words[0].lower() if len(words) == 1 else None


def _roles_of(parts):
    """What the splits are for that folders are called after; validation is `val`."""
    matches = [_SPLIT.fullmatch(word) for part in parts for word in _WORDS.split(part)]
    return {match[1].lower()[:3] for match in matches if match}


# --- The image that a file names, which may have been on another machine.


class ImageLocator:
    """Finds the images that an annotation file names.

    A name may be the path of another machine, an address, or have a prefix that the
    tool added. The longest ending of it that exists near the file is taken, where that
    is one image.

    An image of one split is never taken for one of another.

    Args:
        file: path of the annotation file. Its name, or that of its folder, may be the
            name of a split, whose folder may hold the images.
        image_dir: folder of the images, or None for those near the file.
        subset: name of the split, where it is in the file.
    """

    def __init__(self, file: Any, image_dir: Any = None, subset: str | None = None):
        self._index = self._renamed = None
        split = subset or _split_in(file.stem)
        of_folder = file.parent.name if _SPLIT.fullmatch(file.parent.name) else ""
        self._roles = _roles_of([split or of_folder])
        if image_dir is not None:
            self._roots = self._folders = [path_of(image_dir)]
            return
        folder = file.parent
        outer = [folder.parent] if folder.name in ANNOTATION_FOLDERS else []
        self._roots = [folder, *outer]
        names = [split, *(f"{f}/{split}" for f in _IMAGE_FOLDERS)] if split else []
        names += [file.stem, *_IMAGE_FOLDERS]
        # A folder `images` beside the folder of the file is near enough as well.
        # What is above an address may be no folder.
        bases = [folder] if is_remote(folder) else [folder, folder.parent]
        places = [base / name for base in bases for name in names]
        self._folders = [*self._roots, *places]
        if not is_remote(folder):
            self._folders = [place for place in self._folders if place.is_dir()]

    def find(self, name: str) -> Any:
        """The path of an image; where none is there, the one that was expected."""
        path = self._find(name)
        other = urllib.parse.unquote(name)  # some tools write a blank as %20
        if other == name or is_file(path):
            return path
        found = self._find(other)
        return found if is_file(found) else path

    def _find(self, name):
        parts = parts_of(name)
        if not parts:
            return self._folders[0]
        if "://" not in name:
            literal = self._folders[0] / name.strip().replace("\\", "/")
            if is_file(literal):  # with `..` in it, or absolute
                return literal
        for start in range(len(parts)):
            ending = parts[start:]
            roles = _roles_of(parts[:-1]) or self._roles
            for folder in self._folders:
                path = folder / "/".join(ending)
                if is_file(path) and self._fits(path, roles):
                    return path
            matches = [p for p in self._matches(ending) if self._fits(p, roles)]
            if len(matches) == 1:
                return matches[0]
            if matches:
                break  # of several none is more likely than another
        return self._folders[0] / "/".join(parts)

    def find_frame(self, stem: str) -> Any | None:
        """The image of a name without suffix, or None."""
        paths = [
            path
            for name, paths in self._names().items()
            if pathlib.PurePosixPath(name).stem == stem
            for path in paths
        ]
        return paths[0] if len(paths) == 1 else None

    def frames(self) -> list[tuple[int, str]]:
        """The numbers and names of images that are called as frames of a video are."""
        matches = [
            (re.fullmatch(r"frame_(\d+)", path.stem), path)
            for paths in self._names().values()
            for path in paths
        ]
        return sorted((int(match[1]), path.name) for match, path in matches if match)

    def find_renamed(self, name: str, rename: Callable[[str], str]) -> Any | None:
        """The one image whose name a tool has changed to this one, or None."""
        if self._renamed is None:
            self._renamed = collections.defaultdict(list)
            for path in (p for paths in self._names().values() for p in paths):
                self._renamed[rename(path.name)].append(path)
        found = self._renamed.get(name, ())
        return found[0] if len(found) == 1 else None

    def _fits(self, path, roles):
        """Whether an image may be of one of these splits, by its folders."""
        root = self._roots[-1]
        found = _roles_of(path.parts[len(root.parts) : -1])
        return not roles or not found or bool(roles & found)

    def _matches(self, ending):
        """The images below the folders whose paths end like this."""
        same_name = self._names().get(ending[-1].lower(), [])
        wanted = [part.lower() for part in ending]
        return [
            path
            for path in same_name
            if [part.lower() for part in path.parts[-len(wanted) :]] == wanted
        ]

    def _names(self):
        """The images below the folders by their names, each once."""
        if self._index is None:
            self._index = collections.defaultdict(list)
            paths = [path for root in self._roots for path in images_below(root)]
            for path in dict.fromkeys(paths):
                self._index[path.name.lower()].append(path)
        return self._index


def images_below(folder: Any) -> list[Any]:
    """The images of a folder and of those in it, without hidden ones."""
    if is_remote(folder) and not folder.is_dir():
        return []
    return [
        place / name
        for place, _, names in walk(folder)
        for name in names
        if name.lower().endswith(IMAGE_SUFFIXES)
    ]


def parts_of(name: str) -> list[str]:
    """The folders and the name of a path of any system, or of an address."""
    text = name.strip()
    if "://" in text:
        # Of an address, the path; `?d=` of Label Studio's local files is its path.
        text = path_in_address(text)
    parts = text.replace("\\", "/").split("/")
    return [part for part in parts if part not in ("", ".", "..") and part[1:] != ":"]


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
