"""A YOLO dataset in folders, without a file that describes them."""

from __future__ import annotations

import collections
import itertools
from typing import Any

from effdet_keras._internal.whole_files import is_remote
from effdet_keras.data.dataset import count_of
from effdet_keras.data.formats import reading
from effdet_keras.data.formats.dataset_files import (
    NO_DATA_FOLDERS,
    has_word,
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
from effdet_keras.data.formats.image_paths import ImageIndex, current_root
from effdet_keras.data.formats.yolo_files import has_labels
from effdet_keras.data.formats.yolo_lists import (
    darknet_content,
    darknet_layout,
    list_layout,
    notes_of_lost_lists,
)
from effdet_keras.data.formats.yolo_names import (
    find_names,
    go_together,
    lists_in,
    names_of_layout,
)
from effdet_keras.data.formats.yolo_places import (
    IMAGE_FOLDERS,
    LABEL_FOLDERS,
    Layout,
    MissingFolderError,
    has_image,
    label_places,
    places_of,
)
from effdet_keras.data.formats.yolo_texts import LOOKED_AT, NAME_FILES, are_labels
from effdet_keras.images import IMAGE_SUFFIXES

# Words for what a program drew or detected, and for what was there before.
_RESULT_WORD = (
    "old|back(up)?s?|bak|pred(s|ict(ed|ions?)?)?|detect(s|ed|ions?)?|results?"
    "|out(puts?)?|vis(uali[sz](ed|ations?))?|draw(n|ings?)?"
)
_MAX_OTHERS = 20  # folders beside those of a dataset, of which each two are compared
_BOXES_ALONE = (*LABEL_FOLDERS, "obj_train_data")


def folder_layout(path: Any) -> Layout:
    layout = any_folder_layout(path)
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
    notes = notes_of_lost_lists(path, layout.splits)
    return with_names(layout._replace(notes=(*layout.notes, *notes)), path)


def with_names(layout: Layout, path: Any) -> Layout:
    """A layout of folders with the names of its classes, as files in them have them."""
    if layout.names:
        return layout
    places = [path, path / "labels", path / "labels" / "train"]
    if layout.is_flat:
        places += filter(_flat_layout, visible_folders(path))
    pairs = layout.label_folders
    places += label_places(places_of(layout.splits), pairs)
    for folder in dict.fromkeys(file.parent for file in layout.label_files.values()):
        places += [p for p in (folder, *folder.parents) if path in p.parents]
    found = names_of_layout(places, path, layout.splits, pairs)
    return layout._replace(
        names=found.names,
        names_file=found.file,
        names_of=found.names_of,
        notes=(*layout.notes, *found.notes),
    )


def _label_files(path):
    """The txt files of a folder, or of one for labels in it, if they hold boxes."""
    folders = [f for f in visible_folders(path) if f.name.lower() in LABEL_FOLDERS]
    for folder in (path, *folders):
        texts = [f for f in visible_files(folder, ".txt") if f.name not in NAME_FILES]
        if are_labels(texts):
            return texts
    return []


def any_folder_layout(path: Any) -> Layout | None:
    """The first of the known layouts that a folder has, or None."""
    partial = None  # the layout of a .data file whose list to train on names nothing
    for file in _data_files(path):
        layout = darknet_layout(file)
        if layout is not None and (_has_train(layout) or not _names_train(file)):
            return layout
        if layout is not None and partial is None:
            partial, detail = layout, f"no image of {file.name!r} to train on is there"
            detail += ": folders of splits are read, and not its lists"
            note = ("moved folders", str(file), detail)
    for find in (
        list_layout,
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
    return any(role_of_split(key) == "train" for key in darknet_content(file))


def _has_train(layout):
    return any(role_of_split(split) == "train" for split in layout.splits)


def _without_empty(layout):
    """A layout without splits that have no image, if others have one."""
    if layout.label_files:
        return layout
    full = {s: p for s, p in layout.splits.items() if any(map(has_image, p))}
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
    images = [f for f in images if has_image(f) or f.name == "images"]
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
    others = [f for f in folders if f not in images and f not in labels]
    others = [f for f in others if not has_word(f.name, _RESULT_WORD)]
    if len(others) <= _MAX_OTHERS:
        notes += tuple(_note_of_other_pair(*pair) for pair in _count_all_pairs(others))
    inner, files = names_in(folder)
    splits = splits_in_names(inner)
    beside = [name for name in files if name.lower().endswith(IMAGE_SUFFIXES)]
    roles = {role_of_split(s) for n, s in splits.items() if has_image(folder / n)}
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
        "out: put both into a folder of their own to read them"
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
    texts = {n[:-4] for n in names if n.endswith(".txt") and n not in NAME_FILES}
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
            files = [folder / f"{name}.txt" for name in both[:LOOKED_AT]]
            count += len(both) if are_labels(files) else 0
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
    if not are_labels(files, least=0.5):  # a damaged one is told of later
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
    lists = [next(lists_in(folder), ((), None))[0] for folder in flat]
    if len(flat) < 2 or not go_together(lists):
        return None
    others = [f for f in folders if f not in flat and has_image(f)]
    notes = (_note_of_unlabelled(path, others, flat[0]),) if others else ()
    return Layout(path, {reading.ONE_SPLIT: flat}, notes=notes, is_flat=True)


def _note_of_unlabelled(path, folders, labelled):
    names = [folder.name for folder in folders]
    detail = (
        f"the folders {names} of {str(path)!r} are left out: no image there has a txt "
        f"file, as those of {labelled.name!r} have"
    )
    return ("images without txt file", str(path), detail)


def _named_folders_layout(path):
    """The layout of such folders where a list names their classes, or None.

    Without one, the same number may be of another class in another folder.
    """
    layout = _flat_folders_layout(path)
    if layout is None:
        return None
    folders = layout.splits[reading.ONE_SPLIT]
    is_named = all(any(lists_in(folder)) for folder in folders)
    return layout if is_named or find_names([path], path)[0] else None


def _pair_layout(path):
    """The layout of two folders whose files have the same names, or None."""
    counts = _count_all_pairs(visible_folders(path))
    if not counts:
        return None
    pairs, notes = _largest_pair(counts)
    (folder,) = pairs
    return Layout(path, {reading.ONE_SPLIT: [folder]}, notes=notes, label_folders=pairs)


def _count_all_pairs(folders):
    """How many files of boxes each two folders have, one of them for its images."""
    if not any(visible_files(folder, ".txt") for folder in folders):
        return {}
    names = {folder: _images_and_texts(folder) for folder in folders}
    counts = {}
    for folder, labels in itertools.permutations(folders, 2):
        own, texts = names[labels]
        same = names[folder][0] & texts
        if 2 * len(own & texts) > len(texts):  # of the images beside them
            continue
        if not 2 * len(same) > len(texts):
            continue
        if are_labels([labels / f"{name}.txt" for name in sorted(same)]):
            counts[folder, labels] = len(same)
    return counts


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
            return _with_inner_labels(path, place)
    return None


def _with_inner_labels(path, place):
    """The layout where a place has images and a folder of txt files among them.

    Where it is one folder of several, and no other has a txt file of an image, it is
    the dataset, and the others have images of something else.
    """
    others = [f for f in visible_folders(path) if f != place and has_image(f)]
    is_one = place != path and not visible_files(path, *IMAGE_SUFFIXES)
    if not others or not is_one or any(_has_labels_below(f) for f in others):
        return Layout(path, {reading.ONE_SPLIT: [path]})
    notes = (_note_of_unlabelled(path, others, place),)
    return Layout(path, {reading.ONE_SPLIT: [place]}, notes=notes)


def _has_labels_below(folder):
    return has_labels(Layout(folder, {reading.ONE_SPLIT: [folder]}))


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
            if not name.endswith(".txt") or name in NAME_FILES:
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


def _has_labels(folder):
    """Whether there are txt files of boxes in a folder or below it."""
    for place, _, names in walk(folder, depth=2):
        if are_labels([place / name for name in names if name.endswith(".txt")]):
            return True
    return False
