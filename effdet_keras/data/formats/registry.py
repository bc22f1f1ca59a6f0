"""The formats of datasets: what finds, reads and writes each. One entry per format."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Mapping

from effdet_keras.data.formats.coco import coco_readers, write_coco
from effdet_keras.data.formats.csv import csv_readers, write_csv
from effdet_keras.data.formats.tfds import tfds_readers, write_tfds
from effdet_keras.data.formats.tfrecord import tfrecord_readers, write_tfrecord
from effdet_keras.data.formats.voc import voc_readers, write_voc
from effdet_keras.data.formats.yolo import write_yolo, yolo_readers


@dataclasses.dataclass(frozen=True)
class Format:
    """A format of annotations on disk.

    Attributes:
        title: str, what messages call it.
        readers: function of a path that exists. It returns a dict from the name of
            each split found there to the function that reads it, which takes
            `class_names` and `on_error`. The dict is empty, or the function raises
            ValueError or OSError, where the path does not hold this format.
        write: the writer, such as `write_coco`.
        looks_for: str, which files the format is recognised by, for messages.
        reads_addresses: bool, whether it is also read where it is remote.
        has_masks: bool, whether its readers take `masks`.
    """

    title: str
    readers: Callable[[pathlib.Path], Mapping[str, Callable]]
    write: Callable
    looks_for: str
    reads_addresses: bool = True
    has_masks: bool = False


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
        tfds_readers,
        write_tfds,
        "dataset_info.json and features.json",
        reads_addresses=False,
    ),
}
