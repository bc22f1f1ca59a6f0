"""Turning, slanting, shifting and cropping an image, and its boxes exactly with it."""

from __future__ import annotations

import math
from typing import Any

from effdet_keras._internal.label_constants import IGNORED_PIXEL
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.augment import draws
from effdet_keras.augment.augmentation import (
    Augmentation,
    Example,
    check_fraction,
    check_range,
    register,
    size_of,
)
from effdet_keras.augment.hulls import (
    areas,
    corners,
    hull_areas,
    visible_hulls,
    without_hidden,
)
from effdet_keras.errors import InvalidValueError


def rotation(degrees, height, width):
    """The matrix that turns an image around its center.

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
    """The matrix that slants an image around its upper left corner."""
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
        image: tensor `[H, W, 3]`, for its size.

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
    y, x = tf.unstack(corners(boxes) - 0.5, axis=2)
    moved_x, moved_y = inverse(matrix, x - matrix[2], y - matrix[5])
    quads = tf.stack([moved_y, moved_x], axis=2) + 0.5
    visible = visible_hulls(quads, height, width)
    return without_hidden(visible, hull_areas(quads), min_visibility)


def warp(example, matrix, *, fill, min_visibility):
    """An example moved by a matrix, with bilinear interpolation."""
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

    Returns:
        uint8 tensor `[H, W]`, 255 where the image had no pixel.
    """
    mask = tf.convert_to_tensor(mask)[..., None]
    return warp_image(mask, matrix, interpolation="nearest", fill=float(IGNORED_PIXEL))[
        ..., 0
    ]


# --- Rotation by a random angle.


@register
class Rotate(Augmentation):
    """Turns the image around its center by a random angle.

    A new box is the smallest one around what the image still shows of the turned box.
    It is wider than what was annotated unless that fills its box to the corners, and
    the more so the larger the angle: use large angles only where a box of some slack
    does no harm.

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

    def __init__(
        self, degrees: float = 15.0, *, fill: float = 128.0, min_visibility: float = 0.1
    ) -> None:
        if not 0.0 <= degrees <= 180.0:
            raise InvalidValueError(
                f"`degrees` must be from 0 to 180. Received: degrees={degrees!r}"
            )
        self.degrees = float(degrees)
        self.fill = float(fill)
        self.min_visibility = check_fraction("min_visibility", min_visibility)

    def augment(self, example: Example, seed: Any) -> Example:
        degrees = draws.between(draws.uniform(seed), -self.degrees, self.degrees)
        matrix = rotation(degrees, *size_of(example["image"]))
        return warp(example, matrix, fill=self.fill, min_visibility=self.min_visibility)

    def get_config(self):
        return {
            "degrees": self.degrees,
            "fill": self.fill,
            "min_visibility": self.min_visibility,
        }


# --- Slanting by a random amount.


@register
class Shear(Augmentation):
    """Slants the image by random amounts: an upright rectangle becomes a rhomboid.

    At 0.1 along x, each row lies a tenth of a pixel further than the row above it.
    The center of the image stays in its place. A new box is the smallest one around
    what the image still shows of the slanted box.

    Args:
        along_x: float from 0, but below 1, the largest amount, to both sides.
        along_y: float from 0, but below 1, the same for columns.
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
        >>> slanted = ek.augment.Shear(0.3, 0.0)(example, seed=[0, 2])
        >>> slanted["boxes"].numpy().round().tolist()
        [[40.0, 18.0, 60.0, 82.0]]
    """

    keeps_masks = True

    def __init__(
        self,
        along_x: float = 0.15,
        along_y: float = 0.15,
        *,
        fill: float = 128.0,
        min_visibility: float = 0.1,
    ) -> None:
        for name, value in (("along_x", along_x), ("along_y", along_y)):
            if not 0.0 <= value < 1.0:
                raise InvalidValueError(
                    f"`{name}` must be from 0, but below 1. Received: {name}={value!r}"
                )
        self.along_x = float(along_x)
        self.along_y = float(along_y)
        self.fill = float(fill)
        self.min_visibility = check_fraction("min_visibility", min_visibility)

    def augment(self, example: Example, seed: Any) -> Example:
        unit_x, unit_y = tf.unstack(draws.uniform(seed, [2]))
        along_x = draws.between(unit_x, -self.along_x, self.along_x)
        along_y = draws.between(unit_y, -self.along_y, self.along_y)
        matrix = shear(along_x, along_y)
        matrix = around_center(matrix, *size_of(example["image"]))
        return warp(example, matrix, fill=self.fill, min_visibility=self.min_visibility)

    def get_config(self):
        return {
            "along_x": self.along_x,
            "along_y": self.along_y,
            "fill": self.fill,
            "min_visibility": self.min_visibility,
        }


# --- A random window of the image that keeps objects.


@register
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

    def __init__(
        self,
        *,
        area: tuple[float, float] = (0.3, 1.0),
        aspect_ratio: tuple[float, float] = (0.5, 2.0),
        min_covered: float = 0.7,
        min_visibility: float = 0.3,
        tries: int = 20,
    ) -> None:
        self.area = check_range("area", area, 1e-3, 1.0)
        self.aspect_ratio = check_range("aspect_ratio", aspect_ratio, 1e-3, math.inf)
        self.min_covered = check_fraction("min_covered", min_covered)
        self.min_visibility = check_fraction("min_visibility", min_visibility)
        if tries < 1:
            raise InvalidValueError(
                f"`tries` must be 1 or more. Received: tries={tries!r}"
            )
        self.tries = int(tries)

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
        units = tf.unstack(draws.uniform(seed, [4, self.tries]))
        area = draws.between(units[0], *self.area)
        low, high = (math.log(x) for x in self.aspect_ratio)
        ratio = tf.exp(draws.between(units[1], low, high))
        rows = tf.minimum(tf.sqrt(area / ratio), 1.0)
        columns = tf.minimum(area / rows, 1.0)
        rows = tf.maximum(tf.round(tf.minimum(area / columns, 1.0) * height), 1.0)
        columns = tf.maximum(tf.round(columns * width), 1.0)
        y = tf.floor(units[2] * (height - rows + 1.0))
        x = tf.floor(units[3] * (width - columns + 1.0))
        return tf.stack([y, x, y + rows, x + columns], axis=1)

    def get_config(self):
        return {
            "area": self.area,
            "aspect_ratio": self.aspect_ratio,
            "min_covered": self.min_covered,
            "min_visibility": self.min_visibility,
            "tries": self.tries,
        }


def crop(example, window, min_visibility):
    """Cuts a window out of an example.

    Args:
        window: float32 tensor `[4]`, `yxyx`, whole numbers inside the image.

    Example:
        >>> cropped = crop({"image": np.zeros((9, 9, 3)), "labels": np.int32([5]),
        ...     "boxes": np.float32([[2, 2, 6, 6]])}, np.float32([1, 3, 8, 8]), 0.5)
        >>> tuple(cropped["image"].shape), cropped["boxes"].numpy().tolist()
        ((7, 5, 3), [[1.0, 0.0, 5.0, 3.0]])
    """
    y0, x0, y1, x1 = tf.unstack(tf.cast(window, tf.int32))
    boxes = tf.convert_to_tensor(example["boxes"])
    low, high = window[:2], window[2:]
    corners = tf.clip_by_value(tf.reshape(boxes, [-1, 2, 2]), low, high) - low
    cut = tf.reshape(corners, [-1, 4])
    cut = without_hidden(cut, areas(boxes), min_visibility)
    cropped = {**example, "image": example["image"][y0:y1, x0:x1], "boxes": cut}
    if "mask" in example:
        cropped["mask"] = example["mask"][y0:y1, x0:x1]
    return cropped
