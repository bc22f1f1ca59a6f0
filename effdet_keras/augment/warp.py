"""Turning, slanting and shifting an image, and its boxes exactly with it.

A matrix is six numbers `(a, b, c, d, e, f)`: the pixel in column `x` and row `y` of
the result gets the color that the image has at `(a x + b y + c, d x + e y + f)`.
"""

from __future__ import annotations  # a type of TensorFlow would import it

import math

from effdet_keras._internal.label_constants import IGNORED_PIXEL
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.augment import hulls
from effdet_keras.augment.augmentation import size_of


def rotation(degrees, height, width):
    """The matrix that turns an image around its center.

    Args:
        degrees: float32 scalar, counter-clockwise as the image is seen.
        height: float32 scalar, of the image.
        width: float32 scalar.

    Returns:
        Six float32 scalars.

    Example:
        >>> [round(float(x), 4) for x in rotation(90.0, 4.0, 6.0)]
        [-0.0, -1.0, 4.0, 1.0, -0.0, -1.0]
    """
    radians = tf.convert_to_tensor(degrees, tf.float32) * (math.pi / 180.0)
    cos, sin = tf.cos(radians), tf.sin(radians)
    bottom, right = height - 1.0, width - 1.0
    x_offset = (right - (cos * right - sin * bottom)) / 2.0
    y_offset = (bottom - (sin * right + cos * bottom)) / 2.0
    return cos, -sin, x_offset, sin, cos, y_offset


def shear(along_x, along_y):
    """The matrix that slants an image around its upper left corner.

    Args:
        along_x: float32 scalar, by how much `x` falls as `y` rises by one.
        along_y: float32 scalar, by how much `y` falls as `x` rises by one.

    Returns:
        Six float32 scalars.
    """
    return 1.0, along_x, 0.0, along_y, 1.0, 0.0


def translation(down, right):
    """The matrix that shifts an image by pixels."""
    return 1.0, 0.0, -right, 0.0, 1.0, -down


def around_center(matrix, height, width):
    """The matrix that does the same, but leaves the center of the image in place."""
    a, b, _, d, e, _ = matrix
    x, y = (width - 1.0) / 2.0, (height - 1.0) / 2.0
    return a, b, x - (a * x + b * y), d, e, y - (d * x + e * y)


def inverse(matrix, x, y):
    """Where the matrix's four left numbers come from: solves for `(x, y)`."""
    a, b, _, d, e, _ = matrix
    determinant = a * e - b * d
    return (e * x - b * y) / determinant, (a * y - d * x) / determinant


def warp_image(image, matrix, *, interpolation, fill):
    """Moves the pixels of an image.

    Args:
        image: tensor `[H, W, 3]`.
        matrix: six float32 scalars.
        interpolation: "nearest" or "bilinear". Bilinear results are float32.
        fill: float, the color of what lies outside.

    Returns:
        Tensor `[H, W, 3]`.

    Example:
        >>> image = np.arange(9, dtype="uint8").reshape(1, 3, 3)
        >>> moved = warp_image(image, translation(0.0, 1.0),
        ...     interpolation="nearest", fill=128.0)
        >>> moved.numpy()[0, :, 0].tolist()
        [128, 0, 3]
    """
    image = tf.convert_to_tensor(image)
    if interpolation == "bilinear":
        image = tf.cast(image, tf.float32)
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=image[None],
        transforms=[tf.stack([*matrix, 0.0, 0.0])],
        output_shape=tf.shape(image)[:2],
        fill_value=fill,
        interpolation=interpolation.upper(),
        fill_mode="CONSTANT",
    )[0]


def warp_boxes(boxes, matrix, image, min_visibility):
    """Boxes around what is seen of each box after the image was moved.

    Args:
        boxes: float32 tensor `[n, 4]`, `yxyx` in pixels.
        matrix: six float32 scalars.
        image: tensor `[H, W, 3]`, for its size.
        min_visibility: float, the least share of its hull that must lie in the image.

    Returns:
        Float32 tensor `[n, 4]`; zeros for boxes of which less is seen.

    Example:
        >>> boxes = warp_boxes(np.float32([[2, 2, 4, 8]]), translation(1.0, 4.0),
        ...     np.zeros((10, 10, 3)), min_visibility=0.5)
        >>> boxes.numpy().tolist()
        [[3.0, 6.0, 5.0, 10.0]]
    """
    height, width = size_of(image)
    # The matrix counts from the middle of the first pixel, boxes from its corner.
    y, x = tf.unstack(hulls.corners(boxes) - 0.5, axis=2)
    moved_x, moved_y = inverse(matrix, x - matrix[2], y - matrix[5])
    quads = tf.stack([moved_y, moved_x], axis=2) + 0.5
    visible = hulls.visible_hulls(quads, height, width)
    return hulls.without_hidden(visible, hulls.hull_areas(quads), min_visibility)


def warp(example, matrix, *, fill, min_visibility):
    """An example moved by a matrix, with bilinear interpolation.

    Args:
        example: dict of `"image"`, `"boxes"`, `"labels"`.
        matrix: six float32 scalars.
        fill: float, the color of what lies outside.
        min_visibility: float, as of `warp_boxes`.

    Returns:
        Dict of the same keys, with as many boxes: zeros for those out of sight.
    """
    image, boxes = example["image"], example["boxes"]
    warped = warp_image(image, matrix, interpolation="bilinear", fill=fill)
    boxes = warp_boxes(boxes, matrix, image, min_visibility)
    warped = {**example, "image": warped, "boxes": boxes}
    if "mask" in example:
        warped["mask"] = warp_mask(example["mask"], matrix)
    return warped


def warp_mask(mask, matrix):
    """Moves the pixels of a mask, each with its class.

    Args:
        mask: uint8 tensor `[H, W]`.
        matrix: six float32 scalars.

    Returns:
        uint8 tensor `[H, W]`, 255 where the image had no pixel.
    """
    mask = tf.convert_to_tensor(mask)[..., None]
    return warp_image(mask, matrix, interpolation="nearest", fill=float(IGNORED_PIXEL))[
        ..., 0
    ]
