"""The augmentations by name: for commands, and for files that describe a run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from effdet_keras._internal.extras import extra
from effdet_keras.augment.augmentation import Augmentation
from effdet_keras.augment.mixing import MixUp, Mosaic
from effdet_keras.augment.pixels import (
    Blur,
    CutOut,
    GridMask,
    JPEGNoise,
    PhotometricDistortion,
)
from effdet_keras.augment.warps import RandomCrop, Rotate, Shear
from effdet_keras.errors import InvalidTypeError, InvalidValueError

_STEPS = "tfod.preprocessing:STEPS"  # of the Object Detection API, by their names


def _policy(class_name, *policy):
    """An augmentation of an extra, imported when one is made."""
    return lambda **arguments: extra(f"policies:{class_name}")(*policy, **arguments)


NAMES: dict[str, Callable[..., Augmentation]] = {
    **{f"auto_augment_v{i}": _policy("AutoAugment", f"v{i}") for i in range(4)},
    "rand_augment": _policy("RandAugment"),
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
"""What makes each augmentation, with its defaults or other arguments:
`ek.augment.NAMES["rotate"](degrees=5.0)`."""


def augmentation_of(entry: str | Mapping[str, Any]) -> Augmentation:
    """Makes an augmentation of its name, or of a mapping of name and arguments."""
    arguments = {"name": entry} if isinstance(entry, str) else dict(entry)
    name = arguments.pop("name", None)
    known = (*NAMES, *extra(_STEPS))
    if name not in known:
        text = f"There is no augmentation {name!r}. Known: {', '.join(known)}"
        raise InvalidValueError(text)
    step = functools.partial(extra("tfod.preprocessing:PreprocessingStep"), name)
    try:
        return NAMES.get(name, step)(**arguments)
    except TypeError as error:  # an unknown argument, or text where a number belongs
        raise InvalidTypeError(
            f"The augmentation {name!r} has no such arguments ({error}). "
            f"Received: {arguments!r}"
        ) from error
