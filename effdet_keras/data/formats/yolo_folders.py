"""Finds the layout of a YOLO dataset from its folders, without a file about them."""

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

# Words in the names of folders of results, drawings, and older copies of data.
_RESULT_WORD = (
    "old|back(up)?s?|bak|pred(s|ict(ed|ions?)?)?|detect(s|ed|ions?)?|results?"
    "|out(puts?)?|vis(uali[sz](ed|ations?))?|draw(n|ings?)?"
)
_MAX_OTHERS = 20  # if there are more folders beside a dataset, no two are compared
_BOXES_ALONE = (*LABEL_FOLDERS, "obj_train_data")


def folder_layout(path: Any) -> Layout:
    layout = any_folder_layout(path)
    if layout is None and (files := _data_files(path)):
        content = darknet_content(files[0])
        lists = [v for key, v in content.items() if role_of_split(key) and v]
        raise MissingFolderError(
            f"{str(files[0])!r} names lists of images ({', '.join(lists)}), but these "
            "lists are missing, or none of their images was found: put the lists and "
            "the images where the file and the lists say, seen from the file's folder"
        )
    texts = _label_files(path) if layout is None else []
    if texts and (folder := _image_folder_beside(path, texts[0])):
        if current_root(path) != path.absolute():
            raise FileNotFoundError(f"{str(path)!r} is a part of a dataset")
        raise MissingFolderError(
            f"{str(path)!r} has txt files alone. Their images are in {str(folder)!r}: "
            "pass the folder around both"
        )
    if texts:
        raise MissingFolderError(
            f"{count_of(len(texts), 'txt file')} of {str(texts[0].parent)!r} with "
            f"boxes, such as {texts[0].name!r}, have no image of the same name: put "
            "the images beside them"
        )
    if layout is None:
        raise FileNotFoundError(
            "`from_yolo` expects a folder with a data.yaml, with `images` and "
            f"`labels`, or with images and txt files. Received: path={str(path)!r}"
        )
    notes = notes_of_lost_lists(path, layout.splits)
    return with_names(layout._replace(notes=(*layout.notes, *notes)), path)


def with_names(layout: Layout, path: Any) -> Layout:
    """Returns the layout of folders with the class names that files in them have.

    Args:
        layout: layout of a dataset in folders.
        path: folder of the dataset.
    """
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
    """Returns the txt files of a folder, or of its label folder, if they hold boxes."""
    folders = [f for f in visible_folders(path) if f.name.lower() in LABEL_FOLDERS]
    for folder in (path, *folders):
        texts = [f for f in visible_files(folder, ".txt") if f.name not in NAME_FILES]
        if are_labels(texts):
            return texts
    return []


def _image_folder_beside(path, text):
    """Returns the folder beside a label folder with a txt file's image, or None."""
    if path.name.lower() not in LABEL_FOLDERS or is_remote(path):
        return None
    images = {text.stem + suffix for suffix in IMAGE_SUFFIXES}
    beside = visible_folders(path.absolute().parent)
    beside.sort(key=lambda folder: folder.name.lower() not in IMAGE_FOLDERS)
    own = (f for f in beside if not images.isdisjoint(names_in(f)[1]))
    return next(own, None)


def any_folder_layout(path: Any) -> Layout | None:
    """Returns the first of the known layouts that a folder has, or None."""
    partial = None  # layout of a .data file whose training list names no existing image
    for file in _data_files(path):
        layout = darknet_layout(file)
        if layout is not None and (_has_train(layout) or not _names_train(file)):
            return layout
        if layout is not None and partial is None:
            partial = layout
            detail = f"no image of {file.name!r} to train on was found"
            detail += ": the folders of the splits are read instead of its lists"
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
    """Returns whether a .data file names images to train on."""
    return any(role_of_split(key) == "train" for key in darknet_content(file))


def _has_train(layout):
    return _has_role(layout.splits, "train")


def _has_role(splits, role):
    return any(role_of_split(split) == role for split in splits)


def _without_empty(layout):
    """Returns the layout without splits that have no image, if others have one."""
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
    """Returns the layout of a folder of images and a folder of txt files, or None."""
    folders = visible_folders(path)
    images = [f for f in folders if f.name.lower() in IMAGE_FOLDERS]
    labels = [f for f in folders if f.name.lower() in LABEL_FOLDERS]
    if not any(folder.name.lower() in ("labels", "labeltxt") for folder in labels):
        labels = [folder for folder in labels if _has_labels(folder)]
    images = [f for f in images if has_image(f) or f.name == "images"]
    pairs, notes = {}, ()
    # Image folders of any name, if their files have the same names.
    if labels and not images:
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
        # Other folders beside those of splits are splits too, if they have labels.
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
        f"the images of {str(images)!r} with the txt files of {str(labels)!r} are "
        "left out. To read them, put both into a folder of their own"
    )
    return ("images beside splits", str(images), detail)


def _note_of_beside(folder, images, splits):
    verb = "is" if len(images) == 1 else "are"
    detail = (
        f"{count_of(len(images), 'image')} beside the folders of the splits {splits} "
        f"in {str(folder)!r}, such as {images[0]!r}, {verb} left out: move those that "
        "you want to use into one of these folders"
    )
    return ("images beside splits", str(folder), detail)


def _has_own_images(labels):
    """Returns whether most txt files of a folder have their images beside them."""
    return _flat_layout(labels) is not None and _share_with_image(labels) > 0.5


def _share_with_image(folder):
    """Returns the share of a folder's txt files that have an image of the same name."""
    images, texts = _images_and_texts(folder)
    return len(images & texts) / max(len(texts), 1)


def _images_and_texts(folder):
    """Returns the stems of the images, and of the txt files, in a folder."""
    return _images_and_texts_of(names_in(folder)[1])


def _images_and_texts_of(names):
    images = {n.rpartition(".")[0] for n in names if n.lower().endswith(IMAGE_SUFFIXES)}
    texts = {n[:-4] for n in names if n.endswith(".txt") and n not in NAME_FILES}
    return images, texts


def _count_pairs(images, labels):
    """Returns how many images have a txt file of boxes in the corresponding folder."""
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
    """Returns a dict from the name of each folder to the name of its split."""
    splits = splits_in_names(names)
    short = {name: splits.get(name, name) for name in names}
    counts = collections.Counter(short.values())
    return {name: s if counts[s] == 1 else name for name, s in short.items()}


def _split_layout(path):
    """Returns the layout of one folder per split with images and labels, or None."""
    splits = split_folders(path)
    folders = list(splits.values())
    # Darknet's tutorials put the images to train on into `obj`.
    training = path / "obj"
    if folders and not _has_role(splits, "train") and training.is_dir():
        folders.append(training)
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
    if training in layouts:
        names[training.name] = reading.ONE_SPLIT
    splits = {
        names[folder.name]: [p for places in layout.splits.values() for p in places]
        for folder, layout in layouts.items()
    }
    is_flat = any(layout.is_flat for layout in layouts.values())
    pairs = {k: v for la in layouts.values() for k, v in la.label_folders.items()}
    notes = tuple(note for layout in layouts.values() for note in layout.notes)
    return Layout(path, splits, notes=notes, is_flat=is_flat, label_folders=pairs)


def _split_of_parts(folder):
    """Returns the layout of `train` beside `labels/train`, or None."""
    for name in LABEL_FOLDERS[:2]:
        labels = folder.parent / name / folder.name
        if labels.is_dir() and _count_pairs(folder, labels):
            return Layout(folder, {reading.ONE_SPLIT: [folder]})
    return None


def _parts_in_folders(folder):
    """Returns the layout of a split whose subfolders have images and labels, or None.

    The subfolders may be of one class each, and share the numbers of the classes.
    """
    layouts = list(filter(None, map(_parts_layout, visible_folders(folder))))
    if not layouts or any(len(layout.splits) > 1 for layout in layouts):
        return None
    places = [p for layout in layouts for p in layout.splits[reading.ONE_SPLIT]]
    pairs = {k: v for layout in layouts for k, v in layout.label_folders.items()}
    return Layout(folder, {reading.ONE_SPLIT: places}, label_folders=pairs)


def _flat_layout(path):
    """Returns the layout of images with their txt files beside them, or None."""
    texts = visible_files(path, ".txt")
    if not texts:
        return None
    names = names_in(path)[1]
    stems = {n.rpartition(".")[0] for n in names if n.lower().endswith(IMAGE_SUFFIXES)}
    files = [file for file in texts if file.stem in stems and file.suffix == ".txt"]
    if not are_labels(files, least=0.5):  # a damaged one is reported later
        return None
    return Layout(path, {reading.ONE_SPLIT: [path]}, is_flat=True)


def _flat_folders_layout(path):
    """Returns the layout of several folders with images and txt files each, or None.

    The folders may be the clips of a video, or images of one class each. They must
    share the numbers of the classes: no two of their lists of names may contradict each
    other.
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
        f"the folders {names} of {str(path)!r} are left out, because no image there "
        f"has a txt file, unlike those of {labelled.name!r}"
    )
    return ("images without txt file", str(path), detail)


def _named_folders_layout(path):
    """Returns the layout of flat folders whose classes are named by a list, or None.

    Without a list, the same number may mean another class in another folder.
    """
    layout = _flat_folders_layout(path)
    if layout is None:
        return None
    folders = layout.splits[reading.ONE_SPLIT]
    is_named = all(any(lists_in(folder)) for folder in folders)
    return layout if is_named or find_names([path], path)[0] else None


def _pair_layout(path):
    """Returns the layout of two folders whose files have the same names, or None."""
    folders = visible_folders(path)
    # OpenLabeling writes the txt files to `output/YOLO_darknet`.
    places = [place / name for place in folders for name in names_in(place)[0]]
    folders += [place for place in places if place.name.lower() == "yolo_darknet"]
    counts = _count_all_pairs(folders)
    if not counts:
        return None
    pairs, notes = _largest_pair(counts)
    (folder,) = pairs
    return Layout(path, {reading.ONE_SPLIT: [folder]}, notes=notes, label_folders=pairs)


def _count_all_pairs(folders):
    """Counts, for each pair of folders, the images of one with boxes in the other."""
    if not any(visible_files(folder, ".txt") for folder in folders):
        return {}
    names = {folder: _images_and_texts(folder) for folder in folders}
    counts = {}
    for folder, labels in itertools.permutations(folders, 2):
        own, texts = names[labels]
        same = names[folder][0] & texts
        # The txt files are those of the images beside them.
        if 2 * len(own & texts) > len(texts):
            continue
        if not 2 * len(same) > len(texts):
            continue
        if are_labels([labels / f"{name}.txt" for name in sorted(same)]):
            counts[folder, labels] = len(same)
    return counts


def _largest_pair(counts):
    """Returns the pair of image folder and label folder with most files in common.

    Returns:
        Dict from the image folder to the label folder; and a note for each pair of two
        other folders, and for each other image folder with the same txt files.
    """
    pairs = dict([max(counts, key=counts.get)])
    used = {*pairs, *pairs.values()}
    others = [pair for pair in counts if used.isdisjoint(pair)]
    notes = [_note_of_other_pair(*pair) for pair in others]
    ((images, labels),) = pairs.items()
    twins = [i for i, other in counts if other == labels and i != images]
    for twin in twins:
        detail = (
            f"{str(twin)!r} also has images for the txt files of {str(labels)!r}. "
            f"They are left out, and those of {str(images)!r} are read: if these are "
            "the wrong ones, move them away"
        )
        notes.append(("images beside splits", str(twin), detail))
    return pairs, tuple(notes)


def _inner_layout(path):
    """Returns the layout of images with a folder of txt files among them, or None.

    The OIDv4 ToolKit writes this for each class: `Apple/a.jpg`, `Apple/Label/a.txt`.
    """
    for place, folders, files in walk(path, depth=1):
        if not any(name.lower().endswith(IMAGE_SUFFIXES) for name in files):
            continue
        inner = [name for name in folders if name.lower() in LABEL_FOLDERS[:2]]
        if any(_count_pairs(place, place / name) for name in inner):
            return _with_inner_labels(path, place)
    return None


def _with_inner_labels(path, place):
    """Returns the layout for a place that has images and a folder of txt files.

    If it is one of several folders, and no other folder has a txt file for an image,
    this folder is the dataset. The others then have images of something else.
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
    """Returns the layout of txt files whose images are in other folders, or None.

    The images are looked for in the whole dataset, by the names of the txt files. The
    boxes may be an export of their own beside the images, or the images may be in
    folders arranged in another way.
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
    total = f"of {count_of(count, 'txt file')}"
    number = count_of(len(label_files), f"{total} has its", f"{total} have their")
    detail = f"{number} images elsewhere: below {str(root)!r}, by their names"
    note = ("moved images", str(folders[0]), detail)
    return Layout(path, dict(splits), notes=(note,), label_files=label_files)


def _has_labels(folder):
    """Returns whether there are txt files of boxes in a folder or below it."""
    for place, _, names in walk(folder, depth=2):
        if are_labels([place / name for name in names if name.endswith(".txt")]):
            return True
    return False
