"""What can be wrong with the boxes and labels of a dataset."""

import dataclasses

import numpy as np

from effdet_keras.data.problems import Problem
from effdet_keras.data.record import clip_boxes_xywh
from effdet_keras.geometry import box_ops
from effdet_keras.inspection.box_formats import reach_out, suspect_box_format
from effdet_keras.inspection.coverage import input_boxes

_NORMALIZED = 1.01  # ends of boxes: some tools round beyond 1
_ROUNDING = 0.5  # pixels that a box may reach out of its image
_TWIN_IOU = 0.9  # of two boxes of one class: drawn twice
_IMBALANCE = 10.0  # times as many boxes
_TINY = 4.0  # pixels of the shorter side on the network's input; stride 8 is the finest


@dataclasses.dataclass(frozen=True)
class _Table:
    """All boxes of a dataset, one per row."""

    records: tuple
    owner: np.ndarray  # [n], the record of each
    sizes: np.ndarray  # [n, 2], (height, width) of its image
    boxes_xywh: np.ndarray  # [n, 4]
    labels: np.ndarray  # [n]
    usable: np.ndarray  # [n], whether it has an area inside its image

    def problem(self, kind, row, detail):
        return Problem(kind, self.records[self.owner[row]].name, detail)


def find_in_boxes(records, class_names, *, num_left_out=0, image_size=None):
    """Finds boxes and labels that are wrong, doubtful, or hard to learn.

    Args:
        records: sequence of `Record`.
        class_names: names in the order of the labels.
        num_left_out: int, boxes without area that the reader left out. If there are
            many, the boxes may have another format than they were read in.
        image_size: `(height, width)` of the network's input, to look for boxes
            that are tiny there. None does not look for them.

    Returns:
        List of `Problem`.

    Example:
        >>> from effdet_keras.data import from_arrays
        >>> image = np.zeros((32, 32, 3), "uint8")
        >>> boxes = [[4, 8, 20, 40], [4, 8, 20, 31]]
        >>> dataset = from_arrays([image], [boxes], [[0, 0]], ["cat"])
        >>> [p.kind for p in find_in_boxes(dataset.records, ["cat"])]
        ['clipped box', 'duplicate box']
    """
    if not records:
        return [Problem("empty dataset", "(no file)", "there is no image")]
    table = _table(tuple(records))
    problems = [
        *_find_shapes(table),
        *_find_normalized(table),
        *_find_box_format(table, num_left_out),
        *_find_labels(table, class_names),
        *_find_ids(table),
        *_find_twins(table),
        *_find_classes(table, class_names),
    ]
    if image_size is not None:
        problems += _find_tiny(table, image_size)
    return problems


def _table(records):
    owner = np.repeat(np.arange(len(records)), [len(r.labels) for r in records])
    sizes = np.array([record.image_size for record in records], float)[owner]
    boxes_xywh = np.concatenate([record.boxes_xywh for record in records])
    return _Table(
        records=records,
        owner=owner,
        sizes=sizes,
        boxes_xywh=boxes_xywh,
        labels=np.concatenate([record.labels for record in records]),
        usable=clip_boxes_xywh(boxes_xywh, sizes)[1],
    )


def _find_shapes(table):
    """Boxes that are not numbers, or that are empty, outside, or partly outside."""
    finite = np.isfinite(table.boxes_xywh).all(axis=1)
    has_area = (table.boxes_xywh[:, 2:] > 0).all(axis=1)
    out = reach_out(table.boxes_xywh, table.sizes)
    for kind, rows in (
        ("bad box", ~finite),
        ("empty box", finite & ~table.usable & ~has_area),
        ("box outside", finite & ~table.usable & has_area),
        ("clipped box", finite & table.usable & (out > _ROUNDING)),
    ):
        for row in np.flatnonzero(rows):
            detail = _describe(table.boxes_xywh[row])
            if kind == "clipped box":
                detail += f": {out[row]:.4g} pixels out of the image"
            yield table.problem(kind, row, detail)


def _find_normalized(table):
    """Images whose boxes all lie between 0 and 1."""
    ends = np.concatenate(
        [table.boxes_xywh[:, :2], table.boxes_xywh[:, :2] + table.boxes_xywh[:, 2:]], 1
    )
    is_small = np.abs(ends).max(axis=1, initial=0) <= _NORMALIZED
    is_small &= (table.boxes_xywh[:, 2:] > 0).all(axis=1)
    is_small &= table.sizes.min(axis=1, initial=np.inf) > 2
    num_small = np.bincount(table.owner[is_small], minlength=len(table.records))
    for i in np.flatnonzero(num_small):
        record = table.records[i]
        if num_small[i] == len(record.labels):
            yield Problem(
                "suspected box format",
                record.name,
                f"all its boxes lie between 0 and 1, where pixels are expected; first: "
                f"{_describe(record.boxes_xywh[0])}",
            )


def _find_box_format(table, num_left_out):
    text = suspect_box_format(table.boxes_xywh, table.sizes, num_left_out)
    if text:
        yield Problem("suspected box format", "(all images)", text)


def _find_labels(table, class_names):
    for row in np.flatnonzero((table.labels < 0) | (table.labels >= len(class_names))):
        detail = f"label {table.labels[row]}, but {len(class_names)} classes"
        yield table.problem("bad label", row, detail)


def _find_ids(table):
    ids = np.concatenate([record.annotation_ids for record in table.records])
    order = np.argsort(ids, kind="stable")
    again = order[1:][ids[order][1:] == ids[order][:-1]]
    for row in np.sort(again):
        detail = f"id {ids[row]} belongs to another annotation too"
        yield table.problem("duplicate annotation id", row, detail)


def _find_twins(table):
    """Pairs of boxes of the same class that nearly coincide in an image."""
    for record in table.records:
        if len(set(record.labels.tolist())) == len(record.labels):
            continue
        boxes, usable = clip_boxes_xywh(record.boxes_xywh, record.image_size)
        rows = np.flatnonzero(usable & ~record.is_crowd)
        iou = box_ops.pairwise_iou(boxes[rows], boxes[rows])
        same = record.labels[rows][:, None] == record.labels[rows]
        # Each second box once, however many it coincides with.
        for second in np.flatnonzero(np.triu(same & (iou >= _TWIN_IOU), 1).any(axis=0)):
            detail = f"{_describe(record.boxes_xywh[rows[second]])} is there twice"
            yield Problem("duplicate box", record.name, detail)


def _find_classes(table, class_names):
    known = table.labels[(table.labels >= 0) & (table.labels < len(class_names))]
    counts = np.bincount(known, minlength=len(class_names))
    for label in np.flatnonzero(counts == 0):
        detail = f"class {class_names[label]!r} has no box"
        yield Problem("unused class", "(all images)", detail)
    plain = [" ".join(name.casefold().split()) for name in class_names]
    for i, name in enumerate(plain):
        if name in plain[:i]:
            first = class_names[plain.index(name)]
            detail = f"{first!r} and {class_names[i]!r} are two classes"
            yield Problem("similar class names", "(all images)", detail)
    most = counts.argmax()
    for label in np.flatnonzero((counts > 0) & (counts * _IMBALANCE <= counts[most])):
        yield Problem(
            "class imbalance",
            "(all images)",
            f"{class_names[label]!r} has {counts[label]:,} boxes, "
            f"{class_names[most]!r} has {counts[most]:,}",
        )


def _find_tiny(table, image_size):
    boxes, rows = input_boxes(table.records, image_size)
    sides = boxes[:, 2:] - boxes[:, :2]
    for i in np.flatnonzero(sides.min(axis=1, initial=np.inf) < _TINY):
        height, width = sides[i]
        detail = f"{width:.1f} wide, {height:.1f} high on the network's input"
        yield table.problem("tiny box", rows[i], detail)


def _describe(box_xywh):
    left, top, width, height = box_xywh.tolist()
    return f"left {left:g}, top {top:g}, width {width:g}, height {height:g}"
