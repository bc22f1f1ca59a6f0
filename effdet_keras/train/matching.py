"""Matching: which anchor has to predict which box of the ground truth."""

from __future__ import annotations

import abc
import dataclasses
import math
from typing import TYPE_CHECKING, Any

import keras
from keras import ops

from effdet_keras import box_ops
from effdet_keras._internal.number_ranges import (
    check_number_fields,
    number,
    whole_number,
)
from effdet_keras._internal.old_names import renamed_fields
from effdet_keras._internal.plain_values import FieldSerializable
from effdet_keras.box_ops import as_tensor
from effdet_keras.errors import check_argument, require
from effdet_keras.labels import BACKGROUND, IGNORE
from effdet_keras.network.anchors import level_sizes

if TYPE_CHECKING:
    from effdet_keras.network.config import EfficientDetConfig

__all__ = ["ATSSMatching", "IoUMatching", "Matching"]

# A fraction of the image's sides: EPSILON of the TF Object Detection API's box coders.
_ADDED_FRACTION = 1e-8


class Matching(FieldSerializable, abc.ABC):
    """A rule that decides which anchor has to predict which box.

    A rule of your own implements `__call__`. If its class is registered with Keras, the
    rule is saved in files of the model.

    Example:
        >>> @keras.saving.register_keras_serializable(package="mine")
        ... class StrictMatching(Matching):
        ...     def __call__(self, boxes, labels, anchors, config):
        ...         rule = IoUMatching(iou_threshold=0.7)
        ...         return rule(boxes, labels, anchors, config)
        ...
        ...     def get_config(self):
        ...         return {}
        >>> from effdet_keras.model.efficientdet import EfficientDet
        >>> model = EfficientDet.from_preset("efficientdet-lite0", image_size=64)
        >>> model.compile(matching=StrictMatching())
    """

    @abc.abstractmethod
    def __call__(
        self,
        boxes: Any,
        labels: Any,
        anchors: Any,
        config: EfficientDetConfig,
        weights: Any = None,
    ) -> tuple[Any, ...]:
        """Assigns to each anchor the class and the box that it has to predict.

        Args:
            boxes: float tensor `[B, M, 4]`, `yxyx` in pixels of the input. There may be
                no boxes at all (`M` of 0).
            labels: int tensor `[B, M]`, `0 .. C-1`. Rows with a negative label or an
                area of 0 are padding and match nothing.
            anchors: float array `[N, 4]`, `yxyx` in pixels of the input.
            config: `EfficientDetConfig` of the model that the anchors belong to.
            weights: float tensor `[B, M]`, the weight of each box. It is passed only if
                the ground truth has `weights`. A rule without this argument does not
                support them.

        Returns:
            Tuple of two or three tensors:

            - `class_targets`, int32 `[B, N]`: the label of the matched box, -1 for
              background, or -2 for an anchor without a loss.
            - `box_targets`, float32 `[B, N, 4]`: the `encode_boxes` code of the matched
              box with `config.box_scales`, 0 for an anchor without a box.
            - `anchor_weights`, float32 `[B, N]`, only if anchors have different
              weights.
        """


@keras.saving.register_keras_serializable(package="effdet_keras")
@renamed_fields(in_fractions="normalized_coordinates")
@dataclasses.dataclass(frozen=True)
class IoUMatching(Matching):
    """Matches anchors and boxes by an IoU threshold, as the reference does.

    An anchor is matched to the box that it overlaps most, if their IoU reaches the
    threshold. Otherwise it is background (RetinaNet, https://arxiv.org/abs/1708.02002,
    section 4).

    In addition, unless `force` is False, each box is force-matched to the anchor that
    it overlaps most, whatever their IoU, so that no object is left out. If overlaps are
    equal, the first one counts. If two boxes overlap the same anchor most, the anchor
    is force-matched to the first box, and the second is not force-matched. A box of
    weight 0 is not force-matched either.

    Args:
        iou_threshold: float above 0, at most 1.
        ignore_threshold: float above 0, at most `iou_threshold`, or None. Anchors
            between the two thresholds are ignored: they are neither positive nor
            background.
        force: bool, whether each box is force-matched.
        background_weight: float of at least 0, the weight of a background anchor. An
            anchor with a box has weight 1, or the weight of its box.
        normalized_coordinates: bool, whether to compute in fractions of the image, and
            with 1e-8 added to all sides, as the TF Object Detection API does. Except
            for tiny boxes, the results differ by rounding only.

    Example:
        >>> IoUMatching(ignore_threshold=0.4)
        IoUMatching(iou_threshold=0.5, ignore_threshold=0.4, force=True, \
background_weight=1.0, normalized_coordinates=False)
    """

    iou_threshold: float = number(0.5, "(0, 1]")
    ignore_threshold: float | None = number(None, "(0, 1]")
    force: bool = True
    background_weight: float = number(1.0, "[0, inf)")
    normalized_coordinates: bool = False

    def __post_init__(self) -> None:
        check_number_fields(self)
        threshold, ignore = self.iou_threshold, self.ignore_threshold
        is_right = ignore is None or ignore <= threshold
        expected = f"above 0 and at most `iou_threshold`, {threshold}"
        check_argument(is_right, "ignore_threshold", ignore, expected)

    def __call__(self, boxes, labels, anchors, config, weights=None):
        boxes, labels, anchors = _as_tensors(boxes, labels, anchors)
        added_side = 0.0
        if self.normalized_coordinates:
            sides = ops.convert_to_tensor((*config.image_size,) * 2, dtype="float32")
            boxes, anchors, added_side = boxes / sides, anchors / sides, _ADDED_FRACTION
        is_object = ops.logical_and(labels >= 0, box_ops.area(boxes) > 0.0)
        boxes = ops.where(ops.expand_dims(is_object, -1), boxes, 0.0)
        force_matched = is_object if self.force else ops.zeros_like(is_object)
        if weights is not None:
            weights = as_tensor(weights)
            force_matched = ops.logical_and(force_matched, weights > 0.0)
        # Two more rows stand for background and for ignored anchors.
        boxes = ops.pad(boxes, [[0, 0], [0, 2], [0, 0]])
        labels = ops.pad(labels, [[0, 0], [0, 1]], constant_values=BACKGROUND)
        labels = ops.pad(labels, [[0, 0], [0, 1]], constant_values=IGNORE)
        thresholds = self.iou_threshold, self.ignore_threshold
        rows = _rows_by_iou(boxes, force_matched, anchors, *thresholds)  # [B, N]
        background_weight = self.background_weight
        if weights is None and background_weight != 1.0:
            weights = ops.ones_like(force_matched, dtype="float32")
        if weights is not None:
            weights = ops.pad(
                weights, [[0, 0], [0, 1]], constant_values=background_weight
            )
        scales = config.box_scales
        return _targets_of_rows(
            boxes, labels, anchors, rows, scales, weights, added_side
        )


@keras.saving.register_keras_serializable(package="effdet_keras")
@dataclasses.dataclass(frozen=True)
class ATSSMatching(Matching):
    """Matches each box to the best anchors around it, by an IoU threshold per box.

    This is adaptive training sample selection (ATSS), https://arxiv.org/abs/1912.02424,
    section 3.2. The candidates of a box are the anchors of the `top_k` grid cells of
    each level whose centers are nearest to the center of the box. A candidate is
    matched if its center lies in the box, and if its IoU with the box is at least
    `mean + deviation` of the IoUs of all candidates of the box.

    In addition, which is not in the paper, the candidate with the highest IoU is always
    matched, so that no object is left out. If several boxes match one anchor, it goes
    to a box for which it is the best candidate, and otherwise to the box that it
    overlaps most.

    So boxes that no anchor fits well get as many anchors as others.

    Args:
        top_k: int of at least 1, the number of grid cells of each level whose anchors
            are candidates.

    Example:
        >>> ATSSMatching()
        ATSSMatching(top_k=9)
    """

    top_k: int = whole_number(9, "[1, inf)")

    def __post_init__(self) -> None:
        check_number_fields(self)

    def __call__(self, boxes, labels, anchors, config, weights=None):
        boxes, labels, anchors = _as_tensors(boxes, labels, anchors)
        levels = level_sizes(config.image_size, config.min_level, config.max_level)
        cells = [height * width for height, width in levels]
        if weights is not None:
            weights = as_tensor(weights)
        # One more row stands for background. So there is a row even if M is 0.
        boxes = ops.pad(boxes, [[0, 0], [0, 1], [0, 0]])
        labels = ops.pad(labels, [[0, 0], [0, 1]], constant_values=BACKGROUND)
        candidates = _candidates(boxes, anchors, cells, self.top_k)  # [B, M, K]
        rank = _ranks(boxes, labels, ops.take(anchors, candidates, axis=0))
        rows = _row_of_each_anchor(candidates, rank, anchors.shape[0])  # [B, N]
        scales = config.box_scales
        return _targets_of_rows(boxes, labels, anchors, rows, scales, weights)


def _targets_of_rows(
    boxes, labels, anchors, rows, box_scales, weights=None, added_side=0.0
):
    """Returns the targets of anchors, given the row of each anchor's box.

    `rows` is int32 `[B, N]`. `weights` `[B, M]` are those of the first `M` rows; the
    weight of all other rows is 1.
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


def _rows_by_iou(boxes, force_matched, anchors, iou_threshold, ignore_threshold):
    """Returns the row of each anchor's box, int32 `[B, N]`.

    The last row but one stands for background, the last row for ignored anchors. Boxes
    are matched one by one: a matrix `[M, N]` would take 177 MB at 1536 pixels and 100
    boxes.
    """
    num_images, last = ops.shape(boxes)[0], ops.shape(boxes)[1] - 2
    num_anchors = anchors.shape[0]
    indices = ops.arange(num_anchors, dtype="int32")
    anchor_columns = ops.unstack(anchors, 4, axis=1)
    anchor_area = box_ops.area(anchors)
    box_columns = ops.expand_dims(ops.transpose(boxes, (1, 2, 0)), -1)  # [M, 4, B, 1]
    # Padded as the boxes, because JAX cannot take rows from an empty array.
    force_matched = ops.pad(force_matched, [[0, 0], [0, 2]], constant_values=False)
    force_matched = ops.expand_dims(ops.transpose(force_matched), -1)  # [M, B, 1]

    def match_row(row, state):
        """Matches box `row` of each image. All arrays of the state are `[B, N]`."""
        best_iou, nearest, forced_row = state
        row = ops.cast(row, "int32")
        columns = ops.take(box_columns, row, axis=0)
        iou = _iou(columns, anchor_columns, anchor_area)
        # The first of the largest values; `ops.argmax` takes longer on a CPU.
        is_largest = iou == ops.max(iou, axis=1, keepdims=True)
        best_anchor = ops.where(is_largest, indices, num_anchors)
        is_forced = indices == ops.min(best_anchor, axis=1, keepdims=True)
        is_forced = ops.logical_and(is_forced, ops.take(force_matched, row, axis=0))
        is_forced = ops.logical_and(is_forced, forced_row < 0)
        return (
            ops.maximum(best_iou, iou),
            ops.where(iou > best_iou, row, nearest),
            ops.where(is_forced, row, forced_row),
        )

    none = ops.full((num_images, num_anchors), -1, dtype="int32")
    start = (ops.cast(ops.zeros_like(none), "float32"), none, none)
    best_iou, nearest, forced_row = ops.fori_loop(0, last, match_row, start)
    otherwise = last
    if ignore_threshold is not None:
        otherwise = ops.where(best_iou >= ignore_threshold, last + 1, last)
    nearest = ops.where(best_iou >= iou_threshold, nearest, otherwise)
    return ops.where(forced_row >= 0, forced_row, nearest)


def _iou(columns, anchor_columns, anchor_area):
    """Returns the IoU `[B, N]` of one box per image with all anchors.

    `columns` `[4, B, 1]` are the coordinates of the boxes.
    """
    y_min, x_min, y_max, x_max = (columns[i] for i in range(4))
    anchor_y_min, anchor_x_min, anchor_y_max, anchor_x_max = anchor_columns
    height = ops.minimum(y_max, anchor_y_max) - ops.maximum(y_min, anchor_y_min)
    width = ops.minimum(x_max, anchor_x_max) - ops.maximum(x_min, anchor_x_min)
    overlap = ops.maximum(height, 0.0) * ops.maximum(width, 0.0)
    area = (y_max - y_min) * (x_max - x_min)
    return overlap / (area + anchor_area - overlap)


def _take_rows(labels, boxes, rows):
    """Returns the labels `[B, N]` and boxes `[B, N, 4]` of rows, int32 `[B, N]`."""
    num_images, num_rows = ops.shape(labels)[0], ops.shape(labels)[1]
    first = ops.arange(num_images, dtype="int32") * num_rows
    rows = rows + ops.expand_dims(first, -1)  # rows of the flattened batch
    return (
        ops.take(ops.reshape(labels, (-1,)), rows, axis=0),
        ops.take(ops.reshape(boxes, (-1, 4)), rows, axis=0),
    )


def _candidates(boxes, anchors, cells, top_k):
    """Returns the indices `[B, M, K]` of the anchors in the nearest grid cells.

    They are the `top_k` nearest cells of each level. `cells` is the number of cells of
    each level.
    """
    each = anchors.shape[0] // sum(cells)  # anchors per cell
    centers = _centers(anchors[::each])
    box_centers = ops.expand_dims(_centers(boxes), -2)  # [B, M, 1, 2]
    found, start = [], 0
    for count in cells:
        away = ops.sum((box_centers - centers[start : start + count]) ** 2, axis=-1)
        _, nearest = ops.top_k(-away, k=min(top_k, count))
        first = ops.expand_dims((ops.cast(nearest, "int32") + start) * each, -1)
        anchors_there = first + ops.arange(each, dtype="int32")  # [B, M, k, each]
        size = min(top_k, count) * each
        found.append(ops.reshape(anchors_there, (*ops.shape(first)[:2], size)))
        start += count
    return ops.concatenate(found, axis=-1)


def _ranks(boxes, labels, candidates):
    """Returns the rank `[B, M, K]` of each candidate `[B, M, K, 4]` of a box.

    The rank of a matched candidate is its IoU. For the best candidate of a box, IoU + 1
    is added, so that the box is not left without an anchor. A rank of 0 means that the
    candidate is not matched.
    """
    rows = ops.expand_dims(boxes, -2)
    is_object = ops.logical_and(labels >= 0, box_ops.area(boxes) > 0.0)
    is_object = ops.expand_dims(is_object, -1)
    iou = box_ops.iou(rows, candidates)
    count = iou.shape[-1]
    deviation = ops.std(iou, axis=-1) * math.sqrt(count / max(count - 1, 1))
    limit = ops.mean(iou, axis=-1) + deviation
    centers = _centers(candidates)
    is_inside = ops.all(
        ops.logical_and(centers > rows[..., :2], centers < rows[..., 2:]), axis=-1
    )
    is_taken = ops.logical_and(iou >= ops.expand_dims(limit, -1), is_inside)
    best_anchor = ops.expand_dims(ops.argmax(iou, axis=-1), -1)
    is_best_anchor = ops.cast(best_anchor, "int32") == ops.arange(
        iou.shape[-1], dtype="int32"
    )
    rank = ops.where(is_taken, iou, 0.0) + ops.where(is_best_anchor, iou + 1.0, 0.0)
    return ops.where(is_object, rank, 0.0)


def _row_of_each_anchor(candidates, rank, num_anchors):
    """Returns the row in which each anchor has its highest rank, int32 `[B, N]`.

    The last row stands for background.
    """
    num_images, num_rows = ops.shape(rank)[0], ops.shape(rank)[1]
    first = ops.arange(num_images, dtype="int32") * num_anchors
    slots = ops.reshape(candidates + ops.reshape(first, (-1, 1, 1)), (-1,))
    num_slots = num_images * num_anchors
    flat = ops.reshape(rank, (-1,))
    highest = ops.segment_max(flat, slots, num_segments=num_slots)
    is_highest = ops.logical_and(flat > 0.0, flat == ops.take(highest, slots, axis=0))
    # The first of several rows of equal rank. Rows are counted from the end, so that
    # the last one is 0.
    from_end = num_rows - 1 - ops.arange(num_rows, dtype="int32")
    from_end = ops.reshape(
        ops.broadcast_to(ops.reshape(from_end, (1, -1, 1)), ops.shape(rank)), (-1,)
    )
    best_row = ops.segment_max(
        ops.where(is_highest, from_end, 0), slots, num_segments=num_slots
    )
    # `segment_max` gives the lowest number to a slot that is no box's candidate.
    rows = num_rows - 1 - ops.maximum(best_row, 0)
    return ops.reshape(rows, (-1, num_anchors))


def _centers(boxes):
    return (boxes[..., :2] + boxes[..., 2:]) / 2.0


def _as_tensors(boxes, labels, anchors):
    """Returns float32 boxes, int32 labels and float32 anchors.

    Raises ValueError for wrong shapes.
    """
    boxes, anchors = as_tensor(boxes), as_tensor(anchors)
    labels = as_tensor(labels, "int32")
    shapes = tuple(boxes.shape), tuple(labels.shape)
    # Without this check, an array with a single row would be broadcast.
    is_right = len(shapes[0]) == 3 and shapes[0][1] in (None, *shapes[1][1:2])
    rule = "`boxes` must be [B, M, 4] and `labels` [B, M]"
    require(is_right or None in shapes[1], rule, boxes=shapes[0], labels=shapes[1])
    return boxes, labels, anchors
