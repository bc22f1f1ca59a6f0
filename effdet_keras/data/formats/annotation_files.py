"""Functions that the readers of annotation tools share: files, splits and shapes.

The readers of CVAT, LabelMe, VIA, Label Studio, CreateML, Edge Impulse and others use
them. How a tool writes its boxes and classes is in the file of its reader.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
import reprlib
import xml.etree.ElementTree
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from effdet_keras._internal.remote_path import (
    dropping_unreadable_copy,
    local_copy,
    path_of,
)
from effdet_keras._internal.yaml_text import read_text
from effdet_keras.data.dataset import count_of
from effdet_keras.data.formats import reading
from effdet_keras.data.formats.dataset_files import (
    split_folders,
    split_in_name,
    visible_files,
    visible_folders,
)
from effdet_keras.data.formats.image_paths import ANNOTATION_FOLDERS
from effdet_keras.data.formats.label_map import requested_classes
from effdet_keras.data.problems import Problems
from effdet_keras.errors import InvalidValueError

_HEAD = 1 << 16  # bytes at the start of a file that show which tool wrote it
_SAMPLE = 100  # files of a large folder that are checked for a tool


def head_of(path: Any, size: int = _HEAD) -> bytes:
    """Returns the first bytes of a file, without a byte order mark and blanks."""
    with open(local_copy(path), "rb") as file:
        return file.read(size).removeprefix(b"\xef\xbb\xbf").lstrip()


def read_json(path: Any, reader: str) -> Any:
    """Returns the content of a json file.

    Args:
        path: path of the file.
        reader: name of the public function, for the error.

    Raises:
        ValueError: If the file is not valid json.
    """
    copy = local_copy(path)
    with dropping_unreadable_copy(copy):
        try:  # `json.loads` detects UTF-8, UTF-16 and UTF-32
            return json.loads(copy.read_bytes().removeprefix(b"\xef\xbb\xbf"))
        except (ValueError, RecursionError) as error:  # too many brackets
            raise InvalidValueError(
                f"`{reader}` expects a json file, and {str(path)!r} is no valid json: "
                f"{error}. Repair that place, such as a comma before a bracket"
            ) from error


def read_json_lines(
    path: Any, reader: str, problems: Problems
) -> list[tuple[str, Any]]:
    """Returns the place and the json content of each line that is not blank.

    A line that is not valid json becomes a problem. If it is the last one, the file may
    end too early, and the number of lost images is unknown.

    Args:
        path: path of the file.
        reader: name of the public function, for the error.
        problems: `Problems` of the reader.

    Returns:
        List of pairs `(place, content)`. The place is such as "line 1", for messages.

    Raises:
        ValueError: If no line is valid json.
    """
    lines = [line for line in numbered(lines_of(path), "line") if line[1].strip()]
    found, errors = [], {}
    for place, line in lines:
        try:
            found.append((place, json.loads(line)))
        except (ValueError, RecursionError) as error:
            errors[place] = f"{reprlib.repr(line)}: {error}"
    if errors and not found:
        place, said = next(iter(errors.items()))
        raise InvalidValueError(
            f"`{reader}` expects a json object in each line. Received: "
            f"{str(path)!r}, {place}, {said}"
        )
    for place, said in errors.items():
        count = math.inf if place == lines[-1][0] else 1
        detail = f"{place} is not valid json: {said}"
        problems.add("unreadable annotation", path.name, detail, count=count)
    return found


def read_xml(path: Any, rule: str) -> xml.etree.ElementTree.Element:
    """Returns the root element of an xml file.

    Args:
        path: path of the file.
        rule: text that says what the reader expects, for the error.

    Raises:
        ValueError: If the file is not xml.
    """
    copy = local_copy(path)
    with dropping_unreadable_copy(copy):
        try:
            return xml.etree.ElementTree.parse(copy).getroot()
        except xml.etree.ElementTree.ParseError as error:
            raise InvalidValueError(
                f"{rule}. Received: {str(path)!r} ({error})"
            ) from error


def usable_entries(
    entries: Iterable[tuple[Any, Any]],
    is_usable: Callable[[Any], bool],
    expected: str,
    path: Any,
    problems: Problems,
) -> list[tuple[Any, Any]]:
    """Returns the entries of a file that have the expected form; others are problems.

    Args:
        entries: iterable of pairs `(place, content)`. The place is a text such as
            "line 3", for messages.
        is_usable: function from a content to whether it has the expected form.
        expected: text that describes this form, for messages.
        path: path of the file.
        problems: `Problems` of the reader.

    Raises:
        ValueError: If none of them has it, because it is another format then.
    """
    usable, others = [], []
    for place, content in entries:
        (usable if is_usable(content) else others).append((place, content))
    if others and not usable:
        place, content = others[0]
        raise InvalidValueError(
            f"{problems.reader} expects {expected}. Received: {place} of {path.name!r} "
            f"with {reprlib.repr(content)}"
        )
    for place, content in others:
        detail = f"{place}: {expected} are expected. Received: {reprlib.repr(content)}"
        problems.add("unreadable annotation", path.name, detail)
    return usable


def numbered(entries: Iterable[Any], word: str = "entry") -> list[tuple[str, Any]]:
    """Returns each entry with its place, for `usable_entries`.

    Example:
        >>> numbered(["a", "b"])
        [('entry 1', 'a'), ('entry 2', 'b')]
    """
    return [(f"{word} {number}", content) for number, content in enumerate(entries, 1)]


def lines_of(path: Any) -> list[str]:
    r"""Returns the lines of a text file, which may end in `\n`, `\r\n` or `\r`.

    `str.splitlines` also splits at characters such as U+2028, which json may contain.
    """
    return re.split(r"\r\n|\n|\r", read_text(path))


def read_split(
    readers: dict[str, Callable],
    path: Any,
    split: str | None,
    tool: str,
    **options: Any,
) -> Any:
    """Returns the dataset of one of the splits in a folder.

    Args:
        readers: dict from split to the function that reads it.
        path: the folder, for errors.
        split: name of the split, or None for the only one.
        tool: start of the error if there are no readers: what was expected.
        options: arguments of the function.

    Raises:
        FileNotFoundError: If there are no readers.
        ValueError: If there is no such split, or several and `split` is None.
    """
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
    """Returns the dataset of a file, or of one of the splits in a folder.

    Args:
        read: function that reads a file, with `options`.
        readers: function from a folder to a dict from split to the function that reads
            it.
        path: the file or folder, as the user gave it.
        split: name of the split, or None for the only one.
        tool: start of the error if the folder has no such file: what was expected.
        options: arguments of `read`.
    """
    path = path_of(path)
    if path.is_dir():
        return read_split(readers(path), path, split, tool, **options)
    if split is not None:
        reading.chosen_split([_split_of_file(path)], split, path)
    return read(path, **options)


def note_rotated(problems: Any, source: Any, rotated: Sequence[str]) -> None:
    """Adds a note of the number of rotated boxes, with the first of them."""
    if rotated:
        number = count_of(len(rotated), "box is", "boxes are")
        problems.add_note("oriented box", source, f"{number} rotated: {rotated[0]}")


def has_other_labels(path: Any) -> bool:
    """Returns whether the folders `labels` have json, xml or csv files and no txt file.

    These are `labels` in the folder itself and in the folders of its splits.
    """
    folders = [path / "labels", *(p / "labels" for p in split_folders(path).values())]
    has_other = False
    for folder in (folder for folder in folders if folder.is_dir()):
        for file in folder.rglob("*"):
            if file.suffix.lower() == ".txt":
                return False
            has_other |= file.suffix.lower() in (".json", ".xml", ".csv")
    return has_other


def class_order(listed: Iterable[str], found: Iterable[Any]) -> list[str]:
    """Returns names of classes: the listed ones in their order, then others, sorted.

    Example:
        >>> image = Objects(classes=["dog", "bee", "cat"])
        >>> class_order(["cat", "emu"], [image])
        ['cat', 'emu', 'bee', 'dog']
    """
    listed = list(dict.fromkeys(listed))
    used = {name for image in found for name in image.classes}
    return [*listed, *sorted(used.difference(listed))]


def known_files(
    folder: Any, suffixes: Sequence[str], is_known: Callable[[Any], bool]
) -> list[Any]:
    """Returns the files of a tool directly in a folder, sorted by name.

    Large folders are judged by a sample. If a folder has one file per image, all of
    them are of one tool. Without the sample, the reader of each tool would open, or
    download, all files.

    Args:
        folder: path of the folder.
        suffixes: endings in lower case, such as ".json".
        is_known: function from a path to whether the file is of this tool.

    Returns:
        List of paths. It is empty if no file of the sample is known.
    """
    files = [path for path in visible_files(folder, *suffixes) if path.is_file()]
    sample = files[:: math.ceil(len(files) / _SAMPLE) or 1]
    if not any(map(is_known, sample)):
        return []
    return list(filter(is_known, files))


def files_by_split(
    path: Any, suffixes: Sequence[str], is_known: Callable[[Any], bool]
) -> dict[str, Any]:
    """Returns the files of a tool below a path, by the name of their split.

    If the path is a file, it is the only one. In a folder, the files are expected
    directly in it, in `annotations` or a similar folder, or in a folder for each split,
    such as `train` and `valid`.
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
    """Returns for each of `files_by_split` the function that reads it.

    Args:
        read: function that reads a file.
        path, suffixes, is_known: see `files_by_split`.
    """
    files = files_by_split(path, suffixes, is_known)
    return {split: functools.partial(read, file) for split, file in files.items()}


def annotation_folders(path: Any) -> list[Any]:
    """Returns the folders in a folder that have a usual name for annotations."""
    return [p for p in visible_folders(path) if p.name.lower() in ANNOTATION_FOLDERS]


def _named_by_split(files):
    """Returns files of one folder by the splits in their names, or by their names."""
    if len(files) == 1:
        return {_split_of_file(files[0]): files[0]}
    return dict(zip(reading.split_names([file.stem for file in files]), files))


def _split_of_file(file):
    """Returns the split in a single file's name or its folder's name, or "train"."""
    names = map(split_in_name, (file.stem, file.parent.name))
    return next(filter(None, names), reading.ONE_SPLIT)


def split_of_subset(name: str) -> str:
    """Returns the split of a tool's subset: "train" for "Train" and for an empty name.

    Example:
        >>> [split_of_subset(name) for name in ("Train", "Validation", "", "cats")]
        ['train', 'validation', 'train', 'cats']
    """
    return reading.split_of_name(name.strip()) or reading.ONE_SPLIT


# --- Values of the expected type, from files that may contain any values.


def dict_of(value: Any) -> dict:
    """Returns a json object as it is, and an empty dict for any other value.

    The keys that the reader needs are then missing, and it reports that.
    """
    return value if isinstance(value, dict) else {}


def items_of(value: Any, place: Any, problems: Any) -> list[dict]:
    """Returns the json objects of a list, which may be missing.

    An item that is no object becomes an empty dict. A value that is no list becomes a
    problem.
    """
    if value is None:
        return []
    if isinstance(value, list):
        return [dict_of(item) for item in value]
    detail = f"a list of objects is expected. Received: {reprlib.repr(value)}"
    problems.add("unreadable annotation", place, detail)
    return []


# --- Boxes of shapes, and usable numbers.


def number_of(value: Any) -> float | None:
    """Returns a number, or the number in a text, as a float; None if it is unusable.

    Unusable are bools, other texts and types, NaN, and numbers beyond
    `reading.MAX_COORDINATE`.

    Example:
        >>> number_of("2.5"), number_of(True), number_of(float("inf"))
        (2.5, None, None)
    """
    if isinstance(value, bool) or value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if abs(number) <= reading.MAX_COORDINATE else None


def numbers_of(values: Iterable[Any]) -> list[float] | None:
    """Returns all of the values as finite numbers, or None.

    The result is None if `number_of` of a value is None, or if there are no values.

    Example:
        >>> numbers_of(["1", 2]), numbers_of(["1", "two"]), numbers_of([])
        ([1.0, 2.0], None, None)
    """
    numbers = [number_of(value) for value in values]
    return None if None in numbers or not numbers else numbers


def points_of(values: Any) -> np.ndarray | None:
    """Returns points `[n, 2]` (x, y) from a list of pairs, or None if it is not one."""
    if not isinstance(values, list | tuple):
        return None
    if not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in values):
        return None
    numbers = numbers_of(value for pair in values for value in pair)
    return None if numbers is None else np.asarray(numbers).reshape(-1, 2)


def hull_box(points: np.ndarray) -> tuple[float, float, float, float]:
    """Returns the smallest upright box around points `[n, 2]` (x, y).

    Returns:
        Left, top, width, height, in the unit of the points.

    Example:
        >>> hull_box(np.array([[4.0, 1.0], [2.0, 5.0], [3.0, 3.0]]))
        (2.0, 1.0, 2.0, 4.0)
    """
    left, top = points.min(axis=0).tolist()
    right, bottom = points.max(axis=0).tolist()
    return left, top, right - left, bottom - top


def turned_corners(corners: np.ndarray, degrees: float, pivot: Any) -> np.ndarray:
    """Rotates points `[n, 2]` (x, y) about a pivot.

    The rotation is clockwise, because y points downwards.

    Args:
        corners: float array `[n, 2]`, x and y.
        degrees: angle of the rotation.
        pivot: x and y of the center of the rotation.

    Returns:
        Float array `[n, 2]`.

    Example:
        >>> turned_corners(np.array([[2.0, 1.0]]), 90, (1, 1)).round(6).tolist()
        [[1.0, 2.0]]
    """
    angle = math.radians(degrees)
    cos, sin = math.cos(angle), math.sin(angle)
    pivot = np.asarray(pivot, np.float64)
    return (corners - pivot) @ np.array([[cos, sin], [-sin, cos]]) + pivot


def corners_of(left: float, top: float, width: float, height: float) -> np.ndarray:
    """Returns the corners `[4, 2]` (x, y) of a box, clockwise from the top left one."""
    right, bottom = left + width, top + height
    return np.array([[left, top], [right, top], [right, bottom], [left, bottom]])


def ellipse_box(
    center_x: float, center_y: float, radius_x: float, radius_y: float, degrees: float
) -> tuple[float, float, float, float]:
    """Returns the upright box around a rotated ellipse.

    Args:
        center_x, center_y: center of the ellipse.
        radius_x, radius_y: radii before the rotation.
        degrees: angle of the rotation.

    Returns:
        Left, top, width, height, in the unit of the radii.

    Example:
        >>> [round(x, 6) for x in ellipse_box(10, 10, 4, 2, 90)]
        [8.0, 6.0, 4.0, 8.0]
    """
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
    """Collects the objects of one image: boxes, classes and outlines."""

    boxes: list = dataclasses.field(default_factory=list)  # left, top, width, height
    classes: list = dataclasses.field(default_factory=list)
    # Outline of each object, or None.
    shapes: list = dataclasses.field(default_factory=list)

    def add(self, box: Sequence[float], name: str, shape: Any = None) -> None:
        """Adds one object.

        Args:
            box: left, top, width, height.
            name: name of its class.
            shape: outline as in COCO's `segmentation`, or None.
        """
        self.boxes.append(box)
        self.classes.append(name)
        self.shapes.append(shape)

    def found(self, name: str, image: Any, **fields: Any) -> reading.Found:
        """Returns the image with these objects, under its name in the file.

        `fields` are other fields of `reading.Found`, such as `is_crowd`.
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


_UNNAMED = "object"


def class_of_unnamed(
    number: int, lacking: str, class_names: Any, path: Any, problems: Problems
) -> str:
    """Returns the class of boxes that have no class in their file.

    It is the only one of `class_names`, or "object". A warning says so, unless the name
    was requested.

    Args:
        number: int, how many boxes or lines have no class. Without any, nothing is
            said.
        lacking: what has no class, such as "3 boxes have".
        class_names: see `load`.
        path: path of the file.
        problems: `Problems` of the reader.
    """
    asked = () if class_names is None else requested_classes(class_names)[0]
    name = asked[0] if len(asked) == 1 else _UNNAMED
    if number and not asked:
        detail = (
            f"{lacking} no class: it is called {name!r}. To give it another name, pass "
            "`class_names` with this name alone"
        )
        problems.add("classes without names", str(path), detail)
    return name


def polygon_shape(points: np.ndarray) -> list[np.ndarray] | None:
    """Returns an outline in COCO's form, for masks; None for fewer than 3 points."""
    return [points.astype(np.float32).ravel()] if len(points) >= 3 else None
