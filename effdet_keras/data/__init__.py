"""Annotated images: readers, writers, the dataset, and its batches for `fit`."""

from typing import TYPE_CHECKING

from effdet_keras._internal.lazy_names import lazy_names

if TYPE_CHECKING:
    from effdet_keras.data.any_format import convert, load, load_splits
    from effdet_keras.data.dataset import DetectionDataset
    from effdet_keras.data.formats.arrays import from_arrays
    from effdet_keras.data.formats.coco import from_coco, write_coco
    from effdet_keras.data.formats.csv import from_csv, write_csv
    from effdet_keras.data.formats.tfrecord import from_tfrecord, write_tfrecord
    from effdet_keras.data.formats.voc import from_voc, write_voc
    from effdet_keras.data.formats.yolo import from_yolo, write_yolo
    from effdet_keras.data.record import Record
    from effdet_keras.extras.data_check.anchors import fit_anchors
    from effdet_keras.extras.data_check.check import check
    from effdet_keras.extras.shapes import write_shapes

__all__ = [
    "DetectionDataset",
    "Record",
    "check",
    "convert",
    "fit_anchors",
    "from_arrays",
    "from_coco",
    "from_csv",
    "from_tfrecord",
    "from_voc",
    "from_yolo",
    "load",
    "load_splits",
    "write_coco",
    "write_csv",
    "write_shapes",
    "write_tfrecord",
    "write_voc",
    "write_yolo",
]

# Whoever trains or detects needs few of them.
_PLACES = {
    "data.any_format": ("convert", "load", "load_splits"),
    "data.dataset": ("DetectionDataset",),
    "data.formats.arrays": ("from_arrays",),
    "data.formats.coco": ("from_coco", "write_coco"),
    "data.formats.csv": ("from_csv", "write_csv"),
    "data.formats.tfrecord": ("from_tfrecord", "write_tfrecord"),
    "data.formats.voc": ("from_voc", "write_voc"),
    "data.formats.yolo": ("from_yolo", "write_yolo"),
    "data.record": ("Record",),
    "extras.data_check.anchors": ("fit_anchors",),
    "extras.data_check.check": ("check",),
    "extras.shapes": ("write_shapes",),
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__, {name: place for place, names in _PLACES.items() for name in names}
    )
