"""The `Layout` of a YOLO dataset on disk, and its folders of images and labels."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from effdet_keras._internal.whole_files import is_remote
from effdet_keras._internal.yaml_text import read_text
from effdet_keras.data.formats.dataset_files import (
    names_in,
    role_of_split,
    split_in_name,
    visible_files,
    walk,
)
from effdet_keras.data.formats.image_paths import find_moved, path_parts
from effdet_keras.data.formats.yolo_texts import NAME_FILES, is_list, lines_of
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
    """Raised if folders of a dataset in YOLO's format do not exist.

    They are named in a `data.yaml`, for example: the format is YOLO's, but the dataset
    is incomplete.
    """


class Layout(NamedTuple):
    """Where a YOLO dataset has its images, labels and class names on disk.

    Attributes:
        folder: its folder.
        splits: dict from split to its places: folders, lists of images, images, or, for
            a place that does not exist, the text that names it.
        names: names of the classes; empty if no file has them.
        yaml: path of its `data.yaml`, or None.
        notes: `(kind, file, detail)` of what the user should know.
        label_folders: dict from a folder of images to its folder of txt files, if no
            rule leads from one to the other.
        is_flat: whether images and txt files lie side by side.
        label_files: dict from image to txt file, if the places of the splits are images
            that were found by the names of txt files.
        names_of: class names of each split, if the lists of the splits differ.
        names_file: path of the file that has the names, or None.
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
        f"{rule}. Received: {place!r}, which does not exist; no path below "
        f"{str(folder)!r} ends like it"
    )
    if there:
        names = ", ".join(map(repr, there))
        text += (
            f". So the images of {split!r} are missing, but those of {names} were "
            f"found: `load({str(folder)!r}, {there[0]!r})` reads them"
        )
    raise MissingFolderError(text)


def is_missing(layout: Layout, split: str) -> bool:
    """Returns whether a place of a split does not exist, and is a text."""
    return any(isinstance(place, str) for place in layout.splits[split])


def has_image(place: Any) -> bool:
    """Returns whether a path is an image, a folder with one, or a list with a line."""
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
    """Returns whether one of a list's first images exists, or a folder has an image."""
    if place.is_dir():
        return has_image(place)
    lines = lines_of(place)[:5]
    if any(path is not None for path in listed(place, bases, lines)):
        return True
    return any(path is not None for path in find_listed(lines, place))


def find_listed(lines: Sequence[str], file: Any) -> list[Any]:
    """Returns the path of each line of a list whose images have moved, or None.

    Images in folders of other splits count only if none is elsewhere, and if no list
    beside this one, such as that of another split, has an image of the same name.
    """
    names = [(line,) for line in lines]
    found, _ = find_moved(names, file)
    if is_remote(file) or any(path is not None for path in found):
        return found
    known = _file_names(lines_of(file))
    others = [other for other in visible_files(file.parent, ".txt") if other != file]
    others = [o for o in others if split_in_name(o.stem) is not None and is_list(o)]
    if not others or any(known & _file_names(lines_of(other)) for other in others):
        return found
    return find_moved(names, file, any_split=True)[0]


def _file_names(lines):
    return {parts[-1].lower() for parts in map(path_parts, lines) if parts}


def listed(file: Any, bases: Sequence[Any], lines: Sequence[str]) -> list[Any]:
    """Returns the path of each line in a list of images, or None if it does not exist.

    Args:
        file: path of the list.
        bases: folders that the lines may be relative to, besides that of the list.
        lines: lines of the list: paths, perhaps of another machine. Then the longest
            ending of the path that exists in a base is used.
    """
    bases = list(dict.fromkeys((file.parent, *bases)))
    found, last = [], None
    for line in lines:
        there = next((b / line for b in bases if (b / line).is_file()), None)
        parts = path_parts(line)
        if there is None and last is not None:  # try what worked for an earlier line
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
    """Returns the folders that may have the txt files of a folder's images.

    The most likely folder comes first.

    Args:
        folder: folder of images.
        pairs: see `label_folders` of `Layout`.

    Returns:
        List of pairs of an existing folder and a bool: whether its txt files belong
        only to the images of this folder. The last item is the folder itself.
    """
    found = []
    for images, labels in pairs.items():
        inner = folder.parts[len(images.parts) :]
        if folder.parts[: len(images.parts)] == images.parts:
            found.append((labels / "/".join(inner), True))
    parts = folder.parts
    # Without the host of an address.
    for i in reversed(range(is_remote(folder), len(parts))):
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
                # An archive of this name was unpacked into the folder.
                nested = place / name
                is_nested = nested.is_dir() and not _has_texts(place)
                found.append((nested if is_nested else place, True))
            elif swapped and rest and (base / name / _CVAT).is_dir():
                # An export was unpacked there.
                found.append((base / name / _CVAT, False))
            elif swapped and rest and _has_texts(base / name):
                # One folder has the txt files of all images.
                found.append((base / name, False))
        if found:
            break
    inner = [
        name for name in _folder_names(folder) if name.lower() in LABEL_FOLDERS[:2]
    ]
    found += [(folder / name, True) for name in inner]
    return [*dict.fromkeys(found), (folder, True)]


def _swapped_names(name):
    """Returns possible names of the label folder that belongs to a folder of images.

    It is empty if the name is not that of a folder of images.
    """
    lower = name.lower()
    if lower in IMAGE_FOLDERS:
        return LABEL_FOLDERS
    words = re.split(r"([_\-. ])", lower)  # train_images -> train_labels
    if not any(word in IMAGE_FOLDERS for word in words):
        return ()
    return tuple(
        "".join(label if word in IMAGE_FOLDERS else word for word in words)
        for label in LABEL_FOLDERS[:2]
    )


def _folder_names(base):
    """Returns the names of the folders in a folder, usual label folders first."""
    try:
        names = names_in(base)[0]
    except OSError:
        return []
    return sorted(names, key=lambda name: _rank(name.lower()))


def _rank(name):
    return LABEL_FOLDERS.index(name) if name in LABEL_FOLDERS else len(LABEL_FOLDERS)


def _has_texts(folder):
    """Returns whether a folder has txt files other than a list of class names."""
    names = map(str.lower, names_in(folder)[1])
    return any(n.endswith(".txt") and n not in NAME_FILES for n in names)


def _path_from(path, parts):
    return path.with_parts(parts) if is_remote(path) else pathlib.Path(*parts)


def label_places(images: Any, pairs: Mapping[Any, Any]) -> list[Any]:
    """Returns the folders of some places, preceded by the folders of their txt files.

    Args:
        images: folders of images, or lists of images.
        pairs: see `label_folders` of `Layout`.
    """
    places = []
    for place in images:
        folder = place if place.is_dir() else place.parent
        labels = [p for p, _ in label_folders_of(folder, pairs) if p != folder]
        # If the txt files are elsewhere, a list of names beside the images may be left
        # over from a tool.
        own = [folder.parent, folder] if labels else [folder, folder.parent]
        places += [*labels, *own]
    return list(dict.fromkeys(places))
