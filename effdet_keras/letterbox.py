"""Letterboxing: fits an image of any size into the network's input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from effdet_keras._internal.resizing import resize_image, resize_mask
from effdet_keras.errors import check_choice
from effdet_keras.labels import IGNORED_PIXEL
from effdet_keras.network.config import RESIZE_METHODS


def letterbox_array(
    image: np.ndarray,
    image_size: Sequence[int],
    pad_value: Sequence[float],
    resize_method: str = "half_pixel",
) -> tuple[np.ndarray, Any]:
    """Scales an image to fit `image_size`, places it top left, and pads the rest.

    With `s = min(height / h, width / w)`, the image `[h, w, 3]` is resized to
    `int(h * s)` by `int(w * s)` pixels, computed in float32 as in the reference. The
    interpolation is bilinear, with half-pixel centers and without antialiasing, as the
    published weights expect. "asymmetric" is the method of TensorFlow 1: the size is
    `round(h * s)` by `round(w * s)` pixels, rounded half to even, and pixel `i` is
    taken at `i * h / round(h * s)`, without half-pixel centers.

    Args:
        image: array `[h, w, 3]`, pixels 0-255.
        image_size: `(height, width)` of the input.
        pad_value: three floats, the color of the padding.
        resize_method: "half_pixel" or "asymmetric".

    Returns:
        Tuple of the letterboxed image, float32 `[height, width, 3]` from 0 to 255, and
        its scale `1 / s` for `boxes_in_image`: a float, or with "asymmetric" a float32
        array `[2]` for `y` and `x`.

    Raises:
        ValueError: If `resize_method` is unknown.

    Example:
        >>> image = np.full((20, 40, 3), 255, "uint8")
        >>> result, scale = letterbox_array(image, (16, 16), (0.0, 0.0, 0.0))
        >>> result.shape, scale, result[:, 0, 0].tolist().count(255.0)
        ((16, 16, 3), 2.5, 8)
    """
    size, target = np.float32(image.shape[:2]), np.float32(image_size)
    is_asymmetric = _is_asymmetric(resize_method)
    scaled = _scaled_size(size, np.min(target / size), is_asymmetric)
    image = resize_image(image, scaled, 0.0 if is_asymmetric else 0.5)
    result = np.empty((*image_size, 3), "float32")
    result[:] = pad_value
    result[: image.shape[0], : image.shape[1]] = image
    if is_asymmetric:
        return result, size / scaled
    return result, float(np.float32(1) / np.min(target / size))


def _is_asymmetric(resize_method):
    check_choice("resize_method", resize_method, RESIZE_METHODS)
    return resize_method == "asymmetric"


def _scaled_size(size, scale, is_asymmetric):
    """Returns the size of an image inside the input, in whole pixels of at least 1."""
    cut = np.round if is_asymmetric else np.floor
    return np.maximum(cut(size * scale), np.float32(1))


def scaled_size(
    image_size: ArrayLike, input_size: Sequence[int], resize_method: str = "half_pixel"
) -> np.ndarray:
    """Returns the size of an image inside the letterboxed input, float32.

    `image_size` is `(height, width)` of one image, or `[n, 2]` of several. The result
    has the same shape.
    """
    size, target = np.float32(image_size), np.float32(input_size)
    scale = np.min(target / size, axis=-1, keepdims=True)
    return _scaled_size(size, scale, _is_asymmetric(resize_method))


def boxes_in_input(
    boxes: ArrayLike,
    image_size: Sequence[float],
    input_size: Sequence[int],
    resize_method: str = "half_pixel",
) -> tuple[np.ndarray, np.ndarray]:
    """Converts boxes of an image to its letterboxed input.

    They are clipped to the last pixel of the input, as in the reference. With
    "asymmetric" they are clipped to its border, as in the Object Detection API.

    Args:
        boxes: array `[n, 4]`, `yxyx` in pixels of the image.
        image_size: `(height, width)` of the image.
        input_size: `(height, width)` of the input.
        resize_method: "half_pixel" or "asymmetric".

    Returns:
        Tuple of the boxes, float32 `[n, 4]`, `yxyx` in pixels of the input, and bool
        `[n]`, whether an area is left of each box.
    """
    size, target = np.float32(image_size), np.float32(input_size)
    scaled = scaled_size(image_size, input_size, resize_method)
    boxes = np.asarray(boxes, "float32").reshape(-1, 4) * np.tile(scaled / size, 2)
    last = target - np.float32(0 if resize_method == "asymmetric" else 1)
    boxes = np.clip(boxes, np.float32(0), np.tile(last, 2))
    return boxes, (boxes[:, 2:] > boxes[:, :2]).all(axis=1)


def boxes_in_image(
    boxes: ArrayLike, image_scale: ArrayLike, image_size: Sequence[float]
) -> np.ndarray:
    """Converts boxes of a letterboxed input to the image, and clips them to it.

    A box that lies completely in the padding gets an area of 0.

    Args:
        boxes: array `[n, 4]`, `yxyx` in pixels of the input.
        image_scale: float, or floats `[2]` for `y` and `x`, the scale that
            `letterbox_array` returns.
        image_size: `(height, width)` of the image.

    Returns:
        float32 array `[n, 4]`, `yxyx` in pixels of the image.
    """
    height, width = image_size
    limits = np.float32([height, width, height, width])
    scale = np.tile(np.broadcast_to(np.float32(image_scale), 2), 2)
    boxes = np.asarray(boxes, "float32") * scale
    return np.clip(boxes, np.float32(0), limits)


def has_area(boxes: ArrayLike) -> np.ndarray:
    """Returns which boxes `[n, 4]` of `boxes_in_image` have an area, bool `[n]`.

    The others lie completely in the padding of the input.
    """
    boxes = np.asarray(boxes)
    return (boxes[:, 2:] > boxes[:, :2]).all(axis=-1)


def mask_in_input(mask: np.ndarray, input_size: Sequence[int]) -> np.ndarray:
    """Converts a mask `[h, w]` to the letterboxed input, with 255 around the image."""
    scaled = scaled_size(mask.shape, input_size).astype(int)
    result = np.full(tuple(input_size), IGNORED_PIXEL, np.uint8)
    result[: scaled[0], : scaled[1]] = resize_mask(mask, scaled)
    return result


def class_map_in_image(
    class_map: np.ndarray, image_size: Sequence[float]
) -> np.ndarray:
    """Converts a class map of a letterboxed input back to the image."""
    height, width = scaled_size(image_size, class_map.shape).astype(int)
    size = int(image_size[0]), int(image_size[1])
    return resize_mask(class_map[:height, :width], size)
