"""Geometry of the input pipeline in NumPy, for batches without TensorFlow.

These are the functions of `transforms.py`. From the same random numbers they make the
same boxes, and the same pixels except for rounding. Examples are dicts of arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from effdet_keras._internal.philox import Stream
from effdet_keras._internal.resizing import resize_image, resize_mask
from effdet_keras.data.pipeline.transforms import Draws, Window
from effdet_keras.labels import IGNORED_PIXEL

Example = dict[str, Any]


def random_draws(seed: tuple[int, int], scale_jitter: tuple[float, float]) -> Draws:
    """Draws the same numbers from a seed as `transforms.random_draws`."""
    uniform = Stream.scrambled(seed).uniform((4,))
    low, high = map(np.float32, scale_jitter)
    return Draws(uniform[0], low + (high - low) * uniform[1], uniform[2], uniform[3])


def flip(example: Example) -> Example:
    """Flips an example from left to right."""
    width = np.float32(example["image"].shape[1])
    y0, x0, y1, x1 = example["boxes"].T
    boxes = np.stack([y0, width - x1, y1, width - x0], axis=1)
    pixels = {key: example[key][:, ::-1] for key in {"image", "mask"} & {*example}}
    return {**example, **pixels, "boxes": boxes}


def letterbox(example: Example, window: Window) -> Example:
    """Scales an image to fit, keeps its aspect ratio, puts it top left and pads."""
    is_rounded = window.resize_method == "asymmetric"
    return _placed(example, window, np.float32(window.image_size), (0, 0), is_rounded)


def scale_jitter(example: Example, draws: Draws, window: Window) -> Example:
    """Scales an image by a random factor, then crops or pads it."""
    size = np.float32(window.target_size or window.image_size)
    target = np.floor(np.float32(draws.scale) * size)
    return _placed(example, window, target, (draws.offset_y, draws.offset_x), False)


def _placed(example, window, target, fraction, is_rounded):
    """Resizes to fit `target`, cuts the window, pads, and moves the boxes."""
    is_asymmetric = window.resize_method == "asymmetric"
    image, image_size = example["image"], np.array(window.image_size)
    size = np.float32(image.shape[:2])
    scale = np.min(np.maximum(target, np.float32(1)) / size)
    scaled = np.round(size * scale) if is_rounded else size * scale
    scaled = np.maximum(scaled.astype(np.int32), 1)
    room = np.maximum(scaled - image_size, 0)
    offset = (np.float32(room) * np.float32(fraction)).astype(int)
    part = {"start": offset.tolist(), "count": np.minimum(scaled, image_size).tolist()}
    height, width = part["count"]

    # Only the visible part is computed.
    padded = np.empty((*window.image_size, 3), np.float32)
    padded[height:] = padded[:height, width:] = window.pad_value
    half = 0.0 if is_asymmetric else 0.5
    padded[:height, :width] = resize_image(image, scaled, half, **part)
    placed = {**example, "image": padded, "image_scale": np.float32(1) / scale}
    if "mask" in example:
        mask = np.full(window.image_size, IGNORED_PIXEL, np.uint8)
        mask[:height, :width] = resize_mask(example["mask"], scaled.tolist(), **part)
        placed["mask"] = mask

    factor = np.tile(np.float32(scaled) / size, 2)
    boxes = example["boxes"] * factor - np.float32(np.tile(offset, 2))
    last = np.float32(0 if is_asymmetric else 1)
    limit = np.tile(np.float32(image_size) - last, 2)
    boxes = np.clip(boxes, np.float32(0), limit)
    keep = (boxes[:, 2:] > boxes[:, :2]).all(axis=1)
    return {**placed, "boxes": boxes[keep], "labels": example["labels"][keep]}
