"""Generates anchors, and maps between the input and the grids of the pyramid levels."""

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

# The fields of a config that define the anchors, except for their order.
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

    Each cell of a feature map of stride `s` has `num_scales * len(aspect_ratios)`
    anchors around its center (RetinaNet, https://arxiv.org/abs/1708.02002, section 4):

        base = anchor_scale * s * 2**(octave / num_scales)
        width = base * sqrt(ratio)        height = base / sqrt(ratio)

    On each axis the stride is the image size divided by the map size. For level 7 of an
    image of 448 pixels it is 112, not 128. Anchors are ordered by level, y, x, and at
    one location by

        "scale_first":   octave * len(aspect_ratios) + ratio     (google/automl)
        "aspect_first":  ratio * num_scales + octave             (Object Detection API)

    Anchors may reach over the border of the image; they are not clipped. An image of
    512 x 512 pixels has 49,104 anchors.

    Args:
        image_size: `(height, width)` in pixels.
        min_level, max_level: ints, the finest level (3 is stride 8) and the coarsest.
        num_scales: int, the number of anchor scales per octave.
        aspect_ratios: floats, width / height; or pairs `(x, y)` of factors on the
            sides, such as `(1.4, 0.7)`.
        anchor_scale: float, side / stride; or a sequence, one value per level.
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
    """Returns the anchors of a model, see `generate_anchors`.

    Args:
        config: `EfficientDetConfig`.

    Returns:
        NumPy float32 array `[N, 4]`, `yxyx` in pixels.

    Example:
        >>> from effdet_keras.network.config import EfficientDetConfig
        >>> anchors_of(EfficientDetConfig()).shape
        (49104, 4)
    """
    options = {field: getattr(config, field) for field in (*_SHAPES, "anchor_order")}
    return generate_anchors(**options)


def best_anchor_iou(boxes, config):
    """Returns the IoU of each box with the anchor that overlaps it most.

    It is exact, but does not generate all anchors: anchors of one shape differ only by
    their center, and the one nearest to the center of the box overlaps it most. The IoU
    of a box without area is 0.

    Args:
        boxes: array `[n, 4]`, `yxyx` in pixels of the input.
        config: `EfficientDetConfig`.

    Returns:
        NumPy float64 array `[n]`.
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
    """Yields each level's size, stride, and anchor sides `[octave, ratio, (y, x)]`."""
    sizes = level_sizes(image_size, min_level, max_level)
    octaves = 2.0 ** (np.arange(num_scales) / num_scales)
    factors = _side_factors(aspect_ratios)
    for size, scale in zip(sizes, _level_scales(anchor_scale, len(sizes))):
        strides = np.array(image_size) / np.array(size)
        yield size, strides, (scale * octaves)[:, None, None] * factors * strides


def _side_factors(aspect_ratios):
    """Returns factors on the sides of a square, float64 `[ratio, (y, x)]`."""
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
    """Returns `(height, width)` of the feature map of each level.

    Each level has half the size of the level below, rounded up.
    """
    height, width = (int(n) for n in image_size)
    # Rounded up, as a stride-2 convolution with SAME padding does.
    return [
        (-(-height // 2**level), -(-width // 2**level))
        for level in range(min_level, max_level + 1)
    ]


def stride_of(length: int, cells: int) -> int:
    """Returns the stride of a map with `cells` cells for an axis of `length` pixels.

    The stride is a power of 2.

    Raises:
        ValueError: If no power of 2 gives this number of cells.
    """
    stride = 1
    while -(-length // stride) > cells:
        stride *= 2
    rule = (
        "The size of an image or a mask must be the size of a feature map, or that "
        "size times a power of 2"
    )
    require(-(-length // stride) == cells, rule, pixels=length, cells=cells)
    return stride


def take_grid(values: Any, size: Sequence[int]) -> Any:
    """Takes the pixel at the center of each cell of a map.

    `values` is `[B, H, W]`, `size` is `(h, w)`, and the result is `[B, h, w]`.
    """
    for axis, cells in enumerate(size, start=1):
        length = values.shape[axis]
        stride = stride_of(length, cells)
        if stride > 1:
            middles = np.arange(cells) * stride + stride // 2
            middles = np.minimum(middles, length - 1).astype("int32")
            values = ops.take(values, middles, axis=axis)
    return values
