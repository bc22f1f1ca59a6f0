"""The known annotation formats, and how the splits of a dataset are read."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import pathlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.formats.bdd import bdd_readers
from effdet_keras.data.formats.coco import coco_readers, write_coco
from effdet_keras.data.formats.create_ml import create_ml_readers
from effdet_keras.data.formats.csv import csv_readers, write_csv
from effdet_keras.data.formats.cvat import cvat_readers
from effdet_keras.data.formats.dataset_files import role_of_split, visible_files
from effdet_keras.data.formats.datumaro import (
    datumaro_own_readers,
    kitti_readers,
    labelme_xml_readers,
    mot_readers,
    open_images_readers,
    vott_readers,
    wider_face_readers,
)
from effdet_keras.data.formats.dlib import dlib_readers
from effdet_keras.data.formats.edge_impulse import edge_impulse_readers
from effdet_keras.data.formats.ground_truth import ground_truth_readers
from effdet_keras.data.formats.hugging_face import hugging_face_readers
from effdet_keras.data.formats.keras_txt import keras_txt_readers
from effdet_keras.data.formats.label_studio import label_studio_readers
from effdet_keras.data.formats.labelbox import labelbox_readers
from effdet_keras.data.formats.labelme import labelme_readers
from effdet_keras.data.formats.opencv import opencv_readers
from effdet_keras.data.formats.reading import NoClassError
from effdet_keras.data.formats.supervisely import supervisely_readers
from effdet_keras.data.formats.tfrecord import tfrecord_readers, write_tfrecord
from effdet_keras.data.formats.via import via_readers
from effdet_keras.data.formats.voc import voc_readers, write_voc
from effdet_keras.data.formats.yolo import write_yolo, yolo_readers
from effdet_keras.data.problems import NoImageError


@dataclasses.dataclass(frozen=True)
class Format:
    """A format of annotations on disk."""

    title: str
    # Takes an existing path and returns a dict from split name to the function that
    # reads the split. If the path has another format, it returns an empty dict, or
    # raises ValueError or OSError.
    readers: Callable[[pathlib.Path], Mapping[str, Callable]]
    write: Callable | None  # None if the format can be read only
    has_masks: bool = False  # whether its readers take `masks`
    has_unlabelled: bool = False  # whether its readers take `unlabelled`
    reader_options: tuple[str, ...] = ()  # their other options, see `load`


def _tfds_readers(path):
    from effdet_keras.extras.tfds import tfds_readers

    return tfds_readers(path)


FORMATS = {
    "coco": Format("COCO json", coco_readers, write_coco, has_masks=True),
    "voc": Format("Pascal VOC", voc_readers, write_voc, reader_options=("one_based",)),
    "yolo": Format("YOLO", yolo_readers, write_yolo, has_unlabelled=True),
    "csv": Format("CSV", csv_readers, write_csv),
    "tfrecord": Format("TFRecord", tfrecord_readers, write_tfrecord, has_masks=True),
    "tfds": Format("TensorFlow Datasets", _tfds_readers, None),
    "cvat": Format("CVAT xml", cvat_readers, None, has_masks=True),
    "labelme": Format("LabelMe json", labelme_readers, None, has_masks=True),
    "via": Format(
        "VIA",
        via_readers,
        None,
        has_masks=True,
        reader_options=("class_attribute",),
    ),
    "label_studio": Format("Label Studio", label_studio_readers, None, has_masks=True),
    "labelbox": Format("Labelbox", labelbox_readers, None, has_masks=True),
    "create_ml": Format("Create ML json", create_ml_readers, None),
    "hugging_face": Format(
        "Hugging Face", hugging_face_readers, None, reader_options=("box_format",)
    ),
    "edge_impulse": Format("Edge Impulse", edge_impulse_readers, None),
    "keras_txt": Format("Keras txt", keras_txt_readers, None),
    "supervisely": Format("Supervisely", supervisely_readers, None, has_masks=True),
    "bdd": Format("BDD100K json", bdd_readers, None),
    "ground_truth": Format("Ground Truth manifest", ground_truth_readers, None),
    "dlib": Format("dlib xml", dlib_readers, None),
    "opencv": Format("OpenCV text", opencv_readers, None),
    # Read with the package `datumaro`.
    "kitti": Format("KITTI", kitti_readers, None),
    "wider_face": Format("WIDER FACE", wider_face_readers, None),
    "open_images": Format("Open Images", open_images_readers, None),
    "vott": Format("VoTT json", vott_readers, None),
    "labelme_xml": Format("LabelMe xml", labelme_xml_readers, None),
    "mot": Format("MOT", mot_readers, None),
    "datumaro": Format("Datumaro", datumaro_own_readers, None),
}


# Formats with all annotations of a split in one file.
WITH_ONE_FILE = frozenset(
    {"coco", "csv", "cvat", "via", "label_studio", "labelbox", "create_ml", "dlib"}
)


@dataclasses.dataclass(frozen=True)
class Source:
    """A dataset that was found, and the functions that read its splits."""

    format: str
    path: pathlib.Path
    readers: Mapping[str, Callable]  # from split name
    root: pathlib.Path  # the path that the user passed: images lie below it
    note: str = ""  # describes the other datasets found, which are not read
    others: tuple[Source, ...] = ()  # the datasets of `note`

    def __str__(self):
        return f"{str(self.path)!r} is {self.described}{self.note}"

    @property
    def described(self):
        """The format, and the names of the splits."""
        word = "split" if len(self.readers) == 1 else "splits"
        return f"{FORMATS[self.format].title}: {word} {', '.join(self.readers)}"


_ONE_FILE_SUFFIXES = (".json", ".csv", ".xml", ".ndjson", ".jsonl")


def own_files(source: Source) -> list[pathlib.Path]:
    """Returns the annotation files directly in the folder of a dataset.

    Args:
        source: `Source` of one of the formats `WITH_ONE_FILE`.
    """
    return [
        file
        for file in visible_files(source.path, *_ONE_FILE_SUFFIXES)
        if _is_of_format(file, source.format)
    ]


def _is_of_format(file, format):
    try:
        return bool(FORMATS[format].readers(file))
    except (ValueError, OSError):  # a table of something else, or a damaged file
        return False


def read_splits(
    readers: Mapping[Any, Callable], **options: Any
) -> tuple[dict[Any, DetectionDataset], list[Any]]:
    """Reads splits and leaves out the empty ones, unless all of them are empty.

    A split without objects gets the classes of the other splits. A split to validate
    or test on is left out with a warning if its images are all missing and no others
    may be meant, unless no split can be read. With `on_error="skip"`, any split whose
    images are all missing is left out; with "raise", none.

    Args:
        readers: dict from split name to the function that reads the split.
        **options: keyword arguments for these functions.

    Returns:
        Dict from split name to `DetectionDataset`, and a list of the splits that were
        left out without a warning, because they are empty.

    Raises:
        NoImageError: If all images are missing of a split that is not left out.
        NoClassError: If no split has an object.
    """
    datasets, errors, lost = {}, {}, {}
    on_error = options.get("on_error", "auto")
    for split, read in readers.items():
        try:
            datasets[split] = read(**options)
        except NoClassError as error:
            errors[split] = error
        except NoImageError as error:
            if len(readers) == 1:
                raise
            role = role_of_split(str(split))
            is_absent = role in ("validation", "test") and not error.may_be_others
            if on_error == "raise" or (on_error == "auto" and not is_absent):
                cure = 'Or pass on_error="skip" (--skip-errors) to leave the split out'
                text, may_be_others = f"{error}. {cure}", error.may_be_others
                raise NoImageError(text, may_be_others=may_be_others) from error
            lost[split] = error
    if not datasets and (errors or lost):
        raise next(iter((errors | lost).values()))
    for split, error in lost.items():
        warnings.warn(f"The split {split!r} was left out: {error}", stacklevel=3)
    for split in errors:
        names = dict.fromkeys(n for d in datasets.values() for n in d.class_names)
        datasets[split] = readers[split](**(options | {"class_names": list(names)}))
    there = [split for split in readers if split in datasets]
    full = [split for split in there if len(datasets[split])] or there
    empty = [split for split in there if split not in full]
    return {split: datasets[split] for split in full}, empty


@contextlib.contextmanager
def collector_off() -> Iterator[None]:
    """Turns off Python's garbage collector of reference cycles within a `with` block.

    Readers make no cycles, but the collector looks through all boxes again and again:
    that is two fifths of the time to read 840,000 boxes.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
