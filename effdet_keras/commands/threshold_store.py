"""What `eval --store-thresholds` writes into the archive that it evaluated."""

from __future__ import annotations

import os

from effdet_keras.commands.open_model import is_published
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.errors import InvalidStateError, InvalidValueError
from effdet_keras.evaluation.evaluation import Evaluation
from effdet_keras.inference.detect_dataset import category_ids_in_dataset
from effdet_keras.predictor import Predictor
from effdet_keras.weights.archive_scores import (
    file_for_score_settings,
    store_score_settings,
)


class ThresholdStore:
    """The archive of a model: found before the model is opened, changed at the end.

    Args:
        model: path of a `.keras` file, of a folder of `CheckpointArchive`, or of the
            folder of a run.

    Raises:
        ValueError: If it can store no thresholds.
        OSError: If it is not there.
    """

    def __init__(self, model: str) -> None:
        if is_published(model):
            raise InvalidValueError(
                f"--store-thresholds needs a file. Received: '{model}', whose weights "
                "are published. Save the model first, as in "
                f'`ek.EfficientDet.from_preset("{model}", weights="coco")'
                '.save("mine.keras")`.'
            )
        self.path = file_for_score_settings(model)
        self._state = self._now()

    def store(
        self, evaluation: Evaluation, predictor: Predictor, dataset: DetectionDataset
    ) -> None:
        """Stores what was found best, and says so.

        Args:
            evaluation: `Evaluation` of the model on `dataset`.
            predictor: `Predictor` of the model.
            dataset: `DetectionDataset`.

        Raises:
            ValueError: If no detection is right.
            RuntimeError: If the file is not the one that was there at the beginning.
        """
        settings = evaluation.score_settings(_names_of_labels(predictor, dataset))
        if self._now() != self._state:
            raise InvalidStateError(
                f"'{self.path}' was replaced while it was evaluated, perhaps by a "
                "training that goes on. Its thresholds are not those of this "
                "evaluation, and were not stored. Evaluate again when the training is "
                "done."
            )
        store_score_settings(self.path, settings)
        temperature = settings.temperature
        words = (
            "no temperature: scores do not tell right from wrong"
            if temperature is None
            else f"a temperature of {temperature:.2f}"
        )
        classes = len(settings.thresholds)
        print(
            f"\nStored in '{self.path}': a threshold for each of {classes} classes, "
            f"and {words}. `effdet-keras predict --score best` uses them. Numbers on "
            "these images are now too good: they chose the thresholds."
        )

    def _now(self):
        status = os.stat(self.path)
        return status.st_ino, status.st_mtime_ns, status.st_size


def _names_of_labels(predictor, dataset):
    """For each label of a model the name of that class in a dataset.

    A model without names is told by its ids, as `category_ids_in_dataset` does.
    """
    names = predictor.class_names
    if names is not None and set(dataset.class_names) <= set(names):
        return names
    name_of = dict(zip(dataset.category_ids, dataset.class_names))
    ids = category_ids_in_dataset(predictor, dataset).tolist()
    return tuple(name_of.get(category_id, "") for category_id in ids)
