"""The letterboxed images of a `DetectionDataset`, batch by batch, in NumPy."""

import collections
import concurrent.futures
import dataclasses
import itertools
import os

import numpy as np

from effdet_keras._internal.label_constants import BACKGROUND
from effdet_keras.data.pipeline.image_reader import ImageReader
from effdet_keras.errors import InvalidValueError
from effdet_keras.geometry.letterbox import boxes_in_input
from effdet_keras.inference.detect import content_size, in_input

_BATCHES_AHEAD = 2  # one in use, one ready; more only fills memory


@dataclasses.dataclass(frozen=True)
class EvaluationBatch:
    """Images to detect in, and how their boxes go back to the images.

    Attributes:
        images: float32 array `[B, H, W, 3]`, letterboxed pixels 0-255.
        image_ids: list of `B` ints.
        image_scales: float32 array `[B]`, or `[B, 2]` for `y` and `x`, pixels of the
            image per pixel of the input; 0 marks an image that could not be read.
        image_sizes: list of `B` pairs `(height, width)`, pixels of the image.
        content_sizes: float32 array `[B, 2]`, height and width of each image inside
            the input.
        truth: dict of `boxes` `[B, M, 4]`, float32, `yxyx` in pixels of the input, and
            `labels` `[B, M]`, int32, -1 in padding rows: what losses are taken of.
    """

    images: np.ndarray
    image_ids: list
    image_scales: np.ndarray
    image_sizes: list
    content_sizes: np.ndarray
    truth: dict


class DatasetToEvaluate:
    """Letterboxed batches of a `DetectionDataset`, read ahead by threads.

    NumPy alone, so that evaluation needs no TensorFlow; the inputs are, bit for bit,
    those of `detect`. An image that cannot be read counts as empty, and a
    line on standard error names it.

    Args:
        config: `EfficientDetConfig`.
        dataset: `DetectionDataset`.
        batch_size: int, images at once.
        share: `(index, count)`: it yields every `count`-th batch, from `index` on, and
            reads no image of the others.
        labels: ints `[C]`, the detector's label of each label of the dataset; None
            where they are the same.
    """

    def __init__(self, config, dataset, batch_size, labels=None, share=(0, 1)):
        if len(dataset) == 0:
            raise InvalidValueError(
                "Evaluation needs at least one image. The dataset is empty"
            )
        self.num_images = len(dataset)
        self._config = config
        self._dataset = dataset
        self._batch_size = batch_size
        self._share = share
        self._labels = np.arange(dataset.num_classes) if labels is None else labels
        # One number of rows for all batches: another shape is compiled anew.
        counts = [np.count_nonzero(~record.is_crowd) for record in dataset.records]
        self._num_rows = max(counts)

    def __iter__(self):
        records = self._dataset.records
        reader = ImageReader(
            records, self._dataset.class_names, replace=False, strict=False
        )

        size, (first, count) = self._batch_size, self._share
        starts = range(first * size, len(records), count * size)
        own = [i for at in starts for i in range(at, min(at + size, len(records)))]

        def read(number):
            index = own[number]
            image, boxes, labels, _, is_there = reader.read(index)
            truth = self._padded(boxes, labels, image.shape[:2])
            content = content_size(self._config, image.shape[:2])
            image, scale = in_input(self._config, image)
            return image, scale if is_there else 0 * scale, content, *truth

        inputs = _read_ahead(read, len(own), _BATCHES_AHEAD * size)
        for start in starts:
            batch = records[start : start + size]
            read_ahead = itertools.islice(inputs, len(batch))
            images, scales, contents, boxes, labels = zip(*read_ahead)
            yield EvaluationBatch(
                np.stack(images),
                [record.image_id for record in batch],
                np.float32(scales),
                [record.image_size for record in batch],
                np.stack(contents),
                {"boxes": np.stack(boxes), "labels": np.stack(labels)},
            )
        reader.report()

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


def _read_ahead(read, count, ahead):
    """`read(0)`, `read(1)`, ... in order, `ahead` of them under way in threads."""
    threads = min(os.cpu_count() or 1, ahead)
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        indices = iter(range(count))
        under_way = collections.deque(
            pool.submit(read, index) for index in itertools.islice(indices, ahead)
        )
        try:
            while under_way:
                result = under_way.popleft().result()
                for index in itertools.islice(indices, 1):
                    under_way.append(pool.submit(read, index))
                yield result
        finally:
            for future in under_way:
                future.cancel()
