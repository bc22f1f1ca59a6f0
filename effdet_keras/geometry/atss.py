"""ATSS: matching with a threshold for each box, from the overlaps around it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from keras import ops

from effdet_keras._internal.label_constants import BACKGROUND
from effdet_keras.errors import InvalidValueError
from effdet_keras.geometry import box_ops
from effdet_keras.geometry.matching import as_tensors, as_weights, targets_of_rows


def match_atss(
    boxes: Any,
    labels: Any,
    anchors: Any,
    *,
    level_sizes: Sequence[tuple[int, int]],
    top_k: int = 9,
    box_scales: Sequence[float] = (1.0, 1.0, 1.0, 1.0),
    weights: Any = None,
) -> tuple[Any, ...]:
    """Gives each anchor the class and the box it has to predict.

    Adaptive training sample selection, https://arxiv.org/abs/1912.02424, section 3.2.
    The candidates of a box are the anchors of the `top_k` places of each level whose
    centers are nearest to its own. It takes those of them that have their center in
    the box and an IoU with it of at least `mean + deviation` of the IoUs of all its
    candidates; and, which is not in the paper, always the candidate it overlaps most,
    so that no object is left out. An anchor that several boxes take goes to the one it
    overlaps most, but to one that it would leave without any anchor first.

    Rows with a negative label or an area of 0 are padding and match nothing. There may
    be no boxes at all (`M` of 0).

    Args:
        boxes: float tensor `[B, M, 4]`, `yxyx` in pixels.
        labels: int tensor `[B, M]`, `0 .. C-1`, and -1 in padding rows.
        anchors: array `[N, 4]`, `yxyx` in pixels, of `generate_anchors`.
        level_sizes: `(height, width)` of each level, see `anchors.level_sizes`.
        top_k: int, 1 or above; places of each level.
        box_scales: four floats, the `scales` of `encode_boxes`.
        weights: float tensor `[B, M]`, how much each box counts, or None for 1.

    Returns:
        Tuple of `class_targets`, int32 `[B, N]`, the label of the matched box or
        -1 for background; `box_targets`, float32 `[B, N, 4]`, its `encode_boxes`
        code, 0 for background; and with `weights` `anchor_weights`, float32
        `[B, N]`, that of the matched box, else 1.

    Raises:
        ValueError: If the shapes do not fit, the levels do not have so many
            anchors, or `top_k` is below 1.

    Example:
        >>> from effdet_keras.geometry.anchors import generate_anchors
        >>> anchors = generate_anchors((32, 32), min_level=3, max_level=3)
        >>> boxes, labels = [[[0, 0, 24, 32], [0, 0, 0, 0]]], [[3, -1]]
        >>> classes, _ = match_atss(boxes, labels, anchors, level_sizes=[(4, 4)])
        >>> ops.convert_to_numpy(classes).reshape(4, 4, 9).max(axis=2)
        array([[-1,  3,  3, -1],
               [ 3,  3,  3,  3],
               [-1,  3,  3, -1],
               [-1, -1, -1, -1]], dtype=int32)
    """
    boxes, labels, anchors = as_tensors(boxes, labels, anchors)
    places = [height * width for height, width in level_sizes]
    if sum(places) == 0 or anchors.shape[0] % sum(places) or top_k < 1:
        raise InvalidValueError(
            "`level_sizes` must have the places of `anchors`, and `top_k` must be at "
            f"least 1. Received: level_sizes={list(level_sizes)}, "
            f"anchors.shape={tuple(anchors.shape)}, top_k={top_k!r}"
        )
    if weights is not None:
        weights = as_weights(weights, labels)
    # One more row stands for background, so that there is one when M is 0.
    boxes = ops.pad(boxes, [[0, 0], [0, 1], [0, 0]])
    labels = ops.pad(labels, [[0, 0], [0, 1]], constant_values=BACKGROUND)
    candidates = _candidates(boxes, anchors, places, top_k)  # [B, M, K]
    rank = _ranks(boxes, labels, ops.take(anchors, candidates, axis=0))
    rows = _row_of_each_anchor(candidates, rank, anchors.shape[0])  # [B, N]
    return targets_of_rows(boxes, labels, anchors, rows, box_scales, weights)


def _candidates(boxes, anchors, places, top_k):
    """Numbers of the anchors at the nearest places of each level, `[B, M, K]`."""
    each = anchors.shape[0] // sum(places)  # anchors of a place
    centers = _centers(anchors[::each])
    box_centers = ops.expand_dims(_centers(boxes), -2)  # [B, M, 1, 2]
    found, start = [], 0
    for count in places:
        away = ops.sum((box_centers - centers[start : start + count]) ** 2, axis=-1)
        _, nearest = ops.top_k(-away, k=min(top_k, count))
        first = ops.expand_dims((ops.cast(nearest, "int32") + start) * each, -1)
        anchors_there = first + ops.arange(each, dtype="int32")  # [B, M, k, each]
        size = min(top_k, count) * each
        found.append(ops.reshape(anchors_there, (*ops.shape(first)[:2], size)))
        start += count
    return ops.concatenate(found, axis=-1)


def _ranks(boxes, labels, candidates):
    """How much each box wants each of its candidates `[B, M, K, 4]`; 0 for not.

    It is their IoU, and 1 more where the box would be left without an anchor.
    """
    rows = ops.expand_dims(boxes, -2)
    is_object = ops.logical_and(labels >= 0, box_ops.area(boxes) > 0.0)
    is_object = ops.expand_dims(is_object, -1)
    iou = box_ops.iou(rows, candidates)
    limit = ops.mean(iou, axis=-1) + _deviation(iou)
    centers = _centers(candidates)
    is_inside = ops.all(
        ops.logical_and(centers > rows[..., :2], centers < rows[..., 2:]), axis=-1
    )
    is_taken = ops.logical_and(iou >= ops.expand_dims(limit, -1), is_inside)
    favorite = ops.expand_dims(ops.argmax(iou, axis=-1), -1)
    is_favorite = ops.cast(favorite, "int32") == ops.arange(
        iou.shape[-1], dtype="int32"
    )
    rank = ops.where(is_taken, iou, 0.0) + ops.where(is_favorite, iou + 1.0, 0.0)
    return ops.where(is_object, rank, 0.0)


def _row_of_each_anchor(candidates, rank, num_anchors):
    """The row that wants an anchor most, int32 `[B, N]`; the last for background."""
    num_images, num_rows = ops.shape(rank)[0], ops.shape(rank)[1]
    first = ops.arange(num_images, dtype="int32") * num_anchors
    slots = ops.reshape(candidates + ops.reshape(first, (-1, 1, 1)), (-1,))
    num_slots = num_images * num_anchors
    flat = ops.reshape(rank, (-1,))
    highest = ops.segment_max(flat, slots, num_segments=num_slots)
    is_highest = ops.logical_and(flat > 0.0, flat == ops.take(highest, slots, axis=0))
    # Of rows that want it alike the first: counted from the end, the last is 0.
    from_end = num_rows - 1 - ops.arange(num_rows, dtype="int32")
    from_end = ops.reshape(
        ops.broadcast_to(ops.reshape(from_end, (1, -1, 1)), ops.shape(rank)), (-1,)
    )
    wanted = ops.segment_max(
        ops.where(is_highest, from_end, 0), slots, num_segments=num_slots
    )
    # A slot that is nobody's candidate has the lowest number there is.
    rows = num_rows - 1 - ops.maximum(wanted, 0)
    return ops.reshape(rows, (-1, num_anchors))


def _centers(boxes):
    return (boxes[..., :2] + boxes[..., 2:]) / 2.0


def _deviation(values):
    """Of a sample, over the last axis."""
    count = values.shape[-1]
    return ops.std(values, axis=-1) * math.sqrt(count / max(count - 1, 1))
