"""Reads datasets from Hugging Face's image folders and from `datasets.Dataset`."""

from __future__ import annotations

import ast
import collections
import dataclasses
import functools
import json
import os
import pathlib
import reprlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from effdet_keras._internal.optional_imports import hf_datasets, parquet
from effdet_keras._internal.remote_path import is_file, local_copy, path_of
from effdet_keras._internal.yaml_text import load_yaml, read_text
from effdet_keras.data.box_formats import suspect_box_format
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.formats import reading
from effdet_keras.data.formats.annotation_files import (
    class_order,
    dict_of,
    head_of,
    number_of,
    numbers_of,
    read_json_lines,
    read_split,
    usable_entries,
)
from effdet_keras.data.formats.csv import read_lines
from effdet_keras.data.formats.dataset_files import is_visible, split_folders
from effdet_keras.data.formats.image_paths import ImageLocator
from effdet_keras.data.formats.label_map import ClassNames, requested_classes
from effdet_keras.data.problems import Problem, Problems
from effdet_keras.data.record import concat_field, owners
from effdet_keras.errors import InvalidTypeError, InvalidValueError, check_choice
from effdet_keras.images import EncodedImage

_METADATA = ("metadata.jsonl", "metadata.csv", "metadata.parquet")
_SHARDS = "*-of-*.parquet"  # files of a dataset that has its images in them
# Usual names of these columns. If there is a column `objects`, it has the boxes and
# classes.
_NAMES = ("file_name", "filename", "image")
_OBJECTS = ("objects", "annotations")
_BOXES = ("bbox", "bboxes", "boxes")
_CLASSES = (
    "category",
    "categories",
    "label",
    "labels",
    "class",
    "classes",
    "category_id",
    "class_id",
    "name",
)
_CROWDS = ("iscrowd", "is_crowd", "crowd")
_AREAS = ("area", "areas")
_IMAGE_IDS = ("image_id", "id")
_BOX_FORMATS = ("xywh", "xyxy", "cxcywh")


def from_hugging_face(
    source: Any,
    split: str | None = None,
    *,
    box_format: str = "xywh",
    class_names: ClassNames | None = None,
    on_error: str = "auto",
) -> DetectionDataset:
    """Reads an image folder in Hugging Face's format, or a `datasets.Dataset`.

    In a folder, `metadata.jsonl` (or `.csv`, or `.parquet`, which needs pyarrow) has a
    row for each image. The row has its `file_name`, and `objects`: either an object
    with the lists `bbox` and `category` (or `categories`), or a list of objects that
    have one each. `area` and `iscrowd` are read too.

    Args:
        source: folder with a metadata file, or with a folder for each split that has
            one; or the metadata file; or a `datasets.Dataset` or `DatasetDict` with one
            column of images, and `objects`, whose images are read when they are needed.
            A folder of parquet files with the images in them is read by the package
            `datasets`, which must be installed.
        split: name of a split, such as "train". None reads the only one.
        box_format: meaning of the four numbers of `bbox`, in pixels: "xywh" for left,
            top, width and height, as Hugging Face writes them; "xyxy" for two corners;
            or "cxcywh" for center and sides. The file does not give the format. If
            boxes that are read as "xywh" do not fit their images, but all of them would
            fit in another format, a warning says so.
        class_names: see `load`. None takes the names of the `ClassLabel`, or those in
            the `README.md` beside a metadata file. Numbers without names count from 0,
            and a warning says so.
        on_error: see `load`.

    Returns:
        `DetectionDataset`. If the file has names of classes and no list of them, they
        are sorted. `image_id` is the column `image_id` (or `id`) if its values are ints
        from 0 that all differ; otherwise it counts from 1.

    Raises:
        FileNotFoundError: If there is no metadata file, or images are missing.
        ImportError: If a file needs a package that is not installed.
        TypeError: If `source` is none of these.
        ValueError: If the columns are missing, if there are several splits and `split`
            is None, or, depending on `on_error`, if a box is not four finite numbers
            with a class.

    Example:
        >>> import pathlib, tempfile, PIL.Image
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> PIL.Image.new("RGB", (48, 32)).save(folder / "a.png")
        >>> row = {"file_name": "a.png",
        ...        "objects": {"bbox": [[8, 4, 32, 16]], "category": ["cat"]}}
        >>> _ = (folder / "metadata.jsonl").write_text(json.dumps(row))
        >>> from_hugging_face(folder)[0]["boxes"].tolist()
        [[4.0, 8.0, 20.0, 40.0]]
    """
    check_choice("box_format", box_format, _BOX_FORMATS)
    options = {"class_names": class_names, "on_error": on_error}
    if not isinstance(source, str | os.PathLike):
        return _from_dataset(source, split, box_format, options)
    path = path_of(source)
    if path.is_dir():
        tool = f"`from_hugging_face` found no {_METADATA[0]} with `objects`: a folder"
        readers = hugging_face_readers(path)
        return read_split(readers, path, split, tool, box_format=box_format, **options)
    problems = Problems(f"`from_hugging_face` of {str(path)!r}", on_error)
    rows = _read_rows(path, problems)
    splits = _splits_of(rows)
    if split is not None and splits:
        reading.chosen_split(splits, split, path)
        rows = [row for row in rows if _folder_of(row) == split]
    locator = ImageLocator(path)
    images = [locator.find(str(_first(row, _NAMES, ""))) for row in rows]
    return _make(
        rows, images, _names_in_card(path), box_format, class_names, problems, path
    )


def hugging_face_readers(path: Any) -> dict[str, Callable]:
    """Finds image folders with boxes; returns a dict from split to its reader."""
    if path.is_file():
        is_one = path.name in _METADATA and _has_objects(path)
        files = {reading.ONE_SPLIT: path} if is_one else {}
    else:
        files = _metadata_files(path)
    readers = {}
    for name, file in files.items():
        ignored = Problems("`from_hugging_face`", "skip")
        rows = _read_rows(file, ignored) if len(files) == 1 else []
        for split in _splits_of(rows) or [None]:
            key = split or name
            readers[key] = functools.partial(from_hugging_face, file, split)
    return readers or _shard_readers(path)


def _metadata_files(path):
    """Returns the metadata files of a folder, or of the folders in it, by split."""
    for base in (path, path / "data"):
        if not base.is_dir():
            continue
        file = _metadata_of(base)
        if file is not None:
            return {reading.ONE_SPLIT: file}
        found = {s: _metadata_of(p) for s, p in split_folders(base).items()}
        found = {name: file for name, file in found.items() if file is not None}
        if found:
            return found
    return {}


def _metadata_of(folder):
    files = (folder / name for name in _METADATA)
    return next((f for f in files if is_file(f) and _has_objects(f)), None)


def _has_objects(path):
    """Returns whether a metadata file has boxes, and not only captions or classes."""
    if path.suffix == ".parquet":
        columns = parquet.require(f"'{path}'").read_schema(local_copy(path)).names
        return any(name in columns for name in (*_OBJECTS, *_BOXES))
    head = head_of(path)
    return any(name.encode() in head for name in (*_OBJECTS, *_BOXES))


# --- Metadata files: one row per image.


def _read_rows(path, problems):
    """Returns the rows of a metadata file as dicts."""
    if path.suffix == ".parquet":
        table = parquet.require(f"'{path}'").read_table(local_copy(path))
        return table.to_pylist()
    if path.suffix == ".csv":
        (_, header), *lines = read_lines(path, "from_hugging_face") or [(1, [])]
        return [{k: _value(v) for k, v in zip(header, cells)} for _, cells in lines]
    rows = read_json_lines(path, "from_hugging_face", problems)
    expected = "json objects, each with `file_name`"
    return [row for _, row in usable_entries(rows, _is_row, expected, path, problems)]


def _is_row(content):
    return isinstance(_first(dict_of(content), _NAMES), str)


def _value(cell):
    """Returns the content of a CSV cell: json, a Python list or dict, or text."""
    if not cell.startswith(("{", "[")):
        return cell
    for parse in (json.loads, ast.literal_eval):
        try:
            return parse(cell)
        except (ValueError, SyntaxError):
            continue
    return cell


def _splits_of(rows):
    """Returns the folders of the images if these are splits, as in `train/a.png`."""
    folders = {_folder_of(row) for row in rows}
    words = ("train", "val", "valid", "validation", "test", "dev")
    return sorted(folders) if len(folders) > 1 and folders <= set(words) else []


def _folder_of(row):
    name = str(_first(row, _NAMES, "")).replace("\\", "/")
    return name.split("/")[0] if "/" in name else ""


def _names_in_card(path):
    """Returns the class names by number in the `README.md` of a dataset, or {}."""
    for folder in (path.parent, path.parent.parent):
        card = folder / "README.md"
        if _is_there(card):
            head = read_text(card).split("---")
            try:
                content = load_yaml(head[1]) if len(head) > 2 else None
            except InvalidValueError:
                continue
            lists = list(_class_labels(content))
            if len(lists) == 1:
                return lists[0]
    return {}


def _is_there(path):
    """Returns whether a file exists.

    Above the repository of an address, the look-up fails, and the result is False.
    """
    try:
        return is_file(path)
    except OSError:
        return False


def _class_labels(content):
    """Yields the names of each `class_label` at any depth of a dataset card."""
    if isinstance(content, list):
        for item in content:
            yield from _class_labels(item)
    elif isinstance(content, dict):
        for key, value in content.items():
            names = value.get("names") if isinstance(value, dict) else None
            if key == "class_label" and isinstance(names, dict):
                yield {int(number): str(name) for number, name in names.items()}
            elif key == "class_label" and isinstance(names, list):
                yield dict(enumerate(map(str, names)))
            else:
                yield from _class_labels(value)


# --- From rows to a dataset.


def _make(rows, images, names, box_format, class_names, problems, source):
    found = [
        _objects_of(row, str(i), box_format, problems) for row, i in zip(rows, images)
    ]
    numbers = [c for objects in found for c in objects.classes if isinstance(c, int)]
    if len(numbers) < sum(len(objects.classes) for objects in found):
        numbers = []  # some classes are names, so all are taken for names
    if numbers and not names:
        names = _names_of_numbers(max(numbers), class_names, source, problems)
    for objects in found:
        objects.classes = [
            names.get(c, c if numbers else str(c)) for c in objects.classes
        ]
    known = list(names.values()) or class_order([], found)
    ids = [_first(row, _IMAGE_IDS) for row in rows]
    are_ids = all(type(i) is int and 0 <= i < 2**63 for i in ids)
    if not are_ids or len(set(ids)) < len(ids):
        ids = [None] * len(rows)
    images = list(map(_found, rows, images, found, ids))
    classes = reading.named_classes(known, class_names)
    dataset = reading.make_dataset(images, classes, problems, source=source)
    return _with_doubt(dataset, problems, source) if box_format == "xywh" else dataset


def _with_doubt(dataset, problems, source):
    """Returns the dataset, with a warning and a note if another box format fits."""
    records = dataset.records
    sizes = np.array([record.image_size for record in records])[owners(records)]
    boxes = concat_field(records, "boxes_xywh")
    text = suspect_box_format(boxes, sizes, are_doubtful=True)
    if text is None:
        return dataset
    formats = " or ".join(map(repr, _BOX_FORMATS[1:]))
    note = Problem("box columns", str(source), f"{text}: `box_format` may be {formats}")
    warnings.warn(
        f"{problems.reader}: {note}. If it is, read the dataset with "
        "`from_hugging_face` and that `box_format`, and keep it with `write_coco`",
        stacklevel=3,
    )
    return dataset._with_problem(note)


def _names_of_numbers(highest, class_names, source, problems):
    """Returns the names, by number, of classes that are numbers from 0."""
    if class_names is None:
        detail = (
            f"classes are numbers from 0 to {highest}: pass their names as "
            "`class_names`"
        )
        problems.add_note("unnamed class", source, detail)
        return {i: str(i) for i in range(min(highest, reading.MAX_CLASSES) + 1)}
    names, ids = requested_classes(class_names)
    return dict(zip(range(len(names)) if ids is None else ids, names))


@dataclasses.dataclass
class _Objects:
    boxes: list
    classes: list
    is_crowd: list
    area: list


def _objects_of(row, place, box_format, problems):
    """Returns the objects of a row: lists in a dict, a list of dicts, or columns."""
    content = _first(row, _OBJECTS, row)
    if isinstance(content, list):
        content = list(map(dict_of, content))
        keys = {key: None for item in content for key in item}
        content = {key: [item.get(key) for item in content] for key in keys}
    content = dict_of(content)
    boxes = _first(content, _BOXES, []) or []
    classes = _first(content, _CLASSES) or []
    result = _Objects([], [], [], [])
    are_lists = isinstance(boxes, list) and isinstance(classes, list)
    if not are_lists or len(boxes) != len(classes):
        detail = "a list `bbox` and one `category` of the same length are expected. "
        detail += f"Received: {reprlib.repr(content)}"
        counts = [len(one) for one in (boxes, classes) if isinstance(one, list)]
        problems.add("bad box", place, detail, count=max(counts, default=1))
        return result
    crowds = _values(content, _CROWDS, len(boxes))
    areas = _values(content, _AREAS, len(boxes))
    for number, (box, name, crowd, area) in enumerate(
        zip(boxes, classes, crowds, areas)
    ):
        numbers = (
            numbers_of(box) if isinstance(box, list | tuple | np.ndarray) else None
        )
        if numbers is None or len(numbers) != 4 or name is None:
            detail = f"object {number}: a class and four finite numbers are expected. "
            detail += f"Received: {name!r}, {reprlib.repr(box)}"
            problems.add("bad box", place, detail)
            continue
        a, b, c, d = numbers
        if box_format == "xyxy":
            c, d = c - a, d - b
        elif box_format == "cxcywh":
            a, b = a - c / 2, b - d / 2
        area = number_of(area)
        result.boxes.append((a, b, c, d))
        result.classes.append(
            int(name) if isinstance(name, int | np.integer) else str(name)
        )
        result.is_crowd.append(bool(crowd))
        result.area.append(c * d if area is None or area < 0 else area)
    return result


def _found(row, image, objects, image_id):
    name = _first(row, _NAMES, "")
    file_name = image.name if isinstance(image, os.PathLike) else ""
    return reading.Found(
        place=file_name or str(image),
        image=image,
        boxes=objects.boxes,
        classes=objects.classes,
        source_id=name if isinstance(name, str) and name else "",
        file_name=file_name,
        image_size=reading.check_size(row.get("height"), row.get("width")),
        is_crowd=objects.is_crowd,
        area=objects.area,
        image_id=image_id,
    )


def _values(content, keys, count):
    """Returns the values of each object, or None for each if there is not one each."""
    values = _first(content, keys)
    is_of_all = isinstance(values, list) and len(values) == count
    return values if is_of_all else [None] * count


def _first(row, keys, default=None):
    """Returns the value of the first of the keys that a row has."""
    return next((row[key] for key in keys if key in row), default)


# --- `datasets.Dataset`, and parquet files that the package `datasets` reads.


@dataclasses.dataclass(frozen=True)
class _DatasetImage(EncodedImage):
    """An image of a `datasets.Dataset`, read when needed; `offset` is its row."""

    rows: Any = dataclasses.field(default=None, compare=False, repr=False)
    column: str = "image"
    fingerprint: str = ""  # of the dataset, as another one may have as many rows

    def read(self) -> bytes:
        """Returns the bytes of the image file, not decoded."""
        image = self.rows[self.offset][self.column]
        if image["bytes"] is not None:
            return image["bytes"]
        return pathlib.Path(image["path"]).read_bytes()

    def __str__(self):
        return f"row {self.offset} of {self.path}"


def _from_dataset(source, split, box_format, options):
    """Returns the dataset of a `datasets.Dataset` or `DatasetDict`."""
    if isinstance(source, dict):
        source = source[reading.chosen_split(source, split, "a DatasetDict")]
    features = getattr(source, "features", None)
    is_dataset = features is not None and hasattr(source, "cast_column")
    if not is_dataset or not hasattr(source, "__len__"):
        raise InvalidTypeError(
            "`from_hugging_face` expects a folder, a metadata file, or a "
            "`datasets.Dataset`, which `datasets.load_dataset` returns without "
            f"`streaming=True`. Received: {type(source).__name__}"
        )
    library = hf_datasets.require("A `datasets.Dataset`")
    images = [n for n, f in features.items() if isinstance(f, library.Image)]
    boxes = [n for n in features if n in (*_OBJECTS, *_BOXES)]
    if len(images) != 1 or not boxes:
        raise InvalidValueError(
            "`from_hugging_face` expects a dataset with one column of images, and with "
            f"`objects` that have `bbox` and `category`. Received: the columns "
            f"{list(features)}"
        )
    (column,) = images
    name = f"a dataset of {len(source):,} rows"
    problems = Problems(f"`from_hugging_face` of {name}", options["on_error"])
    stored = source.cast_column(column, library.Image(decode=False))
    stored = stored.select_columns([column])
    others = [c for c in features if c != column]
    rows = source.select_columns(others).with_format(None)
    image = functools.partial(
        _DatasetImage,
        name,
        length=0,
        rows=stored,
        column=column,
        fingerprint=source._fingerprint,  # the library computes it for each dataset
    )
    places = [image(offset=row) for row in range(len(source))]
    names = _names_in_features(features)
    return _make(
        list(rows), places, names, box_format, options["class_names"], problems, name
    )


def _names_in_features(features):
    """Returns the names in the `ClassLabel` of the objects, by number, or {}."""
    content = _first(features, _OBJECTS, features)
    content = getattr(content, "feature", content)
    content = content[0] if isinstance(content, list) else content
    label = _first(content, _CLASSES)
    label = label[0] if isinstance(label, list) else getattr(label, "feature", label)
    return dict(enumerate(getattr(label, "names", None) or ()))


def _shard_readers(path):
    """Returns the readers of parquet files that have the images in them, by split."""
    if path.is_file():
        return {}
    folders = [folder for folder in (path, path / "data") if folder.is_dir()]
    files = [f for folder in folders for f in sorted(folder.glob(_SHARDS))]
    splits = collections.defaultdict(list)
    for file in (file for file in files if is_visible(file.name)):
        splits[file.name.rpartition("-of-")[0].rpartition("-")[0]].append(file)
    return {
        split: functools.partial(_from_shards, members)
        for split, members in splits.items()
    }


def _from_shards(files, box_format="xywh", class_names=None, on_error="auto"):
    library = hf_datasets.require(f"'{files[0]}', a parquet file with images,")
    names = [str(local_copy(file)) for file in files]
    source = library.Dataset.from_parquet(names)
    options = {"class_names": class_names, "on_error": on_error}
    return _from_dataset(source, None, box_format, options)
