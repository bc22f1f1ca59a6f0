"""Reads formats through the package `datumaro`: KITTI, WIDER FACE, Open Images, ..."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from effdet_keras._internal.optional_imports import datumaro
from effdet_keras._internal.remote_path import is_file, path_of
from effdet_keras._internal.whole_files import is_remote, local_path
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.formats import reading
from effdet_keras.data.formats.annotation_files import (
    Objects,
    annotation_folders,
    class_order,
    head_of,
    known_files,
    note_rotated,
    read_split,
)
from effdet_keras.data.formats.dataset_files import split_in_name, visible_folders
from effdet_keras.data.formats.image_paths import ImageLocator
from effdet_keras.data.formats.label_map import ClassNames
from effdet_keras.data.problems import Problems
from effdet_keras.errors import InvalidValueError

# The formats that are recognized here: our names, and those of datumaro.
_FORMATS = {
    "kitti": "kitti_detection",
    "wider_face": "wider_face",
    "open_images": "open_images",
    "vott": "vott_json",
    "datumaro": "datumaro",
    "labelme_xml": "label_me",
    "mot": "mot_seq",
}
_SHAPES = ("bbox", "rotated_bbox", "polygon", "mask", "ellipse")
_OUTLINES = ("polygon", "mask")  # of an object that may have a box too
_WITHOUT_BOX = ("points", "polyline", "cuboid_3d", "cuboid_2d")
_IGNORED = ("DontCare",)  # KITTI's name for regions that were not annotated
_ONLY_CLASS = {"wider_face": "face"}  # the class of formats that have only one


def from_datumaro(
    source: Any,
    split: str | None = None,
    *,
    format: str | None = None,
    class_names: ClassNames | None = None,
    on_error: str = "auto",
) -> DetectionDataset:
    """Reads a dataset in a format that the package `datumaro` knows.

    `load` recognizes KITTI, WIDER FACE, Open Images, VoTT's json, Datumaro's own
    format, LabelMe's xml and MOT. The package must be installed:
    `pip install "effdet-keras[datumaro]"`. It rounds coordinates to a hundredth of a
    pixel, and in Pascal VOC's format it does not count pixels from 1.

    Outlines, masks and rotated boxes become the upright box around them. Points and
    lines are left out, with a warning, and so are KITTI's `DontCare` regions.

    Args:
        source: folder of the dataset, or a `datumaro.Dataset`.
        split: name of a subset, such as "train". None reads the only one.
        format: name of the format in `load`, such as "kitti", or any name that datumaro
            uses, such as "dota" or "mapillary_vistas". None detects it.
        class_names, on_error: see `load`.

    Returns:
        `DetectionDataset`. The classes are in the order of datumaro's categories. These
        include all classes of a known benchmark, even if some do not occur. `image_id`
        counts from 1; `source_id` is the id of the item. Crowds, and objects that VOC
        marks as difficult, are crowds.

    Raises:
        ImportError: If datumaro is not installed.
        FileNotFoundError: If images are missing.
        ValueError: If the format is unknown, if there are several subsets and `split`
            is None, if datumaro cannot read the folder, or, depending on `on_error`, if
            an object has no class.

    Example:
        >>> import datumaro  # doctest: +SKIP
        >>> from_datumaro("KITTI", "training", format="kitti")  # doctest: +SKIP
        DetectionDataset(7481 images, 40570 boxes, ...)
    """
    if isinstance(source, str | os.PathLike):
        path = path_of(source)
        name = format or _recognized(path)
        readers = _readers_of_items(path, name)
    else:
        path = name = "a datumaro.Dataset"
        readers = _readers_of_dataset(source, path)
    tool = f"`from_datumaro` found no subset in {name}: images with boxes"
    options = {"class_names": class_names, "on_error": on_error}
    return read_split(readers, path, split, tool, **options)


def _recognized(path):
    """Returns the name of the format of a folder."""
    names = [name for name, is_one in _SIGNATURES.items() if is_one(path)]
    if len(names) == 1:
        return names[0]
    library = datumaro.require("`from_datumaro`")
    found = library.Environment().detect_dataset(str(path))
    if len(found) == 1:
        return found[0]
    raise InvalidValueError(
        "`from_datumaro` did not find out the format: pass `format`, a name of "
        f"datumaro's. Received: {str(path)!r}, which may be one of {found or names}"
    )


def _readers_of_items(path, name):
    """Returns the readers of the subsets of a folder that datumaro reads."""
    library = datumaro.require(f"Reading {str(path)!r}, which has the format {name!r},")
    format = _FORMATS.get(name, name)
    known = sorted(library.Environment().importers)
    if format not in known:
        raise InvalidValueError(
            f"`format` must be one of {list(_FORMATS)}, or a name of datumaro's, of "
            f"{known}. Received: format={name!r}"
        )
    folder = local_path(path, "The path of a folder that datumaro reads")
    import_from = functools.partial(library.Dataset.import_from, format=format)
    try:
        default = _ONLY_CLASS.get(format)
        return _imported(import_from, folder, _SIGNATURES.get(name), default)
    except Exception as error:  # datumaro raises almost anything
        cause = error.__cause__ or error
        raise InvalidValueError(
            f"datumaro cannot read {str(path)!r} as {format!r}: "
            f"{type(cause).__name__}: {' '.join(str(cause).split())}"
        ) from error


def _imported(import_from, folder, is_one, default):
    """Returns the readers of a folder, or of the folders in it, which are splits."""
    try:
        return _readers_of_dataset(import_from(str(folder)), folder, default)
    except datumaro.components.errors.DatasetImportError as error:
        conflict = datumaro.components.errors.ConflictingCategoriesError
        if is_one is None or not isinstance(error.__cause__, conflict):
            raise
    # One split has a class that another one lacks. Here, each split may have its own
    # classes.
    return {
        inner.name: read
        for inner in filter(is_one, visible_folders(folder))
        for read in _readers_of_dataset(
            import_from(str(inner)), inner, default
        ).values()
    }


def _readers_of_dataset(dataset, source, default=None):
    subsets = {name: list(subset) for name, subset in dataset.subsets().items()}
    labels = dataset.categories().get(datumaro.AnnotationType.label, ())
    names = [label.name for label in labels]
    if len(subsets) == 1 and not any(
        map(split_in_name, subsets)
    ):  # named after the file
        (items,) = subsets.values()
        subsets = {reading.ONE_SPLIT: items}
    splits = reading.split_names(sorted(subsets))
    return {
        split: functools.partial(_read, subsets[name], names, source, default)
        for split, name in zip(splits, sorted(subsets))
    }


def _read(items, names, source, default, class_names=None, on_error="auto"):
    """Returns the dataset of a subset."""
    problems = Problems(f"`from_datumaro` of {str(source)!r}", on_error)
    is_path = isinstance(source, os.PathLike)
    locator = ImageLocator(source / "items") if is_path else None
    rotated = []
    found = [_found(item, names, default, locator, problems, rotated) for item in items]
    note_rotated(problems, source, rotated)
    used = {name for image in found for name in image.classes}
    # Background and ignored regions are categories of datumaro, but no classes here.
    others = {*_IGNORED, "background"} - used
    known = [name for name in names if name not in others]
    if default is not None:  # the other categories are of whole images
        known = class_order([name for name in names if name in used], found)
    classes = reading.named_classes(known, class_names)
    return reading.make_dataset(found, classes, problems, source=source)


def _found(item, names, default, locator, problems, rotated):
    objects, crowds = Objects(), []
    for annotation in _one_each(item.annotations):
        kind = annotation.type.name
        label = getattr(annotation, "label", None)
        name = names[label] if label is not None and label < len(names) else default
        if kind in _WITHOUT_BOX or name in _IGNORED:
            problems.add("unread shape", item.id, f"{kind} of {name!r}")
            continue
        if kind not in _SHAPES:  # for example the class of an image, or a caption
            continue
        if name is None:
            problems.add("bad box", item.id, f"{kind} without a class")
            continue
        if kind == "rotated_bbox":
            rotated.append(f"{name!r} in {item.id}")
        objects.add(annotation.get_bbox(), name)
        flags = [annotation.attributes.get(f) for f in ("is_crowd", "difficult")]
        crowds.append(any(flags))
    image, size = _image_of(item, locator)
    return reading.Found(
        place=item.id,
        image=image,
        boxes=objects.boxes,
        classes=objects.classes,
        source_id=item.id,
        file_name=image.name if isinstance(image, os.PathLike) else item.id,
        image_size=size,
        is_crowd=crowds,
    )


def _one_each(annotations):
    """Yields the annotations, each object once.

    If an object has a box and outlines, which share a group, only the box is yielded.
    Several outlines of an object without a box are combined.
    """
    boxed = {
        (a.group, a.label) for a in annotations if a.group and a.type.name == "bbox"
    }
    outlined = {}
    for annotation in annotations:
        if annotation.type.name not in _OUTLINES or not annotation.group:
            yield annotation
        elif (annotation.group, annotation.label) not in boxed:
            key = annotation.group, annotation.label
            outlined.setdefault(key, []).append(annotation)
    for members in outlined.values():
        yield _Joined(members) if len(members) > 1 else members[0]


class _Joined:
    """The outlines of one object, of which several parts are visible."""

    def __init__(self, members):
        self.type, self.label = members[0].type, members[0].label
        self.attributes = members[0].attributes
        self._members = members

    def get_bbox(self):
        """Returns left, top, width and height of the box around all parts."""
        boxes = np.array([member.get_bbox() for member in self._members])
        low = boxes[:, :2].min(axis=0)
        high = (boxes[:, :2] + boxes[:, 2:]).max(axis=0)
        return (*low, *(high - low))


def _image_of(item, locator):
    """Returns the image of an item, a path or an array, and its size or None."""
    media = item.media
    path = getattr(media, "path", None)
    if path and is_file(path):
        return path_of(path), None
    if locator is not None:
        found = locator.find(path or item.id)
        found = found if is_file(found) else locator.find_frame(item.id.split("/")[-1])
        if found is not None:
            return found, None
    data = None if media is None else media.data
    if data is None:
        return path_of(path or item.id), None
    return np.ascontiguousarray(data[..., 2::-1].astype(np.uint8)), None  # BGR


# --- Recognition of the formats of folders.


def datumaro_readers(name: str, path: Any) -> dict[str, Callable]:
    """Finds a dataset in one of datumaro's formats; returns a reader per split.

    Args:
        name: one of our names of these formats, such as "kitti".
        path: folder of the dataset. A file or an address has no readers.

    Returns:
        Dict from split to the function that reads it. Without the package it has one
        reader, which says how to install it.
    """
    if is_remote(path) or path.is_file() or not _SIGNATURES[name](path):
        return {}
    if not datumaro.is_installed():  # reading says how to install it
        read = functools.partial(from_datumaro, path, format=name)
        return {reading.ONE_SPLIT: read}
    return _readers_of_items(path, name)


def _is_kitti(path):
    places = (path, *visible_folders(path))
    return any((p / "label_2").is_dir() and (p / "image_2").is_dir() for p in places)


def _is_wider_face(path):
    return (path / "wider_face_split").is_dir()


def _is_open_images(path):
    places = (path, path / "annotations")
    return any(any(place.glob("*-annotations-bbox.csv")) for place in places)


def _is_vott(path):
    places = (path, path / "vott-json-export")
    return any(any(place.glob("*-export.json")) for place in places)


def _is_datumaro(path):
    places = [p for p in annotation_folders(path) if p.name == "annotations"]
    return any(known_files(place, (".json",), _is_datumaro_json) for place in places)


def _is_datumaro_json(path):
    head = head_of(path)
    is_start = head.startswith(b"{") and b'"dm_format_version"' in head
    return is_start or (
        b'"label"' in head and b'"labels"' in head and b'"items"' in head
    )


def is_labelme_xml(path: Any) -> bool:
    """Returns whether an xml file is LabelMe's, with an outline for each object.

    Pascal VOC's files have boxes instead.
    """
    head = head_of(path)
    return b"<bndbox>" not in head and (b"<polygon>" in head or b"<segm>" in head)


def _is_labelme_xml(path):
    folders = annotation_folders(path)
    places = [path, *folders, *(p for f in folders for p in visible_folders(f))]
    return any(known_files(place, (".xml",), is_labelme_xml) for place in places)


def _is_mot(path):
    places = (path, *visible_folders(path))
    return any((p / "gt" / "gt.txt").is_file() for p in places)


_SIGNATURES = {
    "kitti": _is_kitti,
    "wider_face": _is_wider_face,
    "open_images": _is_open_images,
    "vott": _is_vott,
    "datumaro": _is_datumaro,
    "labelme_xml": _is_labelme_xml,
    "mot": _is_mot,
}
kitti_readers = functools.partial(datumaro_readers, "kitti")
wider_face_readers = functools.partial(datumaro_readers, "wider_face")
open_images_readers = functools.partial(datumaro_readers, "open_images")
vott_readers = functools.partial(datumaro_readers, "vott")
datumaro_own_readers = functools.partial(datumaro_readers, "datumaro")
labelme_xml_readers = functools.partial(datumaro_readers, "labelme_xml")
mot_readers = functools.partial(datumaro_readers, "mot")
