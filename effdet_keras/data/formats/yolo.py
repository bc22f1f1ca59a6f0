"""Reads and writes datasets in YOLO's format, with one txt file per image."""

from __future__ import annotations

import contextlib
import functools
import os
import reprlib
from collections.abc import Mapping

import numpy as np

from effdet_keras._internal.remote_path import path_of
from effdet_keras._internal.whole_files import atomic_folder, is_remote
from effdet_keras._internal.yaml_text import to_yaml
from effdet_keras.data.dataset import DetectionDataset, check_class_names, count_of
from effdet_keras.data.formats import reading, writing, yolo_rows
from effdet_keras.data.formats.annotation_files import has_other_labels
from effdet_keras.data.formats.dataset_files import (
    first_to_train_on,
    names_in,
    visible_files,
)
from effdet_keras.data.formats.image_paths import current_root, root_around
from effdet_keras.data.formats.label_map import ClassNames, requested_classes
from effdet_keras.data.formats.yolo_files import (
    MAX_READ,
    check_labels,
    find_labels,
    has_labels,
    images_of,
    texts_of_boxes,
)
from effdet_keras.data.formats.yolo_layout import find_layout
from effdet_keras.data.formats.yolo_names import (
    empty_lists,
    lists_that_may_name,
    longer_list,
    longer_list_below,
)
from effdet_keras.data.formats.yolo_yaml import read_yaml
from effdet_keras.data.problems import Problems
from effdet_keras.data.record import clip_boxes_xywh
from effdet_keras.errors import InvalidValueError, check_choice
from effdet_keras.images import IMAGE_SUFFIXES, LFS_CURE, is_lfs_pointer


def from_yolo(
    path: str | os.PathLike[str],
    split: str | None = None,
    *,
    class_names: ClassNames | None = None,
    on_error: str = "auto",
    unlabelled: str | None = None,
) -> DetectionDataset:
    """Reads a dataset in YOLO's format: one txt file per image.

    A line is `class x y width height`, the center and the sides of a box as fractions
    of the image, or `class x1 y1 x2 y2 x3 y3 ...`, an outline, which becomes its
    bounding box. The txt file of `images/train/a.jpg` is `labels/train/a.txt`, or else
    `a.txt` beside the image. An image without a txt file counts as an image without
    objects, and a warning gives the number of such images. An image with an empty txt
    file has no objects either, and causes no warning.

    Three kinds of numbers are left out, with a warning that counts the rows: the key
    points of a pose dataset (`kpt_shape` in data.yaml), a confidence or a track id
    behind the box, and one number too many behind an outline. A confidence before the
    box is left out if the boxes only fit into their images so. An oriented box (four
    corners) becomes the upright box around it. Files in DOTA's format, usually in
    `labelTxt/`, have four corners in pixels, the name of the class, and 1 for a
    difficult object, which becomes a crowd. Rows may begin with the name of the class.
    Four numbers behind it that are not fractions are left, top, right and bottom in
    pixels, as the OIDv4 ToolKit writes them.

    Args:
        path: one of these: a `data.yaml` of Ultralytics with `path`, `names` (list or
            dict), and for each split a folder, a list of folders, or a txt file that
            lists images; a `.data` file of darknet; or a folder. The folder contains
            one of these files, or `images` and `labels` (or `img`, `Images`, ...), or a
            folder for each split, or images and txt files side by side. The class names
            of a folder are read from `classes.txt`, `obj.names`, `_darknet.labels`,
            `notes.json` or a similar file. If there is none, they are "0", "1", ...,
            and a warning says so.
        split: "train", "val", ... None reads the only split.
        class_names, on_error: see `load`. If no file names the classes, `class_names`
            are the names of the numbers 0, 1, ...
        unlabelled: what images without a txt file are. "negative": images without
            objects. "skip": images that nobody has annotated yet; they are left out.
            None: the same as "negative", with a warning, with one exception: if images
            and txt files lie side by side, subfolders in which no image has a txt file
            are left out.

    Returns:
        `DetectionDataset`. `image_id` counts from 1 in the order of the paths;
        `source_id` is the file name.

    Raises:
        FileNotFoundError: If the file, the folder of a split, or images in a list are
            missing.
        ValueError: If there is no such split, if there are several splits and `split`
            is None, or, depending on `on_error`, if a line has another format or an
            unknown class.

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
    check_choice("unlabelled", unlabelled, ("negative", "skip", None))
    layout = find_layout(path)
    split = reading.chosen_split(layout.splits, split, source)
    problems = Problems(f"`from_yolo` of {source!r}", on_error)
    for note in layout.notes:
        problems.add(*note)
    images = images_of(layout, split, problems)
    _note_unlisted(images, layout, split, problems)
    images, files = _labelled(images, layout, unlabelled, problems)
    tables = yolo_rows.read_label_tables(files, _key_points_of(layout), problems)
    used = {label for table in tables if table is not None for label in table.classes}
    names = layout.names_of.get(split, layout.names)
    if not names and class_names is not None:
        names, _ = requested_classes(class_names)
    elif not names:
        names = _names_of(used)
        if not any(isinstance(label, str) for label in used):
            _note_no_names(names, source, problems)
    elif class_names is not None:
        names = _longer_names(names, class_names, used, source, problems)
    check_class_names(names, f"the dataset {source!r}")
    name_of = {name.lower(): name for name in names} | dict(enumerate(names))
    if used == {yolo_rows.UNNAMED} and len(names) == 1:
        name_of[yolo_rows.UNNAMED] = names[0]
    folders = dict.fromkeys(image.parent for image in images)
    only = _only_number(used, layout, split, folders)
    if only is not None and len(names) == 1:
        name_of[only] = names[0]
        detail = (
            f"all boxes have the class number {only:g}, and there is only one class "
            f"name, {names[0]!r}: the boxes are read as {names[0]!r}"
        )
        problems.add("number of classes", source, detail)
    found = [
        reading.Found(
            place=image.name,
            image=image,
            boxes=table.boxes,
            classes=[_name_in(name_of, label) for label in table.classes],
            source_id=image.name,
            file_name=image.name,
            normalized_coordinates=table.normalized_coordinates,
            is_crowd=table.is_crowd,
        )
        for image, table in zip(images, tables)
        if table is not None
    ]
    classes = reading.named_classes(names, class_names)
    highest = max((label for label in used if not isinstance(label, str)), default=0)
    longer, root = None, current_root(layout.folder)
    if highest not in name_of and root is not None and not is_remote(root):
        longer = longer_list_below(root, highest)
    why_unknown = functools.partial(
        _why_unknown, names, layout, folders, highest, longer
    )
    return reading.make_dataset(
        found, classes, problems, source=source, why_unknown=why_unknown
    )


_CONTRADICTIONS = ("moved folders", "missing split", "number of classes")


def _only_number(used, layout, split, folders):
    """Returns the number that all boxes have, if there is only one class name, or None.

    The number must be 1 or more, and the same in all splits: an export of one class
    from a project with many classes has such boxes. The other splits are read only in
    this case. The result is None if a longer list of names near the images may be meant
    instead, or if notes report that the files contradict each other.
    """
    if len(layout.names) != 1 or len(used) != 1 or layout.names_of:
        return None
    if any(kind in _CONTRADICTIONS for kind, *_ in layout.notes):
        return None
    (only,) = used
    if isinstance(only, str) or only < 1 or only % 1:
        return None
    if longer_list(folders, layout, only) is not None:
        return None
    for other in layout.splits.keys() - {split}:
        quiet = Problems("", "skip")
        try:
            images = images_of(layout, other, quiet)
            _, files = _labelled(images, layout, None, quiet)
            tables = yolo_rows.read_label_tables(files, _key_points_of(layout), quiet)
        except (ValueError, OSError):
            return None
        used = used.union(*(table.classes for table in tables if table is not None))
        if len(used) > 1:
            return None
    return only


def _longer_names(names, class_names, used, source, problems):
    """Returns the names in the file, or the requested ones if they extend these.

    The requested names are used only if boxes have numbers beyond the end of the file's
    names.
    """
    asked, _ = requested_classes(class_names)
    beyond = [n for n in used if not isinstance(n, str) and n >= len(names)]
    if not beyond or asked[: len(names)] != tuple(names):
        return names
    detail = (
        f"its file has {count_of(len(names), 'class name')}, but boxes have class "
        f"numbers up to {max(beyond):g}: the other names are taken from `class_names`"
    )
    problems.add("number of classes", source, detail)
    return asked


def _why_unknown(names, layout, folders, highest, longer, label):
    """Returns why a number is no known class; None for a name that was not requested.

    A file with fewer names than there are numbers is the most frequent mistake in an
    export. `longer` is a longer list anywhere in the dataset, or None.
    """
    if isinstance(label, str):
        return None
    shown = f"{count_of(len(names), 'name')}, {reprlib.repr(list(names))}"
    if not layout.names and not layout.names_of:
        return f"the class number {label:g}: `class_names` has only {shown}"
    file = "the list of class names"
    if layout.names_file is not None:
        is_yaml = layout.names_file == layout.yaml
        file = repr(layout.yaml.name if is_yaml else str(layout.names_file))
    others = "the other names" if highest == label else f"names for 0 to {highest:g}"
    text = (
        f"the class number {label:g}: {file} has only {shown}. Add {others} there, or "
        "pass `class_names` with all names, these first"
    )
    if len(names) == 1:
        text += (
            f". If all boxes are {names[0]!r}, write 0 in place of every class number "
            "in the txt files"
        )
    longer = longer_list(folders, layout, label) or longer
    if longer is not None:
        text += f". {str(longer)!r} has more names: if these are the right ones, "
        is_yaml = longer.suffix.lower() in (".yaml", ".yml")
        text += "pass that file" if is_yaml else "copy them to that file"
    return text


def _note_unlisted(images, layout, split, problems):
    """Reports, when the training split is read, labelled images that are in no list."""
    splits = layout.splits
    places = [place for places in splits.values() for place in places]
    are_lists = all(not isinstance(p, str) and p.suffix == ".txt" for p in places)
    is_told_here = split == first_to_train_on(splits)
    if not is_told_here or not are_lists or is_remote(layout.folder):
        return
    rest = Problems("`from_yolo`", "skip")
    # A list may write the same path in another way.
    real = functools.cache(os.path.realpath)
    listed = list(images)
    for other in splits.keys() - {split}:
        with contextlib.suppress(FileNotFoundError):  # reported when that split is read
            listed += images_of(layout, other, rest)
    listed = {(real(image.parent), image.name) for image in listed}
    folders = dict.fromkeys(image.parent for image in images)
    found = [
        folder / name
        for folder in folders
        for name in names_in(folder)[1]
        if _is_image_name(name) and (real(folder), name) not in listed
    ]
    labels = find_labels(found, layout)
    left = [image for image, t in zip(labels.images, labels.is_there) if t]
    if left:
        lists = ", ".join(dict.fromkeys(place.name for place in places))
        which = count_of(
            len(left), "image with a txt file is", "images with txt files are"
        )
        detail = f"{which} in none of the lists {lists} and not read, such as "
        problems.add("unlisted images", layout.folder, f"{detail}{str(left[0])!r}")


def _is_image_name(name):
    return name.lower().endswith(IMAGE_SUFFIXES)


def _name_in(name_of, label):
    """Returns the class name that a row has as a number, or in any letter case."""
    return name_of.get(label.lower() if isinstance(label, str) else label, label)


def _names_of(used):
    """Returns class names if no file lists them: names in the rows, or numbers."""
    if texts := sorted(label for label in used if isinstance(label, str)):
        return tuple(texts)
    highest = max(map(int, used), default=-1)
    return tuple(str(number) for number in range(highest + 1))


def _key_points_of(layout):
    """Returns the `kpt_shape` in the data.yaml of a dataset, or None."""
    if layout.yaml is None:
        return None
    return yolo_rows.key_point_shape(read_yaml(layout.yaml), layout.yaml)


def _labelled(images, layout, unlabelled, problems):
    """Returns the images to read and their txt files; reports unpaired ones."""
    if not images:  # all images are missing, which was reported
        return [], []
    labels = find_labels(images, layout)
    lacking = [i for i, t in zip(labels.images, labels.is_there) if not t]
    folder, count = layout.folder, len(images)
    if labels.left_out and unlabelled is None:
        folders = sorted({str(image.parent) for image in labels.left_out})
        number = count_of(
            len(labels.left_out), f"of {count:,} images is", f"of {count:,} images are"
        )
        detail = (
            f"{number} left out, because no image in "
            f"{', '.join(map(repr, folders[:3]))} has a txt file. {_UNLABELLED}"
        )
        problems.add("images without txt file", folder, detail)
    if len(lacking) == len(labels.images):
        detail = (
            f"none of its {count:,} images has a txt file: there is no "
            f"{labels.files[0]}, for example"
        )
        if others := texts_of_boxes(folder):
            detail += (
                f". {count_of(len(others), 'txt file')}{_with_boxes(others)} below "
                f"{str(folder)!r} have other names, such as {str(others[0])!r}"
            )
        problems.add("no annotation", labels.images[0].parent, detail)
    elif lacking and unlabelled is None:
        is_one = len(lacking) == 1
        lack = "images has no txt file" if is_one else "images have no txt file"
        detail = (
            f"{len(lacking):,} of {len(labels.images):,} {lack}, such as "
            f"{lacking[0].name!r}, and {'is' if is_one else 'are'} read without "
            f"objects. {_UNLABELLED}"
        )
        problems.add("images without txt file", folder, detail)
    if labels.stray:
        stray = count_of(
            len(labels.stray),
            "txt file with boxes belongs to no image and is",
            f"txt files{_with_boxes(labels.stray)} belong to no image and are",
        )
        detail = (
            f"{stray} left out, such as {str(labels.stray[0])!r}: the image must have "
            "the same name except for its ending, in the same upper and lower case"
        )
        problems.add("txt files without image", folder, detail)
    if unlabelled == "negative":
        stems = {image: image.with_suffix(".txt") for image in labels.left_out}
        file_of = dict(zip(labels.images, labels.files)) | stems
        return images, [file_of[image] for image in images]
    if unlabelled == "skip":
        pairs = zip(labels.images, labels.files, labels.is_there)
        kept = [(image, file) for image, file, is_there in pairs if is_there]
        if not kept:
            raise InvalidValueError(
                f"None of the {count:,} images of {str(folder)!r} has a txt file, and "
                "`unlabelled` leaves out those without one. Received: unlabelled='skip'"
            )
        images, files = zip(*kept)
        return list(images), list(files)
    return labels.images, labels.files


def _with_boxes(files):
    """Returns words that say that txt files have boxes, unless they are not read."""
    return " with boxes" if len(files) <= MAX_READ else ""


_UNLABELLED = (
    'Say which of the two they are: pass unlabelled="negative" (--unlabelled '
    'negative) if they show no objects, or "skip" to leave them out'
)


def _note_no_names(names, source, problems):
    if not names:
        return  # an error follows that says more
    shown = repr(names[0]) if len(names) == 1 else f"{names[0]!r} to {names[-1]!r}"
    path = path_of(source)
    folder = path if path.is_dir() else path.parent
    lists = visible_files(folder, ".yaml", ".yml", ".names", ".data")
    pointer = next((str(file) for file in lists if is_lfs_pointer(file)), None)
    cure = "Pass `class_names`, or write a classes.txt with a name in each line"
    root = current_root(folder)
    maybe = lists_that_may_name(dict.fromkeys((folder, root or folder)), len(names))
    if maybe:
        cure += (
            f". {str(maybe[0])!r} may have them. If it does, rename it to classes.txt"
        )
    if empty := empty_lists(folder):
        cure += f". {str(empty[0])!r} is empty"
    if pointer is not None:
        cure = f"{pointer!r} {LFS_CURE}"
    detail = (
        "no file with the names of the classes was found (data.yaml, classes.txt, "
        f"obj.names, ...): the classes are called by their numbers, {shown}. {cure}"
    )
    problems.add("classes without names", source, detail)


def write_yolo(
    datasets: DetectionDataset | Mapping[str, DetectionDataset],
    folder: str | os.PathLike[str],
) -> None:
    """Writes a YOLO folder: `images/SPLIT`, `labels/SPLIT` and `data.yaml`.

    Boxes are clipped to their image, because readers of this format expect fractions
    from 0 to 1. Boxes without an area inside their image are left out. The format
    cannot mark crowds, which become ordinary boxes, with a warning. It does not keep
    ids, areas or masks either; a warning is given for masks.

    Args:
        datasets, folder: see `write_coco`. Other programs expect the splits "train" and
            "val".

    Raises:
        FileExistsError, OSError, ValueError: See `write_coco`.

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
        # Nine digits resolve a thousandth of a pixel in an image of a million pixels a
        # side.
        yield f"{label} {x:.9g} {y:.9g} {width:.9g} {height:.9g}"


def yolo_readers(path):
    """Finds the splits of a YOLO dataset; returns a dict from split to its reader."""
    if path.is_file() and path.suffix.lower() not in (".yaml", ".yml", ".data"):
        return {}
    if path.is_dir() and has_other_labels(path):
        return {}
    layout = find_layout(path)
    is_named = current_root() in (None, root_around(path))
    if not is_named and not has_labels(layout):
        return {}  # in a folder that nobody named: just a list of classes and images
    check_labels(layout)
    splits = layout.splits
    return {split: functools.partial(from_yolo, path, split) for split in splits}
