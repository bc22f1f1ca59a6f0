"""The stages before the network: at which of them boxes are lost, and why."""

from __future__ import annotations

import math

import numpy as np

from effdet_keras import box_ops
from effdet_keras.data.dataset import DetectionDataset, count_of
from effdet_keras.data.problems import KINDS, Severity
from effdet_keras.data.record import clip_boxes_xywh
from effdet_keras.evaluate.coco import COCOMetric
from effdet_keras.extras.selftest.boxes import AnnotatedBoxes, NetworkInputs
from effdet_keras.extras.selftest.stages import (
    NEARLY_WHOLE,
    WHOLE,
    Followed,
    LostBoxes,
    SelfTestStage,
    count_boxes,
    count_lost,
    lost_boxes,
    score_after,
)
from effdet_keras.model.config import EfficientDetConfig

SMALLEST = 2.0  # pixels of the input: less is no cell of the stem's first convolution
_COUNTED = 100  # detections per image and class that COCO's evaluation counts
_SHOWN = 3
_ASK_INSPECT = (
    "Are x and y exchanged, corners read as width and height, or the boxes those of an "
    "image of another size? `effdet-keras inspect DATA` tries it out."
)
# Problems of readers with boxes that are in the records, and followed.
_FOLLOWED = ("empty box", "box outside")


def check_scoring(table: AnnotatedBoxes) -> tuple[SelfTestStage, Followed]:
    """Ground truth scored against itself, which gives an AP of 1."""
    classes = table.dataset.num_classes
    has_class = (table.labels >= 0) & (table.labels < classes)
    has_area = table.has_area()
    uncounted = _beyond_what_counts(table) & has_area & has_class
    lost = lost_boxes(
        table,
        (
            ~has_class,
            "a box has a label that is no class",
            f"Labels count from 0 to {classes - 1}.",
        ),
        (
            has_class & ~has_area,
            "a box has no area: nothing can find it, and evaluation counts it as "
            "missed",
            "Correct or remove them.",
        ),
        (
            uncounted,
            f"a box comes after the {_COUNTED} of its class in an image that "
            "evaluation counts",
            "Cut the images into tiles, or evaluate with "
            "`COCOMetric(max_detections=...)`.",
        ),
    )
    followed = Followed(table.boxes, has_class & has_area)
    if not len(table):
        return _nothing_to_find(table), followed
    stage = SelfTestStage(
        "scoring",
        _scored_against_itself(table, followed.is_there),
        WHOLE,
        f"{count_boxes(len(table))} of {count_of(len(table.dataset), 'image')}, each "
        "scored as its own detection",
        lost,
        "Annotations are wrong: see below" if lost else "",
        has_error=bool((~has_class).any()),
    )
    return stage, followed


def check_reading(
    table: AnnotatedBoxes, before: Followed, inputs: NetworkInputs
) -> tuple[SelfTestStage, Followed]:
    """The boxes that training reads, clipped to images that can be read."""
    sizes = np.array([r.image_size for r in table.dataset.records]).reshape(-1, 2)
    xywh = box_ops.yxyx_to_xywh(table.boxes)
    boxes, usable = clip_boxes_xywh(xywh, sizes[table.owner])
    is_read = inputs.image_scales[table.owner] > 0
    fractions = _are_fractions(table, sizes)
    cut = usable & (box_ops.iou(boxes.astype("float64"), table.boxes) < 0.5)
    there = before.is_there
    lost = lost_boxes(
        table,
        (
            there & ~is_read,
            "a box is in an image that cannot be read, or has another size than "
            "annotated",
            "`effdet-keras inspect DATA` names each image; save it again, or correct "
            "its annotation.",
        ),
        (
            there & is_read & ~usable,
            "a box lies outside of its image",
            _ASK_INSPECT,
        ),
        (
            there & is_read & usable & fractions,
            "a box lies between 0 and 1, where pixels are expected",
            "Multiply them by width and height of the image.",
        ),
        (
            there & is_read & cut & ~fractions,
            "a box lies mostly outside of its image, and is cut to its border",
            _ASK_INSPECT,
        ),
    )
    told, has_error = _told_by_reader(table.dataset.problems)
    is_there = there & is_read & usable & ~fractions & ~cut
    detail = f"{count_lost(there, is_there)}, clipped to their images"
    cure = "The dataset has to be repaired: see below"
    after = Followed(boxes.astype("float64"), is_there)
    number = score_after(table, before, after)
    stage = SelfTestStage(
        "reading", number, NEARLY_WHOLE, detail, (*told, *lost), cure, has_error
    )
    return stage, after


def check_letterbox(
    table: AnnotatedBoxes,
    before: Followed,
    inputs: NetworkInputs,
    config: EfficientDetConfig,
) -> tuple[SelfTestStage, Followed]:
    """The boxes on the network's input, and back in their image."""
    there = before.is_there
    sides = (inputs.boxes[:, 2:] - inputs.boxes[:, :2]).min(axis=1, initial=np.inf)
    large_enough = inputs.is_there & (sides >= SMALLEST)
    height, width = config.image_size
    lost = lost_boxes(
        table,
        (
            there & ~large_enough,
            f"a box is too small on the network's input of {height}x{width}: less "
            f"than {SMALLEST:g} pixels high or wide",
            _cure_of_small_boxes(config, sides[there & inputs.is_there]),
        ),
    )
    boxes = inputs.boxes * inputs.image_scales[table.owner][:, None]
    after = Followed(boxes, there & large_enough)
    number = score_after(table, before, after)
    stage = SelfTestStage(
        "letterbox",
        number,
        NEARLY_WHOLE,
        f"{count_lost(there, after.is_there)}, on an input of {height}x{width}",
        lost,
        lost[0].cure
        if lost
        else "Rounding moves such small boxes: take a larger input (--image-size)",
    )
    return stage, after


def _nothing_to_find(table):
    crowds = sum(int(record.is_crowd.sum()) for record in table.dataset.records)
    cure = "Is the split the right one, and does the file have its annotations?"
    if crowds:
        cure = (
            f"All {crowds:,} annotations are crowd regions (or VOC's difficult "
            "objects), which are neither trained on nor counted: set `iscrowd` to 0"
        )
    told, has_error = _told_by_reader(table.dataset.problems)
    if has_error:
        cure = "The reader left boxes or images out: see below"
    images = count_of(len(table.dataset), "image")
    return SelfTestStage("scoring", -1.0, WHOLE, f"no box in {images}", told, cure)


def _scored_against_itself(table, rows):
    """AP of COCO's evaluation as it is, with the file's own areas and crowds."""
    dataset = table.dataset
    known = [
        record.select((record.labels >= 0) & (record.labels < dataset.num_classes))
        for record in dataset.records
    ]
    ids = dataset.category_ids
    metric = COCOMetric(DetectionDataset(known, dataset.class_names, ids).to_coco())
    ids = np.asarray(ids)
    for number, image_id in enumerate(dataset.image_ids):
        mine = np.flatnonzero(rows & (table.owner == number))
        scores = np.ones(len(mine))
        metric.update(image_id, table.boxes[mine], scores, ids[table.labels[mine]])
    return metric.result()["AP"]


def _beyond_what_counts(table):
    """Boxes whose place among those of their class and image is beyond 100."""
    seen: dict = {}
    beyond = np.zeros(len(table), bool)
    for row, key in enumerate(zip(table.owner.tolist(), table.labels.tolist())):
        seen[key] = seen.get(key, 0) + 1
        beyond[row] = seen[key] > _COUNTED
    return beyond


def _are_fractions(table, sizes):
    """Boxes of images whose boxes, two or more, all lie between 0 and 1."""
    is_small = (np.abs(table.boxes) <= 1.01).all(axis=1)
    is_small &= (sizes[table.owner] > 2).all(axis=1)
    count = np.bincount(table.owner, minlength=len(sizes))
    small = np.bincount(table.owner[is_small], minlength=len(sizes))
    all_small = (small == count) & ((count > 1) | (small.sum() == len(table)))
    return is_small & all_small[table.owner]


def _told_by_reader(problems):
    """What a reader left out before there was a record, and whether it is an error."""
    kinds: dict = {}
    for problem in problems:
        if problem.kind not in _FOLLOWED:
            kinds.setdefault(problem.kind, []).append(problem)
    told = tuple(
        LostBoxes(
            f"'{kind}': {KINDS[kind].consequence}",
            len(found),
            tuple(str(problem) for problem in found[:_SHOWN]),
        )
        for kind, found in kinds.items()
    )
    return told, any(KINDS[kind].severity is Severity.ERROR for kind in kinds)


def _cure_of_small_boxes(config, sides):
    """The input at which 99 of 100 boxes are large enough, if there is one."""
    smallest = max(float(np.quantile(sides, 0.01)) if len(sides) else 0.0, 0.0)
    longest = max(config.image_size)
    if smallest * 8 < SMALLEST:
        return (
            "Cut the images into tiles; or were the boxes annotated in another unit "
            "than pixels?"
        )
    needed = math.ceil(longest * SMALLEST / smallest / 128) * 128
    if needed <= longest:
        return "Remove them, or cut the images into tiles."
    return (
        f"With --image-size {needed} 99 % of the boxes are large enough; or cut the "
        "images into tiles."
    )
