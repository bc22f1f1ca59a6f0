"""The stages of a self-test before the network: an AP, lost boxes, and a cure."""

from __future__ import annotations

import dataclasses
import textwrap

import numpy as np

from effdet_keras import box_ops
from effdet_keras.data.dataset import count_of
from effdet_keras.data.problems import KINDS, Severity
from effdet_keras.data.record import clip_boxes_xywh
from effdet_keras.extras.selftest.boxes import Followed

_WIDTH = 88
_WHOLE, _NEARLY_WHOLE = 0.9999, 0.99  # AP from which a stage passes
_SMALLEST = 2.0  # pixels of the input: the cell size of the stem's first convolution
_SHOWN = 3
_ASK_INSPECT = (
    "Are x and y swapped, corners read as width and height, or do the boxes belong "
    "to an image of another size? `effdet-keras inspect DATA` tests these cases."
)
# Reported problems whose boxes are still in the records, and are followed.
_FOLLOWED = ("empty box", "box outside")


@dataclasses.dataclass(frozen=True)
class LostBoxes:
    """Boxes that a stage loses for one reason, or problems reported by the reader."""

    reason: str  # such as "a box lies outside of its image"
    count: int
    examples: tuple[str, ...] = ()  # the first few: file names and boxes
    cure: str = ""


@dataclasses.dataclass(frozen=True)
class SelfTestStage:
    """One stage of a self-test; `print` shows a line, and the lost boxes below it."""

    name: str
    average_precision: float  # COCO's AP of the boxes it leaves; -1 if there are none
    needed: float  # the AP from which the stage passes
    detail: str  # the counts of boxes
    lost: tuple[LostBoxes, ...] = ()
    cure: str = ""  # what to do if the stage fails
    has_error: bool = False  # whether it fails regardless of its AP

    @property
    def passed(self) -> bool:
        """Whether the AP is high enough, and there is no error."""
        return not self.has_error and self.average_precision >= self.needed

    def __str__(self):
        status = "passed" if self.passed else "FAILED"
        measured = self.average_precision >= 0
        number = f"{self.average_precision:.3f}" if measured else "-"
        line = f"{status}  {self.name:<16} AP {number:<6} {self.detail}"
        if not self.passed and self.cure:
            line += f". {self.cure}"
        lines = [line]
        for part in self.lost:
            is_told = not self.passed and part.cure == self.cure
            text = f"{part.count:,} x {part.reason}. {'' if is_told else part.cure}"
            indent = {"initial_indent": " " * 8, "subsequent_indent": " " * 10}
            lines.append(textwrap.fill(text.rstrip(), _WIDTH, **indent))
            lines += [" " * 10 + example for example in part.examples]
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class SelfTestReport:
    """The result of `self_test`: its stages in order. `print` shows it."""

    stages: tuple[SelfTestStage, ...]

    @property
    def ok(self) -> bool:
        """Whether all stages passed."""
        return all(stage.passed for stage in self.stages)

    def stage(self, name: str) -> SelfTestStage:
        """Returns the stage with a name."""
        return {stage.name: stage for stage in self.stages}[name]

    def verdict(self) -> str:
        """Returns one sentence: that all stages passed, or which ones to look at."""
        failed = [stage.name for stage in self.stages if not stage.passed]
        if not failed:
            return f"All {len(self.stages)} stages passed."
        return (
            f"{len(failed)} of {len(self.stages)} stages failed: {', '.join(failed)}. "
            "Begin with the first: later ones often fail because of it."
        )

    def __str__(self):
        return "\n".join([*map(str, self.stages), self.verdict()])


# --- The stages. Each receives the boxes that the one before left, and returns its own.


def check_scoring(table):
    """Scores the ground truth against itself, which should give an AP of 1."""
    dataset, labels = table.dataset, table.labels
    has_class = (labels >= 0) & (labels < dataset.num_classes)
    has_area = table.has_area()
    followed = Followed(table.boxes, has_class & has_area)
    if not len(table):
        return _nothing_to_find(dataset), followed
    lost = _lost_boxes(
        table,
        (
            ~has_class,
            "the label of a box is not a class",
            f"Labels must be from 0 to {dataset.num_classes - 1}.",
        ),
        (
            has_class & ~has_area,
            "a box has no area: no detector can find it, and the evaluation counts "
            "it as missed",
            "Correct or remove these boxes.",
        ),
    )
    stage = SelfTestStage(
        "scoring",
        table.average_precision(Followed(table.boxes, has_class), followed),
        _WHOLE,
        f"{_count(len(table))} of {count_of(len(dataset), 'image')}, each scored as "
        "its own detection",
        lost,
        "Annotations are wrong: see below" if lost else "",
        has_error=bool((~has_class).any()),
    )
    return stage, followed


def _nothing_to_find(dataset):
    cure = (
        "Is this the right split, and does the file have annotations for it? Crowd "
        "regions (or VOC's difficult objects) are not counted: set `iscrowd` to 0"
    )
    reported, _ = _reported_by_reader(dataset.problems)
    detail = f"there is no box in {count_of(len(dataset), 'image')}"
    return SelfTestStage("scoring", -1.0, _WHOLE, detail, reported, cure)


def _reported_by_reader(problems):
    """Returns what a reader left out of the records, and whether that is an error."""
    kinds: dict = {}
    for problem in problems:
        if problem.kind not in _FOLLOWED:
            kinds.setdefault(problem.kind, []).append(problem)
    reported = tuple(
        LostBoxes(
            f"'{kind}': {KINDS[kind].consequence}",
            len(found),
            tuple(str(problem) for problem in found[:_SHOWN]),
        )
        for kind, found in kinds.items()
    )
    return reported, any(KINDS[kind].severity is Severity.ERROR for kind in kinds)


def check_reading(table, before, inputs):
    """Checks the boxes that training reads, clipped to readable images."""
    sizes = np.array([r.image_size for r in table.dataset.records]).reshape(-1, 2)
    xywh = box_ops.yxyx_to_xywh(table.boxes)
    boxes, usable = clip_boxes_xywh(xywh, sizes[table.owner])
    boxes = boxes.astype("float64")
    there, is_read = before.is_there, inputs.image_scales[table.owner] > 0
    inside = usable & (box_ops.iou(boxes, table.boxes) >= 0.5)
    lost = _lost_boxes(
        table,
        (
            there & ~is_read,
            "a box is in an image that cannot be read, or that has another size than "
            "its annotation says",
            "`effdet-keras inspect DATA` lists these images; save them again, or "
            "correct their annotations.",
        ),
        (
            there & is_read & ~inside,
            "more than half of a box lies outside of its image",
            _ASK_INSPECT,
        ),
    )
    reported, has_error = _reported_by_reader(table.dataset.problems)
    after = Followed(boxes, there & is_read & inside)
    detail = f"{_count_lost(before, after)}, clipped to their images"
    cure = "The dataset must be corrected: see below"
    stage = _stage("reading", table, before, after, detail, (*reported, *lost), cure)
    return dataclasses.replace(stage, has_error=has_error), after


def check_letterbox(table, before, inputs, config):
    """Checks the boxes on the network's input, and moved back to their images."""
    there = before.is_there
    sides = (inputs.boxes[:, 2:] - inputs.boxes[:, :2]).min(axis=1, initial=np.inf)
    large_enough = inputs.is_there & (sides >= _SMALLEST)
    height, width = config.image_size
    cure = "Rounding moves such small boxes: use a larger input (--image-size)"
    lost = _lost_boxes(
        table,
        (
            there & ~large_enough,
            f"a box is too small on the network's input of {height}x{width}: less "
            f"than {_SMALLEST:g} pixels high or wide",
            "Use a larger input (--image-size), or cut the images into tiles.",
        ),
    )
    boxes = inputs.boxes * inputs.image_scales[table.owner][:, None]
    after = Followed(boxes, there & large_enough)
    detail = f"{_count_lost(before, after)}, on an input of {height}x{width}"
    cure = lost[0].cure if lost else cure
    return _stage("letterbox", table, before, after, detail, lost, cure), after


def check_matching(table, before, targets, rule):
    """Checks which boxes an anchor has to predict."""
    after = Followed(before.boxes, before.is_there & (targets.num_anchors > 0))
    cure = (
        "Remove duplicate boxes. To keep small boxes apart, use a larger input "
        "(--image-size) or other anchors (`effdet-keras inspect DATA --anchors`)."
    )
    lost = _lost_boxes(
        table,
        (
            before.is_there & ~after.is_there,
            "a box gets no anchor, because another box has the anchor that it "
            "overlaps most",
            cure,
        ),
    )
    counts = targets.num_anchors[after.is_there]
    median = float(np.median(counts)) if len(counts) else 0.0
    alone = 100 * float(np.mean(counts == 1)) if len(counts) else 0.0
    detail = (
        f"{_count_lost(before, after)}; {median:g} anchors per box (median), only one "
        f"anchor for {alone:.1f} %"
    )
    return _stage(f"matching ({rule})", table, before, after, detail, lost, cure), after


def check_encoding(table, before, inputs, targets, rule):
    """Checks the boxes and classes that decoding finds in the targets of training."""
    there = before.is_there
    boxes = targets.boxes * inputs.image_scales[table.owner][:, None]
    overlap = box_ops.iou(boxes.astype("float64"), before.boxes.astype("float64"))
    other_class = targets.labels != table.labels
    elsewhere = ~(overlap >= 0.5)  # NaN counts as elsewhere
    cure = (
        "Targets and decoding do not agree: if you use your own matching, anchors or "
        "losses, compare them with `encode_boxes` in `box_ops.py`; otherwise please "
        "report this as a bug."
    )
    lost = _lost_boxes(
        table,
        (
            there & (other_class | elsewhere),
            "a box is decoded with another class or at another place",
            cure,
        ),
    )
    after = Followed(boxes, there & ~other_class & ~elsewhere)
    # Boxes of another class, or elsewhere, are scored, too, as wrong detections.
    is_scored = there & (targets.labels >= 0) & np.isfinite(boxes).all(axis=1)
    found, name = Followed(boxes, is_scored), f"encoding ({rule})"
    detail = f"{_count_lost(before, after)}, encoded, decoded and scored"
    return _stage(name, table, before, found, detail, lost, cure, targets.labels), after


def check_whole_way(table, start, end, rule):
    """Checks all stages together: scores decoded targets against the annotations."""
    detail = (
        f"{_count_lost(start, end)}: the best that a detector can reach on this data"
    )
    cure = "The stages above show where boxes are lost"
    return _stage(f"all of it ({rule})", table, start, end, detail, (), cure)


def _stage(name, table, before, found, detail, lost, cure, labels=None):
    """Returns a stage that nearly all boxes should pass."""
    precision = table.average_precision(before, found, labels)
    return SelfTestStage(name, precision, _NEARLY_WHOLE, detail, lost, cure)


def _lost_boxes(table, *reasons):
    """Returns `LostBoxes` for those `(bools [n], reason, cure)` that have any."""
    return tuple(
        LostBoxes(reason, int(rows.sum()), table.examples(np.flatnonzero(rows)), cure)
        for rows, reason, cure in reasons
        if rows.any()
    )


def _count(count):
    return count_of(int(count), "box", "boxes")


def _count_lost(before, after):
    """Returns how many boxes have been lost, as text."""
    lost = int((before.is_there & ~after.is_there).sum())
    return f"{lost:,} of {_count(before.is_there.sum())} lost"
