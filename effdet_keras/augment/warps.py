"""What moves pixels: turning, slanting and cropping, and the boxes exactly with them.

A matrix is six numbers `(a, b, c, d, e, f)`: the pixel `(x, y)` of the result comes
from `(a x + b y + c, d x + e y + f)`.
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
    """The matrix that turns an image around its center."""
    radians = tf.convert_to_tensor(degrees, tf.float32) * (math.pi / 180.0)
    cos, sin = tf.cos(radians), tf.sin(radians)
    return around_center((cos, -sin, 0.0, sin, cos, 0.0), height, width)


def shear(along_x, along_y):
    """The matrix that slants an image around its upper left corner."""
    return 1.0, along_x, 0.0, along_y, 1.0, 0.0


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
    """Moves the pixels of an image, `[H, W, channels]`."""
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
    """Boxes around what is seen of each after the image was moved; zeros for little."""
    height, width = size_of(image)
    # The matrix counts from the middle of the first pixel, boxes from its corner.
    y, x = tf.unstack(corners(boxes) - 0.5, axis=2)
    moved_x, moved_y = inverse(matrix, x - matrix[2], y - matrix[5])
    quads = tf.stack([moved_y, moved_x], axis=2) + 0.5
    sides = tf.reduce_max(quads, axis=1) - tf.reduce_min(quads, axis=1)
    visible = visible_hulls(quads, height, width)
    return without_hidden(visible, sides[:, 0] * sides[:, 1], min_visibility)


def warp(example, matrix, *, fill, min_visibility):
    """An example moved by a matrix, with bilinear interpolation."""
    image = example["image"]
    warped = {
        **example,
        "image": warp_image(image, matrix, interpolation="bilinear", fill=fill),
        "boxes": warp_boxes(example["boxes"], matrix, image, min_visibility),
    }
    if "mask" in example:  # each pixel with its class; 255 where there was none
        mask = tf.convert_to_tensor(example["mask"])[..., None]
        options = {"interpolation": "nearest", "fill": float(IGNORED_PIXEL)}
        warped["mask"] = warp_image(mask, matrix, **options)[..., 0]
    return warped


@dataclasses.dataclass(eq=False)
class Rotate(Augmentation):
    """Turns the image around its center by a random angle.

    A new box is the smallest one around what the image still shows of the turned box.
    The larger the angle, the wider it is.

    Args:
        degrees: float, the largest angle, to both sides.
        fill: float from 0 to 255, the color of the corners that come in.
        min_visibility: float from 0 to 1; a box is dropped if less of it than this
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
    """Slants the image around its center: at 0.1, each row by a tenth of a pixel."""

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


# --- The box around what an image shows of a box that was turned or slanted.

_FAR = 1e9  # pixels
_SLACK = 1e-2  # pixels: a point that is computed to lie on the border is not outside


def corners(boxes):
    """The corners of boxes, `[n, 4, 2]` of `(y, x)`, in order around each."""
    y0, x0, y1, x1 = tf.unstack(boxes, axis=1)
    y = tf.stack([y0, y0, y1, y1], axis=1)
    x = tf.stack([x0, x1, x1, x0], axis=1)
    return tf.stack([y, x], axis=2)


def visible_hulls(quads, height, width):
    """Boxes `[n, 4]` around the parts of quadrilaterals that lie in the image.

    `quads` are `[n, 4, 2]` of `(y, x)`, convex, corners in order. The corners of what
    is visible are those of the one inside the other, and where sides cross. Where
    nothing is visible, the box is zeros.
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
    """The image's corners `[4, 2]`; whether the quads have them inside, `[n, 4]`."""
    y, x = tf.stack([0.0, 0.0, height, height]), tf.stack([0.0, width, width, 0.0])
    side_y, side_x = tf.unstack(sides, axis=2)  # [n, 4]
    start_y, start_x = tf.unstack(quads, axis=2)
    to_y = tf.reshape(y, [1, 4, 1]) - start_y[:, None]  # [n, corners, sides]
    to_x = tf.reshape(x, [1, 4, 1]) - start_x[:, None]
    turn = side_y[:, None] * to_x - side_x[:, None] * to_y
    # Inside, the corner lies on one hand of all sides.
    inside = tf.abs(tf.reduce_sum(tf.sign(turn), axis=2)) == 4.0
    return tf.stack([y, x], axis=1), inside


def _crossings(quads, sides, limit):
    """Where sides cross the borders' lines: points `[n, 16, 2]`, if on the side."""
    borders = tf.stack([tf.zeros_like(limit), limit])  # [low and high, axes]
    share = tf.math.divide_no_nan(borders - quads[:, :, None], sides[:, :, None])
    share = tf.reshape(share, [-1, 4, 4, 1])
    points = quads[:, :, None] + share * sides[:, :, None]  # [n, 4, 4, 2]
    share = tf.reshape(share, [-1, 16])
    return tf.reshape(points, [-1, 16, 2]), (share >= 0.0) & (share <= 1.0)


def areas(boxes):
    """Areas of boxes, float32 `[n]`."""
    sides = tf.maximum(boxes[:, 2:] - boxes[:, :2], 0.0)
    return sides[:, 0] * sides[:, 1]


def without_hidden(boxes, whole_areas, min_visibility):
    """Boxes, with zeros, which `sanitize_boxes` removes, where too little is left."""
    enough = areas(boxes) >= min_visibility * tf.convert_to_tensor(whole_areas)
    return tf.where(enough[:, None], boxes, 0.0)


# --- A random window of the image that keeps objects.


@dataclasses.dataclass(eq=False)
class RandomCrop(Augmentation):
    """Cuts a random window out of the image, one that shows an object.

    After SSD (https://arxiv.org/abs/1512.02325, section 2.2): windows are drawn until
    one shows at least one object well. If none of them does, the image stays whole;
    an image without boxes takes the first window. What the window cuts off is gone,
    and boxes are clipped to it.

    Args:
        area: pair of floats from 0 to 1, the smallest and the largest share of the
            image's area that a window has.
        aspect_ratio: pair of floats above 0, the lowest and the highest ratio of the
            window's width to its height, times the ratio of the image.
        min_covered: float from 0 to 1; a window shows an object well if it has at
            least this share of its box.
        min_visibility: float from 0 to 1; a box is dropped if less of it than this
            stays in the window.
        tries: int, how many windows are drawn.

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
        # The last one is the whole image, which is good always.
        windows = tf.concat([windows, whole[None]], axis=0)
        choice = tf.argmax(tf.concat([is_good, [True]], axis=0))
        return crop(example, windows[choice], self.min_visibility)

    def _windows(self, seed, height, width):
        """Windows of whole pixels, in the order in which they are tried."""
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
    """Cuts a window, float32 `[4]`, whole pixels of the image, out of an example."""
    y0, x0, y1, x1 = tf.unstack(tf.cast(window, tf.int32))
    boxes = tf.convert_to_tensor(example["boxes"])
    low, high = window[:2], window[2:]
    points = tf.clip_by_value(tf.reshape(boxes, [-1, 2, 2]), low, high) - low
    cut = without_hidden(tf.reshape(points, [-1, 4]), areas(boxes), min_visibility)
    cropped = {**example, "boxes": cut}
    for key in {"image", "mask"} & {*example}:
        cropped[key] = example[key][y0:y1, x0:x1]
    return cropped
