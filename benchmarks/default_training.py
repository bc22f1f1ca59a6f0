"""What benchmarks of whole trainings share: a new model, epochs, CPU seconds."""

import os

import keras

import effdet_keras as ek


def new_model(train, seed, image_size=None, preset="efficientdet-lite0"):
    """A model from an ImageNet backbone, with all that fits `train`; not compiled.

    Args:
        train: `DetectionDataset`.
        seed: int, set for all random numbers.
        image_size: of the input; None is the one that fits the boxes.
        preset: string, its name.
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
    """Whole epochs of about so many steps, at least one."""
    return max(round(steps * batch_size / len(train)), 1)


def cpu_seconds():
    """Of this process, so far."""
    times = os.times()
    return times.user + times.system
