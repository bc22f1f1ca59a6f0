"""`load` and `convert`: annotated images in whatever known format a path holds."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import gc
import glob
import itertools
import os
import pathlib
import re
import warnings
from collections.abc import Callable, Mapping, Set

import numpy as np

from effdet_keras._internal.number_ranges import check_number, check_whole_number
from effdet_keras._internal.remote_path import exists, path_of
from effdet_keras._internal.whole_files import is_remote
from effdet_keras.data.dataset import DetectionDataset, count_of
from effdet_keras.data.formats.bdd import bdd_readers
from effdet_keras.data.formats.coco import coco_readers, write_coco
from effdet_keras.data.formats.create_ml import create_ml_readers
from effdet_keras.data.formats.csv import csv_readers, write_csv
from effdet_keras.data.formats.cvat import cvat_readers
from effdet_keras.data.formats.dataset_files import (
    NO_DATA_FOLDERS,
    describe_archives,
    first_to_train_on,
    listing_once,
    names_in,
    role_of_split,
    split_folders,
    splits_of_role,
    visible_folders,
    walk,
)
from effdet_keras.data.formats.datumaro import (
    datumaro_own_readers,
    kitti_readers,
    labelme_xml_readers,
    mot_readers,
    open_images_readers,
    vott_readers,
    wider_face_readers,
)
from effdet_keras.data.formats.edge_impulse import edge_impulse_readers
from effdet_keras.data.formats.ground_truth import ground_truth_readers
from effdet_keras.data.formats.hugging_face import hugging_face_readers
from effdet_keras.data.formats.image_paths import ANNOTATION_FOLDERS, dataset_root
from effdet_keras.data.formats.keras_txt import keras_txt_readers
from effdet_keras.data.formats.label_map import ClassNames
from effdet_keras.data.formats.label_studio import label_studio_readers
from effdet_keras.data.formats.labelme import labelme_readers
from effdet_keras.data.formats.reading import NoClassError, chosen_split
from effdet_keras.data.formats.supervisely import supervisely_readers
from effdet_keras.data.formats.tfrecord import (
    pattern_readers,
    tfrecord_readers,
    write_tfrecord,
)
from effdet_keras.data.formats.unknown import (
    describe_other_files,
    describe_unknown_files,
)
from effdet_keras.data.formats.via import via_readers
from effdet_keras.data.formats.voc import voc_readers, write_voc
from effdet_keras.data.formats.yolo import write_yolo, yolo_readers
from effdet_keras.data.formats.yolo_layout import find_layout
from effdet_keras.data.near_duplicates import hash_images
from effdet_keras.data.problems import KINDS, MissingImageError, Problem, Severity
from effdet_keras.data.record import concat_field, count_unusable
from effdet_keras.data.shared_images import is_copy, shared_images
from effdet_keras.errors import InvalidValueError, check_choice, require
from effdet_keras.images import IMAGE_SUFFIXES


@dataclasses.dataclass(frozen=True)
class Format:
    """A format of annotations on disk."""

    title: str
    # Of a path that exists: the name of each split there, and the function that reads
    # it. It is empty, or ValueError or OSError is raised, where the format is another.
    readers: Callable[[pathlib.Path], Mapping[str, Callable]]
    write: Callable | None  # None where it is read alone
    has_masks: bool = False  # whether its readers take `masks`
    has_unlabelled: bool = False  # whether its readers take `unlabelled`


def _tfds_readers(path):
    from effdet_keras.extras.tfds import tfds_readers

    return tfds_readers(path)


FORMATS = {
    "coco": Format("COCO json", coco_readers, write_coco, has_masks=True),
    "voc": Format("Pascal VOC", voc_readers, write_voc),
    "yolo": Format("YOLO", yolo_readers, write_yolo, has_unlabelled=True),
    "csv": Format("CSV", csv_readers, write_csv),
    "tfrecord": Format("TFRecord", tfrecord_readers, write_tfrecord, has_masks=True),
    "tfds": Format("TensorFlow Datasets", _tfds_readers, None),
    "cvat": Format("CVAT xml", cvat_readers, None, has_masks=True),
    "labelme": Format("LabelMe json", labelme_readers, None, has_masks=True),
    "via": Format("VIA", via_readers, None, has_masks=True),
    "label_studio": Format("Label Studio", label_studio_readers, None, has_masks=True),
    "create_ml": Format("Create ML json", create_ml_readers, None),
    "hugging_face": Format("Hugging Face", hugging_face_readers, None),
    "edge_impulse": Format("Edge Impulse", edge_impulse_readers, None),
    "keras_txt": Format("Keras txt", keras_txt_readers, None),
    "supervisely": Format("Supervisely", supervisely_readers, None, has_masks=True),
    "bdd": Format("BDD100K json", bdd_readers, None),
    "ground_truth": Format("Ground Truth manifest", ground_truth_readers, None),
    # By the package `datumaro`.
    "kitti": Format("KITTI", kitti_readers, None),
    "wider_face": Format("WIDER FACE", wider_face_readers, None),
    "open_images": Format("Open Images", open_images_readers, None),
    "vott": Format("VoTT json", vott_readers, None),
    "labelme_xml": Format("LabelMe xml", labelme_xml_readers, None),
    "mot": Format("MOT", mot_readers, None),
    "datumaro": Format("Datumaro", datumaro_own_readers, None),
}


def load(
    path: str | os.PathLike[str],
    split: str | None = None,
    *,
    format: str | None = None,
    class_names: ClassNames | None = None,
    on_error: str = "raise",
    masks: bool = False,
    unlabelled: str | None = None,
) -> DetectionDataset:
    """Reads annotated images in whatever known format a file or folder has.

    Prints one line that says which format was found. What each may look like is said at
    its reader, such as `from_coco`. A dataset in a folder below is found as well, up to
    four folders down, if there is one; of several the error names each. Where several
    formats hold the same images, one is read, and the line says which one and how the
    others differ. Hidden files and folders, those of models, caches and environments do
    not count. Images that are not where an annotation file says are looked for below
    `path`, by the longest ending of their path that is one file there.

    Args:
        path: file or folder; or the address of one, such as `s3://bucket/cats`
            (docs/remote_files.md), unless it is TFRecord or TensorFlow Datasets; or a
            pattern of TFRecord files, such as `data/train-*.tfrecord`.
        split: name of a split, such as "train", which is `train2017` or `Train` as
            well. None reads the only one.
        format: "coco", "voc", "yolo", "csv", "tfrecord", "tfds", "cvat", "labelme",
            "via", "label_studio", "create_ml", "hugging_face", "edge_impulse",
            "keras_txt", "supervisely", "bdd", "ground_truth", or, by the package
            datumaro, "kitti", "wider_face", "open_images", "vott", "labelme_xml", "mot"
            or "datumaro", where a folder holds several. None finds it out.
        class_names: names in the order of the labels, to bring a second dataset in line
            with a first one: pass the first dataset's `class_names`, which may have
            classes that are not in this one. Or a label map: a dict from category id to
            name, "coco", "voc", "waymo", or the path of a .pbtxt, .json or .yaml file.
            None takes the names in the data.
        on_error: "raise" raises one error that names everything that is wrong; "skip"
            leaves it out, warns, and lists it in `dataset.problems`.
        masks: whether to read masks for segmentation as well, of COCO json (see
            `from_coco`), TFRecord, CVAT, LabelMe, VIA, Label Studio or Supervisely; for
            files of masks see `dataset.with_masks`.
        unlabelled: "negative" or "skip", what images without an annotation file of
            their own are, in formats with one file per image: see `from_yolo`.

    Raises:
        FileNotFoundError: If there is no such file or folder.
        ValueError: If no known format or more than one is found, if there are several
            splits and none is named, or for what the reader of the format refuses.

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
    with listing_once():
        found = find(path, format)
        split = chosen_split(found.readers, split, path)
        options = class_names, on_error, masks, unlabelled
        dataset = _read(found, [split], *options)[split]
    if found.format == "yolo":
        _tell_of_one_folder(found, split)
    return dataset


def load_splits(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    class_names: ClassNames | None = None,
    on_error: str = "raise",
    masks: bool = False,
    unlabelled: str | None = None,
) -> dict[str, DetectionDataset]:
    """Reads all splits of a file or folder: see `load`.

    All splits get the same classes, even if some lack a class that others have. VOC's
    `trainval` is left out if there are `train` and `val`, and so is any other that only
    has images of splits to train and to evaluate on.

    Args:
        path, format, class_names, on_error, masks, unlabelled: as for `load`.

    Returns:
        Dict from split name to `DetectionDataset`. Data without splits are "train".

    Raises:
        FileNotFoundError, ValueError: As `load` does.

    Example: see `load`.
    """
    with listing_once():
        found = find(path, format)
        splits = dict.fromkeys(found.readers)
        if {"train", "val"} <= splits.keys():
            splits.pop("trainval", None)
        datasets = _read(found, splits, class_names, on_error, masks, unlabelled)
        if on_error == "raise":  # else what was left out would count as well
            datasets = _tell_of_unlisted(datasets, found)
    datasets = _with_same_classes(_without_whole(datasets, found))
    _tell_of_other_classes(datasets, path)
    return _tell_of_shared(datasets, path)


def load_train_valid(
    path: str | os.PathLike[str],
    fraction: float = 0.8,
    *,
    seed: int = 0,
    format: str | None = None,
    class_names: ClassNames | None = None,
    on_error: str = "raise",
    unlabelled: str | None = None,
) -> tuple[DetectionDataset, DetectionDataset]:
    """Reads images to train on and images to validate on, both of the same classes.

    These are the splits that are called so, such as `train2017` and `val2017`. Where
    none is for validation, the images to train on are divided, and a line says so; data
    without splits is divided whole. A test split stays for the test.

    Args:
        path, format, class_names, on_error, unlabelled: as for `load`.
        fraction, seed: of `DetectionDataset.split`, where the images are divided: the
            share to train on, and which they are.

    Raises:
        FileNotFoundError, ValueError: As `load` does, and where no split is called one
            to train on: read them with `load_splits`.

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
    check_number("fraction", fraction, "(0, 1)")  # before the reading
    check_whole_number("seed", seed, "[0, inf)")
    options = {"format": format, "class_names": class_names}
    splits = load_splits(path, on_error=on_error, unlabelled=unlabelled, **options)
    name = chosen_split(splits, "train" if len(splits) > 1 else None, path)
    validation = splits_of_role(splits, "validation")
    used = {name, *validation[:1]}
    for other in [n for n in splits if n not in used and role_of_split(n) != "test"]:
        images = count_of(len(splits[other]), "image")
        print(f"  {other!r} is not used, neither to train nor to validate: {images}")
    if validation and validation[0] != name:
        return splits[name], splits[validation[0]]
    train, valid = splits[name].split(fraction, seed=seed)
    print(
        f"There is no validation split: {len(valid)} images of '{name}', chosen at "
        f"random, are for validation, and {len(train)} to train on."
    )
    return train, valid


def load_each(
    paths: Mapping[str, str | os.PathLike[str]],
    *,
    format: str | None = None,
    class_names: ClassNames | None = None,
    on_error: str = "raise",
    masks: bool = False,
    unlabelled: str | None = None,
) -> dict[str, DetectionDataset]:
    """Reads a dataset of its own for each split: as `load_splits`, of several paths.

    Args:
        paths: dict from the name of a split to what `load` takes, of which only one
            split is there.
        format, class_names, on_error, masks, unlabelled: as for `load`.
    """
    options = {
        "format": format,
        "class_names": class_names,
        "on_error": on_error,
        "masks": masks,
        "unlabelled": unlabelled,
    }
    datasets = {name: load(path, **options) for name, path in paths.items()}
    return _tell_of_shared(
        _with_same_classes(datasets), list(map(os.fspath, paths.values()))
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
) -> None:
    """Writes a dataset that is on disk in another format, images included.

    Prints what was found and what was written.

    Args:
        data: path of a file or folder, as `load` takes it.
        out: folder to make. It appears once it is complete.
        to: "coco", "voc", "yolo", "csv" or "tfrecord".
        split: the split to convert, such as "train". None converts all.
        format: the format to read, where `data` holds several. None finds it out.
        num_shards: files per split, for "tfrecord" only. None chooses.
        on_error, unlabelled: as for `load`.

    Raises:
        FileExistsError: If `out` is there.
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
        check_whole_number("num_shards", num_shards, "[1, inf)")  # before the reading
        options["num_shards"] = num_shards
    reading = {"format": format, "on_error": on_error, "unlabelled": unlabelled}
    if split is None:
        datasets = load_splits(data, **reading)
    else:
        datasets = {split: load(data, split, **reading)}
    FORMATS[to].write(datasets, out, **options)
    print(f"{str(out)!r} is written")
    for name, dataset in datasets.items():
        print(f"  {name}: {dataset}")


def _read(found, splits, class_names, on_error, masks, unlabelled=None):
    """The datasets of some splits, by their names."""
    print(found)
    options = {"class_names": class_names, "on_error": on_error}
    kind = FORMATS[found.format]
    if masks:
        rule = "No masks are read from this format: add them with `dataset.with_masks`"
        require(kind.has_masks, rule, format=found.format, masks=masks)
        options["masks"] = True
    if unlabelled is not None:
        rule = (
            "`unlabelled` is for formats with a file per image, such as 'yolo': this "
            "one names the images without objects"
        )
        require(kind.has_unlabelled, rule, format=found.format, unlabelled=unlabelled)
        options["unlabelled"] = unlabelled
    with dataset_root(found.root), _collector_off():
        readers = {split: found.readers[split] for split in splits}
        try:
            datasets = _read_splits(readers, **options)
        except FileNotFoundError as error:
            lines = _others_than(found)
            if not isinstance(error, MissingImageError):  # which names archives itself
                lines += filter(None, [describe_archives(found.root)])
            if not lines:
                raise
            raise FileNotFoundError("\n  ".join([str(error), *lines])) from error
        for split in readers:
            if split not in datasets:
                print(f"  {split!r} is left out: it has no image")
        if len(readers) == len(found.readers):
            _tell_of_other_folders(found, datasets)
    return datasets


def _read_splits(readers, **options):
    """The datasets of splits, without those that are empty, if others are not.

    A split without objects has the classes of the others.
    """
    datasets, errors = {}, {}
    for split, read in readers.items():
        try:
            datasets[split] = read(**options)
        except NoClassError as error:
            errors[split] = error
    if errors and not datasets:
        raise next(iter(errors.values()))
    for split in errors:
        names = dict.fromkeys(n for d in datasets.values() for n in d.class_names)
        datasets[split] = readers[split](**(options | {"class_names": list(names)}))
    full = [split for split in readers if len(datasets[split])]
    return {split: datasets[split] for split in full or readers}


_MAX_TOLD = 5  # datasets beside the one that is read
_MAX_UNREAD = 50  # folders in which they are looked for


def _others_than(found):
    """Lines that name datasets in other formats, where the images of one are gone."""
    if is_remote(found.root) or not found.root.is_dir():
        return []
    formats = [name for name in FORMATS if name != found.format]
    others = _find_in(found.root, formats)[0] or _find_below(found.root, formats)[0]
    return [
        f"{str(other.path)!r} is {other.described}: pass format={other.format!r} "
        "(--format) to read that"
        for other in filter(_can_be_read, others[:_MAX_TOLD])
    ]


def _can_be_read(source):
    """Whether the images of all splits of a dataset are there."""
    for read in source.readers.values():
        try:
            with warnings.catch_warnings(action="ignore"):
                dataset = read(on_error="skip")
        except NoClassError:  # a split without objects
            continue
        except ImportError:  # which says what to install
            return True
        except (ValueError, OSError):
            return False
        if any(problem.kind == "missing image" for problem in dataset.problems):
            return False
    return True


def _tell_of_other_folders(found, datasets):
    """Prints which datasets are in folders of which nothing was read."""
    if is_remote(found.root) or not found.root.is_dir():
        return
    images = (r.image for d in datasets.values() for r in d.records)
    used = {os.path.dirname(image) for image in images if isinstance(image, str)}
    used = {os.path.realpath(folder) for folder in used}
    known = {(source.format, source.path) for source in (found, *found.others)}
    known |= {
        (source.format, folder)
        for source in found.others
        if source.path.is_dir()
        for folder in split_folders(source.path).values()
    }
    others, formats = [], list(FORMATS)
    for folder in _unread_folders(found.root, used)[:_MAX_UNREAD]:
        own = _find_in(folder, formats)[0]
        own = own or _find_below(folder, formats, everywhere=False)[0]
        others += [s for s in own if (s.format, s.path) not in known]
    for source in others[:_MAX_TOLD]:
        print(
            f"  {str(source.path)!r} is {source.described} as well, which is not read: "
            "pass that folder to read it"
        )
    if len(others) > _MAX_TOLD:
        print(f"  and {len(others) - _MAX_TOLD} more datasets are not read")


def _unread_folders(root, used):
    """The folders below one with images, none of which is in a folder of `used`.

    Those that hold others are not among them: the outermost is.
    """
    read = used.union(str(p) for folder in used for p in pathlib.Path(folder).parents)
    found = []
    for place, folders, _ in walk(root, depth=_DEPTH):
        folders[:] = [name for name in folders if name.lower() not in NO_DATA_FOLDERS]
        is_read = place == root or os.path.realpath(place) in read
        if is_read or not _count_images(place):
            continue
        found.append(place)
        folders.clear()
    return found


@contextlib.contextmanager
def _collector_off():
    """Context without Python's garbage collector of cycles, of which readers make none.

    It looks through all boxes again and again: two fifths of the time to read 840,000.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _without_whole(splits, found):
    """The splits without one that is all of them together, such as `all_labels.csv`."""
    if not _is_divided(found):
        return splits
    parts = [name for name in splits if role_of_split(name) is not None]
    known = {r.image for name in parts for r in splits[name].records}
    for name in splits.keys() - parts:
        if all(
            isinstance(r.image, str) and r.image in known for r in splits[name].records
        ):
            print(f"  {name!r} is left out: its images are those of {', '.join(parts)}")
            splits = {k: v for k, v in splits.items() if k != name}
    return splits


# Formats of which an image that no annotation names is not read; others tell of it.
_WITHOUT_NEGATIVES = (
    "coco",
    "csv",
    "cvat",
    "labelme",
    "via",
    "create_ml",
    "keras_txt",
    "edge_impulse",
    "voc",
)


def _tell_of_unlisted(splits, found):
    """The splits, with a warning and a problem of images beside theirs.

    These are images in the folders of those that were read, of which no annotation is.
    One that is called after an image that was read, such as `a_mask.png`, is none.
    """
    if found.format not in _WITHOUT_NEGATIVES or is_remote(found.root):
        return splits
    real = functools.cache(os.path.realpath)
    names = collections.defaultdict(set)  # that were read, in each folder
    for dataset in splits.values():
        for record in dataset.records:
            if isinstance(record.image, str) and not is_remote(record.image):
                folder, name = os.path.split(record.image)
                names[real(folder)].add(name)
    left = []
    for folder, known in names.items():
        beside = [
            name
            for name in names_in(pathlib.Path(folder))[1]
            if name not in known and name.lower().endswith(IMAGE_SUFFIXES)
        ]
        stems = {name.rpartition(".")[0] for name in known} if beside else set()
        left += [os.path.join(folder, n) for n in beside if not _is_derived(n, stems)]
    if left and found.format == "voc":  # whose lists leave out some, with xml files
        kinds = {p.kind for dataset in splits.values() for p in dataset.problems}
        annotated = _stems_of_xml_files(found.root)
        left = [n for n in left if pathlib.Path(n).stem not in annotated]
        left = left if "unlisted images" not in kinds else []
    if not left:
        return splits
    count = sum(map(len, names.values())) + len(left)
    verb = "is" if len(left) == 1 else "are"
    text = (
        f"{len(left):,} of {count_of(count, 'image')} {verb} not read, because no "
        f"annotation of {', '.join(map(repr, splits))} names it, such as {left[0]!r}"
    )
    warnings.warn(f"{os.fspath(found.path)!r}: {text}", stacklevel=3)
    first = first_to_train_on(splits)
    problem = Problem("unlisted images", os.path.dirname(left[0]), text)
    return splits | {first: splits[first]._with_problem(problem)}


def _stems_of_xml_files(root):
    stems = {
        name[:-4]
        for _, _, names in walk(root, depth=_DEPTH)
        for name in names
        if name.lower().endswith(".xml")
    }
    return stems | {os.path.splitext(stem)[0] for stem in stems}  # of a.jpg.xml


def _is_derived(name, stems):
    """Whether a name begins with that of another image, and goes on after it."""
    stem = name.rpartition(".")[0]
    ends = (match.start() for match in re.finditer(r"[_\-. ]", stem))
    return stem in stems or any(stem[:end] in stems for end in ends)


_FEW_BOXES = 10


def _tell_of_other_classes(splits, source):
    """Warns of splits that share no class with the one to train on.

    That a split with a few boxes has none of its classes may be chance.
    """
    train = first_to_train_on(splits)
    if role_of_split(train) != "train" or len(splits) < 2:
        return
    classes = {}  # that each split has boxes of, in lower case
    for name, dataset in splits.items():
        labels = concat_field(dataset.records, "labels").tolist()
        if len(labels) >= _FEW_BOXES:
            classes[name] = {dataset.class_names[i].casefold() for i in set(labels)}
    of_train = classes.get(train, set())
    others = [s for s, of in classes.items() if of_train and of.isdisjoint(of_train)]
    if others:
        there, here = min(classes[others[0]]), min(of_train)
        warnings.warn(
            f"{os.fspath(source)!r}: no class of {', '.join(map(repr, others))} is in "
            f"{train!r} (as {there!r} there and {here!r} here): they may be other "
            "datasets; if they are, put each into a folder of its own",
            stacklevel=3,
        )


_MAX_WITHOUT_ROLE = 2  # splits, such as two files of which one was to be read


def _tell_of_shared(splits, source):
    """The splits, with a warning and a problem of images that are in two of them.

    `source` is the path of all, or a list of their paths.
    """
    source = ", ".join(source) if isinstance(source, list) else os.fspath(source)
    told = dict(splits)
    names = [name for name in splits if role_of_split(name) is not None]
    if len(splits) - len(names) <= _MAX_WITHOUT_ROLE:
        names = list(splits)  # more are folds, which share images on purpose
    for i, second in enumerate(names):
        for first in names[:i]:
            shared = shared_images(splits[first].records, splits[second].records)
            if not shared:
                continue
            text = _describe_shared(first, second, len(shared), splits)
            warnings.warn(f"{source!r}: {text}", stacklevel=3)
            problem = Problem("shared images", second, text)
            told[second] = told[second]._with_problem(problem)
    return told


def _describe_shared(first, second, count, splits):
    if count == len(splits[first]) == len(splits[second]):
        what = f"{first!r} and {second!r} are the same {count_of(count, 'image')}"
    else:
        what = (
            f"{count:,} of the {count_of(len(splits[second]), 'image')} of {second!r} "
            f"are in {first!r} as well"
        )
    return f"{what}: an evaluation on them says nothing of other images"


def _tell_of_one_folder(found, split):
    """Warns if a split has the folders that another one has in its data.yaml."""
    if len(found.readers) == 1:
        return
    with dataset_root(found.root):
        layout = find_layout(found.path)
    places = {
        name: sorted(map(os.path.realpath, map(str, places)))
        for name, places in layout.splits.items()
    }
    same = [name for name in places if name != split and places[name] == places[split]]
    if same:
        warnings.warn(
            f"{str(found.path)!r}: {split!r} and {same[0]!r} are the same images, of "
            f"{places[split][0]!r}: an evaluation on them says nothing of other images",
            stacklevel=3,
        )


def _with_same_classes(splits):
    """Returns the splits with the same class names and category ids in all of them."""
    classes = {(d.class_names, d.category_ids) for d in splits.values()}
    if len(classes) <= 1:
        return splits
    pairs = {pair for names, ids in classes for pair in zip(ids, names)}
    names = {name for _, name in pairs}
    if len({class_names for class_names, _ in classes}) == 1:
        first = next(iter(splits.values()))  # with `class_names=`: only ids differ
        class_names, category_ids = first.class_names, first.category_ids
    elif len(pairs) == len(names) == len({i for i, _ in pairs}):
        category_ids, class_names = zip(*sorted(pairs))
    else:  # the ids of one split mean other classes than those of another
        class_names, category_ids = tuple(sorted(names)), None
    return {
        split: dataset._relabelled(class_names, category_ids, problems=dataset.problems)
        for split, dataset in splits.items()
    }


# --- Finds out in which format a file or folder holds annotated images.

_SHOWN = 8  # entries of a folder, in a message
_DEPTH = 4  # folders below the one that is named, in which a dataset is looked for
_MAX_FOLDERS = 500  # looked into, of a tree that may have thousands


@dataclasses.dataclass(frozen=True)
class Source:
    """A dataset that was found, and what reads each of its splits."""

    format: str
    path: pathlib.Path
    readers: Mapping[str, Callable]
    root: pathlib.Path  # what the user named: images lie below it
    note: str = ""  # what else was found, and not taken
    others: tuple[Source, ...] = ()  # those of `note`

    def __str__(self):
        return f"{str(self.path)!r} is {self.described}{self.note}"

    @property
    def described(self):
        """The format, and the names of the splits."""
        return f"{FORMATS[self.format].title}: splits {', '.join(self.readers)}"


def find(path: str | os.PathLike[str], format: str | None = None) -> Source:
    """Finds the one dataset that a path stands for.

    It is what the folder itself holds, or a folder for each split; else what is in a
    folder below, if one is a dataset.

    Raises:
        FileNotFoundError: If there is no such file or folder.
        ValueError: If no dataset is found, or several of different images.
    """
    if format is not None:
        check_choice("format", format, FORMATS, ", or None to find it out")
    name = os.fspath(path)
    path = path_of(path)
    if path.name in ("", ".."):  # ".", whose own name may be that of a split
        path = path if is_remote(path) else pathlib.Path(os.path.abspath(path))
    formats = list(FORMATS) if format is None else [format]
    is_host = path.parent == path
    if is_remote(path) and not path.is_listed and (is_host or not path.suffix):
        path.iterdir()  # raises, and says what to do
    if not exists(path):
        if glob.has_magic(name) and not is_remote(name):
            return _find_by_pattern(name, format)
        raise FileNotFoundError(
            f"There is no dataset {name!r}: it must be the path of a file or a folder"
        )
    with dataset_root(path), listing_once():
        found, notes = _find_in(path, formats)
        if path.is_dir() and not _has_training(found):
            below, notes_below = _find_below(path, formats)
            read = {(s.format, p) for s in found for p in split_folders(path).values()}
            found += [s for s in below if (s.format, s.path) not in read]
            notes += notes_below
        if not found:
            raise InvalidValueError(_describe_unknown(path, formats, notes))
        inner = _find_inside(found, formats) if path.is_dir() else []
    found = [dataclasses.replace(source, root=path) for source in found]
    inner = [dataclasses.replace(source, root=path) for source in inner]
    is_one = len(found) == 1 and not inner
    return found[0] if is_one else _choose(found, inner, path)


_EVALUATION = ("test", "validation")  # roles of splits


def _has_training(found):
    """Whether there is more than a split for evaluation, whose other half is below."""
    names = [name for source in found for name in source.readers]
    return any(role_of_split(name) not in _EVALUATION for name in names)


def _set_aside(contents, path):
    """Divides datasets into those that are meant, and smaller ones of other images.

    The smaller ones are for tests alone, or far below, such as the samples of a program
    in its code.

    Returns:
        Two lists. The second is empty unless all of the first have the same images.
    """

    def is_minor(content):
        roles = {role_of_split(name) for name in content.source.readers}
        depth = len(content.source.path.parts) - len(path.parts)
        return roles == {"test"} or depth >= _DEPTH

    first = next((c for c in contents if not is_minor(c)), None)
    if first is None:
        return contents, []
    others = [c for c in contents if not _is_same(first, c)]
    if not all(is_minor(c) and len(c.boxes_of) <= len(first.boxes_of) for c in others):
        return contents, []
    return [c for c in contents if all(c is not other for other in others)], others


def _is_divided(source):
    """Whether a dataset has a split to train on, and one to evaluate on."""
    roles = {role_of_split(name) for name in source.readers}
    training = splits_of_role(source.readers, "train")
    return bool(training and roles.intersection(_EVALUATION))


def _lacks_names(source):
    """Whether nothing names its classes: another format of its images may do so."""
    return source.format == "yolo" and not find_layout(source.path).names


def _find_inside(found, formats):
    """The datasets in the folders of those found, if none of these is divided.

    They may be the same images with the splits of their author, such as the csv files
    of `data/`; or be whole, where images of what was found are not there.
    """
    if any(_is_divided(s) and not _lacks_names(s) for s in found):
        return []
    known = {(source.format, *source.readers) for source in found}
    places = dict.fromkeys(source.path for source in found if source.path.is_dir())
    inner = [s for p in places for s in _find_below(p, formats, everywhere=False)[0]]
    # The folder of its annotations, by itself, is the same dataset.
    return [
        s
        for s in inner
        if s.path.name.lower() not in ANNOTATION_FOLDERS
        or (s.format, *s.readers) not in known
    ]


def _find_by_pattern(pattern, format):
    """The TFRecord files of a pattern: no other format has its images in several."""
    rule = f"A pattern such as {pattern!r} is for TFRecord files: leave `format` out"
    require(format in (None, "tfrecord"), rule, format=format)
    readers = pattern_readers(pattern)
    if not readers:
        raise InvalidValueError(
            f"No file of {pattern!r} has the name of TFRecord files, such as "
            "'train-00000-of-00032.tfrecord' or 'train.record'."
        )
    path = pathlib.Path(pattern)
    return Source("tfrecord", path, readers, path.parent)


def _find_in(path, formats):
    """The datasets of a path, one per format, and why others were not found.

    A folder has a dataset of its own, or one for each split in folders such as `train`
    and `valid`, or both, in two formats. A split may be in folders again, such as
    `train/0` and `train/1`.
    """
    found, notes = _find_own(path, formats)
    if not path.is_dir():
        return found, notes
    others = [name for name in formats if name not in {s.format for s in found}]
    readers = collections.defaultdict(dict)
    for split, folder in split_folders(path).items():
        inner, inner_notes = _find_own(folder, others)
        notes += inner_notes
        for source in inner:
            if len(source.readers) == 1:
                (readers[source.format][split],) = source.readers.values()
        if not inner and not any(split in source.readers for source in found):
            for format, read in _find_parts(folder, formats).items():
                readers[format][split] = read
    # A format that reads folders of splits itself lacks those in folders again.
    for i, source in enumerate(found):
        if all(role_of_split(split) is not None for split in source.readers):
            more = readers.pop(source.format, {})
            found[i] = dataclasses.replace(source, readers={**source.readers, **more})
    known = [source.format for source in found]
    found += [
        Source(format, path, splits, path)
        for format, splits in readers.items()
        if format not in known
    ]
    return found, notes


def _find_parts(folder, formats):
    """A reader for each format in which the folders in a folder are one split.

    Every folder with images is one of that format, without splits. YOLO's own reader
    knows such folders: the numbers of its classes may be those of each.
    """
    places = visible_folders(folder)
    if len(places) > _MAX_FOLDERS:  # of classes, as for classification
        return {}
    formats = [name for name in formats if name != "yolo"]
    with_images, parts = set(), collections.defaultdict(dict)
    for place in places:
        if place.name.lower() in NO_DATA_FOLDERS:
            continue
        if _count_images(place):
            with_images.add(place)
        for source in _find_own(place, formats)[0]:
            if len(source.readers) == 1:
                (parts[source.format][place],) = source.readers.values()
    return {
        format: functools.partial(_read_joined, readers)
        for format, readers in parts.items()
        if with_images <= readers.keys()
    }


def _read_joined(readers, **options):
    """One dataset of the parts of a split, by their folders.

    Raises:
        ValueError: If two have the same images, as versions of one dataset.
    """
    parts = _read_splits(readers, **options)
    for (one, first), (other, second) in itertools.combinations(parts.items(), 2):
        if _are_versions(first.records, second.records):
            raise InvalidValueError(
                f"{str(one)!r} and {str(other)!r} have images of the same names that "
                "look alike: they are no parts of one dataset. Pass the folder of one"
            )
    names = ", ".join(repr(place.name) for place in parts)
    print(f"  {str(next(iter(parts)).parent)!r} is read from the folders {names}")
    first, *others = parts.values()
    return first.concatenate(*others)


def _are_versions(one, other):
    """Whether most images of equal names, of two lists of records, look alike."""
    by_name = {record.name.rpartition("/")[2]: record for record in one}
    names = (record.name.rpartition("/")[2] for record in other)
    pairs = [(by_name[n], r) for n, r in zip(names, other) if n in by_name]
    if 2 * len(pairs) <= min(len(one), len(other)):
        return False
    pairs = pairs[:: len(pairs) // _COMPARED + 1]
    count = len(pairs)
    hashes = hash_images([record for records in zip(*pairs) for record in records])
    alike = hashes.are_alike(range(count), range(count, 2 * count))
    return 2 * int(np.sum(alike)) > count


def _find_own(path, formats):
    """The datasets of a path itself, one per format, and why others were not found."""
    found, notes = [], []
    for format in formats:
        try:
            readers = FORMATS[format].readers(path)
        except (ValueError, OSError) as error:
            # Of a folder, FileNotFoundError only means that it holds another format.
            if path.is_file() or type(error) is not FileNotFoundError:
                notes.append(f"{FORMATS[format].title}: {error}")
            continue
        except ImportError as error:  # of a file that may be of another dataset
            if len(formats) == 1:
                raise
            notes.append(f"{FORMATS[format].title}: {error}")
            continue
        if readers:
            found.append(Source(format, path, readers, path))
    if any(f.format == "tfds" for f in found):  # TFRecord files and a description
        found = [f for f in found if f.format != "tfrecord"]
    return found, notes


def _find_below(path, formats, everywhere=True):
    """The datasets in the folders below a folder, none of them inside another.

    Those in folders of models, caches and the like count if there are no others, and
    `everywhere` says so.
    """
    found, notes, left_out, count = [], [], [], 0
    level = [path]
    for _ in range(_DEPTH):
        inner = [folder for place in level for folder in _folders_of(place)]
        left_out += [
            folder for folder in inner if folder.name.lower() in NO_DATA_FOLDERS
        ]
        inner = [folder for folder in inner if folder not in left_out]
        inner = inner[: _MAX_FOLDERS - count]
        level = []
        for folder in inner:
            own, own_notes = _find_in(folder, formats)
            found += own
            notes += own_notes
            if not own:
                level.append(folder)
        count += len(inner)
    if found or not everywhere:
        return found, notes
    for folder in left_out[:_MAX_FOLDERS]:  # a dataset that is nowhere else
        own, _ = _find_in(folder, formats)
        inner = [] if own else _folders_of(folder)
        found += own
        found += [source for place in inner for source in _find_in(place, formats)[0]]
    return found, notes


def _folders_of(place):
    try:
        return visible_folders(place)
    except OSError:
        return []  # that may not be read


# --- Of several datasets that were found, the one that is meant.


@dataclasses.dataclass(frozen=True)
class _Content:
    """What one of several datasets holds, to compare it with another."""

    source: Source
    readers: Mapping[str, Callable]  # those of the source, which need not read again
    boxes_of: Mapping[str, int]  # number of boxes of each image, by its name
    files_of: Mapping[str, list]  # the files of each name: none inside larger files
    num_boxes: int
    means_of: Mapping[str, np.ndarray]  # the mean of the boxes of each image, `xywh`
    num_usable: int  # boxes that can be trained on
    kinds: Set[str]  # of its problems

    @property
    def is_doubtful(self):
        """Whether a file does not say what its images or numbers are."""
        return not self.kinds.isdisjoint(_DOUBTS)

    @property
    def is_sound(self):
        """Whether nothing of it is an error."""
        return all(KINDS[kind].severity is not Severity.ERROR for kind in self.kinds)

    @property
    def counted(self):
        images = count_of(len(self.boxes_of), "image")
        return f"{count_of(self.num_boxes, 'box', 'boxes')} in {images}"


def _choose(found, inner, path):
    """Of several datasets the one to read, where all hold the same images.

    Those inside of others count where the others cannot be read, or where they have the
    same images and are divided.
    """
    contents, unread = _read_all(found)
    if contents:
        divided, _ = _read_all(filter(_is_divided, inner))
        contents += [c for c in divided if _is_same(contents[0], c)]
    else:
        contents, _ = _read_all(inner)
    without_package = [s for s, error in unread if isinstance(error, ImportError)]
    if without_package and not any(content.num_boxes for content in contents):
        return without_package[0]  # whose reader says what to install
    unread_notes = "".join(_note_of_unread(*pair) for pair in unread)
    told = tuple(source for source, _ in unread)
    if len(contents) == 1:
        (content,) = contents
        return dataclasses.replace(
            content.source, readers=content.readers, note=unread_notes, others=told
        )
    if not contents and len(found) == 1:
        return found[0]  # whose reader says why it cannot be read
    found = [*found, *inner]
    most = max((len(content.boxes_of) for content in contents), default=0)
    annotated = {n for c in contents for n, count in c.boxes_of.items() if count}

    def num_known(content):
        # Images without boxes here that have some in another format are not known here.
        counts = content.boxes_of
        return sum(count > 0 or n not in annotated for n, count in counts.items())

    most_usable = max((content.num_usable for content in contents), default=0)
    most_known = max(map(num_known, contents), default=0)

    def is_sound(content):
        has_most = content.num_usable >= _MOST * most_usable
        has_most &= num_known(content) >= _MOST * most_known
        has_names = "classes without names" not in content.kinds
        return content.is_sound and has_names and has_most

    def worth(content):
        counts = content.boxes_of
        is_divided = _is_divided(content.source)
        is_whole = 2 * len(counts) >= most
        return (
            is_divided and is_whole,
            is_sound(content),
            num_known(content),
            content.num_usable,
            not content.is_doubtful,
            -found.index(content.source),
        )

    contents.sort(key=worth, reverse=True)
    if not contents:
        kinds = ", ".join(dict.fromkeys(FORMATS[s.format].title for s in found))
        other = describe_other_files(path)
        other = f". {other}" if other else ""
        reasons = (
            f"\n  {str(s.path)!r}, {s.described}: {error or 'no image is there'}"
            for s, error in unread[:_SHOWN]
        )
        raise InvalidValueError(
            f"{str(path)!r} holds annotations ({kinds}), but none of their images is "
            "below it, or none can be read. Put the images beside them"
            f"{other}{''.join(reasons)}"
        )
    contents, aside = _set_aside(contents, path)
    if not all(_is_same(contents[0], c) for c in contents[1:]):
        contents.sort(key=lambda content: found.index(content.source))
        raise InvalidValueError(_describe_several(contents, path))
    first, others = contents[0], contents[1:]
    notes = "".join(_note_of_other(first, other) for other in others[:_SHOWN])
    if len(others) > _SHOWN:
        notes += f"\n  and in {len(others) - _SHOWN} more, which are not read"
    notes += "".join(
        f"\n  {str(c.source.path)!r} is {c.source.described} as well, of other "
        f"images, which is not read: {c.counted}. Pass format={c.source.format!r} "
        "(--format) or its folder for that."
        for c in aside[:_SHOWN]
    )
    notes += unread_notes
    others = (*told, *(content.source for content in (*others, *aside)))
    return dataclasses.replace(
        first.source, readers=first.readers, note=notes, others=others
    )


def _read_all(sources):
    """What datasets hold; and those that cannot be read, each with its error."""
    results = [(source, _content_of(source)) for source in sources]
    contents = [content for _, content in results if isinstance(content, _Content)]
    return contents, [pair for pair in results if not isinstance(pair[1], _Content)]


_MOST = 0.95  # of boxes and images, with which one without an error is preferred
_DOUBTS = ("box columns", "classes without names", "images without txt file")


def _content_of(source):
    """What a dataset holds, or the error where it cannot be read; None: no image."""
    tally, readers, kinds = _Tally(), {}, set()
    num_unusable, without_class = 0, None
    try:
        with dataset_root(source.root), _collector_off():
            for split, read in source.readers.items():
                with warnings.catch_warnings(record=True) as told:
                    warnings.simplefilter("always")
                    try:
                        dataset = read(on_error="skip")
                    except NoClassError as error:  # the other splits may have objects
                        readers[split], without_class = read, error
                        continue
                is_clean = not told and not dataset.problems
                again = functools.partial(_read_again, dataset, read)
                readers[split] = again if is_clean else read
                kinds |= {problem.kind for problem in dataset.problems}
                num_unusable += int(np.sum(count_unusable(dataset.records)))
                for record in dataset.records:
                    tally.add(record)
    except (ValueError, OSError, ImportError) as error:
        return error
    if not tally.boxes_of:
        return without_class
    num_boxes = sum(tally.boxes_of.values())
    return _Content(
        source,
        readers,
        tally.boxes_of,
        tally.files_of,
        num_boxes,
        tally.means_of,
        num_boxes - num_unusable,
        kinds,
    )


class _Tally:
    """Boxes and files of images by their names, as `_Content` has them."""

    def __init__(self):
        self.boxes_of = collections.Counter()
        self.files_of = collections.defaultdict(list)
        self.means_of = {}
        self._seen = {}  # the boxes of each file

    def add(self, record):
        """Adds the image of a record, or the boxes that another split has not."""
        is_file = isinstance(record.image, str)
        name = record.image if is_file else record.file_name
        name = name.replace("\\", "/").rpartition("/")[2]
        name = name.rpartition(".")[0] or name
        if is_file and record.image in self._seen:
            before = self._seen[record.image]
            both = np.unique(np.concatenate([before, record.boxes_xywh]), axis=0)
            self._seen[record.image] = both
            self.boxes_of[name] += max(len(both) - len(before), 0)
            return
        if is_file:
            self._seen[record.image] = record.boxes_xywh
            if not is_remote(record.image):
                self.files_of[name].append(record.image)
        if name in self.boxes_of:
            self.means_of.pop(name, None)  # of two images, in any order
        elif len(record.labels):
            self.means_of[name] = record.boxes_xywh.mean(axis=0)
        self.boxes_of[name] += len(record.labels)


def _read_again(known, read, *, class_names=None, on_error="raise", **options):
    """What was read to compare it: a dataset without a problem, if as asked for."""
    if class_names is None and not options:
        return known
    return read(class_names=class_names, on_error=on_error, **options)


_COMPARED = 20  # pairs of images of one name, of which the bytes are compared


def _is_same(one, other):
    """Whether most images of the smaller of two datasets are in the other.

    Frames of two videos have the same names: the bytes of some tell.
    """
    shared = sorted(one.boxes_of.keys() & other.boxes_of.keys())
    some = shared[:: len(shared) // _COMPARED + 1]
    num_same = sum(_is_one_image(name, one, other) for name in some)
    count = len(shared) * num_same / max(len(some), 1)
    return 2 * count >= min(len(one.boxes_of), len(other.boxes_of))


def _is_one_image(name, one, other):
    """Whether two datasets have the same image of a name, as far as files tell."""
    here, there = one.files_of.get(name, ()), other.files_of.get(name, ())
    if not here or not there:
        return True
    return any(is_copy(first, second) for first in here for second in there)


def _owner_of(content, contents):
    """The content in whose folder the images of another one lie, or None."""
    if _has_own_images(content):
        return None
    owners = [other for other in contents if _has_own_images(other)]
    return next((owner for owner in owners if _is_same(content, owner)), None)


def _has_own_images(content):
    """Whether an image of a content lies below its path, or in larger files there."""
    root = os.path.realpath(content.source.path)
    files = itertools.chain(*content.files_of.values())
    first = [os.path.realpath(file) for file in itertools.islice(files, _COMPARED)]
    return not first or any(file.startswith(root + os.sep) for file in first)


def _note_of_other(chosen, other):
    """A line that says what else holds the same images, and whether it differs."""
    title = FORMATS[other.source.format].title
    line = f"\n  The same images are in {str(other.source.path)!r} as {title}"
    names = sorted(chosen.boxes_of.keys() | other.boxes_of.keys())
    pairs = ((n, chosen.boxes_of.get(n), other.boxes_of.get(n)) for n in names)
    different = [pair for pair in pairs if pair[1] != pair[2]]
    cure = f"Pass format={other.source.format!r} (--format) or its folder for that"
    if not different:
        moved = [name for name in chosen.means_of if _is_elsewhere(name, chosen, other)]
        if not moved:
            return f"{line}, which is not read: {chosen.counted} in both."
        means = (
            _describe_mean(content.means_of[moved[0]]) for content in (chosen, other)
        )
        return (
            f"{line}, which is not read and differs: {chosen.counted} in both, but "
            f"those of {count_of(len(moved), 'image')} lie elsewhere, such as "
            f"{moved[0]!r}, on average: {' here, '.join(means)} there. {cure}."
        )
    name, here, there = different[0]
    here, there = ("no annotation" if n is None else n for n in (here, there))
    how = "1 image differs"
    if len(different) > 1:
        how = f"{len(different):,} images differ"
    how += f", such as {name!r}: {here} and {there}"
    return (
        f"{line}, which is not read and differs: {chosen.counted} here, "
        f"{other.counted} there. {how}. {cure}."
    )


_ELSEWHERE = 0.2  # of the sides of boxes: more than counting from 1 and rounding move


def _is_elsewhere(name, one, other):
    """Whether the boxes of an image lie elsewhere in another of its formats."""
    if name not in other.means_of:
        return False
    here, there = one.means_of[name], other.means_of[name]
    room = np.maximum(_ELSEWHERE * np.tile(here[2:], 2), 3)
    return bool((np.abs(here - there) > room).any())


def _describe_mean(box_xywh):
    left, top, width, height = box_xywh.tolist()
    return f"left {left:.0f}, top {top:.0f}, width {width:.0f}, height {height:.0f}"


def _note_of_unread(source, error):
    """A line that says what was found as well, but cannot be read."""
    reason = (
        "none of its images is there, or it is damaged. Pass "
        f"format={source.format!r} (--format) to see why."
    )
    if isinstance(error, ImportError):
        reason = str(error)
    line = f"{str(source.path)!r} is {source.described} as well, which is not read"
    return f"\n  {line}: {reason}"


def _describe(content, contents):
    """A line of an error that lists several contents."""
    source = content.source
    line = f"{str(source.path)!r} is {source.described}; {content.counted}"
    owner = _owner_of(content, contents)
    line += "" if owner is None else f", those of {str(owner.source.path)!r}"
    return line if content.is_sound else f"{line}, without what cannot be read"


def _describe_several(contents, path):
    shown = "".join(f"\n  {_describe(c, contents)}" for c in contents[:_SHOWN])
    more = f"\n  and {len(contents) - _SHOWN} more" if len(contents) > _SHOWN else ""
    if len({c.source.path for c in contents}) == 1:
        names = [c.source.format for c in contents]
        return (
            f"{str(path)!r} holds annotations in {len(contents)} formats: choose one "
            f"with `format` (--format of a command), of {names}.{shown}{more}"
        )
    return (
        f"{str(path)!r} holds {len(contents)} datasets of different images: pass the "
        f"folder of one of them.{shown}{more}"
    )


def _count_images(path):
    """The number of images in a folder and in those below it."""
    return sum(
        name.lower().endswith(IMAGE_SUFFIXES)
        for _, _, names in walk(path, depth=_DEPTH)
        for name in names
    )


def _describe_unknown(path, formats, notes):
    holds = "which is a file"
    if path.is_dir():
        folders, files = names_in(path)
        names = sorted([*(f"{name}/" for name in folders), *files])
        more = ", ..." if len(names) > _SHOWN else ""
        count = _count_images(path)
        if count:
            more += f" and {count_of(count, 'image')} in all"
        holds = f"which holds {', '.join(names[:_SHOWN]) or 'nothing'}{more}"
    looked = ", ".join(FORMATS[format].title for format in formats)
    troubles = f". Not readable: {'; '.join(dict.fromkeys(notes))}" if notes else ""
    for text in (describe_unknown_files(path), describe_other_files(path)):
        troubles += f". {text}" if text else ""
    return (
        f"No dataset was found in {str(path)!r}, {holds}. Looked for {looked}, as "
        f"`ek.data.from_coco` and so on describe them, there and in the folders "
        f"below{troubles}"
    )
