"""Reads images and ground truth of a dataset or of batches, as NumPy arrays."""

from __future__ import annotations

import dataclasses
import itertools

import keras
import numpy as np
from keras import ops

from effdet_keras.box_ops import yxyx_to_xywh
from effdet_keras.data.pipeline.image_reader import ImageReader
from effdet_keras.detect.detect import letterboxed, prefetch_map
from effdet_keras.errors import InvalidTypeError, InvalidValueError, require
from effdet_keras.labels import BACKGROUND, category_ids_or_default
from effdet_keras.letterbox import boxes_in_input, mask_in_input, scaled_size
from effdet_keras.train.inputs import check_truth, explain_batch, is_endless


@dataclasses.dataclass(frozen=True)
class EvaluationBatch:
    """Letterboxed images, with ground truth and sizes to map boxes back to images."""

    images: np.ndarray  # float32 [B, H, W, 3], letterboxed pixels 0-255
    image_ids: list
    # Pixels of the image per pixel of the input, float32 [B] or [B, 2] for y and x; 0
    # marks an image that could not be read.
    image_scales: np.ndarray
    image_sizes: list  # of (height, width), pixels of the image
    content_sizes: np.ndarray  # float32 [B, 2], size of each image inside the input
    # The ground truth of the losses: `boxes` [B, M, 4] `yxyx` in pixels of the input,
    # `labels` [B, M] with -1 in padding rows, and `masks` [B, H, W] if there are any.
    truth: dict
    # The true class of each pixel, uint8 [h, w], at the size of the image or the input.
    masks: list = dataclasses.field(default_factory=list)


class DatasetToEvaluate:
    """Reads a `DetectionDataset` in letterboxed batches; threads read ahead."""

    def __init__(self, config, dataset, batch_size, labels=None, share=(0, 1)):
        has_masks = config.has_segmentation and all(
            record.has_mask for record in dataset.records
        )
        self.seg_class_names = dataset.seg_class_names if has_masks else None
        require(len(dataset) > 0, "Evaluation needs at least one image", images=0)
        self.num_images = len(dataset)
        self.ground_truth = dataset.to_coco  # a method that returns a COCO dict
        self._config = config
        self._dataset = dataset
        self._batch_size = batch_size
        self._share = share  # (index, count): every `count`-th batch, from `index` on
        # The detector's label for each label of the dataset.
        self._labels = np.arange(dataset.num_classes) if labels is None else labels
        # All batches have the same number of rows, because a new shape is compiled.
        counts = [np.count_nonzero(~record.is_crowd) for record in dataset.records]
        self._num_rows = max(counts)

    def __iter__(self):
        config, records = self._config, self._dataset.records
        reader = ImageReader(
            self._dataset, replace=False, seg_class_names=self.seg_class_names
        )
        size, (first, count) = self._batch_size, self._share
        starts = range(first * size, len(records), count * size)
        own = [range(at, min(at + size, len(records))) for at in starts]

        def read(index):
            image, boxes, labels, _, is_there, *masks = reader.read(index)
            size = image.shape[:2]
            truth = self._padded(boxes, labels, size)
            content = scaled_size(size, config.image_size, config.resize_method)
            image, scale = letterboxed(config, image)
            return image, scale if is_there else 0 * scale, content, *truth, *masks

        images = prefetch_map(read, itertools.chain(*own), size)
        for indices in own:
            batch = itertools.islice(images, len(indices))
            yield self._batch([records[i] for i in indices], *zip(*batch))
        reader.report()

    def _batch(self, records, images, scales, contents, boxes, labels, masks=()):
        truth = {"boxes": np.stack(boxes), "labels": np.stack(labels)}
        if masks:
            size = self._config.image_size
            truth["masks"] = np.stack([mask_in_input(mask, size) for mask in masks])
        return EvaluationBatch(
            np.stack(images),
            [record.image_id for record in records],
            np.float32(scales),
            [record.image_size for record in records],
            np.stack(contents),
            truth,
            list(masks),
        )

    def _padded(self, boxes, labels, image_size):
        """Returns boxes in pixels of the input and labels, padded to `_num_rows`."""
        config = self._config
        boxes, kept = boxes_in_input(
            boxes, image_size, config.image_size, config.resize_method
        )
        count = np.count_nonzero(kept)
        rows = np.zeros((self._num_rows, 4), "float32")
        rows_labels = np.full(self._num_rows, BACKGROUND, "int32")
        rows[:count], rows_labels[:count] = boxes[kept], self._labels[labels[kept]]
        return rows, rows_labels


# --- A user's own batches of images and ground truth.

_WHAT_IT_TAKES = (
    "An evaluation takes a `DetectionDataset`; or batches of `(images, "
    "ground_truth)`, as `fit` takes them, if they end and can be read several times; "
    "or one such pair of arrays"
)
_GROUND_TRUTH = ("boxes", "labels", "image_id", "image_scale", "is_crowd", "masks")


class BatchesToEvaluate:
    """Reads a user's own batches, and collects their ground truth on the way."""

    num_images = None  # not known before the last batch

    def __init__(self, detector, data, batch_size):
        self._config = detector.config
        self._class_names = detector.class_names
        self.category_ids = category_ids_or_default(
            detector.category_ids, detector.config.num_classes
        )
        self.seg_class_names = None
        self._seg_names = seg_names_of(detector)
        if isinstance(data, tuple):
            images, truth = data
            parts = range(0, len(images), batch_size)
            parts = [slice(start, start + batch_size) for start in parts]
            data = [(images[x], {n: v[x] for n, v in truth.items()}) for x in parts]
        is_iterable = hasattr(data, "__iter__") and iter(data) is not data
        is_right = isinstance(data, keras.utils.PyDataset) or is_iterable
        is_right = is_right and not is_endless(data)
        require(is_right, _WHAT_IT_TAKES, InvalidTypeError, type=type(data).__name__)
        self._data = data
        self._images, self._annotations = [], []

    def __iter__(self):
        self._images, self._annotations = [], []
        size, data = np.float32(self._config.image_size), self._data
        is_py = isinstance(data, keras.utils.PyDataset)
        batches = map(data.__getitem__, range(len(data))) if is_py else data
        for batch in batches:
            images, truth = self._checked(batch)
            count, first = len(images), len(self._images) + 1
            ids = truth.get("image_id", np.arange(first, first + count)).tolist()
            scales = np.float32(truth.get("image_scale", np.ones(count))).reshape(-1)
            self._collect(ids, scales, truth)
            masks, dtypes = [], {"boxes": "float32", "labels": "int32"}
            if self._seg_names is not None and "masks" in truth:
                masks, dtypes["masks"] = list(truth["masks"]), "uint8"
                self.seg_class_names = self._seg_names
            truth = {name: truth[name].astype(dtype) for name, dtype in dtypes.items()}
            sizes, whole = [size * scale for scale in scales], np.tile(size, (count, 1))
            yield EvaluationBatch(images, ids, scales, sizes, whole, truth, masks)
        require(self._images, "Evaluation needs at least one image", images=0)

    def ground_truth(self):
        """Returns the ground truth of the batches read so far, as a COCO dict."""
        names = map(str, self._class_names or self.category_ids)
        named = zip(self.category_ids, names)
        return {
            "images": self._images,
            "annotations": self._annotations,
            "categories": [{"id": i, "name": name} for i, name in named],
        }

    def _checked(self, batch):
        """Checks a batch, and returns its images and ground truth as arrays."""
        is_pair = isinstance(batch, (tuple, list)) and len(batch) == 2
        require(is_pair, _WHAT_IT_TAKES, InvalidTypeError, batch=type(batch).__name__)
        images, given = np.asarray(_as_array(batch[0]), "float32"), batch[1]
        size, rule = (
            self._config.image_size,
            "Images must have the size of the model's input",
        )
        shape = {"shape": images.shape, "image_size": size}
        require(images.shape[1:] == (*size, 3), rule, **shape)
        check_truth(given, None, self._config)
        truth = {n: _as_array(given[n]) for n in _GROUND_TRUTH if n in given}
        if fault := explain_batch(truth, self._config):
            raise InvalidValueError(f"{fault}.")
        if not self._config.has_detection:
            truth["boxes"] = np.zeros((len(images), 1, 4))
            truth["labels"] = np.full((len(images), 1), BACKGROUND)
        return images, truth

    def _collect(self, image_ids, scales, truth):
        """Collects the images and annotations of a batch, in pixels of the images."""
        used = (truth["labels"] >= 0) & np.any(truth["boxes"] != 0, axis=-1)
        is_crowd = truth.get("is_crowd", np.zeros(used.shape, bool))
        for row, (image_id, scale) in enumerate(zip(image_ids, scales)):
            height, width = (float(x * scale) for x in self._config.image_size)
            self._images.append({"id": image_id, "height": height, "width": width})
            boxes = yxyx_to_xywh(truth["boxes"][row].astype("float64") * scale)
            for index in np.flatnonzero(used[row]):
                annotation = {
                    "id": len(self._annotations) + 1,
                    "image_id": image_id,
                    "category_id": self.category_ids[int(truth["labels"][row, index])],
                    "bbox": boxes[index].tolist(),
                    "iscrowd": int(is_crowd[row, index]),
                }
                self._annotations.append(annotation)


def seg_names_of(detector, names=None):
    """Returns the names of the segmentation classes; None without segmentation head.

    Classes without a name are called "class 3", by their number.
    """
    config = detector.config
    if not config.has_segmentation:
        return None
    known = tuple(detector.seg_class_names or names or ())
    numbers = range(len(known), config.seg_num_classes)
    return known + tuple(f"class {k}" for k in numbers)


def _as_array(values):
    return ops.convert_to_numpy(values) if ops.is_tensor(values) else np.asarray(values)
