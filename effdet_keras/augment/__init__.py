"""Augmentation of training images and their boxes, seeded and inside `tf.data`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from effdet_keras._internal.extras import extra
from effdet_keras._internal.lazy_names import lazy_names
from effdet_keras._internal.old_names import warn_of_old_name
from effdet_keras.augment.augmentation import (
    Augmentation,
    Compose,  # noqa: F401
    FromNumPy,
    RandomApply,
)
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

if TYPE_CHECKING:
    from effdet_keras.extras.policies import AutoAugment, RandAugment
    from effdet_keras.extras.tfod.preprocessing import PreprocessingStep

__all__ = [
    "NAMES",
    "Augmentation",
    "AutoAugment",
    "FromNumPy",
    "MixUp",
    "Mosaic",
    "PhotometricDistortion",
    "PreprocessingStep",
    "RandAugment",
    "RandomApply",
    "RandomCrop",
    "Rotate",
]

_PLACES = {
    "AutoAugment": "extras.policies",
    "RandAugment": "extras.policies",
    "PreprocessingStep": "extras.tfod.preprocessing",
}
if not TYPE_CHECKING:
    _lazy, __dir__ = lazy_names(__name__, _PLACES)

    def __getattr__(name):
        if name != "Sometimes":
            return _lazy(name)
        warn_of_old_name("augment.Sometimes", "augment.RandomApply")
        return RandomApply


# --- The augmentations by name, for commands and run configurations.


def _policy(class_name, *policy):
    """Returns a function that imports an extra and makes its augmentation."""
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
    """Makes an augmentation from its name, or from a mapping with its arguments.

    Args:
        entry: str, a key of `NAMES` or the name of a preprocessing step of the
            TensorFlow Object Detection API; or a dict with that string as "name" and
            the arguments of the augmentation.

    Returns:
        `Augmentation`.

    Raises:
        ValueError: If there is no augmentation of this name, or an argument is out of
            range.
        TypeError: If the augmentation does not take these arguments.

    Example:
        >>> augmentation_of({"name": "rotate", "degrees": 5.0}).degrees
        5.0
    """
    arguments = {"name": entry} if isinstance(entry, str) else dict(entry)
    name = arguments.pop("name", None)
    # The preprocessing steps of the Object Detection API.
    from effdet_keras.extras.tfod.preprocessing import STEPS

    known = (*NAMES, *STEPS)
    if name not in known:
        text = f"There is no augmentation {name!r}. Known: {', '.join(known)}"
        raise InvalidValueError(text)
    from effdet_keras.extras.tfod.preprocessing import PreprocessingStep

    step = functools.partial(PreprocessingStep, name)
    try:
        return NAMES.get(name, step)(**arguments)
    except TypeError as error:  # an unknown argument, or text where a number belongs
        raise InvalidTypeError(
            f"The augmentation {name!r} has no such arguments ({error}). "
            f"Received: {arguments!r}"
        ) from error
