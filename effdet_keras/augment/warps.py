"""Augmentations that move pixels, and boxes exactly with them: rotate, shear, crop.

A matrix is a tuple of six numbers `(a, b, c, d, e, f)`. The pixel `(x, y)` of the
result comes from `(a x + b y + c, d x + e y + f)` in the image.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.augment import random_ops
from effdet_keras.augment.augmentation import Augmentation, Example, parameter, size_of
from effdet_keras.labels import IGNORED_PIXEL


def rotation(degrees, height, width):
    """Returns the matrix that rotates an image around its center.

    Args:
        degrees: float or float scalar tensor, the angle.
        height, width: float scalars, the size of the image in pixels.
    """
    radians = tf.convert_to_tensor(degrees, tf.float32) * (math.pi / 180.0)
    cos, sin = tf.cos(radians), tf.sin(radians)
    return around_center((cos, -sin, 0.0, sin, cos, 0.0), height, width)


def shear(along_x, along_y):
    """Returns the matrix that shears an image and keeps its upper left pixel.

    Args:
        along_x: float scalar, horizontal shift per pixel of height.
        along_y: float scalar, vertical shift per pixel of width.
    """
    return 1.0, along_x, 0.0, along_y, 1.0, 0.0


def around_center(matrix, height, width):
    """Returns the matrix with a new shift that keeps the image's center in place."""
    a, b, _, d, e, _ = matrix
    x, y = (width - 1.0) / 2.0, (height - 1.0) / 2.0
    return a, b, x - (a * x + b * y), d, e, y - (d * x + e * y)


def inverse(matrix, x, y):
    """Solves `(a x' + b y', d x' + e y') = (x, y)` for `(x', y')`."""
    a, b, _, d, e, _ = matrix
    determinant = a * e - b * d
    return (e * x - b * y) / determinant, (a * y - d * x) / determinant


def warp_image(image, matrix, *, interpolation, fill):
    """Moves the pixels of an image.

    Args:
        image: uint8 or float `[H, W, channels]`.
        matrix: six numbers, see the module's docstring.
        interpolation: "bilinear" or "nearest".
        fill: float, the value of pixels that come from outside the image.

    Returns:
        Tensor `[H, W, channels]`, float32 if the interpolation is bilinear.
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
    """Returns the smallest boxes around the visible parts of the moved boxes.

    Args:
        boxes: float32 `[n, 4]`, `yxyx` in pixels.
        matrix: six numbers, see the module's docstring.
        image: `[H, W, channels]`, whose size is used.
        min_visibility: float in [0, 1]. A box becomes zeros if its area is less than
            this share of the area of the box around the whole moved box.

    Returns:
        Float32 `[n, 4]`, `yxyx` in pixels.
    """
    height, width = size_of(image)
    # The matrix counts from the center of the first pixel, boxes from its corner.
    y, x = tf.unstack(corners(boxes) - 0.5, axis=2)
    moved_x, moved_y = inverse(matrix, x - matrix[2], y - matrix[5])
    quads = tf.stack([moved_y, moved_x], axis=2) + 0.5
    sides = tf.reduce_max(quads, axis=1) - tf.reduce_min(quads, axis=1)
    visible = visible_hulls(quads, height, width)
    return without_hidden(visible, sides[:, 0] * sides[:, 1], min_visibility)


def warp(example, matrix, *, fill, min_visibility):
    """Returns an example moved by a matrix; the image is interpolated bilinearly."""
    image = example["image"]
    warped = {
        **example,
        "image": warp_image(image, matrix, interpolation="bilinear", fill=fill),
        "boxes": warp_boxes(example["boxes"], matrix, image, min_visibility),
    }
    if "mask" in example:  # pixels from outside the image have no class: 255
        mask = tf.convert_to_tensor(example["mask"])[..., None]
        options = {"interpolation": "nearest", "fill": float(IGNORED_PIXEL)}
        warped["mask"] = warp_image(mask, matrix, **options)[..., 0]
    return warped


@dataclasses.dataclass(eq=False)
class Rotate(Augmentation):
    """Rotates the image around its center by a random angle.

    A new box is the smallest one around the visible part of the rotated box. The larger
    the angle, the wider it is.

    Args:
        degrees: float in [0, 180], the largest angle, in both directions.
        fill: float in [0, 255], the color of pixels from outside the image.
        min_visibility: float in [0, 1]. A box is dropped if less than this share of it
            stays in the image.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> import numpy as np
        >>> import effdet_keras as ek
        >>> example = {"image": np.zeros((100, 100, 3), "uint8"),
        ...     "boxes": np.float32([[40, 20, 60, 80]]), "labels": np.int32([5])}
        >>> rotated = ek.augment.Rotate(30.0)(example, seed=[0, 2])
        >>> rotated["boxes"].numpy().round().tolist()
        [[32.0, 18.0, 68.0, 82.0]]
    """

    keeps_masks = True

    degrees: float = parameter(15.0, "[0, 180]")
    _: dataclasses.KW_ONLY
    fill: float = parameter(128.0, "[0, 255]")
    min_visibility: float = parameter(0.1, "[0, 1]")

    def augment(self, example: Example, seed: Any) -> Example:
        degrees = random_ops.around_zero(random_ops.uniform(seed), self.degrees)
        matrix = rotation(degrees, *size_of(example["image"]))
        return warp(example, matrix, fill=self.fill, min_visibility=self.min_visibility)


@dataclasses.dataclass(eq=False)
class Shear(Augmentation):
    """Shears the image around its center by random amounts.

    With an amount of 0.1 along x, each row is shifted by a tenth of a pixel against the
    row above. A new box is the smallest one around the visible part of the sheared box.

    Args:
        along_x: float in [0, 1), the largest horizontal shift per pixel of height, in
            both directions.
        along_y: float in [0, 1), the largest vertical shift per pixel of width, in both
            directions.
        fill: float in [0, 255], the color of pixels from outside the image.
        min_visibility: float in [0, 1]. A box is dropped if less than this share of it
            stays in the image.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> import numpy as np
        >>> import effdet_keras as ek
        >>> example = {"image": np.zeros((100, 100, 3), "uint8"),
        ...     "boxes": np.float32([[40, 20, 60, 80]]), "labels": np.int32([5])}
        >>> sheared = ek.augment.Shear(0.0, 0.0)(example, seed=[0, 1])
        >>> sheared["boxes"].numpy().round().tolist()
        [[40.0, 20.0, 60.0, 80.0]]
    """

    keeps_masks = True

    along_x: float = parameter(0.15, "[0, 1)")
    along_y: float = parameter(0.15, "[0, 1)")
    _: dataclasses.KW_ONLY
    fill: float = parameter(128.0, "[0, 255]")
    min_visibility: float = parameter(0.1, "[0, 1]")

    def augment(self, example: Example, seed: Any) -> Example:
        unit_x, unit_y = tf.unstack(random_ops.uniform(seed, [2]))
        matrix = shear(
            random_ops.around_zero(unit_x, self.along_x),
            random_ops.around_zero(unit_y, self.along_y),
        )
        matrix = around_center(matrix, *size_of(example["image"]))
        return warp(example, matrix, fill=self.fill, min_visibility=self.min_visibility)


# --- The box around the visible part of a box that was rotated or sheared.

_FAR = 1e9  # pixels
_SLACK = 1e-2  # pixels: rounding must not put a point on the border outside


def corners(boxes):
    """Returns the corners of boxes, `[n, 4, 2]` of `(y, x)`, in order around each."""
    y0, x0, y1, x1 = tf.unstack(boxes, axis=1)
    y = tf.stack([y0, y0, y1, y1], axis=1)
    x = tf.stack([x0, x1, x1, x0], axis=1)
    return tf.stack([y, x], axis=2)


def visible_hulls(quads, height, width):
    """Returns boxes around the parts of quadrilaterals that lie in the image.

    The visible part is a polygon. Its corners are the quadrilateral's corners inside
    the image, the image's corners inside the quadrilateral, and the points where sides
    cross.

    Args:
        quads: float32 `[n, 4, 2]` of `(y, x)` in pixels, convex, corners in order.
        height, width: float32 scalars, the size of the image in pixels.

    Returns:
        Float32 `[n, 4]`, `yxyx` in pixels, zeros if nothing is visible.
    """
    limit = tf.stack([height, width])
    sides = tf.roll(quads, -1, axis=1) - quads  # [n, 4, 2]
    crossings, on_sides = _crossings(quads, sides, limit)
    points = tf.concat([quads, crossings], axis=1)  # [n, 20, 2]
    in_image = tf.reduce_all((points > -_SLACK) & (points < limit + _SLACK), axis=-1)
    is_corner = in_image & tf.concat([tf.ones_like(on_sides[:, :4]), on_sides], axis=1)
    image, in_quads = _image_corners(quads, sides, height, width)
    points = tf.concat([points, tf.broadcast_to(image, tf.shape(quads))], axis=1)
    is_corner = tf.concat([is_corner, in_quads], axis=1)[..., None]
    low = tf.reduce_min(tf.where(is_corner, points, _FAR), axis=1)
    high = tf.reduce_max(tf.where(is_corner, points, -_FAR), axis=1)
    hulls = tf.clip_by_value(tf.concat([low, high], 1), 0.0, tf.tile(limit, [2]))
    seen = tf.reduce_any(is_corner, axis=1)
    return tf.where(seen, hulls, 0.0)


def _image_corners(quads, sides, height, width):
    """Returns the image's corners `[4, 2]`, and whether quads contain them `[n, 4]`."""
    y, x = tf.stack([0.0, 0.0, height, height]), tf.stack([0.0, width, width, 0.0])
    side_y, side_x = tf.unstack(sides, axis=2)  # [n, 4]
    start_y, start_x = tf.unstack(quads, axis=2)
    to_y = tf.reshape(y, [1, 4, 1]) - start_y[:, None]  # [n, corners, sides]
    to_x = tf.reshape(x, [1, 4, 1]) - start_x[:, None]
    turn = side_y[:, None] * to_x - side_x[:, None] * to_y
    # A corner is inside if it lies on the same hand of all sides.
    inside = tf.abs(tf.reduce_sum(tf.sign(turn), axis=2)) == 4.0
    return tf.stack([y, x], axis=1), inside


def _crossings(quads, sides, limit):
    """Returns the points where the lines of sides cross those of the image's borders.

    Returns:
        Points `[n, 16, 2]`, and whether each lies on its side, bool `[n, 16]`.
    """
    borders = tf.stack([tf.zeros_like(limit), limit])  # [low and high, axes]
    share = tf.math.divide_no_nan(borders - quads[:, :, None], sides[:, :, None])
    share = tf.reshape(share, [-1, 4, 4, 1])
    points = quads[:, :, None] + share * sides[:, :, None]  # [n, 4, 4, 2]
    share = tf.reshape(share, [-1, 16])
    return tf.reshape(points, [-1, 16, 2]), (share >= 0.0) & (share <= 1.0)


def areas(boxes):
    """Returns the areas of boxes `[n, 4]`, float32 `[n]` in square pixels."""
    sides = tf.maximum(boxes[:, 2:] - boxes[:, :2], 0.0)
    return sides[:, 0] * sides[:, 1]


def without_hidden(boxes, whole_areas, min_visibility):
    """Replaces boxes with too little area by zeros, which `sanitize_boxes` removes.

    Args:
        boxes: float32 `[n, 4]`, `yxyx` in pixels, the visible parts.
        whole_areas: floats `[n]`, the areas of the whole boxes in square pixels.
        min_visibility: float in [0, 1], the smallest share of the area.
    """
    enough = areas(boxes) >= min_visibility * tf.convert_to_tensor(whole_areas)
    return tf.where(enough[:, None], boxes, 0.0)


# --- A random window of the image that keeps objects.


@dataclasses.dataclass(eq=False)
class RandomCrop(Augmentation):
    """Crops the image to a random window that shows an object.

    After SSD (https://arxiv.org/abs/1512.02325, section 2.2). Windows are drawn at
    random, and the first that shows at least one object well is taken. If none does,
    the image stays whole. An image without boxes takes the first window. The result has
    the size of the window, and boxes are clipped to it.

    Args:
        area: pair of floats in [0.001, 1], the smallest and the largest area of a
            window, relative to the image's area.
        aspect_ratio: pair of floats, at least 0.001, the lowest and the highest ratio
            of the window's width to its height, relative to that ratio of the image.
        min_covered: float in [0, 1]. A window shows an object well if it contains at
            least this share of the area of its box.
        min_visibility: float in [0, 1]. A box is dropped if less than this share of its
            area stays in the window.
        tries: int, at least 1, the number of windows that are drawn.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> import numpy as np
        >>> import effdet_keras as ek
        >>> example = {"image": np.zeros((100, 100, 3), "uint8"),
        ...     "boxes": np.float32([[40, 20, 60, 80]]), "labels": np.int32([5])}
        >>> cropped = ek.augment.RandomCrop(area=(0.3, 0.5))(example, seed=[0, 1])
        >>> height, width, _ = cropped["image"].shape
        >>> bool(0.29 < height * width / 10000 < 0.51), len(cropped["boxes"])
        (True, 1)
    """

    keeps_masks = True

    _: dataclasses.KW_ONLY
    area: tuple[float, float] = parameter((0.3, 1.0), "[0.001, 1]")
    aspect_ratio: tuple[float, float] = parameter((0.5, 2.0), "[0.001, inf)")
    min_covered: float = parameter(0.7, "[0, 1]")
    min_visibility: float = parameter(0.3, "[0, 1]")
    tries: int = parameter(20, "[1, inf)")

    def augment(self, example: Example, seed: Any) -> Example:
        image, boxes = example["image"], example["boxes"]
        height, width = size_of(image)
        windows = self._windows(seed, height, width)  # [tries, 4]
        low = tf.maximum(boxes[:, :2], windows[:, None, :2])
        high = tf.minimum(boxes[:, 2:], windows[:, None, 2:])
        inside = tf.reduce_prod(tf.maximum(high - low, 0.0), axis=2)  # [tries, n]
        is_well_shown = inside >= self.min_covered * areas(boxes)
        is_good = tf.reduce_any(is_well_shown, axis=1) | (tf.shape(boxes)[0] == 0)
        whole = tf.stack([0.0, 0.0, height, width])
        # The last window is the whole image, which is always good.
        windows = tf.concat([windows, whole[None]], axis=0)
        choice = tf.argmax(tf.concat([is_good, [True]], axis=0))
        return crop(example, windows[choice], self.min_visibility)

    def _windows(self, seed, height, width):
        """Returns windows `[tries, 4]` in whole pixels, in the order of trial."""
        units = tf.unstack(random_ops.uniform(seed, [4, self.tries]))
        area = random_ops.between(units[0], *self.area)
        low, high = (math.log(x) for x in self.aspect_ratio)
        ratio = tf.exp(random_ops.between(units[1], low, high))
        rows = tf.minimum(tf.sqrt(area / ratio), 1.0)
        columns = tf.minimum(area / rows, 1.0)
        rows = tf.maximum(tf.round(tf.minimum(area / columns, 1.0) * height), 1.0)
        columns = tf.maximum(tf.round(columns * width), 1.0)
        y = tf.floor(units[2] * (height - rows + 1.0))
        x = tf.floor(units[3] * (width - columns + 1.0))
        return tf.stack([y, x, y + rows, x + columns], axis=1)


def crop(example, window, min_visibility):
    """Crops an example to a window.

    Args:
        example: dict of an image, boxes and maybe a mask.
        window: float32 `[4]`, `yxyx` in whole pixels of the image.
        min_visibility: float in [0, 1]. A box becomes zeros if less than this share of
            its area stays in the window.
    """
    y0, x0, y1, x1 = tf.unstack(tf.cast(window, tf.int32))
    boxes = tf.convert_to_tensor(example["boxes"])
    low, high = window[:2], window[2:]
    points = tf.clip_by_value(tf.reshape(boxes, [-1, 2, 2]), low, high) - low
    cut = without_hidden(tf.reshape(points, [-1, 4]), areas(boxes), min_visibility)
    cropped = {**example, "boxes": cut}
    for key in {"image", "mask"} & {*example}:
        cropped[key] = example[key][y0:y1, x0:x1]
    return cropped
