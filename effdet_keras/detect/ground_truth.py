"""The images of a dataset or of batches, with their ground truth, in NumPy."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import os

import keras
import numpy as np
from keras import ops

from effdet_keras._internal.label_constants import BACKGROUND
from effdet_keras.category_ids import category_ids_or_default
from effdet_keras.data.pipeline.image_reader import ImageReader
from effdet_keras.detect.detect import letterboxed
from effdet_keras.detect.letterbox import boxes_in_input, mask_in_input, scaled_size
from effdet_keras.errors import InvalidTypeError, InvalidValueError, require
from effdet_keras.train.inputs import explain


@dataclasses.dataclass(frozen=True)
class EvaluationBatch:
    """Images to detect in, and how their boxes go back to the images."""

    images: np.ndarray  # float32 [B, H, W, 3], letterboxed pixels 0-255
    image_ids: list
    # Pixels of the image per pixel of the input, float32 [B] or [B, 2] for y and x; 0
    # marks an image that could not be read.
    image_scales: np.ndarray
    image_sizes: list  # of (height, width), pixels of the image
    content_sizes: np.ndarray  # float32 [B, 2], of each image inside the input
    # What losses are taken of: `boxes` [B, M, 4] in pixels of the input, `labels`
    # [B, M], -1 in padding rows, `masks` [B, H, W] where there are masks.
    truth: dict
    # The true class of each pixel, uint8 [h, w], of the image or of the input.
    masks: list = dataclasses.field(default_factory=list)


class DatasetToEvaluate:
    """Letterboxed batches of a `DetectionDataset`, read ahead by threads, in NumPy."""

    def __init__(self, config, dataset, batch_size, labels=None, share=(0, 1)):
        has_masks = config.has_segmentation and all(
            record.has_mask for record in dataset.records
        )
        self.seg_class_names = dataset.seg_class_names if has_masks else None
        require(len(dataset) > 0, "Evaluation needs at least one image", images=0)
        self.num_images = len(dataset)
        self._config = config
        self._dataset = dataset
        self._batch_size = batch_size
        self._share = share  # (index, count): every `count`-th batch, from `index` on
        # The detector's label of each label of the dataset.
        self._labels = np.arange(dataset.num_classes) if labels is None else labels
        # One number of rows for all batches: another shape is compiled again.
        counts = [np.count_nonzero(~record.is_crowd) for record in dataset.records]
        self._num_rows = max(counts)

    def __iter__(self):
        config, records = self._config, self._dataset.records
        reader = ImageReader(
            self._dataset,
            replace=False,
            seg_class_names=self.seg_class_names,
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

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            # One batch in use, one ready; more only fills memory.
            following = iter([*own, ()])
            ahead = pool.map(read, next(following))
            for indices in own:
                arrived, ahead = ahead, pool.map(read, next(following))
                yield self._batch([records[i] for i in indices], *zip(*arrived))
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
        """The boxes and labels of an image in rows of its input."""
        config = self._config
        boxes, kept = boxes_in_input(
            boxes, image_size, config.image_size, config.resize_method
        )
        count = np.count_nonzero(kept)
        rows = np.zeros((self._num_rows, 4), "float32")
        rows_labels = np.full(self._num_rows, BACKGROUND, "int32")
        rows[:count], rows_labels[:count] = boxes[kept], self._labels[labels[kept]]
        return rows, rows_labels

    def ground_truth(self):
        """Returns the ground truth as a COCO dict."""
        return self._dataset.to_coco()


# --- A user's own batches of images and ground truth, checked and collected.

_WHAT_IT_TAKES = (
    "Evaluation takes a `DetectionDataset`; or batches of `(images, ground_truth)` in "
    "the network's input size that can be gone through again and again, such as a "
    "`tf.data.Dataset`, a `keras.utils.PyDataset` or a list; or one such pair of "
    "arrays. `images` is `[B, H, W, 3]`, pixels 0-255; `ground_truth` a dict of "
    "'boxes' `[B, M, 4]` (yxyx, pixels of the input) and 'labels' `[B, M]` (-1 is "
    "padding), and if you have them 'image_id' `[B]`, 'image_scale' `[B]` and "
    "'is_crowd' `[B, M]`."
)


_GROUND_TRUTH = ("boxes", "labels", "image_id", "image_scale", "is_crowd", "masks")


class BatchesToEvaluate:
    """A user's own batches, whose ground truth is collected as they pass by."""

    def __init__(self, detector, data, batch_size):
        self._config = detector.config
        self._class_names = detector.class_names
        self.category_ids = category_ids_or_default(
            detector.category_ids, detector.config.num_classes
        )
        self.seg_class_names = None
        self._seg_names = seg_names_of(detector)
        self._batches, self.num_images = _re_iterable(data, batch_size)
        self._images, self._annotations = [], []

    def __iter__(self):
        self._images, self._annotations = [], []
        size = np.float32(self._config.image_size)
        for batch in self._batches():
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
        """Returns the ground truth that has passed by, as a COCO dict."""
        names = map(str, self._class_names or self.category_ids)
        named = zip(self.category_ids, names)
        return {
            "images": self._images,
            "annotations": self._annotations,
            "categories": [{"id": i, "name": name} for i, name in named],
        }

    def _checked(self, batch):
        """The images and the ground truth of a batch as arrays."""
        is_pair = isinstance(batch, (tuple, list)) and len(batch) == 2
        if not is_pair or not isinstance(batch[1], dict):
            raise InvalidTypeError(
                f"{_WHAT_IT_TAKES} Received: a batch that is {_described(batch)}"
            )
        images, given = np.asarray(_as_array(batch[0]), "float32"), batch[1]
        size, rule = self._config.image_size, "Images must be of the network's input"
        shape = {"shape": images.shape, "image_size": size}
        require(images.shape[1:] == (*size, 3), rule, **shape)
        truth = {n: _as_array(given[n]) for n in _GROUND_TRUTH if n in given}
        if not self._config.has_detection:
            truth.setdefault("boxes", np.zeros((len(images), 1, 4)))
            truth.setdefault("labels", np.full((len(images), 1), BACKGROUND))
        rule = f"{_WHAT_IT_TAKES} 'boxes' and 'labels' are needed"
        require({"boxes", "labels"} <= truth.keys(), rule, keys=sorted(given))
        shapes = {n: truth[n].shape for n in ("boxes", "labels")}
        rule = "'boxes' [B, M, 4] and 'labels' [B, M] must be of the images [B]"
        is_one = shapes["boxes"] == (len(images), *shapes["labels"][1:], 4)
        require(is_one and len(shapes["labels"]) == 2, rule, **shapes)
        boxes = truth["boxes"].astype("float32")
        if fault := explain(boxes, truth["labels"], size, self._config.num_classes):
            raise InvalidValueError(f"{fault}.")
        return images, truth

    def _collect(self, image_ids, scales, ground_truth):
        boxes = np.asarray(ground_truth["boxes"], "float64")
        labels = ground_truth["labels"]
        is_crowd = ground_truth.get("is_crowd", np.zeros(labels.shape, bool))
        used = (labels >= 0) & np.any(boxes != 0, axis=-1)
        for row, (image_id, scale) in enumerate(zip(image_ids, scales)):
            height, width = (float(x * scale) for x in self._config.image_size)
            self._images.append({"id": image_id, "height": height, "width": width})
            for index in np.flatnonzero(used[row]):
                y_min, x_min, y_max, x_max = (boxes[row, index] * scale).tolist()
                annotation = {
                    "id": len(self._annotations) + 1,
                    "image_id": image_id,
                    "category_id": self.category_ids[int(labels[row, index])],
                    "bbox": [x_min, y_min, x_max - x_min, y_max - y_min],
                    "iscrowd": int(is_crowd[row, index]),
                }
                self._annotations.append(annotation)


def seg_names_of(detector, names=None):
    """Names of a detector's classes of pixels, or None without a segmentation head."""
    config = detector.config
    if not config.has_segmentation:
        return None
    known = tuple(detector.seg_class_names or names or ())
    numbers = range(len(known), config.seg_num_classes)
    return known + tuple(f"class {k}" for k in numbers)


def _re_iterable(data, batch_size):
    """A function that gives the batches again, and the number of images or None."""
    if isinstance(data, tuple) and len(data) == 2 and isinstance(data[1], dict):
        images, ground_truth = data

        def batches():
            for start in range(0, len(images), batch_size):
                part = slice(start, start + batch_size)
                yield images[part], {name: v[part] for name, v in ground_truth.items()}

        return batches, len(images)
    if isinstance(data, keras.utils.PyDataset):
        return (lambda: (data[i] for i in range(data.num_batches))), None
    if isinstance(data, (str, os.PathLike, dict)) or not hasattr(data, "__iter__"):
        raise InvalidTypeError(f"{_WHAT_IT_TAKES} Received: {_described(data)}")
    if iter(data) is data:
        raise InvalidTypeError(
            f"{_WHAT_IT_TAKES} Received: {_described(data)}, which can be gone through "
            "only once"
        )
    # tf.data: its `__len__` raises where the length is unknown.
    if hasattr(data, "cardinality") and int(data.cardinality()) == -1:
        raise InvalidValueError(
            "Evaluation needs data that ends: leave out `.repeat()`. Received: an "
            f"endless {type(data).__name__}"
        )
    return (lambda: iter(data)), None


def _as_array(values):
    return ops.convert_to_numpy(values) if ops.is_tensor(values) else np.asarray(values)


def _described(value):
    if isinstance(value, dict):
        return f"a dict of {sorted(map(str, value))}"
    size = f" of {len(value)}" if isinstance(value, (tuple, list)) else ""
    return f"a {type(value).__name__}{size}"
