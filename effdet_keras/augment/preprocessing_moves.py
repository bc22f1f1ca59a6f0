"""What the Object Detection API's preprocessing steps do to pixels and boxes together.

Functions of an example with a float32 image and a seed; `preprocessing.STEPS` has what
their other arguments are. A window is a float32 tensor `[4]`, `yxyx` of whole numbers.
"""

from __future__ import annotations  # a type of TensorFlow would import it

import functools
import math

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.augment import draws
from effdet_keras.augment.augmentation import size_of
from effdet_keras.augment.random_crop import crop


def _whole(example):
    """The window that is the whole image, float32 `[4]`."""
    return tf.stack([0.0, 0.0, *size_of(example["image"])])


def _either(happens, change, example):
    """`change()` or the example as it is."""
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


def _turned(example, seed, probability, changes):
    """Mirrored and transposed, as often as `probability` says."""

    def turned():
        return functools.reduce(lambda one, change: change(one), changes, example)

    return _either(draws.uniform(seed) < probability, turned, example)


def moved(*changes):
    """The step that makes these changes, with a probability."""
    return functools.partial(_turned, changes=changes)


def jitter_boxes(example, seed, ratio):
    boxes = example["boxes"]
    share = draws.between(draws.uniform(seed, tf.shape(boxes)), -ratio, ratio)
    sides = boxes[:, 2:] - boxes[:, :2]
    return {**example, "boxes": boxes + share * tf.tile(sides, [1, 2])}


def _resized(example, sides, align_corners=False):
    """An example with other sides, float32 `[2]` of whole numbers."""
    sides = tf.maximum(sides, 1.0)
    factor = tf.tile(sides / tf.stack(size_of(example["image"])), [2])
    image = tf.raw_ops.ResizeBilinear(
        images=example["image"][None],
        size=tf.cast(sides, tf.int32),
        align_corners=align_corners,
    )[0]
    return {**example, "image": image, "boxes": example["boxes"] * factor}


def _seen_through(example, window, color=(0.0, 0.0, 0.0)):
    """What a window shows, which may reach beyond the image: there it has a color."""
    whole = tf.tile(_whole(example)[2:], [2])
    inside = tf.clip_by_value(window, 0.0, whole)
    shown = crop(example, inside, 0.0)
    around = tf.cast(
        tf.stack([inside[:2] - window[:2], (window - inside)[2:]], 1), tf.int32
    )
    image = tf.pad(shown["image"] - color, tf.concat([around, [[0, 0]]], 0)) + color
    shift = tf.cast(tf.tile(around[:, 0], [2]), tf.float32)
    return {**shown, "image": image, "boxes": shown["boxes"] + shift}


def image_scale(example, seed, min_scale_ratio, max_scale_ratio):
    scale = draws.between(draws.uniform(seed), min_scale_ratio, max_scale_ratio)
    sides = tf.floor(_whole(example)[2:] * scale)
    return _resized(example, sides, align_corners=True)


def downscale(example, seed, random_coef, min_target_pixels, max_target_pixels):
    coin, unit = tf.unstack(draws.uniform(seed, [2]))
    pixels = draws.whole_between(unit, min_target_pixels, max_target_pixels)
    size = _whole(example)[2:]
    share = tf.cast(pixels, tf.float32) / tf.reduce_prod(size)
    happens = (coin >= random_coef) & (share < 1.0)
    return _resized(example, tf.where(happens, tf.floor(size * tf.sqrt(share)), size))


def square(example, seed, output_size, scale_min, scale_max):
    units = draws.uniform(seed, [3])
    size = _whole(example)[2:]
    scale = draws.between(units[0], scale_min, scale_max)
    sides = tf.maximum(tf.floor(scale * output_size * size / tf.reduce_max(size)), 1.0)
    low = tf.floor(tf.maximum(0.0, sides - output_size) * units[1:])
    window = tf.concat([low, low + output_size], 0)
    return _seen_through(_resized(example, sides), window)


def square_crop(example, seed, max_border, scale_min, scale_max, num_scales):
    units = draws.uniform(seed, [3])
    size = _whole(example)[2:]
    step = tf.cast(draws.integer(units[0], num_scales), tf.float32)
    scale = scale_min + (scale_max - scale_min) * step / max(num_scales - 1, 1)
    side = tf.maximum(tf.floor(scale * tf.reduce_max(size)), 1.0)
    # Halved until a border leaves a middle.
    halvings = tf.math.ceil(tf.math.log(2.0 * max_border / size) / math.log(2.0))
    border = tf.floor(max_border / tf.clip_by_value(2.0**halvings, 1.0, max_border))
    center = border + tf.floor(units[1:] * tf.maximum(size - 2.0 * border + 1.0, 1.0))
    low = tf.clip_by_value(center, 0.0, size - 1.0) - tf.floor(side / 2.0)
    return _seen_through(example, tf.concat([low, low + side], 0))


def self_concat(
    example, seed, concat_vertical_probability, concat_horizontal_probability
):
    units = draws.uniform(seed, [2])
    probabilities = (concat_vertical_probability, concat_horizontal_probability)
    for axis, probability in enumerate(probabilities):
        twice = functools.partial(_twice, example, axis)
        example = _either(units[axis] < probability, twice, example)
    return example


def _twice(example, axis):
    shift = tf.tile(_whole(example)[2:] * tf.one_hot(axis, 2), [2])
    return {
        "image": tf.concat([example["image"]] * 2, axis=axis),
        "boxes": tf.concat([example["boxes"], example["boxes"] + shift], axis=0),
        "labels": tf.tile(example["labels"], [2]),
    }


def _padded(example, seed, least, most, color):
    """Padded to random sides from `least` up to, but without, `most`."""
    size = _whole(example)[2:]
    least, most = tf.maximum(least, size), tf.maximum(most, size)
    units = draws.uniform(seed, [2, 2])
    target = tf.where(most > least, draws.between(units[0], least, most), most)
    target = tf.floor(target)
    offset = tf.floor(units[1] * (target - size))
    if isinstance(color, tuple) and not color:
        color = tf.reduce_mean(example["image"], axis=[0, 1])
    return _seen_through(example, tf.concat([-offset, target - offset], 0), color)


def pad(
    example,
    seed,
    min_image_height,
    min_image_width,
    max_image_height,
    max_image_width,
    pad_color,
):
    size = _whole(example)[2:]
    least = tf.constant([min_image_height, min_image_width], tf.float32)
    most = tf.constant([max_image_height, max_image_width], tf.float32)
    most = tf.where(most > 0.0, most, 2.0 * size)  # 0 is none
    return _padded(example, seed, least, most, pad_color)


def absolute_pad(example, seed, max_height_padding, max_width_padding, pad_color):
    size = _whole(example)[2:]
    most = size + [max(max_height_padding, 1.0), max(max_width_padding, 1.0)]
    return _padded(example, seed, size, most, pad_color)


def crop_image(example, seed, **operation):
    return ssd_crop(example, seed, [operation])


def ssd_crop(example, seed, operations):
    """One of several crops, as likely as each other."""
    return _chosen_crop(example, seed, operations)[0]


def _chosen_crop(example, seed, operations):
    """The cropped example, and which of the crops it is."""
    of_choice, of_window = draws.split(seed, 2)
    choice, coin = tf.unstack(draws.uniform(of_choice, [2]))
    which = draws.integer(choice, len(operations))
    windows = [functools.partial(_window, example, of_window, o) for o in operations]
    window = tf.switch_case(which, windows)
    skipped = coin < tf.constant([o["random_coef"] for o in operations])[which]
    window = tf.where(skipped, _whole(example), window)
    least = tf.constant([o["overlap_thresh"] for o in operations])[which]
    return crop(example, window, tf.where(skipped, 0.0, least)), which


def _window(example, seed, operation):
    """A random window that covers a box as far as an operation asks; or the whole."""
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


def crop_pad(
    example, seed, min_padded_size_ratio, max_padded_size_ratio, pad_color, **operation
):
    of_crop, of_pad = draws.split(seed, 2)
    size = _whole(example)[2:]
    least = tf.floor(size * min_padded_size_ratio)
    most = tf.floor(size * max_padded_size_ratio)
    cropped = crop_image(example, of_crop, **operation)
    return _padded(cropped, of_pad, least, most, pad_color)


def ssd_crop_pad(example, seed, operations):
    of_crop, of_pad = draws.split(seed, 2)
    cropped, which = _chosen_crop(example, of_crop, operations)
    mean = tf.reduce_mean(cropped["image"], axis=[0, 1])

    def of_each(get):
        return tf.stack([get(operation) for operation in operations])[which]

    color = of_each(lambda o: o["pad_color"] or mean)
    size = _whole(example)[2:]
    least = tf.floor(size * of_each(lambda o: o["min_padded_size_ratio"]))
    most = tf.floor(size * of_each(lambda o: o["max_padded_size_ratio"]))
    return _padded(cropped, of_pad, least, most, color)


def crop_to_aspect_ratio(example, seed, aspect_ratio, overlap_thresh=0.3):
    size = _whole(example)[2:]
    target = tf.minimum(size, tf.maximum(tf.round(_of_ratio(size, aspect_ratio)), 1.0))
    low = tf.floor(draws.uniform(seed, [2]) * (size - target + 1.0))
    return crop(example, tf.concat([low, low + target], 0), overlap_thresh)


def _of_ratio(size, aspect_ratio):
    """The height that goes with a width, and the width that goes with a height."""
    return tf.stack([size[1] / aspect_ratio, size[0] * aspect_ratio])


def ssd_crop_fixed(example, seed, operations, aspect_ratio):
    of_crop, of_ratio = draws.split(seed, 2)
    fixed = {"min_aspect_ratio": aspect_ratio, "max_aspect_ratio": aspect_ratio}
    cropped = ssd_crop(example, of_crop, [{**one, **fixed} for one in operations])
    return crop_to_aspect_ratio(cropped, of_ratio, aspect_ratio)


def ssd_crop_pad_fixed(
    example,
    seed,
    operations,
    aspect_ratio,
    min_padded_size_ratio,
    max_padded_size_ratio,
):
    of_crop, of_pad = draws.split(seed, 2)
    cropped = ssd_crop(example, of_crop, operations)
    size = _whole(cropped)[2:]
    target = tf.maximum(size, _of_ratio(size, aspect_ratio))
    highest = tf.maximum(size * max_padded_size_ratio / target, 1.0)
    highest = tf.reduce_min(highest)
    lowest = tf.reduce_max(tf.maximum(size * min_padded_size_ratio / target, 1.0))
    lowest = tf.minimum(lowest, highest)
    sides = tf.round(target * draws.between(draws.uniform(of_pad), lowest, highest))
    sides = tf.maximum(sides, size)
    return _seen_through(cropped, tf.concat([tf.zeros(2), sides], 0))
