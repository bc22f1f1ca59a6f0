"""Reads and writes TFRecord files of google/automl and the Object Detection API."""

from __future__ import annotations

import collections
import functools
import glob
import hashlib
import itertools
import math
import os
import pathlib
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import google.protobuf.message
import numpy as np

from effdet_keras._internal.number_ranges import check_whole_number
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras._internal.whole_files import atomic_folder, local_path
from effdet_keras.data.dataset import DetectionDataset, count_of
from effdet_keras.data.formats import reading, writing
from effdet_keras.data.formats.dataset_files import (
    has_word,
    names_in,
    split_in_name,
    split_word_in,
    visible_files,
    visible_folders,
)
from effdet_keras.data.formats.label_map import (
    ClassNames,
    label_map_of,
    read_label_map,
    write_label_map,
)
from effdet_keras.data.problems import Problems
from effdet_keras.data.record import pixels_of_shape
from effdet_keras.errors import InvalidValueError, require
from effdet_keras.images import LFS_CURE, EncodedImage, is_lfs_pointer
from effdet_keras.labels import category_ids_or_default

_LABEL_MAP = "label_map.pbtxt"
_IMAGES_PER_SHARD = 1000  # about 150 MB of photographs


def from_tfrecord(
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    class_names: ClassNames | None = None,
    label_map: Mapping[int, str] | str | os.PathLike[str] | None = None,
    on_error: str = "auto",
    masks: bool = False,
) -> DetectionDataset:
    """Reads TFRecord files of `tf.train.Example`.

    The keys are those of google/automl's EfficientDet and of the TF Object Detection
    API: `image/encoded`, `image/object/bbox/{xmin,xmax,ymin,ymax}` as fractions of the
    image, `image/object/class/label` from 1, and, if present,
    `image/{height,width,filename,source_id}` and
    `image/object/{area,is_crowd,group_of,difficult,class/text}`. Groups and difficult
    objects become crowds. Images stay in the files and are read from there when they
    are needed. The files must therefore not be compressed.

    The labels in the files are the `category_ids`. Their names come from the first of
    these sources:

    - `label_map`;
    - a `.pbtxt` file beside the records, or in a folder such as `annotations` beside
      theirs, that agrees with the `class/text` of the objects. If most names of the
      nearest one have no object, the one with the fewest names is used;
    - these texts, with a warning if there is a `.pbtxt` that does not agree with them;
    - if the objects have no such texts, the `.pbtxt` beside the records. If there are
      several, they must have the same names;
    - `class_names`, in order;
    - the numbers: "1", "2", ...

    If the labels count from 0, as VoTT writes them, or are missing, the classes are
    those of the `class/text`.

    Args:
        files: path, glob pattern such as `"data/train-?????-of-00032.tfrecord"`, list
            of paths and patterns, or a folder with the files of one split.
        class_names: see `load`.
        label_map: dict from label to name, or another form of a label map that the
            `class_names` of `load` may have.
        on_error: see `load`.
        masks: whether to read `image/object/mask`, for a model with a segmentation
            head: one PNG per object, in which the pixels of the object are not 0. The
            classes of pixels are those of `from_coco(..., masks=True)`. The PNG files
            are kept in memory.

    Returns:
        `DetectionDataset`. `image_id` is the `image/source_id` if these are ints that
        all differ; otherwise it counts from 1.

    Raises:
        FileNotFoundError: If no file matches.
        ValueError: If a folder has the files of several splits, the `.pbtxt` files
            contradict each other, or, depending on `on_error`, if files are damaged or
            have another format, or their boxes or labels are wrong.

    Example:
        >>> import tempfile
        >>> from effdet_keras.data.formats.arrays import from_arrays
        >>> image = np.zeros((32, 48, 3), "uint8")
        >>> dataset = from_arrays([image], [[[4, 8, 20, 40]]], [[0]], ["cat"])
        >>> folder = tempfile.mkdtemp() + "/cats"
        >>> write_tfrecord({"train": dataset}, folder)
        >>> from_tfrecord(f"{folder}/train-*")
        DetectionDataset(1 image, 1 box, 1 class: cat)
    """
    paths = _find_files(files)
    source = os.fspath(files) if isinstance(files, str | os.PathLike) else paths[0]
    problems = Problems(f"`from_tfrecord` of {source!r}", on_error)
    for missing in missing_shards(paths):
        warnings.warn(f"{problems.reader}: {missing}, and were read", stacklevel=2)
    empty = [path for path in paths if not os.path.getsize(path)]
    if 0 < len(empty) < len(paths):
        total = f"of {len(paths):,} files"
        number = count_of(len(empty), f"{total} is", f"{total} are")
        text = f"{number} empty, such as {empty[0]!r}"
        warnings.warn(f"{problems.reader}: {text}", stacklevel=2)
    folders = {pathlib.Path(path).parent for path in paths}
    names = {} if label_map is None else label_map_of(label_map, drop_zero=True)
    texts = _ClassTexts({}, set(), {})
    read_image = functools.partial(_read_image, texts=texts, masks=masks)
    found = read_examples(paths, "image/encoded", read_image, problems)
    if label_map is None:
        has_zero = any(0 in image.classes for image in found)
        names = _names_of_label_map(folders, texts.pairs, not has_zero, problems)
    names = _number_from_one(found, texts, names)
    classes = reading.numbered_classes(
        names or texts.by_label, class_names, found, are_category_ids=True
    )
    return reading.make_dataset(
        found, classes, problems, source=source, keep_unusable=True
    )


# Workspaces of the Object Detection API have the label map in a folder beside that of
# the records.
_MAP_FOLDERS = ("", "annotations", "data", "label_map", "label_maps", "labels")


def _names_of_label_map(folders, pairs, drop_zero, problems):
    """Returns the class names by id from the label map of the records, or {}.

    Copies of the Object Detection API have the label maps of other datasets beside the
    records. If `class/text` names the classes, only a map that agrees with it counts:
    the nearest, unless most of its names have no object and another map is smaller.
    """
    maps_beside = [
        path for folder in sorted(folders) for path in _label_maps_in(folder)
    ]
    places = {folder.parent / name for folder in folders for name in _MAP_FOLDERS}
    maps_around = [path for place in sorted(places) for path in _label_maps_in(place)]
    if not _are_names(pairs):
        return _only_map(maps_beside, maps_around, drop_zero)
    maps_of_training = [
        path
        for place in sorted({folder.parent / "training" for folder in folders})
        for path in _label_maps_in(place)
    ]
    others = {}  # path of each map that does not fit, and the reason
    fitting = {}  # names in each map that fits, by its path, the nearest ones first
    for paths in (maps_beside, maps_around, maps_of_training):
        found = {}
        for path in paths:
            try:
                found[path] = _fitting_names(path, pairs, drop_zero)
            except (ValueError, OSError) as error:
                others[path] = error
        # A larger map may be of a dataset that also has these classes.
        smallest = sorted(found.items(), key=lambda item: len(item[1]))
        fitting |= {path: names for path, names in smallest if path not in fitting}
        if fitting and not _has_most_unused(next(iter(fitting.values())), pairs):
            break
    if fitting:
        first = next(iter(fitting))
        if _has_most_unused(fitting[first], pairs):
            first = min(fitting, key=lambda path: len(fitting[path]))
        names, num_used = fitting[first], len({label for label, _ in pairs})
        if _has_most_unused(names, pairs) and len(fitting) + len(others) > 1:
            problems.add(
                "large label map",
                first,
                f"the class names are those of the label map {str(first)!r}, but only "
                f"{num_used:,} of its {len(names):,} names "
                f"{'has' if num_used == 1 else 'have'} an object here. If it is the "
                "map of another dataset, pass `label_map` for the right one",
            )
        return names
    if others:
        path, reason = next(iter(others.items()))
        detail = (
            f"{len(others)} label maps do not fit the records, such as {str(path)!r}"
            if len(others) > 1
            else f"the label map {str(path)!r} does not fit the records"
        )
        cure = "The class names of the records are used: pass `label_map` for another"
        problems.add("other label map", path, f"{detail}: {reason}. {cure} map")
    return {}


def _label_maps_in(folder):
    """Returns the files in a folder that may be label maps, so not TensorFlow's graphs.

    A training writes a `graph.pbtxt` of many megabytes.
    """
    files = visible_files(folder, ".pbtxt")
    return [file for file in files if not file.name.lower().startswith("graph")]


def _has_most_unused(names, pairs):
    """Returns whether most names of a label map have no object in the records."""
    return 2 * len(pairs) < len(names)


def _are_names(pairs):
    """Returns whether labels have texts, and each label one text of its own."""
    labels, names = {label for label, _ in pairs}, {text.lower() for _, text in pairs}
    return len(labels) == len(names) == len({(i, t.lower()) for i, t in pairs}) > 0


def _only_map(maps_beside, maps_around, drop_zero):
    """Returns the names in the only label map beside the records, or around them."""
    maps = [read_label_map(path, drop_zero=drop_zero) for path in maps_beside]
    is_one = all(names == maps[0] for names in maps)
    rule = "Exactly one label map must be beside the files: otherwise pass `label_map`"
    require(is_one, rule, found=list(map(str, maps_beside)))
    for path in [] if maps else maps_around:
        try:
            maps.append(read_label_map(path, drop_zero=drop_zero))
        except ValueError:  # several maps may be of other datasets
            if len(maps_around) == 1:
                raise
    return maps[0] if maps and all(names == maps[0] for names in maps) else {}


def _fitting_names(path, pairs, drop_zero):
    """Returns the names in a label map whose names or display names agree with records.

    Raises:
        ValueError: If they do not agree. The message says where they differ.
    """
    maps, errors = [], []
    for name_keys in (("display_name", "name"), ("name", "display_name")):
        try:
            names = read_label_map(path, drop_zero=drop_zero, name_keys=name_keys)
        except ValueError as error:  # some display names of Open Images occur twice
            errors.append(error)
        else:
            maps.append(names)
    if not maps:
        raise errors[0]
    if any(_agrees(names, pairs) or _is_one_more(names, pairs) for names in maps):
        return maps[0]
    label, text = next(pair for pair in sorted(pairs) if not _agrees(maps[0], [pair]))
    there = repr(maps[0][label]) if label in maps[0] else "missing"
    raise InvalidValueError(
        f"label {label} is {text!r} in the records, but {there} in the map"
    )


def _agrees(names, pairs):
    """Returns whether a label map has these labels with these texts."""
    return all(names.get(i, "").lower() == text.lower() for i, text in pairs)


def _is_one_more(names, pairs):
    """Returns whether a label map gives each text the number one above its label.

    This shows that labels count from 0 even in a split that lacks the first class.
    """
    return bool(pairs) and all(names.get(i + 1) == text for i, text in pairs)


class _ClassTexts(NamedTuple):
    """The class names in `image/object/class/text`: by label, and for each object."""

    by_label: dict
    pairs: set  # each label with each name that objects of it have
    of_objects: dict  # place of an image -> the name of each of its objects


def _number_from_one(found, class_texts, names):
    """Numbers the classes from 1 by their names, if the labels count from 0.

    VoTT writes labels from 0 together with a label map that counts from 1. This
    function changes `found`. It returns the names by number; if labels do not count
    from 0, it returns `names` unchanged.
    """
    texts = [class_texts.of_objects[image.place] for image in found]
    are_known = all(len(t) == len(i.classes) and all(t) for t, i in zip(texts, found))
    has_zero = any(0 in image.classes for image in found)
    if not are_known or not (has_zero or _is_one_more(names, class_texts.pairs)):
        return names
    pairs = zip(np.concatenate([i.classes for i in found]), itertools.chain(*texts))
    number_of = {name: number for number, name in names.items()}
    for label, text in sorted(set(pairs)):
        if text not in number_of:
            used, number = number_of.values(), int(label) + 1
            number_of[text] = max(used) + 1 if number in used else number
    for image, own in zip(found, texts):
        image.classes = np.array([number_of[text] for text in own], np.int64)
    return {number: name for name, number in number_of.items()}


def _read_image(place, example, texts, masks):
    """Reads one image and adds the class names of its objects to `texts`."""
    corners = [example.floats(f"image/object/bbox/{key}") for key in _CORNERS]
    numbers = dict(zip(_CORNERS, map(len, corners)))
    rule = "the four sides of the boxes have different lengths"
    require(len(set(numbers.values())) == 1, rule, **numbers)
    labels = example.ints("image/object/class/label")
    # Interned, so that a million objects of a class share one string in memory.
    own = [sys.intern(text) for text in example.texts("image/object/class/text")]
    if not len(labels) and all(own) and len(own) == numbers[_CORNERS[0]]:
        # No labels: the texts name the classes, as for VoTT.
        labels = np.zeros(len(own), np.int64)
    texts.of_objects[place] = own
    for label, text in zip(labels.tolist(), own):
        if text:
            texts.pairs.add((label, text))
        if label > 0 and text:
            texts.by_label.setdefault(label, text)
    return reading.Found(
        place=place,
        image=example["image/encoded"],
        boxes=np.stack(corners, axis=1),
        classes=labels,
        source_id=example.text("image/source_id"),
        file_name=example.text("image/filename"),
        image_size=reading.check_size(
            example.first_int("image/height"), example.first_int("image/width")
        ),
        is_crowd=example.any_flag(_FLAGS, len(corners[0])),
        area=example.floats("image/object/area"),
        shapes=tuple(example.values("image/object/mask")) if masks else None,
    )


_CORNERS = ("ymin", "xmin", "ymax", "xmax")
_FLAGS = tuple(f"image/object/{key}" for key in ("is_crowd", "group_of", "difficult"))


def write_tfrecord(
    datasets: DetectionDataset | Mapping[str, DetectionDataset],
    folder: str | os.PathLike[str],
    *,
    num_shards: int | None = None,
) -> None:
    """Writes datasets as TFRecord files, for this package and for other programs.

    Makes a new folder with `label_map.pbtxt` and the files
    `SPLIT-00000-of-00004.tfrecord` and so on, to which the images are distributed in
    turn. The keys are those that google/automl's EfficientDet and the TF Object
    Detection API read and write. Labels are the `category_ids`, or count from 1 if one
    of these is below 1. Boxes without an area inside their image are left out, as those
    programs do; boxes that reach out of their image are not changed. If the dataset was
    read with `masks=True`, the outlines of its objects become `image/object/mask`. The
    mask of an object that has only a box is its box.

    Args:
        datasets, folder: see `write_coco`.
        num_shards: number of files per split, 1 or more; there is at most one file per
            image. None makes one file per 1,000 images.

    Raises:
        FileExistsError, OSError: See `write_coco`.
        ValueError: See `write_coco`, or if there are masks of whole images
            (`with_masks`), which these files cannot hold.

    Example: see `from_tfrecord`.
    """
    splits = writing.named_splits(datasets, usable=True)
    check_whole_number("num_shards", num_shards, "[1, inf)", others=(None,))
    first = next(iter(splits.values()))
    ids = first.category_ids
    if min(ids) < 1:  # in a label map, 0 means the background
        ids = category_ids_or_default(None, len(ids))
    with atomic_folder(folder) as partial:
        write_label_map(partial / _LABEL_MAP, dict(zip(ids, first.class_names)))
        for split, dataset in splits.items():
            count = num_shards or max(1, -(-len(dataset) // _IMAGES_PER_SHARD))
            count = min(count, max(1, len(dataset)))
            for i in range(count):
                path = partial / f"{split}-{i:05d}-of-{count:05d}.tfrecord"
                records = dataset.records[i::count]
                write_records(
                    path, (_encode_record(r, ids, first.class_names) for r in records)
                )


def _encode_record(record, category_ids, class_names):
    """Returns a record as the bytes of a `tf.train.Example`."""
    if record.mask is not None:
        raise InvalidValueError(
            "TFRecord files hold masks of objects, but no mask of a whole image, which "
            f"{record.name!r} has from `with_masks`. `write_coco` keeps these masks."
        )
    data, suffix = writing.encode_image(record)
    masks = {}
    if record.shapes is not None:
        masks["image/object/mask"] = _encoded_shapes(record)
    height, width = record.image_size
    low = record.boxes_xywh[:, :2]
    high = low + record.boxes_xywh[:, 2:]
    (xmin, ymin), (xmax, ymax) = (low / (width, height)).T, (high / (width, height)).T
    return encode_example(
        {
            "image/height": np.array([height]),
            "image/width": np.array([width]),
            "image/filename": record.file_name,
            "image/source_id": str(record.image_id),
            "image/key/sha256": hashlib.sha256(data).hexdigest(),
            "image/encoded": data,
            "image/format": {".jpg": "jpeg", ".png": "png"}[suffix],
            "image/object/bbox/xmin": xmin,
            "image/object/bbox/xmax": xmax,
            "image/object/bbox/ymin": ymin,
            "image/object/bbox/ymax": ymax,
            "image/object/class/text": [class_names[i] for i in record.labels],
            "image/object/class/label": np.array(category_ids, np.int64)[record.labels],
            "image/object/is_crowd": record.is_crowd,
            "image/object/area": record.area,
            "image/object/difficult": np.zeros(len(record.labels), np.int64),
            **masks,
        }
    )


def _encoded_shapes(record):
    """Returns a PNG file of each object as bytes; the pixels of the object are 1."""
    height, width = map(int, record.image_size)
    files = []
    for shape, (x, y, w, h) in zip(record.shapes, record.boxes_xywh.tolist()):
        if shape is None:
            shape = [[x, y, x + w, y, x + w, y + h, x, y + h]]
        pixels = pixels_of_shape(shape, height, width)
        files.append(writing.png_of(pixels.astype(np.uint8)))
    return files


def tfrecord_readers(path):
    """Finds TFRecord files; returns a dict from split to the function that reads it."""
    # A sample file is read only if the user names it.
    if path.is_file() and path.name in _SAMPLES:
        splits = {reading.ONE_SPLIT: [str(path)]}
    elif path.is_file():
        splits = tfrecord_splits(path.parent)
        splits = {k: [str(path)] for k, files in splits.items() if str(path) in files}
    else:  # a folder below may hold one of several datasets
        splits = tfrecord_splits(path, below=False)
    return {s: functools.partial(from_tfrecord, files) for s, files in splits.items()}


def pattern_readers(pattern: str) -> dict[str, Callable]:
    """Finds the TFRecord files of a glob pattern; returns a reader per split.

    The files of `data/train-*` are one split, "train", whatever follows in their names.
    The splits of `data/*.tfrecord` are those in the names of the files.

    Args:
        pattern: path of a file, or glob pattern.

    Returns:
        Dict from split to the function that reads it.

    Raises:
        FileNotFoundError: If no file matches.
    """
    paths = _find_files(pattern)
    matches = (_SHARD.fullmatch(os.path.basename(path)) for path in paths)
    names = [match["split"] if match else "" for match in matches]
    start = re.split(r"[*?[]", os.path.basename(pattern))[0].rstrip("-_.")
    if start and (len(set(names)) > 1 or "" in names):
        names = [start] * len(paths)
    splits = collections.defaultdict(list)
    for name, path in zip(names, paths):
        if name:
            splits[name].append(path)
    return {s: functools.partial(from_tfrecord, files) for s, files in splits.items()}


# --- The names of TFRecord files: splits and shards, such as `-00000-of-00002`.

_SUFFIX, _NUMBER = r"\.(?:tfrecords?|tfrec|record)", r"-\d{1,9}-of-\d{1,9}"
# Does not match checkpoints of TensorFlow, such as `model.ckpt.data-00000-of-00001`.
_SHARD = re.compile(
    r"(?P<split>.+?)"
    rf"(?:{_SUFFIX}{_NUMBER}|{_NUMBER}{_SUFFIX}|(?<!\.data){_NUMBER}|{_SUFFIX})"
)


def tfrecord_splits(
    folder: str | os.PathLike[str], *, below: bool = True
) -> dict[str, list[str]]:
    """Returns the TFRecord files of a folder, or of the folders in it, by split.

    Args:
        folder: path of the folder.
        below: whether folders in it count even if they are not named after splits. If
            False, they count only if all those with TFRecord files are.

    Returns:
        Dict from split to the list of the paths of its files.
    """
    folder = pathlib.Path(folder)
    if splits := shards_in(folder, _SHARD):
        return _named_splits(splits)
    found = {
        p: files for p in visible_folders(folder) if (files := shards_in(p, _SHARD))
    }
    if not below and not all(split_in_name(place.name) for place in found):
        return {}
    if len(found) == 1:  # `annotations/train.record` and `test.record` are two splits
        ((place, splits),) = found.items()
        if len(splits) > 1 or not split_in_name(place.name):
            return _named_splits(splits)
    return {
        split_in_name(place.name) or place.name: [*itertools.chain(*splits.values())]
        for place, splits in found.items()
    }


def _named_splits(splits):
    """Returns the files by split; files with one record each form a single split."""
    files = [*itertools.chain(*splits.values())]
    are_named = any(map(split_in_name, splits)) or any(map(_is_numbered, files))
    if len(splits) > 1 and not are_named and all(map(_has_one_record, files[:20])):
        return {reading.ONE_SPLIT: files}  # VoTT writes one file per image
    splits = _merge_numbered(splits)
    if len(splits) > _MAX_SPLITS and not any(map(split_word_in, splits)):
        return {reading.ONE_SPLIT: files}
    return dict(zip(reading.split_names(list(splits)), splits.values()))


# The most splits of a folder, such as the folds of a cross-validation. More groups of
# files are parts of one split.
_MAX_SPLITS = 10


def _merge_numbered(splits):
    """Merges many splits whose names differ only in a number into one split.

    Folds of a cross-validation are not merged, nor are numbered files beside a file of
    the same name without a number, which may hold all of them. If one split has more
    than `_MAX_SPLITS` numbered files, the numbered files of the splits "train", "val"
    and so on are merged too, however few they are.
    """
    parts = collections.defaultdict(list)
    for split in splits:
        parts[re.sub(r"(?:[\W_]*\d+)+[\W_]*", "_", split).strip("_")].append(split)
    are_named = any(map(split_in_name, parts))
    names = {
        name
        for name, own in parts.items()
        if len(own) > 1
        and name not in splits
        and not has_word(name, "k?folds?|cv")
        and (name or not are_named)
    }
    if all(len(parts[name]) <= _MAX_SPLITS for name in names):
        return splits
    merged = collections.defaultdict(list)
    for name, own in parts.items():
        is_one = name in names and (len(own) > _MAX_SPLITS or split_in_name(name))
        for split in own:
            merged[(name or reading.ONE_SPLIT) if is_one else split] += splits[split]
    return dict(merged)


def _is_numbered(path):
    """Returns whether a file is one of several shards, such as `-00000-of-00002`."""
    return re.search(_NUMBER, os.path.basename(path)) is not None


def _has_one_record(path):
    """Returns whether a file holds one record, by the record length at its start."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
    return os.path.getsize(path) == _HEAD + length + _TAIL


# Files in the Object Detection API itself, of which many repositories have a copy.
_SAMPLES = ("pets_examples.record",)


def shards_in(folder, pattern):
    """Returns the files of a folder by the `split` that a pattern finds in a name."""
    splits = collections.defaultdict(list)
    for name in names_in(folder)[1] if folder.is_dir() else ():
        match = pattern.fullmatch(name)
        if match and name not in _SAMPLES:
            splits[match["split"]].append(str(folder / name))
    return dict(splits)


def missing_shards(paths):
    """Returns a text for each incomplete set of shards: how many of its files exist."""
    matches = (re.fullmatch(r"(.+-)\d+-of-(\d{1,6})(.*)", path) for path in {*paths})
    sets = collections.Counter(match.groups() for match in matches if match)
    return [
        f"only {there} of the {int(count)} files '{start}*-of-{count}{end}' were found"
        for (start, count, end), there in sets.items()
        if there < int(count)
    ]


def _find_files(files):
    """Returns the paths that `files` stands for, in order."""
    if not isinstance(files, str | os.PathLike):
        return [path for entry in files for path in _find_files(entry)]
    files = os.fspath(local_path(files, "A TFRecord file"))
    splits = tfrecord_splits(files) if os.path.isdir(files) else {}
    rule = "A folder must have the files of one split: pass a pattern, such as 'train*'"
    require(len(splits) <= 1, rule, files=files, splits=sorted(splits))
    paths = next(iter(splits.values()), None)
    if paths is None and not os.path.isdir(files):
        paths = [files] if os.path.exists(files) else sorted(glob.glob(files))
    if not paths:
        raise FileNotFoundError(
            "`files` must be TFRecord files, a pattern, or a folder of files such as "
            f"`train.tfrecord`. Received: files={files!r}, where there are none"
        )
    return paths


# --- Shared by TFRecord and TFDS: boxes that are fractions of the image.

_ID = re.compile(r"-?[0-9]{1,18}")  # fits into int64


def read_examples(paths, image_key, read_image, problems):
    """Returns the images of TFRecord files; `read_image` makes each of an `Example`."""
    found = []
    for path in paths:
        shard = os.path.basename(path)
        try:
            for number, (offset, data) in enumerate(read_records(path), 1):
                place = f"{shard} record {number}"
                try:
                    example = decode_example(data, image_key, path, offset)
                    found.append(check_fractions(read_image(place, example), problems))
                except ValueError as error:
                    problems.add("unreadable annotation", place, str(error))
        except ValueError as error:
            problems.add("unreadable annotation", shard, str(error), count=math.inf)
    return with_ids(found)


def check_fractions(found, problems):
    """Converts normalized `yxyx` boxes `[n, 4]` to `xywh`, and reports bad boxes."""
    boxes = found.boxes
    found.area = None if found.area is None or not len(found.area) else found.area
    columns = {
        "labels": found.classes,
        "areas": found.area,
        "ids": found.annotation_ids,
        "masks": found.shapes,
    }
    numbers = {key: len(v) for key, v in columns.items() if v is not None}
    are_equal = set(numbers.values()) == {len(boxes)}
    require(are_equal, "one of each per box is expected", boxes=len(boxes), **numbers)
    # The margin is for boxes that reach out of the image. Boxes in pixels would
    # otherwise be clipped to the whole image and trained on. NaN compares as False.
    found.is_good = np.all((boxes >= -1) & (boxes <= 2), axis=1)
    for box in boxes[~found.is_good]:
        detail = "ymin={:g} xmin={:g} ymax={:g} xmax={:g}".format(*box)
        problems.add("bad box", found.place, f"{detail}: must be from 0 to 1")
    low, high = boxes[:, 1::-1], boxes[:, :1:-1]  # x, y
    found.boxes = np.concatenate([low, high - low], axis=1)
    found.normalized_coordinates = True
    return found


def with_ids(found):
    """Uses the file's ids if each image, or each annotation, has one of its own."""
    sources = [image.source_id for image in found]
    ids = [int(source) for source in sources if _ID.fullmatch(source)]
    if len(set(ids)) == len(found):
        for image, image_id in zip(found, ids):
            image.image_id = image_id
            if image.source_id == str(image_id):
                image.source_id = image_id
    ids = [image.annotation_ids for image in found if image.annotation_ids is not None]
    ids = np.concatenate([np.zeros(0, np.int64), *ids])
    if not len(ids) == len(np.unique(ids)) == sum(len(image.boxes) for image in found):
        for image in found:
            image.annotation_ids = None
    return found


# --- `tf.train.Example`: the content of a record of a TFRecord file.


class Example(dict):
    """Features by key: lists of bytes, or arrays of int64 or float64.

    The methods return an empty value for a feature that is missing or of another type.
    """

    def ints(self, key, dtype=np.int64):
        """Returns a feature as int64 `[n]`."""
        values = self.get(key)
        is_one = isinstance(values, np.ndarray) and values.dtype == dtype
        return values if is_one else np.zeros(0, dtype)

    def floats(self, key):
        """Returns a feature as float64 `[n]`."""
        return self.ints(key, np.float64)

    def first_int(self, key):
        """Returns the first int of a feature, or None."""
        return next(iter(self.ints(key).tolist()), None)

    def values(self, key):
        """Returns a feature as a list of bytes."""
        values = self.get(key)
        return values if isinstance(values, list) else []

    def texts(self, key):
        """Returns a feature as a list of str."""
        return [value.decode("utf-8", errors="replace") for value in self.values(key)]

    def text(self, key):
        """Returns the first text of a feature, or ""."""
        return next(iter(self.texts(key)), "")

    def any_flag(self, keys, count):
        """Returns bool `[count]`: whether at least one of some features is not 0."""
        flags = [self.ints(key) for key in keys if len(self.ints(key))]
        are_right = all(len(one) == count for one in flags)
        rule = "one crowd flag per box is expected"
        require(are_right, rule, boxes=count, flags=list(map(len, flags)))
        return np.any([np.zeros(count), *flags], axis=0)


def decode_example(data, image_key, path, offset):
    """Returns an `Example` whose image is the `EncodedImage` of its place in the file.

    `data` are the bytes of the record, which lie in the file at `offset`, as
    `read_records` yields them.
    """
    try:
        message = tf.train.Example.FromString(data)
    except google.protobuf.message.DecodeError as error:
        raise InvalidValueError(f"it is not a tf.train.Example ({error})") from error
    example = Example()
    for key, feature in message.features.feature.items():
        kind = feature.WhichOneof("kind")
        if kind == "bytes_list":
            example[key] = list(feature.bytes_list.value)
        elif kind is not None:
            dtype = np.float64 if kind == "float_list" else np.int64
            example[key] = np.array(getattr(feature, kind).value, dtype)
    image = next(iter(example.values(image_key)), b"")
    if not image:
        names = sorted(example)[:5]
        raise InvalidValueError(f"no `{image_key}`, but {names}")
    # Searches for the first 64 bytes, which is enough as a rule: a search for the whole
    # image takes a hundred times longer.
    start = data.find(image[:64])
    if not data.startswith(image, start):
        start = data.find(image)
    example[image_key] = EncodedImage(os.fspath(path), offset + start, len(image))
    return example


def encode_example(features):
    """Returns the bytes of an Example.

    A feature is an array, a str or bytes, or a list of these.
    """
    example = tf.train.Example()
    for key, value in features.items():
        feature = example.features.feature[key]
        if isinstance(value, np.ndarray):
            if value.dtype.kind == "f":
                feature.float_list.value.extend(value.tolist())
            else:
                feature.int64_list.value.extend(value.astype(np.int64).tolist())
            continue
        values = [value] if isinstance(value, str | bytes) else value
        feature.bytes_list.value.extend(
            v.encode("utf-8") if isinstance(v, str) else v for v in values
        )
    return example.SerializeToString(deterministic=True)


# --- TFRecord files: their records, one by one.

# Bytes before and after a record: its length, and the checksums of both.
_HEAD, _TAIL = 12, 4


def read_records(path):
    """Yields each record's offset in a file and its bytes; verifies the checksums."""
    offset = _HEAD
    try:
        for data in tf.data.TFRecordDataset(os.fspath(path)).as_numpy_iterator():
            yield offset, data
            offset += len(data) + _TAIL + _HEAD
        # TensorFlow takes an incomplete head of a record for the end of the file.
        num_rest = tf.io.gfile.stat(os.fspath(path)).length - (offset - _HEAD)
        if num_rest:
            raise InvalidValueError(
                f"the file is cut off: its last {count_of(num_rest, 'byte')} are the "
                "beginning of a record. Copy or write it again"
            )
    except tf.errors.DataLossError as error:
        if is_lfs_pointer(path):
            raise InvalidValueError(f"it {LFS_CURE}") from error
        raise InvalidValueError(
            f"the file is cut off, damaged or compressed ({error.message}). Images "
            "are read by their position in the file: write it without compression"
        ) from error


def write_records(path, records):
    """Writes a TFRecord file."""
    with tf.io.TFRecordWriter(os.fspath(path)) as writer:
        for data in records:
            writer.write(data)
