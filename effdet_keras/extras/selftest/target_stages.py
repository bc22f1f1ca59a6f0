"""The stages of matching and encoding: at which of them boxes are lost, and why."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
from keras import ops

from effdet_keras import box_ops
from effdet_keras.extras.selftest.boxes import AnnotatedBoxes, NetworkInputs
from effdet_keras.extras.selftest.stages import (
    NEARLY_WHOLE,
    Followed,
    SelfTestStage,
    count_lost,
    lost_boxes,
    score_after,
)
from effdet_keras.model.anchors import anchors_of
from effdet_keras.model.config import EfficientDetConfig
from effdet_keras.train.matching import Matching

_SAME = 0.9  # IoU of two annotations of one object


def check_matching(
    table: AnnotatedBoxes,
    before: Followed,
    inputs: NetworkInputs,
    targets: FollowedTargets,
    *,
    rule: str,
    remedy: str = "",
) -> tuple[SelfTestStage, Followed]:
    """The boxes that some anchor has to predict."""
    there, has_anchor = before.is_there, targets.num_anchors > 0
    rows = np.flatnonzero(there & ~has_anchor)
    is_copy = np.zeros(len(table), bool)
    is_copy[[row for row in rows if _has_copy(table, inputs, row)]] = True
    cure = (
        "Remove the copies.",
        "A larger input (--image-size) or other anchors (`effdet-keras inspect DATA "
        f"--anchors`) tell them apart.{remedy}",
    )
    lost = lost_boxes(
        table,
        (
            there & ~has_anchor & is_copy,
            "a box gets no anchor, because a box at the same place has it",
            cure[0],
        ),
        (
            there & ~has_anchor & ~is_copy,
            "a box gets no anchor, because another has the one it overlaps most",
            cure[1],
        ),
    )
    after = Followed(before.boxes, there & has_anchor)
    number = score_after(table, before, after)
    counts = targets.num_anchors[after.is_there]
    median = float(np.median(counts)) if len(counts) else 0.0
    alone = 100 * float(np.mean(counts == 1)) if len(counts) else 0.0
    stage = SelfTestStage(
        f"matching ({rule})",
        number,
        NEARLY_WHOLE,
        f"{count_lost(there, after.is_there)}; {median:g} anchors for a box (median), "
        f"one alone for {alone:.1f} %",
        lost,
        max(lost, key=lambda part: part.count).cure if lost else "",
    )
    return stage, after


def check_encoding(
    table: AnnotatedBoxes,
    before: Followed,
    inputs: NetworkInputs,
    targets: FollowedTargets,
    *,
    rule: str,
) -> tuple[SelfTestStage, Followed]:
    """The boxes and classes that decoding finds in the targets of training."""
    there = before.is_there
    boxes = targets.boxes * inputs.image_scales[table.owner][:, None]
    overlap = box_ops.iou(boxes.astype("float64"), before.boxes.astype("float64"))
    other_class = targets.labels != table.labels
    elsewhere = ~(overlap >= 0.5)  # which NaN is not
    cure = (
        "Targets and decoding do not fit together: if matching, anchors or losses are "
        "yours, compare them with `ek.box_ops.encode_boxes`; else report a fault."
    )
    lost = lost_boxes(
        table,
        (there & other_class, "a box is decoded as another class", cure),
        (there & elsewhere & ~other_class, "a box is decoded at another place", cure),
    )
    after = Followed(boxes, there & ~other_class & ~elsewhere)
    # Scored as they are: a box of another class, or elsewhere, is a wrong detection.
    is_scored = there & (targets.labels >= 0) & np.isfinite(boxes).all(axis=1)
    number = table.average_precision(
        before.boxes, there, boxes, is_scored, targets.labels
    )
    detail = f"{count_lost(there, after.is_there)}, encoded, decoded and scored"
    stage = SelfTestStage(
        f"encoding ({rule})", number, NEARLY_WHOLE, detail, lost, cure
    )
    return stage, after


def check_whole_way(
    table: AnnotatedBoxes, start: Followed, end: Followed, *, rule: str
) -> SelfTestStage:
    """All of it: what is decoded from the targets, scored against the annotations."""
    number = score_after(table, start, end)
    return SelfTestStage(
        f"all of it ({rule})",
        number,
        NEARLY_WHOLE,
        f"{count_lost(start.is_there, end.is_there)}: the best that a detector can "
        "reach on this data",
        cure="The stages above say where",
    )


def _has_copy(table, inputs, row):
    others = np.flatnonzero(table.owner == table.owner[row])
    others = others[(others != row) & inputs.is_there[others]]
    overlap = box_ops.pairwise_iou(inputs.boxes[row : row + 1], inputs.boxes[others])
    return bool((overlap >= _SAME).any())


# --- What matching and encoding make of boxes, and what decoding makes of that.

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

    Example:
        >>> from effdet_keras.data.formats.arrays import from_arrays
        >>> from effdet_keras.train.matching import IoUMatching
        >>> from effdet_keras.extras.selftest.boxes import read_network_inputs
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
