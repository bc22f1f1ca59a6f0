"""Augmentations that move no box: colors, JPEG noise, blur and hidden rectangles."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.augment import random_ops
from effdet_keras.augment.augmentation import (
    Augmentation,
    Example,
    parameter,
    size_of,
    to_dtype,
)
from effdet_keras.augment.warps import areas

# From RGB to YIQ, the color space of NTSC: brightness (Y) and two axes of color.
_TO_YIQ = (
    (0.299, 0.587, 0.114),
    (0.595716, -0.274453, -0.321263),
    (0.211456, -0.522591, 0.311135),
)


@dataclasses.dataclass(eq=False)
class PhotometricDistortion(Augmentation):
    """Changes brightness, contrast, saturation and hue at random.

    After SSD (https://arxiv.org/abs/1512.02325, section 2.2), but all four changes are
    made at once, as the product of one matrix with each pixel. A change of hue rotates
    the two color axes of YIQ, and a change of saturation scales them. Boxes do not
    change.

    Args:
        brightness: float in [0, 255], the largest number that is added to all pixels
            or subtracted from them.
        contrast: float in [0, 1]. The distance of pixels from the mean of the image is
            multiplied by a factor from `1 - contrast` to `1 + contrast`.
        saturation: float in [0, 1]. The distance of pixels from gray is multiplied by a
            factor from `1 - saturation` to `1 + saturation`.
        hue: float in [0, 180], the largest angle of the rotation in degrees, in both
            directions.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> import numpy as np
        >>> import effdet_keras as ek
        >>> example = {"image": np.full((4, 4, 3), 100, "uint8"),
        ...     "boxes": np.zeros((0, 4)), "labels": np.zeros(0)}
        >>> brighter = ek.augment.PhotometricDistortion(brightness=32.0, contrast=0.0)
        >>> int(brighter(example, seed=[0, 1])["image"][0, 0, 0])
        103
    """

    keeps_masks = True
    fits_any_resolution = True

    brightness: float = parameter(32.0, "[0, 255]")
    contrast: float = parameter(0.5, "[0, 1]")
    saturation: float = parameter(0.5, "[0, 1]")
    hue: float = parameter(18.0, "[0, 180]")

    def augment(self, example: Example, seed: Any) -> Example:
        pixels = tf.cast(example["image"], tf.float32)
        shape = tf.shape(pixels)
        most = [self.brightness, self.contrast, self.saturation, self.hue]
        drawn = random_ops.around_zero(
            random_ops.uniform(seed, [4]), 1.0
        ) * tf.constant(most)
        brightness, contrast, saturation, hue = tf.unstack(drawn)
        pixels = tf.reshape(pixels, [-1, 3])
        mean = tf.reduce_mean(pixels)
        matrix = (1.0 + contrast) * color_matrix(1.0 + saturation, hue)
        # The color matrix keeps grays, so the gray of value `mean` stays as it is: the
        # contrast changes distances from it. Only the brightness moves it.
        pixels = tf.matmul(pixels, matrix, transpose_b=True)
        pixels = tf.clip_by_value(pixels - contrast * mean + brightness, 0.0, 255.0)
        return {**example, "image": tf.reshape(pixels, shape)}


def color_matrix(saturation, hue):
    """Returns the matrix `[3, 3]` on RGB that rotates and scales the color axes.

    Args:
        saturation: float scalar, the factor on the distance from gray.
        hue: float scalar, the angle in degrees.
    """
    radians = hue * (math.pi / 180.0)
    cos, sin = saturation * tf.cos(radians), saturation * tf.sin(radians)
    change = [[1.0, 0.0, 0.0], [0.0, cos, -sin], [0.0, sin, cos]]
    to_yiq = tf.constant(_TO_YIQ)
    return tf.linalg.inv(to_yiq) @ tf.stack(change) @ to_yiq


@dataclasses.dataclass(eq=False)
class JPEGNoise(Augmentation):
    """Compresses the image as JPEG with a random quality, and decodes it again.

    Boxes do not change.

    Args:
        quality: pair of ints in [1, 100], the lowest and the highest JPEG quality.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> import numpy as np
        >>> import effdet_keras as ek
        >>> example = {"image": np.full((8, 8, 3), 100, "uint8"),
        ...     "boxes": np.zeros((0, 4)), "labels": np.zeros(0)}
        >>> noisy = ek.augment.JPEGNoise(quality=(20, 30))(example, seed=[0, 1])
        >>> tuple(noisy["image"].shape), noisy["image"].dtype.name
        ((8, 8, 3), 'uint8')
    """

    keeps_masks = True

    quality: tuple[int, int] = parameter((20, 90), "[1, 100]")

    def augment(self, example: Example, seed: Any) -> Example:
        low, high = self.quality
        quality = low + random_ops.integer(random_ops.uniform(seed), high - low + 1)
        return {**example, "image": compressed(example["image"], quality)}


def compressed(image, quality):
    """Returns an image as uint8 after JPEG compression.

    Args:
        image: uint8 or float `[H, W, 3]`, from 0 to 255.
        quality: int32 scalar from 0 to 100.
    """
    image = to_dtype(image, tf.uint8)
    encoded = tf.raw_ops.EncodeJpegVariableQuality(images=image, quality=quality)
    return tf.io.decode_jpeg(encoded, channels=3)


@dataclasses.dataclass(eq=False)
class Blur(Augmentation):
    """Blurs the image with a Gaussian of random width. Boxes do not change.

    Args:
        sigma: pair of floats, at least 0.001, the smallest and the largest standard
            deviation of the Gaussian in pixels.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> import numpy as np
        >>> import effdet_keras as ek
        >>> image = np.zeros((9, 9, 3), "uint8")
        >>> image[4, 4] = 255
        >>> example = {"image": image, "boxes": np.zeros((0, 4)), "labels": np.zeros(0)}
        >>> blurred = ek.augment.Blur(sigma=(1.0, 1.0))(example, seed=[0, 1])
        >>> blurred["image"].numpy()[4, 2:7, 0].tolist()
        [6, 25, 41, 25, 6]
    """

    keeps_masks = True

    sigma: tuple[float, float] = parameter((0.3, 2.0), "[0.001, inf)")

    def augment(self, example: Example, seed: Any) -> Example:
        pixels = tf.cast(example["image"], tf.float32)[None]
        sigma = random_ops.between(random_ops.uniform(seed), *self.sigma)
        radius = math.ceil(3.0 * self.sigma[1])
        steps = tf.range(-radius, radius + 1, dtype=tf.float32)
        weights = tf.nn.softmax(-tf.square(steps / sigma) / 2.0)
        # Vertically, then horizontally: a Gaussian is the product of the two.
        for shape in ([-1, 1, 1, 1], [1, -1, 1, 1]):
            pixels = _weighted_mean(pixels, tf.reshape(weights, shape))
        return {**example, "image": pixels[0]}


def _weighted_mean(pixels, weights):
    """Returns weighted means over the neighbors inside the image, `[1, H, W, 3]`."""
    one, channels = [1, 1, 1, 1], [1, 1, 3, 1]
    total = tf.nn.depthwise_conv2d(pixels, tf.tile(weights, channels), one, "SAME")
    # The sum of weights is constant along the other axis: one line of ones is enough.
    is_down = weights.shape[1] == 1
    line = pixels[:, :, :1, :1] if is_down else pixels[:, :1, :, :1]
    inside = tf.nn.depthwise_conv2d(tf.ones_like(line), weights, one, "SAME")
    return total / inside


# --- Augmentations that hide parts of the image under one color.


@dataclasses.dataclass(eq=False)
class CutOut(Augmentation):
    """Hides random rectangles of the image under one color.

    After DeVries and Taylor, "Improved Regularization of Convolutional Neural Networks
    with Cutout" (https://arxiv.org/abs/1708.04552). Boxes that are hidden nearly
    completely are dropped.

    Args:
        count: int, at least 1, the number of rectangles.
        size: pair of floats in [0, 1], the smallest and the largest side of a
            rectangle, relative to the image's side.
        fill: float in [0, 255], the color of the rectangles.
        min_visibility: float in [0, 1]. A box is dropped if less than this share of its
            area stays visible. Where rectangles overlap, the overlap counts twice.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> import numpy as np
        >>> import effdet_keras as ek
        >>> example = {"image": np.zeros((20, 20, 3), "uint8"),
        ...     "boxes": np.zeros((0, 4)), "labels": np.zeros(0)}
        >>> cut_out = ek.augment.CutOut(1, size=(0.5, 0.5))
        >>> int((cut_out(example, seed=[0, 1])["image"].numpy()[..., 0] == 128).sum())
        100
    """

    keeps_masks = True

    count: int = parameter(3, "[1, inf)")
    _: dataclasses.KW_ONLY
    size: tuple[float, float] = parameter((0.05, 0.2), "[0, 1]")
    fill: float = parameter(128.0, "[0, 255]")
    min_visibility: float = parameter(0.1, "[0, 1]")

    def augment(self, example: Example, seed: Any) -> Example:
        image, boxes = example["image"], example["boxes"]
        units = random_ops.uniform(seed, [2, self.count, 2])
        limit = tf.stack(size_of(image))
        sides = tf.round(random_ops.between(units[0], *self.size) * limit)
        low = tf.floor((limit - sides) * units[1] + 0.5)  # [count, 2]
        holes = tf.concat([low, low + sides], axis=1)
        for hole in tf.unstack(tf.cast(holes, tf.int32)):
            image = fill_rectangle(image, tf.unstack(hole), self.fill)
        start = tf.maximum(boxes[:, None, :2], holes[:, :2])
        end = tf.minimum(boxes[:, None, 2:], holes[:, 2:])
        hidden = tf.reduce_prod(tf.maximum(end - start, 0.0), axis=2)  # [n, count]
        # Overlapping rectangles hide less than this sum.
        left = areas(boxes) - tf.reduce_sum(hidden, axis=1)
        enough = left >= self.min_visibility * areas(boxes)
        return {
            **example,
            "image": image,
            "boxes": tf.where(enough[:, None], boxes, 0.0),
        }


def fill_rectangle(image, rectangle, fill):
    """Fills a rectangle, see `rectangle_mask`, of an image `[H, W, 3]`."""
    image = tf.convert_to_tensor(image)
    inside = rectangle_mask(tf.shape(image), rectangle)[..., None]
    return tf.where(inside, tf.cast(fill, image.dtype), image)


def rectangle_mask(shape, rectangle):
    """Returns which pixels lie in a rectangle, bool `[H, W]`.

    Args:
        shape: ints, `[H, W, ...]`.
        rectangle: four int32 scalars, `yxyx` in pixels; the last two are excluded.
    """
    y0, x0, y1, x1 = rectangle
    rows, columns = tf.range(shape[0]), tf.range(shape[1])
    in_rows = (rows >= y0) & (rows < y1)
    in_columns = (columns >= x0) & (columns < x1)
    return in_rows[:, None] & in_columns[None]


@dataclasses.dataclass(eq=False)
class GridMask(Augmentation):
    """Hides the squares of a regular grid under one color.

    After Chen et al., "GridMask Data Augmentation" (https://arxiv.org/abs/2001.04086).
    The grid has a random period, angle and offset. Boxes do not change.

    Args:
        ratio: float in (0, 1). The side of a hidden square is `1 - ratio` periods.
        period: pair of floats, at least 0.001, the smallest and the largest period,
            relative to the short side of the image. A period has at least 2 pixels.
        degrees: float in [0, 180], the largest angle of the grid, in both directions.
        fill: float in [0, 255], the color of the squares.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> import numpy as np
        >>> import effdet_keras as ek
        >>> example = {"image": np.zeros((20, 20, 3), "uint8"),
        ...     "boxes": np.zeros((0, 4)), "labels": np.zeros(0)}
        >>> grid = ek.augment.GridMask(0.5, period=(0.5, 0.5), degrees=0.0)
        >>> int((grid(example, seed=[0, 1])["image"].numpy()[..., 0] == 128).sum())
        100
    """

    keeps_masks = True

    ratio: float = parameter(0.6, "(0, 1)")
    _: dataclasses.KW_ONLY
    period: tuple[float, float] = parameter((0.2, 0.6), "[0.001, inf)")
    degrees: float = parameter(10.0, "[0, 180]")
    fill: float = parameter(128.0, "[0, 255]")

    def augment(self, example: Example, seed: Any) -> Example:
        image = example["image"]
        height, width = size_of(image)
        units = tf.unstack(random_ops.uniform(seed, [4]))
        period = random_ops.between(units[0], *self.period) * tf.minimum(height, width)
        period = tf.maximum(period, 2.0)
        radians = random_ops.around_zero(units[1], self.degrees) * (math.pi / 180.0)
        y = (tf.range(height) + 0.5)[:, None] / period
        x = (tf.range(width) + 0.5)[None] / period
        cos, sin = tf.cos(radians), tf.sin(radians)
        across = self._is_hidden(x * cos + y * sin + units[2])
        down = self._is_hidden(y * cos - x * sin + units[3])
        hidden = tf.logical_and(across, down)[..., None]
        fill = tf.cast(self.fill, image.dtype)
        return {**example, "image": tf.where(hidden, fill, image)}

    def _is_hidden(self, periods):
        return periods - tf.floor(periods) >= self.ratio
