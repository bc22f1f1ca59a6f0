"""The whole way in five minutes: dataset, training, evaluation, checkpoint, images."""

from __future__ import annotations

import os
import time

import keras

from effdet_keras import visualize
from effdet_keras._internal.local_paths import local_path
from effdet_keras.callbacks import (
    CheckpointArchive,
    COCOEvaluation,
    ImageSummary,
    SwapEMA,
)
from effdet_keras.data import write_shapes
from effdet_keras.errors import InvalidValueError
from effdet_keras.models import EfficientDet
from effdet_keras.training.schedules import WarmupCosine

_IMAGE_SIZE = 128
_BATCH_SIZE = 8
_LEARNING_RATE = 3e-3
_NUM_IMAGES = 9  # drawn at the end


def run_demo(
    folder: str | os.PathLike[str],
    *,
    num_train: int = 1800,
    num_valid: int = 100,
    epochs: int = 4,
    seed: int = 0,
) -> dict[str, float]:
    """Makes a dataset, trains on it, evaluates, saves, reloads and draws.

    Writes into `folder`: the dataset (`data/`), the archives (`archive/`), the files
    of TensorBoard (`logs/`), new images with what the best archive finds in them drawn
    (`images/`), and the curves of the training (`curves.png`).

    Args:
        folder: where to write; made if it is not there.
        num_train: int, how many images to make for training.
        num_valid: int, how many images to make for evaluation.
        epochs: int, how many epochs to train.
        seed: int, seed of the images, the initial weights and the batches.

    Returns:
        Dict of the numbers of the last epoch, by their names in the logs.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If a number is out of range.
        OSError: If `folder` cannot be written to.
    """
    if epochs < 1:
        raise InvalidValueError(
            f"`epochs` must be 1 or more. Received: epochs={epochs}"
        )
    visualize.require_matplotlib()  # before minutes of training
    start = time.monotonic()
    folder = local_path(folder, "`folder`")
    keras.utils.set_random_seed(seed)

    print(f"Making {num_train + num_valid} images of shapes ...")
    train, valid = write_shapes(
        folder / "data",
        num_train=num_train,
        num_valid=num_valid,
        image_size=_IMAGE_SIZE,
        seed=seed,
    )
    print(train.summary())

    model = _small_detector(train)
    steps_per_epoch = max(num_train // _BATCH_SIZE, 1)
    schedule = WarmupCosine(
        _LEARNING_RATE,
        total_steps=epochs * steps_per_epoch,
        warmup_steps=min(50, steps_per_epoch),
    )
    model.compile(keras.optimizers.Adam(schedule), weight_decay=0.0)
    print(
        f"Training a detector with {model.count_params():,} parameters from scratch. "
        "Compiling the first step takes half a minute ..."
    )
    batches = train.batches(
        _BATCH_SIZE,
        training=True,
        image_size=_IMAGE_SIZE,
        pad_value=model.config.padding_rgb,
        scale_jitter=(1.0, 1.0),
        seed=seed,
    )
    archive = folder / "archive"
    history = model.fit(
        batches,
        validation_data=valid,
        validation_freq=max(epochs // 2, 1),
        epochs=epochs,
        verbose=1,
        callbacks=[
            SwapEMA(),
            COCOEvaluation(valid, every=max(epochs // 2, 1), batch_size=30),
            CheckpointArchive(archive, monitor="AP"),
            ImageSummary(valid, folder / "logs", every=max(epochs // 2, 1)),
        ],
    )

    best = EfficientDet.from_archive(archive)
    images = _draw_detections(best, folder, seed)
    curves = folder / "curves.png"
    visualize.plot_history(history, curves)
    numbers = {name: values[-1] for name, values in history.history.items()}
    print(
        f"\nAP {numbers['AP']:.3f}, AP50 {numbers['AP50']:.3f} on {num_valid} images "
        f"that were not trained on, after {time.monotonic() - start:.0f} seconds.\n"
        f"  best checkpoint   {archive / 'best.keras'}\n"
        f"  what it finds     {images}\n"
        f"  training curves   {curves}\n"
        f"  for TensorBoard   {folder / 'logs'}\n"
        "Load the checkpoint with `EfficientDet.from_archive(path)`."
    )
    return numbers


def _small_detector(dataset):
    """EfficientDet-D0 cut down for small images: three levels, nothing repeated."""
    return EfficientDet.from_preset(
        "efficientdet-d0",
        class_names=dataset.class_names,
        category_ids=dataset.category_ids,
        image_size=_IMAGE_SIZE,
        max_level=5,
        fpn_cell_repeats=1,
        head_repeats=1,
        # A thousand steps are few for statistics that forget 1 % per step.
        batch_norm_momentum=0.9,
    )


def _draw_detections(model, folder, seed):
    """Draws what the model finds in new images, and saves them."""
    write_shapes(
        folder / "unseen",
        num_train=1,
        num_valid=_NUM_IMAGES,
        image_size=_IMAGE_SIZE,
        seed=seed + 1,
    )
    images = folder / "images"
    images.mkdir(exist_ok=True)
    found = model.detect(folder / "unseen" / "valid", score_threshold=0.5)
    for number, detections in enumerate(found, start=1):
        detections.save(images / f"{number:02d}.png", min_side=400)
    return images
