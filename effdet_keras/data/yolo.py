"""YOLO folders, one txt file a picture: to a dataset, and from one."""

import dataclasses
import os
import pathlib
import reprlib

import numpy as np
import yaml

from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.example import clip_boxes_xywh
from effdet_keras.data.problems import Problems
from effdet_keras.data.readers import (
    choose_classes,
    finish_records,
    label_boxes,
    picture_size,
    plain_record,
    read_text,
)
from effdet_keras.data.sidecar import read_sidecar, write_sidecar
from effdet_keras.data.writing import (
    ONE_SPLIT,
    WholeFolder,
    named_splits,
    picture_stems,
    write_pictures,
)
from effdet_keras.images import IMAGE_SUFFIXES

_SPLITS = ("train", "val", "valid", "validation", "test")
_NAME_FILES = ("classes.txt", "obj.names", "predefined_classes.txt")
_MAX_CLASSES = 10_000
_LIMIT = 2.0  # pictures: numbers further out are no fractions of one


def from_yolo(path, split=None, *, class_names=None, on_error="raise"):
    """Reads a dataset in YOLO's form: one txt file a picture.

    A line is `class x y width height`, the center and the sides of a box as
    fractions of the picture, or `class x1 y1 x2 y2 x3 y3 ...`, an outline,
    which becomes its bounding box. The txt file of `images/train/a.jpg` is
    `labels/train/a.txt`, or else `a.txt` beside it. A picture without one is
    a picture without objects.

    Args:
        path: one of

            - a `data.yaml` as Ultralytics has it: `path`, `names` (list or
              dict) or `nc`, and for each split a folder, a list of folders,
              or a txt file that lists pictures;
            - a Darknet `.data` file: `names`, `train`, `valid`;
            - a folder: with one of these, or with `images` and `labels`, or
              with pictures and txt files side by side. Its class names are in
              `classes.txt` or `obj.names`, or else are "0", "1", ...
        split: "train", "val", ...; None takes the only one.
        class_names: names in the order of the labels, to bring a second set in
            line with a first. None takes the names of the set.
        on_error: "raise" tells of everything that is wrong, at once; "skip"
            leaves it out, warns, and keeps it in `dataset.problems`.

    Returns:
        `DetectionDataset`. `image_id` counts from 1 in the order of the paths;
        `source_id` is the file name.

    Raises:
        FileNotFoundError: If the file, the folder of a split, or pictures of
            a list are missing.
        ValueError: If there are several splits and none is named, or with
            "raise" if a line is not of this form or of an unknown class.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> for name in ("images", "labels"):
        ...     (folder / name).mkdir()
        >>> Image.new("RGB", (40, 30)).save(folder / "images/a.png")
        >>> _ = (folder / "labels/a.txt").write_text("0 0.5 0.5 0.1 0.2")
        >>> from_yolo(folder, class_names=["0"])[0]["boxes"].tolist()
        [[12.0, 18.0, 18.0, 22.0]]
    """
    source = os.fspath(path)
    reader = f"`from_yolo` of {source!r}"
    layout = _find_layout(pathlib.Path(path))
    if split is None and len(layout.splits) == 1:
        split = next(iter(layout.splits))
    if split not in layout.splits:
        raise ValueError(
            f"`split` must be one of {list(layout.splits)}. Received: split={split!r}"
        )
    problems = Problems(reader, on_error)
    pictures = layout.pictures(split, problems)
    boxes = _read_all_labels(pictures, problems)
    sidecar = read_sidecar(layout.folder)
    names = layout.class_names or _numbered_names(boxes)
    class_names, category_ids = choose_classes(
        names, class_names, sidecar, reader, problems
    )
    named = [
        (picture.name, [_name_of(int(number), names) for number in rows[:, 0]])
        for picture, rows in zip(pictures, boxes)
    ]
    labels = label_boxes(named, class_names, problems)
    records = _make_records(pictures, boxes, labels, problems)
    records = finish_records(
        records,
        problems,
        source=source,
        sidecar=sidecar,
        split=split,
        names=[record.file_name for record in records],
        class_names=class_names,
    )
    found = problems.finish()
    return DetectionDataset(records, class_names, category_ids, problems=found)


def _read_all_labels(pictures, problems):
    files = [_label_file(picture) for picture in pictures]
    if not any(file.is_file() for file in files):
        detail = f"none of its {len(files):,} pictures has a txt file: no {files[0]}"
        problems.add("no annotation", pictures[0].parent, detail)
    return [_read_labels(file, problems) for file in files]


def _numbered_names(boxes):
    highest = max((rows[:, 0].max() for rows in boxes if len(rows)), default=-1)
    return tuple(str(number) for number in range(int(highest) + 1))


def _make_records(pictures, boxes, labels, problems):
    records = []
    for picture, rows, row_labels in zip(pictures, boxes, labels):
        image_size = picture_size(picture, None, problems)
        if image_size is None:
            continue
        height, width = image_size
        record = plain_record(
            picture,
            image_size,
            rows[:, 1:] * [width, height, width, height],
            row_labels,
            source_id=picture.name,
            file_name=picture.name,
        )
        records.append(record)
    return records


def yolo_splits(path):
    """Lists the splits that a YOLO folder, `data.yaml` or `.data` file has.

    Args:
        path: as of `from_yolo`.

    Returns:
        List of str.

    Raises:
        FileNotFoundError: If nothing there is in YOLO's form.
        ValueError: If the file cannot be read.
    """
    return list(_find_layout(pathlib.Path(path)).splits)


@dataclasses.dataclass(frozen=True)
class _Layout:
    """Where a set has its pictures: each split's folders, or files listing them."""

    folder: pathlib.Path
    splits: dict
    class_names: tuple | None

    def pictures(self, split, problems):
        """The paths of a split's pictures, sorted in each folder."""
        paths = []
        for entry in self.splits[split]:
            place = self._find(entry)
            if place.is_dir():
                paths += _pictures_below(place)
            else:
                paths += self._listed(place, problems)
        if not paths:
            raise FileNotFoundError(
                f"`from_yolo` found no picture. Received: split={split!r} with "
                f"{self.splits[split]} in {str(self.folder)!r}"
            )
        return list(dict.fromkeys(paths))

    def _find(self, entry):
        # Ultralytics looks from `path`; Roboflow writes "../train/images" into
        # the folder that has "train" in it.
        entry = pathlib.Path(entry)
        inner = pathlib.Path(*[part for part in entry.parts if part != ".."])
        for candidate in (self.folder / entry, self.folder / inner):
            if os.path.exists(candidate):
                return candidate
        raise FileNotFoundError(
            f"`from_yolo` expects each split to be a folder or a list of pictures. "
            f"Received: {str(self.folder / entry)!r}, which is not there"
        )

    def _listed(self, path, problems):
        paths = []
        for line in read_text(path).splitlines():
            if line.strip():
                name = pathlib.Path(line.strip())
                places = [path.parent / name, self.folder / name]
                there = [place for place in places if place.is_file()]
                paths += there[:1]
                if not there:
                    problems.add("missing picture", line.strip(), f"of {path.name}")
        return paths


def _find_layout(path):
    if path.is_file():
        is_darknet = path.suffix == ".data"
        return _darknet_layout(path) if is_darknet else _yaml_layout(path)
    if not path.is_dir():
        raise FileNotFoundError(
            "`from_yolo` expects a data.yaml, a .data file or a folder. "
            f"Received: path={str(path)!r}"
        )
    files = [*sorted(path.glob("*.yaml")), *sorted(path.glob("*.yml"))]
    files = [file for file in files if b"names" in file.read_bytes()]
    files.sort(key=lambda file: file.stem != "data")
    if files:
        return _yaml_layout(files[0])
    files = sorted(path.glob("*.data"))
    return _darknet_layout(files[0]) if files else _folder_layout(path)


def _yaml_layout(path):
    content = _read_yaml(path)
    folder = path.parent
    base = content.get("path")
    if isinstance(base, str) and (folder / base).is_dir():
        folder = folder / base
    splits = {}
    for key, value in content.items():
        if value and _is_split(key, value, folder):
            splits[key] = _entries(key, value, path)
    if not splits:
        raise ValueError(
            f"A data.yaml must have `train`, `val` or `test`. Received: {str(path)!r} "
            f"with {reprlib.repr(list(content))}"
        )
    return _Layout(folder, splits, _yaml_names(content, path))


def _is_split(key, value, folder):
    if key in _SPLITS[:-1]:
        return True
    # "test" is often named but not given, and other keys are no splits.
    if not isinstance(key, str) or key in ("path", "names"):
        return False
    entry = value[0] if isinstance(value, list) else value
    return isinstance(entry, str) and os.path.exists(folder / entry)


def _entries(split, value, path):
    entries = value if isinstance(value, list) else [value]
    if not all(isinstance(entry, str) for entry in entries):
        raise ValueError(
            f"`{split}` of a data.yaml must be a path or a list of paths. "
            f"Received: {str(path)!r} with {reprlib.repr(value)}"
        )
    return entries


def _read_yaml(path):
    try:
        content = yaml.safe_load(path.read_bytes())
    except _UNREADABLE_YAML as error:
        raise ValueError(
            f"`from_yolo` expects a yaml file. Received: {str(path)!r} "
            f"({type(error).__name__}: {error})"
        ) from error
    if not isinstance(content, dict):
        raise ValueError(
            "`from_yolo` expects a yaml file with `names` and `train`. "
            f"Received: {str(path)!r} with {reprlib.repr(content)}"
        )
    return content


# PyYAML lets errors of Python pass where a value is not of its tag.
_UNREADABLE_YAML = (
    *(yaml.YAMLError, ValueError, TypeError, LookupError),
    *(AttributeError, OverflowError, RecursionError),
)


def _yaml_names(content, path):
    names = content.get("names")
    if isinstance(names, dict) and set(names) == set(range(len(names))):
        names = [names[i] for i in range(len(names))]
    if (
        names is None
        and type(content.get("nc")) is int
        and 0 < content["nc"] <= _MAX_CLASSES
    ):
        names = [str(i) for i in range(content["nc"])]
    if not isinstance(names, list) or not all(
        isinstance(name, str | int | float) for name in names
    ):
        raise ValueError(
            "`names` of a data.yaml must be a list of class names, or a dict of them "
            f"by number from 0. Received: {str(path)!r} with {reprlib.repr(names)}"
        )
    return tuple(str(name) for name in names)


def _darknet_layout(path):
    lines = [line.partition("=") for line in read_text(path).splitlines()]
    content = {key.strip(): value.strip() for key, _, value in lines if value.strip()}
    splits = {key: [content[key]] for key in _SPLITS if key in content}
    if not splits or "names" not in content:
        raise ValueError(
            "A .data file must have lines `train = ...` and `names = ...`. "
            f"Received: {str(path)!r}"
        )
    # Darknet's paths start from where it is called: its folder's parent, or itself.
    for folder in (path.parent, *path.parent.parents):
        if (folder / content["names"]).is_file():
            return _Layout(folder, splits, _lines(folder / content["names"]))
    raise FileNotFoundError(
        f"`from_yolo` found no file of names. Received: {str(path)!r} with "
        f"names={content['names']!r}"
    )


def _folder_layout(path):
    splits = _folder_splits(path)
    if not splits:
        raise FileNotFoundError(
            "`from_yolo` expects a folder with a data.yaml, with `images` and "
            "`labels`, or with pictures and txt files. "
            f"Received: path={str(path)!r}"
        )
    places = [path, path / "labels", path / "labels" / "train", path.parent]
    files = [place / name for place in places for name in _NAME_FILES]
    names = next((_lines(file) for file in files if file.is_file()), None)
    return _Layout(path, splits, names)


def _folder_splits(path):
    images, labels = path / "images", path / "labels"
    if images.is_dir() and labels.is_dir():
        inner = sorted(place.name for place in images.iterdir() if place.is_dir())
        if inner and not _has_pictures(images):
            return {name: [f"images/{name}"] for name in inner}
        return {ONE_SPLIT: ["images"]}
    inner = [name for name in _SPLITS if (path / name / "labels").is_dir()]
    if inner:
        return {name: [f"{name}/images"] for name in inner}
    beside = any(_label_file(picture).is_file() for picture in _pictures_in(path))
    return {ONE_SPLIT: ["."]} if beside else {}


def _pictures_in(folder):
    return (path for path in folder.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES)


def _has_pictures(folder):
    return any(True for _ in _pictures_in(folder))


def _pictures_below(folder):
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".")
    )


def _label_file(path):
    """The txt file of a picture: in `labels` for `images`, or beside it."""
    parts = list(path.parts)
    if "images" in parts[:-1]:
        last = len(parts) - 2 - parts[-2::-1].index("images")
        parts[last] = "labels"
        file = pathlib.Path(*parts).with_suffix(".txt")
        if file.is_file():
            return file
    return path.with_suffix(".txt")


def _read_labels(path, problems):
    """The boxes of a txt file, `[n, 5]`: class, left, top, width, height."""
    if not path.is_file():
        return np.zeros((0, 5))
    try:
        lines = read_text(path).splitlines()
    except ValueError as error:
        problems.add("unreadable annotation", path, str(error))
        return np.zeros((0, 5))
    rows = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        row = _read_row(line)
        if isinstance(row, str):
            detail = f"line {number}: {row}. Received: {reprlib.repr(line)}"
            problems.add("bad box", path, detail)
        else:
            rows.append(row)
    return np.array(rows, np.float64).reshape(-1, 5)


def _read_row(line):
    """`(class, left, top, width, height)` of a line, or what is wrong with it."""
    try:
        numbers = [float(word) for word in line.split()]
    except ValueError:
        return "numbers are expected"
    label, values = numbers[0], np.array(numbers[1:])
    if not (label.is_integer() and 0 <= label < _MAX_CLASSES):
        return "the first number must be that of a class"
    if len(values) != 4 and (len(values) < 6 or len(values) % 2):
        return "four numbers of a box or three or more points are expected"
    if not (np.abs(values) <= _LIMIT).all():
        return "fractions of the picture are expected, not pixels"
    if len(values) == 4:
        sides = values[2:]
        return (label, *(values[:2] - sides / 2), *sides)
    points = values.reshape(-1, 2)
    low, high = points.min(axis=0), points.max(axis=0)
    return (label, *low, *(high - low))


def _name_of(number, names):
    if number < len(names):
        return names[number]
    return f"number {number} (the names end at {len(names) - 1})"


def _lines(path):
    return tuple(line.strip() for line in read_text(path).splitlines() if line.strip())


def write_yolo(datasets, folder):
    """Writes a new folder in YOLO's form: `images/SPLIT`, `labels/SPLIT`, `data.yaml`.

    Boxes are clipped to their picture, as readers of this form ask for
    fractions from 0 to 1; those without area are left out. Crowds have no
    mark in this form: other programs see ordinary boxes. `effdet_keras.json`
    keeps which they are, ids, file names and areas.

    Args:
        datasets: `DetectionDataset`, or dict of split name to one. Other
            programs ask for the splits "train" and "val".
        folder: folder to make; it appears once it is complete.

    Returns:
        `None`.

    Raises:
        FileExistsError: If the folder is there.
        ValueError: If splits differ in their classes, or a picture cannot be
            decoded.

    Example:
        >>> import tempfile
        >>> from effdet_keras.data import from_arrays
        >>> image = np.zeros((32, 64, 3), "uint8")
        >>> dataset = from_arrays([image], [[[4, 8, 20, 40]]], [[0]], ["cat"])
        >>> folder = pathlib.Path(tempfile.mkdtemp()) / "cats"
        >>> write_yolo(dataset, folder)
        >>> print((folder / "labels/train/000000000001.txt").read_text())
        0 0.375 0.375 0.5 0.5
        >>> from_yolo(folder)[0]["boxes"].tolist()
        [[4.0, 8.0, 20.0, 40.0]]
    """
    datasets = named_splits(datasets, usable=True)
    names = {}
    with WholeFolder(folder) as partial:
        for split, dataset in datasets.items():
            stems = picture_stems(dataset.records)
            names[split] = write_pictures(
                dataset.records, partial / "images" / split, stems
            )
            labels = partial / "labels" / split
            labels.mkdir(parents=True)
            for stem, record in zip(stems, dataset.records):
                text = "".join(f"{row}\n" for row in _rows(record))
                (labels / f"{stem}.txt").write_text(text, encoding="utf-8")
        content = {split: f"images/{split}" for split in datasets}
        class_names = next(iter(datasets.values())).class_names
        content["names"] = dict(enumerate(class_names))
        text = yaml.safe_dump(content, allow_unicode=True, sort_keys=False)
        (partial / "data.yaml").write_text(text, encoding="utf-8")
        write_sidecar(partial, datasets, names)


def _rows(record):
    boxes, _ = clip_boxes_xywh(record.boxes_xywh, record.image_size)
    boxes = boxes / np.tile(np.float64(record.image_size), 2)
    centers, sides = (boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]
    for label, (y, x), (height, width) in zip(record.labels, centers, sides):
        # Nine digits: a thousandth of a pixel in a picture of a million.
        yield f"{label} {x:.9g} {y:.9g} {width:.9g} {height:.9g}"
