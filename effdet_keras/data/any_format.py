"""`load` and `convert`: annotated images in whatever known format a path holds."""

from __future__ import annotations

import dataclasses
import functools
import glob
import os
import pathlib
from collections.abc import Callable, Mapping

from effdet_keras._internal.extras import extra
from effdet_keras._internal.remote_path import (
    exists,
    kept_if_readable,
    local_copy,
    path_of,
)
from effdet_keras._internal.whole_files import is_remote, local_path
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.formats.coco import coco_readers, write_coco
from effdet_keras.data.formats.csv import csv_readers, write_csv
from effdet_keras.data.formats.label_map import ClassNames
from effdet_keras.data.formats.reading import ONE_SPLIT, chosen_split
from effdet_keras.data.formats.tfrecord import (
    from_tfrecord,
    tfrecord_readers,
    write_tfrecord,
)
from effdet_keras.data.formats.voc import voc_readers, write_voc
from effdet_keras.data.formats.yolo import write_yolo, yolo_readers
from effdet_keras.errors import InvalidValueError, check_choice, require


@dataclasses.dataclass(frozen=True)
class Format:
    """A format of annotations on disk."""

    title: str
    # Of a path that exists: the name of each split there, and the function that reads
    # it. It is empty, or ValueError or OSError is raised, where the format is another.
    readers: Callable[[pathlib.Path], Mapping[str, Callable]]
    write: Callable | None  # None where it is read alone
    looks_for: str  # for messages
    reads_addresses: bool = True
    has_masks: bool = False  # whether its readers take `masks`


FORMATS = {
    "coco": Format(
        "COCO json",
        coco_readers,
        write_coco,
        "*.json with images, annotations and categories, also in annotations/ and in "
        "the folders of splits",
        has_masks=True,
    ),
    "voc": Format(
        "Pascal VOC",
        voc_readers,
        write_voc,
        "Annotations/*.xml or annotations/*.xml, or *.xml beside the images",
    ),
    "yolo": Format(
        "YOLO",
        yolo_readers,
        write_yolo,
        "a data.yaml, a .data file, images/ and labels/, or *.txt beside the images",
    ),
    "csv": Format(
        "CSV",
        csv_readers,
        write_csv,
        "*.csv with the header of the Object Detection API, or rows of AutoML or "
        "RetinaNet, also in a folder beside the images",
    ),
    "tfrecord": Format(
        "TFRecord",
        tfrecord_readers,
        write_tfrecord,
        "*.tfrecord, *.record, also in shards",
        reads_addresses=False,
        has_masks=True,
    ),
    "tfds": Format(
        "TensorFlow Datasets",
        lambda path: extra("tfds:tfds_readers")(path),
        None,
        "dataset_info.json and features.json",
        reads_addresses=False,
    ),
}


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

    Prints one line that says which format was found: COCO json, Pascal VOC, YOLO, CSV,
    TFRecord or TensorFlow Datasets. What each may look like is said at its reader, such
    as `from_coco`. A folder that holds nothing but another one is read as that.

    Args:
        path: file or folder; or the address of one, such as `s3://bucket/cats`
            (docs/remote_files.md), unless it is TFRecord or TensorFlow Datasets.
        split: name of a split, such as "train". None reads the only one.
        format: "coco", "voc", "yolo", "csv", "tfrecord" or "tfds", where a folder holds
            several. None finds it out.
        class_names: names in the order of the labels, to bring a second dataset in line
            with a first one: pass the first dataset's `class_names`, which may have
            classes that are not in this one. Or a label map: a dict from category id to
            name, "coco", "voc", "waymo", or the path of a .pbtxt, .json or .yaml file.
            None takes the names in the data.
        on_error: "raise" raises one error that names everything that is wrong; "skip"
            leaves it out, warns, and lists it in `dataset.problems`.
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
        >>> from effdet_keras.data.shapes import write_shapes
        >>> folder = tempfile.mkdtemp()
        >>> _ = write_shapes(folder, num_train=3, num_valid=2)
        >>> len(load(folder, "valid"))
        '/...' is COCO json: splits train, valid
        2
        >>> list(load_splits(folder))
        '/...' is COCO json: splits train, valid
        ['train', 'valid']
    """
    found = find(path, format)
    print(found)
    read = found.readers[chosen_split(found.readers, split, path)]
    options = _options(found, masks)
    return read(class_names=class_names, on_error=on_error, **options)


def load_splits(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    class_names: ClassNames | None = None,
    on_error: str = "raise",
    masks: bool = False,
) -> dict[str, DetectionDataset]:
    """Reads all splits of a file or folder: see `load`.

    All splits get the same classes, even if some lack a class that others have. VOC's
    `trainval` is left out if there are `train` and `val`.

    Args:
        path, format, class_names, on_error, masks: as for `load`.

    Returns:
        Dict from split name to `DetectionDataset`. Data without splits are "train".

    Raises:
        FileNotFoundError, ValueError: As `load` does.

    Example: see `load`.
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


def convert(
    data: str | os.PathLike[str],
    out: str | os.PathLike[str],
    to: str,
    *,
    split: str | None = None,
    format: str | None = None,
    num_shards: int | None = None,
    csv_format: str | None = None,
    on_error: str = "raise",
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
        csv_format: "tfod" or "automl", for "csv" only. None is "tfod".
        on_error: "raise" raises one error that names everything that is wrong in the
            data; "skip" leaves it out with a warning.

    Returns:
        `None`.

    Raises:
        FileExistsError: If `out` is there.
        FileNotFoundError: If `data` is not there.
        ValueError: If `to` is unknown, an option does not belong to it, or as `load`
            and the writer do.

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
    rule = "`num_shards` is an option of 'tfrecord', `csv_format` one of 'csv'"
    is_fit = (to == "tfrecord" or num_shards is None) and (
        to == "csv" or not csv_format
    )
    require(is_fit, rule, to=to, num_shards=num_shards, csv_format=csv_format)
    options = {"num_shards": num_shards, "format": csv_format}
    options = {name: value for name, value in options.items() if value is not None}
    if os.path.lexists(out):  # before the reading, which may take long
        raise FileExistsError(
            "A dataset is never written over what is there. "
            f"Received: {os.fspath(out)!r}. Name another folder or remove it"
        )
    if split is None:
        datasets = load_splits(data, format=format, on_error=on_error)
    else:
        datasets = {split: load(data, split, format=format, on_error=on_error)}
    FORMATS[to].write(datasets, out, **options)
    print(f"{str(out)!r} is written")
    for name, dataset in datasets.items():
        print(f"  {name}: {dataset}")


def split_names(
    path: str | os.PathLike[str], *, format: str | None = None
) -> tuple[str, ...]:
    """The names of the splits of a dataset, without reading its annotations."""
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
    return {
        split: dataset._relabelled(class_names, category_ids, problems=dataset.problems)
        for split, dataset in splits.items()
    }


# --- Finds out in which format a file or folder holds annotated images.

_SHOWN = 8  # entries of a folder, in a message


@dataclasses.dataclass(frozen=True)
class Source:
    """A dataset that was found, and what reads each of its splits."""

    format: str
    path: pathlib.Path
    readers: Mapping[str, Callable]

    @property
    def title(self) -> str:
        """What messages call the format."""
        return FORMATS[self.format].title

    def __str__(self):
        return f"{str(self.path)!r} is {self.title}: splits {', '.join(self.readers)}"


def find(path: str | os.PathLike[str], format: str | None = None) -> Source:
    """Finds the one dataset that a path stands for."""
    if format is not None:
        check_choice("format", format, FORMATS, ", or None to find it out")
    name = os.fspath(path)
    path = path_of(path)
    formats = list(FORMATS) if format is None else [format]
    if is_remote(path):  # refuses at once what could not be found there
        if format is not None and not FORMATS[format].reads_addresses:
            local_path(path, f"A dataset of the format {FORMATS[format].title}")
        if not path.is_listed and (not path.suffix or path.parent == path):
            path.iterdir()  # raises, and says what to do
        formats = [name for name in formats if FORMATS[name].reads_addresses]
    if not exists(path):
        if "tfrecord" in formats and glob.has_magic(name) and glob.glob(name):
            reader = functools.partial(from_tfrecord, name)
            return Source("tfrecord", path, {ONE_SPLIT: reader})
        raise FileNotFoundError(
            f"A dataset must be a file or a folder. Received: {name!r}, which is "
            "not there"
        )
    found, notes = _find_all(path, formats)
    inner = path
    while not found and inner.is_dir():
        folders = [p for p in _entries(inner) if p.is_dir() and p.name != "__MACOSX"]
        if len(folders) != 1:
            break
        inner = folders[0]
        found, _ = _find_all(inner, formats)
    if not found:
        with kept_if_readable(local_copy(path) if path.is_file() else path):
            raise InvalidValueError(_describe_unknown(path, formats, notes))
    if len(found) > 1:
        choices = "; ".join(
            f"{f.title} (splits {', '.join(f.readers)}): load({name!r}, "
            f'format="{f.format}"), or --format {f.format} of a command'
            for f in found
        )
        raise InvalidValueError(
            f"{name!r} holds annotations in {len(found)} formats. Say which one to "
            f"read. {choices}"
        )
    return found[0]


def _find_all(path, formats):
    """The datasets of a path, one per format, and why others were not found."""
    found, notes = [], []
    for format in formats:
        try:
            readers = FORMATS[format].readers(path)
        except (ValueError, OSError) as error:
            # Of a folder, FileNotFoundError only means that it holds another format.
            if path.is_file() or not isinstance(error, FileNotFoundError):
                notes.append(f"{FORMATS[format].title}: {error}")
            continue
        if readers:
            found.append(Source(format, path, readers))
    if any(f.format == "tfds" for f in found):  # TFRecord files and a description
        found = [f for f in found if f.format != "tfrecord"]
    if len(found) > 1 and path.is_dir():
        # A csv in a folder of its own may be anything, such as results.
        found = [f for f in found if f.format != "csv" or any(path.glob("*.csv"))]
    return found, notes


def _entries(path):
    return sorted(p for p in path.iterdir() if not p.name.startswith("."))


def _describe_unknown(path, formats, notes):
    looked = "; ".join(f"{FORMATS[f].title}: {FORMATS[f].looks_for}" for f in formats)
    if path.is_dir():
        names = [p.name + "/" * p.is_dir() for p in _entries(path)]
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        holds = f"which holds {', '.join(names[:_SHOWN]) or 'nothing'}{more}"
    else:
        holds = "which is a file"
    what = "annotations of a known format"
    if len(formats) == 1:
        what = f"annotations of the format {formats[0]!r}"
    troubles = f". Not readable: {'; '.join(notes)}" if notes else ""
    return (
        f"No {what} were found in {str(path)!r}, {holds}. Looked for {looked}{troubles}"
    )
