"""YOLO folders, one txt file per image: to a dataset, and from one."""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
from collections.abc import Mapping

import numpy as np
import yaml

from effdet_keras._internal.remote_path import exists, for_each, path_of
from effdet_keras._internal.whole_files import is_remote, new_folder
from effdet_keras._internal.yaml_text import load_yaml, read_text
from effdet_keras.data.dataset import DetectionDataset, check_class_names
from effdet_keras.data.formats import reading, writing
from effdet_keras.data.formats.label_map import ClassNames
from effdet_keras.data.formats.sidecar import read_sidecar, write_sidecar
from effdet_keras.data.problems import Problems
from effdet_keras.data.record import clip_boxes_xywh
from effdet_keras.errors import InvalidValueError, require
from effdet_keras.images import IMAGE_SUFFIXES


def from_yolo(
    path: str | os.PathLike[str],
    split: str | None = None,
    *,
    class_names: ClassNames | None = None,
    on_error: str = "raise",
) -> DetectionDataset:
    """Reads a dataset in YOLO's format: one txt file per image.

    A line is `class x y width height`, the center and the sides of a box as fractions
    of the image, or `class x1 y1 x2 y2 x3 y3 ...`, an outline, which becomes its
    bounding box. The txt file of `images/train/a.jpg` is `labels/train/a.txt`, or else
    `a.txt` beside it. An image without a txt file has no objects.

    Args:
        path: a `data.yaml` as Ultralytics has it: `path`, `names` (list or dict) or
            `nc`, and for each split a folder, a list of folders, or a txt file that
            lists images; a Darknet `.data` file: `names`, `train`, `valid`; or a folder
            with one of these, with `images` and `labels`, or with images and txt files
            side by side. Its class names are in `classes.txt` or `obj.names`, or else
            are "0", "1", ...
        split: "train", "val", ...; None takes the only one.
        class_names, on_error: as for `load`.

    Returns:
        `DetectionDataset`. `image_id` counts from 1 in the order of the paths;
        `source_id` is the file name.

    Raises:
        FileNotFoundError: If the file, the folder of a split, or images of a list are
            missing.
        ValueError: If there are several splits and none is named, or with "raise" if a
            line has another format or an unknown class.

    Example:
        >>> import pathlib, tempfile
        >>> from effdet_keras.data.formats.arrays import from_arrays
        >>> image = np.zeros((32, 64, 3), "uint8")
        >>> dataset = from_arrays([image], [[[4, 8, 20, 40]]], [[0]], ["cat"])
        >>> folder = pathlib.Path(tempfile.mkdtemp()) / "cats"
        >>> write_yolo(dataset, folder)
        >>> print((folder / "labels/train/000000000001.txt").read_text())
        0 0.375 0.375 0.5 0.5
        >>> from_yolo(folder)[0]["boxes"].tolist()
        [[4.0, 8.0, 20.0, 40.0]]
    """
    source = os.fspath(path)
    layout = find_layout(path)
    split = reading.chosen_split(layout.splits, split, source)
    problems = Problems(f"`from_yolo` of {source!r}", on_error)
    images = layout.images(split, problems)
    files = [label_file(image) for image in images]
    if not any(file.is_file() for file in files):
        detail = f"none of its {len(files):,} images has a txt file: no {files[0]}"
        problems.add("no annotation", images[0].parent, detail)
    tables = for_each(lambda file: _read_labels(file, problems), files)
    highest = max((int(rows[:, 0].max()) for rows in tables if len(rows)), default=-1)
    names = layout.class_names or tuple(str(number) for number in range(highest + 1))
    check_class_names(names, f"the dataset {source!r}")
    renamed = dict(enumerate(layout.class_names or ()))
    sidecar = read_sidecar(layout.folder).renamed(renamed)

    def name_of(number):
        if number < len(names):
            return names[number]
        return f"number {number} (the names end at {len(names) - 1})"

    found = [
        reading.Found(
            place=image.name,
            image=image,
            boxes=rows[:, 1:],
            classes=[name_of(number) for number in rows[:, 0].astype(int).tolist()],
            source_id=image.name,
            file_name=image.name,
            in_fractions=True,
        )
        for image, rows in zip(images, tables)
    ]
    return reading.make_dataset(
        found,
        reading.named_classes(names, class_names, sidecar),
        problems,
        source=source,
        sidecar=sidecar,
        split=split,
    )


def _read_labels(path, problems):
    """The boxes of a txt file, `[n, 5]`: class, left, top, width, height."""
    if not path.is_file():
        return np.zeros((0, 5))
    try:
        lines = enumerate(read_text(path).splitlines(), 1)
    except ValueError as error:
        problems.add("unreadable annotation", path, str(error))
        return np.zeros((0, 5))
    lines = [(number, line) for number, line in lines if line.strip()]
    rows = reading.read_rows(_read_row, lines, problems, path)
    return np.array(rows, np.float64).reshape(-1, 5)


def _read_row(line):
    """`(class, left, top, width, height)` of a line, or what is wrong with it."""
    try:
        numbers = [float(word) for word in line.split()]
    except ValueError:
        return "numbers are expected"
    label, values = numbers[0], np.array(numbers[1:])
    if not (label.is_integer() and 0 <= label < reading.MAX_CLASSES):
        return "the first number must be that of a class"
    if len(values) != 4 and (len(values) < 6 or len(values) % 2):
        return "four numbers of a box or three or more points are expected"
    if not (np.abs(values) <= reading.MAX_FRACTION).all():
        return "fractions of the image are expected, not pixels"
    if len(values) == 4:
        sides = values[2:]
        return (label, *(values[:2] - sides / 2), *sides)
    points = values.reshape(-1, 2)
    low, high = points.min(axis=0), points.max(axis=0)
    return (label, *low, *(high - low))


def write_yolo(
    datasets: DetectionDataset | Mapping[str, DetectionDataset],
    folder: str | os.PathLike[str],
) -> None:
    """Writes a YOLO folder: `images/SPLIT`, `labels/SPLIT` and `data.yaml`.

    Boxes are clipped to their image, because readers of this format expect fractions
    from 0 to 1. Boxes without area are left out. The format cannot mark crowds: other
    programs see ordinary boxes. `effdet_keras.json` keeps which boxes are crowds, and
    ids, file names and areas.

    Args:
        datasets, folder: as for `write_coco`. Other programs ask for the splits "train"
            and "val".

    Raises:
        FileExistsError, ValueError: As `write_coco` does.

    Example: see `from_yolo`.
    """
    datasets = writing.named_splits(datasets, usable=True, masks=False)
    names = {}
    with new_folder(folder) as partial:
        for split, dataset in datasets.items():
            stems = writing.image_stems(dataset.records)
            images, labels = (partial / part / split for part in ("images", "labels"))
            names[split] = writing.write_images(dataset.records, images, stems)
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
        # Nine digits: a thousandth of a pixel in an image of a million.
        yield f"{label} {x:.9g} {y:.9g} {width:.9g} {height:.9g}"


def yolo_readers(path):
    """Finds the splits of a YOLO dataset: dict to the functions that read them."""
    if path.is_file() and path.suffix.lower() not in (".yaml", ".yml", ".data"):
        return {}
    splits = find_layout(path).splits
    return {split: functools.partial(from_yolo, path, split) for split in splits}


# --- Where a YOLO dataset has its images, txt files and class names.

_SPLITS = ("train", "val", "valid", "validation", "test")
_NAME_FILES = ("classes.txt", "obj.names", "predefined_classes.txt")


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where a YOLO dataset has its images."""

    folder: pathlib.Path
    splits: dict
    class_names: tuple | None

    def images(self, split, problems):
        """The paths of a split's images, sorted in each folder."""
        paths = []
        for entry in self.splits[split]:
            place = self._find(entry)
            if place.is_dir():
                paths += _images_below(place)
            else:
                paths += self._listed(place, problems)
        if not paths:
            problems.finish()  # all that a list names may be missing
            raise FileNotFoundError(
                f"`from_yolo` found no image. Received: split={split!r} with "
                f"{self.splits[split]} in {str(self.folder)!r}"
            )
        return list(dict.fromkeys(paths))

    def _find(self, entry):
        # Ultralytics looks from `path`; Roboflow writes "../train/images" into
        # the folder that has "train" in it.
        entry = pathlib.Path(entry)
        inner = pathlib.Path(*[part for part in entry.parts if part != ".."])
        for candidate in (self.folder / entry, self.folder / inner):
            if exists(candidate):
                return candidate
        raise FileNotFoundError(
            f"`from_yolo` expects each split to be a folder or a list of images. "
            f"Received: {str(self.folder / entry)!r}, which is not there"
        )

    def _listed(self, path, problems):
        paths = []
        for line in map(str.strip, read_text(path).splitlines()):
            places = [path.parent / line, self.folder / line] if line else []
            there = [place for place in places if place.is_file()]
            paths += there[:1]
            if line and not there:
                problems.add("missing image", line, f"of {path.name}")
        return paths


def find_layout(path):
    """Finds out how a YOLO dataset is laid out."""
    path = path_of(path)
    if not path.is_file() and not path.is_dir():
        raise FileNotFoundError(
            "`from_yolo` expects a data.yaml, a .data file or a folder. "
            f"Received: path={str(path)!r}"
        )
    files = [path]
    if path.is_dir():
        files = [*sorted(path.glob("*.yaml")), *sorted(path.glob("*.yml"))]
        files.sort(key=lambda file: file.stem != "data")
        # One of this name is meant; of others, which may be anything, one with names.
        files = [file for file in files if file.stem == "data" or _is_of_yolo(file)]
        files += sorted(path.glob("*.data"))
    if not files:
        return _folder_layout(path)
    is_darknet = files[0].suffix == ".data"
    return _darknet_layout(files[0]) if is_darknet else _yaml_layout(files[0])


def _is_of_yolo(path):
    try:
        return "names" in _read_yaml(path)
    except InvalidValueError:
        return False


def label_file(path):
    """Returns the txt file of an image: in `labels` for `images`, or beside it."""
    parts = list(path.parts)
    if "images" in parts[:-1]:
        last = len(parts) - 2 - parts[-2::-1].index("images")
        parts[last] = "labels"
        file = path.with_parts(parts) if is_remote(path) else pathlib.Path(*parts)
        file = file.with_suffix(".txt")
        if file.is_file():
            return file
    return path.with_suffix(".txt")


def _yaml_layout(path):
    content = _read_yaml(path)
    base = content.get("path")
    has_base = isinstance(base, str) and (path.parent / base).is_dir()
    folder = path.parent / base if has_base else path.parent
    splits = {}
    for key, value in content.items():
        entries = value if isinstance(value, list) else [value]
        # "test" is often named but not given, and other keys are no splits.
        if not value or key in ("path", "names") or not isinstance(key, str):
            continue
        is_there = isinstance(entries[0], str) and exists(folder / entries[0])
        if key not in _SPLITS[:-1] and not is_there:
            continue
        are_paths = all(isinstance(entry, str) for entry in entries)
        rule = f"`{key}` of a data.yaml must be a path or a list of paths"
        reading.require_content(are_paths, rule, path, value)
        splits[key] = entries
    rule = "A data.yaml must have `train`, `val` or `test`"
    reading.require_content(splits, rule, path, list(content))
    return Layout(folder, splits, _yaml_names(content, path))


def _read_yaml(path):
    text = read_text(path)
    try:
        content = load_yaml(text)
    except InvalidValueError as error:
        raise InvalidValueError(
            f"`from_yolo` expects a yaml file. Received: {str(path)!r} ({error})"
        ) from error
    rule = "`from_yolo` expects a yaml file with `names` and `train`"
    reading.require_content(isinstance(content, dict), rule, path, content)
    return content


def _yaml_names(content, path):
    names = content.get("names")
    if isinstance(names, dict) and set(names) == set(range(len(names))):
        names = [names[i] for i in range(len(names))]
    count = content.get("nc")
    if names is None and type(count) is int and 0 < count <= reading.MAX_CLASSES:
        names = [str(i) for i in range(count)]
    are_names = isinstance(names, list) and all(isinstance(n, str) for n in names)
    rule = (
        "`names` of a data.yaml must be a list of class names, or a dict of them by "
        "number from 0"
    )
    reading.require_content(are_names, rule, path, names)
    return tuple(names)


def _darknet_layout(path):
    lines = [line.partition("=") for line in read_text(path).splitlines()]
    content = {key.strip(): value.strip() for key, _, value in lines if value.strip()}
    splits = {key: [content[key]] for key in _SPLITS if key in content}
    rule = "A .data file must have lines `train = ...` and `names = ...`"
    require(splits and "names" in content, rule, path=str(path))
    # Darknet's paths start from where it is called: its folder's parent, or itself.
    for folder in (path.parent, *path.parent.parents):
        if (folder / content["names"]).is_file():
            return Layout(folder, splits, _names_in(folder / content["names"]))
    raise FileNotFoundError(
        f"`from_yolo` found no file of names. Received: {str(path)!r} with "
        f"names={content['names']!r}"
    )


def _folder_layout(path):
    splits = _folder_splits(path)
    if not splits:
        raise FileNotFoundError(
            "`from_yolo` expects a folder with a data.yaml, with `images` and "
            f"`labels`, or with images and txt files. Received: path={str(path)!r}"
        )
    places = [path, path / "labels", path / "labels" / "train", path.parent]
    files = [place / name for place in places for name in _NAME_FILES]
    names = next((_names_in(file) for file in files if file.is_file()), None)
    return Layout(path, splits, names)


def _folder_splits(path):
    images, labels = path / "images", path / "labels"
    if images.is_dir() and labels.is_dir():
        inner = sorted(place.name for place in images.iterdir() if place.is_dir())
        if inner and not any(True for _ in _images_in(images)):
            return {name: [f"images/{name}"] for name in inner}
        return {reading.ONE_SPLIT: ["images"]}
    inner = [name for name in _SPLITS if (path / name / "labels").is_dir()]
    if inner:
        return {name: [f"{name}/images"] for name in inner}
    beside = any(label_file(image).is_file() for image in _images_in(path))
    return {reading.ONE_SPLIT: ["."]} if beside else {}


def _images_in(folder):
    return (path for path in folder.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES)


def _images_below(folder):
    whole = folder.resolve()
    is_whole = whole in (whole.parent, pathlib.Path.home())  # by `train: /`, a slip
    rule = "A split must be a folder of images, not a whole disk or home folder"
    require(not is_whole, rule, folder=str(whole))
    images = (p for p in folder.rglob("*") if p.suffix.lower() in IMAGE_SUFFIXES)
    return sorted(path for path in images if not path.name.startswith("."))


def _names_in(path):
    """The lines, without blank ones at the end: others would shift the labels."""
    return tuple(line.strip() for line in read_text(path).rstrip().splitlines())
