"""Letterbox: an image of any size in the network's input, proportions kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from effdet_keras._internal.label_constants import IGNORED_PIXEL
from effdet_keras._internal.optional_imports import keras_ops as ops
from effdet_keras.errors import check_choice, require
from effdet_keras.model.config import RESIZE_METHODS


def letterbox(
    image: Any,
    image_size: Sequence[int],
    pad_value: Sequence[float],
    resize_method: str = "half_pixel",
) -> tuple[Any, Any]:
    """Scales an image to fit `image_size`, top left, and pads the rest.

    With `s = min(height / h, width / w)` the image `[h, w, 3]` becomes `int(h * s)` by
    `int(w * s)` pixels, in float32 as in the reference: bilinear, with half-pixel
    centers and without antialiasing, as the published weights expect. "asymmetric" is
    TensorFlow 1's way: `round(h * s)` by `round(w * s)` pixels, half to even, and pixel
    `i` is taken at `i * h / round(h * s)`, without the half.

    Returns the image, float32 `[height, width, 3]`, 0 to 255, and its scale `1 / s` for
    `boxes_in_image`: float32, with "asymmetric" `[2]`, of `y` and `x`.
    """
    image = ops.convert_to_tensor(image)
    is_image = len(image.shape) == 3 and image.shape[-1] == 3 and 0 not in image.shape
    rule = "`image` must be `[height, width, 3]`, with sides above 0"
    require(is_image, rule, **{"image.shape": tuple(image.shape)})
    size = [ops.cast(side, "float32") for side in ops.shape(image)[:2]]
    is_asymmetric = _is_asymmetric(resize_method)
    # Tensor by tensor: torch multiplies a number by the tensor's inverse, whose
    # rounding can lose a pixel (100 * (120 / 100) < 120).
    target = [ops.cast(side, "float32") for side in image_size]
    scale = ops.minimum(target[0] / size[0], target[1] / size[1])
    pad_value = ops.convert_to_tensor(pad_value, dtype="float32")
    cut, scaled_sizes = ops.round if is_asymmetric else ops.floor, []
    for axis in (0, 1):
        # At least one pixel, for an image far longer than wide.
        scaled = ops.maximum(cut(size[axis] * scale), 1.0)
        scaled_sizes.append(scaled)
        half = 0.0 if is_asymmetric else 0.5
        image = _resize_axis(image, size[axis], scaled, image_size[axis], axis, half)
        shape = [1, 1, 1]
        shape[axis] = image_size[axis]
        inside = ops.arange(image_size[axis], dtype="float32") < scaled
        image = ops.where(ops.reshape(inside, shape), image, pad_value)
    if is_asymmetric:
        return image, ops.stack(size) / ops.stack(scaled_sizes)
    return image, ops.ones_like(scale) / scale


def letterbox_array(
    image: np.ndarray,
    image_size: Sequence[int],
    pad_value: Sequence[float],
    resize_method: str = "half_pixel",
) -> tuple[np.ndarray, Any]:
    """`letterbox` of an array in NumPy: bit for bit the same, 3 to 5 times as fast."""
    size, target = np.float32(image.shape[:2]), np.float32(image_size)
    is_asymmetric = _is_asymmetric(resize_method)
    scaled = _scaled_size(size, np.min(target / size), is_asymmetric)
    for axis in (0, 1):
        half, length = np.float32(0 if is_asymmetric else 0.5), int(scaled[axis])
        image = _resize_axis(image, size[axis], scaled[axis], length, axis, half)
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
    result[: scaled[0], : scaled[1]] = _nearest(mask, scaled)
    return result


def class_map_in_image(
    class_map: np.ndarray, image_size: Sequence[float]
) -> np.ndarray:
    """Takes a class map of a letterboxed input back to the image."""
    height, width = scaled_size(image_size, class_map.shape).astype(int)
    size = int(image_size[0]), int(image_size[1])
    return _nearest(class_map[:height, :width], size)


def _nearest(values, size):
    """Each pixel of another size has the value at its middle."""
    rows, columns = (
        ((2 * np.arange(new) + 1) * old) // (2 * new)
        for new, old in zip(size, values.shape)
    )
    return values[rows[:, None], columns[None]]


def _resize_axis(image, size, scaled, length, axis, half):
    """Interpolates `length` places along an axis, where `scaled` span `size`."""
    xp, cast = (np, np.ndarray.astype)
    if not isinstance(image, np.ndarray):
        xp, cast = ops, ops.cast
    place = (xp.arange(length, dtype="float32") + half) * (size / scaled) - half
    low = xp.floor(place)
    shape = [1, 1, 1]
    shape[axis] = length
    # The border pixel goes on outwards; places in the padding take it too. What is
    # taken is cast, not the whole image.
    first, second = (
        cast(
            xp.take(image, cast(xp.clip(i, 0.0, size - 1.0), "int32"), axis=axis),
            "float32",
        )
        for i in (low, low + 1.0)
    )
    # first + (second - first) * weight, without a new array for each step.
    second -= first
    second *= xp.reshape(place - low, shape)
    second += first
    return second
