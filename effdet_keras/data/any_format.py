"""`load` and `convert`: annotated images in whatever known format a path holds."""

from __future__ import annotations

import dataclasses
import glob
import os
import pathlib
from collections.abc import Callable, Mapping

from effdet_keras._internal.number_ranges import check_whole_number
from effdet_keras._internal.remote_path import exists, path_of
from effdet_keras._internal.whole_files import is_remote
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.formats.bdd import bdd_readers
from effdet_keras.data.formats.coco import coco_readers, write_coco
from effdet_keras.data.formats.create_ml import create_ml_readers
from effdet_keras.data.formats.csv import csv_readers, write_csv
from effdet_keras.data.formats.cvat import cvat_readers
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
from effdet_keras.data.formats.keras_txt import keras_txt_readers
from effdet_keras.data.formats.label_map import ClassNames
from effdet_keras.data.formats.label_studio import label_studio_readers
from effdet_keras.data.formats.labelme import labelme_readers
from effdet_keras.data.formats.reading import chosen_split
from effdet_keras.data.formats.supervisely import supervisely_readers
from effdet_keras.data.formats.tfrecord import (
    pattern_readers,
    tfrecord_readers,
    write_tfrecord,
)
from effdet_keras.data.formats.unknown import describe_unknown_files
from effdet_keras.data.formats.via import via_readers
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
    has_masks: bool = False  # whether its readers take `masks`


def _tfds_readers(path):
    from effdet_keras.extras.tfds import tfds_readers

    return tfds_readers(path)


FORMATS = {
    "coco": Format("COCO json", coco_readers, write_coco, has_masks=True),
    "voc": Format("Pascal VOC", voc_readers, write_voc),
    "yolo": Format("YOLO", yolo_readers, write_yolo),
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
) -> DetectionDataset:
    """Reads annotated images in whatever known format a file or folder has.

    Prints one line that says which format was found. What each may look like is said at
    its reader, such as `from_coco`. A folder that holds nothing but another one is read
    as that.

    Args:
        path: file or folder; or the address of one, such as `s3://bucket/cats`
            (docs/remote_files.md), unless it is TFRecord or TensorFlow Datasets; or a
            pattern of TFRecord files, such as `data/train-*.tfrecord`.
        split: name of a split, such as "train". None reads the only one.
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
    found = find(path, format)
    split = chosen_split(found.readers, split, path)
    return _read(found, [split], class_names, on_error, masks)[split]


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
    splits = dict.fromkeys(found.readers)
    if {"train", "val"} <= splits.keys():
        splits.pop("trainval", None)
    datasets = _read(found, splits, class_names, on_error, masks)
    return _with_same_classes(datasets)


def load_each(
    paths: Mapping[str, str | os.PathLike[str]],
    *,
    format: str | None = None,
    class_names: ClassNames | None = None,
    masks: bool = False,
) -> dict[str, DetectionDataset]:
    """Reads a dataset of its own for each split: as `load_splits`, of several paths.

    Args:
        paths: dict from the name of a split to what `load` takes, of which only one
            split is there.
        format, class_names, masks: as for `load`.
    """
    options = {"format": format, "class_names": class_names, "masks": masks}
    return _with_same_classes({n: load(p, **options) for n, p in paths.items()})


def convert(
    data: str | os.PathLike[str],
    out: str | os.PathLike[str],
    to: str,
    *,
    split: str | None = None,
    format: str | None = None,
    num_shards: int | None = None,
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
        on_error: as for `load`.

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
    if split is None:
        datasets = load_splits(data, format=format, on_error=on_error)
    else:
        datasets = {split: load(data, split, format=format, on_error=on_error)}
    FORMATS[to].write(datasets, out, **options)
    print(f"{str(out)!r} is written")
    for name, dataset in datasets.items():
        print(f"  {name}: {dataset}")


def _read(found, splits, class_names, on_error, masks):
    """The datasets of some splits, by their names."""
    print(found)
    options = {"class_names": class_names, "on_error": on_error}
    if masks:
        rule = "No masks are read from this format: add them with `dataset.with_masks`"
        require(FORMATS[found.format].has_masks, rule, format=found.format, masks=masks)
        options["masks"] = True
    return {split: found.readers[split](**options) for split in splits}


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


@dataclasses.dataclass(frozen=True)
class Source:
    """A dataset that was found, and what reads each of its splits."""

    format: str
    path: pathlib.Path
    readers: Mapping[str, Callable]

    def __str__(self):
        title = FORMATS[self.format].title
        return f"{str(self.path)!r} is {title}: splits {', '.join(self.readers)}"


def find(path: str | os.PathLike[str], format: str | None = None) -> Source:
    """Finds the one dataset that a path stands for."""
    if format is not None:
        check_choice("format", format, FORMATS, ", or None to find it out")
    name = os.fspath(path)
    path = path_of(path)
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
    found, notes = _find_all(path, formats)
    inner = path
    while not found and inner.is_dir():
        folders = [p for p in _entries(inner) if p.is_dir() and p.name != "__MACOSX"]
        if len(folders) != 1:
            break
        inner = folders[0]
        found, _ = _find_all(inner, formats)
    if not found:
        raise InvalidValueError(_describe_unknown(path, formats, notes))
    if len(found) > 1:
        names = [source.format for source in found]
        raise InvalidValueError(
            f"{name!r} holds annotations in {len(found)} formats: choose one with "
            f"`format` (--format of a command), of {names}"
        )
    return found[0]


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
    return Source("tfrecord", pathlib.Path(pattern), readers)


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
    return found, notes


def _entries(path):
    return sorted(p for p in path.iterdir() if not p.name.startswith("."))


def _describe_unknown(path, formats, notes):
    holds = "which is a file"
    if path.is_dir():
        names = [p.name + "/" * p.is_dir() for p in _entries(path)]
        more = ", ..." if len(names) > _SHOWN else ""
        holds = f"which holds {', '.join(names[:_SHOWN]) or 'nothing'}{more}"
    looked = ", ".join(FORMATS[format].title for format in formats)
    troubles = f". Not readable: {'; '.join(notes)}" if notes else ""
    unknown = describe_unknown_files(path)
    troubles += f". {unknown}" if unknown else ""
    return (
        f"No dataset was found in {str(path)!r}, {holds}. Looked for {looked}, as "
        f"`ek.data.from_coco` and so on describe them{troubles}"
    )
