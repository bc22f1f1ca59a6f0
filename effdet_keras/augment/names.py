"""The augmentations that need no argument, by name: for commands and tests."""

from __future__ import annotations

import functools
from collections.abc import Callable

from effdet_keras.augment.augmentation import Augmentation
from effdet_keras.augment.auto_augment import AutoAugment
from effdet_keras.augment.blur import Blur
from effdet_keras.augment.cut_out import CutOut
from effdet_keras.augment.grid_mask import GridMask
from effdet_keras.augment.jpeg_noise import JPEGNoise
from effdet_keras.augment.mix_up import MixUp
from effdet_keras.augment.mosaic import Mosaic
from effdet_keras.augment.photometric_distortion import PhotometricDistortion
from effdet_keras.augment.rand_augment import RandAugment
from effdet_keras.augment.random_crop import RandomCrop
from effdet_keras.augment.rotate import Rotate
from effdet_keras.augment.shear import Shear

NAMES: dict[str, Callable[[], Augmentation]] = {
    "auto_augment_v0": functools.partial(AutoAugment, "v0"),
    "auto_augment_v1": functools.partial(AutoAugment, "v1"),
    "auto_augment_v2": functools.partial(AutoAugment, "v2"),
    "auto_augment_v3": functools.partial(AutoAugment, "v3"),
    "rand_augment": RandAugment,
    "mosaic": Mosaic,
    "mix_up": MixUp,
    "random_crop": RandomCrop,
    "rotate": Rotate,
    "shear": Shear,
    "photometric_distortion": PhotometricDistortion,
    "blur": Blur,
    "jpeg_noise": JPEGNoise,
    "cut_out": CutOut,
    "grid_mask": GridMask,
}
"""What makes each augmentation with its defaults: `ek.augment.NAMES["rotate"]()`."""
