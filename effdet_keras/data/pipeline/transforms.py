"""Geometry of the input pipeline: letterbox, flip, scale jitter with crop.

TensorFlow, because it runs inside `tf.data` whatever the backend of Keras.
Random numbers are drawn in one function and applied in others, so that a
test can give the numbers and a run can repeat them.
"""

from __future__ import annotations  # a type of TensorFlow would import it

from typing import NamedTuple

import numpy as np

from effdet_keras._internal.label_constants import IGNORED_PIXEL
from effdet_keras._internal.optional_imports import tensorflow as tf


class Draws(NamedTuple):
    """The random numbers of one training example, float32 scalars.

    `flip`, `offset_y` and `offset_x` lie in [0, 1); `scale` is the factor on
    the output size.
    """

    flip: tf.Tensor
    scale: tf.Tensor
    offset_y: tf.Tensor
    offset_x: tf.Tensor


class Place(NamedTuple):
    """Where an image lies in the network's input.

    It is resized to `scaled_size`, int32 `[2]`, of which a window is seen that begins
    at `offset`, int32 `[2]`. `image_scale` is as of `letterbox`.
    """

    scaled_size: tf.Tensor
    offset: tf.Tensor
    image_scale: tf.Tensor


def random_draws(seed, scale_jitter=(0.1, 2.0)):
    """Draws the random numbers of one example.

    Args:
        seed: int tensor `[2]`: the same seed gives the same numbers.

    Example:
        >>> bool(random_draws([1, 2]).scale == random_draws([1, 2]).scale)
        True
    """
    # The algorithm is named so that all devices draw alike.
    uniform = tf.random.stateless_uniform([4], seed, alg="philox")
    low, high = scale_jitter
    return Draws(uniform[0], low + (high - low) * uniform[1], uniform[2], uniform[3])


def flip(image, boxes):
    """Mirrors an image and its boxes, left to right.

    Args:
        image: tensor `[H, W, 3]`.
        boxes: float32 tensor `[n, 4]`, `yxyx` in pixels.

    Example:
        >>> _, boxes = flip(np.zeros((4, 10, 3)), np.float32([[0, 1, 2, 4]]))
        >>> boxes.numpy().tolist()
        [[0.0, 6.0, 2.0, 9.0]]
    """
    image = tf.convert_to_tensor(image)
    width = tf.cast(tf.shape(image)[1], tf.float32)
    y0, x0, y1, x1 = tf.unstack(boxes, axis=1)
    boxes = tf.stack([y0, width - x1, y1, width - x0], axis=1)
    # Not `image[:, ::-1]`: on 480x640 pixels that takes 8 ms, this 0.4 ms.
    return tf.reverse(image, [1]), boxes


def letterbox(
    image, boxes, labels, *, image_size, pad_value, resize_method="half_pixel"
):
    """Scales an image to fit, keeps its shape, puts it top left and pads.

    Bilinear with half-pixel centers and without antialiasing; the scaled
    size is cut down to whole pixels, as in the reference.

    Args:
        image: uint8 or float tensor `[H, W, 3]`.
        boxes: float32 tensor `[n, 4]`, `yxyx` in pixels of `image`.
        labels: int tensor `[n]`.
        resize_method: "half_pixel", as above, or "asymmetric", TensorFlow 1's; see
            `geometry.letterbox`. With that, boxes are clipped to `[0, side]`.

    Returns:
        `(image, boxes, labels, image_scale)`: float32 `[height, width, 3]` on
        the scale of the input; float32 `[m, 4]` in its pixels, clipped to
        `[0, side - 1]`; `[m]`; float32 scalar. Boxes without area are left
        out, so `m` may be below `n`. A box times `image_scale` is in pixels
        of the input.

    Example:
        >>> image, boxes, labels, image_scale = letterbox(
        ...     np.full((4, 8, 3), 9, "uint8"), np.float32([[0, 2, 4, 6]]), [5],
        ...     image_size=(16, 16), pad_value=(1, 2, 3))
        >>> boxes.numpy().tolist(), float(image_scale)
        ([[0.0, 4.0, 8.0, 12.0]], 0.5)
        >>> image[7, 0].numpy().tolist(), image[8, 0].numpy().tolist()
        ([9.0, 9.0, 9.0], [1.0, 2.0, 3.0])
    """
    place = letterbox_place(image, image_size, resize_method)
    window = _Window(image_size, pad_value, resize_method)
    return _place(image, boxes, labels, place, window)


def letterbox_place(image, image_size, resize_method="half_pixel"):
    """The `Place` that `letterbox` gives an image."""
    target = tf.constant(image_size, tf.float32)
    scaled_size, image_scale = _fit(image, target, resize_method)
    return Place(scaled_size, tf.zeros([2], tf.int32), image_scale)


def scale_jitter(
    image, boxes, labels, draws, *, image_size, pad_value, resize_method="half_pixel"
):
    """Scales an image by a random factor, then crops or pads it.

    With factor `f` the image is scaled to fit `f * image_size`, shape kept.
    Where it is then larger than `image_size`, a window is cut out of it at
    `offset * (scaled - image_size)`; where smaller, it lies top left.
    (`random_crop` of the RetinaNet and EfficientDet recipes; the paper,
    https://arxiv.org/abs/1911.09070, section 5.1.)

    A box that is cut keeps what lies inside, however little.

    Args:
        image: uint8 or float tensor `[H, W, 3]`.
        boxes: float32 tensor `[n, 4]`, `yxyx` in pixels of `image`.
        labels: int tensor `[n]`.

    Example:
        >>> draws = Draws(flip=0.0, scale=2.0, offset_y=0.0, offset_x=0.5)
        >>> _, boxes, _, image_scale = scale_jitter(
        ...     np.zeros((8, 8, 3), "uint8"), np.float32([[0, 4, 2, 8]]), [5], draws,
        ...     image_size=(8, 8), pad_value=(0, 0, 0))
        >>> boxes.numpy().tolist(), float(image_scale)
        ([[0.0, 4.0, 4.0, 7.0]], 0.5)
    """
    place = jitter_place(image, draws, image_size)
    window = _Window(image_size, pad_value, resize_method)
    return _place(image, boxes, labels, place, window)


def jitter_place(image, draws, image_size):
    """The `Place` that `scale_jitter` gives an image."""
    target = tf.floor(
        tf.cast(draws.scale, tf.float32) * tf.constant(image_size, tf.float32)
    )
    scaled_size, image_scale = _fit(image, target, "half_pixel")
    room = tf.maximum(0, scaled_size - tf.constant(image_size, tf.int32))
    fraction = tf.stack([draws.offset_y, draws.offset_x])
    offset = tf.cast(
        tf.cast(room, tf.float32) * tf.cast(fraction, tf.float32), tf.int32
    )
    return Place(scaled_size, offset, image_scale)


def place_mask(mask, place, image_size):
    """Puts a mask where its image is: each pixel has the class at its middle.

    Args:
        mask: uint8 tensor `[H, W]`.

    Returns:
        uint8 tensor `[height, width]`, 255 around the image.

    Example:
        >>> place = letterbox_place(np.zeros((1, 2, 3)), (2, 2))
        >>> place_mask(np.uint8([[3, 4]]), place, (2, 2)).numpy().tolist()
        [[3, 4], [255, 255]]
    """
    window = tf.image.resize(
        tf.convert_to_tensor(mask)[..., None], place.scaled_size, method="nearest"
    )
    window = _inside(window, place.offset, image_size)[..., 0]
    height, width = image_size
    missing = [[0, height - tf.shape(window)[0]], [0, width - tf.shape(window)[1]]]
    mask = tf.pad(window, missing, constant_values=np.uint8(IGNORED_PIXEL))
    return tf.ensure_shape(mask, [height, width])


def _inside(image, offset, image_size):
    end = offset + tf.constant(image_size, tf.int32)
    return image[offset[0] : end[0], offset[1] : end[1]]


class _Window(NamedTuple):
    """What is seen of a scaled image, and how it is scaled."""

    image_size: tuple
    pad_value: tuple
    resize_method: str


def _fit(image, target, resize_method):
    """The largest size of the image's shape inside `target`, and 1 / scale."""
    size = tf.cast(tf.shape(image)[:2], tf.float32)
    scale = tf.reduce_min(tf.maximum(target, 1.0) / size)
    # At least one pixel: a very long image would lose its short side.
    scaled = size * scale
    if resize_method == "asymmetric":
        scaled = tf.round(scaled)
    return tf.maximum(tf.cast(scaled, tf.int32), 1), 1.0 / scale


def _resize(image, scaled_size, resize_method):
    if resize_method == "asymmetric":
        return tf.raw_ops.ResizeBilinear(images=image[None], size=scaled_size)[0]
    return tf.image.resize(image, scaled_size, antialias=False)


def _place(image, boxes, labels, place, window):
    """Resizes to a place, cuts the window at its offset, pads, moves boxes."""
    scaled_size, offset, image_scale = place
    image_size, pad_value, resize_method = window
    size = tf.cast(tf.shape(image)[:2], tf.float32)
    scaled = _resize(image, scaled_size, resize_method)
    inside = _inside(scaled, offset, image_size)
    image = _pad(inside, image_size, pad_value)

    factor = tf.tile(tf.cast(scaled_size, tf.float32) / size, [2])
    boxes = boxes * factor - tf.cast(tf.tile(offset, [2]), tf.float32)
    # The last pixel, not the border: so does google/automl.
    last = 0.0 if resize_method == "asymmetric" else 1.0
    limit = tf.tile(tf.constant(image_size, tf.float32) - last, [2])
    boxes = tf.clip_by_value(boxes, 0.0, limit)
    keep = tf.reduce_all(boxes[:, 2:] > boxes[:, :2], axis=1)
    kept = tf.boolean_mask(boxes, keep), tf.boolean_mask(labels, keep)
    return image, *kept, image_scale


def _pad(window, image_size, pad_value):
    height, width = image_size
    color = tf.constant(pad_value, tf.float32)
    inner_height, inner_width = tf.shape(window)[0], tf.shape(window)[1]
    right = tf.broadcast_to(color, [inner_height, width - inner_width, 3])
    below = tf.broadcast_to(color, [height - inner_height, width, 3])
    image = tf.concat([tf.concat([window, right], axis=1), below], axis=0)
    return tf.ensure_shape(image, [height, width, 3])
