"""Finds the layout of a YOLO dataset from Ultralytics' `data.yaml`."""

from __future__ import annotations

import os
import pathlib
import re
from typing import Any

from effdet_keras._internal.whole_files import is_remote
from effdet_keras._internal.yaml_text import load_yaml, read_text
from effdet_keras.data.formats import reading
from effdet_keras.data.formats.dataset_files import (
    role_of_split,
    split_folders,
    visible_files,
    walk,
)
from effdet_keras.data.formats.image_paths import (
    current_root,
    find_folder,
    is_outside,
    path_parts,
)
from effdet_keras.data.formats.yolo_files import has_labels
from effdet_keras.data.formats.yolo_folders import any_folder_layout, with_names
from effdet_keras.data.formats.yolo_names import (
    FoundNames,
    names_of_layout,
    names_of_yaml,
)
from effdet_keras.data.formats.yolo_places import (
    Layout,
    has_image,
    is_absolute,
    is_missing,
    places_of,
    raise_missing,
    resolves,
)
from effdet_keras.data.formats.yolo_texts import is_list, lines_of
from effdet_keras.errors import InvalidValueError

_LARGEST = 100_000  # bytes: a larger yaml file is not a data.yaml
_NO_SPLIT_KEYS = (
    "path",
    "names",
    "nc",
    "download",
    "yaml_file",
    "roboflow",
    "channels",
)


def find_yaml(folder: Any) -> tuple[Any, list[Any]]:
    """Returns the `data.yaml` of a folder, and other files that could be meant.

    The file may have another name. The first item is None if there is none.
    """
    files = visible_files(folder, ".yaml", ".yml")
    # A file named data.yaml is always meant, even if it is wrong. Others may be of
    # anything.
    meant = [file for file in files if file.stem.lower() == "data"]
    if meant:
        better = _more_whole(files, meant[0])
        return (meant[0], []) if better is None else (better, meant)
    known = [file for file in files if _has_splits(file)]
    there = [file for file in known if _has_folders(file)]
    if not there and len(known) > 1:
        return None, []  # files of a program for many datasets, which are elsewhere
    if len(there) > 1:
        there.sort(key=_distance)
    chosen = (there or known)[:1]
    return (chosen[0], [f for f in known if f != chosen[0]]) if chosen else (None, [])


def _more_whole(files, meant):
    """Returns the only yaml file that has what data.yaml lacks, or None.

    It must name the same classes, or more classes, and must have more roles: images to
    train on and images to validate on, both existing and not the same. It is looked for
    only if one of these roles that data.yaml names is missing.
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
    except OSError:  # a broken link
        return False


def _what_is_there(file):
    """Returns a data.yaml's class names, existing roles, and whether none is missing.

    The roles are "train" and "validation", with their places. Two roles with the same
    places count as one.
    """
    try:
        layout, entries = yaml_layout(file), _entries_of(read_yaml(file))
    except (ValueError, OSError):
        return (), {}, False
    roles = {}
    for split, places in layout.splits.items():
        role = role_of_split(split)
        is_new = places not in roles.values() and not is_missing(layout, split)
        if role in ("train", "validation") and is_new:
            roles[role] = places
    named = {role_of_split(split) for split in entries} & {"train", "validation"}
    there = {role_of_split(s) for s in layout.splits if not is_missing(layout, s)}
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
        return bool(yaml_layout(file).splits)
    except (ValueError, OSError):
        return False


def _distance(file):
    """Returns how far the folders found for a file are from what it says, for sorting.

    A file may describe a known dataset, as the files that come with YOLO programs do.
    Such a file says where to download its images, or its folders are found only by the
    last part of their path.
    """
    content = read_yaml(file)
    entries, splits = _entries_of(content), yaml_layout(file).splits
    pairs = [(entries[split][0], splits[split][0]) for split in splits.keys() & entries]
    as_written = [
        place
        for value, place in pairs
        if not isinstance(place, str)
        and list(place.parts[-len(path_parts(value)) :]) == path_parts(value)
    ]
    return "download" in content, len(as_written) < len(pairs)


def read_yaml(path: Any) -> dict:
    """Returns the content of a `data.yaml`.

    Raises:
        ValueError: If it is no yaml file, or its content is not a mapping.
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


def yaml_layout(file: Any) -> Layout | None:
    content = read_yaml(file)
    entries = _entries_of(content)
    if not entries and "names" in content and not _has_places(content):
        # The file has only names; the folders are beside it.
        layout = any_folder_layout(file.parent)
        if layout is not None:
            return layout._replace(names=names_of_yaml(content, file), yaml=file)
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
            # The place may be in the folder that `path` names.
            if place is None or is_moved:
                inner = f"{base}/{value}" if base and not is_absolute(value) else value
                again, moved_again = find_folder(inner, bases)
                if again is not None:
                    place, is_moved = again, moved_again
            if is_moved and place.is_dir() and not has_image(place):
                # A folder of txt files only, such as labels/train.
                place = is_moved = None
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
    if splits and not missing and all(map(_is_empty_list, places_of(splits))):
        layout = any_folder_layout(file.parent)
        if layout is not None:
            detail = (
                f"the lists that {file.name!r} names are empty, so the images beside "
                "it are read"
            )
            note = ("moved folders", str(file), detail)
            layout = layout._replace(yaml=file, notes=(*layout.notes, note))
            names = names_of_yaml(content, file)
            return with_names(layout._replace(names=names), file.parent)
    if not splits:
        layout = any_folder_layout(file.parent)
        # If a file names folders inside its own folder, other folders there could be
        # anything.
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
            raise_missing(folder, next(iter(missing.values())))
        detail = f"the folders that {file.name!r} names were not found: {missing}"
        note = (
            "moved folders",
            str(file),
            f"{detail}. The folders beside it are read instead",
        )
        names = names_of_yaml(content, file)
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
            splits[split] = [value]  # an error if this split is requested
        elif role_of_split(split) != "test" or split in empty:
            why = f"there are no images at {value!r}"
            if split in empty and _is_list_of(empty[split]):
                why = f"the images that {value!r} names were not found"
            detail = f"the split {split!r} of {file.name!r} is left out: {why}"
            notes.append(("missing split", str(file), detail))
    splits, own_notes = _divided(splits, file)
    notes += [*own_notes, *_notes_of_unnamed_test(splits, file)]
    count = content.get("nc")
    found = FoundNames(names_of_yaml(content, file), file)
    if not found.names:
        places = [file.parent, folder, *places_of(splits)]
        found = names_of_layout(places, file.parent, splits, {})
        notes += found.notes
        rule = "`names` of a data.yaml must be a list of class names"
        reading.require_content(found.names, rule, file, content.get("names"))
    if isinstance(count, int) and count != len(found.names):
        detail = (
            f"{file.name!r} says `nc: {count}`, but has {len(found.names)} names: the "
            "names are used as the classes"
        )
        notes.append(("number of classes", str(file), detail))
    order = [split for split in entries if split in splits]
    return Layout(
        folder,
        {k: splits[k] for k in order},
        found.names,
        file,
        notes=tuple(notes),
        names_of=found.names_of,
        names_file=found.file,
    )


def _divided(splits, file):
    """Returns the splits, each with a folder of its own if several share one.

    Returns:
        The splits; and a note for each that is read from another folder than the file
        says.
    """
    notes, result = [], {}
    for split, places in splits.items():
        is_shared = len(places) == 1 and list(splits.values()).count(places) > 1
        own = _sibling_of_split(places[0], split, file.parent) if is_shared else None
        result[split] = places if own is None else [own]
        if own not in (None, places[0]):
            detail = (
                f"{file.name!r} names {str(places[0])!r} for several splits, so "
                f"{str(own)!r} is read for {split!r}"
            )
            notes.append(("moved folders", str(file), detail))
    return result, notes


def _notes_of_unnamed_test(splits, file):
    """Returns a note if there is a test folder that the data.yaml does not name."""
    places = [place for places in splits.values() for place in places]
    if any(role_of_split(split) == "test" for split in splits):
        return []
    own = _sibling_of_split(places[0], "test", file.parent)
    if own is None or any(place == own or place in own.parents for place in places):
        return []
    detail = (
        f"{os.path.normpath(own)!r} has images with txt files, but is not read, "
        f"because no split of {file.name!r} names it. To read it, add it there as "
        "`test`"
    )
    return [("missing split", str(file), detail)]


def _sibling_of_split(place, split, root):
    """Returns the folder of labelled images that corresponds to `place` for a split.

    For "val" it is `images/val` if the place is `images` or `images/train`, and
    `val/images` if the place is `train/images`. It is None if there is no such folder
    in `root`.
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
        if has_image(found) and has_labels(Layout(found, {split: [found]})):
            return found
    return None


def _folder_of_a_split(place, root):
    """Returns the folder around a place, in `root`, that is named after a split.

    The result is None if there is no such folder.
    """
    if place.parts[: len(root.parts)] != root.parts:
        return None
    while place != root:
        if role_of_split(place.name) is not None:
            return place
        place = place.parent
    return None


def _entries_of(content):
    """Returns the places of each split as the file names them."""
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
    """Returns whether the value of an unknown key is the path of a folder of images."""
    return value.replace("\\", "/").strip("./").startswith("images/")


def _folder_of_yaml(file, base):
    """Returns the folder to which the paths in a data.yaml are relative."""
    if base and not is_remote(file):
        place = file.parent / os.path.expanduser(base)
        if place.is_dir():
            return place
    if base and is_remote(file) and (file.parent / base).is_dir():
        return file.parent / base
    return file.parent


def _is_foreign(value):
    """Returns whether a path leads out of the folder of the file."""
    return is_absolute(value) or value.startswith("..")


def _is_inside(layout, missing):
    """Returns whether a layout's images are inside the folders that a data.yaml names.

    For `train/images`, which does not exist, there may be `train/cats/images` and
    `train/dogs/images`.
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
    """Returns whether a layout uses the label folders of images that a data.yaml names.

    For `images`, which does not exist, this is `labels`, if its txt files are those of
    other images.
    """
    labels = {
        layout.folder / "/".join(["labels" if p == "images" else p for p in parts])
        for parts in map(path_parts, missing.values())
        if "images" in parts
    }
    return bool(labels) and labels == set(layout.label_folders.values())


def _has_splits_of(layout, missing, content, file):
    """Returns whether a layout has two or more splits, with one for each missing split.

    If a list of other class names is beside the layout, the data.yaml belongs to other
    images, and the result is False.
    """
    roles = set(map(role_of_split, layout.splits))
    wanted = set(map(role_of_split, missing))
    if len(missing) < 2 or len(layout.splits) < 2 or not roles >= wanted:
        return False
    listed = with_names(layout, layout.folder).names
    names = names_of_yaml(content, file)
    return not listed or not names or listed == names


def _note_of_moved(file, moved):
    value, place = moved[0]
    verb = "is a path" if len(moved) == 1 else "are paths"
    detail = (
        f"{len(moved)} of the places that {file.name!r} names {verb} of another "
        f"machine or folder. Found by the ending of the path: {value!r} is read from "
        f"{str(place)!r}"
    )
    return ("moved folders", str(file), detail)


def _leaves(value, place, bases):
    """Returns whether a data.yaml names a folder outside of the dataset by `..`."""
    return value.strip("'\" ").startswith("..") and is_outside(place, bases)


def _note_of_outside(file, value, place):
    detail = (
        f"{file.name!r} names {value!r}, which is {os.path.abspath(place)!r}, outside "
        "of the dataset. If these images belong to another dataset, remove the `../` "
        "and put the right images beside the file"
    )
    return ("moved folders", str(file), detail)


def _is_empty_list(place):
    return not place.is_dir() and not has_image(place)


def _is_list_of(text):
    place = pathlib.Path(text)
    return place.is_file() and is_list(place)


def _is_there(place, split, bases):
    """Returns whether there is an image in a folder, or an image that a list names.

    For a list of training images one line is enough: the error names the images that
    are missing. For other lists, an image with one of the names is enough, wherever it
    is.
    """
    is_train = role_of_split(split) == "train"
    if is_train or place.is_dir() or is_remote(place) or not is_list(place):
        return has_image(place)
    if resolves(place, [*bases, place.parent.parent]):
        return True
    root = current_root(place) or place.parent
    wanted = {re.split(r"[\\/]", line)[-1] for line in lines_of(place)}
    return any(not wanted.isdisjoint(names) for _, _, names in walk(root))
