"""Annotated pictures: readers, the dataset, and its batches for `fit`."""

from effdet_keras.data.arrays import from_arrays
from effdet_keras.data.coco import from_coco
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.shapes import write_shapes
from effdet_keras.data.voc import from_voc

__all__ = ["DetectionDataset", "from_arrays", "from_coco", "from_voc", "write_shapes"]
