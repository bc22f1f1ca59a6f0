"""Bilinear resizing of arrays, axis by axis, as TensorFlow computes it."""

from __future__ import annotations

import numpy as np

_FEW = 4  # numbers behind each other, such as the colors of a pixel


def resize_axis(array, size, scaled, axis, half, count=None):
    """Interpolates `scaled` places along an axis of `size`; the border goes on.

    `half` is 0.5 where a pixel is taken at its center, else 0. Only the first `count`
    places are computed; None is all of them. Sizes are float32 scalars.
    """
    return _interpolated(array, _places(size, scaled, half, 0, count), axis)


def resize_image(image, scaled, half=0.5, start=(0, 0), count=(None, None)):
    """Interpolates an image `[h, w, c]` in another size, float32; or a part of it.

    The part begins at `start` of the scaled image, and has `count` rows and columns.
    """
    sizes = np.float32(image.shape[:2]), np.float32(scaled)
    rows, (low, high, weight) = (
        _places(*each, half, first, number)
        for *each, first, number in zip(*sizes, start, count)
    )
    if image.strides[1] < 0:  # a mirrored view is read as it lies in memory
        last = image.shape[1] - 1
        image, low, high = image[:, ::-1], last - low, last - high
    # Nothing is computed of columns that are not seen.
    left = min(low.min(), high.min())
    image = image[:, left : max(low.max(), high.max()) + 1]
    image = _interpolated(image, rows, 0)
    return _interpolated(image, (low - left, high - left, weight), 1)


def _places(size, scaled, half, start, count):
    """Indices of the values beside each place, and the weight of the second one."""
    stop = int(scaled) if count is None else start + count
    half = np.float32(half)
    place = (np.arange(start, stop, dtype="float32") + half) * (size / scaled) - half
    floor = np.floor(place)
    low, high = (
        np.clip(x, 0.0, size - 1.0).astype("int32") for x in (floor, floor + 1)
    )
    return low, high, place - floor


def _interpolated(array, places, axis):
    low, high, weight = places
    shape = [1] * array.ndim
    shape[axis] = len(weight)
    # What is taken is cast, not the whole image.
    first, second = (
        _take(array, indices, axis).astype("float32", copy=False)
        for indices in (low, high)
    )
    # first + (second - first) * weight, without a new array for each step.
    second -= first
    second *= weight.reshape(shape)
    second += first
    return second


def resize_mask(mask, scaled, start=(0, 0), count=(None, None)):
    """A mask `[h, w]` in another size: each pixel has the value at its middle."""
    rows, columns = (
        ((2 * np.arange(first, new if number is None else first + number) + 1) * old)
        // (2 * new)
        for old, new, first, number in zip(mask.shape, scaled, start, count)
    )
    return mask[rows[:, None], columns[None]]


def _take(array, indices, axis):
    """`array.take`, which is slow where it copies few numbers at a time.

    The columns of an image of 320x640 pixels take 0.3 ms this way, and 0.7 ms by
    `take`, of about 5 ms for a training example (benchmarks/input_pipeline.py).
    """
    axis %= array.ndim
    inner = array.shape[axis + 1 :]
    width = int(np.prod(inner))
    if not 1 < width <= _FEW:
        return array.take(indices, axis)
    flat = array.reshape(*array.shape[:axis], -1)
    indices = (indices[:, None] * width + np.arange(width)).reshape(-1)
    return flat.take(indices, axis).reshape(*array.shape[:axis], -1, *inner)
