"""The rows of a csv file, in each of the formats that people write boxes in."""

import csv
import dataclasses
import re
import reprlib

import numpy as np

from effdet_keras._internal.cache_folder import kept_if_readable
from effdet_keras._internal.remote_path import local_copy
from effdet_keras.data.formats.record_building import are_coordinates, check_size
from effdet_keras.data.formats.split_names import ONE_SPLIT
from effdet_keras.data.problems import Problems
from effdet_keras.errors import InvalidValueError

_COLUMNS = {  # each column of the Object Detection API, and what others call it
    "filename": ("filename", "image", "path", "image_path", "file_name", "file"),
    "class": ("class", "label", "name", "class_name"),
    "xmin": ("xmin", "x1", "x_min"),
    "ymin": ("ymin", "y1", "y_min"),
    "xmax": ("xmax", "x2", "x_max"),
    "ymax": ("ymax", "y2", "y_max"),
}
AUTOML_SPLITS = {
    "TRAIN": "train",
    "TRAINING": "train",
    "VALIDATION": "validation",
    "VALIDATE": "validation",
    "TEST": "test",
    "UNASSIGNED": ONE_SPLIT,
}
_LIMIT = 2.0  # images: numbers further out are not fractions of one


def csv_splits(path):
    """Lists the splits of a CSV file.

    Args:
        path: path of the file.

    Returns:
        List of str: the splits of AutoML's format in lower case, else an empty list.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is not text in UTF-8.
    """
    if not isinstance(_format_of(_read_lines(path, limit=1)), _AutoML):
        return []
    rows = read_rows(path, Problems("`csv_splits`", "skip"))
    return list(dict.fromkeys(row.split for row in rows))


def is_csv(path):
    """Says whether a file has one of the formats that `from_csv` reads."""
    try:
        return _format_of(_read_lines(path, limit=1)) is not None
    except (ValueError, OSError):
        return False


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """What a row says.

    Attributes:
        image: str, the name of the image.
        label: str, the class; empty without a box.
        box: left, top, right, bottom, or None.
        is_normalized: whether the box is in fractions of the image.
        size: `(height, width)` of the image, or None.
        split: str, or None where the format has no splits.
        has_box: whether this is a box; else an image without objects.
    """

    image: str
    label: str
    box: tuple | None
    is_normalized: bool = False
    size: tuple | None = None
    split: str | None = None
    has_box: bool = True


def read_rows(path, problems):
    """Reads a csv file in any of the known formats.

    Args:
        path: `pathlib.Path` of the file.
        problems: `Problems`, for rows that are wrong.

    Returns:
        List of `Row`.

    Raises:
        ValueError: If the file has none of these formats.
    """
    lines = _read_lines(path)
    format = _format_of(lines)
    if format is None:
        first = lines[0][1] if lines else []
        raise InvalidValueError(
            "`from_csv` expects a header with filename, class, xmin, ymin, xmax, ymax, "
            "or rows of `set,path,label,xmin,ymin,,,xmax,ymax,,`, or rows of "
            f"`path,xmin,ymin,xmax,ymax,class`. Received: {str(path)!r} with "
            f"{reprlib.repr(first)}"
        )
    rows = []
    for number, cells in format.body(lines):
        row = format.read(cells)
        if isinstance(row, str):
            detail = f"row {number}: {row}. Received: {reprlib.repr(cells)}"
            problems.add("bad box", path.name, detail)
        elif row is not None:
            rows.append(row)
    return rows


# What a spreadsheet takes for a formula, and what stands before it to make it text.
_FORMULA = re.compile(r"'*[=+@-](?![\d.]+$)")


def plain_cell(cell):
    """A cell that no spreadsheet computes: `'` stands before what begins a formula.

    `from_csv` takes it away again.

    Example:
        >>> plain_cell("=1+1"), plain_cell("cat"), plain_cell("-0.5")
        ("'=1+1", 'cat', '-0.5')
    """
    return f"'{cell}" if isinstance(cell, str) and _FORMULA.match(cell) else cell


def _cell(text):
    """What a cell says; the inverse of `plain_cell`."""
    text = text.strip()
    return text[1:] if text[:1] == "'" and _FORMULA.match(text) else text


def _read_lines(path, limit=None):
    """`(number, cells)` of each row that is not empty, or of the first `limit`."""
    lines = []
    try:
        copy = local_copy(path)
        with (
            kept_if_readable(copy),
            open(copy, encoding="utf-8-sig", newline="") as file,
        ):
            reader = csv.reader(file)
            for row in reader:
                cells = [_cell(cell) for cell in row]
                if any(cells):
                    lines.append((reader.line_num, cells))
                if len(lines) == limit:
                    break
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidValueError(
            "`from_csv` expects comma-separated text in UTF-8. "
            f"Received: {str(path)!r} ({error})"
        ) from error
    return lines


def _format_of(lines):
    if not lines:
        return None
    first = lines[0][1]
    for format in (_Header(first), _AutoML(), _RetinaNet()):
        if format.fits(first):
            return format
    return None


class _Header:
    """The Object Detection API's format: columns by the names of the header."""

    def __init__(self, header):
        names = [cell.lower() for cell in header]
        self._column = {
            name: next((names.index(n) for n in known if n in names), None)
            for name, known in _COLUMNS.items()
        }
        for name in ("width", "height"):
            self._column[name] = names.index(name) if name in names else None

    def fits(self, first):
        return all(self._column[name] is not None for name in _COLUMNS)

    def body(self, lines):
        return lines[1:]

    def read(self, cells):
        cell = {
            name: cells[i] if i is not None and i < len(cells) else ""
            for name, i in self._column.items()
        }
        box = [cell[name] for name in ("xmin", "ymin", "xmax", "ymax")]
        size = check_size(_number(cell["height"]), _number(cell["width"]))
        return _make_row(cell["filename"], cell["class"], box, size=size)


class _AutoML:
    """AutoML's format: `set,path,label` and up to four corners in fractions."""

    def fits(self, first):
        return first[0].upper() in AUTOML_SPLITS and len(first) in (2, 3, 7, 9, 10, 11)

    def body(self, lines):
        return lines

    def read(self, cells):
        cells = cells + [""] * (11 - len(cells))
        split = AUTOML_SPLITS.get(cells[0].upper())
        if split is None:
            return f"the first column must be one of {list(AUTOML_SPLITS)}"
        x = [cell for cell in cells[3:11:2] if cell]
        y = [cell for cell in cells[4:11:2] if cell]
        return _make_row(
            cells[1], cells[2], _around(x, y), is_normalized=True, split=split
        )


class _RetinaNet:
    """RetinaNet's format: `path,xmin,ymin,xmax,ymax,class` in pixels."""

    def fits(self, first):
        if len(first) != 6 or not first[0]:
            return False
        numbers = [_number(cell) for cell in first[1:5]]
        return not any(first[1:]) or all(number is not None for number in numbers)

    def body(self, lines):
        return lines

    def read(self, cells):
        cells = cells + [""] * (6 - len(cells))
        return _make_row(cells[0], cells[5], cells[1:5])


def _around(x, y):
    """The ends of the box around corners, as cells."""
    x_numbers, y_numbers = [_number(cell) for cell in x], [_number(cell) for cell in y]
    if len(x) < 2 or len(x) != len(y) or None in x_numbers + y_numbers:
        return x + y or [""] * 4
    return [min(x_numbers), min(y_numbers), max(x_numbers), max(y_numbers)]


def _make_row(image, label, box, *, is_normalized=False, size=None, split=None):
    """A `Row`, or what is wrong with it."""
    if not image:
        return "the name of an image is expected"
    common = {"size": size, "split": split, "is_normalized": is_normalized}
    if not label and not any(cell != "" for cell in box):
        return Row(image, "", None, has_box=False, **common)
    numbers = [_number(cell) for cell in box]
    if None in numbers or len(numbers) != 4 or not are_coordinates(np.array(numbers)):
        return "four finite numbers are expected"
    if not label:
        return "a class is expected"
    if is_normalized and max(map(abs, numbers)) > _LIMIT:
        return "fractions of the image are expected, not pixels"
    return Row(image, label, tuple(numbers), **common)


def _number(cell):
    try:
        return float(cell)
    except ValueError:
        return None
