"""Where the detections of an evaluation come from: a model, or a file of any system."""

from __future__ import annotations

import sys
import time
from typing import Any, Protocol

from effdet_keras.commands.open_model import open_any_model
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.evaluation.image_result import ImageResult
from effdet_keras.evaluation.results_of_coco import read_detections, results_of_coco
from effdet_keras.evaluation.results_to_coco import detections_to_coco
from effdet_keras.export.description import weights_digest
from effdet_keras.export.exported_detector import ExportedDetector
from effdet_keras.inference.evaluate import losses_text
from effdet_keras.inference.results_of_images import (
    image_results,
    image_results_and_losses,
)
from effdet_keras.predictor import Predictor


class DetectionSource(Protocol):
    """A detector whose results on a dataset are to be known.

    Attributes:
        name: string, what the user called it.
        weights: string, the `weights_digest` of its model, or None.
    """

    name: str
    weights: str | None

    def results(self, dataset: DetectionDataset) -> list[ImageResult]:
        """An `ImageResult` per image, with the labels of the dataset."""

    def facts(self) -> dict[str, Any]:
        """What to tell of it beside its numbers, after `results`."""


class ModelSource:
    """A model, opened at once: what is wrong with it is told before any work.

    Args:
        model: path or name, as `open_any_model` takes it.
        batch_size: int, images at once.
        threads: int, of the runtime of an exported model; None for its own choice.
        with_losses: bool, whether to compute the losses, from the same forward pass.

    Attributes:
        predictor: `Predictor`.
    """

    def __init__(
        self,
        model: str,
        batch_size: int,
        threads: int | None,
        with_losses: bool = False,
    ) -> None:
        self.name = model
        self._with_losses, self._losses = with_losses, {}
        self._batch_size = batch_size
        self.predictor = open_any_model(model, threads)
        detector = self.predictor.detector
        if isinstance(detector, ExportedDetector):
            self.weights = detector.runtime.description.weights
        else:
            self.weights = weights_digest(detector)
        self._seconds, self._num_images = 0.0, 0

    def results(self, dataset: DetectionDataset) -> list[ImageResult]:
        start = time.perf_counter()
        aligned = _with_classes_of(self.predictor, dataset)
        # A bar counts the images, on terminals alone: it is made of carriage returns.
        options = {"batch_size": self._batch_size, "verbose": sys.stdout.isatty()}
        if self._with_losses:
            results, self._losses = image_results_and_losses(
                self.predictor, aligned, **options
            )
            print(f"\n{losses_text(self._losses)}", flush=True)
        else:
            results = image_results(self.predictor, aligned, **options)
        self._seconds = time.perf_counter() - start
        self._num_images = len(dataset)
        if aligned is dataset:
            return results
        found = detections_to_coco(results, aligned.category_ids)
        return results_of_coco(dataset.to_coco(), found)

    def facts(self) -> dict[str, Any]:
        height, width = self.predictor.config.image_size
        losses = {"losses": self._losses} if self._losses else {}
        return {
            **losses,
            "model": self.predictor.config.name,
            "kind": _kind(self.predictor),
            "network's input": f"{height} x {width}",
            "images at once": self._batch_size,
            "seconds of detection": round(self._seconds, 1),
            "images per second": round(self._num_images / self._seconds, 2),
        }


class FileSource:
    """A file in COCO's result format, read at once.

    Args:
        path: path of a json file.
    """

    def __init__(self, path: str) -> None:
        self.name, self.weights = path, None
        self._detections = read_detections(path)

    def results(self, dataset: DetectionDataset) -> list[ImageResult]:
        return results_of_coco(dataset.to_coco(), self._detections)

    def facts(self) -> dict[str, Any]:
        return {"kind": "detections in COCO's result format"}


def _with_classes_of(predictor: Predictor, dataset: DetectionDataset):
    """The dataset in the order of the model's classes, where that has all of them."""
    names = predictor.class_names
    if names is None or tuple(names) == dataset.class_names:
        return dataset
    if not set(dataset.class_names) <= set(names):
        return dataset  # ids may still agree; if not, `image_results` says so
    return dataset.with_classes(names)


def _kind(predictor):
    detector = predictor.detector
    if not isinstance(detector, ExportedDetector):
        return "Keras"
    return f"{detector.runtime.description.precision} file '{detector.runtime.path}'"
