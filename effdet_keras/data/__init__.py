"""Annotated images: readers, writers, the dataset, and its batches for `fit`."""

from typing import TYPE_CHECKING

from effdet_keras._internal.lazy_names import lazy_names
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.formats.arrays import from_arrays
from effdet_keras.data.formats.coco import from_coco, write_coco
from effdet_keras.data.formats.csv import from_csv, write_csv
from effdet_keras.data.formats.tfrecord import from_tfrecord, write_tfrecord
from effdet_keras.data.formats.voc import from_voc, write_voc
from effdet_keras.data.formats.yolo import from_yolo, write_yolo
from effdet_keras.data.load import convert, load, load_splits
from effdet_keras.data.problems import Problem, Severity
from effdet_keras.data.record import Record
from effdet_keras.data.shapes import write_shapes

if TYPE_CHECKING:
    from effdet_keras.extras.data_check.anchors import fit_anchors
    from effdet_keras.extras.data_check.check import CheckReport, check, check_splits
    from effdet_keras.extras.image_columns import read_image_columns
    from effdet_keras.extras.tfds import from_tfds, write_tfds

__all__ = [
    "CheckReport",
    "DetectionDataset",
    "Problem",
    "Record",
    "Severity",
    "check",
    "check_splits",
    "convert",
    "fit_anchors",
    "from_arrays",
    "from_coco",
    "from_csv",
    "from_tfds",
    "from_tfrecord",
    "from_voc",
    "from_yolo",
    "load",
    "load_splits",
    "read_image_columns",
    "write_coco",
    "write_csv",
    "write_shapes",
    "write_tfds",
    "write_tfrecord",
    "write_voc",
    "write_yolo",
]

if not TYPE_CHECKING:
    _CHECK, _TFDS = "extras.data_check.check", "extras.tfds"
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            **{"CheckReport": _CHECK, "check": _CHECK, "check_splits": _CHECK},
            "fit_anchors": "extras.data_check.anchors",
            **{"from_tfds": _TFDS, "write_tfds": _TFDS},
            "read_image_columns": "extras.image_columns",
        },
    )
