"""The preprocessing steps of the Object Detection API.

They are functions of a float32 image `[H, W, 3]`, 0 to 255, and a seed; or of an
example and a seed. Their other arguments have the names and defaults of
`preprocessor.proto`.
"""

from __future__ import annotations

import functools
import inspect
import math
from typing import Any

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.augment import random_ops
from effdet_keras.augment.augmentation import Augmentation, Example, size_of
from effdet_keras.augment.pixels import compressed, rectangle_mask
from effdet_keras.augment.warps import crop
from effdet_keras.errors import check_argument, check_choice, require

# For each step by name, its function of an example, and its parameters with defaults.
STEPS: dict[str, tuple[Any, dict[str, Any]]] = {}
_PIXEL_STEPS = set()


def _step(name=None, **more):
    """Registers a function as a step; `more` are defaults not in its signature."""

    def registered(function):
        parameters = inspect.signature(function).parameters.values()
        own = {p.name: p.default for p in parameters if p.default is not p.empty}
        STEPS[name or function.__name__] = function, {**more, **own}
        return function

    return registered


def _pixel_step(change):
    """Registers a function of pixels as a step; the result is clipped to 0 to 255."""

    @functools.wraps(change)
    def on_pixels(example, seed, **parameters):
        image = change(example["image"], seed, **parameters)
        return {**example, "image": tf.clip_by_value(image, 0.0, 255.0)}

    _step()(on_pixels)
    _PIXEL_STEPS.add(change.__name__)
    return change


@_pixel_step
def random_pixel_value_scale(image, seed, minval=0.9, maxval=1.1):
    return image * random_ops.between(
        random_ops.uniform(seed, tf.shape(image)), minval, maxval
    )


@_pixel_step
def random_rgb_to_gray(image, seed, probability=0.1):
    return tf.where(
        random_ops.uniform(seed) < probability, rgb_to_gray(image, seed), image
    )


@_pixel_step
def rgb_to_gray(image, seed):
    return tf.image.grayscale_to_rgb(tf.image.rgb_to_grayscale(image))


@_pixel_step
def random_adjust_brightness(image, seed, max_delta=0.2):
    return image + 255.0 * random_ops.between(
        random_ops.uniform(seed), -max_delta, max_delta
    )


@_pixel_step
def random_adjust_contrast(image, seed, min_delta=0.8, max_delta=1.25):
    factor = random_ops.between(random_ops.uniform(seed), min_delta, max_delta)
    return tf.image.adjust_contrast(image, factor)


@_pixel_step
def random_adjust_hue(image, seed, max_delta=0.02):
    delta = random_ops.between(random_ops.uniform(seed), -max_delta, max_delta)
    return 255.0 * tf.image.adjust_hue(image / 255.0, delta)


@_pixel_step
def random_adjust_saturation(image, seed, min_delta=0.8, max_delta=1.25):
    factor = random_ops.between(random_ops.uniform(seed), min_delta, max_delta)
    return 255.0 * tf.image.adjust_saturation(image / 255.0, factor)


@_pixel_step
def random_distort_color(image, seed, color_ordering=0):
    seeds = random_ops.split(seed, 4)
    changes = (
        random_adjust_brightness,
        random_adjust_saturation,
        random_adjust_hue,
        random_adjust_contrast,
    )
    limits = (32.0 / 255.0,), (0.5, 1.5), (0.2,), (0.5, 1.5)
    for i in (0, 3, 1, 2) if color_ordering else range(4):
        change = changes[i]
        image = tf.clip_by_value(change(image, seeds[i], *limits[i]), 0.0, 255.0)
    return image


@_pixel_step
def adjust_gamma(image, seed, gamma=1.0, gain=1.0):
    return 255.0 * gain * (image / 255.0) ** gamma


@_pixel_step
def random_black_patches(
    image, seed, max_black_patches=10, probability=0.5, size_to_image_ratio=0.1
):
    height, width = size_of(image)
    side = tf.floor(tf.minimum(height, width) * size_to_image_ratio)
    units = random_ops.uniform(seed, [max_black_patches, 3])
    is_hidden = tf.zeros(tf.shape(image)[:2], tf.bool)
    for i in range(max_black_patches):
        y = tf.floor(units[i, 1] * (1.0 - size_to_image_ratio) * height)
        x = tf.floor(units[i, 2] * (1.0 - size_to_image_ratio) * width)
        own = tf.where(units[i, 0] < probability, side, 0.0)
        patch = tf.cast(tf.stack([y, x, y + own, x + own]), tf.int32)
        is_hidden |= rectangle_mask(tf.shape(image), tf.unstack(patch))
    return tf.where(is_hidden[..., None], 0.0, image)


@_pixel_step
def random_jpeg_quality(
    image, seed, random_coef=0.0, min_jpeg_quality=0, max_jpeg_quality=100
):
    coin, unit = tf.unstack(random_ops.uniform(seed, [2]))
    steps = max(max_jpeg_quality - min_jpeg_quality, 1)
    quality = min_jpeg_quality + random_ops.integer(unit, steps)
    return tf.cond(
        coin >= random_coef,
        lambda: tf.cast(compressed(image, quality), tf.float32),
        lambda: image,
    )


@_pixel_step
def random_patch_gaussian(
    image,
    seed,
    random_coef=0.0,
    min_patch_size=1,
    max_patch_size=250,
    min_gaussian_stddev=0.0,
    max_gaussian_stddev=1.0,
):
    """Adds Gaussian noise to a random square of an image `[H, W, 3]`, 0 to 255."""
    of_patch, of_noise = random_ops.split(seed, 2)
    coin, *units = tf.unstack(random_ops.uniform(of_patch, [5]))
    steps = max(max_patch_size - min_patch_size, 1)
    side = min_patch_size + random_ops.integer(units[0], steps)
    deviation = random_ops.between(units[1], min_gaussian_stddev, max_gaussian_stddev)
    shape = tf.shape(image)
    y = random_ops.integer(units[2], shape[0]) - side // 2
    x = random_ops.integer(units[3], shape[1]) - side // 2
    noise = tf.random.stateless_normal(shape, of_noise, alg="philox") * deviation
    is_noisy = rectangle_mask(shape, (y, x, y + side, x + side)) & (coin >= random_coef)
    return tf.where(is_noisy[..., None], image + 255.0 * noise, image)


# --- Steps that change pixels and boxes together.


def _whole(example):
    """Returns the window of the whole image, `yxyx` in pixels, float32 `[4]`."""
    return tf.stack([0.0, 0.0, *size_of(example["image"])])


def _either(happens, change, example):
    """Returns `change()` if it `happens`, else the unchanged example."""
    keys = ("image", "boxes", "labels")

    def arrays(one):
        return tuple(one[key] for key in keys)

    chosen = tf.cond(happens, lambda: arrays(change()), lambda: arrays(example))
    return {**example, **dict(zip(keys, chosen))}


def mirrored(example):
    y0, x0, y1, x1 = tf.unstack(example["boxes"], axis=1)
    width = size_of(example["image"])[1]
    boxes = tf.stack([y0, width - x1, y1, width - x0], axis=1)
    return {**example, "image": tf.reverse(example["image"], [1]), "boxes": boxes}


def transposed(example):
    image = tf.transpose(example["image"], [1, 0, 2])
    boxes = tf.gather(example["boxes"], [1, 0, 3, 2], axis=1)
    return {**example, "image": image, "boxes": boxes}


def _turning_step(name, *changes):
    """Registers a sequence of changes as a step, applied with a probability."""

    @_step(name)
    def turned(example, seed, probability=0.5):
        def change():
            return functools.reduce(lambda one, change: change(one), changes, example)

        return _either(random_ops.uniform(seed) < probability, change, example)


_turning_step("random_horizontal_flip", mirrored)
_turning_step("random_vertical_flip", transposed, mirrored, transposed)
_turning_step("random_rotation90", mirrored, transposed)


@_step()
def random_jitter_boxes(example, seed, ratio=0.05):
    boxes = example["boxes"]
    share = random_ops.between(random_ops.uniform(seed, tf.shape(boxes)), -ratio, ratio)
    sides = boxes[:, 2:] - boxes[:, :2]
    return {**example, "boxes": boxes + share * tf.tile(sides, [1, 2])}


def _resized(example, sides, align_corners=False):
    """Resizes an example to sides `[2]`, float32 with whole numbers."""
    sides = tf.maximum(sides, 1.0)
    factor = tf.tile(sides / tf.stack(size_of(example["image"])), [2])
    image = tf.raw_ops.ResizeBilinear(
        images=example["image"][None],
        size=tf.cast(sides, tf.int32),
        align_corners=align_corners,
    )[0]
    return {**example, "image": image, "boxes": example["boxes"] * factor}


def _seen_through(example, window, color=(0.0, 0.0, 0.0)):
    """Crops an example to a window; the part outside of the image gets a color."""
    whole = tf.tile(_whole(example)[2:], [2])
    inside = tf.clip_by_value(window, 0.0, whole)
    shown = crop(example, inside, 0.0)
    around = tf.cast(
        tf.stack([inside[:2] - window[:2], (window - inside)[2:]], 1), tf.int32
    )
    image = tf.pad(shown["image"] - color, tf.concat([around, [[0, 0]]], 0)) + color
    shift = tf.cast(tf.tile(around[:, 0], [2]), tf.float32)
    return {**shown, "image": image, "boxes": shown["boxes"] + shift}


@_step()
def random_image_scale(example, seed, min_scale_ratio=0.5, max_scale_ratio=2.0):
    scale = random_ops.between(
        random_ops.uniform(seed), min_scale_ratio, max_scale_ratio
    )
    sides = tf.floor(_whole(example)[2:] * scale)
    return _resized(example, sides, align_corners=True)


@_step()
def random_downscale_to_target_pixels(
    example, seed, random_coef=0.0, min_target_pixels=300_000, max_target_pixels=800_000
):
    coin, unit = tf.unstack(random_ops.uniform(seed, [2]))
    steps = max(max_target_pixels - min_target_pixels, 1)
    pixels = tf.cast(min_target_pixels + random_ops.integer(unit, steps), tf.float32)
    size = _whole(example)[2:]
    share = pixels / tf.reduce_prod(size)
    happens = (coin >= random_coef) & (share < 1.0)
    return _resized(example, tf.where(happens, tf.floor(size * tf.sqrt(share)), size))


@_step()
def random_square_crop_by_scale(
    example, seed, max_border=128, scale_min=0.6, scale_max=1.3, num_scales=8
):
    """Crops a square around a point outside of the border; pads it with black."""
    units = random_ops.uniform(seed, [3])
    size = _whole(example)[2:]
    step = tf.cast(random_ops.integer(units[0], num_scales), tf.float32)
    scale = random_ops.between(step / max(num_scales - 1, 1), scale_min, scale_max)
    side = tf.maximum(tf.floor(scale * tf.reduce_max(size)), 1.0)
    # The border is halved until the image has an area inside of it.
    halvings = tf.math.ceil(tf.math.log(2.0 * max_border / size) / math.log(2.0))
    border = tf.floor(max_border / tf.clip_by_value(2.0**halvings, 1.0, max_border))
    center = border + tf.floor(units[1:] * tf.maximum(size - 2.0 * border + 1.0, 1.0))
    low = tf.minimum(center, size - 1.0) - tf.floor(side / 2.0)
    return _seen_through(example, tf.concat([low, low + side], 0))


@_step()
def random_self_concat_image(
    example, seed, concat_vertical_probability=0.1, concat_horizontal_probability=0.1
):
    units = random_ops.uniform(seed, [2])
    probabilities = (concat_vertical_probability, concat_horizontal_probability)
    for axis, probability in enumerate(probabilities):
        twice = functools.partial(_twice, example, axis)
        example = _either(units[axis] < probability, twice, example)
    return example


def _twice(example, axis):
    """Concatenates an image with itself along an axis."""
    shift = tf.tile(_whole(example)[2:] * tf.one_hot(axis, 2), [2])
    return {
        "image": tf.concat([example["image"]] * 2, axis=axis),
        "boxes": tf.concat([example["boxes"], example["boxes"] + shift], axis=0),
        "labels": tf.tile(example["labels"], [2]),
    }


@_step()
def random_scale_crop_and_pad_to_square(
    example, seed, output_size=512, scale_min=0.1, scale_max=2.0
):
    units = random_ops.uniform(seed, [3])
    size = _whole(example)[2:]
    scale = random_ops.between(units[0], scale_min, scale_max)
    sides = tf.maximum(tf.floor(scale * output_size * size / tf.reduce_max(size)), 1.0)
    low = tf.floor(tf.maximum(0.0, sides - output_size) * units[1:])
    window = tf.concat([low, low + output_size], 0)
    return _seen_through(_resized(example, sides), window)


@_step()
def random_pad_image(
    example,
    seed,
    min_image_height=0,
    min_image_width=0,
    max_image_height=0,
    max_image_width=0,
    pad_color=(),
):
    size = _whole(example)[2:]
    most = tf.constant([max_image_height, max_image_width], tf.float32)
    most = tf.where(most > 0.0, most, 2.0 * size)  # 0 means no maximum
    least = [float(min_image_height), float(min_image_width)]
    return _padded(example, seed, least, most, pad_color or _mean_color(example))


@_step()
def random_absolute_pad_image(
    example, seed, max_height_padding=0, max_width_padding=0, pad_color=()
):
    size = _whole(example)[2:]
    most = size + [max(max_height_padding, 1.0), max(max_width_padding, 1.0)]
    return _padded(example, seed, size, most, pad_color or _mean_color(example))


def _mean_color(example):
    return tf.reduce_mean(example["image"], axis=[0, 1])


def _padded(example, seed, least, most, color):
    """Pads an example to random sides, from `least` up to but without `most`."""
    size = _whole(example)[2:]
    least, most = tf.maximum(least, size), tf.maximum(most, size)
    units = random_ops.uniform(seed, [2, 2])
    target = tf.where(most > least, random_ops.between(units[0], least, most), most)
    target = tf.floor(target)
    offset = tf.floor(units[1] * (target - size))
    return _seen_through(example, tf.concat([-offset, target - offset], 0), color)


@_step()
def random_crop_to_aspect_ratio(example, seed, aspect_ratio=1.0, overlap_thresh=0.3):
    size = _whole(example)[2:]
    sides = tf.clip_by_value(tf.round(_sides_of_ratio(size, aspect_ratio)), 1.0, size)
    low = tf.floor(random_ops.uniform(seed, [2]) * (size - sides + 1.0))
    return crop(example, tf.concat([low, low + sides], 0), overlap_thresh)


def _sides_of_ratio(size, aspect_ratio):
    """Returns the height for the given width, and the width for the given height."""
    return tf.stack([size[1] / aspect_ratio, size[0] * aspect_ratio])


_CROP = {
    "min_object_covered": 1.0,
    "min_aspect_ratio": 0.75,
    "max_aspect_ratio": 1.33,
    "min_area": 0.1,
    "max_area": 1.0,
    "overlap_thresh": 0.3,
    "random_coef": 0.0,
}

_RATIOS = {"min_padded_size_ratio": (1.0, 1.0), "max_padded_size_ratio": (2.0, 2.0)}
_PAD = {**_RATIOS, "pad_color": ()}
_SSD = {**_CROP, "min_aspect_ratio": 0.5, "max_aspect_ratio": 2.0, "random_coef": 0.15}
# The smallest shares of a box that SSD's crops must show, one crop for each.
_SHARES = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
_SSD_OPERATIONS = tuple(
    {**_SSD, "min_object_covered": x, "overlap_thresh": x} for x in _SHARES
)
_FIXED_OPERATIONS = tuple(
    {n: x for n, x in o.items() if "aspect" not in n} for o in _SSD_OPERATIONS
)


@_step(**_CROP)
def random_crop_image(example, seed, **operation):
    return ssd_random_crop(example, seed, [operation])


@_step(operations=_SSD_OPERATIONS)
def ssd_random_crop(example, seed, operations):
    """Applies one of several crops, all with equal probability."""
    return _chosen_crop(example, seed, operations)[0]


@_step(operations=_FIXED_OPERATIONS)
def ssd_random_crop_fixed_aspect_ratio(example, seed, operations, aspect_ratio=1.0):
    of_crop, of_ratio = random_ops.split(seed, 2)
    fixed = {"min_aspect_ratio": aspect_ratio, "max_aspect_ratio": aspect_ratio}
    example = ssd_random_crop(example, of_crop, [{**o, **fixed} for o in operations])
    return random_crop_to_aspect_ratio(example, of_ratio, aspect_ratio)


@_step(**_CROP, **_PAD)
def random_crop_pad_image(example, seed, **operation):
    return ssd_random_crop_pad(example, seed, [operation])


@_step(operations=tuple({**operation, **_PAD} for operation in _SSD_OPERATIONS[1:]))
def ssd_random_crop_pad(example, seed, operations):
    """Applies one of several crops, and pads to sides relative to the whole image."""
    of_crop, of_pad = random_ops.split(seed, 2)
    cropped, which = _chosen_crop(example, of_crop, operations)
    size, mean = _whole(example)[2:], _mean_color(cropped)
    least, most = (
        tf.floor(size * tf.constant([o[n] for o in operations])[which]) for n in _RATIOS
    )
    color = tf.stack([o["pad_color"] or mean for o in operations])[which]
    return _padded(cropped, of_pad, least, most, color)


@_step(operations=_SSD_OPERATIONS, **_RATIOS)
def ssd_random_crop_pad_fixed_aspect_ratio(
    example, seed, operations, aspect_ratio=1.0, **ratios
):
    """Applies a crop, and pads it at the lower right to the aspect ratio.

    The amount of padding is random, within the ratios.
    """
    of_crop, of_pad = random_ops.split(seed, 2)
    cropped = ssd_random_crop(example, of_crop, operations)
    size = _whole(cropped)[2:]
    sides = tf.maximum(size, _sides_of_ratio(size, aspect_ratio))
    least, most = (tf.maximum(size * ratios[n] / sides, 1.0) for n in _RATIOS)
    most = tf.reduce_min(most)
    least = tf.minimum(tf.reduce_max(least), most)
    sides = tf.round(
        sides * random_ops.between(random_ops.uniform(of_pad), least, most)
    )
    window = tf.concat([tf.zeros(2), tf.maximum(sides, size)], 0)
    return _seen_through(cropped, window)


def _chosen_crop(example, seed, operations):
    """Returns the cropped example, and the index of the crop."""
    of_choice, of_window = random_ops.split(seed, 2)
    choice, coin = tf.unstack(random_ops.uniform(of_choice, [2]))
    which = random_ops.integer(choice, len(operations))
    windows = [functools.partial(_window, example, of_window, o) for o in operations]
    window = tf.switch_case(which, windows)
    skipped = coin < tf.constant([o["random_coef"] for o in operations])[which]
    window = tf.where(skipped, _whole(example), window)
    least = tf.constant([o["overlap_thresh"] for o in operations])[which]
    return crop(example, window, tf.where(skipped, 0.0, least)), which


def _window(example, seed, operation):
    """Returns a random window that covers a box as required, or the whole image."""
    image, whole = example["image"], _whole(example)
    boxes = tf.clip_by_value(example["boxes"] / tf.tile(whole[2:], [2]), 0.0, 1.0)
    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        tf.shape(image),
        boxes[None],
        seed,
        min_object_covered=operation["min_object_covered"],
        aspect_ratio_range=(
            operation["min_aspect_ratio"],
            operation["max_aspect_ratio"],
        ),
        area_range=(operation["min_area"], operation["max_area"]),
        max_attempts=100,
        use_image_if_no_bounding_boxes=True,
    )
    return tf.cast(tf.concat([begin[:2], begin[:2] + size[:2]], 0), tf.float32)


# --- The augmentation class for these steps.


class PreprocessingStep(Augmentation):
    """One of the Object Detection API's `data_augmentation_options`.

    Args:
        step: string, its name in that API, such as "random_vertical_flip".
        **parameters: its fields in that API. An absent field has the API's default.

    Raises:
        ValueError: If there is no such step or field, or `probability` is not between 0
            and 1.

    Example:
        >>> import numpy as np
        >>> flip = PreprocessingStep("random_vertical_flip", probability=1.0)
        >>> example = {"image": np.zeros((10, 20, 3), "uint8"),
        ...     "boxes": np.float32([[0, 0, 4, 8]]), "labels": np.int32([5])}
        >>> flip(example, seed=[0, 1])["boxes"].numpy().tolist()
        [[6.0, 0.0, 10.0, 8.0]]
    """

    def __init__(self, step: str, **parameters: Any) -> None:
        check_choice("step", step, STEPS)
        self.step = step
        self.parameters = _checked(step, STEPS[step][1], parameters)
        probability = self.parameters.get("probability", 0.0)
        is_share = 0 <= probability <= 1
        check_argument(is_share, "probability", probability, "from 0 to 1")

    @property
    def keeps_masks(self) -> bool:
        return self.step in _PIXEL_STEPS

    def augment(self, example: Example, seed: Any) -> Example:
        image = tf.cast(example["image"], tf.float32)
        function = STEPS[self.step][0]
        return function({**example, "image": image}, seed, **self.parameters)

    def __repr__(self):
        return f"PreprocessingStep({self.step!r}, **{self.parameters})"


def _checked(step, defaults, given):
    """Returns all parameters of a step, cast to the types of their defaults."""
    unknown = [name for name in given if name not in defaults]
    rule = f"`{step}` has only the fields {', '.join(defaults)}"
    require(not unknown, rule, fields=unknown)
    return {
        name: _cast_like(default, given[name], step) if name in given else default
        for name, default in defaults.items()
    }


def _cast_like(default, value, step):
    if not isinstance(default, tuple):
        return type(default)(value)
    if default and isinstance(default[0], dict):
        return tuple(_checked(step, default[0], one) for one in value) or default
    return tuple(map(float, value))
