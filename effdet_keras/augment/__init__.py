"""Augmentation of training images, boxes included: seeded, and inside `tf.data`."""

from effdet_keras.augment.augmentation import Augmentation
from effdet_keras.augment.compose import Compose, Sometimes

__all__ = [
    "Augmentation",
    "Compose",
    "Sometimes",
]
