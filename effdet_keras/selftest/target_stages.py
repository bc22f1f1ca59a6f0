"""The stages of matching and encoding: at which of them boxes are lost, and why."""

from __future__ import annotations

import numpy as np

from effdet_keras.geometry import box_ops
from effdet_keras.selftest.annotated_boxes import AnnotatedBoxes
from effdet_keras.selftest.followed import (
    NEARLY_WHOLE,
    Followed,
    count_lost,
    lost_boxes,
    score_after,
)
from effdet_keras.selftest.network_inputs import NetworkInputs
from effdet_keras.selftest.stages import SelfTestStage
from effdet_keras.selftest.targets import FollowedTargets

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
    """The boxes that some anchor has to predict.

    Args:
        table: `AnnotatedBoxes`.
        before: `Followed` up to here.
        inputs: `NetworkInputs`.
        targets: `FollowedTargets` of the rule.
        rule: string, its name.
        remedy: string, what would help beside other anchors.

    Returns:
        Tuple of `SelfTestStage` and `Followed`.
    """
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
    """The boxes and classes that decoding finds in the targets of training.

    Args:
        table: `AnnotatedBoxes`.
        before: `Followed` up to here.
        inputs: `NetworkInputs`.
        targets: `FollowedTargets` of the rule.
        rule: string, its name.

    Returns:
        Tuple of `SelfTestStage` and `Followed`.
    """
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
    """All of it: what is decoded from the targets, scored against the annotations.

    Args:
        table: `AnnotatedBoxes`.
        start: `Followed`, the annotations that can be found.
        end: `Followed`, what is decoded from the targets.
        rule: string, the name of the rule.

    Returns:
        `SelfTestStage`.
    """
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
