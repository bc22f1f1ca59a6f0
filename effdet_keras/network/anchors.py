"""Anchors, and the places of a network's output maps that they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from effdet_keras._internal.number_ranges import NumberRange, check_whole_number
from effdet_keras._internal.optional_imports import keras_ops as ops
from effdet_keras.errors import check_argument, check_choice, require
from effdet_keras.network.config import ANCHOR_ORDERS

if TYPE_CHECKING:
    from effdet_keras.network.config import EfficientDetConfig

__all__ = ["anchors_of", "generate_anchors"]

# The fields of a config that anchors are made of, but for their order.
_SHAPES = (
    "image_size",
    "min_level",
    "max_level",
    "num_scales",
    "aspect_ratios",
    "anchor_scale",
)


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
        min_level, max_level: the finest level (3 is stride 8), and the coarsest.
        num_scales: octave steps between the sizes of two levels.
        aspect_ratios: numbers, width over height; or pairs `(x, y)` of factors
            on the sides, such as `(1.4, 0.7)`.
        anchor_scale: side over stride; or a sequence, one per level.
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
    check_choice("anchor_order", anchor_order, ANCHOR_ORDERS)
    size_form = {"form": "sequence", "count": 2}
    check_whole_number("image_size", tuple(image_size), "[1, inf)", **size_form)
    check_whole_number("min_level", min_level, "[0, inf)")
    check_whole_number("max_level", max_level, f"[{min_level}, inf)")
    check_whole_number("num_scales", num_scales, "[1, inf)")
    anchors = []
    for size, strides, sides in _shapes_of_levels(
        image_size, min_level, max_level, num_scales, aspect_ratios, anchor_scale
    ):
        if anchor_order == "aspect_first":
            sides = sides.transpose(1, 0, 2)
        ys, xs = ((np.arange(n) + 0.5) * stride for n, stride in zip(size, strides))
        centers = np.stack(np.meshgrid(ys, xs, indexing="ij"), axis=-1)
        centers = centers[:, :, None, None]  # [h, w, 1, 1, (y, x)]
        corners = [centers - sides / 2.0, centers + sides / 2.0]
        anchors.append(np.concatenate(corners, axis=-1).reshape(-1, 4))
    return np.concatenate(anchors).astype("float32")


def anchors_of(config: EfficientDetConfig) -> np.ndarray:
    """The anchors of a model, NumPy float32 `[N, 4]`; see `generate_anchors`.

    Example:
        >>> from effdet_keras.network.config import EfficientDetConfig
        >>> anchors_of(EfficientDetConfig()).shape
        (49104, 4)
    """
    options = {field: getattr(config, field) for field in (*_SHAPES, "anchor_order")}
    return generate_anchors(**options)


def best_anchor_iou(boxes, config):
    """The IoU of each box `[n, 4]` with the best anchor of a config, float64 `[n]`.

    Exact, without the grid: the anchors of one shape differ by their center alone, and
    the one nearest to the box's center overlaps it most. A box without area has 0.
    """
    boxes = np.asarray(boxes, "float64")
    centers = (boxes[:, :2] + boxes[:, 2:]) / 2
    box_sides = np.maximum(boxes[:, 2:] - boxes[:, :2], 0.0)
    best = np.zeros(len(boxes))
    options = {field: getattr(config, field) for field in _SHAPES}
    for size, strides, sides_of_level in _shapes_of_levels(**options):
        cells = np.clip(np.floor(centers / strides), 0, np.array(size) - 1)
        distance = np.abs(centers - (cells + 0.5) * strides)  # [n, (y, x)]
        for sides in sides_of_level.reshape(-1, 2):
            shared = np.minimum(
                (box_sides + sides) / 2 - distance, np.minimum(box_sides, sides)
            )
            overlap = np.maximum(shared, 0.0).prod(axis=1)
            union = box_sides.prod(axis=1) + sides.prod() - overlap
            best = np.maximum(best, overlap / union)
    return best


def _shapes_of_levels(
    image_size, min_level, max_level, num_scales, aspect_ratios, anchor_scale
):
    """Each level's size, stride, and sides of anchors `[octave, ratio, (y, x)]`."""
    sizes = level_sizes(image_size, min_level, max_level)
    octaves = 2.0 ** (np.arange(num_scales) / num_scales)
    factors = _side_factors(aspect_ratios)
    for size, scale in zip(sizes, _level_scales(anchor_scale, len(sizes))):
        strides = np.array(image_size) / np.array(size)
        yield size, strides, (scale * octaves)[:, None, None] * factors * strides


def _side_factors(aspect_ratios):
    """Factors on the sides of a square, float64 `[ratio, (y, x)]`."""
    ratios = np.asarray(aspect_ratios, "float64")
    is_pairs = ratios.ndim == 2 and ratios.shape[1] == 2
    is_right = (ratios.ndim == 1 or is_pairs) and ratios.size and (ratios > 0.0).all()
    is_right = is_right and np.isfinite(ratios).all()
    expected = "numbers above 0 (width over height) or pairs `(x, y)` of them"
    check_argument(is_right, "aspect_ratios", aspect_ratios, expected)
    if is_pairs:
        return ratios[:, ::-1]
    return np.stack([1.0 / np.sqrt(ratios), np.sqrt(ratios)], axis=-1)


def _level_scales(anchor_scale, num_levels):
    is_one = isinstance(anchor_scale, Real)
    scales = [anchor_scale] * num_levels if is_one else list(anchor_scale)
    is_right = len(scales) == num_levels and all(
        map(NumberRange("(0, inf)").contains, scales)
    )
    expected = f"a number above 0, or one for each of the {num_levels} levels"
    check_argument(is_right, "anchor_scale", anchor_scale, expected)
    return scales


def level_sizes(
    image_size: Sequence[int], min_level: int, max_level: int
) -> list[tuple[int, int]]:
    """`(height, width)` of the feature maps of the levels: halves, rounded up."""
    height, width = (int(n) for n in image_size)
    # Rounded up, as a stride-2 convolution with SAME padding does.
    return [
        (-(-height // 2**level), -(-width // 2**level))
        for level in range(min_level, max_level + 1)
    ]


def stride_of(length: int, cells: int) -> int:
    """The pixels of the input for each cell of a map along an axis: a power of 2."""
    stride = 1
    while -(-length // stride) > cells:
        stride *= 2
    rule = "An image or a mask must have a map's size, or a power of 2 times that"
    require(-(-length // stride) == cells, rule, pixels=length, cells=cells)
    return stride


def take_grid(values: Any, size: Sequence[int]) -> Any:
    """`[B, H, W]` to `[B, h, w]`: the pixel at the middle of each cell of a map."""
    for axis, cells in enumerate(size, start=1):
        length = values.shape[axis]
        stride = stride_of(length, cells)
        if stride > 1:
            middles = np.arange(cells) * stride + stride // 2
            middles = np.minimum(middles, length - 1).astype("int32")
            values = ops.take(values, middles, axis=axis)
    return values
