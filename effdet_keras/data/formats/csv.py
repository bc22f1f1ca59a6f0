"""Reads and writes datasets as CSV files with one box per row."""

from __future__ import annotations

import collections
import contextlib
import csv
import dataclasses
import functools
import itertools
import json
import os
import re
import reprlib
from collections.abc import Mapping

import numpy as np

from effdet_keras._internal.remote_path import (
    dropping_unreadable_copy,
    is_file,
    local_copy,
    path_of,
)
from effdet_keras._internal.whole_files import atomic_folder, is_remote
from effdet_keras.data.dataset import DetectionDataset, count_of
from effdet_keras.data.formats import reading, writing
from effdet_keras.data.formats.dataset_files import (
    is_no_better,
    role_of_split,
    split_in_name,
    split_roles,
    split_word_in,
    visible_files,
    words_in_name,
)
from effdet_keras.data.formats.image_paths import find_moved
from effdet_keras.data.formats.label_map import ClassNames, read_label_map
from effdet_keras.data.problems import Problems
from effdet_keras.errors import InvalidValueError
from effdet_keras.images import IMAGE_SUFFIXES

_HEADER = ("filename", "width", "height", "class", "xmin", "ymin", "xmax", "ymax")


def from_csv(
    path: str | os.PathLike[str],
    image_dir: str | os.PathLike[str] | None = None,
    split: str | None = None,
    *,
    class_names: ClassNames | None = None,
    on_error: str = "auto",
) -> DetectionDataset:
    """Reads a dataset from a csv file: one box per row.

    Four formats are known. The first row shows which of them a file has:

    - The TF Object Detection API's format has a header with `filename`, `class`,
      `xmin`, `ymin`, `xmax`, `ymax` in pixels, in any order, and optionally `width` and
      `height` of the image. Other usual names of these columns are known, such as
      `image_path`, `label` and `x1`. A box may also be left, top, width and height, in
      the columns `bbox_x`, `bbox_y`, `bbox_width`, `bbox_height` or `x`, `y`, `w`, `h`,
      or its center and its sides, in columns such as `center_x`, `center_y`, `width`,
      `height`. It may also be one column `bbox` of four numbers,
      `[834.0, 222.0, 56.0, 36.0]`. These are read as corners if those of all rows can
      be corners, else as left, top, width and height, and a note reports which.
    - AutoML's and Vertex AI's format has no header. Rows are
      `set,path,label,xmin,ymin,,,xmax,ymax,,` in fractions of the image, where `set` is
      TRAIN, VALIDATION, TEST or UNASSIGNED.
    - RetinaNet's format has no header. Rows are `path,xmin,ymin,xmax,ymax,class` in
      pixels. The file name may also end in .txt.
    - Make Sense's format has no header. Rows are `class,left,top,width,height,filename`
      in pixels, optionally followed by the width and the height of the image.

    If several images have the name in a row, the one that a further column of paths
    names is meant, or else the one in the folder that is called like the class of the
    row. Classes that are numbers get the names of the only label map (.pbtxt) beside
    the file, if it names just the numbers in the CSV files there. Notes report both.

    A row that repeats another one, with the same image, class and box, is read once.
    A warning counts such rows.

    If the header has no class column, or rows in RetinaNet's format have no class, all
    boxes get one class: "object", or the only name in `class_names`. A note reports the
    class "object".

    A row without a box, or with -1 in place of its four numbers, stands for an image
    without objects. If such a row has a class,
    such as "background" or "No finding", it does not become one of the classes, and a
    note counts such rows. Images beside Roboflow's `_annotations.csv` that have no row
    are also images without objects, and a warning counts them. Cells may be separated
    by commas, semicolons or tabs; with the last two, numbers may have decimal commas.
    The file may be in UTF-8, UTF-16 or UTF-32.

    Args:
        path: path of the CSV file, or its address.
        image_dir: folder to which the names of the images are relative. If there is no
            such file, a name with folders, such as an address `gs://...`, is looked up
            by its last part. None looks for the images beside the file and in `images`,
            and for `train.csv` in `train`.
        split: for AutoML's format "train", "validation" or "test". None reads all rows.
        class_names, on_error: see `load`.

    Returns:
        `DetectionDataset`. `image_id` counts from 1 in the order of the images in the
        file; `source_id` is the name of the image.

    Raises:
        FileNotFoundError: If the file or images are missing.
        ValueError: If the file has none of these formats or no such `split`, or,
            depending on `on_error`, if a row has a box that is not four finite numbers,
            has no class, or has an unknown class.

    Example:
        >>> import pathlib, tempfile
        >>> from effdet_keras.data.formats.arrays import from_arrays
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
    return _read(
        path, image_dir, split=split, class_names=class_names, on_error=on_error
    )


def _read(
    path, image_dir=None, *, split=None, class_names=None, on_error="auto", left_out=()
):
    """Reads a dataset as `from_csv` does; `left_out` describes CSV files not read."""
    path = path_of(path)
    problems = Problems(f"`from_csv` of {str(path)!r}", on_error)
    for text in left_out:
        problems.add("other csv file", path.parent, text)
    rows = _read_rows(path, problems)
    rows = _named(rows, class_names, path, problems)
    known = sorted({row.label for row in rows if row.box is not None})
    if split is not None:
        split = reading.chosen_split(_splits_of(rows), split, path)
        rows = [row for row in rows if row.split == split]
    rows = _named_by_paths(_without_repeated(rows, path, problems))
    names = list(dict.fromkeys(row.image for row in rows))
    folder, located = image_dir, {}
    if folder is None:
        where = path, _split_of(path), names, _path_in
        folder = reading.image_folder_inside(*where)
    if names and (folder is None or not _has_any(path_of(folder), names)):
        rows, located = _located(rows, names, path, image_dir, problems)
    if folder is None and not located:
        folder = reading.image_folder_around(*where, problems)
    groups = collections.defaultdict(list)
    for row in rows:
        groups[row.image].append(row)
    folder = path_of(folder or path.parent)
    if path.stem == _ROBOFLOW and image_dir is None:
        groups |= _without_rows(path, groups, problems)
    return reading.make_dataset(
        [
            _found(name, rows, located.get(name) or _path_in(folder, name))
            for name, rows in groups.items()
        ],
        reading.named_classes(known, class_names),
        problems,
        source=path,
        image_dir=image_dir,
    )


def _named(rows, class_names, path, problems):
    """Returns rows that all have a class; reports missing classes and bare numbers."""
    labels = {row.label for row in rows if row.box is not None}
    if None in labels:
        if isinstance(class_names, list | tuple) and len(class_names) == 1:
            (name,) = class_names
        else:
            name = _NO_CLASS
            detail = (
                "it has no column of classes, so all boxes are read as the class "
                f"{name!r}"
            )
            problems.add_note("unnamed class", path.name, detail)
        return [dataclasses.replace(row, label=name) for row in rows]
    if class_names is None and _are_numbers(labels):
        label_map, file = _label_map_beside(path, labels)
        if label_map:
            detail = (
                f"the names of the classes of {path.name!r}, which are numbers, are "
                f"those of {str(file)!r}: {reprlib.repr(label_map)}. If these are the "
                "wrong ones, pass `class_names`, a dict from number to name"
            )
            problems.add("lists of class names", path, detail)
            return [
                dataclasses.replace(row, label=label_map.get(row.label, row.label))
                for row in rows
            ]
        detail = (
            f"{path.name!r} has numbers instead of class names, {_shown(labels)}, and "
            "the classes are called by these numbers. To name them, pass "
            "`class_names`, a dict from number to name"
        )
        problems.add("classes without names", path, detail)
    return rows


def _are_numbers(labels):
    return bool(labels) and all(label.isdecimal() for label in labels)


def _label_map_beside(path, labels):
    """Returns the only label map beside a CSV file, if it names just its classes.

    The classes are those of all CSV files there, because a split may lack some.

    Returns:
        Dict from the text of a number to the name, and the file; or None twice.
    """
    files = [] if is_remote(path) else visible_files(path.parent, ".pbtxt")
    if len(files) != 1:
        return None, None
    numbers = set(labels)
    for file in visible_files(path.parent, ".csv"):
        with contextlib.suppress(ValueError):  # reported when the file is read
            rows = _read_rows(file, Problems("`csv_readers`", "skip"))
            others = {row.label for row in rows if row.box is not None} - {None}
            numbers |= others if _are_numbers(others) else set()
    try:
        label_map = {str(i): name for i, name in read_label_map(files[0]).items()}
    except (ValueError, OSError):
        return None, None
    return (label_map, files[0]) if label_map.keys() == numbers else (None, None)


def _without_repeated(rows, path, problems):
    """Returns rows without those that say the same again; reports how many these are.

    Scripts that make one csv file of many xml files write the last row of each file a
    second time if a line stands in the wrong place.
    """
    known = {}
    for row in rows:
        known.setdefault((row.image, row.path, row.label, row.box), row)
    kept = list(known.values())
    count = len(rows) - len(kept)
    if count:
        detail = (
            f"{count_of(count, 'row')} of {len(rows):,} repeat another row: the same "
            "image, class and box"
        )
        problems.add("repeated rows", path, detail)
    return kept


def _named_by_paths(rows):
    """Returns rows with the paths of images as their names, if one name has several.

    The paths are in a column of their own, such as `path` beside `filename`.
    """
    paths = collections.defaultdict(set)
    for row in rows:
        paths[row.image].add(row.path)
    return [
        dataclasses.replace(row, image=row.path)
        if row.path and len(paths[row.image]) > 1
        else row
        for row in rows
    ]


def _has_any(folder, names):
    """Returns whether a folder has one of the first ten images."""
    return any(is_file(_path_in(folder, name)) for name in names[:10])


def _located(rows, names, path, image_dir, problems):
    """Finds images whose names alone do not say which of several files they are.

    Such an image is at the path in another column of its rows, or in the folder that
    is named after their class. Rows of one name and several classes are then several
    images.

    Returns:
        The rows, with the paths below the dataset as the names of these images; and a
        dict from these names to the paths of the files.
    """
    alone, root = find_moved([(name,) for name in names], path, image_dir=image_dir)
    unclear = {name for name, place in zip(names, alone) if place is None}
    keys = [(r.image, r.path, r.label) for r in rows if r.image in unclear]
    keys = list(dict.fromkeys(keys))
    if not keys:
        return rows, {}
    hints = [
        (p or "", "" if split_roles([label]) else f"{label}/{name}")
        for name, p, label in keys
    ]
    places, _ = find_moved(hints, path, image_dir=image_dir)
    found = {
        key: place
        for key, place in zip(keys, places)
        if place is not None and (key[1] or place.parent.name == key[2])
    }
    if not found:
        return rows, {}
    (name, _, _), place = next(iter(found.items()))
    detail = (
        f"the names of {count_of(len(found), 'image')} do not say alone which of "
        "several files is meant. Those in the folders of their classes, or at the "
        f"paths in another column, are read, such as {str(place)!r} for {name!r}"
    )
    problems.add("moved images", path, detail)
    below = {k: "/".join(p.parts[len(root.parts) :]) for k, p in found.items()}
    rows = [
        dataclasses.replace(row, image=below.get(key, row.image))
        for row in rows
        for key in [(row.image, row.path, row.label)]
    ]
    return rows, {below[key]: place for key, place in found.items()}


def _shown(labels):
    """Returns the lowest of some numbers as text.

    They stay texts because some may be too long for numbers.
    """
    lowest = sorted(labels, key=lambda label: (len(label), label))[:5]
    return ", ".join(lowest) + (", ..." if len(labels) > 5 else "")


_ROBOFLOW = "_annotations"  # stem of Roboflow's files, one in the folder of each split


def _without_rows(path, groups, problems):
    """Returns the images beside a Roboflow file that have no row, with no rows each.

    Roboflow writes no row for an image without objects into CSV files; its other
    formats name such images. Only images with Roboflow's names, such as
    `a_jpg.rf.0a1b.jpg`, count. If the file has no row at all, all images beside it
    count.
    """
    images = visible_files(path.parent, *IMAGE_SUFFIXES)
    if groups:
        images = [image for image in images if ".rf." in image.name]
    known = {name.replace("\\", "/").rpartition("/")[2].lower() for name in groups}
    names = [image.name for image in images if image.name.lower() not in known]
    if names:
        have, are = ("has", "is") if len(names) == 1 else ("have", "are")
        detail = (
            f"{len(names):,} of {count_of(len(images), 'image')} {have} no row in "
            f"{str(path)!r}, such as {names[0]!r}, and {are} read without objects"
        )
        problems.add("images without a row", path.parent, detail)
    return dict.fromkeys(names, ())


def _split_of(path):
    """Returns the split that a CSV file's name means, "train" for "train_labels"."""
    if path.stem == _ROBOFLOW:
        return reading.split_of_name(path.parent.name)
    return path.stem.removesuffix("_labels")


def _path_in(folder, name):
    """Returns the path of an image, which need not exist."""
    name = name.replace("\\", "/")
    path, short = folder / name, folder / name.rpartition("/")[2]
    return short if not is_file(path) and is_file(short) else path


def _found(name, rows, image):
    boxes = np.array([row.box for row in rows if row.box is not None]).reshape(-1, 4)
    return reading.Found(
        place=name,
        image=image,
        boxes=np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], axis=1),
        classes=[row.label for row in rows if row.box is not None],
        source_id=name,
        file_name=name,
        image_size=rows[0].size if rows else None,
        normalized_coordinates=bool(rows) and rows[0].normalized_coordinates,
    )


def write_csv(
    datasets: DetectionDataset | Mapping[str, DetectionDataset],
    folder: str | os.PathLike[str],
) -> None:
    """Writes a new folder with one `SPLIT.csv` and the images in `SPLIT/` per split.

    The format is that of the TF Object Detection API. Boxes without an area inside
    their image are left out. The format cannot mark crowds, which become ordinary
    boxes, with a warning. It does not keep ids, areas or masks either; a warning is
    given for masks.

    Args:
        datasets, folder: see `write_coco`.

    Raises:
        FileExistsError, OSError: See `write_coco`.
        ValueError: See `write_coco`, or if a class name has spaces around it or control
            characters.

    Example: see `from_csv`.
    """
    datasets = writing.named_splits(datasets, usable=True, masks=False, crowds=False)
    writing.check_names_survive(datasets, "CSV")
    with atomic_folder(folder) as partial:
        for split, dataset in datasets.items():
            names = writing.write_images(dataset.records, partial / split)
            path = partial / f"{split}.csv"
            with open(path, "w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(_HEADER)
                for name, record in zip(names, dataset.records):
                    writer.writerows(_rows(f"{split}/{name}", record, dataset))


def _rows(name, record, dataset):
    height, width = record.image_size
    low, sides = record.boxes_xywh[:, :2], record.boxes_xywh[:, 2:]
    corners = np.concatenate([low, low + sides], axis=1)
    for label, box in zip(record.labels, corners):
        numbers = [f"{value:.10g}" for value in box]
        yield (name, width, height, dataset.class_names[label], *numbers)
    if not len(corners):
        yield (name, width, height, "", "", "", "", "")


def csv_readers(path):
    """Finds CSV files of boxes; returns a dict from split to its reading function."""
    files = [path] if path.is_file() else visible_files(path, ".csv", ".txt")
    texts = {file for file in files if file.suffix.lower() == ".txt"}
    if len(texts) > _MAX_TEXTS:  # one txt file for each image, of another format
        files, texts = [file for file in files if file not in texts], set()
    readers, known, reasons = {}, [], {}
    for file in files:
        if file.suffix.lower() not in (".csv", ".txt"):
            continue
        try:
            read, _ = _format_of(_lines_in(file, limit=1), file)
        except ValueError as error:  # a file of another format
            if file not in texts:
                reasons[file] = str(error)
            continue
        if file not in texts or read is _read_retinanet:
            known.append((file, read))
    known, doubtful = _divided(known)
    doubtful += _describe_other_splits(reasons, [file for file, _ in known])
    known, versions = _without_versions(known)
    names = reading.split_names([_name_of(file) for file, _ in known])
    for (file, read), name in zip(known, names):
        rows = []
        if read is _read_automl:  # rows of this format name their splits
            rows = _read_rows(file, Problems("`csv_readers`", "skip"))
        for split in _splits_of(rows) or [None]:
            left_out = [*([] if readers else doubtful), *versions.get(file, ())]
            read = functools.partial(_read, file, split=split, left_out=left_out)
            readers[split or name] = read
    if reasons and not readers:  # if nothing else is found either, `load` reports why
        raise InvalidValueError(". ".join(list(reasons.values())[:3]))
    return readers


def _describe_other_splits(reasons, known):
    """Returns a text for each csv file that would be a split that no known file is.

    Args:
        reasons: dict from a file that cannot be read to the reason.
        known: list of the files that can be read.
    """
    roles = {role_of_split(_name_of(file)) for file in known}
    return [
        f"{file.name!r} is not read, although its name is that of a split: {reason}"
        for file, reason in reasons.items()
        if known and role_of_split(_name_of(file)) not in roles | {None}
    ]


def _with_ends_behind(rows, path, problems):
    """Returns the rows with exchanged corners if each box ends before it begins.

    This happens if a header names the two corners in another order than the rows have
    them.
    """
    boxes = [row.box for row in rows if row.box is not None]
    if len(boxes) < 2 or not all(b[2] < b[0] and b[3] < b[1] for b in boxes):
        return rows
    detail = (
        f"each of its {len(boxes):,} boxes ends before it begins, such as {boxes[0]}, "
        "so the columns of the two corners are read in exchanged order"
    )
    problems.add_note("box columns", path.name, detail)
    return [
        row
        if row.box is None
        else dataclasses.replace(row, box=(*row.box[2:], *row.box[:2]))
        for row in rows
    ]


_LOOKED_AT = 100  # rows of a file that are checked to find out its format
_MAX_TEXTS = 20  # a folder with more txt files has no tables among them


def _divided(known):
    """Separates files without a header that hold no corners, if other files are good.

    Returns:
        The files to read; and a sentence for each of the other files. If no file is
        good, all are to be read.
    """
    good, doubtful = [], []
    for file, read in known:
        why = None
        if read is _read_retinanet:
            with contextlib.suppress(ValueError):  # reported when the file is read
                why = _why_no_corners(_lines_in(file, limit=_LOOKED_AT))
        if why is None:
            good.append((file, read))
        else:
            doubtful.append(f"{file.name!r} is not read: {why}")
    return (good, doubtful) if good else (known, [])


def _without_versions(known):
    """Separates the files of splits of which other files have all images, and more.

    `train_labels_w_road.csv` and `test_labels_w_road.csv` may be another version of
    `train_labels.csv` and `test_labels.csv`. The version with more words in its name is
    read, if it has the same splits, and all images of each of them and more. A version
    that is called augmented, old or the like is not.

    Returns:
        The files to read; and a dict from these to a sentence for each other version.
    """
    versions = collections.defaultdict(dict)  # from other words in names to splits
    for file, _ in known:
        name = _name_of(file)
        if split := split_word_in(name):
            words = {word for word in words_in_name(name) if not split_word_in(word)}
            versions[frozenset(words)][split] = file
    fuller = {}  # from file to that of the fuller version
    for (few, old), (more, new) in itertools.permutations(versions.items(), 2):
        is_version = few < more and len(old) > 1 and old.keys() == new.keys()
        is_version = is_version and not any(map(is_no_better, more - few))
        if is_version and all(_images_in(old[s]) < _images_in(new[s]) for s in old):
            fuller |= {old[split]: new[split] for split in old}
    texts = collections.defaultdict(list)
    for file, other in fuller.items():
        texts[other].append(
            f"{file.name!r} is not read: {other.name!r} has all of its images, and "
            "more. To read it, pass that file"
        )
    return [(file, read) for file, read in known if file not in fuller], texts


def _images_in(file):
    """Returns the names of the images in a CSV file; none if it cannot be read."""
    try:
        rows = _read_rows(file, Problems("`csv_readers`", "skip"))
    except ValueError:  # reported when the file is read
        return set()
    return {row.image for row in rows}


def _name_of(file):
    """Returns the name of a CSV file, or of its folder, that may mean a split."""
    if file.stem == _ROBOFLOW and split_in_name(file.parent.name):
        return file.parent.name
    return file.stem


def _splits_of(rows):
    return list(dict.fromkeys(row.split for row in rows if row.split is not None))


# --- The rows of a CSV file, in each of the known formats.

_COLUMNS = {  # each column of the Object Detection API, and its other names
    "filename": (
        "filename file_name image image_path image_name image_file img img_path "
        "img_name path file_path filepath file imagename image_id imageid id name "
        "files"
    ),
    "class": (
        "class label class_name label_name classname labelname class_label category "
        "category_name object name labels tag class_id label_id category_id"
    ),
    "xmin": "xmin x1 x_min bbox_xmin bbox_x1 min_x left",
    "ymin": "ymin y1 y_min bbox_ymin bbox_y1 min_y top",
    "xmax": "xmax x2 x_max bbox_xmax bbox_x2 max_x right",
    "ymax": "ymax y2 y_max bbox_ymax bbox_y2 max_y bottom",
    "height": "height image_height img_height",
    "width": "width image_width img_width",
}
_PATHS = ("path", "file_path", "filepath", "image_path", "img_path")
_SIDES = ("height", "width")  # columns that may be absent
_BOX = ("xmin", "ymin", "xmax", "ymax")
_LEFT_TOP = ("left", "top", "box_width", "box_height")
_XYWH = (  # columns of left, top, width and height
    ("bbox_x", "bbox_y", "bbox_width", "bbox_height"),
    ("bbox_x", "bbox_y", "bbox_w", "bbox_h"),
    ("left", "top", "width", "height"),
    ("x", "y", "w", "h"),  # it could be the center: a note reports how it is read
    ("x", "y", "width", "height"),
)
_CENTER = ("center_x", "center_y", "box_width", "box_height")
_CENTERED = tuple(  # columns of the center, width and height
    (*center, *sides)
    for center in (("center_x", "center_y"), ("x_center", "y_center"), ("cx", "cy"))
    for sides in (("width", "height"), ("w", "h"), ("box_width", "box_height"))
)
_BBOX = ("bbox", "box", "bounding_box")  # columns that hold all four numbers
# Columns that cannot hold the class. If a table has any other unknown column, its class
# may be there.
_NO_CLASS_COLUMNS = frozenset(
    """
    id index image_id split set subset depth area confidence score source
    """.split()
)
_NO_CLASS = "object"  # the class of the boxes of a file without classes
_AUTOML_SPLITS = {
    "TRAIN": "train",
    "TRAINING": "train",
    "VALIDATION": "validation",
    "TEST": "test",
    "UNASSIGNED": reading.ONE_SPLIT,
}


@dataclasses.dataclass(frozen=True, slots=True)
class _Row:
    """A row: a box, or, if `box` is None, an image without objects."""

    image: str
    label: str | None  # None if the file has no classes
    box: tuple | None  # left, top, right, bottom, in pixels or in fractions
    normalized_coordinates: bool = False
    size: tuple | None = None  # (height, width)
    split: str | None = None
    path: str | None = None  # of the image, if the file has it besides its name


def _read_rows(path, problems):
    """Reads a CSV file in any of the known formats."""
    with dropping_unreadable_copy(local_copy(path)):
        lines = _lines_in(path)
        read, has_header = _format_of(lines, path)
    if has_header and "left" in read.args[0] and "x" in _names_of(lines[0][1]):
        detail = (
            "its columns x, y, width and height are read as left, top, width and "
            "height. If x and y are the center of the box, rename them to center_x "
            "and center_y"
        )
        problems.add_note("box columns", path.name, detail)
    lines = lines[1:] if has_header else lines
    if read is _read_retinanet and (why := _why_no_corners(lines)):
        problems.add_note("box columns", path.name, why)
    if has_header and "bbox" in read.args[0]:
        are_corners = _are_corners(lines, read.args[0]["bbox"])
        read = functools.partial(_read_pixels, read.args[0], are_corners=are_corners)
        meaning = "the corners" if are_corners else "left, top, width and height"
        detail = f"the four numbers of its boxes are read as {meaning}"
        problems.add_note("box columns", path.name, detail)
    rows = reading.read_rows(read, lines, problems, path.name, "row")
    if problems.has("bad box"):
        problems.add_lost(images=_count_lost_images(lines, rows))
    rows = _with_ends_behind(rows, path, problems)
    negative = [row for row in rows if row.box is None and row.label]
    if negative:
        what = count_of(len(negative), "row has", "rows have")
        detail = f"{what} a class and no box, such as {negative[0].label!r} of "
        problems.add_note("class without box", path.name, detail + negative[0].image)
    return rows


def _count_lost_images(lines, rows):
    """Returns the number of images of which no row could be read."""
    known = {row.image for row in rows}
    lost = {
        next((cell for cell in cells if cell.lower().endswith(IMAGE_SUFFIXES)), None)
        for _, cells in lines
        if known.isdisjoint(cells)
    }
    return len(lost - {None})


def _lines_in(path, limit=None):
    return read_lines(path, delimiters=",;\t", limit=limit)


def read_lines(path, reader="from_csv", delimiters=",", limit=None):
    """Returns the line number and the cells of the rows of a CSV file.

    Rows without any text are left out. Cells lose the spaces around them. If the
    delimiter is not a comma, decimal commas become points.

    Args:
        path: path of the file.
        reader: name of the public function, for the error.
        delimiters: characters of which the most frequent one in the first line
            separates the cells; of equally frequent ones, the first.
        limit: how many rows to return at most. None returns all.

    Returns:
        List of pairs `(number, cells)`; `number` counts lines from 1.

    Raises:
        ValueError: If the file is not CSV text in UTF-8, UTF-16 or UTF-32.
    """
    lines, path_here = [], local_copy(path)
    try:
        encoding = _encoding_of(path_here)
        with open(path_here, encoding=encoding, newline="") as file:
            first = file.readline()
            file.seek(0)
            # Spreadsheets of many countries write semicolons. `max` prefers the first
            # of equally frequent delimiters.
            delimiter = max(delimiters, key=first.count)
            rows = csv.reader(file, delimiter=delimiter)
            for row in rows:
                cells = [cell.strip() for cell in row]
                if delimiter != ",":  # such files may have decimal commas
                    cells = [_DECIMAL_COMMA.sub(r"\1.\2", cell) for cell in cells]
                if any(cells):
                    lines.append((rows.line_num, cells))
                if len(lines) == limit:
                    break
    except (UnicodeError, csv.Error) as error:
        raise InvalidValueError(
            f"`{reader}` expects a CSV file, which must be text in UTF-8: spreadsheets "
            f"call it 'CSV UTF-8'. Received: {str(path)!r} ({error})"
        ) from error
    return lines


_DECIMAL_COMMA = re.compile(r"^([-+]?\d+),(\d+)$")


def _encoding_of(path):
    """Returns UTF-8, or the UTF-16 or UTF-32 that the first bytes of a file show.

    Spreadsheets call UTF-16 "Unicode text".
    """
    with open(path, "rb") as file:
        found = json.detect_encoding(file.read(4))
    return "utf-8-sig" if found == "utf-8" else found


def _format_of(lines, path):
    """Returns the function that reads a row of this format, and if there is a header.

    The function returns a `_Row`, or a text that says what is wrong with the cells.
    """
    is_roboflow = path.stem == _ROBOFLOW and split_in_name(path.parent.name)
    if not lines and is_roboflow:  # no image of this split has objects
        return _read_retinanet, False
    first = lines[0][1] if lines else [""]
    places = _columns_of(first)
    if places is not None:
        return functools.partial(_read_pixels, places), True
    if first[0].upper() in _AUTOML_SPLITS and len(first) > 1:
        return _read_automl, False
    are_numbers = None not in map(_number, first[1:5])
    if len(first) == 6 and _is_image(first[5]) and are_numbers:
        return _read_make_sense, False
    if len(first) == 8 and _is_image(first[5]) and are_numbers:
        return _read_make_sense, False
    is_row = len(first) == 6 and first[0] and (are_numbers or not any(first[1:]))
    is_row = is_row and not _is_box(first[2:])  # such a row would be `path,number,box`
    if is_row or (len(first) == 5 and _is_image(first[0]) and are_numbers):
        return _read_retinanet, False
    raise InvalidValueError(
        "`from_csv` expects a header with filename, class, xmin, ymin, xmax, ymax, or "
        "rows of `set,path,label,xmin,ymin,,,xmax,ymax,,`, or rows of "
        "`path,xmin,ymin,xmax,ymax,class`. "
        f"Received: {str(path)!r} with {reprlib.repr(first)}"
    )


def _why_no_corners(lines):
    """Returns why rows are not `path,xmin,ymin,xmax,ymax`, or None if they are.

    Some programs write the width and the height of the box in place of its end.
    """
    rows = [[_number(cell) for cell in cells[1:5]] for _, cells in lines]
    rows = [row for row in rows if len(row) == 4 and None not in row]
    wrong = [row for row in rows if row[2] < row[0] or row[3] < row[1]]
    if len(wrong) < 2 or 5 * len(wrong) <= len(rows):
        return None
    return (
        f"{len(wrong):,} of {len(rows):,} boxes end before they begin, such as "
        f"{wrong[0]}: if its numbers are left, top, width and height, write the header "
        "filename,left,top,width,height,class above them"
    )


def _columns_of(header):
    """Returns the place of each column that a header names; None if it is no header."""
    names = _names_of(header)
    places = {}
    for column, known in _COLUMNS.items():
        there = [name for name in known.split() if name in names]
        if there:
            places[column] = there[0]
    if not places.keys() >= set(_BOX):
        sides = next((s for s in (*_CENTERED, *_XYWH) if set(s) <= set(names)), ())
        box = next((name for name in _BBOX if name in names), None)
        if not sides and box is None:
            return None
        places = {c: n for c, n in places.items() if c not in _BOX and n not in sides}
        meaning = _CENTER if sides in _CENTERED else _LEFT_TOP
        places |= dict(zip(meaning, sides)) if sides else {"bbox": box}
    if "filename" not in places:
        return None
    paths = [name for name in _PATHS if name in names]
    if paths and paths[0] != places["filename"]:
        places["path"] = paths[0]
    others = {name for name in names if name and not name.startswith("unnamed")}
    others -= set(places.values())
    if "class" not in places and not others <= _NO_CLASS_COLUMNS:
        return None
    return {column: names.index(name) for column, name in places.items()}


def _names_of(header):
    """Returns the names of columns in lower case, with `_` for spaces and hyphens."""
    return [re.sub(r"[\s-]+", "_", cell.lower()) for cell in header]


def _is_image(cell):
    return cell.lower().endswith(IMAGE_SUFFIXES)


def _read_pixels(places, cells, are_corners=False):
    """Reads a row of a table with a header, by the places of its columns.

    Four numbers in one cell are corners if `are_corners`, else left, top, width and
    height.
    """
    cell = {name: cells[i] for name, i in places.items() if i < len(cells)}
    if "bbox" in places:
        box = _numbers_of(cell.get("bbox", ""))
        box = box if are_corners else _corners(box)
    elif "left" in places:
        box = _corners([cell.get(name, "") for name in _LEFT_TOP])
    elif "center_x" in places:
        box = _corners([cell.get(name, "") for name in _CENTER], start=-0.5)
    else:
        box = [cell.get(name, "") for name in _BOX]
    size = reading.check_size(*(_number(cell.get(name, "")) for name in _SIDES))
    label = cell.get("class", "") if "class" in places else None
    path = cell.get("path")
    return _make_row(cell.get("filename"), label, box, size=size, path=path)


def _corners(sides, start=0.0):
    """Converts left, top, width and height to corners; returns other cells unchanged.

    `start` is the offset from the given point to the left and the top of the box, in
    widths and heights: -0.5 if the point is the center.
    """
    numbers = [_number(cell) for cell in sides]
    if None in numbers:
        return sides
    x, y, width, height = numbers
    left, top = x + start * width, y + start * height
    return [left, top, left + width, top + height]


def _numbers_of(cell):
    """Returns the four number texts of a cell such as `[834.0, 222.0, 56.0, 36.0]`."""
    cells = re.split(r"[\s,;]+", cell.strip("[](){} "))
    return cells if len(cells) == 4 or not any(cells) else [*cells[:3], ""]


def _are_corners(lines, column):
    """Returns whether all boxes of a column could be corners.

    If the last two numbers are width and height, some of them are below left and top.
    """
    cells = [cells[column] for _, cells in lines if len(cells) > column]
    boxes = [_numbers_of(cell) for cell in cells if cell]
    return bool(boxes) and all(map(_is_box, boxes))


def _is_box(cells):
    """Returns whether four cells are the corners of a box: left, top, right, bottom."""
    numbers = [_number(cell) for cell in cells]
    return None not in numbers and numbers[0] < numbers[2] and numbers[1] < numbers[3]


def _read_retinanet(cells):
    """Reads a row of RetinaNet: `path,xmin,ymin,xmax,ymax`, and the class if there."""
    label = None if len(cells) == 5 else (cells[5] if len(cells) > 5 else "")
    return _make_row(cells[0], label, [*cells[1:5], *[""] * (5 - len(cells))])


def _read_make_sense(cells):
    """Reads a row of Make Sense's format.

    It is `class,left,top,width,height,filename,width,height`; the last two may be
    missing.
    """
    cells = cells + [""] * (8 - len(cells))
    size = reading.check_size(_number(cells[7]), _number(cells[6]))
    return _make_row(cells[5], cells[0], _corners(cells[1:5]), size=size)


def _read_automl(cells):
    """Reads a row of AutoML: `set,path,label`, and two or four corners in fractions."""
    cells = cells + [""] * (11 - len(cells))
    split = _AUTOML_SPLITS.get(cells[0].upper())
    if split is None:
        return f"the first column must be one of {list(_AUTOML_SPLITS)}"
    x, y = ([_number(cell) for cell in cells[start:11:2] if cell] for start in (3, 4))
    box = [None] * 4 if None in x + y or bool(x) != bool(y) else []
    if x and y and not box:
        box = [min(x), min(y), max(x), max(y)]
    return _make_row(cells[1], cells[2], box, normalized_coordinates=True, split=split)


def _make_row(
    image, label, box, *, normalized_coordinates=False, size=None, split=None, path=None
):
    """Returns a `_Row`, or a text that says what is wrong with it."""
    if not image:
        return "the name of an image is expected"
    common = {
        "size": size,
        "split": split,
        "path": path,
        "normalized_coordinates": normalized_coordinates,
    }
    if not any(cell != "" for cell in box):
        return _Row(image, label, None, **common)
    numbers = [_number(cell) for cell in box]
    if None in numbers or not numbers or not reading.are_coordinates(np.array(numbers)):
        return "four finite numbers of a box are expected"
    if set(numbers) == {-1.0}:  # so a script marks an image without objects
        return _Row(image, "" if label == "-1" else label, None, **common)
    if label == "":
        return "a class is expected"
    if normalized_coordinates and max(map(abs, numbers)) > reading.MAX_FRACTION:
        return "fractions of the image are expected, not pixels"
    return _Row(image, label, tuple(numbers), **common)


def _number(cell):
    try:
        return float(cell)
    except (TypeError, ValueError):
        return None
