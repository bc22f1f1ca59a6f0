"""Anchors, and the places of a network's output maps that they belong to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from effdet_keras._internal.optional_imports import keras_ops as ops
from effdet_keras.errors import InvalidValueError
from effdet_keras.model.config import ANCHOR_ORDERS

if TYPE_CHECKING:
    from effdet_keras.model.config import EfficientDetConfig


def stride_of(length: int, places: int) -> int:
    """The pixels of the input for each place of a map, along one axis.

    Args:
        length: int, pixels.
        places: int, `length` divided by a power of 2, rounded up.

    Returns:
        Int, that power of 2.

    Raises:
        ValueError: If there is none.

    Example:
        >>> stride_of(18, 5)
        4
    """
    stride = 1
    while -(-length // stride) > places:
        stride *= 2
    if -(-length // stride) != places:
        raise InvalidValueError(
            "An image or a mask must have the size of the map, or a power of 2 times "
            f"that. Received: {length} pixels for {places} places of the map"
        )
    return stride


def at_places(values: Any, size: Sequence[int]) -> Any:
    """The value of a pixel at the middle of each place of a smaller map.

    Args:
        values: tensor `[B, H, W]`.
        size: `(h, w)` of the map, see `stride_of`.

    Returns:
        Tensor `[B, h, w]`.

    Raises:
        ValueError: If the shapes do not fit.

    Example:
        >>> picked = at_places(ops.reshape(ops.arange(16), (1, 4, 4)), (2, 2))
        >>> ops.convert_to_numpy(picked).tolist()
        [[[5, 7], [13, 15]]]
    """
    for axis, places in enumerate(size, start=1):
        length = values.shape[axis]
        stride = stride_of(length, places)
        if stride > 1:
            middles = np.arange(places) * stride + stride // 2
            middles = np.minimum(middles, length - 1).astype("int32")
            values = ops.take(values, middles, axis=axis)
    return values


# --- The anchor grid: which box each output of the network starts from.

__all__ = [
    "anchors_of",
    "best_anchor_iou",
    "generate_anchors",
    "level_sizes",
]


def level_sizes(
    image_size: Sequence[int], min_level: int, max_level: int
) -> list[tuple[int, int]]:
    """Computes the sizes of the feature maps of an image.

    A level halves the one below and rounds up, as a stride-2 convolution with
    SAME padding does; level 0 is the image.

    Args:
        image_size: `(height, width)` in pixels.
        min_level: int, the finest level (3 is stride 8).
        max_level: int, the coarsest level, included.

    Returns:
        List of `(height, width)`, one per level.

    Raises:
        ValueError: If a size is not positive, or the levels are out of order.

    Example:
        >>> level_sizes((200, 136), 3, 7)
        [(25, 17), (13, 9), (7, 5), (4, 3), (2, 2)]
    """
    height, width = _checked_image_size(image_size)
    are_whole = isinstance(min_level, Integral) and isinstance(max_level, Integral)
    if not are_whole or not 0 <= min_level <= max_level:
        raise InvalidValueError(
            "Levels must be whole numbers, 0 <= `min_level` <= `max_level`. "
            f"Received: min_level={min_level!r}, max_level={max_level!r}"
        )
    sizes = [(height, width)]
    for _ in range(max_level):
        height, width = (height + 1) // 2, (width + 1) // 2
        sizes.append((height, width))
    return sizes[min_level:]


def generate_anchors(
    image_size: Sequence[int],
    *,
    min_level: int = 3,
    max_level: int = 7,
    num_scales: int = 3,
    aspect_ratios: Sequence[float] | Sequence[Sequence[float]] = (1.0, 2.0, 0.5),
    anchor_scale: float | Sequence[float] = 4.0,
    anchor_order: str = "scale_first",
) -> np.ndarray:
    """Generates the anchors of all levels in the order of the network's outputs.

    Each place of a feature map of stride `s` has `num_scales` times
    `len(aspect_ratios)` anchors around its center (RetinaNet,
    https://arxiv.org/abs/1708.02002, section 4):

        base = anchor_scale * s * 2**(octave / num_scales)
        width = base * sqrt(ratio)        height = base / sqrt(ratio)

    The stride is image size over map size, on each axis: 112 and not 128 for
    level 7 of an image of 448 pixels. The order is level, y, x, and at one location

        "scale_first":   octave * len(aspect_ratios) + ratio     (google/automl)
        "aspect_first":  ratio * num_scales + octave             (Object Detection API)

    Anchors reach over the border and are not clipped. 512 x 512 pixels give 49,104.

    Args:
        image_size: `(height, width)` in pixels.
        min_level: int, the finest level (3 is stride 8).
        max_level: int, the coarsest level, included.
        num_scales: int, octave steps between the sizes of two levels.
        aspect_ratios: numbers, width over height; or pairs `(x, y)` of factors
            on the sides, such as `(1.4, 0.7)`.
        anchor_scale: float, side over stride; or a sequence, one per level.
        anchor_order: "scale_first" or "aspect_first", as above.

    Returns:
        NumPy float32 array `[N, 4]`, `yxyx` in pixels.

    Raises:
        ValueError: If an argument is out of its range; the error names it.

    Example:
        >>> anchors = generate_anchors((512, 512))
        >>> anchors.shape, anchors[0]
        ((49104, 4), array([-12., -12.,  20.,  20.], dtype=float32))
    """
    sizes = level_sizes(image_size, min_level, max_level)
    octaves = _octaves(num_scales)
    factors = _side_factors(aspect_ratios)
    scales = _level_scales(anchor_scale, len(sizes))
    if anchor_order not in ANCHOR_ORDERS:
        raise InvalidValueError(
            f"`anchor_order` must be one of {', '.join(map(repr, ANCHOR_ORDERS))}. "
            f"Received: anchor_order={anchor_order!r}"
        )
    levels = [
        _level_anchors(image_size, size, scale * octaves, factors, anchor_order)
        for size, scale in zip(sizes, scales)
    ]
    return np.concatenate(levels).astype("float32")


def anchors_of(config: EfficientDetConfig) -> np.ndarray:
    """The anchors of a model.

    Args:
        config: `EfficientDetConfig`.

    Returns:
        NumPy float32 array `[N, 4]`, see `generate_anchors`.

    Example:
        >>> from effdet_keras.model.config import EfficientDetConfig
        >>> anchors_of(EfficientDetConfig()).shape
        (49104, 4)
    """
    return generate_anchors(
        config.image_size,
        min_level=config.min_level,
        max_level=config.max_level,
        num_scales=config.num_scales,
        aspect_ratios=config.aspect_ratios,
        anchor_scale=config.anchor_scale,
        anchor_order=config.anchor_order,
    )


def best_anchor_iou(
    boxes: ArrayLike,
    image_size: Sequence[int],
    *,
    min_level: int = 3,
    max_level: int = 7,
    num_scales: int = 3,
    aspect_ratios: Sequence[float] | Sequence[Sequence[float]] = (1.0, 2.0, 0.5),
    anchor_scale: float | Sequence[float] = 4.0,
) -> np.ndarray:
    """Finds how well the best of all anchors fits each box.

    The result is exact, without the grid: the anchors of one shape differ by their
    center alone, and the overlap with a box, height times width, falls with
    the distance of the centers on each axis. So the best anchor of a shape is
    the one nearest to the box's center, and it is enough to look at one anchor per
    shape and level: 45 instead of 49,104 for 512 x 512 pixels.

    Args:
        boxes: array `[n, 4]`, `yxyx` in pixels of the network's input.
        image_size: `(height, width)` of the network's input, in pixels.
        min_level, max_level, num_scales: see `generate_anchors`.
        aspect_ratios, anchor_scale: see `generate_anchors`.

    Returns:
        NumPy float64 array `[n]`: the IoU of each box with its best anchor; 0
        for a box without area.

    Raises:
        ValueError: If `boxes` has another shape, or an argument is out of its
            range.

    Example:
        >>> best_anchor_iou([[4, 4, 36, 36], [0, 0, 8, 64]], (512, 512)).round(2)
        array([1.  , 0.31])
    """
    boxes = np.asarray(boxes, "float64")
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise InvalidValueError(
            f"`boxes` must be `[n, 4]` (`yxyx`). Received: boxes.shape={boxes.shape}"
        )
    sizes = level_sizes(image_size, min_level, max_level)
    octaves = _octaves(num_scales)
    factors = _side_factors(aspect_ratios)
    scales = _level_scales(anchor_scale, len(sizes))
    best = np.zeros(len(boxes))
    for size, scale in zip(sizes, scales):
        strides = np.array(image_size) / np.array(size)  # (y, x)
        centers = (boxes[:, :2] + boxes[:, 2:]) / 2
        places = np.clip(np.floor(centers / strides), 0, np.array(size) - 1)
        distance = np.abs(centers - (places + 0.5) * strides)
        for sides in (scale * octaves[:, None, None] * factors * strides).reshape(
            -1, 2
        ):
            best = np.maximum(best, _iou_at(distance, boxes, sides))
    return best


def _iou_at(distance, boxes, sides):
    """IoU of boxes with one anchor shape at `distance` `[n, (y, x)]`."""
    box_sides = np.maximum(boxes[:, 2:] - boxes[:, :2], 0.0)
    shared = np.minimum(
        (box_sides + sides) / 2 - distance, np.minimum(box_sides, sides)
    )
    overlap = np.maximum(shared, 0.0).prod(axis=1)
    return overlap / (box_sides.prod(axis=1) + sides.prod() - overlap)


def _level_anchors(image_size, size, scales, factors, order):
    """Anchors of one level, float64 `[h * w * scales * factors, 4]`."""
    strides = np.array(image_size) / np.array(size)  # (y, x)
    sides = scales[:, None, None] * factors * strides  # [octave, ratio, (y, x)]
    if order == "aspect_first":
        sides = sides.transpose(1, 0, 2)
    ys, xs = ((np.arange(n) + 0.5) * stride for n, stride in zip(size, strides))
    centers = np.stack(np.meshgrid(ys, xs, indexing="ij"), axis=-1)
    centers = centers[:, :, None, None]  # [h, w, 1, 1, (y, x)]
    corners = [centers - sides / 2.0, centers + sides / 2.0]
    return np.concatenate(corners, axis=-1).reshape(-1, 4)


def _octaves(num_scales):
    """Factors on the side between one level and the next, float64 `[octave]`."""
    if not isinstance(num_scales, Integral) or num_scales < 1:
        raise InvalidValueError(
            "`num_scales` must be a whole number above 0. "
            f"Received: num_scales={num_scales!r}"
        )
    return 2.0 ** (np.arange(num_scales) / num_scales)


def _side_factors(aspect_ratios):
    """Factors on the sides of a square, float64 `[ratio, (y, x)]`."""
    try:
        ratios = np.asarray(aspect_ratios, "float64")
    except (TypeError, ValueError):  # words, or numbers mixed with pairs
        ratios = np.zeros(0)
    is_pairs = ratios.ndim == 2 and ratios.shape[1] == 2
    is_valid = (ratios > 0.0) & np.isfinite(ratios)
    if not (ratios.ndim == 1 or is_pairs) or not ratios.size or not is_valid.all():
        raise InvalidValueError(
            "`aspect_ratios` must be numbers above 0 (width over height) or pairs "
            f"`(x, y)` of them, at least one. Received: aspect_ratios={aspect_ratios!r}"
        )
    if is_pairs:
        return ratios[:, ::-1]
    return np.stack([1.0 / np.sqrt(ratios), np.sqrt(ratios)], axis=-1)


def _level_scales(anchor_scale, num_levels):
    if isinstance(anchor_scale, Real):
        scales = [anchor_scale] * num_levels
    else:
        scales = list(anchor_scale)
    if len(scales) != num_levels or not all(
        isinstance(scale, Real) and 0 < scale < math.inf for scale in scales
    ):
        raise InvalidValueError(
            "`anchor_scale` must be a number above 0, or one for each of the "
            f"{num_levels} levels. Received: anchor_scale={anchor_scale!r}"
        )
    return scales


def _checked_image_size(image_size):
    is_pair = isinstance(image_size, (tuple, list, np.ndarray)) and len(image_size) == 2
    if not is_pair or not all(isinstance(n, Integral) and n > 0 for n in image_size):
        raise InvalidValueError(
            "`image_size` must be `(height, width)`, two whole numbers above 0. "
            f"Received: image_size={image_size!r}"
        )
    return int(image_size[0]), int(image_size[1])
