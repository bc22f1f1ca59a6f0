"""The parts of a YOLO dataset on disk: its `Layout`, folders of images and labels."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from effdet_keras._internal.whole_files import is_remote
from effdet_keras._internal.yaml_text import read_text
from effdet_keras.data.formats.dataset_files import names_in, role_of_split, walk
from effdet_keras.data.formats.image_paths import find_moved, path_parts
from effdet_keras.data.formats.yolo_texts import NAME_FILES, lines_of
from effdet_keras.images import IMAGE_SUFFIXES

IMAGE_FOLDERS = ("images", "image", "imgs", "img", "jpegimages", "pictures", "photos")
_CVAT = "obj_train_data"  # the folder of txt files in an export of CVAT
LABEL_FOLDERS = (
    "labels",
    "label",
    "labeltxt",  # of DOTA: oriented boxes
    "annotations",
    "annotation",
    "annots",
    "anns",
    "txt",
    "txts",
    "yolo",
    "yolo_labels",
    "labels_yolo",
)


class MissingFolderError(FileNotFoundError):
    """A `data.yaml` names folders that are not there: it is YOLO, but not whole."""


class Layout(NamedTuple):
    """A YOLO dataset on disk.

    Attributes:
        folder: its folder.
        splits: for each split its places: folders, lists of images, or, where it is not
            there, the text that names it.
        names: the names of the classes, or empty where no file has them.
        yaml: path of its `data.yaml`, or None.
        names_file: path of the file that has the names, or None.
        notes: `(kind, file, detail)` of what the user should know.
        label_folders: the folder of the txt files, by that of the images, where no
            rule tells it.
        is_flat: whether images and txt files lie side by side.
        label_files: the txt file of each image, where the places of the splits are
            images, found by the names of txt files.
        names_of: the names of the classes of each split, where the splits have lists
            that differ.
    """

    folder: Any
    splits: dict[str, list]
    names: tuple[str, ...] = ()
    yaml: Any = None
    notes: tuple = ()
    label_folders: dict[Any, Any] = {}
    is_flat: bool = False
    label_files: dict[Any, Any] = {}
    names_of: Mapping[str, tuple[str, ...]] = {}
    names_file: Any = None


def is_absolute(value: str) -> bool:
    return value.startswith(("/", "\\", "~")) or bool(re.match("[A-Za-z]:", value))


def raise_missing(
    folder: Any, value: str, split: str | None = None, there: Sequence[str] = ()
) -> NoReturn:
    rule = "`from_yolo` expects a folder or a list of images for each split"
    place = value if is_absolute(value) else str(folder / value)
    text = (
        f"{rule}. Received: {place!r}, and nothing below {str(folder)!r} has its ending"
    )
    if there:
        names = ", ".join(map(repr, there))
        text += (
            f". So the images of {split!r} are missing, and those of {names} are "
            f"there: `load({str(folder)!r}, {there[0]!r})` reads them"
        )
    raise MissingFolderError(text)


def is_missing(layout: Layout, split: str) -> bool:
    """Whether a place of a split is a text, of which nothing is there."""
    return any(isinstance(place, str) for place in layout.splits[split])


def has_image(place: Any) -> bool:
    """Whether there is an image in a folder, or a line in a list; or it is an image."""
    if place.name.lower().endswith(IMAGE_SUFFIXES):
        return True
    if not place.is_dir():
        return bool(read_text(place).strip())
    return any(
        name.lower().endswith(IMAGE_SUFFIXES)
        for _, _, names in walk(place)
        for name in names
    )


def places_of(splits: dict[str, list]) -> list[Any]:
    return [p for places in splits.values() for p in places if not isinstance(p, str)]


def resolves(place: Any, bases: Sequence[Any]) -> bool:
    """Whether one of the first images of a list is there, or a folder has one."""
    if place.is_dir():
        return has_image(place)
    lines = lines_of(place)[:5]
    if any(path is not None for path in listed(place, bases, lines)):
        return True
    found, _ = find_moved([(line,) for line in lines], place)
    return any(path is not None for path in found)


def listed(file: Any, bases: Sequence[Any], lines: Sequence[str]) -> list[Any]:
    """The path of each line of a list, or None where nothing is there."""
    bases = list(dict.fromkeys((file.parent, *bases)))
    found, last = [], None
    for line in lines:
        there = next((b / line for b in bases if (b / line).is_file()), None)
        parts = path_parts(line)
        if there is None and last is not None:  # as with the line before
            place = last[0] / "/".join(parts[last[1] :])
            there = place if parts[last[1] :] and place.is_file() else None
        if there is None:
            for base in bases:
                for start in range(len(parts)):
                    place = base / "/".join(parts[start:])
                    if place.is_file():
                        there, last = place, (base, start)
                        break
                if there is not None:
                    break
        found.append(there)
    return found


def label_folders_of(folder: Any, pairs: Mapping[Any, Any]) -> list[tuple[Any, bool]]:
    """Where the txt files of the images of a folder may be, most likely first.

    Returns:
        Pairs of a folder that is there and a bool, whether it has txt files of the
        images of this folder alone. The last one is the folder itself.
    """
    found = []
    for images, labels in pairs.items():
        inner = folder.parts[len(images.parts) :]
        if folder.parts[: len(images.parts)] == images.parts:
            found.append((labels / "/".join(inner), True))
    parts = folder.parts
    for i in reversed(range(is_remote(folder), len(parts))):  # without the host
        swapped = _swapped_names(parts[i])
        is_split = i == len(parts) - 1 and role_of_split(parts[i]) is not None
        if not swapped and not is_split:
            continue
        base, rest = _path_from(folder, parts[:i]), parts[i + 1 :]
        inner = parts[i:] if not swapped else rest
        for name in _folder_names(base):
            if name.lower() not in (swapped or LABEL_FOLDERS[:2]):
                continue
            place = _path_from(folder, (*parts[:i], name, *inner))
            if place.is_dir():
                nested = place / name  # as an archive of this name was unpacked in it
                is_nested = nested.is_dir() and not _has_texts(place)
                found.append((nested if is_nested else place, True))
            elif swapped and rest and (base / name / _CVAT).is_dir():
                found.append((base / name / _CVAT, False))  # as it was unpacked there
            elif swapped and rest and _has_texts(base / name):
                found.append((base / name, False))  # one folder for all
        if found:
            break
    inner = [
        name for name in _folder_names(folder) if name.lower() in LABEL_FOLDERS[:2]
    ]
    found += [(folder / name, True) for name in inner]
    return [*dict.fromkeys(found), (folder, True)]


def _swapped_names(name):
    """The names that the folder of the labels may have beside one of images."""
    lower = name.lower()
    if lower in IMAGE_FOLDERS:
        return LABEL_FOLDERS
    words = re.split(r"([_\-. ])", lower)  # train_images: train_labels
    if not any(word in IMAGE_FOLDERS for word in words):
        return ()
    return tuple(
        "".join(label if word in IMAGE_FOLDERS else word for word in words)
        for label in LABEL_FOLDERS[:2]
    )


def _folder_names(base):
    """The names of the folders in a folder, those most usual for labels first."""
    try:
        names = names_in(base)[0]
    except OSError:
        return []
    return sorted(names, key=lambda name: _rank(name.lower()))


def _rank(name):
    return LABEL_FOLDERS.index(name) if name in LABEL_FOLDERS else len(LABEL_FOLDERS)


def _has_texts(folder):
    """Whether a folder has txt files, besides a list of class names."""
    names = map(str.lower, names_in(folder)[1])
    return any(n.endswith(".txt") and n not in NAME_FILES for n in names)


def _path_from(path, parts):
    return path.with_parts(parts) if is_remote(path) else pathlib.Path(*parts)


def label_places(images: Any, pairs: Mapping[Any, Any]) -> list[Any]:
    """The folders of some places of images, after those of their txt files."""
    places = []
    for place in images:
        folder = place if place.is_dir() else place.parent
        labels = [p for p, _ in label_folders_of(folder, pairs) if p != folder]
        # A list beside images whose txt files are elsewhere may be left from a tool.
        own = [folder.parent, folder] if labels else [folder, folder.parent]
        places += [*labels, *own]
    return list(dict.fromkeys(places))
