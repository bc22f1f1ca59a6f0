"""Annotated pictures: readers, writers, the dataset, and its batches for `fit`."""

from effdet_keras.data.arrays import from_arrays
from effdet_keras.data.coco import from_coco, write_coco
from effdet_keras.data.convert import convert
from effdet_keras.data.csv import from_csv, write_csv
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.inspection import CheckReport, check, check_splits
from effdet_keras.data.load import load, load_splits
from effdet_keras.data.problems import Problem, Severity
from effdet_keras.data.shapes import write_shapes
from effdet_keras.data.tfds import from_tfds, write_tfds
from effdet_keras.data.tfrecord import from_tfrecord, write_tfrecord
from effdet_keras.data.voc import from_voc, write_voc
from effdet_keras.data.yolo import from_yolo, write_yolo

__all__ = [
    "CheckReport",
    "DetectionDataset",
    "Problem",
    "Severity",
    "check",
    "check_splits",
    "convert",
    "from_arrays",
    "from_coco",
    "from_csv",
    "from_tfds",
    "from_tfrecord",
    "from_voc",
    "from_yolo",
    "load",
    "load_splits",
    "write_coco",
    "write_csv",
    "write_shapes",
    "write_tfds",
    "write_tfrecord",
    "write_voc",
    "write_yolo",
]
