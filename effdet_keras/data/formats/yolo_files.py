"""Finds the images of each split of a YOLO dataset, and the txt file of each image."""

from __future__ import annotations

import collections
import os
import reprlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from effdet_keras._internal.whole_files import is_remote
from effdet_keras._internal.yaml_text import read_text
from effdet_keras.data.formats.dataset_files import (
    DEPTH,
    NO_DATA_FOLDERS,
    names_in,
    walk,
)
from effdet_keras.data.formats.image_paths import (
    current_root,
    find_moved,
    without_hash,
)
from effdet_keras.data.formats.yolo_places import (
    Layout,
    find_listed,
    is_missing,
    label_folders_of,
    listed,
    places_of,
    raise_missing,
)
from effdet_keras.data.formats.yolo_texts import (
    LOOKED_AT,
    NAME_FILES,
    is_label_file,
    lines_of,
)
from effdet_keras.data.problems import Problems
from effdet_keras.data.shared_images import is_copy
from effdet_keras.errors import InvalidValueError
from effdet_keras.images import IMAGE_SUFFIXES

MAX_READ = 10_000  # the most txt files without an image that are read
# Suffixes of files that often lie among images: no warning tells that they are not
# read.
_COMPANIONS = frozenset(
    """
    .txt .xml .json .jsonl .csv .tsv .yaml .yml .md .rst .html .cache .npy .names
    .labels
    .data .db .ini .py .ipynb .sh .bat .zip .tar .gz .record .tfrecord .tfrecords .pbtxt
    .cfg .toml .log .lock .pt .pth .h5 .ds_store .doc .docx .pdf .xlsx
    """.split()
)


def images_of(layout: Layout, split: str, problems: Any) -> list[Any]:
    """Returns the paths of the images of a split, sorted in each folder.

    Args:
        layout: layout of the dataset.
        split: one of its splits.
        problems: `Problems` to add to.

    Raises:
        FileNotFoundError: If a place of the split does not exist, or there is no image.
    """
    paths, others = [], collections.Counter()
    for place in layout.splits[split]:
        if isinstance(place, str):
            there = [s for s in layout.splits if not is_missing(layout, s)]
            raise_missing(layout.folder, place, split, there)
        if place in layout.label_files:
            paths.append(place)
        elif place.is_dir():
            paths += _images_below(place, others)
        else:
            paths += _images_in_list(place, layout, problems)
    _note_other_files(others, layout, problems)
    if not paths:
        problems.check()  # perhaps all images in a list are missing
        if not problems.has("missing image"):
            places = ", ".join(repr(str(place)) for place in layout.splits[split])
            source = "" if layout.yaml is None else f", as {str(layout.yaml)!r} says"
            raise FileNotFoundError(
                f"`from_yolo` found no image of the split {split!r}. The images are "
                f"expected in {places}{source}: put them there, or list them there"
            )
    return list(dict.fromkeys(paths))


def _images_below(folder, others):
    """Returns the images in and below a folder; counts other files by their suffix."""
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
        f"{others.total():,} files among the images are left out, because their names "
        f"do not have the ending of an image file: {kinds}"
    )
    problems.add("files that are no images", layout.folder, detail)


def _images_in_list(file, layout, problems):
    lines = list(dict.fromkeys(lines_of(file)))
    paths = listed(file, [layout.folder, file.parent.parent], lines)
    lost = [i for i, path in enumerate(paths) if path is None]
    if lost:
        if len(lost) == len(lines):
            found = find_listed(lines, file)
        else:
            found, _ = find_moved([(lines[i],) for i in lost], file)
        for i, path in zip(lost, found):
            paths[i] = path
            if path is None:
                problems.add("missing image", lines[i], f"of {file.name}")
    return _with_labels([path for path in paths if path is not None], layout, problems)


def _with_labels(images, layout, problems):
    """Returns the images of a list, or copies of them if only copies have txt files.

    Copies have the same name and the same bytes. If one image of the list has a txt
    file, all images are returned as they are.
    """
    if is_remote(layout.folder):
        return images
    # The first images are enough in most cases.
    for part in (images[:LOOKED_AT], images):
        if any(find_labels(part, layout).is_there):
            return images
    root = current_root(layout.folder) or layout.folder
    copy_of = _copies_with_labels(images, layout, layout.folder, depth=2)
    copy_of = copy_of or _copies_with_labels(images, layout, root, depth=DEPTH)
    if copy_of:
        first, copy = next(iter(copy_of.items()))
        detail = (
            "no image of a list has a txt file, so copies that have one are read "
            f"instead, such as {str(copy)!r} of {str(first)!r}"
        )
        problems.add("moved images", layout.folder, detail)
    return [copy_of.get(image, image) for image in images]


def _copies_with_labels(images, layout, root, depth):
    """Returns, by image, its only copy below a folder that has a txt file."""
    wanted, copies = {image.name for image in images}, collections.defaultdict(list)
    for place, folders, names in walk(root, depth=depth):
        folders[:] = [name for name in folders if name.lower() not in NO_DATA_FOLDERS]
        there = wanted.intersection(names)
        places = label_folders_of(place, layout.label_folders) if there else ()
        texts = {text for folder, _ in places for text in names_in(folder)[1]}
        for name in there:
            if f"{name.rpartition('.')[0]}.txt" in texts:
                copies[name].append(place / name)
    return {
        image: copies[image.name][0]
        for image in images
        if len(copies[image.name]) == 1 and is_copy(image, copies[image.name][0])
    }


class Labels(NamedTuple):
    """The txt files of images.

    Attributes:
        images: paths of the images that are kept.
        files: path of the txt file of each image, which need not exist.
        is_there: for each image, whether its txt file exists.
        left_out: images in folders without any txt file, which are not kept.
        stray: txt files of boxes that belong to no image.
    """

    images: list
    files: list
    is_there: list
    left_out: list
    stray: list


def find_labels(images: Sequence[Any], layout: Layout) -> Labels:
    """Finds the txt file of each image, in a folder of labels or beside the image.

    If images and txt files lie side by side, a subfolder without any txt file has other
    images, such as raw ones. These are left out.

    Args:
        images: paths of the images.
        layout: layout of the dataset.
    """
    by_folder = collections.defaultdict(list)
    for image in images:
        by_folder[image.parent].append(image)
    file_of, left_out = {}, []
    stems_of, texts_of, shared = collections.defaultdict(set), {}, set()
    roots = set(places_of(layout.splits))
    for folder, members in by_folder.items():
        if layout.label_files:
            file_of |= {m: (layout.label_files[m], True) for m in members}
            continue
        places = label_folders_of(folder, layout.label_folders)
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
            elif place not in shared:  # shared by several folders: once is enough
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
    stray = [file for file in stray if file.name.lower() not in NAME_FILES]
    return Labels(
        kept,
        [f for f, _ in pairs],
        [t for _, t in pairs],
        left_out,
        _boxes_alone(stray),
    )


def _with_prefix(images, names):
    """Returns txt files that have Label Studio's prefix, for images that do not.

    Args:
        images: paths in a folder; none of them has a txt file of its name.
        names: pairs of a folder and the names of the txt files in it.

    Returns:
        Dict from image to `(txt file, True)`.
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
    """Raises ValueError if the first txt files hold something other than boxes."""
    place = next(iter(layout.splits.values()))[0]
    if isinstance(place, str) or place in layout.label_files or not place.is_dir():
        return
    images = []
    for folder, _, names in walk(place):
        names = [name for name in names if name.lower().endswith(IMAGE_SUFFIXES)]
        images = [folder / name for name in names[:LOOKED_AT]]
        if images:
            break
    labels = find_labels(images, layout)
    files = [file for file, t in zip(labels.files, labels.is_there) if t]
    looks = ((file, is_label_file(file, least=0.5)) for file in files)
    known = [(file, look) for file, look in looks if look is not None]
    if known and not any(look for _, look in known):
        file = known[0][0]
        line = read_text(file).strip().partition("\n")[0]
        raise InvalidValueError(
            "`from_yolo` expects rows with a class number and the numbers of a box, "
            f"but no txt file has such a row. Received: {str(file)!r} with "
            f"{reprlib.repr(line)}"
        )


def has_labels(layout: Layout) -> bool:
    """Returns whether one of the first images of a split has a txt file."""
    for split, places in layout.splits.items():
        if any(isinstance(place, str) for place in places):
            continue
        images = images_of(layout, split, Problems("`from_yolo`", "skip"))
        if any(find_labels(images[:LOOKED_AT], layout).is_there):
            return True
    return False


def texts_of_boxes(folder: Any) -> list[Any]:
    """Returns the txt files of boxes in and below a folder; none for an address."""
    if is_remote(folder):
        return []
    found = []
    for place, folders, names in walk(folder):
        folders[:] = [name for name in folders if name.lower() not in NO_DATA_FOLDERS]
        found += [place / n for n in names if n.endswith(".txt")]
    return _boxes_alone([file for file in found if file.name not in NAME_FILES])


def _boxes_alone(files):
    """Returns those of txt files without an image that hold boxes.

    If there are more than `MAX_READ`, all of them are returned.
    """
    if len(files) > MAX_READ:
        return files
    return [file for file in files if is_label_file(file)]
