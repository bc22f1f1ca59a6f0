"""TensorBoard images of ground truth and detections, side by side."""

from __future__ import annotations

import functools
import os
from typing import Any

import keras
import numpy as np

from effdet_keras._internal.number_ranges import check_number, check_whole_number
from effdet_keras.callbacks.tensorboard import TensorBoardWriter
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.errors import InvalidValueError
from effdet_keras.extras.report.pages import colored, shrunk
from effdet_keras.train.averages import evaluated_weights
from effdet_keras.visualize import draw_boxes, side_by_side

_MIN_SIDE = 320  # pixels, so that tiny images have room for names


class ImageSummary(keras.callbacks.Callback):
    """Writes images with the model's detections beside the ground truth to TensorBoard.

    After an epoch, it runs `detect` on images that are spread evenly over the dataset,
    with the moving averages of the weights if the model has them. Each summary is a
    pair of images: the ground truth on the left, the detections on the right. If there
    are classes of pixels, both show them as colors. The callback needs TensorFlow.

    Args:
        dataset: `effdet_keras.data.DetectionDataset`.
        log_dir: path of a folder for TensorBoard, on this machine or anywhere that
            TensorFlow can write, such as `gs://bucket/logs`.
        num_images: int, number of images; fewer if the dataset is smaller.
        every: int, number of epochs from one summary to the next. There is always one
            after the last epoch of `fit`.
        score_threshold: float from 0 to 1, the lowest score to draw.
        max_side: int, pixels; larger images are scaled down to this side.

    Raises:
        ValueError: If the dataset is empty, or a number out of its range.
        ImportError: If TensorBoard is not installed.
        OSError: If `log_dir` cannot be written to, when training begins.

    Example:
        >>> import tempfile
        >>> from effdet_keras.data import from_arrays
        >>> from effdet_keras.model.efficientdet import EfficientDet
        >>> valid = from_arrays(
        ...     [np.zeros((64, 64, 3), "uint8")] * 3,
        ...     boxes=[[[8, 8, 40, 40]]] * 3, labels=[[0]] * 3, class_names=["cat"])
        >>> model = EfficientDet.from_preset(
        ...     "efficientdet-d0", image_size=64, max_level=6, class_names=["cat"]
        ... )
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pairs = ImageSummary(valid, folder, num_images=2).pairs(model)
        >>> len(pairs), pairs[0].dtype
        (2, dtype('uint8'))
    """

    def __init__(
        self,
        dataset: DetectionDataset,
        log_dir: str | os.PathLike[str],
        num_images: int = 4,
        every: int = 1,
        score_threshold: float = 0.3,
        max_side: int = 640,
    ) -> None:
        super().__init__()
        if len(dataset) == 0:
            raise InvalidValueError("`ImageSummary` needs a dataset with images")
        check_whole_number("num_images", num_images, "[1, inf)")
        check_whole_number("every", every, "[1, inf)")
        check_number("score_threshold", score_threshold, "[0, 1]")
        check_whole_number("max_side", max_side, "[1, inf)")
        self.dataset = dataset
        self.num_images = num_images
        self.every = every
        self.score_threshold = score_threshold
        self.max_side = max_side
        self._writer = TensorBoardWriter(log_dir)

    def on_train_begin(self, logs=None):
        self._writer.require_writable()

    def on_epoch_end(self, epoch, logs=None):
        is_last = epoch + 1 == (self.params or {}).get("epochs")
        if (epoch + 1) % self.every == 0 or is_last:
            self._writer.images("detections", self.pairs(self.model), step=epoch)

    def on_train_end(self, logs=None):
        self._writer.close()

    def pairs(self, model: Any) -> list[np.ndarray]:
        """Draws ground truth beside detections; returns uint8 arrays `[H, W, 3]`."""
        count = min(self.num_images, len(self.dataset))
        spread = np.linspace(0, len(self.dataset) - 1, count).round().astype(int)
        examples = [self.dataset[int(index)] for index in spread]
        images = [example["image"] for example in examples]
        with evaluated_weights(model):
            threshold = self.score_threshold
            found = model.detect(images, score_threshold=threshold, verbose=0)
        return [self._pair(*pair) for pair in zip(examples, found)]

    def _pair(self, example, found):
        """Draws ground truth and detections side by side: an image `[H, W, 3]`."""
        image, scale = shrunk(example["image"], self.max_side)
        names, seg_names = self.dataset.class_names, self.dataset.seg_class_names
        draw = functools.partial(draw_boxes, min_side=_MIN_SIDE)
        truth = draw(
            colored(image, example.get("mask"), seg_names),
            example["boxes"] * scale,
            labels=example["labels"],
            class_names=names,
        )
        detected = draw(
            colored(image, found.class_map, found.seg_class_names),
            found.boxes * scale,
            labels=found.labels,
            scores=found.scores,
            class_names=found.class_names or names,
        )
        titles = f"ground truth: {len(example['boxes'])}", f"detected: {len(found)}"
        return side_by_side(truth, detected, titles)
