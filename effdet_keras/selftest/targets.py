"""What matching and encoding make of boxes, and what decoding makes of that."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
from keras import ops

from effdet_keras.config import EfficientDetConfig
from effdet_keras.geometry import box_ops
from effdet_keras.geometry.anchors import anchors_of
from effdet_keras.matching import Matching
from effdet_keras.selftest.annotated_boxes import AnnotatedBoxes
from effdet_keras.selftest.network_inputs import NetworkInputs

_BATCH_SIZE = 8


@dataclasses.dataclass(frozen=True, eq=False)
class FollowedTargets:
    """What anchors have to predict, gathered for each box.

    Attributes:
        num_anchors: ints `[n]`, how many anchors have to predict a box.
        boxes: float32 `[n, 4]`, `yxyx` in pixels of the network's input: of what these
            anchors decode to, what is farthest from the box; zeros without an anchor.
        labels: ints `[n]`, the class of that anchor.
    """

    num_anchors: np.ndarray
    boxes: np.ndarray
    labels: np.ndarray


def follow_targets(
    table: AnnotatedBoxes,
    inputs: NetworkInputs,
    config: EfficientDetConfig,
    matching: Matching,
) -> FollowedTargets:
    """Matches boxes with anchors, encodes them as training does, and decodes them.

    Args:
        table: `AnnotatedBoxes`.
        inputs: `NetworkInputs` of them.
        config: `EfficientDetConfig`, for the anchors.
        matching: `Matching`, the rule.

    Returns:
        `FollowedTargets`.

    Example:
        >>> from effdet_keras.data import from_arrays
        >>> from effdet_keras.matching import IoUMatching
        >>> from effdet_keras.selftest.network_inputs import read_network_inputs
        >>> image = np.zeros((64, 64, 3), "uint8")
        >>> dataset = from_arrays([image], [[[8, 8, 40, 40]]], [[0]], ["cat"])
        >>> config = EfficientDetConfig(image_size=64)
        >>> table = AnnotatedBoxes.of(dataset)
        >>> inputs = read_network_inputs(table, config)
        >>> found = follow_targets(table, inputs, config, IoUMatching())
        >>> found.boxes.round(3).tolist(), bool(found.num_anchors[0] > 1)
        ([[8.0, 8.0, 40.0, 40.0]], True)
    """
    anchors = anchors_of(config)
    num_anchors = np.zeros(len(table), int)
    boxes = np.zeros((len(table), 4), "float32")
    labels = np.full(len(table), -1)
    for groups in _batches(table, inputs):
        in_boxes, numbers, in_labels = _padded(table, inputs, groups)
        # Matched once by number, which tells whose an anchor is, and once by class.
        whose, _ = rule_as_arrays(matching, in_boxes, numbers, anchors, config)
        classes, deltas = rule_as_arrays(matching, in_boxes, in_labels, anchors, config)
        for image, rows in enumerate(groups):
            used = np.flatnonzero(whose[image] >= 0)
            owner = rows[whose[image][used]]
            decoded = box_ops.decode_boxes(
                deltas[image][used], anchors[used], config.box_scales
            )
            away = box_ops.iou(decoded, inputs.boxes[owner])
            order = np.lexsort((away, owner))
            found, first, counts = np.unique(
                owner[order], return_index=True, return_counts=True
            )
            worst = order[first]
            num_anchors[found] = counts
            boxes[found] = decoded[worst]
            labels[found] = classes[image][used][worst]
    return FollowedTargets(num_anchors, boxes, labels)


def rule_as_arrays(matching, boxes, labels, anchors, config):
    """The targets of a rule as arrays."""
    targets = matching(boxes, labels, anchors, config)
    return [np.asarray(ops.convert_to_numpy(target)) for target in targets]


def _batches(table, inputs) -> Iterator[list[np.ndarray]]:
    """The rows of the images that have some, a few images at once."""
    rows = np.flatnonzero(inputs.is_there)
    starts = np.flatnonzero(np.diff(table.owner[rows], prepend=-1))
    groups = np.split(rows, starts[1:]) if len(rows) else []
    for start in range(0, len(groups), _BATCH_SIZE):
        yield groups[start : start + _BATCH_SIZE]


def _padded(table, inputs, groups):
    """Boxes `[B, M, 4]`, their numbers in the image, and their labels `[B, M]`."""
    most = max(map(len, groups))
    boxes = np.zeros((len(groups), most, 4), "float32")
    numbers = np.full((len(groups), most), -1, "int32")
    labels = np.full((len(groups), most), -1, "int32")
    for image, rows in enumerate(groups):
        boxes[image, : len(rows)] = inputs.boxes[rows]
        numbers[image, : len(rows)] = np.arange(len(rows))
        labels[image, : len(rows)] = table.labels[rows]
    return boxes, numbers, labels
