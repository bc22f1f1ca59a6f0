"""Where a YOLO dataset has its images, txt files and class names.

People arrange these files in many ways: Ultralytics' `data.yaml`, darknet's `.data`
file and lists, folders of images and labels, folders of splits, or all side by side.
"""

from __future__ import annotations

import collections
import itertools
import json
import os
import pathlib
import re
import reprlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from effdet_keras._internal.remote_path import path_of
from effdet_keras._internal.whole_files import is_remote
from effdet_keras._internal.yaml_text import load_yaml, read_text
from effdet_keras.data.dataset import count_of
from effdet_keras.data.formats import reading
from effdet_keras.data.formats.dataset_files import (
    NO_DATA_FOLDERS,
    is_visible,
    names_in,
    role_of_split,
    split_folders,
    split_in_name,
    split_roles,
    splits_in_names,
    visible_files,
    visible_folders,
    walk,
)
from effdet_keras.data.formats.image_paths import (
    ImageIndex,
    current_root,
    find_folder,
    find_moved,
    is_outside,
    path_parts,
    without_hash,
)
from effdet_keras.data.formats.label_map import read_label_map
from effdet_keras.data.formats.yolo_rows import is_dota, is_named
from effdet_keras.data.problems import Problems
from effdet_keras.data.shared_images import is_copy
from effdet_keras.errors import InvalidValueError
from effdet_keras.images import IMAGE_SUFFIXES

IMAGE_FOLDERS = ("images", "image", "imgs", "img", "jpegimages", "pictures", "photos")
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
# Files that lie among images, and that nobody would miss there.
_COMPANIONS = frozenset(
    """
    .txt .xml .json .jsonl .csv .tsv .yaml .yml .md .rst .html .cache .npy .names
    .labels
    .data .db .ini .py .ipynb .sh .bat .zip .tar .gz .record .tfrecord .tfrecords .pbtxt
    .cfg .toml .log .lock .pt .pth .h5 .ds_store .doc .docx .pdf .xlsx
    """.split()
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
    names_of: dict[str, tuple[str, ...]] = {}


def find_layout(path: Any) -> Layout:
    """Finds where a YOLO dataset has its images, its splits and its class names.

    Args:
        path: a folder, a `data.yaml` or a darknet `.data` file.

    Raises:
        FileNotFoundError: If it has no such dataset.
        ValueError: If its `data.yaml` has no splits, or wrong `names`.
    """
    path = path_of(path)
    if path.is_file():
        is_darknet = path.suffix.lower() == ".data"
        layout = _darknet_layout(path) if is_darknet else _yaml_layout(path)
        if layout is None:
            raise MissingFolderError(
                f"The lists of images that {str(path)!r} names are not there."
            )
        return layout
    file, others = _find_yaml(path)
    if file is None:
        return _folder_layout(path)
    layout = _yaml_layout(file)
    if others:
        names = ", ".join(repr(other.name) for other in others)
        detail = (
            f"{file.name!r} is read, of several yaml files with splits: not {names}"
        )
        layout = layout._replace(
            notes=(*layout.notes, ("other yaml file", str(path), detail))
        )
    return layout


# --- Ultralytics' data.yaml.


def find_yaml(path: Any) -> Any:
    """The `data.yaml` that a path is, or that lies in a folder; None without one."""
    path = path_of(path)
    return path if path.is_file() else _find_yaml(path)[0]


def _find_yaml(folder):
    """The `data.yaml` of a folder, by whatever name, and others that could be meant."""
    files = visible_files(folder, ".yaml", ".yml")
    # One called data.yaml is meant, also where it is wrong. Others may be of anything.
    meant = [file for file in files if file.stem.lower() == "data"]
    if meant:
        better = _more_whole(files, meant[0])
        return (meant[0], []) if better is None else (better, meant)
    known = [file for file in files if _has_splits(file)]
    there = [file for file in known if _has_folders(file)]
    if not there and len(known) > 1:
        return None, []  # of a program for many datasets, which are elsewhere
    chosen = (there or known)[:1]
    return (chosen[0], [f for f in known if f != chosen[0]]) if chosen else (None, [])


_LARGEST = 100_000  # bytes of a data.yaml: larger ones are of something else


def _more_whole(files, meant):
    """The yaml file that has what data.yaml lacks, or None.

    It names the same classes or more, and images to train and to validate on that are
    there, and not the same; one of both is missing where data.yaml has it.
    """
    if is_remote(meant) or not _has_splits(meant):
        return None
    names, roles, is_whole = _what_is_there(meant)
    if is_whole:
        return None
    better = []
    for file in files:
        if file != meant and _is_small(file) and _has_splits(file):
            own_names, own_roles, _ = _what_is_there(file)
            has_names = len(own_names) > len(names) or own_names == names
            if has_names and len(own_roles) > len(roles):
                better.append(file)
    return better[0] if len(better) == 1 else None


def _is_small(file):
    try:
        return file.stat().st_size <= _LARGEST
    except OSError:  # a link to nowhere
        return False


def _what_is_there(file):
    """Of a data.yaml the class names, the roles of its splits, and if none is missing.

    These are images to train and to validate on, not both in the same places.
    """
    try:
        layout, entries = _yaml_layout(file), _entries_of(read_yaml(file))
    except (ValueError, OSError):
        return (), {}, False
    roles = {}
    for split, places in layout.splits.items():
        role = role_of_split(split)
        is_new = places not in roles.values() and not _is_missing(layout, split)
        if role in ("train", "validation") and is_new:
            roles[role] = places
    named = {role_of_split(split) for split in entries} & {"train", "validation"}
    there = {role_of_split(s) for s in layout.splits if not _is_missing(layout, s)}
    return layout.names, roles, named <= there


def _has_splits(file):
    try:
        content = load_yaml(read_text(file))
    except (ValueError, OSError):
        return False
    return isinstance(content, dict) and "names" in content and _has_places(content)


def _has_places(content):
    return any(isinstance(content.get(k), str | list) for k in ("train", "val", "test"))


def _has_folders(file):
    try:
        return bool(_yaml_layout(file).splits)
    except (ValueError, OSError):
        return False


def read_yaml(path: Any) -> dict:
    """What a `data.yaml` holds.

    Raises:
        ValueError: If it is no yaml file, or holds no keys.
    """
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


def _yaml_layout(file):
    content = read_yaml(file)
    entries = _entries_of(content)
    if not entries and "names" in content and not _has_places(content):
        layout = _any_folder_layout(file.parent)  # a file of names beside folders
        if layout is not None:
            return layout._replace(names=_names_of_yaml(content, file), yaml=file)
    rule = "A data.yaml must have `train`, `val` or `test`"
    reading.require_content(entries, rule, file, list(content))
    base = str(content.get("path") or "")
    folder = _folder_of_yaml(file, base)
    bases = [folder, file.parent, current_root(file)]
    bases = list(dict.fromkeys(b for b in bases if b is not None))
    splits, missing, moved, outside = {}, {}, [], []
    for split, values in entries.items():
        places = []
        for value in values:
            place, is_moved = find_folder(value, bases)
            if place is None or is_moved:  # it may be in a folder that `path` names
                inner = f"{base}/{value}" if base and not _is_absolute(value) else value
                again, moved_again = find_folder(inner, bases)
                if again is not None:
                    place, is_moved = again, moved_again
            if is_moved and place.is_dir() and not _has_image(place):
                place = is_moved = None  # of txt files alone, such as labels/train
            if place is None:
                missing.setdefault(split, value)
            else:
                places.append(place)
            if is_moved:
                moved.append((value, place))
            elif place is not None and _leaves(value, place, bases):
                outside.append((value, place))
        if split not in missing:
            splits[split] = places
    notes = [_note_of_moved(file, moved)] if moved else []
    notes += [_note_of_outside(file, *outside[0])] if outside else []
    if splits and not missing and all(map(_is_empty_list, _places_of(splits))):
        layout = _any_folder_layout(file.parent)
        if layout is not None:
            detail = (
                f"the lists that {file.name!r} names are empty: what lies beside it is "
                "read"
            )
            note = ("moved folders", str(file), detail)
            layout = layout._replace(yaml=file, notes=(*layout.notes, note))
            names = _names_of_yaml(content, file)
            return _with_names(layout._replace(names=names), file.parent)
    if not splits:
        layout = _any_folder_layout(file.parent)
        # Folders beside a file that names others in its own folder could be anything.
        is_meant = all(map(_is_foreign, missing.values()))
        is_meant = is_meant or (
            layout is not None
            and (
                _is_inside(layout, missing)
                or _has_txt_files_of(layout, missing)
                or _has_splits_of(layout, missing, content, file)
            )
        )
        if layout is None or not (is_meant or layout.label_files):
            _raise_missing(folder, next(iter(missing.values())))
        detail = f"the folders that {file.name!r} names are not there: {missing}"
        note = ("moved folders", str(file), f"{detail}. Those beside it are read")
        names = _names_of_yaml(content, file)
        return layout._replace(names=names, yaml=file, notes=(*layout.notes, note))
    empty = {
        split: str(places[0])
        for split, places in splits.items()
        if not any(_is_there(place, split, bases) for place in places)
    }
    if len(empty) < len(splits):
        missing |= empty
        splits = {split: p for split, p in splits.items() if split not in empty}
    for split, value in missing.items():
        if role_of_split(split) == "train":
            splits[split] = [value]  # an error, if it is asked for
        elif role_of_split(split) != "test" or split in empty:
            why = f"there are no images at {value!r}"
            if split in empty and _is_list_of(empty[split]):
                why = f"the images that {value!r} names are not there"
            detail = f"the split {split!r} of {file.name!r} is left out: {why}"
            notes.append(("missing split", str(file), detail))
    splits, own_notes = _divided(splits, file)
    notes += [*own_notes, *_notes_of_unnamed_test(splits, file)]
    count = content.get("nc")
    names, names_of = _names_of_yaml(content, file), {}
    if not names:
        places = [file.parent, folder, *_places_of(splits)]
        names, names_of, own_notes = _names_of_layout(places, file.parent, splits, {})
        notes += own_notes
        rule = "`names` of a data.yaml must be a list of class names"
        reading.require_content(names, rule, file, content.get("names"))
    if isinstance(count, int) and count != len(names):
        detail = (
            f"{file.name!r} says `nc: {count}`, but has {len(names)} names: these are "
            "the classes"
        )
        notes.append(("number of classes", str(file), detail))
    order = [split for split in entries if split in splits]
    return Layout(
        folder,
        {k: splits[k] for k in order},
        names,
        file,
        notes=tuple(notes),
        names_of=names_of,
    )


def _divided(splits, file):
    """The splits, each with the folder of its name where the file has one for several.

    Returns:
        The splits; and a note of each that has another folder than the file says.
    """
    notes, result = [], {}
    for split, places in splits.items():
        is_shared = len(places) == 1 and list(splits.values()).count(places) > 1
        own = _sibling_of_split(places[0], split, file.parent) if is_shared else None
        result[split] = places if own is None else [own]
        if own not in (None, places[0]):
            detail = (
                f"{file.name!r} names {str(places[0])!r} for several splits: "
                f"{str(own)!r} is read for {split!r}"
            )
            notes.append(("moved folders", str(file), detail))
    return result, notes


def _notes_of_unnamed_test(splits, file):
    """A note of a folder of a test that a data.yaml does not name, or none."""
    places = [place for places in splits.values() for place in places]
    if any(role_of_split(split) == "test" for split in splits):
        return []
    own = _sibling_of_split(places[0], "test", file.parent)
    if own is None or any(place == own or place in own.parents for place in places):
        return []
    detail = (
        f"{str(own)!r} has images with txt files, and no split of {file.name!r} names "
        "it: not read. Add it as `test` to read it"
    )
    return [("missing split", str(file), detail)]


def _sibling_of_split(place, split, root):
    """The folder with labelled images that is to a split what `place` is to another.

    For "val" it is `images/val` where the place is `images` or `images/train`, and
    `val/images` where it is `train/images`; None where there is none in `root`.
    """
    if isinstance(place, str) or is_remote(place) or not place.is_dir():
        return None
    around, below = place, ""
    if not split_folders(place):
        named = _folder_of_a_split(place, root)
        if named is None:
            return None
        around, below = named.parent, "/".join(place.parts[len(named.parts) :])
    for other, folder in split_folders(around).items():
        found = folder / below
        if role_of_split(other) != role_of_split(split) or not found.is_dir():
            continue
        if _has_image(found) and has_labels(Layout(found, {split: [found]})):
            return found
    return None


def _folder_of_a_split(place, root):
    """The folder around a place in `root` that is called after a split, or None."""
    if place.parts[: len(root.parts)] != root.parts:
        return None
    while place != root:
        if role_of_split(place.name) is not None:
            return place
        place = place.parent
    return None


_NO_SPLIT_KEYS = (
    "path",
    "names",
    "nc",
    "download",
    "yaml_file",
    "roboflow",
    "channels",
)


def _entries_of(content):
    """The places of each split, as the file has them."""
    entries = {}
    for key, value in content.items():
        values = value if isinstance(value, list) else [value]
        are_texts = all(isinstance(v, str) and v.strip() for v in values)
        if not (value and are_texts and isinstance(key, str)):
            continue
        is_split = role_of_split(key) is not None or _is_place(values[0])
        if is_split and key not in _NO_SPLIT_KEYS:
            entries[key] = values
    usual = ("train", "val", "valid", "validation", "test")
    first = [key for key in usual if key in entries]
    return {
        key: entries[key] for key in [*first, *(k for k in entries if k not in first)]
    }


def _is_place(value):
    """Whether a text of an unknown key is that of a folder of images."""
    return value.replace("\\", "/").strip("./").startswith("images/")


def _folder_of_yaml(file, base):
    """The folder that the paths of a data.yaml start from."""
    if base and not is_remote(file):
        place = file.parent / os.path.expanduser(base)
        if place.is_dir():
            return place
    if base and is_remote(file) and (file.parent / base).is_dir():
        return file.parent / base
    return file.parent


def _is_absolute(value):
    return value.startswith(("/", "\\", "~")) or bool(re.match("[A-Za-z]:", value))


def _is_foreign(value):
    """Whether a path is of another place than the folder of the file."""
    return _is_absolute(value) or value.startswith("..")


def _is_inside(layout, missing):
    """Whether a layout has its images where a data.yaml names a folder of theirs.

    Of `train/images` there may be `train/cats/images` and `train/dogs/images`.
    """
    return all(
        split in missing
        and all(
            place.parts[: len(folder.parts)] == folder.parts != place.parts
            for folder in [layout.folder / path_parts(missing[split])[0]]
            for place in places
        )
        for split, places in layout.splits.items()
    )


def _has_txt_files_of(layout, missing):
    """Whether a layout has the folders of txt files of images that a data.yaml names.

    Of `images`, which is not there, it is `labels`, if its files are those of other
    images.
    """
    labels = {
        layout.folder / "/".join(["labels" if p == "images" else p for p in parts])
        for parts in map(path_parts, missing.values())
        if "images" in parts
    }
    return bool(labels) and labels == set(layout.label_folders.values())


def _has_splits_of(layout, missing, content, file):
    """Whether a layout has two splits or more, and for each that is missing one.

    A list of other class names beside it says that the data.yaml is of other images.
    """
    roles = set(map(role_of_split, layout.splits))
    wanted = set(map(role_of_split, missing))
    if len(missing) < 2 or len(layout.splits) < 2 or not roles >= wanted:
        return False
    listed = _with_names(layout, layout.folder).names
    names = _names_of_yaml(content, file)
    return not listed or not names or listed == names


def _raise_missing(folder, value, split=None, there=()):
    rule = "`from_yolo` expects a folder or a list of images for each split"
    place = value if _is_absolute(value) else str(folder / value)
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


def _is_missing(layout, split):
    """Whether a place of a split is a text, of which nothing is there."""
    return any(isinstance(place, str) for place in layout.splits[split])


def _note_of_moved(file, moved):
    value, place = moved[0]
    detail = (
        f"{len(moved)} of the places that {file.name!r} names are of another machine "
        f"or folder. Read by the ending of their path: {value!r} is {str(place)!r}"
    )
    return ("moved folders", str(file), detail)


def _leaves(value, place, bases):
    """Whether a data.yaml names a folder outside of the dataset by `..`."""
    return value.strip("'\" ").startswith("..") and is_outside(place, bases)


def _note_of_outside(file, value, place):
    detail = (
        f"{file.name!r} names {value!r}, which is {os.path.abspath(place)!r}, outside "
        "of the dataset. If these images are of another one, leave out the `../` and "
        "put those that are meant beside the file"
    )
    return ("moved folders", str(file), detail)


def _names_of_yaml(content, file):
    """The `names` of a data.yaml, a list, or a dict by number; empty without any."""
    names = content.get("names")
    if names is None:
        return ()
    if isinstance(names, dict):
        numbers = {int(k) if str(k).isdecimal() else k: v for k, v in names.items()}
        if set(numbers) == set(range(len(numbers))):
            names = [numbers[i] for i in range(len(numbers))]
    are_names = isinstance(names, list) and all(isinstance(n, str) for n in names)
    rule = (
        "`names` of a data.yaml must be a list of class names, or a dict of them by "
        "number from 0"
    )
    reading.require_content(are_names, rule, file, names)
    return tuple(names)


def _has_image(place):
    """Whether there is an image in a folder, or a line in a list."""
    if not place.is_dir():
        return bool(read_text(place).strip())
    return any(
        name.lower().endswith(IMAGE_SUFFIXES)
        for _, _, names in walk(place)
        for name in names
    )


def _is_empty_list(place):
    return not place.is_dir() and not _has_image(place)


def _is_list_of(text):
    place = pathlib.Path(text)
    return place.is_file() and _is_list(place)


def _is_there(place, split, bases):
    """Whether there is an image in a folder, or one of those that a list names.

    Of a list to train on a line is enough: the error names the images that are missing.
    Of others an image of the name is, wherever it lies.
    """
    is_train = role_of_split(split) == "train"
    if is_train or place.is_dir() or is_remote(place) or not _is_list(place):
        return _has_image(place)
    if _resolves(place, [*bases, place.parent.parent]):
        return True
    root = current_root(place) or place.parent
    wanted = {re.split(r"[\\/]", line)[-1] for line in _lines_of(place)}
    return any(not wanted.isdisjoint(names) for _, _, names in walk(root))


def _places_of(splits):
    return [p for places in splits.values() for p in places if not isinstance(p, str)]


# --- Darknet's .data file, and lists of images.


# `eval = coco` is the way to evaluate, and `backup` a folder of weights.
_DARKNET_SPLITS = ("train", "valid", "val", "test")


def _darknet_layout(file):
    """The layout of a file of lines `train = data/train.txt`, or None."""
    content = _darknet_content(file)
    bases = [file.parent, file.parent.parent, current_root(file)]
    bases = list(dict.fromkeys(b for b in bases if b is not None))
    splits, missing = {}, {}
    for key, value in content.items():
        if key in _DARKNET_SPLITS and value:
            place, _ = find_folder(value, bases)
            if place is not None and _resolves(place, bases):
                splits[key] = [place]
            else:
                missing[key] = value
    if not splits:
        return None
    names, names_of, own_notes = (), {}, []
    if "names" in content:
        place, _ = find_folder(content["names"], bases)
        names = () if place is None else _names_in_file(place)
    if not names:
        places = [file.parent, *_label_places(_places_of(splits), {})]
        names, names_of, own_notes = _names_of_layout(places, file.parent, splits, {})
    notes = tuple(
        (
            "missing split",
            str(file),
            f"the split {key!r} of {file.name!r} is left out: no image of {value!r} is "
            "there",
        )
        for key, value in missing.items()
    )
    notes += (*own_notes, *_notes_of_more_lists(splits, file))
    return Layout(file.parent, splits, names, notes=notes, names_of=names_of)


def _darknet_content(file):
    """What a .data file has, by its keys."""
    content = {}
    for line in read_text(file).splitlines():
        key, is_pair, value = line.partition("=")
        if is_pair and not line.lstrip().startswith("#"):
            content[key.strip()] = value.strip()
    return content


def _notes_of_more_lists(splits, file):
    """Notes of lists beside those of a .data file, as of a test, that it lacks."""
    lists = [p for (p,) in splits.values() if p.suffix.lower() == ".txt"]
    used = {os.path.realpath(path) for path in lists}
    roles = set(map(role_of_split, splits))
    notes = []
    for folder in dict.fromkeys(path.parent for path in lists):
        for split, path in _split_lists(folder).items():
            if role_of_split(split) not in roles and os.path.realpath(path) not in used:
                detail = (
                    f"{path.name!r} is a list of images beside those of {file.name!r}, "
                    f"which does not name it, and is not read. Add "
                    f"`{split} = {path.name}` to read it"
                )
                notes.append(("missing split", str(file), detail))
    return notes


def _resolves(place, bases):
    """Whether one of the first images of a list is there, or a folder has one."""
    if place.is_dir():
        return _has_image(place)
    lines = _lines_of(place)[:5]
    if any(path is not None for path in _listed(place, bases, lines)):
        return True
    found, _ = find_moved([(line,) for line in lines], place)
    return any(path is not None for path in found)


def _lines_of(file):
    """The lines of a list of files, without hidden ones, such as a Mac's .DS_Store."""
    lines = [line.strip() for line in read_text(file).splitlines()]
    names = [re.split(r"[\\/]", line)[-1] for line in lines]
    return [line for line, name in zip(lines, names) if line and is_visible(name)]


def _list_layout(path):
    """The layout of lists such as train.txt and val.txt beside the images, or None."""
    splits = {split: [file] for split, file in _split_lists(path).items()}
    layout = Layout(path, splits)
    return layout if splits and has_labels(layout) else None


def _split_lists(folder):
    """The lists of images in a folder that are called after splits, by the split."""
    splits = {}
    for file in visible_files(folder, ".txt"):
        split = split_in_name(file.stem)
        if split is not None and _is_list(file) and _resolves(file, [folder]):
            splits[split] = file
    return splits


def _is_list(file):
    first = _lines_of(file)[:1]
    return bool(first) and first[0].lower().endswith(IMAGE_SUFFIXES)


def _listed(file, bases, lines):
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


# --- Folders without a file that describes them.


def _folder_layout(path):
    layout = _any_folder_layout(path)
    if layout is None and (files := _data_files(path)):
        raise MissingFolderError(
            f"{str(files[0])!r} names lists of images, of which none is there: put the "
            "images into its folder, as the lists have them"
        )
    if layout is None and (texts := _label_files(path)):
        raise MissingFolderError(
            f"{count_of(len(texts), 'txt file')} of {str(texts[0].parent)!r} with "
            f"boxes, such as {texts[0].name!r}, have no image of their name: put the "
            "images beside them"
        )
    if layout is None:
        raise FileNotFoundError(
            "`from_yolo` expects a folder with a data.yaml, with `images` and "
            f"`labels`, or with images and txt files. Received: path={str(path)!r}"
        )
    return _with_names(layout, path)


def _with_names(layout, path):
    """A layout of folders with the names of its classes, as files in them have them."""
    if layout.names:
        return layout
    places = [path, path / "labels", path / "labels" / "train"]
    if layout.is_flat:
        places += filter(_flat_layout, visible_folders(path))
    pairs = layout.label_folders
    places += _label_places(_places_of(layout.splits), pairs)
    for folder in dict.fromkeys(file.parent for file in layout.label_files.values()):
        places += [p for p in (folder, *folder.parents) if path in p.parents]
    names, names_of, notes = _names_of_layout(places, path, layout.splits, pairs)
    return layout._replace(
        names=names, names_of=names_of, notes=(*layout.notes, *notes)
    )


def _label_files(path):
    """The txt files of a folder, or of one for labels in it, if they hold boxes."""
    folders = [f for f in visible_folders(path) if f.name.lower() in LABEL_FOLDERS]
    for folder in (path, *folders):
        texts = [f for f in visible_files(folder, ".txt") if f.name not in _NAME_FILES]
        if _are_labels(texts):
            return texts
    return []


def _any_folder_layout(path):
    """The first of the known layouts that a folder has, or None."""
    partial = None  # the layout of a .data file whose list to train on names nothing
    for file in _data_files(path):
        layout = _darknet_layout(file)
        if layout is not None and (_has_train(layout) or not _names_train(file)):
            return layout
        if layout is not None and partial is None:
            partial, detail = layout, f"no image of {file.name!r} to train on is there"
            detail += ": folders of splits are read, and not its lists"
            note = ("moved folders", str(file), detail)
    for find in (
        _list_layout,
        _parts_layout,
        _split_layout,
        _flat_layout,
        _named_folders_layout,
        _pair_layout,
        _inner_layout,
        _scattered_layout,
    ):
        layout = find(path)
        if layout is not None and partial is None:
            return _without_empty(layout)
        if layout is not None and _has_train(layout) and len(layout.splits) > 1:
            names = {"names": partial.names, "names_of": partial.names_of}
            layout = layout._replace(notes=(*layout.notes, note), **names)
            return _without_empty(layout)
    return partial


def _names_train(file):
    """Whether a .data file names images to train on."""
    return any(role_of_split(key) == "train" for key in _darknet_content(file))


def _has_train(layout):
    return any(role_of_split(split) == "train" for split in layout.splits)


def _without_empty(layout):
    """A layout without splits that have no image, if others have one."""
    if layout.label_files:
        return layout
    full = {s: p for s, p in layout.splits.items() if any(map(_has_image, p))}
    if not full or len(full) == len(layout.splits):
        return layout
    empty = {s: str(p[0]) for s, p in layout.splits.items() if s not in full}
    detail = f"splits without images are left out: {empty}"
    note = ("missing split", str(layout.folder), detail)
    return layout._replace(splits=full, notes=(*layout.notes, note))


def _data_files(path):
    folders = [path, *(path / name for name in ("cfg", "data", "config"))]
    return [file for folder in folders for file in visible_files(folder, ".data")]


def _parts_layout(path):
    """The layout of a folder of images and one of txt files, or None."""
    folders = visible_folders(path)
    images = [f for f in folders if f.name.lower() in IMAGE_FOLDERS]
    labels = [f for f in folders if f.name.lower() in LABEL_FOLDERS]
    if not any(folder.name.lower() in ("labels", "labeltxt") for folder in labels):
        labels = [folder for folder in labels if _has_labels(folder)]
    images = [f for f in images if _has_image(f) or f.name == "images"]
    pairs, notes = {}, ()
    if labels and not images:  # of any name, if their files have the same names
        labels = [folder for folder in labels if not _has_own_images(folder)]
        others = [folder for folder in folders if folder not in labels]
        counts = {
            (folder, label): _count_pairs(folder, label)
            for folder in others
            for label in labels
        }
        counts = {pair: count for pair, count in counts.items() if count}
        if counts:
            pairs, notes = _largest_pair(counts)
            images = list(pairs)
    if not images or not labels:
        return None
    images.sort(key=lambda folder: folder.name != "images")
    folder = images[0]
    inner, files = names_in(folder)
    splits = splits_in_names(inner)
    beside = [name for name in files if name.lower().endswith(IMAGE_SUFFIXES)]
    roles = {role_of_split(s) for n, s in splits.items() if _has_image(folder / n)}
    if splits and (not beside or "train" in roles):
        # Other folders beside those of splits are splits where they have labels.
        others = [
            name
            for name in inner
            if name not in splits and any((f / name).is_dir() for f in labels)
        ]
        names = _split_names([*splits, *others])
        places = {name: [folder / place] for place, name in names.items()}
        notes += (_note_of_beside(folder, beside, list(names)),) if beside else ()
        return Layout(path, places, notes=notes, label_folders=pairs)
    one = {reading.ONE_SPLIT: [folder]}
    return Layout(path, one, notes=notes, label_folders=pairs)


def _note_of_other_pair(images, labels):
    detail = (
        f"the images of {str(images)!r} with the txt files of {str(labels)!r} are left "
        "out: put both into a folder of their own"
    )
    return ("images beside splits", str(images), detail)


def _note_of_beside(folder, images, splits):
    detail = (
        f"{count_of(len(images), 'image')} beside the folders of the splits {splits} "
        f"in {str(folder)!r}, such as {images[0]!r}, left out: put those that are "
        "meant into one of these folders"
    )
    return ("images beside splits", str(folder), detail)


def _has_own_images(labels):
    """Whether most txt files of a folder have their images beside them."""
    return _flat_layout(labels) is not None and _share_with_image(labels) > 0.5


def _share_with_image(folder):
    """The share of the txt files in a folder that have an image of their name there."""
    images, texts = _images_and_texts(folder)
    return len(images & texts) / max(len(texts), 1)


def _images_and_texts(folder):
    """The names of the images in a folder, and of its txt files, without suffixes."""
    return _images_and_texts_of(names_in(folder)[1])


def _images_and_texts_of(names):
    images = {n.rpartition(".")[0] for n in names if n.lower().endswith(IMAGE_SUFFIXES)}
    texts = {n[:-4] for n in names if n.endswith(".txt") and n not in _NAME_FILES}
    return images, texts


def _count_pairs(images, labels):
    """How many images of a folder have txt files of boxes at their place in another."""
    count = 0
    for place, _, names in walk(images, depth=2):
        inner = place.parts[len(images.parts) :]
        folder = labels / "/".join(inner) if inner else labels
        if folder.is_dir():
            own, _ = _images_and_texts_of(names)
            _, texts = _images_and_texts(folder)
            both = sorted(own & texts)
            files = [folder / f"{name}.txt" for name in both[:_LOOKED_AT]]
            count += len(both) if _are_labels(files) else 0
    return count


def _split_names(names):
    """What the splits of folders are called, by the names of the folders."""
    splits = splits_in_names(names)
    short = {name: splits.get(name, name) for name in names}
    counts = collections.Counter(short.values())
    return {name: s if counts[s] == 1 else name for name, s in short.items()}


def _split_layout(path):
    """The layout of a folder for each split, each with images and labels, or None."""
    folders = split_folders(path).values()
    layouts = {
        folder: _parts_layout(folder)
        or _flat_layout(folder)
        or _split_of_parts(folder)
        or _inner_layout(folder)
        or _parts_in_folders(folder)
        or _flat_folders_layout(folder)
        for folder in folders
    }
    layouts = {folder: layout for folder, layout in layouts.items() if layout}
    if not layouts:
        return None
    names = _split_names([folder.name for folder in layouts])
    splits = {
        names[folder.name]: [p for places in layout.splits.values() for p in places]
        for folder, layout in layouts.items()
    }
    is_flat = any(layout.is_flat for layout in layouts.values())
    pairs = {k: v for la in layouts.values() for k, v in la.label_folders.items()}
    notes = tuple(note for layout in layouts.values() for note in layout.notes)
    return Layout(path, splits, notes=notes, is_flat=is_flat, label_folders=pairs)


def _split_of_parts(folder):
    """The layout of `train` beside `labels/train`, or None."""
    for name in LABEL_FOLDERS[:2]:
        labels = folder.parent / name / folder.name
        if labels.is_dir() and _count_pairs(folder, labels):
            return Layout(folder, {reading.ONE_SPLIT: [folder]})
    return None


def _parts_in_folders(folder):
    """The layout of `train` with folders that have images and labels each, or None.

    So are images of one class each, which share the numbers of the classes.
    """
    layouts = list(filter(None, map(_parts_layout, visible_folders(folder))))
    if not layouts or any(len(layout.splits) > 1 for layout in layouts):
        return None
    places = [p for layout in layouts for p in layout.splits[reading.ONE_SPLIT]]
    pairs = {k: v for layout in layouts for k, v in layout.label_folders.items()}
    return Layout(folder, {reading.ONE_SPLIT: places}, label_folders=pairs)


def _flat_layout(path):
    """The layout of images with their txt files beside them, or None."""
    texts = visible_files(path, ".txt")
    if not texts:
        return None
    names = names_in(path)[1]
    stems = {n.rpartition(".")[0] for n in names if n.lower().endswith(IMAGE_SUFFIXES)}
    files = [file for file in texts if file.stem in stems and file.suffix == ".txt"]
    if not _are_labels(files, least=0.5):  # a damaged one is told of later
        return None
    return Layout(path, {reading.ONE_SPLIT: [path]}, is_flat=True)


def _flat_folders_layout(path):
    """The layout of several folders with images and their txt files each, or None.

    So are clips of a video, and images of one class each, which share the numbers of
    the classes: no two of their lists of names say otherwise.
    """
    folders = visible_folders(path)
    folders = [f for f in folders if f.name.lower() not in NO_DATA_FOLDERS]
    flat = [folder for folder in folders if _flat_layout(folder)]
    lists = [next(_lists_in(folder), ((), None))[0] for folder in flat]
    if len(flat) < 2 or not _go_together(lists):
        return None
    others = [f.name for f in folders if f not in flat and _has_image(f)]
    detail = (
        f"the folders {others} of {str(path)!r} are left out: no image there has a txt "
        f"file beside it, as those of {flat[0].name!r} have"
    )
    notes = (("images without txt file", str(path), detail),) if others else ()
    return Layout(path, {reading.ONE_SPLIT: flat}, notes=notes, is_flat=True)


def _named_folders_layout(path):
    """The layout of such folders where a list names their classes, or None.

    Without one, the same number may be of another class in another folder.
    """
    layout = _flat_folders_layout(path)
    if layout is None:
        return None
    folders = layout.splits[reading.ONE_SPLIT]
    is_named = all(any(_lists_in(folder)) for folder in folders)
    return layout if is_named or find_names([path], path)[0] else None


def _pair_layout(path):
    """The layout of two folders whose files have the same names, or None."""
    folders = visible_folders(path)
    if not any(visible_files(folder, ".txt") for folder in folders):
        return None
    names = {folder: _images_and_texts(folder) for folder in folders}
    counts = {}
    for folder, labels in itertools.permutations(folders, 2):
        own, texts = names[labels]
        same = names[folder][0] & texts
        if 2 * len(own & texts) > len(texts):  # of the images beside them
            continue
        if not 2 * len(same) > len(texts):
            continue
        if _are_labels([labels / f"{name}.txt" for name in sorted(same)]):
            counts[folder, labels] = len(same)
    if not counts:
        return None
    pairs, notes = _largest_pair(counts)
    (folder,) = pairs
    return Layout(path, {reading.ONE_SPLIT: [folder]}, notes=notes, label_folders=pairs)


def _largest_pair(counts):
    """The folders of images and of txt files with most in common, and notes of others.

    Returns:
        Dict of the one folder to the other; and a note of each pair of two more, and of
        each other folder of images for the same txt files.
    """
    pairs = dict([max(counts, key=counts.get)])
    used = {*pairs, *pairs.values()}
    others = [pair for pair in counts if used.isdisjoint(pair)]
    notes = [_note_of_other_pair(*pair) for pair in others]
    ((images, labels),) = pairs.items()
    twins = [i for i, other in counts if other == labels and i != images]
    for twin in twins:
        detail = (
            f"{str(twin)!r} has images for the txt files of {str(labels)!r} as well, "
            f"left out: those of {str(images)!r} are read. Move them away if they are "
            "not meant"
        )
        notes.append(("images beside splits", str(twin), detail))
    return pairs, tuple(notes)


def _inner_layout(path):
    """The layout of images with their txt files in a folder among them, or None.

    So does the OIDv4 ToolKit, for each class: `Apple/a.jpg`, `Apple/Label/a.txt`.
    """
    for place, folders, files in walk(path, depth=1):
        if not any(name.lower().endswith(IMAGE_SUFFIXES) for name in files):
            continue
        inner = [name for name in folders if name.lower() in LABEL_FOLDERS[:2]]
        if any(_count_pairs(place, place / name) for name in inner):
            return Layout(path, {reading.ONE_SPLIT: [path]})
    return None


def _scattered_layout(path):
    """The layout of txt files whose images have other folders, or None.

    They are looked for in the whole dataset, by the name of the txt file: an export of
    boxes alone beside the images, or images in folders of a kind of their own.
    """
    root = current_root(path)
    folders = [f for f in visible_folders(path) if f.name.lower() in _BOXES_ALONE]
    folders = [f for f in folders if _has_labels(f) and not _has_own_images(f)]
    if not folders or root is None or is_remote(root):
        return None
    index = ImageIndex(root)
    splits, label_files, count = collections.defaultdict(list), {}, 0
    for place, _, names in walk(folders[0], depth=1):
        split = reading.ONE_SPLIT
        if place != folders[0]:
            split = split_in_name(place.name) or split
        for name in names:
            if not name.endswith(".txt") or name in _NAME_FILES:
                continue
            count += 1
            image = index.find(name[:-4], split_roles([split]))
            if image is not None and image not in label_files:
                label_files[image] = place / name
                splits[split].append(image)
    if not 0 < count <= 2 * len(label_files):
        return None
    detail = (
        f"{len(label_files):,} of {count:,} txt files have their images elsewhere: "
        f"below {str(root)!r}, by their names"
    )
    note = ("moved images", str(folders[0]), detail)
    return Layout(path, dict(splits), notes=(note,), label_files=label_files)


_BOXES_ALONE = (*LABEL_FOLDERS, "obj_train_data")


def _has_labels(folder):
    """Whether there are txt files of boxes in a folder or below it."""
    for place, _, names in walk(folder, depth=2):
        if _are_labels([place / name for name in names if name.endswith(".txt")]):
            return True
    return False


_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.I | re.ASCII)
_LOOKED_AT = 50  # files: the first may be empty, of images without objects


def _are_labels(files, least=1.0):
    """Whether txt files hold boxes: the first of them that is not empty does."""
    files = [file for file in files if file.name not in _NAME_FILES]
    looks = (_is_label_file(file, least) for file in files[:_LOOKED_AT])
    return next((look for look in looks if look is not None), False)


def _is_label_file(file, least=1.0):
    """Whether a file holds rows of boxes; None of an empty one.

    At least a share of the words of the first row are numbers: with 1.0 all, of a class
    and a box or more.
    """
    try:
        text = read_text(file)
    except (ValueError, OSError):
        return False
    if is_dota(text) or is_named(text):
        return True
    line = next((line.split() for line in text.splitlines() if line.strip()), None)
    if line is None:
        return None
    numbers = [word for word in line if _NUMBER.fullmatch(word)]
    if least < 1.0:
        return len(numbers) >= least * len(line)
    return len(line) == len(numbers) >= 5 and float(numbers[0]).is_integer()


# --- The images of a split, and the txt file of each.


def images_of(layout: Layout, split: str, problems: Any) -> list[Any]:
    """The paths of the images of a split, sorted in each folder.

    Raises:
        FileNotFoundError: If a place of the split is not there, or has no image.
    """
    paths, others = [], collections.Counter()
    for place in layout.splits[split]:
        if isinstance(place, str):
            there = [s for s in layout.splits if not _is_missing(layout, s)]
            _raise_missing(layout.folder, place, split, there)
        if place in layout.label_files:
            paths.append(place)
        elif place.is_dir():
            paths += _images_below(place, others)
        else:
            paths += _images_in_list(place, layout, problems)
    _note_other_files(others, layout, problems)
    if not paths:
        problems.refuse()  # all that a list names may be missing
        if not problems.has("missing image"):
            places = list(map(str, layout.splits[split]))
            raise FileNotFoundError(f"`from_yolo` found no image. Received: {places}")
    return list(dict.fromkeys(paths))


def _images_below(folder, others):
    """The images of a folder and of those in it; counts other files by their ending."""
    paths, is_sorted = [], True
    for place, _, names in walk(folder):
        images = [name for name in names if name.lower().endswith(IMAGE_SUFFIXES)]
        is_sorted = is_sorted and not (paths and images)
        paths += [place / name for name in images]
        if len(images) < len(names):
            endings = (os.path.splitext(name)[1].lower() for name in names)
            endings = (e for e in endings if e not in IMAGE_SUFFIXES)
            others.update(e for e in endings if e and e not in _COMPANIONS)
    return paths if is_sorted else sorted(paths)


def _note_other_files(others, layout, problems):
    if not others:
        return
    kinds = ", ".join(f"{n} {ending}" for ending, n in others.most_common(5))
    detail = (
        f"{others.total():,} files among the images are left out, because they are no "
        f"images that Pillow reads: {kinds}"
    )
    problems.add("files that are no images", layout.folder, detail)


def _images_in_list(file, layout, problems):
    lines = _lines_of(file)
    paths = _listed(file, [layout.folder, file.parent.parent], lines)
    lost = [i for i, path in enumerate(paths) if path is None]
    if lost:
        found, _ = find_moved([(lines[i],) for i in lost], file)
        for i, path in zip(lost, found):
            paths[i] = path
            if path is None:
                problems.add("missing image", lines[i], f"of {file.name}")
    return _with_labels([path for path in paths if path is not None], layout, problems)


def _with_labels(images, layout, problems):
    """The images of a list, or copies of them where the txt files are beside those.

    Copies have the same name and the same bytes. Where one image of the list has a txt
    file, the others are taken as they are.
    """
    if is_remote(layout.folder):
        return images
    for part in (images[:_LOOKED_AT], images):  # most often the first tell
        if any(find_labels(part, layout).is_there):
            return images
    wanted, copies = {image.name for image in images}, collections.defaultdict(list)
    for place, folders, names in walk(layout.folder, depth=2):
        folders[:] = [name for name in folders if name.lower() not in NO_DATA_FOLDERS]
        texts = {name for name in names if name.endswith(".txt")}
        for name in wanted.intersection(names):
            if f"{name.rpartition('.')[0]}.txt" in texts:
                copies[name].append(place / name)
    copy_of = {
        image: copies[image.name][0]
        for image in images
        if len(copies[image.name]) == 1 and is_copy(image, copies[image.name][0])
    }
    if copy_of:
        first, copy = next(iter(copy_of.items()))
        detail = (
            "no image of a list has a txt file: copies are read that have one beside "
            f"them, such as {str(copy)!r} of {str(first)!r}"
        )
        problems.add("moved images", layout.folder, detail)
    return [copy_of.get(image, image) for image in images]


class Labels(NamedTuple):
    """The txt files of images.

    Attributes:
        images: paths of the images that are kept.
        files: the path of the txt file of each, which need not be there.
        is_there: of each, whether it is.
        left_out: images in folders without a single txt file, which are not kept.
        stray: txt files of boxes that belong to no image.
    """

    images: list
    files: list
    is_there: list
    left_out: list
    stray: list


def find_labels(images: Sequence[Any], layout: Layout) -> Labels:
    """Finds the txt file of each image: in a folder of labels, or beside it.

    Where images and txt files lie side by side, a folder below without a single txt
    file holds other images, such as raw ones: these are left out.
    """
    by_folder = collections.defaultdict(list)
    for image in images:
        by_folder[image.parent].append(image)
    file_of, left_out = {}, []
    stems_of, texts_of, shared = collections.defaultdict(set), {}, set()
    roots = set(_places_of(layout.splits))
    for folder, members in by_folder.items():
        if layout.label_files:
            file_of |= {m: (layout.label_files[m], True) for m in members}
            continue
        places = _label_folders(folder, layout.label_folders)
        names = []
        for place, is_own in places:
            if place not in texts_of:
                files = names_in(place)[1]
                texts_of[place] = {n for n in files if n.lower().endswith(".txt")}
            names.append((place, texts_of[place]))
            if is_own:
                stems_of[place] |= {
                    n.rpartition(".")[0]
                    for n in names_in(folder)[1]
                    if n.lower().endswith(IMAGE_SUFFIXES)
                }
            elif place not in shared:  # by several folders of images: once is enough
                shared.add(place)
                stems_of[place] |= {name[:-4] for name in texts_of[place]}
        found = {}
        for image in members:
            name = f"{image.stem}.txt"
            place = next((p for p, texts in names if name in texts), None)
            found[image] = (
                (places[0][0] if place is None else place) / name,
                place is not None,
            )
        if not any(is_there for _, is_there in found.values()):
            renamed = _with_prefix(members, names)
            found |= renamed
            for file, _ in renamed.values():
                stems_of[file.parent].add(file.stem)
        is_raw = not any(is_there for _, is_there in found.values())
        if layout.is_flat and is_raw and folder not in roots:
            left_out += members
        else:
            file_of |= found
    kept = [image for image in images if image in file_of]
    pairs = [file_of[image] for image in kept]
    stray = [
        place / name
        for place, texts in texts_of.items()
        for name in sorted(texts)
        if not (name.endswith(".txt") and name[:-4] in stems_of[place])
    ]
    stray = [file for file in stray if file.name.lower() not in _NAME_FILES]
    return Labels(
        kept,
        [f for f, _ in pairs],
        [t for _, t in pairs],
        left_out,
        _boxes_alone(stray),
    )


def _with_prefix(images, names):
    """The txt files of images that have Label Studio's prefix, and the images not.

    Args:
        images: paths of a folder, none of which has a txt file of its name.
        names: pairs of a folder and the names of the txt files in it.
    """
    found = {}
    for place, texts in names:
        by_name = collections.defaultdict(list)
        for text in sorted(texts):
            if (short := without_hash(text)) != text:
                by_name[short].append(text)
        for image in images:
            files = by_name.get(f"{image.stem}.txt", ())
            if len(files) == 1 and image not in found:
                found[image] = place / files[0], True
    return found


def check_labels(layout: Layout) -> None:
    """Raises an error if the first txt files hold something else than boxes."""
    place = next(iter(layout.splits.values()))[0]
    if isinstance(place, str) or place in layout.label_files or not place.is_dir():
        return
    images = []
    for folder, _, names in walk(place):
        names = [name for name in names if name.lower().endswith(IMAGE_SUFFIXES)]
        images = [folder / name for name in names[:_LOOKED_AT]]
        if images:
            break
    labels = find_labels(images, layout)
    files = [file for file, t in zip(labels.files, labels.is_there) if t]
    looks = ((file, _is_label_file(file, least=0.5)) for file in files)
    known = [(file, look) for file, look in looks if look is not None]
    if known and not any(look for _, look in known):
        file = known[0][0]
        line = read_text(file).strip().partition("\n")[0]
        raise InvalidValueError(
            "`from_yolo` expects rows of a class and the numbers of a box, and no txt "
            f"file has one. Received: {str(file)!r} with {reprlib.repr(line)}"
        )


def has_labels(layout: Layout) -> bool:
    """Whether one of the first images of a split has a txt file."""
    for split, places in layout.splits.items():
        if any(isinstance(place, str) for place in places):
            continue
        images = images_of(layout, split, Problems("`from_yolo`", "skip"))
        if any(find_labels(images[:_LOOKED_AT], layout).is_there):
            return True
    return False


def texts_of_boxes(folder: Any) -> list[Any]:
    """The txt files of boxes in a folder and those below it; of addresses none."""
    if is_remote(folder):
        return []
    found = []
    for place, folders, names in walk(folder):
        folders[:] = [name for name in folders if name.lower() not in NO_DATA_FOLDERS]
        found += [place / n for n in names if n.endswith(".txt")]
    return _boxes_alone([file for file in found if file.name not in _NAME_FILES])


def _boxes_alone(files):
    """Of txt files without an image those that hold boxes, or all of very many."""
    if len(files) > 1000:
        return files
    return [file for file in files if _is_label_file(file)]


def _label_folders(folder, pairs):
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
    return any(n.endswith(".txt") and n not in _NAME_FILES for n in names)


def _path_from(path, parts):
    return path.with_parts(parts) if is_remote(path) else pathlib.Path(*parts)


def _label_places(images, pairs):
    """The folders of some places of images, after those of their txt files."""
    places = []
    for place in images:
        folder = place if place.is_dir() else place.parent
        labels = [p for p, _ in _label_folders(folder, pairs) if p != folder]
        # A list beside images whose txt files are elsewhere may be left from a tool.
        own = [folder.parent, folder] if labels else [folder, folder.parent]
        places += [*labels, *own]
    return list(dict.fromkeys(places))


# --- The names of the classes, where tools put them.

_NAME_FILES = (
    "classes.txt",
    "obj.names",
    "_darknet.labels",
    "classes.names",
    "class_names.txt",
    "class_list.txt",
    "class.names",
    "names.txt",
    "notes.json",  # of Label Studio
    "labels.txt",
    "predefined_classes.txt",  # of LabelImg
    "obj.names.txt",
)
_NAME_FOLDERS = (
    "",
    "labels",
    "images",
    "dataset",
    "data",
    "cfg",
    "config",
    "annotations",
)


def _names_of_layout(places, folder, splits, pairs):
    """The names of the classes, those of each split if they differ, and notes of them.

    Args:
        places, folder: as for `find_names`.
        splits: the places of the images of each split.
        pairs: as `label_folders` of `Layout`.

    Raises:
        ValueError: If folders of one split have lists that differ.
    """
    names, file = find_names(places, folder)
    if file is None:
        return (), {}, []
    notes = [*_note_of_beyond(file, folder), *_note_of_other_names(names, file, folder)]
    own = _own_folders(splits, pairs)
    if all(file.parent not in f for places in own.values() for f in places):
        return names, {}, notes  # a list of all splits
    lists = {split: _first_lists(places) for split, places in own.items()}
    found = [item for own in lists.values() for item in own]
    if _go_together([names for names, _ in found]):
        return max(*(own for own, _ in found), names, key=len), {}, notes
    for split, own in lists.items():
        if not _go_together([names for names, _ in own]):
            (one, first), (other, second) = _that_differ(own)
            raise InvalidValueError(
                f"The folders of the split {split!r} have lists of class names that "
                f"differ: {str(first)!r} has {reprlib.repr(list(one))}, "
                f"{str(second)!r} has {reprlib.repr(list(other))}. Where the numbers "
                f"mean the same, write one classes.txt into {str(folder)!r}; else load "
                "each folder by itself"
            )
    (one, first), (other, second) = _that_differ(found)
    detail = (
        f"the splits have lists of class names that differ: {str(first)!r} has "
        f"{reprlib.repr(list(one))}, {str(second)!r} has {reprlib.repr(list(other))}. "
        "Each is read by its own; where the numbers mean the same, write one "
        f"classes.txt into {str(folder)!r}"
    )
    notes.append(("lists of class names", str(folder), detail))
    longest = {s: max((n for n, _ in own), key=len) for s, own in lists.items() if own}
    return names, longest, notes


def _own_folders(splits, pairs):
    """For each split and place of it the folders near that no other split has."""
    near = {
        split: [_label_places([place], pairs) for place in _places_of({split: places})]
        for split, places in splits.items()
    }
    uses = collections.Counter(
        folder for places in near.values() for folder in set(itertools.chain(*places))
    )
    return {
        split: [[f for f in folders if uses[f] == 1] for folders in places]
        for split, places in near.items()
    }


def _first_lists(places):
    """The first list of class names of each place, and its file, where it has one."""
    lists = [
        next((found for folder in folders for found in _lists_in(folder)), None)
        for folders in places
    ]
    return list(dict.fromkeys(filter(None, lists)))


def _that_differ(lists):
    """Two of several pairs of names and a file whose names do not go together."""
    return next(
        pair
        for pair in itertools.combinations(lists, 2)
        if not _go_together([names for names, _ in pair])
    )


def _note_of_beyond(file, folder):
    """Notes, one or none, that a list of names lies outside what the user named."""
    root = current_root(folder)
    if is_remote(file) or root is None or root in file.absolute().parents:
        return []
    if file.parent.absolute() != folder.absolute().parent:
        return []  # of the folder of txt files
    if role_of_split(folder.name) or folder.name.lower() in IMAGE_FOLDERS:
        return []  # of which the folder around is the dataset
    detail = (
        f"the names of the classes are those of {str(file)!r}, outside of "
        f"{str(root)!r}. If these are of another dataset, pass `class_names`, or write "
        "a classes.txt with a name in each line"
    )
    return [("lists of class names", str(folder), detail)]


def _note_of_other_names(names, file, folder):
    """Notes, one or none, that a list in the folder of another has other names.

    A longer one may be that of a model that the detector began with, such as COCO's.
    """
    if is_remote(file) or file.parent.absolute() in folder.absolute().parents:
        return []  # above the dataset, where lists of others may lie

    def folded(names):
        return tuple(re.sub(r"[\s_-]+", " ", name).casefold() for name in names)

    for others, other in _lists_in(file.parent):
        is_short = len(others) <= len(names)
        is_other = not _go_together([folded(names), folded(others)])
        if other != file and is_short and is_other:
            detail = (
                f"the names of the classes are those of {str(file)!r}: "
                f"{reprlib.repr(list(names))}. {other.name!r} beside it has others: "
                f"{reprlib.repr(list(others))}. If those are meant, pass them as "
                "`class_names`, or rename the file that is not"
            )
            return [("lists of class names", str(file.parent), detail)]
    return []


def find_names(places: Iterable[Any], folder: Any) -> tuple[tuple[str, ...], Any]:
    """The names of the classes from the first list of them that is found.

    Args:
        places: folders of the dataset, most likely first.
        folder: the folder of the dataset: the folders around it, up to what the user
            named, may have the list as well; and at last the one around that.

    Returns:
        The names, and the file that has them; or an empty tuple and None.
    """
    root, around = current_root(folder), []
    if root is not None and not is_remote(folder):
        folder = folder.absolute()
        around = [p for p in folder.parents if p == root or root in p.parents]
    folders = [base / name for base in (folder, *around) for name in _NAME_FOLDERS]
    folders = [p for p in (*places, *folders) if p != folder.parent or p in around]
    folders = list(dict.fromkeys(folders))
    # A `coco.names` of a model may lie in the folder of the dataset.
    lists = itertools.chain(
        *(_usual_lists_in(place, _NAME_FILES) for place in folders),
        *map(_other_lists_in, folders),
        _usual_lists_in(folder.parent, _NAME_FILES[:2]),  # beyond the dataset
    )
    return next(lists, ((), None))


def longer_list(folders: Iterable[Any], layout: Layout, number: float) -> Any:
    """A file near folders of images that names the class of a number; or None."""
    places = _label_places(folders, layout.label_folders)
    lists = itertools.chain(*map(_lists_in, places))
    return next((file for names, file in lists if len(names) > number), None)


def _lists_in(folder):
    """The names of each list of classes in a folder, and its file, likeliest first."""
    yield from _usual_lists_in(folder, _NAME_FILES)
    yield from _other_lists_in(folder)


def _usual_lists_in(folder, file_names):
    """As `_lists_in`, of files that have one of these names."""
    for name in file_names:
        file = folder / name
        if file.is_file() and (names := _names_in_file(file)):
            yield names, file


def _other_lists_in(folder):
    """As `_lists_in`, of files whose names only tell what kind they are."""
    for file in visible_files(folder, ".names", ".labels", ".pbtxt"):
        if names := _names_in_file(file):
            yield names, file
    for file in visible_files(folder, ".yaml", ".yml"):
        if names := _names_in_yaml(file):
            yield names, file


def _go_together(lists):
    """Whether a number has the same name in all lists that have it.

    LabelImg writes a list into each folder, which grows with the classes used there.
    """
    longest = max(lists, key=len, default=())
    return all(names == longest[: len(names)] for names in lists)


def _names_in_yaml(file):
    try:
        content = load_yaml(read_text(file))
        return _names_of_yaml(content, file) if isinstance(content, dict) else ()
    except InvalidValueError:
        return ()


def _names_in_file(file):
    """The names of classes in a file, by number from 0; empty if it holds others."""
    if file.suffix.lower() == ".json":
        return _names_in_notes(file)
    if file.suffix.lower() == ".pbtxt":
        names = read_label_map(file)
        return tuple(names[i] for i in sorted(names)) if _are_counted(names) else ()
    # Blank lines inside stay: without them the labels would be shifted.
    lines = [line.strip() for line in read_text(file).rstrip().splitlines()]
    is_certain = file.name in _NAME_FILES[:2]
    if not is_certain and (_is_label_file(file) or any(_is_no_name(n) for n in lines)):
        return ()
    return tuple(lines)


def _are_counted(names):
    return bool(names) and set(names) == set(range(1, len(names) + 1))


def _is_no_name(line):
    return line.lower().endswith(IMAGE_SUFFIXES) or len(line) > 100


def _names_in_notes(file):
    """The `categories` of the `notes.json` of Label Studio's YOLO export."""
    try:
        content = json.loads(read_text(file))
        pairs = {item["id"]: str(item["name"]) for item in content["categories"]}
    except (ValueError, KeyError, TypeError):
        return ()
    names = tuple(pairs[i] for i in sorted(pairs))
    return names if sorted(pairs) == list(range(len(pairs))) else ()
