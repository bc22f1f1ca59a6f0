"""What a run gives to `fit`: batches to train on, and callbacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from effdet_keras._internal.optional_imports import OptionalModule, tensorflow
from effdet_keras.callbacks import CheckpointArchive, COCOEvaluation, ImageSummary
from effdet_keras.data import DetectionDataset
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.runs.configuration import RunConfiguration
from effdet_keras.runs.profile import ProfiledSteps, range_of_steps
from effdet_keras.runs.run_folder import RunFolder
from effdet_keras.runs.run_log import RunLog, TensorBoardCurves
from effdet_keras.runs.splits import Splits

_tensorboard = OptionalModule("tensorboard", install="effdet-keras[tensorboard]")


def training_batches(
    model: EfficientDet, configuration: RunConfiguration, dataset: DetectionDataset
) -> Any:
    """The batches of an epoch, augmented: a `tf.data.Dataset`."""
    options: dict[str, Any] = {
        "flip_probability": configuration.flip_probability,
        "seed": configuration.seed,
    }
    if configuration.scale_jitter != "auto":
        options["scale_jitter"] = configuration.scale_jitter
    if configuration.pad_rgb is not None:
        options["pad_value"] = configuration.pad_rgb
    if configuration.augment:
        options["augment"] = configuration.new_augmentations()
    return model.batches(dataset, configuration.batch_size, training=True, **options)


def callbacks_of_run(
    configuration: RunConfiguration,
    splits: Splits,
    folder: RunFolder,
    log: RunLog,
    more: Sequence[keras.callbacks.Callback] = (),
) -> list[keras.callbacks.Callback]:
    """Log and checkpoints; evaluation, TensorBoard and a trace where wanted.

    Args:
        more: callbacks that the run was given. The checkpoint of an epoch is written
            behind them, and holds what they count.
    """
    every, is_loud = configuration.evaluate_every, configuration.verbose != 0
    archive = CheckpointArchive(
        folder.archive,
        monitor=configuration.monitor if configuration.has_best else None,
        mode=configuration.monitor_mode,
        verbose=is_loud,
        save_every_steps=configuration.save_every_steps,
        save_every_minutes=configuration.save_every_minutes,
        keep=configuration.keep,
        keep_every_hours=configuration.keep_every_hours,
    )
    callbacks: list[keras.callbacks.Callback] = [log]
    if every:
        evaluation = COCOEvaluation(
            splits.validation,
            every=every,
            batch_size=configuration.batch_size,
            verbose="auto" if is_loud else False,
            losses=configuration.validation_losses,
        )
        callbacks.insert(0, evaluation)
    if writes_tensorboard(configuration):
        callbacks.append(TensorBoardCurves(folder.tensorboard, log))
        if every:
            path = str(folder.tensorboard)
            callbacks.append(ImageSummary(splits.validation, path, every=every))
    # The archive behind the log: no epoch has a checkpoint and no line.
    callbacks += [*more, archive]
    if configuration.profile is not None:
        steps = range_of_steps(configuration.profile)
        callbacks.append(ProfiledSteps(*steps, folder.profile))
    return callbacks


def writes_tensorboard(configuration: RunConfiguration) -> bool:
    """Whether a run writes files for TensorBoard."""
    needed = (_tensorboard, tensorflow)
    if configuration.tensorboard is True:
        for module in needed:
            module.require("`tensorboard=True`")
        return True
    installed = all(module.is_installed() for module in needed)
    return configuration.tensorboard == "auto" and installed
