"""Reads rows of YOLO's txt files: boxes, outlines, key points, oriented boxes."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from effdet_keras._internal.remote_path import for_each
from effdet_keras._internal.yaml_text import read_text
from effdet_keras.data.dataset import count_of
from effdet_keras.data.formats import reading
from effdet_keras.data.problems import Problems
from effdet_keras.images import LFS_CURE, is_lfs_pointer


@dataclasses.dataclass(slots=True, eq=False)
class LabelTable:
    """The boxes and classes in the txt file of an image."""

    boxes: Any  # [n, 4]: left, top, width, height, in fractions or pixels
    classes: list  # class of each box: a number as float, or a name
    # Whether each box is of an object that DOTA calls difficult.
    is_crowd: list | None = None
    # Whether boxes are fractions of the image, not pixels.
    normalized_coordinates: bool = True


class KeyPointShape(NamedTuple):
    """The `kpt_shape` of a data.yaml: number of key points, and numbers in each.

    A key point has two or three numbers.
    """

    count: int
    size: int


def key_point_shape(content: dict, source: Any) -> KeyPointShape | None:
    """Returns the `kpt_shape` in the content of a data.yaml, or None.

    Args:
        content: content of the file.
        source: path of the file, for the error.

    Raises:
        ValueError: If it is not two whole numbers above 0, the second 2 or 3.

    Example:
        >>> key_point_shape({"kpt_shape": [17, 3]}, "data.yaml")
        KeyPointShape(count=17, size=3)
    """
    value = content.get("kpt_shape")
    if value is None:
        return None
    is_shape = (
        isinstance(value, list)
        and len(value) == 2
        and all(type(number) is int and number > 0 for number in value)
        and value[1] in (2, 3)
    )
    rule = (
        "`kpt_shape` of a data.yaml must be two numbers: how many key points each box "
        "has, and 2 or 3 for the numbers of each"
    )
    reading.require_content(is_shape, rule, source, value)
    return KeyPointShape(*value)


def read_label_tables(
    files: Sequence[Any], key_points: KeyPointShape | None, problems: Problems
) -> list[LabelTable | None]:
    """Reads the txt files of a split.

    Several tools write rows of more than five numbers. What such rows mean is decided
    for a whole file, and, if the file does not show it, by the other files.

    Args:
        files: paths of the txt files. A file that does not exist has no boxes.
        key_points: the `KeyPointShape` of the dataset, or None.
        problems: `Problems` to add to.

    Returns:
        List of a `LabelTable` for each file, or None for a file that is not text.
    """
    texts = for_each(lambda file: _read_file(file, problems), files)
    plain = [None if text is None else _read_plain(text) for text in texts]
    others = [t for t, table in zip(texts, plain) if t is not None and table is None]
    if any(map(is_counted, others)):  # then a single 0 in a file is its number of boxes
        texts = [t if t is None or t.strip() != "0" else "" for t in texts]
        plain = [None if text is None else _read_plain(text) for text in texts]
    rows = [
        None if text is None or table is not None else _parse_rows(text)
        for text, table in zip(texts, plain)
    ]
    has_plain = any(table is not None and table.classes for table in plain)
    patterns = _RowPatterns.of(rows, key_points, has_plain)
    notes, tables = _Notes(), []
    for file, text, table, own in zip(files, texts, plain, rows):
        if text is not None and table is None:
            table = _read_table(file, text, own, patterns, notes, problems)
        tables.append(table)
    notes.add_to(problems, patterns)
    return tables


def _read_file(path, problems):
    try:
        text = read_text(path) if path.is_file() else ""
        if text.startswith("version") and is_lfs_pointer(path):
            problems.add("unreadable annotation", path, f"it {LFS_CURE}")
            return None
        return text
    except ValueError as error:
        problems.add("unreadable annotation", path, str(error))
        return None


def _read_plain(text):
    """Returns the `LabelTable` of a file that has only valid boxes, else None.

    Most files are like this. To read a dataset of 60,000 such files takes 8.6 s of
    processor time with the general functions alone, and 5.6 s with this one.
    """
    boxes, classes, limit = [], [], reading.MAX_FRACTION
    for line in text.splitlines():
        words = line.split()
        if not words:
            continue
        try:
            label, x, y, width, height = map(float, words)
        except ValueError:
            return None
        is_label = label.is_integer() and 0 <= label < reading.MAX_CLASSES
        is_box = -limit <= x <= limit and -limit <= y <= limit
        is_box = is_box and -limit <= width <= limit and -limit <= height <= limit
        if not (is_label and is_box):
            return None
        boxes.append((x - width / 2, y - height / 2, width, height))
        classes.append(label)
    return LabelTable(np.array(boxes, np.float64).reshape(-1, 4), classes)


class _Row(NamedTuple):
    """A line of a txt file: its number, its text, and the numbers in it, or None."""

    number: int
    text: str
    values: list | None


def _parse_rows(text):
    """Returns the rows of a file; None if it has another format, see `_reader_of`."""
    if is_of_another_format(text):
        return None
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            values = [float(word) for word in line.split()]
        except ValueError:
            values = None
        rows.append(_Row(number, line, values))
    return rows


def _read_table(path, text, rows, patterns, notes, problems):
    """Returns the `LabelTable` of one file."""
    if rows is None:
        return _reader_of(text)(path, text, notes, problems)
    six_is_outline = patterns.six_is_outline(rows)
    classes, boxes = [], []
    for row in rows:
        found = _read_row(row.values, patterns, six_is_outline)
        if isinstance(found, str):
            reading.add_bad_row(found, row.number, row.text, problems, path)
            continue
        label, box, note = found
        classes.append(label)
        boxes.append(box)
        if note is not None:
            notes.count(note, path, row)
    return LabelTable(boxes, classes)


# --- The meaning of the numbers in a row.

_BOX = 4  # how many numbers a box has
# Numbers in the shortest outline, or in a box, a confidence and a track id.
_TRIANGLE = 6
_CORNERS = 8  # how many numbers an oriented box has
_MIN_ROWS = 2  # fewer rows do not show whether all of them could have key points
_VISIBILITY = (0.0, 1.0, 2.0)  # of a key point: not labelled, hidden, visible


@dataclasses.dataclass(frozen=True)
class _RowPatterns:
    """What holds for the rows of all txt files of a split."""

    key_points: KeyPointShape | None
    has_visibility: bool  # all rows are a box and key points, without `kpt_shape`
    may_be_pose: bool  # all rows could be a box and key points, or an outline
    has_outlines: bool  # some rows can only be outlines
    outline_lengths: frozenset  # how many numbers the outlines have
    without_class: bool  # all rows are four numbers: boxes without a class
    may_be_corners: bool  # such boxes look like left, top, right and bottom
    has_confidence_first: bool  # all rows are a class, a confidence and a box

    @classmethod
    def of(cls, files, key_points, has_boxes):
        """Finds the patterns; `has_boxes` says whether other files have only boxes."""
        files = (rows for rows in files if rows is not None)
        all_rows = [row.values for row in itertools.chain(*files) if row.values]
        # A class and three numbers, such as "0 0.5 0.5 0.2", lack a number instead.
        without_class = (
            not has_boxes
            and {len(row) for row in all_rows} == {_BOX}
            and any(
                not row[0].is_integer() or max(row) > reading.MAX_FRACTION
                for row in all_rows
            )
        )
        may_be_corners = without_class and _may_be_corners(all_rows)
        rows = [row[1:] for row in all_rows]
        lengths = frozenset(map(len, rows)) | ({_BOX} if has_boxes else set())
        long = frozenset(length for length in lengths if length >= _TRIANGLE)
        is_one_length = key_points is None and len(long) == 1 == len(lengths)
        has_visibility = is_one_length and all(map(_has_visibility, rows))
        may_be_pose = (
            is_one_length
            and len(rows) >= _MIN_ROWS
            and min(long) % 2 == 0
            and all(map(_has_points_in_box, rows))
        )
        has_outlines = any(length > _TRIANGLE for length in long) or any(
            len(row) == _TRIANGLE and not _has_id(row) for row in rows
        )
        return cls(
            key_points,
            has_visibility,
            may_be_pose,
            has_outlines,
            long,
            without_class,
            may_be_corners,
            key_points is None and lengths == {_BOX + 1} and _begin_with_score(rows),
        )

    def six_is_outline(self, rows):
        """Returns whether six numbers after the class are three points, in a file.

        Otherwise they are a box, a confidence and a track id, which is a whole number.
        A point on the border of the image has coordinates 0 or 1, so these two numbers
        do not decide it.
        """
        six = [row.values[1:] for row in rows if row.values and len(row.values) == 7]
        if not all(map(_has_id, six)):
            return True
        if any(not 0 <= number <= 1 for row in six for number in row[_BOX:]):
            return False
        return self.has_outlines or not all(map(_is_box_inside, six))


def _may_be_corners(rows):
    """Returns whether rows of four numbers look like left, top, right and bottom.

    Left, top, width and height would not leave the image.
    """
    return all(x1 < x2 and y1 < y2 for x1, y1, x2, y2 in rows) and any(
        x1 + x2 > 1 or y1 + y2 > 1 for x1, y1, x2, y2 in rows
    )


# The least share of boxes that leave their image if a confidence is taken for `x`.
_LEAVING = 0.25


def _begin_with_score(rows):
    """Returns whether five numbers are a confidence and a box, and not the reverse.

    Then many boxes leave their image if they are read in the usual order, and none if
    the first number is a confidence.
    """
    outside = sum(not _is_box_inside(row) for row in rows)
    return (
        len(rows) >= _MIN_ROWS
        and outside >= max(_MIN_ROWS, _LEAVING * len(rows))
        and all(0 <= row[0] <= 1 and _is_box_inside(row[1:]) for row in rows)
    )


def _has_id(row):
    """Returns whether one of the two numbers behind a box is whole, like a track id."""
    return row[_BOX].is_integer() or row[_BOX + 1].is_integer()


def _has_visibility(row):
    """Returns whether a row is a box and key points with their visibility."""
    length = len(row) - _BOX
    return (
        length >= 3
        and length % 3 == 0
        and all(number in _VISIBILITY for number in row[_BOX + 2 :: 3])
        and _is_box_inside(row)
    )


def _has_points_in_box(row):
    """Returns whether the numbers behind the first four are points in that box.

    This hardly ever holds for an outline. A point at 0, 0 is one that is not labelled.
    """
    if not _is_box_inside(row):
        return False
    x, y, width, height = row[:_BOX]
    return all(
        (a, b) == (0.0, 0.0)
        or (abs(a - x) <= 0.6 * width and abs(b - y) <= 0.6 * height)
        for a, b in zip(row[_BOX::2], row[_BOX + 1 :: 2])
    )


def _is_box_inside(row):
    """Returns whether the first four numbers are a box inside its image."""
    x, y, width, height = row[:_BOX]
    ends = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
    return all(-0.01 <= end <= 1.01 for end in ends)


def _read_row(values, patterns, six_is_outline):
    """Returns `(class, box, note or None)` of a row, or a text if the row is wrong."""
    if values is None:
        return "numbers are expected"
    if patterns.without_class:
        rule = (
            "a class number and four numbers of a box are expected, but all rows have "
            "four numbers and no class"
        )
        if not patterns.may_be_corners:
            return rule
        return (
            f"{rule}. They look like corners (left, top, "
            "right, bottom): write the class, the center, the width and the height, as "
            "fractions of the image"
        )
    label, *values = values
    if not (label.is_integer() and 0 <= label < reading.MAX_CLASSES):
        return "the first number must be a class number"
    length, note = len(values), None
    if patterns.has_confidence_first:
        values = [*values[1:], values[0]]
    if patterns.key_points is not None:
        count, size = patterns.key_points
        extra = length - _BOX - count * size
        if extra in (0, 1, 2):
            note = "pose label"
        elif length not in (_BOX, _BOX + 1, _BOX + 2):
            return (
                f"four numbers of a box and {count * size} of key points are expected, "
                f"as `kpt_shape: [{count}, {size}]` says"
            )
        elif length > _BOX:
            note = "extra column"
        is_box = True
    else:
        is_box = length in (_BOX, _BOX + 1) or patterns.has_visibility
        is_box = is_box or (length == _TRIANGLE and not six_is_outline)
        if is_box and length > _BOX:
            note = "pose label" if patterns.has_visibility else "extra column"
    if patterns.has_confidence_first:
        note = "confidence before box"
    if length < _BOX:
        return "four numbers of a box or three or more points are expected"
    if note == "extra column" and not all(map(_is_confidence_or_id, values[_BOX:])):
        return (
            "a fifth number after the class must be a confidence from 0 to 1 or a "
            "track id, a whole number. (A box that is turned by an angle must be "
            "written as its four corners)"
        )
    if is_box:
        values = values[:_BOX]
    elif length % 2:
        values, note = values[:-1], "odd outline"
    elif patterns.may_be_pose:
        note = "possible pose label"
    elif patterns.outline_lengths == {_CORNERS}:
        note = "oriented box"
    if not all(abs(value) <= reading.MAX_FRACTION for value in values):
        return "fractions of the image are expected, not pixels"
    if is_box:
        x, y, width, height = values
        return label, (x - width / 2, y - height / 2, width, height), note
    return label, _hull(values), note


def _is_confidence_or_id(number):
    return number.is_integer() or 0 <= number <= 1


def _hull(values):
    """Returns the upright box around points: left, top, width, height."""
    xs, ys = values[::2], values[1::2]
    left, top = min(xs), min(ys)
    return left, top, max(xs) - left, max(ys) - top


# --- Formats of other tools that also have one txt file per image.


def is_of_another_format(text: str) -> bool:
    """Returns whether a txt file has boxes in the format of another tool than YOLO.

    These are DOTA's, OIDv4's and BBox-Label-Tool's formats.

    Example:
        >>> is_of_another_format("cat 0.5 0.5 0.2 0.2")
        True
        >>> is_of_another_format("0 0.5 0.5 0.2 0.2")
        False
    """
    return _reader_of(text) is not None


def _reader_of(text):
    """Returns the function that reads a file of another tool's format, or None."""
    if is_counted(text):
        return _read_counted
    if is_named(text):
        return _read_named
    return _read_dota if is_dota(text) else None


# --- DOTA's format, which Roboflow calls "Oriented Bounding Boxes": the four corners of
# a box in pixels, the name of its class, and 1 if the object is difficult.

_HEADERS = ("imagesource:", "gsd:")


def is_dota(text: str) -> bool:
    """Returns whether the first row of a file is in DOTA's format, or is its header.

    Example:
        >>> is_dota("4 6 30 6 30 40 4 40 ship 0"), is_dota("0 0.5 0.5 0.2 0.2")
        (True, False)
    """
    line = next((line for line in text.splitlines() if line.strip()), "")
    if line.strip().lower().startswith(_HEADERS):
        return True
    words = line.split()
    numbers = [_number(word) for word in words]
    return len(words) in (9, 10) and None not in numbers[:8] and numbers[8] is None


def _read_dota(path, text, notes, problems):
    """Returns the `LabelTable` of a file in DOTA's format."""
    lines = [(i, line) for i, line in enumerate(text.splitlines(), 1) if line.strip()]
    table = LabelTable([], [], [], normalized_coordinates=False)
    for number, line in lines:
        if line.strip().lower().startswith(_HEADERS):
            continue
        words = line.split()
        corners = [_number(word) for word in words[:8]]
        is_row = len(words) in (9, 10) and None not in corners
        if not is_row or not reading.are_coordinates(np.array(corners)).all():
            rule = "four corners in pixels and the name of a class are expected"
            reading.add_bad_row(rule, number, line, problems, path)
            continue
        table.boxes.append(_hull(corners))
        table.classes.append(words[8])
        table.is_crowd.append(words[9:] == ["1"])
        notes.count("oriented box", path, _Row(number, line, None))
    return table


# --- Rows with the name of a class: "cat 0.5 0.5 0.2 0.2", or "Alarm clock 226.5 168.0
# 504.2 359.1" of the OIDv4 ToolKit, whose numbers are corners in pixels.


def is_named(text: str) -> bool:
    """Returns whether the first row of a file is a class name and four numbers.

    Example:
        >>> is_named("Alarm clock 226.5 168.0 504.2 359.1"), is_named("0 1 1 1 1")
        (True, False)
    """
    words = next((line.split() for line in text.splitlines() if line.strip()), [])
    return len(words) >= 5 and _named_row(words) is not None


def _named_row(words):
    """Returns the name and the four numbers in a row, or None."""
    names, numbers = words[:-_BOX], [_number(word) for word in words[-_BOX:]]
    is_name = any(_number(word) is None for word in names[-1:])
    # Texts with words and digits of other scripts, such as number plates, are no boxes.
    if not is_name or None in numbers or not "".join(words[-_BOX:]).isascii():
        return None
    are_pixels = max(numbers) > reading.MAX_FRACTION
    is_box = numbers[0] <= numbers[2] and numbers[1] <= numbers[3]
    return None if are_pixels and not is_box else (" ".join(names), numbers)


def _has_number_before_name(line):
    """Returns whether a row of tabs has the number of the class, then its name."""
    words = line.strip().split("\t")
    return len(words) == _BOX + 2 and words[0].isdecimal() and not words[1].isdecimal()


def _read_named(path, text, notes, problems):
    """Returns the `LabelTable` of a file that has class names in its rows."""
    lines = [(i, line) for i, line in enumerate(text.splitlines(), 1) if line.strip()]
    if all(_has_number_before_name(line) for _, line in lines):
        lines = [(i, line.partition("\t")[2]) for i, line in lines]
    rows = [_named_row(line.split()) for _, line in lines]
    numbers = [row[1] for row in rows if row is not None]
    are_pixels = any(n > reading.MAX_FRACTION for row in numbers for n in row)
    table = LabelTable([], [], normalized_coordinates=not are_pixels)
    for (number, line), row in zip(lines, rows):
        if row is None or not reading.are_coordinates(np.array(row[1])):
            rule = "the name of a class and four numbers of a box are expected"
            reading.add_bad_row(rule, number, line, problems, path)
            continue
        table.classes.append(row[0])
        if are_pixels:
            table.boxes.append(_hull(row[1]))
        else:
            x, y, width, height = row[1]
            table.boxes.append((x - width / 2, y - height / 2, width, height))
    return table


# --- BBox-Label-Tool's format: the number of boxes in a line of its own; then left,
# top, right and bottom of each box in pixels, optionally followed by the name of the
# class.

UNNAMED = "object"  # the class of boxes that have none
_COUNTED = re.compile(
    r"\s*[1-9]\d*[ \t]*\r?\n\s*(?:\d+[ \t]+){3}\d+(?:[ \t]+[^\s\d]\S*)?\s*?(?:\n|$)"
)


def is_counted(text: str) -> bool:
    """Returns whether a file begins with a number of boxes and the corners of one.

    Example:
        >>> is_counted("1\\n76 45 146 87"), is_counted("1 76 45 146 87")
        (True, False)
    """
    return _COUNTED.match(text) is not None


def _read_counted(path, text, notes, problems):
    """Returns the `LabelTable` of a file of BBox-Label-Tool."""
    lines = [(i, line) for i, line in enumerate(text.splitlines(), 1) if line.strip()]
    table = LabelTable([], [], normalized_coordinates=False)
    for number, line in lines[1:]:
        words = line.split()
        corners = [_number(word) for word in words[:_BOX]]
        is_row = len(corners) == _BOX and None not in corners
        if not is_row or not reading.are_coordinates(np.array(corners)):
            rule = "left, top, right and bottom in pixels are expected"
            reading.add_bad_row(rule, number, line, problems, path)
            continue
        table.boxes.append(_hull(corners))
        table.classes.append(" ".join(words[_BOX:]) or UNNAMED)
        if len(words) == _BOX:
            notes.count("unnamed class", path, _Row(number, line, None))
    return table


def _number(word):
    try:
        return float(word)
    except ValueError:
        return None


# --- What is left out of rows: one note of each kind, instead of one for each row.


class _Notes:
    def __init__(self):
        self._rows = collections.Counter()
        self._files = collections.defaultdict(set)
        self._first = {}

    def count(self, kind, path, row):
        """Counts a row of which something is left out."""
        self._rows[kind] += 1
        self._files[kind].add(str(path))
        self._first.setdefault(kind, (path, row.number))

    def add_to(self, problems, patterns):
        """Adds one note of each kind, which names the first row of that kind."""
        for kind, count in self._rows.items():
            path, line = self._first[kind]
            rows = count_of(count, "row")
            files = count_of(len(self._files[kind]), "file")
            detail = f"{rows} in {files}, the first in line {line}: {_WORDS[kind]}"
            if kind == "pose label" and patterns.has_visibility:
                detail += (
                    ". The data.yaml has no `kpt_shape`, but the numbers are those of "
                    "key points with their visibility"
                )
            problems.add_note(kind, path, detail)


_WORDS = {
    "extra column": "numbers after the box, such as a confidence or a track id",
    "confidence before box": (
        "a confidence between the class and the box. With the four numbers behind the "
        "class, many boxes would leave their image. If they are what a detector found, "
        "and nobody checked them, do not train on them"
    ),
    "pose label": "a box and its key points",
    "possible pose label": (
        "every row has the same count of numbers, which could be a box and its key "
        "points. If they are, add `kpt_shape` to data.yaml"
    ),
    "odd outline": "there is one number too many, after the last point",
    "oriented box": "four corners of a box that may be turned",
    "unnamed class": (
        f"boxes of BBox-Label-Tool have no class, so they are read as {UNNAMED!r}"
    ),
}
