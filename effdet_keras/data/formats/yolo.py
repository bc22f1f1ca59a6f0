"""YOLO folders, one txt file per image: to a dataset, and from one."""

from __future__ import annotations

import functools
import os
import pathlib
from collections.abc import Mapping

import numpy as np

from effdet_keras._internal.remote_path import exists, path_of
from effdet_keras._internal.whole_files import atomic_folder, is_remote
from effdet_keras._internal.yaml_text import load_yaml, read_text, to_yaml
from effdet_keras.data.dataset import DetectionDataset, check_class_names
from effdet_keras.data.formats import reading, writing, yolo_rows
from effdet_keras.data.formats.annotation_files import has_other_labels
from effdet_keras.data.formats.label_map import ClassNames
from effdet_keras.data.problems import Problems
from effdet_keras.data.record import clip_boxes_xywh
from effdet_keras.errors import InvalidValueError
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

    Left out, with a warning that counts the rows, are the key points of a pose dataset
    (`kpt_shape` in data.yaml), a confidence and a track id behind the box, and a
    number too many behind an outline. An oriented box, four corners, becomes the
    upright box around it. Files in `labelTxt/` are in DOTA's format: four corners in
    pixels, the name of the class, and 1 for a difficult object, which becomes a crowd.

    Args:
        path: a `data.yaml` as Ultralytics has it: `path`, `names` (list or dict), and
            for each split a folder, a list of folders, or a txt file that lists images;
            or a folder with one, with `images` and `labels`, or with images and txt
            files side by side. Its class names are in `classes.txt` or `obj.names`, or
            else are "0", "1", ...
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
    folder, splits, names = find_layout(path)
    split = reading.chosen_split(splits, split, source)
    problems = Problems(f"`from_yolo` of {source!r}", on_error)
    images = _images_of(folder, splits[split], problems)
    files = [label_file(image) for image in images]
    if not any(file.is_file() for file in files):
        detail = f"none of its {len(files):,} images has a txt file: no {files[0]}"
        problems.add("no annotation", images[0].parent, detail)
    key_points = _read_key_points(path)
    tables = yolo_rows.read_label_tables(files, key_points, problems)
    used = {label for table in tables if table is not None for label in table.classes}
    names = names or _names_of(used)
    check_class_names(names, f"the dataset {source!r}")
    name_of = dict(enumerate(names))
    found = [
        reading.Found(
            place=image.name,
            image=image,
            boxes=table.boxes,
            classes=[name_of.get(number, number) for number in table.classes],
            source_id=image.name,
            file_name=image.name,
            normalized_coordinates=table.normalized_coordinates,
            is_crowd=table.is_crowd,
        )
        for image, table in zip(images, tables)
        if table is not None
    ]
    classes = reading.named_classes(names, class_names)
    return reading.make_dataset(found, classes, problems, source=source)


def _names_of(used):
    """The names of classes that no file lists: names that rows have, or numbers."""
    if texts := sorted(label for label in used if isinstance(label, str)):
        return tuple(texts)
    highest = max(map(int, used), default=-1)
    return tuple(str(number) for number in range(highest + 1))


def write_yolo(
    datasets: DetectionDataset | Mapping[str, DetectionDataset],
    folder: str | os.PathLike[str],
) -> None:
    """Writes a YOLO folder: `images/SPLIT`, `labels/SPLIT` and `data.yaml`.

    Boxes are clipped to their image, because readers of this format expect fractions
    from 0 to 1. Boxes without area are left out. The format cannot mark crowds, which
    become ordinary boxes, with a warning; nor does it keep ids and areas.

    Args:
        datasets, folder: as for `write_coco`. Other programs ask for the splits "train"
            and "val".

    Raises:
        FileExistsError, ValueError: As `write_coco` does.

    Example: see `from_yolo`.
    """
    datasets = writing.named_splits(datasets, usable=True, masks=False, crowds=False)
    with atomic_folder(folder) as partial:
        for split, dataset in datasets.items():
            stems = writing.image_stems(dataset.records)
            images, labels = (partial / part / split for part in ("images", "labels"))
            writing.write_images(dataset.records, images, stems)
            labels.mkdir(parents=True)
            for stem, record in zip(stems, dataset.records):
                text = "".join(f"{row}\n" for row in _rows(record))
                (labels / f"{stem}.txt").write_text(text, encoding="utf-8")
        content = {split: f"images/{split}" for split in datasets}
        class_names = next(iter(datasets.values())).class_names
        content["names"] = dict(enumerate(class_names))
        (partial / "data.yaml").write_text(to_yaml(content), encoding="utf-8")


def _rows(record):
    boxes, _ = clip_boxes_xywh(record.boxes_xywh, record.image_size)
    boxes = boxes / np.tile(np.float64(record.image_size), 2)
    centers, sides = (boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]
    for label, (y, x), (height, width) in zip(record.labels, centers, sides):
        # Nine digits: a thousandth of a pixel in an image of a million.
        yield f"{label} {x:.9g} {y:.9g} {width:.9g} {height:.9g}"


def yolo_readers(path):
    """Finds the splits of a YOLO dataset: dict to the functions that read them."""
    if path.is_file() and path.suffix.lower() not in (".yaml", ".yml"):
        return {}
    if path.is_dir() and has_other_labels(path):
        return {}
    _, splits, _ = find_layout(path)
    return {split: functools.partial(from_yolo, path, split) for split in splits}


# --- Where a YOLO dataset has its images, txt files and class names.

_SPLITS = ("train", "val", "valid", "validation", "test")
_NAME_FILES = ("classes.txt", "obj.names")
_LABEL_FOLDERS = ("labels", "labelTxt")  # the second has oriented boxes


def find_layout(path):
    """Where a YOLO dataset has its images: its folder, splits, names of classes."""
    path = path_of(path)
    file = _find_yaml(path)
    return _folder_layout(path) if file is None else _yaml_layout(file)


def _find_yaml(path):
    """The data.yaml that a path is, or that lies in a folder; None without one."""
    if path.is_file():
        return path
    files = [*sorted(path.glob("*.yaml")), *sorted(path.glob("*.yml"))]
    # One called data.yaml is meant; of others, which may be anything, one with names.
    meant = [file for file in files if file.stem == "data"]
    meant += [file for file in files if "names" in _read_yaml(file)]
    return meant[0] if meant else None


def _read_key_points(path):
    """The `kpt_shape` of the data.yaml of a dataset, or None."""
    file = _find_yaml(path_of(path))
    return None if file is None else yolo_rows.key_point_shape(_read_yaml(file), file)


def _images_of(folder, entries, problems):
    """The paths of the images of a split, sorted in each folder."""
    paths = []
    for entry in entries:
        # Ultralytics looks from `path`; Roboflow writes "../train/images" into
        # the folder that has "train" in it.
        places = [folder / entry, folder / str(entry).replace("../", "")]
        place = next(filter(exists, places), None)
        if place is None:
            rule = "`from_yolo` expects a folder or a list of images for each split"
            raise FileNotFoundError(f"{rule}. Received: {str(places[0])!r}")
        if place.is_dir():
            paths += sorted(_images_in(place.rglob("*")))
            continue
        for line in filter(None, map(str.strip, read_text(place).splitlines())):
            there = [p for p in (place.parent / line, folder / line) if p.is_file()]
            paths += there[:1]
            if not there:
                problems.add("missing image", line, f"of {place.name}")
    if not paths:
        problems.finish()  # all that a list names may be missing
        raise FileNotFoundError(f"`from_yolo` found no image. Received: {entries}")
    return list(dict.fromkeys(paths))


def label_file(path):
    """Returns the txt file of an image: in `labels` for `images`, or beside it."""
    parts = list(path.parts)
    if "images" in parts[:-1]:
        last = len(parts) - 2 - parts[-2::-1].index("images")
        for folder in _LABEL_FOLDERS:
            parts[last] = folder
            file = path.with_parts(parts) if is_remote(path) else pathlib.Path(*parts)
            file = file.with_suffix(".txt")
            if file.is_file():
                return file
    return path.with_suffix(".txt")


def _yaml_layout(path):
    """Returns a data.yaml's base folder, its entries by split, and its class names."""
    content = _read_yaml(path)
    base = content.get("path")
    has_base = isinstance(base, str) and (path.parent / base).is_dir()
    folder = path.parent / base if has_base else path.parent
    splits = {}
    # Splits by any name, if they look as `write_yolo` writes them.
    named = [key for key, value in content.items() if value == f"images/{key}"]
    for key in dict.fromkeys([*_SPLITS, *named]):
        value = content.get(key)
        entries = value if isinstance(value, list) else [value]
        rule = f"`{key}` of a data.yaml must be a path, or a list of paths"
        are_paths = not value or all(isinstance(entry, str) for entry in entries)
        reading.require_content(are_paths, rule, path, value)
        # "test" is often named but not given.
        if value and (key != "test" or exists(folder / entries[0])):
            splits[key] = entries
    rule = "A data.yaml must have `train`, `val` or `test`"
    reading.require_content(splits, rule, path, list(content))
    names = content.get("names")
    if isinstance(names, dict) and set(names) == set(range(len(names))):
        names = [names[i] for i in range(len(names))]
    are_names = isinstance(names, list) and all(isinstance(n, str) for n in names)
    rule = (
        "`names` of a data.yaml must be a list of class names, or a dict of them by "
        "number from 0"
    )
    reading.require_content(are_names, rule, path, names)
    return folder, splits, tuple(names)


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


def _folder_layout(path):
    splits = _folder_splits(path)
    if not splits:
        raise FileNotFoundError(
            "`from_yolo` expects a folder with a data.yaml, with `images` and "
            f"`labels`, or with images and txt files. Received: path={str(path)!r}"
        )
    places = [path, path / "labels", path / "labels" / "train", path.parent]
    files = [place / name for place in places for name in _NAME_FILES]
    file = next((file for file in files if file.is_file()), None)
    # Blank lines inside stay: without them the labels would be shifted.
    lines = read_text(file).rstrip().splitlines() if file else []
    return path, splits, tuple(line.strip() for line in lines)


def _folder_splits(path):
    images = path / "images"
    if images.is_dir() and _has_labels(path):
        inner = sorted(place.name for place in images.iterdir() if place.is_dir())
        if inner and not _images_in(images.iterdir()):
            return {name: [f"images/{name}"] for name in inner}
        return {reading.ONE_SPLIT: ["images"]}
    inner = [name for name in _SPLITS if _has_labels(path / name)]
    if inner:
        return {name: [f"{name}/images"] for name in inner}
    beside = any(label_file(image).is_file() for image in _images_in(path.iterdir()))
    return {reading.ONE_SPLIT: ["."]} if beside else {}


def _has_labels(folder):
    return any((folder / name).is_dir() for name in _LABEL_FOLDERS)


def _images_in(paths):
    return [
        path
        for path in paths
        if path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".")
    ]
