"""Letterbox: an image of any size in the network's input, proportions kept."""

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
    """Scales an image to fit `image_size`, top left, and pads the rest.

    With `s = min(height / h, width / w)` the image `[h, w, 3]` becomes `int(h * s)` by
    `int(w * s)` pixels, in float32 as in the reference: bilinear, with half-pixel
    centers and without antialiasing, as the published weights expect. "asymmetric" is
    TensorFlow 1's way: `round(h * s)` by `round(w * s)` pixels, half to even, and pixel
    `i` is taken at `i * h / round(h * s)`, without the half.

    Returns the image, float32 `[height, width, 3]`, 0 to 255, and its scale `1 / s` for
    `boxes_in_image`: float32, with "asymmetric" `[2]`, of `y` and `x`.
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
    """Size of an image inside the input, whole pixels; at least one."""
    cut = np.round if is_asymmetric else np.floor
    return np.maximum(cut(size * scale), np.float32(1))


def scaled_size(
    image_size: ArrayLike, input_size: Sequence[int], resize_method: str = "half_pixel"
) -> np.ndarray:
    """Size in the input of an image `(height, width)`, or of several `[n, 2]`."""
    size, target = np.float32(image_size), np.float32(input_size)
    scale = np.min(target / size, axis=-1, keepdims=True)
    return _scaled_size(size, scale, _is_asymmetric(resize_method))


def boxes_in_input(
    boxes: ArrayLike,
    image_size: Sequence[float],
    input_size: Sequence[int],
    resize_method: str = "half_pixel",
) -> tuple[np.ndarray, np.ndarray]:
    """Boxes `[n, 4]` of an image in its letterboxed input; whether any is left, `[n]`.

    They end at the last pixel, as in the reference; with "asymmetric" at the border, as
    in the Object Detection API.
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
    """Takes boxes of an input to the image: area 0 where they are beside it."""
    height, width = image_size
    limits = np.float32([height, width, height, width])
    scale = np.tile(np.broadcast_to(np.float32(image_scale), 2), 2)
    boxes = np.asarray(boxes, "float32") * scale
    return np.clip(boxes, np.float32(0), limits)


def has_area(boxes: ArrayLike) -> np.ndarray:
    """Which boxes `[n, 4]` of an image are not in its padding alone; bool `[n]`."""
    boxes = np.asarray(boxes)
    return (boxes[:, 2:] > boxes[:, :2]).all(axis=-1)


def mask_in_input(mask: np.ndarray, input_size: Sequence[int]) -> np.ndarray:
    """Takes a mask `[h, w]` to its letterboxed input, with 255 around the image."""
    scaled = scaled_size(mask.shape, input_size).astype(int)
    result = np.full(tuple(input_size), IGNORED_PIXEL, np.uint8)
    result[: scaled[0], : scaled[1]] = resize_mask(mask, scaled)
    return result


def class_map_in_image(
    class_map: np.ndarray, image_size: Sequence[float]
) -> np.ndarray:
    """Takes a class map of a letterboxed input back to the image."""
    height, width = scaled_size(image_size, class_map.shape).astype(int)
    size = int(image_size[0]), int(image_size[1])
    return resize_mask(class_map[:height, :width], size)
