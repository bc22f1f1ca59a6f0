"""Geometry of the input pipeline: letterbox, flip, scale jitter with crop.

This is TensorFlow code, because it runs inside `tf.data` with every backend of Keras.
All functions take and return an example, a dict of

- `image`: uint8 or float `[H, W, 3]`;
- `boxes`: float32 `[n, 4]`, `yxyx` in pixels of the image;
- `labels`: int32 `[n]`;
- `mask`, for segmentation only: uint8 `[H, W]`.

Random numbers are drawn in one function and applied in others, so that a test can pass
numbers of its own.
"""

from __future__ import annotations  # a type of TensorFlow would import it

from typing import NamedTuple

import numpy as np

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.labels import IGNORED_PIXEL


class Draws(NamedTuple):
    """The random numbers of one training example, float32 scalars."""

    flip: tf.Tensor  # in [0, 1), like the offsets
    scale: tf.Tensor  # the factor on the target size
    offset_y: tf.Tensor
    offset_x: tf.Tensor


class Window(NamedTuple):
    """The visible part of a scaled image, and how the image is scaled."""

    image_size: tuple  # (height, width) of the output in pixels
    pad_value: tuple  # RGB, from 0 to 255
    resize_method: str = "half_pixel"
    target_size: tuple | None = None  # multiplied by a scale, or None for `image_size`

    def of(self, image, offset):
        end = offset + tf.constant(self.image_size, tf.int32)
        return image[offset[0] : end[0], offset[1] : end[1]]


def random_draws(seed, scale_jitter):
    """Draws the random numbers of one example.

    Args:
        seed: int tensor `[2]`.
        scale_jitter: pair of floats, the lowest and the highest scale.

    Returns:
        `Draws`.
    """
    # The algorithm is named so that all devices draw the same numbers.
    uniform = tf.random.stateless_uniform([4], seed, alg="philox")
    low, high = scale_jitter
    return Draws(uniform[0], low + (high - low) * uniform[1], uniform[2], uniform[3])


def flip(example):
    """Flips an example from left to right."""
    flipped = dict(example)
    for key in {"image", "mask"} & {*example}:
        # On 480x640 pixels this takes 0.4 ms, but `image[:, ::-1]` takes 8 ms.
        flipped[key] = tf.reverse(example[key], [1])
    width = tf.cast(tf.shape(example["image"])[1], tf.float32)
    y0, x0, y1, x1 = tf.unstack(example["boxes"], axis=1)
    return {**flipped, "boxes": tf.stack([y0, width - x1, y1, width - x0], axis=1)}


def letterbox(example, window):
    """Scales an image to fit, keeps its aspect ratio, puts it top left and pads.

    As in the reference, pixels are interpolated bilinearly with half-pixel centers,
    sizes are truncated to whole pixels, and boxes are clipped to `[0, side - 1]`. With
    the resize method "asymmetric", pixels are interpolated as in TensorFlow 1, sizes
    are rounded, and boxes are clipped to `[0, side]`.

    Args:
        example: dict, see the module's docstring.
        window: `Window`.

    Returns:
        The example with an image float32 `[height, width, 3]`, with the boxes that
        still have an area, in its pixels, and with `image_scale`, the factor from the
        new pixels to the original ones.
    """
    target = tf.constant(window.image_size, tf.float32)
    is_rounded = window.resize_method == "asymmetric"
    return _placed(example, window, target, (0.0, 0.0), is_rounded)


def scale_jitter(example, draws, window):
    """Scales an image by a random factor, then crops or pads it.

    The image is scaled to fit `draws.scale` times the target size. The crop starts at
    `offset * (scaled - image_size)`. This is the random crop of the EfficientDet recipe
    (https://arxiv.org/abs/1911.09070, section 5.1).

    Args:
        example: dict, see the module's docstring.
        draws: `Draws` of `random_draws`.
        window: `Window`.

    Returns:
        As `letterbox`.
    """
    scale = tf.cast(draws.scale, tf.float32)
    size = window.target_size or window.image_size
    target = tf.floor(scale * tf.constant(size, tf.float32))
    fraction = (draws.offset_y, draws.offset_x)
    return _placed(example, window, target, fraction, is_rounded=False)


def _placed(example, window, target, fraction, is_rounded):
    """Resizes to fit `target`, cuts the window, pads, and moves the boxes."""
    image = tf.convert_to_tensor(example["image"])
    size = tf.cast(tf.shape(image)[:2], tf.float32)
    scale = tf.reduce_min(tf.maximum(target, 1.0) / size)
    scaled = tf.round(size * scale) if is_rounded else size * scale
    # At least one pixel, or a very long image would lose its short side.
    scaled = tf.maximum(tf.cast(scaled, tf.int32), 1)
    room = tf.maximum(0, scaled - tf.constant(window.image_size, tf.int32))
    share = tf.cast(tf.stack(fraction), tf.float32)
    offset = tf.cast(tf.cast(room, tf.float32) * share, tf.int32)

    is_asymmetric = window.resize_method == "asymmetric"
    if is_asymmetric:
        image = tf.raw_ops.ResizeBilinear(images=image[None], size=scaled)[0]
    else:
        image = tf.image.resize(image, scaled, antialias=False)
    placed = {**example, "image": _padded(window.of(image, offset), window)}
    if "mask" in example:  # nearest neighbor: each pixel gets the class at its center
        mask = tf.convert_to_tensor(example["mask"])[..., None]
        mask = window.of(tf.image.resize(mask, scaled, method="nearest"), offset)
        height, width = window.image_size
        missing = [[0, height - tf.shape(mask)[0]], [0, width - tf.shape(mask)[1]]]
        mask = tf.pad(mask[..., 0], missing, constant_values=np.uint8(IGNORED_PIXEL))
        placed["mask"] = tf.ensure_shape(mask, [height, width])

    factor = tf.tile(tf.cast(scaled, tf.float32) / size, [2])
    boxes = example["boxes"] * factor - tf.cast(tf.tile(offset, [2]), tf.float32)
    # Clipped to the last pixel, not to the border, as in google/automl.
    last = 0.0 if is_asymmetric else 1.0
    limit = tf.tile(tf.constant(window.image_size, tf.float32) - last, [2])
    boxes = tf.clip_by_value(boxes, 0.0, limit)
    keep = tf.reduce_all(boxes[:, 2:] > boxes[:, :2], axis=1)
    return {
        **placed,
        "boxes": tf.boolean_mask(boxes, keep),
        "labels": tf.boolean_mask(example["labels"], keep),
        "image_scale": 1.0 / scale,
    }


def _padded(image, window):
    height, width = window.image_size
    color = tf.constant(window.pad_value, tf.float32)
    inner_height, inner_width = tf.shape(image)[0], tf.shape(image)[1]
    right = tf.broadcast_to(color, [inner_height, width - inner_width, 3])
    below = tf.broadcast_to(color, [height - inner_height, width, 3])
    image = tf.concat([tf.concat([image, right], axis=1), below], axis=0)
    return tf.ensure_shape(image, [height, width, 3])
