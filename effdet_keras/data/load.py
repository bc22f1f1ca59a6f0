"""Finds out in which form a file or folder holds annotated images, and reads it."""

import dataclasses
import functools
import glob
import mmap
import os
import pathlib

from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.formats.coco import from_coco, split_of_json
from effdet_keras.data.formats.csv import from_csv
from effdet_keras.data.formats.csv_rows import csv_splits, is_csv
from effdet_keras.data.formats.folder_writing import ONE_SPLIT
from effdet_keras.data.formats.tfds import from_tfds, tfds_splits
from effdet_keras.data.formats.tfrecord import from_tfrecord, tfrecord_splits
from effdet_keras.data.formats.voc import from_voc, voc_splits
from effdet_keras.data.formats.yolo import from_yolo
from effdet_keras.data.formats.yolo_layout import yolo_splits
from effdet_keras.errors import InvalidValueError

# Names of annotation files that do not name a part of the data.
_NO_SPLITS = ("annotations", "labels", "data", "dataset", "coco", "default", "result")
_SHOWN = 8  # entries of a folder, in a message


def load(path, split=None, *, class_names=None, on_error="raise"):
    """Reads annotated images in whatever known form a file or folder has.

    Prints one line that says which form was found. The forms are COCO json,
    Pascal VOC, YOLO, CSV, TFRecord and TensorFlow Datasets; see the reader of
    each, such as `from_coco`, for what it reads. A folder around the folder of
    the dataset, as archives unpack to, is looked into.

    Args:
        path: str or path of a file or folder.
        split: name of a part, such as "train"; None takes the only one.
        class_names: names in the order of the labels, to bring a second set in
            line with a first: pass the first dataset's `class_names`.
        on_error: "raise" tells of everything that is wrong, at once; "skip"
            leaves it out, warns, and keeps it in `dataset.problems`.

    Returns:
        `DetectionDataset`.

    Raises:
        FileNotFoundError: If there is no such file or folder.
        ValueError: If its form is unknown or not clear, if there are several
            splits and none is named, or as the reader of the form does.

    Example:
        >>> import tempfile
        >>> from effdet_keras.data import write_shapes
        >>> folder = tempfile.mkdtemp()
        >>> _ = write_shapes(folder, num_train=3, num_valid=2)
        >>> dataset = load(folder, "valid")  # doctest: +ELLIPSIS
        '/...' is COCO json: splits train, valid
        >>> len(dataset)
        2
    """
    found = _find(path)
    print(found)
    if split is None and len(found.readers) == 1:
        split = next(iter(found.readers))
    if split not in found.readers:
        raise InvalidValueError(
            f"`split` must be one of {list(found.readers)}, the splits of "
            f"{str(path)!r}. Received: split={split!r}"
        )
    return found.readers[split](class_names=class_names, on_error=on_error)


def load_splits(path, *, class_names=None, on_error="raise"):
    """Reads all splits of a file or folder: see `load`.

    Where splits differ in their classes, each gets the classes of all. VOC's
    `trainval` is left out where `train` and `val` are there.

    Args:
        path: str or path of a file or folder.
        class_names: as of `load`.
        on_error: as of `load`.

    Returns:
        Dict of split name to `DetectionDataset`; data without splits are "train".

    Raises:
        FileNotFoundError: As `load` does.
        ValueError: As `load` does.

    Example:
        >>> import tempfile
        >>> from effdet_keras.data import write_shapes
        >>> folder = tempfile.mkdtemp()
        >>> _ = write_shapes(folder, num_train=3, num_valid=2)
        >>> splits = load_splits(folder)  # doctest: +ELLIPSIS
        '/...' is COCO json: splits train, valid
        >>> {name: len(dataset) for name, dataset in splits.items()}
        {'train': 3, 'valid': 2}
    """
    found = _find(path)
    print(found)
    readers = dict(found.readers)
    if {"train", "val"} <= readers.keys():
        readers.pop("trainval", None)
    return _with_same_classes(
        {
            split: read(class_names=class_names, on_error=on_error)
            for split, read in readers.items()
        }
    )


def split_names(path):
    """The names of the splits of a dataset, without reading its annotations.

    Args:
        path: str or path of a file or folder.

    Returns:
        Tuple of str, in the order of `load_splits`; data without splits are "train".

    Raises:
        FileNotFoundError: As `load` does.
        ValueError: As `load` does.

    Example:
        >>> import tempfile
        >>> from effdet_keras.data import write_shapes
        >>> folder = tempfile.mkdtemp()
        >>> _ = write_shapes(folder, num_train=3, num_valid=2)
        >>> split_names(folder)
        ('train', 'valid')
    """
    return tuple(_find(path).readers)


@dataclasses.dataclass(frozen=True)
class _Found:
    """A form that was found, and a function for each split that reads it."""

    form: str
    path: pathlib.Path
    readers: dict

    def __str__(self):
        splits = ", ".join(self.readers)
        return f"{str(self.path)!r} is {self.form}: splits {splits}"


def _find(path):
    name = os.fspath(path)
    path = pathlib.Path(path)
    if not os.path.exists(path):
        if glob.has_magic(name) and glob.glob(name):
            reader = functools.partial(from_tfrecord, name)
            return _Found("TFRecord", path, {ONE_SPLIT: reader})
        raise FileNotFoundError(
            f"A dataset must be a file or a folder. Received: {name!r}, which is "
            "not there"
        )
    found, notes = _look(path)
    inner = path
    while not found and inner.is_dir() and (inner := _only_folder(inner)) is not None:
        found, _ = _look(inner)
    if len(found) == 1:
        return found[0]
    if found:
        raise InvalidValueError(
            f"{name!r} has more than one form: {', '.join(f.form for f in found)}. "
            "Name the file, or call the reader of the form, such as `from_coco`"
        )
    raise InvalidValueError(_describe_unknown(path, notes))


def _look(path):
    """The forms that a path has, and why others were not found."""
    found, notes = [], []
    for form, (find_readers, _) in _FORMS.items():
        try:
            readers = find_readers(path)
        except (ValueError, OSError) as error:
            # Of a folder it only means that it has not this form.
            if path.is_file() or not isinstance(error, FileNotFoundError):
                notes.append(f"{form}: {error}")
            continue
        if readers:
            found.append(_Found(form, path, readers))
    forms = [f.form for f in found]
    if "TensorFlow Datasets" in forms:  # which are TFRecord files, with a description
        found = [f for f in found if f.form != "TFRecord"]
    return found, notes


def _only_folder(path):
    folders = [p for p in _entries(path) if p.is_dir() and p.name != "__MACOSX"]
    return folders[0] if len(folders) == 1 else None


def _entries(path):
    return sorted(p for p in path.iterdir() if not p.name.startswith("."))


def _describe_unknown(path, notes):
    wanted = "; ".join(f"{form}: {looked}" for form, (_, looked) in _FORMS.items())
    if path.is_dir():
        names = [p.name + "/" * p.is_dir() for p in _entries(path)]
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        holds = f"which holds {', '.join(names[:_SHOWN]) or 'nothing'}{more}"
    else:
        holds = "which is a file"
    troubles = f". Not readable: {'; '.join(notes)}" if notes else ""
    return (
        f"No known form of annotations was found in {str(path)!r}, {holds}. "
        f"Looked for {wanted}{troubles}"
    )


def _coco_readers(path):
    if path.is_file():
        files = {split_of_json(path): path} if _is_coco(path) else {}
    else:
        files = _coco_files(path) or _coco_files(path / "annotations")
        for folder in _entries(path) if not files else ():
            for file in _coco_files(folder).values():
                files.setdefault(folder.name, file)
    return {
        _split_of_name(split): functools.partial(from_coco, file)
        for split, file in files.items()
    }


def _coco_files(folder):
    """The COCO json files of a folder by their split."""
    files = [file for file in sorted(folder.glob("*.json")) if _is_coco(file)]
    # COCO's own folder has files of keypoints beside those of boxes.
    instances = [file for file in files if file.name.startswith("instances_")]
    return {split_of_json(file): file for file in instances or files}


def _is_coco(path):
    """Whether a file has the three keys; without reading the gigabyte it may be."""
    if path.suffix.lower() != ".json" or not path.stat().st_size:
        return False
    keys = (b'"images"', b'"annotations"', b'"categories"')
    with (
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        return all(content.find(key) >= 0 for key in keys)


def _voc_readers(path):
    if not path.is_dir():
        return {}
    if not (_has_xml(path / "Annotations") or _has_xml(path)):
        folders = [p for p in _entries(path) if p.is_dir() and _has_xml(p)]
        return {p.name: functools.partial(from_voc, p) for p in folders}
    splits = voc_splits(path) or [None]
    return {
        split or ONE_SPLIT: functools.partial(from_voc, path, split) for split in splits
    }


def _has_xml(folder):
    return any(True for _ in folder.glob("*.xml"))


def _yolo_readers(path):
    if path.is_file() and path.suffix.lower() not in (".yaml", ".yml", ".data"):
        return {}
    return {s: functools.partial(from_yolo, path, s) for s in yolo_splits(path)}


def _csv_readers(path):
    files = [path] if path.is_file() else sorted(path.glob("*.csv"))
    files = [file for file in files if file.suffix.lower() == ".csv" and is_csv(file)]
    readers = {}
    for file in files:
        for split in csv_splits(file) or [None]:
            name = split or _split_of_name(file.stem.removesuffix("_labels"))
            readers[name] = functools.partial(from_csv, file, split=split)
    return readers


def _split_of_name(name):
    """The split that a file's name means, if it is not just what it holds."""
    return ONE_SPLIT if name.lower() in _NO_SPLITS else name


def _tfrecord_readers(path):
    if path.is_file():
        splits = tfrecord_splits(path.parent)
        splits = {k: [str(path)] for k, files in splits.items() if str(path) in files}
    else:
        splits = tfrecord_splits(path)
    return {s: functools.partial(from_tfrecord, files) for s, files in splits.items()}


def _tfds_readers(path):
    if not path.is_dir():
        return {}
    return {s: functools.partial(from_tfds, path, s) for s in tfds_splits(path)}


_FORMS = {
    "COCO json": (
        _coco_readers,
        "*.json with images, annotations and categories, also in annotations/ and in "
        "the folders of splits",
    ),
    "Pascal VOC": (_voc_readers, "Annotations/*.xml, or *.xml beside the images"),
    "YOLO": (
        _yolo_readers,
        "a data.yaml, a .data file, images/ and labels/, or *.txt beside the images",
    ),
    "CSV": (
        _csv_readers,
        "*.csv with the header of the Object Detection API, or rows of AutoML or "
        "RetinaNet",
    ),
    "TFRecord": (_tfrecord_readers, "*.tfrecord, *.record, also in shards"),
    "TensorFlow Datasets": (_tfds_readers, "dataset_info.json and features.json"),
}


def _with_same_classes(splits):
    classes = {(d.class_names, d.category_ids) for d in splits.values()}
    if len(classes) <= 1:
        return splits
    pairs = {pair for names, ids in classes for pair in zip(ids, names)}
    names = {name for _, name in pairs}
    orders = {class_names for class_names, _ in classes}
    if len(orders) == 1:  # as with `class_names=`: only ids differ
        first = next(iter(splits.values()))
        class_names, category_ids = first.class_names, first.category_ids
    elif len(pairs) == len(names) == len({i for i, _ in pairs}):
        category_ids, class_names = zip(*sorted(pairs))
    else:  # the ids of one split mean other classes than those of another
        class_names, category_ids = tuple(sorted(names)), None
    label_of = {name: label for label, name in enumerate(class_names)}
    aligned = {}
    for split, dataset in splits.items():
        new_label = [label_of[name] for name in dataset.class_names]
        aligned[split] = DetectionDataset(
            [record.relabelled(new_label) for record in dataset.records],
            class_names,
            category_ids,
            problems=dataset.problems,
        )
    return aligned
