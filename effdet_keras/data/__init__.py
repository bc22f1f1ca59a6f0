"""Datasets of annotated images: readers, writers, and batches for `fit`."""

from typing import TYPE_CHECKING

from effdet_keras._internal.lazy_names import lazy_names

if TYPE_CHECKING:
    from effdet_keras.data.any_format import (
        convert,
        load,
        load_splits,
        load_train_valid,
    )
    from effdet_keras.data.dataset import DetectionDataset
    from effdet_keras.data.formats.arrays import from_arrays
    from effdet_keras.data.formats.coco import from_coco, write_coco
    from effdet_keras.data.formats.create_ml import from_create_ml
    from effdet_keras.data.formats.csv import from_csv, write_csv
    from effdet_keras.data.formats.cvat import from_cvat
    from effdet_keras.data.formats.datumaro import from_datumaro
    from effdet_keras.data.formats.edge_impulse import from_edge_impulse
    from effdet_keras.data.formats.hugging_face import from_hugging_face
    from effdet_keras.data.formats.keras_txt import from_keras_txt
    from effdet_keras.data.formats.label_studio import from_label_studio
    from effdet_keras.data.formats.labelme import from_labelme
    from effdet_keras.data.formats.tfrecord import from_tfrecord, write_tfrecord
    from effdet_keras.data.formats.via import from_via
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
    "from_create_ml",
    "from_csv",
    "from_cvat",
    "from_datumaro",
    "from_edge_impulse",
    "from_hugging_face",
    "from_keras_txt",
    "from_label_studio",
    "from_labelme",
    "from_tfrecord",
    "from_via",
    "from_voc",
    "from_yolo",
    "load",
    "load_splits",
    "load_train_valid",
    "write_coco",
    "write_csv",
    "write_shapes",
    "write_tfrecord",
    "write_voc",
    "write_yolo",
]

# Modules are imported lazily: training and detection need only a few of these names.
_PLACES = {
    "data.any_format": ("convert", "load", "load_splits", "load_train_valid"),
    "data.dataset": ("DetectionDataset",),
    "data.formats.arrays": ("from_arrays",),
    "data.formats.coco": ("from_coco", "write_coco"),
    "data.formats.csv": ("from_csv", "write_csv"),
    "data.formats.create_ml": ("from_create_ml",),
    "data.formats.cvat": ("from_cvat",),
    "data.formats.datumaro": ("from_datumaro",),
    "data.formats.edge_impulse": ("from_edge_impulse",),
    "data.formats.hugging_face": ("from_hugging_face",),
    "data.formats.keras_txt": ("from_keras_txt",),
    "data.formats.label_studio": ("from_label_studio",),
    "data.formats.labelme": ("from_labelme",),
    "data.formats.via": ("from_via",),
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
