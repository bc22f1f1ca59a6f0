"""What became of the boxes of a table, and how what is lost is told."""

from __future__ import annotations

import dataclasses

import numpy as np

from effdet_keras.data.summary import count_of
from effdet_keras.selftest.stages import LostBoxes

WHOLE, NEARLY_WHOLE = 0.9999, 0.99  # AP from which a stage passes


@dataclasses.dataclass(frozen=True, eq=False)
class Followed:
    """What became of the boxes of a table so far.

    Attributes:
        boxes: floats `[n, 4]`, `yxyx` in pixels of the image.
        is_there: bools `[n]`, which are still there.
    """

    boxes: np.ndarray
    is_there: np.ndarray


def score_after(table, before, after):
    """COCO's AP of the boxes that a stage leaves, beside those before it.

    Args:
        table: `AnnotatedBoxes`.
        before, after: `Followed`.
    """
    return table.average_precision(
        before.boxes, before.is_there, after.boxes, after.is_there
    )


def lost_boxes(table, *reasons):
    """`LostBoxes` of those reasons that some box has.

    Args:
        table: `AnnotatedBoxes`.
        *reasons: tuples of bools `[n]`, the reason and the cure.

    Returns:
        Tuple of `LostBoxes`.
    """
    return tuple(
        LostBoxes(reason, int(rows.sum()), table.examples(np.flatnonzero(rows)), cure)
        for rows, reason, cure in reasons
        if rows.any()
    )


def count_boxes(count):
    """Writes how many boxes: "1 box"."""
    return count_of(int(count), "box", "boxes")


def count_lost(before, after):
    """Writes how many boxes of those before are no longer there."""
    return f"{int((before & ~after).sum()):,} of {count_boxes(before.sum())} lost"
