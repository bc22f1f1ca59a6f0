"""Matching: which anchor has to predict which box of the ground truth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from keras import ops

from effdet_keras._internal.label_constants import BACKGROUND, IGNORE
from effdet_keras.errors import InvalidValueError
from effdet_keras.geometry import box_ops


def match_anchors(
    boxes: Any,
    labels: Any,
    anchors: Any,
    *,
    iou_threshold: float = 0.5,
    ignore_threshold: float | None = None,
    force: bool = True,
    weights: Any = None,
    background_weight: float = 1.0,
    box_scales: Sequence[float] = (1.0, 1.0, 1.0, 1.0),
    added_side: float = 0.0,
) -> tuple[Any, ...]:
    """Gives each anchor the class and the box it has to predict.

    An anchor takes the box it overlaps most if their IoU reaches the threshold,
    else the background (https://arxiv.org/abs/1708.02002, section 4). In
    addition each box claims the anchor it overlaps most, whatever their IoU, so
    that no object is left out, unless `force` is False. Of equal overlaps the first
    counts; of two boxes that claim one anchor the first gets it and the second claims
    no other.

    Rows with a negative label or an area of 0 are padding and match nothing.
    There may be no boxes at all (`M` of 0).

    Memory: a few arrays `[B, N]`, because boxes are matched one after the other;
    a matrix `[M, N]` would be 177 MB per image at 1536 pixels and 100 boxes.

    Args:
        boxes: float tensor `[B, M, 4]`, `yxyx` in pixels.
        labels: int tensor `[B, M]`, `0 .. C-1`, and -1 in padding rows.
        anchors: float tensor `[N, 4]`, `yxyx` in pixels, sides above zero.
        iou_threshold: float above 0, at most 1.
        ignore_threshold: float above 0, at most `iou_threshold`, or None. Anchors that
            overlap a box less than `iou_threshold`, but so much or more, are ignored.
        force: bool, whether each box claims an anchor.
        weights: float tensor `[B, M]`, how much each box counts, or None for 1. A box
            of weight 0 claims no anchor.
        background_weight: float of at least 0, how much background counts.
        box_scales: four floats, the `scales` of `encode_boxes`.
        added_side: float, see `encode_boxes`.

    Returns:
        Tuple of `class_targets`, int32 `[B, N]`, the label of the matched box, -1 for
        background or -2 for ignored; `box_targets`, float32 `[B, N, 4]`, its
        `encode_boxes` code, 0 where there is none; and with `weights`, or a
        `background_weight` other than 1, `anchor_weights`, float32 `[B, N]`.

    Raises:
        ValueError: If the shapes do not fit, or a threshold is out of its range.

    Example:
        >>> anchors = [[0, 0, 8, 8], [0, 8, 8, 16], [8, 8, 16, 16]]
        >>> boxes, labels = [[[0, 0, 8, 6], [0, 0, 0, 0]]], [[3, -1]]
        >>> classes, deltas = match_anchors(boxes, labels, anchors)
        >>> ops.convert_to_numpy(classes)
        array([[ 3, -1, -1]], dtype=int32)
        >>> ops.convert_to_numpy(deltas)[0, 0].round(3)
        array([ 0.   , -0.125,  0.   , -0.288], dtype=float32)
    """
    check_iou_threshold(iou_threshold, ignore_threshold)
    boxes, labels, anchors = as_tensors(boxes, labels, anchors)
    is_object = ops.logical_and(labels >= 0, box_ops.area(boxes) > 0.0)
    boxes = ops.where(ops.expand_dims(is_object, -1), boxes, 0.0)
    claims = is_object if force else ops.zeros_like(is_object)
    if weights is not None:
        weights = as_weights(weights, labels)
        claims = ops.logical_and(claims, weights > 0.0)
    # Two more rows stand for background and for what is ignored.
    boxes = ops.pad(boxes, [[0, 0], [0, 2], [0, 0]])
    labels = ops.pad(labels, [[0, 0], [0, 1]], constant_values=BACKGROUND)
    labels = ops.pad(labels, [[0, 0], [0, 1]], constant_values=IGNORE)
    matched = _match(boxes, claims, anchors, iou_threshold, ignore_threshold)  # [B, N]
    if weights is None and background_weight != 1.0:
        weights = ops.ones_like(claims, dtype="float32")
    if weights is not None:
        weights = ops.pad(weights, [[0, 0], [0, 1]], constant_values=background_weight)
    return targets_of_rows(
        boxes, labels, anchors, matched, box_scales, weights, added_side
    )


def targets_of_rows(
    boxes, labels, anchors, rows, box_scales, weights=None, added_side=0.0
):
    """Targets of anchors whose rows are known, int32 `[B, N]`; see `match_anchors`.

    Weights `[B, M]` are of the first rows, and 1 in all others.
    """
    class_targets, matched_boxes = _take_rows(labels, boxes, rows)
    box_targets = box_ops.encode_boxes(
        matched_boxes, anchors, box_scales, added_side=added_side
    )
    is_positive = ops.expand_dims(class_targets >= 0, -1)
    targets = class_targets, ops.where(is_positive, box_targets, 0.0)
    if weights is None:
        return targets
    missing = ops.shape(labels)[1] - ops.shape(weights)[1]
    weights = ops.pad(weights, [[0, 0], [0, missing]], constant_values=1.0)
    return *targets, _take_rows(weights, boxes, rows)[0]


def _match(boxes, claims, anchors, iou_threshold, ignore_threshold):
    """Row of each anchor's box, int32 `[B, N]`.

    The last but one stands for background, the last for what is ignored.
    """
    num_images, last = ops.shape(boxes)[0], ops.shape(boxes)[1] - 2
    num_anchors = anchors.shape[0]
    places = ops.arange(num_anchors, dtype="int32")
    anchor_columns = [anchors[:, i] for i in range(4)]
    anchor_area = box_ops.area(anchors)
    box_columns = ops.expand_dims(ops.transpose(boxes, (1, 2, 0)), -1)  # [M, 4, B, 1]
    # With rows for background and ignored, as the boxes: JAX takes from no empty array.
    claims = ops.pad(claims, [[0, 0], [0, 2]], constant_values=False)
    claims = ops.expand_dims(ops.transpose(claims), -1)  # [M, B, 1]

    def match_row(row, state):
        best_iou, nearest, claimed = state
        row = ops.cast(row, "int32")
        columns = ops.take(box_columns, row, axis=0)
        iou = _iou(columns, anchor_columns, anchor_area)
        # The first of the largest; `ops.argmax` takes longer on a CPU.
        is_largest = iou == ops.max(iou, axis=1, keepdims=True)
        favorite = ops.where(is_largest, places, num_anchors)
        is_claim = places == ops.min(favorite, axis=1, keepdims=True)
        is_claim = ops.logical_and(is_claim, ops.take(claims, row, axis=0))
        is_claim = ops.logical_and(is_claim, claimed < 0)
        return (
            ops.maximum(best_iou, iou),
            ops.where(iou > best_iou, row, nearest),
            ops.where(is_claim, row, claimed),
        )

    none = ops.full((num_images, num_anchors), -1, dtype="int32")
    start = (ops.cast(ops.zeros_like(none), "float32"), none, none)
    best_iou, nearest, claimed = ops.fori_loop(0, last, match_row, start)
    otherwise = last
    if ignore_threshold is not None:
        otherwise = ops.where(best_iou >= ignore_threshold, last + 1, last)
    nearest = ops.where(best_iou >= iou_threshold, nearest, otherwise)
    return ops.where(claimed >= 0, claimed, nearest)


def _iou(columns, anchor_columns, anchor_area):
    """IoU `[B, N]` of one box per image, columns `[4, B, 1]`, with all anchors."""
    y_min, x_min, y_max, x_max = (columns[i] for i in range(4))
    anchor_y_min, anchor_x_min, anchor_y_max, anchor_x_max = anchor_columns
    height = ops.minimum(y_max, anchor_y_max) - ops.maximum(y_min, anchor_y_min)
    width = ops.minimum(x_max, anchor_x_max) - ops.maximum(x_min, anchor_x_min)
    overlap = ops.maximum(height, 0.0) * ops.maximum(width, 0.0)
    area = (y_max - y_min) * (x_max - x_min)
    return overlap / (area + anchor_area - overlap)


def _take_rows(labels, boxes, rows):
    """Labels `[B, N]` and boxes `[B, N, 4]` of the rows, int32 `[B, N]`."""
    num_images, num_rows = ops.shape(labels)[0], ops.shape(labels)[1]
    first = ops.arange(num_images, dtype="int32") * num_rows
    rows = rows + ops.expand_dims(first, -1)  # of all images in one list
    return (
        ops.take(ops.reshape(labels, (-1,)), rows, axis=0),
        ops.take(ops.reshape(boxes, (-1, 4)), rows, axis=0),
    )


def as_weights(weights, labels):
    """Float32 weights of boxes; ValueError unless they have the shape of labels."""
    weights = ops.cast(ops.convert_to_tensor(weights), "float32")
    if len(weights.shape) != 2 or any(
        n is not None and m is not None and n != m
        for n, m in zip(weights.shape, labels.shape)
    ):
        raise InvalidValueError(
            "`weights` must have the shape of `labels`, [B, M]. Received: "
            f"weights.shape={tuple(weights.shape)}, labels.shape={tuple(labels.shape)}"
        )
    return weights


def check_iou_threshold(iou_threshold, ignore_threshold=None):
    """Raises ValueError unless they are above 0, at most 1, and in order."""
    if ignore_threshold is not None and not 0.0 < ignore_threshold <= iou_threshold:
        raise InvalidValueError(
            "`ignore_threshold` must be above 0 and at most `iou_threshold`. Received: "
            f"ignore_threshold={ignore_threshold!r}, iou_threshold={iou_threshold!r}"
        )
    if not 0.0 < iou_threshold <= 1.0:
        raise InvalidValueError(
            "`iou_threshold` must be above 0 and at most 1. "
            f"Received: iou_threshold={iou_threshold!r}"
        )


def as_tensors(boxes, labels, anchors):
    """Float32 boxes, int32 labels and float32 anchors; ValueError for wrong shapes."""
    boxes = ops.cast(ops.convert_to_tensor(boxes), "float32")
    labels = ops.cast(ops.convert_to_tensor(labels), "int32")
    anchors = ops.cast(ops.convert_to_tensor(anchors), "float32")
    ranks = (len(boxes.shape), len(labels.shape), len(anchors.shape))
    same_rows = ranks[:2] == (3, 2) and all(
        n is None or m is None or n == m for n, m in zip(boxes.shape[:2], labels.shape)
    )
    if ranks != (3, 2, 2) or not same_rows:
        raise InvalidValueError(
            "`boxes` must be [B, M, 4], `labels` [B, M] and `anchors` [N, 4]. "
            f"Received: boxes.shape={tuple(boxes.shape)}, "
            f"labels.shape={tuple(labels.shape)}, "
            f"anchors.shape={tuple(anchors.shape)}"
        )
    return boxes, labels, anchors
