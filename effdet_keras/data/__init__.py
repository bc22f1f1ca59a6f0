"""Annotated pictures: readers, the dataset, and its batches for `fit`."""

from effdet_keras.data.arrays import from_arrays
from effdet_keras.data.coco import from_coco
from effdet_keras.data.dataset import DetectionDataset

__all__ = ["DetectionDataset", "from_arrays", "from_coco"]
