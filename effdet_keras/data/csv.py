"""CSV files, one box a row: to a dataset, and from one."""

import collections
import csv
import dataclasses
import os
import pathlib
import reprlib

import numpy as np

from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.example import clip_boxes_xywh
from effdet_keras.data.problems import Problems
from effdet_keras.data.readers import (
    are_coordinates,
    check_size,
    choose_classes,
    finish_records,
    label_boxes,
    picture_size,
    plain_record,
)
from effdet_keras.data.sidecar import read_sidecar, write_sidecar
from effdet_keras.data.writing import (
    ONE_SPLIT,
    WholeFolder,
    named_splits,
    write_pictures,
)

_COLUMNS = {  # each column of the Object Detection API, and what others call it
    "filename": ("filename", "image", "path", "image_path", "file_name", "file"),
    "class": ("class", "label", "name", "class_name"),
    "xmin": ("xmin", "x1", "x_min"),
    "ymin": ("ymin", "y1", "y_min"),
    "xmax": ("xmax", "x2", "x_max"),
    "ymax": ("ymax", "y2", "y_max"),
}
_HEADER = ("filename", "width", "height", "class", "xmin", "ymin", "xmax", "ymax")
_AUTOML_SPLITS = {
    "TRAIN": "train",
    "TRAINING": "train",
    "VALIDATION": "validation",
    "VALIDATE": "validation",
    "TEST": "test",
    "UNASSIGNED": ONE_SPLIT,
}
_FORMS = ("tfod", "automl")
_LIMIT = 2.0  # pictures: numbers further out are no fractions of one


def from_csv(path, image_dir=None, split=None, *, class_names=None, on_error="raise"):
    """Reads a dataset in a form of CSV: one box a row.

    Three forms are known, by the first row:

    - the TF Object Detection API's: a header with `filename`, `class`, `xmin`,
      `ymin`, `xmax`, `ymax` in pixels, in any order, and `width` and `height`
      of the picture where present;
    - AutoML's and Vertex AI's: no header, `set,path,label,xmin,ymin,,,xmax,ymax,,`
      in fractions of the picture; `set` is TRAIN, VALIDATION, TEST, UNASSIGNED;
    - RetinaNet's: no header, `path,xmin,ymin,xmax,ymax,class` in pixels.

    A row without class and box is a picture without objects.

    Args:
        path: path of the csv file.
        image_dir: folder that the names of the pictures start from; a name
            with folders, or one such as `gs://...`, is looked up by its last
            part where it is not there. None looks for the pictures beside the
            file and in `images`, and for `train.csv` in `train`.
        split: of AutoML's sets: "train", "validation" or "test"; None takes
            all rows.
        class_names: names in the order of the labels, to bring a second file
            in line with a first. None takes the names found in the file, of all
            splits, sorted.
        on_error: "raise" tells of everything that is wrong, at once; "skip"
            leaves it out, warns, and keeps it in `dataset.problems`.

    Returns:
        `DetectionDataset`. `image_id` counts from 1 in the order of the
        pictures in the file; `source_id` is the name of the picture.

    Raises:
        FileNotFoundError: If the file or pictures are missing.
        ValueError: If the file has none of these forms, or with "raise" if a
            row has no four finite numbers or an unknown class.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> Image.new("RGB", (40, 30)).save(folder / "a.png")
        >>> _ = (folder / "train.csv").write_text(
        ...     "filename,width,height,class,xmin,ymin,xmax,ymax\\n"
        ...     "a.png,40,30,cell,10,5,20,15\\n")
        >>> from_csv(folder / "train.csv")[0]["boxes"].tolist()
        [[5.0, 10.0, 15.0, 20.0]]
    """
    path = pathlib.Path(path)
    reader = f"`from_csv` of {str(path)!r}"
    problems = Problems(reader, on_error)
    rows = _read_rows(path, problems)
    found = sorted({row.label for row in rows if row.has_box})
    if split is not None:
        rows = _rows_of_split(rows, split, path)
    groups = collections.defaultdict(list)
    for row in rows:
        groups[row.picture].append(row)
    sidecar = read_sidecar(path.parent)
    boxes = {name: [r for r in rows if r.has_box] for name, rows in groups.items()}
    class_names, category_ids = choose_classes(
        found, class_names, sidecar, reader, problems
    )
    named = [(name, [row.label for row in rows]) for name, rows in boxes.items()]
    labels = label_boxes(named, class_names, problems)
    finder = _Finder(path, image_dir, list(groups))
    records = []
    for (name, members), row_labels in zip(groups.items(), labels):
        record = _make_record(name, members, row_labels, finder, problems)
        if record is not None:
            records.append(record)
    records = finish_records(
        records,
        problems,
        source=path,
        sidecar=sidecar,
        split=None,
        names=[record.source_id for record in records],
        class_names=class_names,
    )
    found = problems.finish()
    return DetectionDataset(records, class_names, category_ids, problems=found)


def csv_splits(path):
    """Lists the splits of a CSV file.

    Args:
        path: path of the file.

    Returns:
        List of str: the sets of AutoML's form in lower case, else an empty list.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is no text in UTF-8.
    """
    path = pathlib.Path(path)
    if not isinstance(_form_of(_read_lines(path, limit=1)), _AutoML):
        return []
    rows = _read_rows(path, Problems("`csv_splits`", "skip"))
    return list(dict.fromkeys(row.split for row in rows))


def is_csv(path):
    """Says whether a file has one of the forms that `from_csv` reads."""
    try:
        return _form_of(_read_lines(pathlib.Path(path), limit=1)) is not None
    except (ValueError, OSError):
        return False


@dataclasses.dataclass(frozen=True, slots=True)
class _Row:
    """A row: box as left, top, right, bottom, in pixels or fractions."""

    picture: str
    label: str
    box: tuple | None
    is_normalized: bool = False
    size: tuple | None = None
    split: str | None = None
    has_box: bool = True


def _read_rows(path, problems):
    lines = _read_lines(path)
    form = _form_of(lines)
    if form is None:
        first = lines[0][1] if lines else []
        raise ValueError(
            "`from_csv` expects a header with filename, class, xmin, ymin, xmax, ymax, "
            "or rows of `set,path,label,xmin,ymin,,,xmax,ymax,,`, or rows of "
            f"`path,xmin,ymin,xmax,ymax,class`. Received: {str(path)!r} with "
            f"{reprlib.repr(first)}"
        )
    rows = []
    for number, cells in form.body(lines):
        row = form.read(cells)
        if isinstance(row, str):
            detail = f"row {number}: {row}. Received: {reprlib.repr(cells)}"
            problems.add("bad box", path.name, detail)
        elif row is not None:
            rows.append(row)
    return rows


def _read_lines(path, limit=None):
    """`(number, cells)` of each row that is not empty, or of the first `limit`."""
    lines = []
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            for row in reader:
                cells = [cell.strip() for cell in row]
                if any(cells):
                    lines.append((reader.line_num, cells))
                if len(lines) == limit:
                    break
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(
            "`from_csv` expects comma-separated text in UTF-8. "
            f"Received: {str(path)!r} ({error})"
        ) from error
    return lines


def _form_of(lines):
    if not lines:
        return None
    first = lines[0][1]
    for form in (_Header(first), _AutoML(), _RetinaNet()):
        if form.fits(first):
            return form
    return None


class _Header:
    """The Object Detection API's form: columns by the names of the header."""

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
    """AutoML's form: `set,path,label` and up to four corners in fractions."""

    def fits(self, first):
        return first[0].upper() in _AUTOML_SPLITS and len(first) in (2, 3, 7, 9, 10, 11)

    def body(self, lines):
        return lines

    def read(self, cells):
        cells = cells + [""] * (11 - len(cells))
        split = _AUTOML_SPLITS.get(cells[0].upper())
        if split is None:
            return f"the first column must be one of {list(_AUTOML_SPLITS)}"
        x = [cell for cell in cells[3:11:2] if cell]
        y = [cell for cell in cells[4:11:2] if cell]
        return _make_row(
            cells[1], cells[2], _around(x, y), is_normalized=True, split=split
        )


class _RetinaNet:
    """RetinaNet's form: `path,xmin,ymin,xmax,ymax,class` in pixels."""

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


def _make_row(picture, label, box, *, is_normalized=False, size=None, split=None):
    """A `_Row`, or what is wrong with it."""
    if not picture:
        return "the name of a picture is expected"
    common = {"size": size, "split": split, "is_normalized": is_normalized}
    if not label and not any(cell != "" for cell in box):
        return _Row(picture, "", None, has_box=False, **common)
    numbers = [_number(cell) for cell in box]
    if None in numbers or len(numbers) != 4 or not are_coordinates(np.array(numbers)):
        return "four finite numbers are expected"
    if not label:
        return "a class is expected"
    if is_normalized and max(map(abs, numbers)) > _LIMIT:
        return "fractions of the picture are expected, not pixels"
    return _Row(picture, label, tuple(numbers), **common)


def _number(cell):
    try:
        return float(cell)
    except ValueError:
        return None


def _rows_of_split(rows, split, path):
    splits = list(dict.fromkeys(row.split for row in rows if row.split is not None))
    if split not in splits:
        raise ValueError(
            f"`split` must be one of the sets of {str(path)!r}: {splits}. "
            f"Received: split={split!r}"
        )
    return [row for row in rows if row.split == split]


class _Finder:
    """Finds pictures by the names that a csv file has for them."""

    def __init__(self, path, image_dir, names):
        if image_dir is not None:
            self._folder = pathlib.Path(image_dir)
            return
        stem = path.stem.removesuffix("_labels")
        places = (stem, "", "images", f"images/{stem}", "JPEGImages")
        folders = [path.parent / place for place in places]
        folders += [path.parent.parent / place for place in (stem, "images")]
        self._folder = path.parent
        for folder in folders:
            self._folder = folder
            if any(os.path.isfile(self.find(name)) for name in names[:10]):
                return
        self._folder = path.parent

    def find(self, name):
        """The path of a picture, which need not be there."""
        name = name.replace("\\", "/")
        path = self._folder / name
        short = self._folder / name.rpartition("/")[2]
        return short if not os.path.isfile(path) and os.path.isfile(short) else path


def _make_record(name, rows, labels, finder, problems):
    path = finder.find(name)
    sizes = [row.size for row in rows if row.size is not None]
    image_size = picture_size(path, sizes[0] if sizes else None, problems)
    if image_size is None:
        return None
    corners = np.array([row.box for row in rows if row.has_box]).reshape(-1, 4)
    if rows[0].is_normalized:
        height, width = image_size
        corners = corners * [width, height, width, height]
    low, high = corners[:, :2], corners[:, 2:]
    return plain_record(
        path,
        image_size,
        np.concatenate([low, high - low], axis=1),
        labels,
        source_id=name,
        file_name=name,
    )


def write_csv(datasets, folder, *, form="tfod"):
    """Writes a new folder with csv files, and with the pictures in `SPLIT/`.

    Boxes without an area in their picture are left out. Crowds have no mark in
    these forms: other programs see ordinary boxes. `effdet_keras.json` keeps
    which they are, ids, file names, areas and classes.

    Args:
        datasets: `DetectionDataset`, or dict of split name to one.
        folder: folder to make; it appears once it is complete.
        form: "tfod", the TF Object Detection API's, a file `SPLIT.csv` for
            each split, boxes in pixels; or "automl", one file `data.csv`, in
            fractions, boxes clipped to their picture.

    Returns:
        `None`.

    Raises:
        FileExistsError: If the folder is there.
        ValueError: If `form` is unknown, splits differ in their classes or
            are none of AutoML's, or a picture cannot be decoded.

    Example:
        >>> import tempfile
        >>> from effdet_keras.data import from_arrays
        >>> image = np.zeros((32, 48, 3), "uint8")
        >>> dataset = from_arrays([image], [[[4, 8, 20, 40]]], [[0]], ["cat"])
        >>> folder = pathlib.Path(tempfile.mkdtemp()) / "cats"
        >>> write_csv(dataset, folder)
        >>> print((folder / "train.csv").read_text())
        filename,width,height,class,xmin,ymin,xmax,ymax
        train/000000000001.png,48,32,cat,8,4,40,20
        >>> from_csv(folder / "train.csv")[0]["boxes"].tolist()
        [[4.0, 8.0, 20.0, 40.0]]
    """
    if form not in _FORMS:
        raise ValueError(f"`form` must be one of {_FORMS}. Received: form={form!r}")
    datasets = named_splits(datasets, usable=True)
    sets = _automl_sets(datasets) if form == "automl" else {}
    names, rows = {}, []
    with WholeFolder(folder) as partial:
        for split, dataset in datasets.items():
            files = write_pictures(dataset.records, partial / split)
            names[split] = [f"{split}/{file}" for file in files]
            pairs = list(zip(names[split], dataset.records))
            if form == "automl":
                rows += _automl_rows(pairs, sets[split], dataset.class_names)
            else:
                body = _tfod_rows(pairs, dataset.class_names)
                _write_rows(partial / f"{split}.csv", [_HEADER, *body])
        if form == "automl":
            _write_rows(partial / "data.csv", rows)
        write_sidecar(partial, datasets, names)


def _automl_sets(datasets):
    words = {"val": "VALIDATION", "valid": "VALIDATION"}
    sets = {split: words.get(split, split.upper()) for split in datasets}
    if not set(sets.values()) <= _AUTOML_SPLITS.keys() or len(
        set(sets.values())
    ) != len(sets):
        raise ValueError(
            "AutoML's csv has the splits train, validation (or val) and test alone. "
            f"Received: {list(datasets)}"
        )
    return sets


def _tfod_rows(pairs, class_names):
    for name, record in pairs:
        height, width = record.image_size
        low, sides = record.boxes_xywh[:, :2], record.boxes_xywh[:, 2:]
        corners = np.concatenate([low, low + sides], axis=1)
        for label, box in zip(record.labels, corners):
            numbers = [f"{value:.10g}" for value in box]
            yield (name, width, height, class_names[label], *numbers)
        if not len(corners):
            yield (name, width, height, "", "", "", "", "")


def _automl_rows(pairs, set_name, class_names):
    for name, record in pairs:
        boxes, _ = clip_boxes_xywh(record.boxes_xywh, record.image_size)
        boxes = boxes / np.tile(np.float64(record.image_size), 2)
        for label, box in zip(record.labels, boxes):
            top, left, bottom, right = (f"{value:.9g}" for value in box)
            place = (left, top, "", "", right, bottom, "", "")
            yield (set_name, name, class_names[label], *place)
        if not len(boxes):
            yield (set_name, name, *[""] * 9)


def _write_rows(path, rows):
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
