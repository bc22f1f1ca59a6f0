"""The losses of an evaluation, collected from the forward passes that detect."""

from __future__ import annotations

from typing import Any

import numpy as np

from effdet_keras._internal.label_constants import BACKGROUND
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.errors import InvalidValueError
from effdet_keras.inference.dataset_to_evaluate import EvaluationBatch


class BatchLosses:
    """Detects in batches, and keeps their losses.

    Args:
        detector: `EfficientDet`, or a `Predictor` of one.

    Attributes:
        of_batches: list of the losses of each batch so far.

    Raises:
        ValueError: If the detector has no losses, as an exported file.
    """

    def __init__(self, detector: Any) -> None:
        model = getattr(detector, "detector", detector)
        if not hasattr(model, "evaluate_and_detect_on_batch"):
            raise InvalidValueError(
                "Losses are computed by a model that runs in Keras, from a `.keras` "
                f"file. Received: {type(model).__name__}, which has detections alone. "
                "Evaluate it without losses."
            )
        self._model = model
        self.of_batches: list[dict[str, float]] = []
        self._num_rows = 0

    def detect(self, images: np.ndarray, batch: EvaluationBatch) -> dict[str, Any]:
        """Detects in a batch, and keeps its losses.

        Args:
            images: float32 array `[B, H, W, 3]`, those of `batch`, and behind them
                others that fill it up.
            batch: `EvaluationBatch`.

        Returns:
            Dict of arrays, as `Postprocess` returns.
        """
        count = len(batch.images)
        # Never fewer rows than before: another shape is compiled anew.
        self._num_rows = max(self._num_rows, batch.truth["labels"].shape[1], 1)
        boxes = np.zeros((len(images), self._num_rows, 4), "float32")
        labels = np.full(boxes.shape[:2], BACKGROUND, "int32")
        rows = batch.truth["labels"].shape[1]
        boxes[:count, :rows] = batch.truth["boxes"]
        labels[:count, :rows] = batch.truth["labels"]
        sizes = {}
        if self._model.postprocess.drop_empty:
            missing = [(0, len(images) - count), (0, 0)]
            sizes = {"content_sizes": np.pad(batch.content_sizes, missing)}
        outputs, losses = self._model.evaluate_and_detect_on_batch(
            images,
            {"boxes": boxes, "labels": labels},
            np.arange(len(images)) < count,
            **sizes,
        )
        self.of_batches.append(losses)
        return outputs


def mean_losses(of_batches: list[dict[str, float]]) -> dict[str, float]:
    """The mean of each loss over the batches, `loss` first.

    Example:
        >>> mean_losses([{"box_loss": 1.0, "loss": 2.0}, {"box_loss": 3.0, "loss": 4}])
        {'loss': 3.0, 'box_loss': 2.0}
    """
    names = ["loss", *(name for name in of_batches[0] if name != "loss")]
    return {x: float(np.mean([one[x] for one in of_batches])) for x in names}


def labels_of_detector(category_ids: np.ndarray, dataset: DetectionDataset):
    """The detector's label of each label of a dataset.

    Args:
        category_ids: ints `[C]`, of each label of the detector the id in the dataset.
        dataset: `DetectionDataset`.

    Returns:
        Int array `[dataset.num_classes]`.

    Raises:
        ValueError: If the detector lacks a class of the dataset.
    """
    label_of = {int(x): label for label, x in enumerate(category_ids)}
    known = zip(dataset.class_names, dataset.category_ids)
    missing = [name for name, category_id in known if category_id not in label_of]
    if missing:
        raise InvalidValueError(
            "Losses need a model that has all classes of the dataset. Missing: "
            f"{missing[:5]}. Evaluate it without losses."
        )
    return np.array([label_of[category_id] for category_id in dataset.category_ids])
