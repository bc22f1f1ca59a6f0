"""Boxes as google/automl's AutoAugment moves them: in whole pixels.

It cuts coordinates down to whole pixels before and after it moves them, and keeps a
box that has left the image as a strip at its border. `AutoAugment` moves boxes exactly;
this file is for who wants to repeat the reference's numbers.
"""

from __future__ import annotations  # a type of TensorFlow would import it

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.augment import hulls
from effdet_keras.augment.augmentation import size_of
from effdet_keras.augment.warp import inverse

_STRIP = 0.05  # of the image's side: how wide a box is that has left the image


def whole_pixel_boxes(boxes, matrix, image, *, is_rotation):
    """Boxes around the corners that the reference computes.

    Args:
        boxes: float32 tensor `[n, 4]`, `yxyx` in pixels.
        matrix: six float32 scalars, as of `warp.warp_image`.
        image: tensor `[H, W, 3]`, for its size.
        is_rotation: bool scalar tensor, whether pixels count from the center.

    Returns:
        Float32 tensor `[n, 4]`.

    Example:
        >>> boxes = whole_pixel_boxes(
        ...     np.float32([[1.7, 2.7, 4.7, 8.7]]), (1.0, 0.0, -9.0, 0.0, 1.0, 0.0),
        ...     np.zeros((10, 10, 3)), is_rotation=False)
        >>> boxes.numpy().tolist()
        [[1.0, 9.5, 4.0, 10.0]]
    """
    limit = tf.stack(size_of(image))
    origin = tf.where(is_rotation, 0.5, 0.0)
    # Not `corners - limit * origin`, which rounds to other whole pixels.
    points = _truncate(limit * (hulls.corners(boxes) / limit - origin))
    y, x = tf.unstack(points, axis=2)
    x, y = inverse(matrix, x, y)
    # A rotation's own shift is that of its center.
    shift = tf.where(is_rotation, 0.0, tf.stack([matrix[5], matrix[2]]))
    points = _truncate(tf.stack([y, x], axis=2)) - shift + limit * origin
    low = tf.reduce_min(points, axis=1)
    high = tf.reduce_max(points, axis=1)
    low, high = tf.clip_by_value(low, 0.0, limit), tf.clip_by_value(high, 0.0, limit)
    is_gone = low == high
    high = tf.where(is_gone, tf.maximum(high, _STRIP * limit), high)
    low = tf.where(is_gone, tf.minimum(low, (1.0 - _STRIP) * limit), low)
    return tf.concat([low, high], axis=1)


def _truncate(values):
    return tf.cast(tf.cast(values, tf.int32), tf.float32)
