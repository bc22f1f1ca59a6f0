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


class BatchesToEvaluate:
    """A user's own batches, whose ground truth is collected as they pass by."""

    def __init__(self, detector, data, batch_size):
        self._image_size = tuple(detector.config.image_size)
        self._num_classes = detector.config.num_classes
        self._has_detection = detector.config.has_detection
        self._class_names = detector.class_names
        self.category_ids = category_ids_or_default(
            detector.category_ids, self._num_classes
        )
        self.seg_class_names = None
        self._seg_names = seg_names_of(detector)
        self._batches, self.num_images = _re_iterable(data, batch_size)
        self._images, self._annotations = [], []

    def __iter__(self):
        self._images, self._annotations = [], []
        seen = set()
        for batch in self._batches():
            images, ground_truth = self._checked(batch)
            ids = self._image_ids(ground_truth, len(images))
            repeated = [i for n, i in enumerate(ids) if i in seen or i in ids[:n]]
            if repeated:
                raise InvalidValueError(
                    "Every image needs an 'image_id' of its own, but one came twice. "
                    f"Received: image_id={repeated[0]}. Leave 'image_id' out to have "
                    "the images counted; or does the data repeat itself?"
                )
            seen.update(ids)
            scales = ground_truth.get("image_scale", np.ones(len(images)))
            scales = np.asarray(scales, "float32").reshape(-1)
            self._collect(ids, scales, ground_truth)
            sizes = [np.float32(self._image_size) * scale for scale in scales]
            truth = {
                "boxes": np.asarray(ground_truth["boxes"], "float32"),
                "labels": np.asarray(ground_truth["labels"], "int32"),
            }
            masks = []
            if "masks" in ground_truth and self._seg_names is not None:
                truth["masks"] = np.asarray(ground_truth["masks"], "uint8")
                masks, self.seg_class_names = list(truth["masks"]), self._seg_names
            whole = np.tile(np.float32(self._image_size), (len(images), 1))
            yield EvaluationBatch(images, ids, scales, sizes, whole, truth, masks)
        require(seen, "Evaluation needs at least one image", images=0)

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
        if not isinstance(batch, (tuple, list)) or len(batch) != 2:
            raise InvalidTypeError(
                f"{_WHAT_IT_TAKES} Received: a batch that is {_described(batch)}"
            )
        images, ground_truth = batch
        if not self._has_detection and isinstance(ground_truth, dict):
            boxes = np.zeros((len(images), 1, 4), "float32")
            labels = np.full((len(images), 1), BACKGROUND, "int32")
            ground_truth = {"boxes": boxes, "labels": labels, **ground_truth}
        if not isinstance(ground_truth, dict) or not {"boxes", "labels"} <= set(
            ground_truth
        ):
            raise InvalidValueError(
                f"{_WHAT_IT_TAKES} Received: ground truth that is "
                f"{_described(ground_truth)}"
            )
        images = np.asarray(_as_array(images), "float32")
        if images.shape[1:] != (*self._image_size, 3):
            height, width = self._image_size
            raise InvalidValueError(
                f"Batches to evaluate must have images `[B, {height}, {width}, 3]`, "
                "the network's input size. Received: images of shape "
                f"{images.shape}. `model.batches(dataset)` makes such batches"
            )
        names = ("boxes", "labels", "image_id", "image_scale", "is_crowd", "masks")
        known = {n: _as_array(ground_truth[n]) for n in names if n in ground_truth}
        self._check_ground_truth(known, len(images))
        return images, known

    def _check_ground_truth(self, ground_truth, count):
        boxes, labels = ground_truth["boxes"], ground_truth["labels"]
        rows = labels.shape[1] if labels.ndim == 2 else "M"
        expected = {
            "labels": (count, rows),
            "boxes": (count, rows, 4),
            "image_id": (count,),
            "image_scale": (count,),
            "is_crowd": (count, rows),
            "masks": (count, *self._image_size),
        }
        for name in (name for name in expected if name in ground_truth):
            shape = ground_truth[name].shape
            shape, wanted = ground_truth[name].shape, expected[name]
            rule = f"'{name}' of a batch of {count} images must have the shape {wanted}"
            require(shape == wanted, rule, shape=shape)
        fault = explain(
            np.asarray(boxes, "float32"), labels, self._image_size, self._num_classes
        )
        if fault is not None:
            raise InvalidValueError(f"{fault}.")

    def _image_ids(self, ground_truth, count):
        """The ids of a batch; images without any are counted from 1."""
        if "image_id" not in ground_truth:
            first = len(self._images) + 1
            return list(range(first, first + count))
        ids = ground_truth["image_id"]
        rule = "'image_id' must be ints, one per image; without it images are counted"
        require(ids.dtype.kind in "iu", rule, InvalidTypeError, dtype=ids.dtype)
        return ids.tolist()

    def _collect(self, image_ids, scales, ground_truth):
        boxes = np.asarray(ground_truth["boxes"], "float64")
        labels = ground_truth["labels"]
        is_crowd = ground_truth.get("is_crowd", np.zeros(labels.shape, bool))
        used = (labels >= 0) & np.any(boxes != 0, axis=-1)
        for row, (image_id, scale) in enumerate(zip(image_ids, scales)):
            height, width = (float(side * scale) for side in self._image_size)
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
        if data.num_batches is None:
            raise _endless(data)
        return (lambda: (data[i] for i in range(data.num_batches))), None
    if isinstance(data, (str, os.PathLike, dict)) or not hasattr(data, "__iter__"):
        raise InvalidTypeError(f"{_WHAT_IT_TAKES} Received: {_described(data)}")
    if iter(data) is data:
        raise InvalidTypeError(
            f"{_WHAT_IT_TAKES} Received: {_described(data)}, which can be gone through "
            "only once. Wrap it: `tf.data.Dataset.from_generator`, or "
            "`list(generator)` if it fits into memory"
        )
    # tf.data: its `__len__` raises where the length is unknown.
    if hasattr(data, "cardinality") and int(data.cardinality()) == -1:
        raise _endless(data)
    return (lambda: iter(data)), None


def _endless(data):
    return InvalidValueError(
        "Evaluation needs data that ends. Received: an endless "
        f"{type(data).__name__}. Leave out `.repeat()`, or end it: "
        "`data.take(number_of_batches)`"
    )


def _as_array(values):
    return ops.convert_to_numpy(values) if ops.is_tensor(values) else np.asarray(values)


def _described(value):
    if isinstance(value, dict):
        return f"a dict of {sorted(map(str, value))}"
    size = f" of {len(value)}" if isinstance(value, (tuple, list)) else ""
    return f"a {type(value).__name__}{size}"
