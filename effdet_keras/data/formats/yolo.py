"""YOLO folders, one txt file per image: to a dataset, and from one."""

from __future__ import annotations

import functools
import os
import reprlib
from collections.abc import Mapping

import numpy as np
import yaml

from effdet_keras._internal.remote_path import for_each
from effdet_keras._internal.whole_files import new_folder
from effdet_keras._internal.yaml_text import read_text
from effdet_keras.data.dataset import DetectionDataset, check_class_names
from effdet_keras.data.formats.folder_writing import (
    image_stems,
    named_splits,
    write_images,
)
from effdet_keras.data.formats.label_map import ClassNames
from effdet_keras.data.formats.record_building import (
    choose_classes,
    find_image_size,
    finish_records,
    label_boxes,
    plain_record,
)
from effdet_keras.data.formats.sidecar import read_sidecar, write_sidecar
from effdet_keras.data.formats.yolo_layout import MAX_CLASSES, find_layout, label_file
from effdet_keras.data.problems import Problems
from effdet_keras.data.record import clip_boxes_xywh
from effdet_keras.errors import InvalidValueError

_LIMIT = 2.0  # images: numbers further out are no fractions of one


def from_yolo(
    path: str | os.PathLike[str],
    split: str | None = None,
    *,
    class_names: ClassNames | None = None,
    on_error: str = "raise",
) -> DetectionDataset:
    """Reads a dataset in YOLO's format: one txt file per image.

    A line is `class x y width height`, the center and the sides of a box as
    fractions of the image, or `class x1 y1 x2 y2 x3 y3 ...`, an outline,
    which becomes its bounding box. The txt file of `images/train/a.jpg` is
    `labels/train/a.txt`, or else `a.txt` beside it. An image without a txt file has
    no objects.

    Args:
        path: one of

            - a `data.yaml` as Ultralytics has it: `path`, `names` (list or
              dict) or `nc`, and for each split a folder, a list of folders,
              or a txt file that lists images;
            - a Darknet `.data` file: `names`, `train`, `valid`;
            - a folder: with one of these, or with `images` and `labels`, or
              with images and txt files side by side. Its class names are in
              `classes.txt` or `obj.names`, or else are "0", "1", ...
        split: "train", "val", ...; None takes the only one.
        class_names: names in the order of the labels, to bring a second dataset in
            line with a first one: pass the first dataset's `class_names`, which may
            have classes that are not in this one. Or a label map, as for `load`. None
            takes the dataset's own.
        on_error: "raise" raises one error that names everything that is wrong;
            "skip" leaves it out, warns, and lists it in `dataset.problems`.

    Returns:
        `DetectionDataset`. `image_id` counts from 1 in the order of the paths;
        `source_id` is the file name.

    Raises:
        FileNotFoundError: If the file, the folder of a split, or images of
            a list are missing.
        ValueError: If there are several splits and none is named, or with
            "raise" if a line has another format or an unknown class.

    Example:
        >>> import pathlib, tempfile
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
    layout = find_layout(path)
    if split is None and len(layout.splits) == 1:
        split = next(iter(layout.splits))
    if split not in layout.splits:
        raise InvalidValueError(
            f"`split` must be one of {list(layout.splits)}. Received: split={split!r}"
        )
    problems = Problems(reader, on_error)
    images = layout.images(split, problems)
    boxes = _read_all_labels(images, problems)
    sidecar = read_sidecar(layout.folder)
    names = layout.class_names or _numbered_names(boxes)
    check_class_names(names, f"the dataset {source!r}")
    if sidecar is not None:
        sidecar = sidecar.renamed(dict(enumerate(layout.class_names or ())))
    class_names, category_ids = choose_classes(
        names, class_names, sidecar, reader, problems
    )
    named = [
        (image.name, [_name_of(int(number), names) for number in rows[:, 0]])
        for image, rows in zip(images, boxes)
    ]
    labels = label_boxes(named, class_names, problems)
    records = _make_records(images, boxes, labels, problems)
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


def _read_all_labels(images, problems):
    files = [label_file(image) for image in images]
    if not any(file.is_file() for file in files):
        detail = f"none of its {len(files):,} images has a txt file: no {files[0]}"
        problems.add("no annotation", images[0].parent, detail)
    return for_each(lambda file: _read_labels(file, problems), files)


def _numbered_names(boxes):
    highest = max((rows[:, 0].max() for rows in boxes if len(rows)), default=-1)
    return tuple(str(number) for number in range(int(highest) + 1))


def _make_records(images, boxes, labels, problems):
    sizes = for_each(lambda image: find_image_size(image, None, problems), images)
    records = []
    for image, image_size, rows, row_labels in zip(images, sizes, boxes, labels):
        if image_size is None:
            continue
        height, width = image_size
        record = plain_record(
            image,
            image_size,
            rows[:, 1:] * [width, height, width, height],
            row_labels,
            source_id=image.name,
            file_name=image.name,
        )
        records.append(record)
    return records


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
    if not (label.is_integer() and 0 <= label < MAX_CLASSES):
        return "the first number must be that of a class"
    if len(values) != 4 and (len(values) < 6 or len(values) % 2):
        return "four numbers of a box or three or more points are expected"
    if not (np.abs(values) <= _LIMIT).all():
        return "fractions of the image are expected, not pixels"
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


def write_yolo(
    datasets: DetectionDataset | Mapping[str, DetectionDataset],
    folder: str | os.PathLike[str],
) -> None:
    """Writes a YOLO folder: `images/SPLIT`, `labels/SPLIT` and `data.yaml`.

    Boxes are clipped to their image, because readers of this format expect
    fractions from 0 to 1. Boxes without area are left out. The format cannot mark
    crowds: other programs see ordinary boxes. `effdet_keras.json` keeps which boxes
    are crowds, and ids, file names and areas.

    Args:
        datasets: `DetectionDataset`, or dict from split name to one. Other
            programs ask for the splits "train" and "val".
        folder: folder to make. It appears once it is complete.

    Returns:
        `None`.

    Raises:
        FileExistsError: If the folder is there.
        ValueError: If the splits differ in their classes, or an image cannot be
            decoded.

    Example:
        >>> import pathlib, tempfile
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
    datasets = named_splits(datasets, usable=True, masks=False)
    names = {}
    with new_folder(folder) as partial:
        for split, dataset in datasets.items():
            stems = image_stems(dataset.records)
            names[split] = write_images(
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
        # Nine digits: a thousandth of a pixel in an image of a million.
        yield f"{label} {x:.9g} {y:.9g} {width:.9g} {height:.9g}"


def yolo_readers(path):
    """Finds the splits of a YOLO dataset: dict to the functions that read them."""
    if path.is_file() and path.suffix.lower() not in (".yaml", ".yml", ".data"):
        return {}
    splits = find_layout(path).splits
    return {split: functools.partial(from_yolo, path, split) for split in splits}
