"""The first batch of a training as an image: what the steps really see."""

from __future__ import annotations

import numpy as np
from PIL import Image

from effdet_keras._internal.whole_files import replacing
from effdet_keras.callbacks.tensorboard import TensorBoardWriter
from effdet_keras.data import DetectionDataset
from effdet_keras.models import EfficientDet
from effdet_keras.runs.configuration import RunConfiguration
from effdet_keras.runs.fitting import training_batches, writes_tensorboard
from effdet_keras.runs.run_folder import RunFolder
from effdet_keras.visualize.training_images import batch_grid


def draw_first_batch(
    model: EfficientDet,
    configuration: RunConfiguration,
    dataset: DetectionDataset,
    folder: RunFolder,
) -> None:
    """Writes the image to the folder of a run, and to TensorBoard.

    The batches are made anew; with the seed of the run they are those of the training.

    Args:
        model: `EfficientDet`.
        configuration: `RunConfiguration`.
        dataset: `DetectionDataset` to train on.
        folder: `RunFolder`.
    """
    batches = training_batches(model, configuration, dataset)
    images, truth = next(iter(batches.take(1)))
    truth = {name: np.asarray(truth[name]) for name in ("boxes", "labels")}
    names = model.class_names or dataset.class_names
    grid = batch_grid(images, truth, names, model.seg_class_names)
    with replacing(folder.first_batch) as partial:
        Image.fromarray(grid).save(partial, format="PNG")
    if writes_tensorboard(configuration):
        writer = TensorBoardWriter(folder.tensorboard)
        writer.images("first batch", [grid], step=0)
        writer.close()
