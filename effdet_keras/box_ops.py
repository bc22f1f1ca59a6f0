"""Box operations: conversions, area, clipping, the IoU family, encoding on anchors.

Boxes are `yxyx` in pixels: `(y_min, x_min, y_max, x_max)`. For NumPy arrays every
function returns NumPy arrays. For tensors of the Keras backend, and lists, it returns
tensors. Arrays of boxes must end in an axis of 4; otherwise there is a ValueError.

Tensors are computed in float32 whatever their dtype, because a pixel coordinate in
bfloat16 is off by up to two pixels at 512. NumPy float64 stays float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from effdet_keras._internal.optional_imports import keras_ops as ops
from effdet_keras.errors import require

MIN_SIDE = 1e-8  # pixels: keeps the logarithm of a padded, empty box finite
_TINY = 1e-37  # square pixels: two empty boxes have an IoU of 0, not 0 / 0
MAX_LOG_SIDE = 20.0  # e**20 anchors long: keeps a wild prediction's box finite
_ONES = (1.0, 1.0, 1.0, 1.0)


def yxyx_to_xywh(boxes: Any) -> Any:
    """Converts corners to COCO's `(x_min, y_min, width, height)`.

    Example:
        >>> yxyx_to_xywh(np.array([[10.0, 20.0, 40.0, 60.0]]))
        array([[20., 10., 40., 30.]])
    """
    xp, boxes = _arrays(boxes)
    y_min, x_min, y_max, x_max = _columns(boxes)
    return xp.stack([x_min, y_min, x_max - x_min, y_max - y_min], axis=-1)


def xywh_to_yxyx(boxes_xywh: Any) -> Any:
    """Converts COCO's `(x_min, y_min, width, height)` to corners.

    Example:
        >>> xywh_to_yxyx(np.array([[20.0, 10.0, 40.0, 30.0]]))
        array([[10., 20., 40., 60.]])
    """
    xp, boxes = _arrays(boxes_xywh)
    x_min, y_min, width, height = _columns(boxes)
    return xp.stack([y_min, x_min, y_min + height, x_min + width], axis=-1)


def yxyx_to_xyxy(boxes: Any) -> Any:
    """Swaps the axes of corners to `(x_min, y_min, x_max, y_max)`, or back.

    Example:
        >>> yxyx_to_xyxy(np.array([[10.0, 20.0, 40.0, 60.0]]))
        array([[20., 10., 60., 40.]])
    """
    xp, boxes = _arrays(boxes)
    y_min, x_min, y_max, x_max = _columns(boxes)
    return xp.stack([x_min, y_min, x_max, y_max], axis=-1)


def clip_boxes(boxes: Any, image_size: Any) -> Any:
    """Moves corners that lie outside an image onto its border.

    A box that lies completely outside becomes an empty box on the border.

    Args:
        boxes: tensor or array `[..., 4]`, `yxyx` in pixels.
        image_size: `(height, width)` in pixels: two numbers, or a tensor whose
            shape before the last axis broadcasts to that of `boxes`.

    Returns:
        Tensor or array `[..., 4]`, `0 <= y <= height` and `0 <= x <= width`.

    Example:
        >>> clip_boxes(np.array([[-5.0, 3.0, 20.0, 40.0]]), (16, 32))
        array([[ 0.,  3., 16., 32.]])
    """
    xp, boxes = _arrays(boxes)
    size = _as(xp, image_size, boxes)
    limits = xp.concatenate([size, size], axis=-1)
    return xp.minimum(xp.maximum(boxes, 0.0), limits)


def area(boxes: Any) -> Any:
    """Returns the area of boxes `[..., 4]`, in square pixels `[...]`.

    The area of an inverted box is 0.

    Example:
        >>> area(np.array([[0.0, 0.0, 2.0, 3.0], [2.0, 3.0, 0.0, 0.0]]))
        array([6., 0.])
    """
    xp, boxes = _arrays(boxes)
    return _area(xp, _columns(boxes))


def pairwise_iou(boxes1: Any, boxes2: Any) -> Any:
    """Computes the IoU of every box of one array with every box of another.

    The IoU of two boxes that do not overlap is 0. So is that of two empty boxes.

    Args:
        boxes1: tensor or array `[..., M, 4]`, `yxyx` in pixels.
        boxes2: tensor or array `[..., N, 4]`, `yxyx` in pixels.

    Returns:
        Tensor or array `[..., M, N]` in `[0, 1]`.

    Example:
        >>> box = np.array([[0.0, 0.0, 2.0, 2.0]])
        >>> pairwise_iou(box, np.array([[0.0, 1.0, 2.0, 3.0], [4.0, 4.0, 5.0, 5.0]]))
        array([[0.33333333, 0.        ]])
    """
    xp, boxes1, boxes2 = _arrays(boxes1, boxes2)
    # Columns kept as [..., M, 1] and [..., 1, N]: no [..., M, N, 4] in memory.
    columns1 = _columns(xp.expand_dims(boxes1, -2))
    columns2 = _columns(xp.expand_dims(boxes2, -3))
    overlap, union = _overlap_and_union(xp, columns1, columns2)
    return overlap / xp.maximum(union, _TINY)


# --- The IoU family row by row: boxes `[..., 4]` that broadcast give values `[...]`.
# The value for two empty boxes is 0. GIoU: https://arxiv.org/abs/1902.09630, DIoU and
# CIoU: https://arxiv.org/abs/1911.08287.


def iou(boxes1: Any, boxes2: Any) -> Any:
    """Returns the area of the overlap divided by that of the union, in `[0, 1]`.

    Args:
        boxes1, boxes2: tensors or arrays `[..., 4]` that broadcast, `yxyx` in pixels.

    Returns:
        Tensor or array `[...]`.

    Example:
        >>> float(iou(np.array([0.0, 0.0, 2.0, 2.0]), np.array([0.0, 0.0, 2.0, 1.0])))
        0.5
    """
    xp, boxes1, boxes2 = _arrays(boxes1, boxes2)
    return _iou_and_union(xp, boxes1, boxes2)[0]


def giou(boxes1: Any, boxes2: Any) -> Any:
    """Returns the generalized IoU, in `(-1, 1]`.

    https://arxiv.org/abs/1902.09630. With the smallest box `E` around both boxes:

        giou = iou - (area(E) - union) / area(E)

    Arguments and shapes are those of `iou`.
    """
    xp, boxes1, boxes2 = _arrays(boxes1, boxes2)
    value, union = _iou_and_union(xp, boxes1, boxes2)
    enclosing = _area(xp, _columns(_enclosing(xp, boxes1, boxes2)))
    return value - _divide_no_nan(xp, enclosing - union, enclosing)


def diou(boxes1: Any, boxes2: Any) -> Any:
    """Returns the distance IoU, in `(-1, 1]`.

    https://arxiv.org/abs/1911.08287, section 3.2. With the distance `d` of the centers,
    and the diagonal `c` of the smallest box around both boxes:

        diou = iou - d**2 / c**2

    Arguments and shapes are those of `iou`.
    """
    xp, boxes1, boxes2 = _arrays(boxes1, boxes2)
    return _diou_and_iou(xp, boxes1, boxes2)[0]


def ciou(boxes1: Any, boxes2: Any) -> Any:
    """Returns the complete IoU, in `(-2, 1]`.

    It is DIoU with a term `v` for the difference of the aspect ratios
    (https://arxiv.org/abs/1911.08287, section 3.3):

        ciou = diou - alpha * v        alpha = v / ((1 - iou) + v)
        v = 4 / pi**2 * (atan(w1 / h1) - atan(w2 / h2))**2

    The gradient is that of this formula, as in the reference. The paper instead treats
    `alpha` as a constant, and omits the factor `1 / (w**2 + h**2)` of the gradient of
    `v`.

    Arguments and shapes are those of `iou`.
    """
    xp, boxes1, boxes2 = _arrays(boxes1, boxes2)
    distance_iou, plain_iou = _diou_and_iou(xp, boxes1, boxes2)
    turn = _aspect_angle(xp, boxes1) - _aspect_angle(xp, boxes2)
    v = (4.0 / math.pi**2) * turn**2
    alpha = _divide_no_nan(xp, v, (1.0 - plain_iou) + v)
    return distance_iou - alpha * v


# --- Boxes as the network predicts them: offsets from anchors.


def encode_boxes(
    boxes: Any,
    anchors: Any,
    scales: Sequence[float] = _ONES,
    *,
    added_side: float = 0.0,
) -> Any:
    """Encodes boxes as offsets from their anchors.

    With center `(y, x)` and sides `(h, w)`, and `a` for the anchor:

        ty = (y - ya) / ha    tx = (x - xa) / wa
        th = log(h / ha)      tw = log(w / wa)

    Each is multiplied by its entry of `scales`. These are ones in EfficientDet, and 10,
    10, 5, 5 in other detectors (Faster R-CNN, https://arxiv.org/abs/1506.01497).
    `decode_boxes` is the inverse. For a box with a side of zero, such as a padding row,
    `th` and `tw` are large negative finite numbers, never NaN.

    Args:
        boxes: tensor or array `[..., N, 4]`, `yxyx` in pixels.
        anchors: tensor or array `[N, 4]`, `yxyx` in pixels, sides above zero.
        scales: four floats above zero, for `ty`, `tx`, `th` and `tw`. Those of a model
            are `config.box_scales`.
        added_side: float, in the unit of the boxes. It is added to all sides before any
            division, as the TF Object Detection API does with 1e-8 of the image's
            sides.

    Returns:
        Tensor or array `[..., N, 4]` of `(ty, tx, th, tw)`, without unit.

    Example:
        >>> box, anchor = [[0.0, 0.0, 4.0, 4.0]], [[0.0, 0.0, 2.0, 2.0]]
        >>> ops.convert_to_numpy(encode_boxes(box, anchor)).round(4)
        array([[0.5   , 0.5   , 0.6931, 0.6931]], dtype=float32)
    """
    xp, boxes, anchors = _arrays(boxes, anchors)
    center, sides = _center_and_sides(xp, boxes)
    anchor_center, anchor_sides = _center_and_sides(xp, anchors)
    if added_side:
        sides, anchor_sides = sides + added_side, anchor_sides + added_side
    offset = (center - anchor_center) / anchor_sides
    codes = xp.concatenate([offset, xp.log(sides / anchor_sides)], axis=-1)
    return codes if tuple(scales) == _ONES else codes * _as(xp, scales, codes)


def decode_boxes(box_deltas: Any, anchors: Any, scales: Sequence[float] = _ONES) -> Any:
    """Decodes offsets from anchors into boxes, the inverse of `encode_boxes`.

    `th` and `tw` above 20 (a box 5e8 anchors long) are taken as 20, so that no finite
    output of a network gives an infinite box. Boxes are not clipped.

    Args:
        box_deltas: tensor or array `[..., N, 4]` of `(ty, tx, th, tw)`.
        anchors: tensor or array `[N, 4]`, `yxyx` in pixels.
        scales: four floats above zero, as for `encode_boxes`.

    Returns:
        Tensor or array `[..., N, 4]`, `yxyx` in pixels.

    Example:
        >>> deltas, anchor = [[0.5, 0.5, 0.0, 0.0]], [[0.0, 0.0, 2.0, 2.0]]
        >>> ops.convert_to_numpy(decode_boxes(deltas, anchor))
        array([[1., 1., 3., 3.]], dtype=float32)
    """
    xp, box_deltas, anchors = _arrays(box_deltas, anchors)
    anchor_center, anchor_sides = _center_and_sides(xp, anchors)
    if tuple(scales) != _ONES:
        box_deltas = box_deltas / _as(xp, scales, box_deltas)
    center = box_deltas[..., :2] * anchor_sides + anchor_center
    half = xp.exp(xp.minimum(box_deltas[..., 2:], MAX_LOG_SIDE)) * anchor_sides / 2.0
    return xp.concatenate([center - half, center + half], axis=-1)


def _arrays(*boxes):
    """Returns NumPy or `keras.ops`, and the checked arguments as its float arrays."""
    if all(isinstance(value, np.ndarray) for value in boxes):
        xp = np
        arrays = [v if v.dtype.kind == "f" else v.astype("float32") for v in boxes]
    else:
        xp = ops
        arrays = [as_tensor(value) for value in boxes]
    shapes = [tuple(array.shape) for array in arrays]
    is_right = all(shape[-1:] == (4,) for shape in shapes)
    require(is_right, "Boxes must end in an axis of 4", shapes=shapes)
    return xp, *arrays


def _as(xp, values, like):
    """Returns numbers as a NumPy array or tensor, as `like` is."""
    if xp is np:
        return np.asarray(values, like.dtype)
    return as_tensor(values)


def as_tensor(value, dtype="float32"):
    """Converts a value to a tensor of a dtype."""
    return ops.cast(ops.convert_to_tensor(value), dtype)


def _columns(boxes):
    if isinstance(boxes, np.ndarray):
        return tuple(np.moveaxis(boxes, -1, 0))
    return ops.unstack(boxes, 4, axis=-1)


def _center_and_sides(xp, boxes):
    low, high = boxes[..., :2], boxes[..., 2:]
    sides = high - low
    return low + sides / 2.0, xp.maximum(sides, MIN_SIDE)


def _area(xp, columns):
    height, width = _sides(xp, columns)
    return height * width


def _sides(xp, columns):
    y_min, x_min, y_max, x_max = columns
    return xp.maximum(y_max - y_min, 0.0), xp.maximum(x_max - x_min, 0.0)


def _overlap_and_union(xp, columns1, columns2):
    """Returns the areas of overlap and union. The columns broadcast."""
    y_min1, x_min1, y_max1, x_max1 = columns1
    y_min2, x_min2, y_max2, x_max2 = columns2
    height = xp.minimum(y_max1, y_max2) - xp.maximum(y_min1, y_min2)
    width = xp.minimum(x_max1, x_max2) - xp.maximum(x_min1, x_min2)
    overlap = xp.maximum(height, 0.0) * xp.maximum(width, 0.0)
    return overlap, _area(xp, columns1) + _area(xp, columns2) - overlap


def _enclosing(xp, boxes1, boxes2):
    low = xp.minimum(boxes1[..., :2], boxes2[..., :2])
    high = xp.maximum(boxes1[..., 2:], boxes2[..., 2:])
    return xp.concatenate([low, high], axis=-1)


def _iou_and_union(xp, boxes1, boxes2):
    overlap, union = _overlap_and_union(xp, _columns(boxes1), _columns(boxes2))
    return _divide_no_nan(xp, overlap, union), union


def _diou_and_iou(xp, boxes1, boxes2):
    plain_iou, _ = _iou_and_union(xp, boxes1, boxes2)
    centers1 = (boxes1[..., :2] + boxes1[..., 2:]) / 2.0
    centers2 = (boxes2[..., :2] + boxes2[..., 2:]) / 2.0
    distance = xp.sum((centers1 - centers2) ** 2, axis=-1)
    enclosing = _enclosing(xp, boxes1, boxes2)
    diagonal = xp.sum((enclosing[..., 2:] - enclosing[..., :2]) ** 2, axis=-1)
    return plain_iou - _divide_no_nan(xp, distance, diagonal), plain_iou


def _aspect_angle(xp, boxes):
    height, width = _sides(xp, _columns(boxes))
    return xp.arctan(_divide_no_nan(xp, width, height))


def _divide_no_nan(xp, numerator, denominator):
    """Returns `a / b`, and 0 where b is 0, where the gradient is also finite."""
    empty = denominator == 0.0
    quotient = numerator / xp.where(empty, 1.0, denominator)
    return xp.where(empty, 0.0, quotient)
