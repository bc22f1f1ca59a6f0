"""The preprocessing steps of the TensorFlow Object Detection API, by its names.

A step is a function of an example, whose image is float32, and a seed; its other
arguments are the fields of the step in a `pipeline.config`. `STEPS` has them all, with
the values of fields that are absent there. What they do was read in the API's
`preprocessor.py`; only the random numbers are others.
"""

from __future__ import annotations  # a type of TensorFlow would import it

import functools
import math
import numbers
from typing import Any

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.augment import preprocessing_moves as moves
from effdet_keras.augment import preprocessing_pixels as pixels
from effdet_keras.augment.augmentation import Augmentation, Example, register
from effdet_keras.errors import InvalidValueError


@register
class PreprocessingStep(Augmentation):
    """One of the Object Detection API's `data_augmentation_options`.

    Args:
        step: string, its name there, such as "random_vertical_flip".
        **parameters: its fields there. One that is absent has the default that it has
            there.

    Raises:
        ValueError: If there is no such step, or a field or its value is wrong.

    Example:
        >>> import numpy as np
        >>> flip = PreprocessingStep("random_vertical_flip", probability=1.0)
        >>> example = {"image": np.zeros((10, 20, 3), "uint8"),
        ...     "boxes": np.float32([[0, 0, 4, 8]]), "labels": np.int32([5])}
        >>> flip(example, seed=[0, 1])["boxes"].numpy().tolist()
        [[6.0, 0.0, 10.0, 8.0]]
    """

    def __init__(self, step: str, **parameters: Any) -> None:
        if step not in STEPS:
            raise InvalidValueError(
                f"`step` must be one of {', '.join(STEPS)}. Received: step={step!r}"
            )
        self.step = step
        self.parameters = _checked(step, STEPS[step][1], parameters)

    @property
    def keeps_masks(self) -> bool:
        return self.step in _PIXEL_STEPS

    def augment(self, example: Example, seed: Any) -> Example:
        image = tf.cast(example["image"], tf.float32)
        function = STEPS[self.step][0]
        return function({**example, "image": image}, seed, **self.parameters)

    def get_config(self):
        return {"step": self.step, **self.parameters}


def _checked(step, defaults, given):
    """All parameters of a step: those given, checked, and else the defaults."""
    for name in given:
        if name not in defaults:
            raise InvalidValueError(
                f"`{step}` has no field {name!r}. It has: {', '.join(defaults)}"
            )
    parameters = {
        name: _value(step, name, given[name], default) if name in given else default
        for name, default in defaults.items()
    }
    for name, low in parameters.items():
        high = parameters.get(name.replace("min", "max", 1))
        if high and not isinstance(high, tuple) and low > high:
            raise InvalidValueError(
                f"`{name}` of `{step}` must not be above the highest, {high!r}. "
                f"Received: {name}={low!r}"
            )
    return parameters


def _value(step, name, value, default):
    """One parameter as a value of the default's type, if it is in its range."""
    if name == "operations":
        if not isinstance(value, tuple | list) or not all(
            isinstance(one, dict) for one in value
        ):
            raise InvalidValueError(
                f"`operations` of `{step}` must be a list of mappings. "
                f"Received: operations={value!r}"
            )
        return tuple(_checked(step, default[0], one) for one in value) or default
    if isinstance(default, tuple):
        count = 3 if name == "pad_color" else 2
        expected = f"{count} numbers of at least 0"
        is_right = len(value) == count if isinstance(value, tuple | list) else False
        if (is_right and all(map(_is_amount, value))) or value in ((), []):
            return tuple(map(float, value)) or default
    else:
        low, high = _range_of(name)
        kind = "a number" if isinstance(default, float) else "a whole number"
        expected = f"{kind} {low}{f' and up to {high}' if high else ''}"
        if (
            _is_amount(value)
            and (isinstance(default, float) or value == int(value))
            and (value or low == "from 0")
            and (high is None or value <= high)
        ):
            return type(default)(value)
    raise InvalidValueError(
        f"`{name}` of `{step}` must be {expected}. Received: {name}={value!r}"
    )


def _range_of(name):
    """The lowest value of a number, in words, and the highest; None without one."""
    above = ("area", "aspect_ratio", "pixels", "_size", "num_scales", "max_border")
    share = ("probability", "coef", "covered", "thresh", "area", "ordering", "_ratio")
    share = () if name.endswith(("aspect_ratio", "scale_ratio")) else share
    high = 100 if name.endswith("quality") else None
    low = "above 0" if name.endswith(above) else "from 0"
    return low, 1 if name.endswith(share) else high


def _is_amount(value):
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and value >= 0


def _on_pixels(change, example, seed, **parameters):
    """A step that is a function of pixels."""
    image = change(example["image"], seed, **parameters)
    return {**example, "image": tf.clip_by_value(image, 0.0, 255.0)}


_DELTAS = {"min_delta": 0.8, "max_delta": 1.25}
_CROP = {
    "min_object_covered": 1.0,
    "min_aspect_ratio": 0.75,
    "max_aspect_ratio": 1.33,
    "min_area": 0.1,
    "max_area": 1.0,
    "overlap_thresh": 0.3,
    "random_coef": 0.0,
}
_RATIOS = {
    "min_padded_size_ratio": (1.0, 1.0),
    "max_padded_size_ratio": (2.0, 2.0),
}
_SSD = {**_CROP, "min_aspect_ratio": 0.5, "max_aspect_ratio": 2.0, "random_coef": 0.15}


def _of_ssd(shares, first=_SSD, **more):
    """SSD's crops: one for each share of a box that is to be seen."""
    return tuple(
        {**first, "min_object_covered": share, "overlap_thresh": share, **more}
        for share in shares
    )


_FIXED = {name: value for name, value in _SSD.items() if "aspect" not in name}
_SHARES = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
_PIXEL_STEPS = {
    "random_pixel_value_scale": (pixels.scale_values, {"minval": 0.9, "maxval": 1.1}),
    "random_rgb_to_gray": (pixels.gray, {"probability": 0.1}),
    "rgb_to_gray": (pixels.gray, {}),
    "random_adjust_brightness": (pixels.brightness, {"max_delta": 0.2}),
    "random_adjust_contrast": (pixels.contrast, _DELTAS),
    "random_adjust_hue": (pixels.hue, {"max_delta": 0.02}),
    "random_adjust_saturation": (pixels.saturation, _DELTAS),
    "random_distort_color": (pixels.distort, {"color_ordering": 0}),
    "adjust_gamma": (pixels.gamma, {"gamma": 1.0, "gain": 1.0}),
    "random_black_patches": (
        pixels.black_patches,
        {"max_black_patches": 10, "probability": 0.5, "size_to_image_ratio": 0.1},
    ),
    "random_jpeg_quality": (
        pixels.jpeg,
        {"random_coef": 0.0, "min_jpeg_quality": 0, "max_jpeg_quality": 100},
    ),
    "random_patch_gaussian": (
        pixels.patch_gaussian,
        {
            "random_coef": 0.0,
            "min_patch_size": 1,
            "max_patch_size": 250,
            "min_gaussian_stddev": 0.0,
            "max_gaussian_stddev": 1.0,
        },
    ),
}
# Name: the function, and its parameters with the defaults of `preprocessor.proto`.
STEPS: dict[str, tuple[Any, dict[str, Any]]] = {
    **{
        name: (functools.partial(_on_pixels, change), defaults)
        for name, (change, defaults) in _PIXEL_STEPS.items()
    },
    "random_horizontal_flip": (moves.moved(moves.mirrored), {"probability": 0.5}),
    "random_vertical_flip": (
        moves.moved(moves.transposed, moves.mirrored, moves.transposed),
        {"probability": 0.5},
    ),
    "random_rotation90": (
        moves.moved(moves.mirrored, moves.transposed),
        {"probability": 0.5},
    ),
    "random_jitter_boxes": (moves.jitter_boxes, {"ratio": 0.05}),
    "random_image_scale": (
        moves.image_scale,
        {"min_scale_ratio": 0.5, "max_scale_ratio": 2.0},
    ),
    "random_downscale_to_target_pixels": (
        moves.downscale,
        {
            "random_coef": 0.0,
            "min_target_pixels": 300_000,
            "max_target_pixels": 800_000,
        },
    ),
    "random_scale_crop_and_pad_to_square": (
        moves.square,
        {"output_size": 512, "scale_min": 0.1, "scale_max": 2.0},
    ),
    "random_square_crop_by_scale": (
        moves.square_crop,
        {"max_border": 128, "scale_min": 0.6, "scale_max": 1.3, "num_scales": 8},
    ),
    "random_self_concat_image": (
        moves.self_concat,
        {"concat_vertical_probability": 0.1, "concat_horizontal_probability": 0.1},
    ),
    "random_pad_image": (
        moves.pad,
        {
            **dict.fromkeys(("min_image_height", "min_image_width"), 0),
            **dict.fromkeys(("max_image_height", "max_image_width"), 0),
            "pad_color": (),
        },
    ),
    "random_absolute_pad_image": (
        moves.absolute_pad,
        {"max_height_padding": 0, "max_width_padding": 0, "pad_color": ()},
    ),
    "random_crop_image": (moves.crop_image, _CROP),
    "random_crop_pad_image": (moves.crop_pad, {**_CROP, **_RATIOS, "pad_color": ()}),
    "random_crop_to_aspect_ratio": (
        moves.crop_to_aspect_ratio,
        {"aspect_ratio": 1.0, "overlap_thresh": 0.3},
    ),
    "ssd_random_crop": (moves.ssd_crop, {"operations": _of_ssd(_SHARES)}),
    "ssd_random_crop_pad": (
        moves.ssd_crop_pad,
        {"operations": _of_ssd(_SHARES[1:], **_RATIOS, pad_color=())},
    ),
    "ssd_random_crop_fixed_aspect_ratio": (
        moves.ssd_crop_fixed,
        {"operations": _of_ssd(_SHARES, _FIXED), "aspect_ratio": 1.0},
    ),
    "ssd_random_crop_pad_fixed_aspect_ratio": (
        moves.ssd_crop_pad_fixed,
        {"operations": _of_ssd(_SHARES), "aspect_ratio": 1.0, **_RATIOS},
    ),
}
