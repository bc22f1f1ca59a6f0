"""The whole way in five minutes: dataset, training, evaluation, archive, images."""

from __future__ import annotations

import os
import time

import keras
from PIL import Image

from effdet_keras import visualize
from effdet_keras._internal.optional_imports import matplotlib_figure
from effdet_keras._internal.whole_files import local_path
from effdet_keras.callbacks.checkpoint_archive import CheckpointArchive
from effdet_keras.callbacks.coco_evaluation import COCOEvaluation
from effdet_keras.callbacks.image_summary import ImageSummary
from effdet_keras.errors import InvalidValueError
from effdet_keras.extras.demo import blood_cells as demo_blood_cells
from effdet_keras.extras.demo import shapes as demo_shapes
from effdet_keras.model.efficientdet import EfficientDet

# Each has `make_data`, `new_model`, `fit` and the number of `EPOCHS`.
_DEMOS = {"blood-cells": demo_blood_cells, "shapes": demo_shapes}
_NUM_IMAGES = 9  # drawn at the end


def run_demo(
    folder: str | os.PathLike[str],
    *,
    data: str = "blood-cells",
    num_train: int | None = None,
    epochs: int | None = None,
    seed: int = 0,
    overwrite: bool = False,
) -> dict[str, float]:
    """Trains a detector on a small dataset, evaluates, saves, reloads and draws.

    Writes into `folder`: the archives (`archive/`), the files of TensorBoard
    (`logs/`), held-out images with the ground truth on the left and what the best
    archive finds on the right (`images/`), and the curves of the training
    (`curves.png`); for the shapes also the dataset (`data/`, `unseen/`).

    The best checkpoint is chosen on a validation split; the numbers are of a test
    split, on which nothing was chosen.
    """
    if data not in _DEMOS:
        raise InvalidValueError(
            f"`data` must be one of {list(_DEMOS)}. Received: data={data!r}"
        )
    demo = _DEMOS[data]
    epochs = demo.EPOCHS if epochs is None else epochs
    if epochs < 1:
        raise InvalidValueError(
            f"`epochs` must be 1 or more. Received: epochs={epochs}"
        )
    matplotlib_figure.require("The demo")  # before minutes of training
    start = time.monotonic()
    folder = local_path(folder, "`folder`")
    if folder.is_dir() and any(folder.iterdir()) and not overwrite:
        raise FileExistsError(
            f"The folder '{folder}' is not empty, and nothing in it is overwritten: "
            "give another one with --out, or add --overwrite."
        )
    folder.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(seed)

    train, valid, test = demo.make_data(folder, num_train=num_train, seed=seed)
    print(train.summary())
    model = demo.new_model(train)
    print(
        f"Training a detector with {model.count_params():,} parameters. "
        "Compiling the first step takes half a minute ..."
    )
    archive, every = folder / "archive", max(epochs // 2, 1)
    history = demo.fit(
        model,
        train,
        epochs=epochs,
        seed=seed,
        callbacks=[
            COCOEvaluation(valid, every=every, batch_size=30, verbose=False),
            CheckpointArchive(archive, monitor="AP"),
            ImageSummary(valid, folder / "logs", every=every),
        ],
    )

    best = EfficientDet.from_archive(archive)
    print(f"The best checkpoint, on the {len(test)} images of the test split:")
    numbers = COCOEvaluation(test, batch_size=30).evaluate(best)
    images = _draw_pairs(best, test, folder)
    curves = folder / "curves.png"
    visualize.plot_history(history, curves)
    print(
        f"\nAP {numbers['AP']:.3f}, AP50 {numbers['AP50']:.3f} on {len(test)} images "
        "on which nothing was trained or chosen, after "
        f"{time.monotonic() - start:.0f} seconds.\n"
        f"  best checkpoint   {archive / 'best.keras'}\n"
        f"  what it finds     {images}\n"
        f"  training curves   {curves}\n"
        f"  for TensorBoard   {folder / 'logs'}\n"
        "Load the checkpoint with `EfficientDet.from_archive(path)`."
    )
    return numbers


def _draw_pairs(model, dataset, folder):
    """Saves some images: ground truth on the left, detections on the right."""
    images = folder / "images"
    images.mkdir(exist_ok=True)
    summary = ImageSummary(dataset, folder / "logs", num_images=_NUM_IMAGES)
    for number, pair in enumerate(summary.pairs(model), start=1):
        Image.fromarray(pair).save(images / f"{number:02d}.png")
    return images
