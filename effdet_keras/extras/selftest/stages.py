"""What a self-test found: stages, each with a number, what was lost, and a cure."""

from __future__ import annotations

import dataclasses
import textwrap

import numpy as np

from effdet_keras.data.dataset import count_of

_WIDTH = 88


@dataclasses.dataclass(frozen=True)
class LostBoxes:
    """Boxes that a stage loses for one reason, or problems that the reader had.

    Attributes:
        reason: string, why: "a box lies outside of its image".
        count: int, how many.
        examples: tuple of strings, the first few: file names and boxes.
        cure: string, what to do about it.
    """

    reason: str
    count: int
    examples: tuple[str, ...] = ()
    cure: str = ""


@dataclasses.dataclass(frozen=True)
class SelfTestStage:
    """One stage of a self-test.

    `print(stage)` shows one line, and what was lost below it.

    Attributes:
        name: string, such as "letterbox".
        average_precision: float, COCO's AP of what the stage leaves; -1 where there is
            nothing to measure.
        needed: float, the AP from which the stage passes.
        detail: string, what was counted.
        lost: tuple of `LostBoxes`; empty where nothing is.
        cure: string, what to do if the stage fails.
        has_error: bool, whether it fails whatever its AP.
    """

    name: str
    average_precision: float
    needed: float
    detail: str
    lost: tuple[LostBoxes, ...] = ()
    cure: str = ""
    has_error: bool = False

    @property
    def passed(self) -> bool:
        """Whether nothing that matters is lost."""
        return not self.has_error and self.average_precision >= self.needed

    def __str__(self):
        status = "passed" if self.passed else "FAILED"
        measured = self.average_precision >= 0
        number = f"{self.average_precision:.3f}" if measured else "-"
        line = f"{status}  {self.name:<16} AP {number:<6} {self.detail}"
        if not self.passed and self.cure:
            line += f". {self.cure}"
        return "\n".join([line, *_lines(self.lost)])


@dataclasses.dataclass(frozen=True)
class SelfTestReport:
    """What `self_test` found. `print(report)` shows it.

    Attributes:
        stages: tuple of `SelfTestStage`, in their order.
    """

    stages: tuple[SelfTestStage, ...]

    @property
    def ok(self) -> bool:
        """Whether all stages passed."""
        return all(stage.passed for stage in self.stages)

    def stage(self, name: str) -> SelfTestStage:
        """Returns the stage of a name.

        Raises:
            KeyError: If there is none.
        """
        return {stage.name: stage for stage in self.stages}[name]

    def verdict(self) -> str:
        """Returns one sentence: whether all is well, or which stage to look at."""
        failed = [stage.name for stage in self.stages if not stage.passed]
        if not failed:
            return f"All {len(self.stages)} stages passed."
        return (
            f"{len(failed)} of {len(self.stages)} stages failed: {', '.join(failed)}. "
            "Begin with the first: later ones often fail because of it."
        )

    def __str__(self):
        return "\n".join([*map(str, self.stages), self.verdict()])


def _lines(lost):
    for part in lost:
        text = f"{part.count:,} x {part.reason}. {part.cure}".rstrip()
        yield textwrap.fill(
            text, _WIDTH, initial_indent=" " * 8, subsequent_indent=" " * 10
        )
        for example in part.examples:
            yield f"{' ' * 10}{example}"


# --- What became of the boxes of a table, and how what is lost is told.

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
    """COCO's AP of the boxes that a stage leaves, beside those before it."""
    return table.average_precision(
        before.boxes, before.is_there, after.boxes, after.is_there
    )


def lost_boxes(table, *reasons):
    """`LostBoxes` of those reasons that some box has.

    Args:
        *reasons: tuples of bools `[n]`, the reason and the cure.
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
