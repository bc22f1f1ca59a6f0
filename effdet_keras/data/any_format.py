"""`load` and `convert`: reading annotated images in any of the known formats."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Mapping
from typing import Any

from effdet_keras._internal.number_ranges import check_number, check_whole_number
from effdet_keras._internal.whole_files import is_remote
from effdet_keras.data.choose_dataset import reason_of
from effdet_keras.data.dataset import DetectionDataset, count_of
from effdet_keras.data.find_dataset import find
from effdet_keras.data.formats.dataset_files import (
    describe_archives,
    listing_once,
    role_of_split,
    splits_of_role,
)
from effdet_keras.data.formats.image_paths import dataset_root, searching_all_splits
from effdet_keras.data.formats.label_map import ClassNames
from effdet_keras.data.formats.reading import NoClassError, chosen_split
from effdet_keras.data.formats.unknown import describe_other_files
from effdet_keras.data.known_formats import (
    FORMATS,
    Source,
    collector_off,
    read_splits,
)
from effdet_keras.data.problems import MissingImageError, NoImageError, telling_once
from effdet_keras.data.split_notes import (
    others_than,
    readable_instead,
    tell_of_empty,
    tell_of_one_folder,
    tell_of_other_classes,
    tell_of_other_folders,
    tell_of_shared,
    tell_of_trainval,
    tell_of_unlisted,
    warn_of_predictions,
    why_left_out,
    with_same_classes,
    without_whole,
)
from effdet_keras.errors import (
    InvalidValueError,
    MissingPackageError,
    check_choice,
    require,
)


def load(
    path: str | os.PathLike[str],
    split: str | None = None,
    *,
    format: str | None = None,
    class_names: ClassNames | None = None,
    on_error: str = "auto",
    masks: bool = False,
    unlabelled: str | None = None,
    reader_options: Mapping[str, Any] | None = None,
) -> DetectionDataset:
    """Reads annotated images from a file or folder in any of the known formats.

    The format is detected, and one printed line names it. The reader of each format,
    such as `from_coco`, documents the files and folders that it accepts.

    A dataset is also found in a subfolder: up to four levels down, or up to eight if
    nothing above could be a dataset. If there are several datasets, the error names
    each of them. If several formats hold the same images, one format is read, and the
    printed line says which one and how the others differ. Hidden files and folders are
    ignored. Folders of models, caches and environments are searched only if there is no
    dataset elsewhere. An image that is not where the annotation file says is looked for
    below `path`, by the longest ending of its path that matches exactly one file there.

    Args:
        path: str or path of a file or folder; or its remote address, such as
            `s3://bucket/cats` (docs/remote_files.md; not for TFRecord and TensorFlow
            Datasets); or a pattern of TFRecord files, such as `data/train-*.tfrecord`.
        split: str, the name of a split. "train" also finds splits that are called
            `train2017` or `Train`. None reads the only split.
        format: the format to read, if a folder holds several: "coco", "voc", "yolo",
            "csv", "tfrecord", "tfds", "cvat", "labelme", "via", "label_studio",
            "labelbox", "create_ml", "hugging_face", "edge_impulse", "keras_txt",
            "supervisely", "bdd", "ground_truth", "dlib" or "opencv"; or, if the package
            datumaro is installed, "kitti", "wider_face", "open_images", "vott",
            "labelme_xml", "mot" or "datumaro". None detects the format.
        class_names: sequence of str, the class names in the order of the labels. To
            give a second dataset the same labels as a first one, pass the first
            dataset's `class_names`, which may include classes that this dataset lacks.
            Or a label map: a dict from category id to name, "coco", "voc", "waymo", or
            the path of a .pbtxt, .json or .yaml file. None takes the names in the data.
        on_error: what is done about errors in the data, such as missing images.
            "raise" raises one error that lists all of them. "skip" leaves the faulty
            images or annotations out, warns, and lists them in `dataset.problems`.
            "auto" does as "skip" if few are faulty, at most 5 % of the images and of
            the boxes of a split (1 % if their class has no name), and otherwise as
            "raise".
        masks: bool, whether to read segmentation masks as well. This works for COCO
            json (see `from_coco`), TFRecord, CVAT, LabelMe, VIA, Label Studio, Labelbox
            and Supervisely. For files of masks, see `dataset.with_masks`.
        unlabelled: "negative" or "skip", for formats with one annotation file per
            image: whether an image without such a file counts as an image without
            objects, or is left out. See `from_yolo`.
        reader_options: dict of options that only the reader of one format takes, such
            as `{"one_based": False}`: `class_attribute` of `from_via`, `one_based` of
            `from_voc`, and `box_format` of `from_hugging_face`.

    Returns:
        `DetectionDataset`.

    Raises:
        FileNotFoundError: If there is no such file or folder, or if images are missing.
        ValueError: If no dataset is found, or several of different images; if there
            are several splits and none is named; if the format does not support an
            option; or if the reader of the format finds a fault.
        ImportError: If the format needs a package that is not installed.

    Example:
        >>> import tempfile
        >>> from effdet_keras.data import write_shapes
        >>> folder = tempfile.mkdtemp()
        >>> _ = write_shapes(folder, num_train=3, num_valid=2)
        >>> len(load(folder, "valid"))
        '/...' is COCO json: splits train, valid
        2
        >>> list(load_splits(folder))
        '/...' is COCO json: splits train, valid
        ['train', 'valid']
    """
    read = functools.partial(
        read_found,
        path=path,
        split=split,
        class_names=class_names,
        on_error=on_error,
        masks=masks,
        unlabelled=unlabelled,
    )
    with listing_once():
        found = find(path, format, reader_options)
        return _read_what_has_images(read, found, format, reader_options)


def read_found(
    found: Source,
    path: str | os.PathLike[str],
    split: str | None,
    *,
    class_names: ClassNames | None = None,
    on_error: str = "auto",
    masks: bool = False,
    unlabelled: str | None = None,
) -> DetectionDataset:
    """Reads one split of the dataset that `find` found at a path: see `load`."""
    try:
        split = chosen_split(found.readers, split, path)
    except InvalidValueError as error:
        lines = why_left_out(found)
        if not lines:
            raise
        raise InvalidValueError(". ".join([str(error), *lines])) from error
    datasets = _read(found, [split], class_names, on_error, masks, unlabelled)
    if found.format == "yolo":
        tell_of_one_folder(found, split)
    return datasets[split]


def load_splits(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    class_names: ClassNames | None = None,
    on_error: str = "auto",
    masks: bool = False,
    unlabelled: str | None = None,
    reader_options: Mapping[str, Any] | None = None,
) -> dict[str, DetectionDataset]:
    """Reads all splits of a file or folder: see `load`.

    All splits get the same classes, even if some splits lack a class that others have.
    VOC's `trainval` is left out if there are `train` and `val`. If there are splits to
    train and to evaluate on, any other split whose images are all in these is left out
    as well.

    Args:
        path, format, class_names, on_error, masks, unlabelled, reader_options: as for
            `load`.

    Returns:
        Dict from split name to `DetectionDataset`. Data without splits is "train".

    Raises:
        FileNotFoundError, ValueError: As `load` does.

    Example: see `load`.
    """
    read = functools.partial(
        _read_splits_found,
        class_names=class_names,
        on_error=on_error,
        masks=masks,
        unlabelled=unlabelled,
    )
    with listing_once():
        found = find(path, format, reader_options)
        datasets = _read_what_has_images(read, found, format, reader_options)
    tell_of_other_classes(datasets, path)
    return tell_of_shared(datasets, path)


def _read_splits_found(found, class_names, on_error, masks, unlabelled):
    """Reads all splits of the dataset that was found: see `load_splits`."""
    splits = dict.fromkeys(found.readers)
    whole = "trainval" in splits and {"train", "val"} <= splits.keys()
    if whole:
        splits.pop("trainval")
    datasets = _read(found, splits, class_names, on_error, masks, unlabelled)
    if whole:
        tell_of_trainval(found)
    if on_error != "skip":  # else images that were left out would count as well
        datasets = tell_of_unlisted(datasets, found)
    datasets = without_whole(datasets, found)
    tell_of_empty(datasets)
    return with_same_classes(datasets)


def _read_what_has_images(read, found, format, reader_options):
    """Reads a dataset, or, if its images are missing, the only other one that has them.

    No other one is read if the images may be in an archive.

    Args:
        read: function of a `Source`.
        found: `Source`, what was found.
        format, reader_options: what the user passed. If they name the dataset, no
            other one is read.
    """
    try:
        return read(found)
    except NoImageError as error:
        is_named = format or reader_options
        if is_named or is_remote(found.root) or describe_archives(found.root):
            raise
        other = readable_instead(found)
        if other is None:
            raise
        first_line, _, _ = str(error).partition("\n")  # others name other datasets
        print(f"  It cannot be read, so another dataset is: {reason_of(first_line)}")
        return read(other)


def load_train_valid(
    path: str | os.PathLike[str],
    fraction: float = 0.8,
    *,
    seed: int = 0,
    format: str | None = None,
    class_names: ClassNames | None = None,
    on_error: str = "auto",
    unlabelled: str | None = None,
    reader_options: Mapping[str, Any] | None = None,
) -> tuple[DetectionDataset, DetectionDataset]:
    """Reads a training and a validation dataset with the same classes.

    The splits are recognized by their names, such as `train2017` and `val2017`. If
    there is no validation split, the training split is divided at random, and a printed
    line says so. Data without splits is divided as a whole. A test split is not used,
    unless it is the only split.

    Args:
        path, format, class_names, on_error, unlabelled, reader_options: as for `load`.
        fraction: float in (0, 1), the share of images to train on if the images are
            divided, see `DetectionDataset.split`.
        seed: int, the seed of that random division.

    Returns:
        Tuple of two `DetectionDataset`s, to train on and to validate on.

    Raises:
        FileNotFoundError, ValueError: As `load` does. ValueError also if there are
            several splits and none has the name of a training split: read those with
            `load_splits`.

    Example:
        >>> import tempfile
        >>> from effdet_keras.data import write_shapes
        >>> folder = tempfile.mkdtemp()
        >>> _ = write_shapes(folder, num_train=3, num_valid=2)
        >>> train, valid = load_train_valid(folder)
        '/...' is COCO json: splits train, valid
        >>> len(train), len(valid)
        (3, 2)
    """
    check_number("fraction", fraction, "(0, 1)")  # before the data is read
    check_whole_number("seed", seed, "[0, inf)")
    splits = load_splits(
        path,
        format=format,
        class_names=class_names,
        on_error=on_error,
        unlabelled=unlabelled,
        reader_options=reader_options,
    )
    name = chosen_split(splits, "train" if len(splits) > 1 else None, path)
    validation = splits_of_role(splits, "validation")
    used = {name, *validation[:1]}
    for other in [n for n in splits if n not in used and role_of_split(n) != "test"]:
        images = count_of(len(splits[other]), "image")
        print(
            f"  The split {other!r} is used neither to train nor to validate: {images}."
        )
    if validation and validation[0] != name:
        return splits[name], splits[validation[0]]
    train, valid = splits[name].split(fraction, seed=seed)
    verb = "is" if len(valid) == 1 else "are"
    print(
        f"There is no validation split: {count_of(len(valid), 'image')} of '{name}', "
        f"chosen at random, {verb} kept for validation, and "
        f"{count_of(len(train), 'is', 'are')} trained on."
    )
    return train, valid


def load_each(
    paths: Mapping[str, str | os.PathLike[str]],
    *,
    format: str | None = None,
    class_names: ClassNames | None = None,
    on_error: str = "auto",
    masks: bool = False,
    unlabelled: str | None = None,
    reader_options: Mapping[str, Any] | None = None,
) -> dict[str, DetectionDataset]:
    """Reads each split from a path of its own: like `load_splits` for several paths.

    Args:
        paths: dict from split name to a path as `load` takes it. Each path must hold
            one split only.
        format, class_names, on_error, masks, unlabelled, reader_options: as for `load`.

    Returns:
        Dict from split name to `DetectionDataset`, all with the same classes.

    Raises:
        FileNotFoundError, ValueError: As `load` does.
    """
    options = {
        "format": format,
        "class_names": class_names,
        "on_error": on_error,
        "masks": masks,
        "unlabelled": unlabelled,
        "reader_options": reader_options,
    }
    datasets = {name: load(path, **options) for name, path in paths.items()}
    return tell_of_shared(
        with_same_classes(datasets), list(map(os.fspath, paths.values()))
    )


def convert(
    data: str | os.PathLike[str],
    out: str | os.PathLike[str],
    to: str,
    *,
    split: str | None = None,
    format: str | None = None,
    num_shards: int | None = None,
    on_error: str = "raise",
    unlabelled: str | None = None,
    reader_options: Mapping[str, Any] | None = None,
) -> None:
    """Converts a dataset on disk to another format, images included.

    Prints which dataset was found and what was written.

    Args:
        data: path of a file or folder, as `load` takes it.
        out: str or path, the folder to create. It appears only when it is complete.
        to: "coco", "voc", "yolo", "csv" or "tfrecord".
        split: str, the split to convert, such as "train". None converts all splits.
        format: str, the format to read if `data` holds several, see `load`. None
            detects the format.
        num_shards: int, the number of files per split, for "tfrecord" only. None
            chooses a number.
        on_error, unlabelled, reader_options: as for `load`. By default any error in
            the data stops the conversion, because a copy should be whole.

    Raises:
        FileExistsError: If `out` exists.
        FileNotFoundError, ValueError: As `load` and the writer do.

    Example:
        >>> import tempfile
        >>> from effdet_keras.data import write_shapes
        >>> folder = tempfile.mkdtemp()
        >>> _ = write_shapes(f"{folder}/coco", num_train=3, num_valid=2)
        >>> convert(f"{folder}/coco", f"{folder}/yolo", "yolo")
        '/.../coco' is COCO json: splits train, valid
        '/.../yolo' is written
          train: DetectionDataset(3 images, ... circle, square, triangle)
          valid: DetectionDataset(2 images, ... circle, square, triangle)
    """
    check_choice("to", to, [name for name, f in FORMATS.items() if f.write])
    options = {}
    if num_shards is not None:
        require(to == "tfrecord", "`num_shards` is an option of 'tfrecord'", to=to)
        # Checked before the data is read.
        check_whole_number("num_shards", num_shards, "[1, inf)")
        options["num_shards"] = num_shards
    reading = {
        "format": format,
        "on_error": on_error,
        "unlabelled": unlabelled,
        "reader_options": reader_options,
    }
    if split is None:
        datasets = load_splits(data, **reading)
    else:
        datasets = {split: load(data, split, **reading)}
    FORMATS[to].write(datasets, out, **options)
    print(f"{str(out)!r} is written")
    for name, dataset in datasets.items():
        print(f"  {name}: {dataset}")


def _read(found, splits, class_names, on_error, masks, unlabelled=None):
    """Returns a dict from split name to dataset, for some of the splits found."""
    print(found)
    warn_of_predictions(found)
    options = {"class_names": class_names, "on_error": on_error}
    kind = FORMATS[found.format]
    if masks:
        rule = "No masks are read from this format: add them with `dataset.with_masks`"
        require(kind.has_masks, rule, format=found.format, masks=masks)
        options["masks"] = True
    if unlabelled is not None:
        rule = (
            "`unlabelled` is only for formats with one annotation file per image, such "
            "as 'yolo'. The files of this format name the images without objects: "
            "leave `unlabelled` out"
        )
        require(kind.has_unlabelled, rule, format=found.format, unlabelled=unlabelled)
        options["unlabelled"] = unlabelled
    with dataset_root(found.root), collector_off(), telling_once():
        readers = {split: found.readers[split] for split in splits}
        try:
            datasets, empty = _read_splits_of(found, readers, options)
        except (NoClassError, MissingPackageError) as error:
            other = "" if is_remote(found.root) else describe_other_files(found.root)
            if not other:
                raise
            raise type(error)(f"{error}. {other}") from error
        except FileNotFoundError as error:
            lines = others_than(found)
            # The text of `MissingImageError` names archives already.
            if not isinstance(error, MissingImageError):
                lines += filter(None, [describe_archives(found.root)])
            if not lines:
                raise
            text = "\n  ".join([str(error), *lines])
            if isinstance(error, NoImageError):
                may_be_others = error.may_be_others
                raise NoImageError(text, may_be_others=may_be_others) from error
            raise FileNotFoundError(text) from error
        for split in empty:
            print(
                f"  The split {split!r} was left out, because it has no images, or "
                "none of them was found."
            )
        if len(readers) == len(found.readers):
            tell_of_other_folders(found, datasets)
    return datasets


def _read_splits_of(found, readers, options):
    """Reads splits as `read_splits`, and finds images in the folders of other splits.

    An image that is missing in its split may be in the folder of another one, if no
    entry of any split names it there.
    """
    try:
        return read_splits(readers, **options)
    except MissingImageError as error:
        if len(found.readers) == 1 or not error.may_be_others:
            raise
        named = set()
        with warnings.catch_warnings(action="ignore"):
            for read in found.readers.values():
                try:
                    records = read(**(options | {"on_error": "skip"})).records
                except (ValueError, OSError):
                    raise error from None
                named |= {r.image for r in records if isinstance(r.image, str)}
        with searching_all_splits(named):
            return read_splits(readers, **options)
