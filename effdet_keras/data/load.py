"""`load`: reads annotated images in whatever known format a path holds."""

from __future__ import annotations

import os

from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.find import find
from effdet_keras.data.formats.label_map import ClassNames
from effdet_keras.data.formats.registry import FORMATS
from effdet_keras.errors import InvalidValueError


def load(
    path: str | os.PathLike[str],
    split: str | None = None,
    *,
    format: str | None = None,
    class_names: ClassNames | None = None,
    on_error: str = "raise",
    masks: bool = False,
) -> DetectionDataset:
    """Reads annotated images in whatever known format a file or folder has.

    Prints one line that says which format was found. The formats are COCO json,
    Pascal VOC, YOLO, CSV, TFRecord and TensorFlow Datasets. What each of them may
    look like is said at its reader, such as `from_coco`. If the folder holds nothing
    but another folder, as unpacked archives do, that one is read.

    Args:
        path: file or folder; or the address of one, such as `s3://bucket/cats`
            (docs/remote_files.md), unless it is TFRecord or TensorFlow Datasets.
        split: name of a split, such as "train". None reads the only one.
        format: "coco", "voc", "yolo", "csv", "tfrecord" or "tfds", where a folder
            holds several. None finds it out.
        class_names: names in the order of the labels, to bring a second dataset in
            line with a first one: pass the first dataset's `class_names`. Or a label
            map: a dict from category id to name, "coco", "voc", "waymo", or the path
            of a .pbtxt, .json or .yaml file. None takes the names in the data.
        on_error: "raise" raises one error that names everything that is wrong;
            "skip" leaves it out, warns, and lists it in `dataset.problems`.
        masks: whether to read masks for segmentation as well, of COCO json (see
            `from_coco`) or TFRecord; for files of masks see `dataset.with_masks`.

    Returns:
        `DetectionDataset`.

    Raises:
        FileNotFoundError: If there is no such file or folder.
        ValueError: If no known format or more than one is found, if there are several
            splits and none is named, or for what the reader of the format refuses.

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
    found = find(path, format)
    print(found)
    if split is None and len(found.readers) == 1:
        split = next(iter(found.readers))
    if split not in found.readers:
        raise InvalidValueError(
            f"`split` must be one of {list(found.readers)}, the splits of "
            f"{str(path)!r}. Received: split={split!r}"
        )
    options = _options(found, masks)
    return found.readers[split](class_names=class_names, on_error=on_error, **options)


def load_splits(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    class_names: ClassNames | None = None,
    on_error: str = "raise",
    masks: bool = False,
) -> dict[str, DetectionDataset]:
    """Reads all splits of a file or folder: see `load`.

    All splits get the same classes, even if some lack a class that others have.
    VOC's `trainval` is left out if there are `train` and `val`.

    Args:
        path: file or folder.
        format: as of `load`.
        class_names: as of `load`.
        on_error: as of `load`.
        masks: as of `load`.

    Returns:
        Dict from split name to `DetectionDataset`. Data without splits are "train".

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
    found = find(path, format)
    print(found)
    readers, options = dict(found.readers), _options(found, masks)
    if {"train", "val"} <= readers.keys():
        readers.pop("trainval", None)
    return _with_same_classes(
        {
            split: read(class_names=class_names, on_error=on_error, **options)
            for split, read in readers.items()
        }
    )


def split_names(
    path: str | os.PathLike[str], *, format: str | None = None
) -> tuple[str, ...]:
    """The names of the splits of a dataset, without reading its annotations.

    Args:
        path: file or folder.
        format: as of `load`.

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
    return tuple(find(path, format).readers)


def _options(found, masks):
    """What else the reader of a format is given."""
    if masks and not FORMATS[found.format].has_masks:
        raise InvalidValueError(
            f"Of {found.title} only boxes are read. Received: masks=True. Read it "
            "without, and add files of masks: `dataset.with_masks(folder, names)`."
        )
    return {"masks": True} if masks else {}


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
            seg_class_names=dataset._seg_class_names,
        )
    return aligned
