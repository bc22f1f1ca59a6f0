"""Reads and writes datasets in COCO's json format."""

from __future__ import annotations

import collections
import functools
import json
import mmap
import os
import re
import reprlib
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from effdet_keras._internal.remote_path import (
    dropping_unreadable_copy,
    is_file,
    local_copy,
    path_of,
)
from effdet_keras._internal.whole_files import atomic_folder, is_remote
from effdet_keras.data.dataset import DetectionDataset, check_class_names, count_of
from effdet_keras.data.formats import reading, writing
from effdet_keras.data.formats.annotation_files import head_of, read_json
from effdet_keras.data.formats.coco_merge import id_key, merge_contents
from effdet_keras.data.formats.dataset_files import (
    describe_archives,
    role_of_split,
    split_folders,
    split_in_name,
    split_roles,
    split_word_in,
    splits_of_role,
    visible_files,
    visible_folders,
    words_in_name,
)
from effdet_keras.data.formats.image_paths import (
    current_root,
    find_moved,
    images_called,
    images_of_other_exports,
)
from effdet_keras.data.formats.label_map import (
    ClassNames,
    ids_of_classes,
    requested_classes,
)
from effdet_keras.data.problems import NoImageError, Problem, Problems
from effdet_keras.data.record import load_mask, shape_as_coco
from effdet_keras.data.shared_images import is_copy
from effdet_keras.errors import InvalidValueError
from effdet_keras.images import (
    IMAGE_SUFFIXES,
    LFS_CURE,
    is_lfs_pointer,
    read_image_size,
)

# A folder is that of a json file if it has at least this share of its images, although
# the first ones are missing.
_LEAST_PRESENT = 0.05


def from_coco(
    annotations: str | os.PathLike[str] | dict,
    image_dir: str | os.PathLike[str] | None = None,
    *,
    class_names: ClassNames | None = None,
    on_error: str = "auto",
    masks: bool = False,
) -> DetectionDataset:
    """Reads a dataset in COCO's format: one json file and a folder of images.

    Labels count from 0 in ascending order of the file's category ids, which may have
    gaps: COCO's 80 classes have ids up to 90. The dataset keeps these ids as
    `category_ids`, for `to_coco` and evaluation. For training, a box that reaches out
    of its image is clipped; a box with no area inside its image is not trained on, and
    a warning says so. Evaluation uses the boxes as they are in the file. If `area` is
    not a usable number, the area of the box is used. Roboflow adds a category 0 that
    has no annotations and is the `supercategory` of all others: it does not become a
    class. A category that is listed twice counts once. An `image_id` may be the `id` of
    an image written as a string, as VIA does. Entries of `images` with the same
    `file_name` are merged into one image that has the boxes of all of them, and a note
    reports it.

    Args:
        annotations: path of the json file, or its address, such as
            `s3://bucket/train.json` (docs/remote_files.md); or its content as a dict.
        image_dir: folder, or its address, to which the `file_name`s are relative. With
            None, the folder is searched for near the json file: first `train` for
            `train.json`, or `val2017` for `annotations/instances_val2017.json`, then
            `images`, then any folder beside the json file or beside its folder.
        class_names, on_error: see `load`.
        masks: whether to keep the `segmentation` of the annotations (polygons or
            run-length encodings), for a model with a segmentation head. Pixel class 0
            is "background" and pixel class `i + 1` is label `i`, crowds included.
            Smaller objects are drawn over larger ones. For an object without
            `segmentation`, the pixels in its box that belong to no other object have no
            class.

    Returns:
        `DetectionDataset`. If the id of any image is not an int, the `image_id`s are 1,
        2, ... instead; the ids of the file are kept as `source_id`.

    Raises:
        FileNotFoundError: If the json or images are missing.
        ValueError: If the json is not in COCO's format, or, depending on `on_error`, if
            a category id is unknown, an image id repeats, or a box is not four finite
            numbers in pixels.

    Example:
        >>> import pathlib, tempfile
        >>> from effdet_keras.data.formats.arrays import from_arrays
        >>> image = np.zeros((32, 48, 3), "uint8")
        >>> dataset = from_arrays([image], [[[4, 8, 20, 40]]], [[0]], ["cat"])
        >>> folder = pathlib.Path(tempfile.mkdtemp()) / "cats"
        >>> write_coco(dataset, folder)
        >>> sorted(path.name for path in folder.iterdir())
        ['train', 'train.json']
        >>> from_coco(folder / "train.json")[0]["boxes"].tolist()
        [[4.0, 8.0, 20.0, 40.0]]
    """
    content, source = _read_json(annotations)
    problems = Problems(f"`from_coco` of {source!r}", on_error)
    content = _with_one_entry_each(content, source, problems)
    return _make_dataset(
        content, source, problems, annotations, image_dir, class_names, masks
    )


def _with_one_entry_each(content, source, problems):
    """Merges the entries of an image for which a tool wrote one entry per box.

    Content in which ids repeat as well is returned unchanged: `_read_images` reports
    it.
    """
    images = [image for image in content["images"] if isinstance(image, dict)]
    pairs = [(id_key(i.get("id")), i.get("file_name")) for i in images]
    names = collections.Counter(name for _, name in pairs if isinstance(name, str))
    repeated = {name: count for name, count in names.items() if name and count > 1}
    if not repeated or len(dict(pairs)) < len(pairs):
        return content
    name, count = next(iter(repeated.items()))
    verb = "has" if len(repeated) == 1 else "have"
    detail = (
        f"{len(repeated):,} of {count_of(len(names), 'image')} {verb} several entries, "
        f"such as {name!r} with {count}"
    )
    problems.add_note("several entries", source, detail)
    return merge_contents([content])


def _make_dataset(
    content, source, problems, annotations, image_dir, class_names, masks
):
    """Makes the dataset from the content of one or more json files.

    `annotations` is the path of the first file, or the dict that the user passed.
    """
    classes = _read_classes(content, class_names, source, problems)
    images = _read_images(content["images"], source, problems)
    groups = _group_annotations(content["annotations"], images, source, problems)
    folder = image_dir
    if folder is None:
        folder = _find_image_dir(annotations, images, problems)
    folder, are_counted = path_of(folder), not all(map(_is_id, images))
    found = [
        _found(image, groups[key], folder, i if are_counted else key, masks)
        for i, (key, image) in enumerate(images.items(), 1)
    ]
    return reading.make_dataset(
        found,
        classes,
        problems,
        source=source,
        keep_unusable=True,
        image_dir=image_dir,
    )


def _find_image_dir(annotations, images, problems):
    """Finds the folder near a json file that contains one of its first images.

    If all of the first ones are missing, the folder is found by the others.
    """
    if isinstance(annotations, dict):
        raise InvalidValueError("`image_dir` is needed where `annotations` is a dict")
    path = path_of(annotations)
    names = [image["file_name"] for image in images.values()]
    folder = _folder_with_first(path, images, problems)
    is_lost = folder is None and names and not any(find_moved(_first(names), path)[0])
    if is_lost and not any(images_of_other_exports(names[:10], path)):
        present = _images_below(path, images)
        folder = _folder_with_first(path, present, problems) if present else None
        if not present:
            _raise_no_folder(path, names)
    return folder or path.parent


def _folder_with_first(path, images, problems):
    """Returns the folder near a json file that has one of the first images, or None."""
    names = [image["file_name"] for image in images.values()]
    split = split_of_json(path)
    folder = reading.image_folder_inside(path, split, names, _path_in)
    if folder is not None:
        return _folder_among_alike(folder, path, images)
    folder = _folder_beside(path, split, images)
    if folder is not None:
        return folder
    return reading.image_folder_around(path, split, names, _path_in, problems)


def _images_below(path, images):
    """Returns the images that are anywhere in the dataset, if they are not very few.

    A few of other images may have the same names by chance.
    """
    names = [(image["file_name"],) for image in images.values()]
    moved, _ = find_moved(names, path)
    present = {
        key: image for (key, image), place in zip(images.items(), moved) if place
    }
    return present if len(present) >= _LEAST_PRESENT * len(images) else {}


def _raise_no_folder(path, names):
    text = (
        f"`from_coco` found no folder with the images of {os.fspath(path)!r}, such "
        f"as {names[0]!r}"
    )
    others = visible_files(path.parent, *IMAGE_SUFFIXES)
    if others:
        count = count_of(len(others), "other image")
        text += f". Its folder has {count}, such as {others[0].name!r}: it may be "
        text += "the file of another split"
    text += (
        ". Put them into its folder, or into `images` beside it; or pass "
        "`image_dir` to `from_coco`"
    )
    (same,) = images_called(names[:1], path)
    if len(same) > 1:
        places = ", ".join(repr(str(place)) for place in same[:3])
        text += f". {len(same)} images have that name: {places}"
        if is_lfs_pointer(same[0]):
            text += f". The first {LFS_CURE}"
    archives = describe_archives(current_root(path))
    text += f". {archives}" if archives else ""
    raise NoImageError(text, may_be_others=bool(others or len(same) > 1))


def _folder_among_alike(folder, path, images):
    """Returns the found folder, or one beside it that fits the json file better.

    Only folders of the same split are compared, such as `test_cam1` and `test_cam2`.
    """
    is_exact = folder.name in (path.stem, split_of_json(path))
    if is_exact or folder.absolute() in path.absolute().parents:
        return folder
    beside = reading.folders_of_split(folder.parent, folder.name, path.stem)
    alike = [other for other in beside if _has_first_image(other, images)]
    return _best_folder(alike, path, images) if alike else folder


def _best_folder(folders, path, images):
    """Chooses the folder of a json file among folders with images of the same names.

    The folder whose name shares the most words with the name of the file wins. A tie is
    broken by how many of the first ten images are present with the size that the file
    gives, then by a folder name that has no other words. If the tied folders hold
    copies of the same images, the first is taken; otherwise an error is raised.
    """
    words = words_in_name(_name_of_json(path))
    first = list(images.values())[:10]

    def fit(folder):
        own = words_in_name(folder.name)
        count = sum(_is_image(_path_in(folder, i["file_name"]), i) for i in first)
        return len(words & own), count, words == own

    fits = {folder: fit(folder) for folder in folders}
    highest = max(fits.values())
    best = [folder for folder in folders if fits[folder] == highest]
    if len(best) > 1 and not _are_copies(best, first):
        raise InvalidValueError(
            f"`from_coco` found the first images of {os.fspath(path)!r} in "
            f"{len(best)} folders: {', '.join(repr(str(f)) for f in best[:5])}. "
            "Pass `image_dir`, or name the json file after its folder"
        )
    return best[0]


def _is_image(path, image):
    """Returns whether an image exists, in the size that the json file gives, if any."""
    size = reading.check_size(image.get("height"), image.get("width"))
    if not is_file(path):
        return False
    try:
        return size is None or sorted(read_image_size(path)) == sorted(size)
    except (ValueError, OSError):
        return True  # this is reported later, as a problem of that file


def _are_copies(folders, images):
    """Returns whether the folders contain identical copies of the images."""
    paths = [[_path_in(f, i["file_name"]) for f in folders] for i in images]
    paths = [some for some in paths if any(map(is_file, some))]
    return all(is_copy(some[0], other) for some in paths for other in some[1:])


def _has_first_image(folder, images):
    first = list(images.values())[:10]
    return any(is_file(_path_in(folder, image["file_name"])) for image in first)


def _folder_beside(path, split, images):
    """Finds a folder with first images of a json file, beside it or beside its folder.

    The folder may have any name that does not mean another split. It is therefore tried
    only after the folders with the usual names.
    """
    if is_remote(path):  # a remote folder cannot always be listed
        return None
    path, roles = path.absolute(), split_roles([split])
    # The folder around the dataset may hold other datasets, with images of the same
    # names.
    around = [] if reading.is_at_the_root(path) else [path.parent.parent]
    for base in [path.parent, *around]:
        found = {
            folder: split_roles([folder.name])
            for folder in visible_folders(base)
            if _has_first_image(folder, images)
        }
        found = {
            f: own for f, own in found.items() if not own or not roles or own & roles
        }
        found = [f for f, own in found.items() if own and roles] or list(found)
        if found:
            return _best_folder(found, path, images)
    return None


def _first(names):
    return [(name,) for name in names[:10]]


def _path_in(folder, name):
    """Returns the path of an image, whose folders backslashes may separate."""
    path = folder / name
    if "\\" in name and not is_file(path):
        return folder / name.replace("\\", "/")
    return path


_ROBOFLOW = "_annotations.coco.json"


def split_of_json(path):
    """Returns the split that the name of a COCO json file means: "val2017", "train"."""
    name = _name_of_json(path_of(path))
    return split_in_name(name) or name


def _name_of_json(path):
    """Returns the part of the name of a COCO json file that may name a split."""
    # Roboflow: one file in the folder of each split.
    if path.name == _ROBOFLOW:
        return path.parent.name
    return path.stem.removeprefix("instances_")


def _found(image, annotations, folder, image_id, masks):
    """Returns one image and its `(id, annotation)` pairs as a `reading.Found`."""
    items = [item for _, item in annotations]
    return reading.Found(
        place=image["file_name"],
        image=_path_in(folder, image["file_name"]),
        boxes=[item["bbox"] for item in items],
        classes=[_class_key(item.get("category_id")) for item in items],
        source_id=image["id"],
        file_name=image["file_name"],
        image_size=reading.check_size(image.get("height"), image.get("width")),
        is_crowd=[_is_crowd(item.get("iscrowd")) for item in items],
        area=[_area(item) for item in items],
        image_id=image_id,
        annotation_ids=[annotation_id for annotation_id, _ in annotations],
        shapes=tuple(_shape(item) for item in items) if masks else None,
    )


def _class_key(value):
    """Returns a `category_id` as a dict key; an invalid one becomes its `repr`.

    An invalid id is reported later as an unknown class.
    """
    return value if isinstance(value, int | float | str) else reprlib.repr(value)


def _is_crowd(value):
    """Returns whether `iscrowd` marks a crowd: 1, or another form such as "1" or 2."""
    if isinstance(value, str):
        return value.strip().lower() not in ("", "0", "0.0", "false")
    return isinstance(value, int | float) and value > 0


def _area(annotation):
    area, (_, _, width, height) = annotation.get("area"), annotation["bbox"]
    is_area = isinstance(area, int | float) and 0 <= area <= _MAX_AREA  # not NaN
    return area if is_area else width * height


def _shape(annotation):
    """Returns the `segmentation` of an annotation in a compact form, or None.

    Polygons become float32 arrays; other values are returned unchanged.
    """
    shape = annotation.get("segmentation")
    if not isinstance(shape, list):
        return shape
    try:
        return [np.asarray(points, np.float32) for points in shape] or None
    except (TypeError, ValueError):
        return shape  # `load_mask` raises for it, with the name of the image


def write_coco(
    datasets: DetectionDataset | Mapping[str, DetectionDataset],
    folder: str | os.PathLike[str],
) -> None:
    """Writes a new folder in COCO's format: `SPLIT.json` and `SPLIT/` with images.

    Boxes, areas, crowd flags, image ids and category ids are exactly those of the
    dataset. JPEG and PNG files are copied; other images become PNG files. If the
    dataset was read with `masks=True`, the outlines of its objects are written as the
    `segmentation` of the annotations. Masks of whole images (`with_masks`) become PNG
    files in `SPLIT_masks/`, which `with_masks(folder / "SPLIT_masks", seg_class_names)`
    reads.

    Args:
        datasets: `DetectionDataset`, which is written as the split "train", or a dict
            from split name to `DetectionDataset`.
        folder: path of the new folder. It appears only once it is complete.

    Raises:
        FileExistsError: If the folder already exists.
        OSError: If an image no longer exists, or the folder cannot be written.
        ValueError: If the splits differ in their classes or category ids, the name of a
            split is not a valid folder name, or an image cannot be decoded.

    Example: see `from_coco`.
    """
    datasets = writing.named_splits(datasets)
    with atomic_folder(folder) as partial:
        for split, dataset in datasets.items():
            names = writing.write_images(dataset.records, partial / split)
            content = dataset.to_coco()
            for image, name in zip(content["images"], names):
                image["file_name"] = name
            _add_shapes(content["annotations"], dataset.records)
            _write_masks(partial / f"{split}_masks", dataset.records, names)
            text = json.dumps(content)
            (partial / f"{split}.json").write_text(text, encoding="utf-8")


def _add_shapes(annotations, records):
    """Adds `segmentation` to the annotations of objects that have an outline."""
    shapes = (
        None if shape is None else shape_as_coco(shape, *map(int, record.image_size))
        for record in records
        for shape in record.shapes or [None] * len(record.labels)
    )
    for annotation, shape in zip(annotations, shapes, strict=True):
        if shape is not None:
            annotation["segmentation"] = shape


def _write_masks(folder, records, names):
    """Writes masks of whole images, each under the name of its written image."""
    for record, name in zip(records, names):
        if record.mask is not None:
            folder.mkdir(exist_ok=True)
            path = (folder / name).with_suffix(".png")
            path.write_bytes(writing.png_of(load_mask(record)))


def coco_readers(path):
    """Finds COCO json files; returns a dict from split to its reading function."""
    files = _files_by_split(path)
    names = reading.split_names(list(files))
    if len(names) == 1 and not any(map(_mentions_split, *files.values())):
        names = [reading.ONE_SPLIT]
    damaged = _damaged_beside({} if path.is_file() else files)
    return {
        name: functools.partial(_from_coco_files, own, damaged=() if i else damaged)
        for i, (name, own) in enumerate(zip(names, files.values()))
    }


def _mentions_split(path):
    """Returns whether a json file's split is known; a name of its own counts as one."""
    name = _name_of_json(path)
    is_own = path.name != _ROBOFLOW
    return is_own or bool(split_word_in(name) or splits_of_role([name], "train"))


def _files_by_split(path):
    """Returns lists of the COCO json files of a dataset, by split."""
    if path.is_file():
        return {split_of_json(path): [path]} if _is_coco(path) else {}
    files = _coco_files(path) or _coco_files(path / "annotations")
    files = files or _coco_files(path / "Annotations")
    for folder in [] if files else split_folders(path).values():
        files |= _coco_files_of_split(folder)
    return files


def damaged_files(path: Any) -> list[tuple[Any, str]]:
    """Returns `(path, reason)` of the json files of splits that cannot be read.

    They lie beside those that can be read, and their names are those of other splits.
    """
    return _damaged_beside({} if path.is_file() else _files_by_split(path))


def _damaged_beside(files):
    """Returns what `damaged_files` returns, for the files that can be read by split."""
    roles = set(map(role_of_split, files))
    damaged = []
    for folder in dict.fromkeys(f.parent for own in files.values() for f in own):
        for file in visible_files(folder, ".json"):
            role = role_of_split(_name_of_json(file))
            if role is None or role in roles or _is_coco(file):
                continue
            try:
                read_json(file, "from_coco")
            except (ValueError, OSError) as error:
                is_pointer = file.is_file() and is_lfs_pointer(file)
                reason = f"It {LFS_CURE}" if is_pointer else str(error)
                damaged.append((file, reason))
    return damaged


def _coco_files_of_split(folder):
    """Returns the COCO json files in a folder that is named after a split, by split."""
    inner = _coco_files(folder)
    files = [file for own in inner.values() for file in own]
    if len(files) > 1 and any(split_in_name(file.stem) for file in files):
        return inner  # "train" may hold train.json and val.json
    return {folder.name: files} if files else {}


# Matches the name of one of several files of a split, such as "train_part2" or
# "val-00000-of-00002". It does not match "train2017" or "train_2", which may be the
# folds of a cross-validation.
_SPLIT = r"(?P<split>train(?:ing)?|val|valid|validation|test|dev)"
_PART_OF_SPLIT = re.compile(
    rf"{_SPLIT}(?:[_-](?:part|shard|batch)[_-]?\d+|[_-]\d+-of-\d+)", re.IGNORECASE
)


def _coco_files(folder):
    """Returns lists of the COCO json files in a folder, by split."""
    files = [file for file in visible_files(folder, ".json") if _is_coco(file)]
    # COCO's own folder contains files of keypoints, captions and so on beside those of
    # boxes.
    if any(file.name.startswith("instances_") for file in files):
        files = [file for file in files if not file.name.startswith(_NO_BOXES)]
    names = [_name_of_json(file) for file in files]
    splits = {}
    for file, name, split in zip(files, names, reading.split_names(names)):
        part = _PART_OF_SPLIT.fullmatch(name)
        # The part has no image folder of its own.
        if part and not (folder / name).is_dir():
            split = part["split"]
        splits.setdefault(split, []).append(file)
    return splits


_NO_BOXES = ("person_keypoints_", "captions_", "stuff_", "panoptic_", "image_info_")


def _from_coco_files(files, image_dir=None, *, damaged=(), **options):
    """Reads all files of one split; names damaged files of other splits."""
    dataset = _read_files(files, image_dir, **options)
    for file, reason in damaged:
        text = f"{str(file)!r} is not read, and its split is left out: {reason}"
        if options.get("on_error") == "raise":
            raise InvalidValueError(f"{text}. Repair it, or move it away")
        warnings.warn(text, stacklevel=2)
        dataset = dataset._with_problem(Problem("missing split", str(file), text))
    return dataset


def _read_files(files, image_dir=None, *, on_error="auto", **options):
    """Returns the dataset of all files of one split; most splits have one file."""
    if len(files) == 1:
        return from_coco(files[0], image_dir, on_error=on_error, **options)
    contents = [_read_json(file)[0] for file in files]
    source = f"{os.fspath(files[0])} and {len(files) - 1} more"
    problems = Problems(f"`from_coco` of {source!r}", on_error)
    names = ", ".join(file.name for file in files)
    problems.add_note("several files", path_of(files[0]).parent, names)
    options = {"class_names": None, "masks": False, **options}
    return _make_dataset(
        merge_contents(contents),
        source,
        problems,
        files[0],
        image_dir,
        options["class_names"],
        options["masks"],
    )


def _is_coco(path):
    """Returns whether a file contains COCO's three keys, without loading it as a whole.

    The file may be a gigabyte in size.
    """
    if path.suffix.lower() != ".json":
        return False
    keys = [b'"%b"' % key.encode() for key in _LISTS]
    try:
        head = head_of(path)
    except FileNotFoundError:  # a link to nowhere
        return False
    is_labelme = any(key in head for key in (b'"shapes"', b'"imageData"'))
    if not head.startswith(b"{") or (is_labelme and not any(k in head for k in keys)):
        return False  # LabelMe embeds the image, which is not read here
    with (
        open(local_copy(path), "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        return all(content.find(key) >= 0 for key in keys)


# --- The content of a COCO json file, checked: classes, images and annotations.

_LISTS = ("images", "annotations", "categories")
_KEYS = {"fileName": "file_name", "imageId": "image_id", "categoryId": "category_id"}
_MAX_ID = 2**63 - 1  # ids are stored as int64
_MAX_AREA = 1e18  # square pixels


def _read_json(annotations):
    """Returns the content of a json file or dict, and its name for messages."""
    if isinstance(annotations, dict):
        return _checked_json(annotations, "a dict")
    source = os.fspath(annotations)
    with dropping_unreadable_copy(local_copy(annotations)):
        return _checked_json(read_json(annotations, "from_coco"), source)


def _checked_json(content, source):
    is_coco = isinstance(content, dict) and all(
        isinstance(content.get(key), list) for key in _LISTS
    )
    rule = f"`from_coco` expects a json object with the lists {', '.join(_LISTS)}"
    reading.require_content(is_coco, rule, source, content)
    return _with_usual_keys(content), source


def _with_usual_keys(content):
    """Returns the content with COCO's keys where a program wrote `fileName` etc."""
    lists = {name: content[name] for name in ("images", "annotations")}
    first = [item for items in lists.values() for item in items[:1]]
    if not any(isinstance(item, dict) and _keys_of(item) for item in first):
        return content
    return content | {
        name: [
            item | _keys_of(item) if isinstance(item, dict) else item for item in items
        ]
        for name, items in lists.items()
    }


def _keys_of(item):
    """Returns the values of an item's keys in `_KEYS`, under COCO's own spelling."""
    return {
        usual: item[key]
        for key, usual in _KEYS.items()
        if key in item and usual not in item
    }


def _read_classes(content, class_names, source, problems):
    """Returns the name, the category id and the key in the file of each label."""
    name_of = _read_categories(content["categories"], source)
    root = _root_category(content, name_of)
    known = {i: name for i, name in name_of.items() if i != root}
    known = _without_useless_names(known, content["annotations"])
    check_class_names(tuple(known.values()), f"{source!r}")
    if class_names is None:
        if root is not None:
            detail = (
                f"{name_of[root]!r}, the supercategory of all other categories, has "
                "no box"
            )
            problems.add("root category", source, detail)
        names, category_ids = tuple(known.values()), list(known)
    else:
        names, ids = requested_classes(class_names)
        if root is not None and name_of[root] in names:
            known = {root: name_of[root], **known}
        category_ids = ids_of_classes(names, known, ids)
    return names, category_ids, category_ids


def _read_categories(categories, source):
    """Returns the name of each category id, in ascending order of the ids.

    Equal categories count once.
    """
    are_objects = all(isinstance(category, dict) for category in categories)
    rule = "Each item of `categories` must be an object with an `id` and a `name`"
    reading.require_content(are_objects, rule, source, categories)
    pairs = {}
    for category in categories:
        name = category.get("name")
        is_name = name is None or isinstance(name, str | int | float)
        rule = "The `name` of a category must be text"
        reading.require_content(is_name, rule, source, category)
        name = "" if name is None else str(name)
        pairs[repr(category.get("id")), name] = category.get("id"), name
    ids = [category_id for category_id, _ in pairs.values()]
    is_one_each = all(map(_is_id, ids)) and len(set(ids)) == len(ids)
    rule = "Each category must have an int `id` of its own"
    shown = [category.get("id") for category in categories]
    reading.require_content(is_one_each, rule, source, shown)
    return dict(sorted(pairs.values()))


def _root_category(content, name_of):
    """Returns the id of the category that Roboflow adds as root of the others, or None.

    The root category has id 0, has no annotation, and is the `supercategory` of all
    others.
    """
    others = [c for c in content["categories"] if c["id"] != 0]
    if 0 not in name_of or not others:
        return None
    if any(c.get("supercategory") != name_of[0] for c in others):
        return None
    used = (a.get("category_id") for a in content["annotations"] if isinstance(a, dict))
    return None if any(category_id == 0 for category_id in used) else 0


def _without_useless_names(name_of, annotations):
    """Drops unused classes whose name is blank or is also the name of another class."""
    uses = collections.Counter(name for name in name_of.values() if name.strip())
    if len(uses) == len(name_of):
        return name_of
    used = {id_key(a.get("category_id")) for a in annotations if isinstance(a, dict)}
    return {i: n for i, n in name_of.items() if uses[n] == 1 or id_key(i) in used}


def _read_images(images, source, problems):
    """Returns the usable items of `images` by their id."""
    found = {}
    for i, image in enumerate(images):
        if (
            not isinstance(image, dict)
            or not isinstance(image.get("id"), int | str)
            or not isinstance(image.get("file_name"), str)
            or not image["file_name"]
        ):
            problems.add(
                "unreadable annotation",
                source,
                f"images[{i}] needs an `id` and a `file_name`: {reprlib.repr(image)}",
            )
        elif image["id"] in found:
            detail = f"another image has the same id, {image['id']!r}"
            problems.add("duplicate id", image["file_name"], detail)
        else:
            found[image["id"]] = image
    return found


def _group_annotations(annotations, images, source, problems):
    """Groups the annotations as `(annotation id, annotation)` pairs, by image id."""
    for annotation in annotations:
        if not isinstance(annotation, dict):
            detail = f"an annotation that is no object: {reprlib.repr(annotation)}"
            problems.add("bad box", source, detail)
    annotations = [a for a in annotations if isinstance(a, dict)]
    ids = [annotation.get("id") for annotation in annotations]
    if not all(map(_is_id, ids)) or len(set(ids)) != len(ids):
        # pycocotools indexes annotations by id: without unique ids, some would be lost.
        ids = range(1, len(annotations) + 1)
    groups, strangers = {key: [] for key in images}, collections.Counter()
    image_of = None
    for annotation_id, annotation in zip(ids, annotations):
        key, box = annotation.get("image_id"), annotation.get("bbox")
        if not isinstance(key, int | str) or key not in groups:
            # VIA writes the id of the image as a string here.
            image_of = image_of or {id_key(image): image for image in images}
            key = image_of.get(id_key(key), id_key(key))
        if key not in groups:
            strangers[reprlib.repr(annotation.get("image_id"))] += 1
        elif _is_box(box):
            groups[key].append((annotation_id, annotation))
        elif _is_box(numbers := _numbers_in(box)):
            groups[key].append((annotation_id, {**annotation, "bbox": numbers}))
        else:
            problems.add(
                "bad box",
                images[key]["file_name"],
                f"bbox={reprlib.repr(box)} of annotation {annotation.get('id')!r} is "
                "not four finite numbers: left, top, width, height",
            )
    _note_strangers(strangers, images, len(annotations), source, problems)
    return groups


def _note_strangers(strangers, images, count, source, problems):
    if count and strangers.total() == count:
        image_id, image = next(iter(strangers)), next(iter(images), None)
        detail = f"annotations have `image_id` {image_id}, images have `id` {image!r}"
        problems.add("only stray annotations", source, detail)
        return
    for image_id, number in strangers.items():
        which = f"image_id {image_id}, which is not in `images`"
        detail = f"{count_of(number, 'annotation')} of {which}"
        problems.add("stray annotation", source, detail)


def _is_box(box):
    return (
        isinstance(box, list | tuple)
        and len(box) == 4
        and all(map(_is_coordinate, box))
    )


def _numbers_in(box):
    """Converts strings in a box to numbers, as Roboflow writes them; else None."""
    if not isinstance(box, list):
        return None
    try:
        return [float(x) if isinstance(x, str) else x for x in box]
    except ValueError:
        return None


def _is_coordinate(number):
    """Returns whether a value is a number, not NaN, of a size that pixels can have."""
    return isinstance(number, (int, float)) and abs(number) <= reading.MAX_COORDINATE


def _is_id(value):
    return type(value) is int and abs(value) <= _MAX_ID
