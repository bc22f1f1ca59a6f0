"""Functions for benchmarks of whole trainings: a new model, epochs, CPU seconds."""

import os

import keras

import effdet_keras as ek


def new_model(train, seed, image_size=None, preset="efficientdet-lite0"):
    """Returns an uncompiled model with an ImageNet backbone, fitted to `train`.

    Args:
        train: `DetectionDataset`.
        seed: int, the seed of all random numbers.
        image_size: size of the input; None for the size that fits the boxes.
        preset: string, the name of the preset.
    """
    keras.utils.clear_session()
    keras.utils.set_random_seed(seed)
    return ek.EfficientDet.from_preset(
        preset,
        "imagenet",
        dataset=train,
        image_size=image_size or "auto",
        anchors="auto",
        verbose=0,
    )


def num_epochs(train, steps, batch_size):
    """Returns the number of whole epochs for about `steps` steps, at least one."""
    return max(round(steps * batch_size / len(train)), 1)


def cpu_seconds():
    """Returns the CPU seconds of this process so far."""
    times = os.times()
    return times.user + times.system
