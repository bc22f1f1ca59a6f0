"""Finds the layout of a YOLO dataset from lists of images, or from a `.data` file.

A `.data` file is darknet's description of a dataset.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from effdet_keras._internal.yaml_text import read_text
from effdet_keras.data.formats.dataset_files import (
    role_of_split,
    split_in_name,
    visible_files,
)
from effdet_keras.data.formats.image_paths import current_root, find_folder
from effdet_keras.data.formats.yolo_files import has_labels
from effdet_keras.data.formats.yolo_names import (
    FoundNames,
    names_in_file,
    names_of_layout,
)
from effdet_keras.data.formats.yolo_places import (
    Layout,
    label_places,
    places_of,
    resolves,
)
from effdet_keras.data.formats.yolo_texts import is_list

# Other keys are no splits: `eval = coco` is the kind of evaluation, and `backup` is a
# folder of weights.
_DARKNET_SPLITS = ("train", "valid", "val", "test")


def darknet_layout(file: Any) -> Layout | None:
    """Returns the layout of a darknet file of lines `train = data/train.txt`, or None.

    It is None if there are no images for any of its splits.
    """
    content = darknet_content(file)
    bases = [file.parent, file.parent.parent, current_root(file)]
    bases = list(dict.fromkeys(b for b in bases if b is not None))
    splits, missing = {}, {}
    for key, value in content.items():
        if key in _DARKNET_SPLITS and value:
            place, _ = find_folder(value, bases)
            if place is not None and resolves(place, bases):
                splits[key] = [place]
            else:
                missing[key] = value
    if not splits:
        return None
    found = FoundNames()
    if "names" in content:
        place, _ = find_folder(content["names"], bases)
        if place is not None:
            found = FoundNames(names_in_file(place), place)
    if not found.names:
        places = [file.parent, *label_places(places_of(splits), {})]
        found = names_of_layout(places, file.parent, splits, {})
    notes = tuple(
        (
            "missing split",
            str(file),
            f"the split {key!r} of {file.name!r} is left out: no image of {value!r} "
            "was found",
        )
        for key, value in missing.items()
    )
    notes += (*found.notes, *_notes_of_more_lists(splits, file))
    return Layout(
        file.parent,
        splits,
        found.names,
        notes=notes,
        names_of=found.names_of,
        names_file=found.file,
    )


def darknet_content(file: Any) -> dict[str, str]:
    """Returns the content of a .data file as a dict.

    Args:
        file: path of a file with lines `key = value`; lines that begin with `#` are
            comments.
    """
    content = {}
    for line in read_text(file).splitlines():
        key, is_pair, value = line.partition("=")
        if is_pair and not line.lstrip().startswith("#"):
            content[key.strip()] = value.strip()
    return content


def _notes_of_more_lists(splits, file):
    """Returns notes of lists, such as one of test images, that a .data file lacks."""
    lists = [p for (p,) in splits.values() if p.suffix.lower() == ".txt"]
    used = {os.path.realpath(path) for path in lists}
    roles = set(map(role_of_split, splits))
    notes = []
    for folder in dict.fromkeys(path.parent for path in lists):
        for split, path in _split_lists(folder).items():
            if role_of_split(split) not in roles and os.path.realpath(path) not in used:
                detail = (
                    f"the list of images {path.name!r} is not read, because "
                    f"{file.name!r} does not name it. To read it, add "
                    f"`{split} = {path.name}` to {file.name!r}"
                )
                notes.append(("missing split", str(file), detail))
    return notes


def notes_of_lost_lists(folder: Any, splits: Iterable[str]) -> list[tuple]:
    """Returns notes of lists of images in a folder of which no image exists.

    Lists in the folder that the user named count too. Lists are ignored if another
    split has their role.

    Args:
        folder: folder of the dataset.
        splits: names of the splits that were found.
    """
    roles = set(map(role_of_split, splits))
    folders = dict.fromkeys((folder, current_root(folder) or folder))
    lost = [
        file
        for place in folders
        for file in visible_files(place, ".txt")
        if split_in_name(file.stem) is not None
        and role_of_split(file.stem) not in roles
        and is_list(file)
        and not resolves(file, [folder])
    ]
    detail = (
        "the list {!r} is left out: none of its first images was found (those in "
        "folders of other splits do not count)"
    )
    return [("missing split", str(f), detail.format(f.name)) for f in lost]


def list_layout(path: Any) -> Layout | None:
    """Returns the layout of lists such as train.txt beside the images, or None."""
    splits = {split: [file] for split, file in _split_lists(path).items()}
    layout = Layout(path, splits)
    return layout if splits and has_labels(layout) else None


def _split_lists(folder):
    """Returns the lists of images in a folder that are named after splits, by split."""
    splits = {}
    for file in visible_files(folder, ".txt"):
        split = split_in_name(file.stem)
        if split is not None and is_list(file) and resolves(file, [folder]):
            splits[split] = file
    return splits
