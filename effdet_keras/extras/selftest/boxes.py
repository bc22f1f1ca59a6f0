"""The boxes of a dataset in one table, in which each box is followed by its row."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import NamedTuple

import numpy as np
from keras import ops

from effdet_keras import box_ops
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.record import concat_field, owners
from effdet_keras.errors import InvalidValueError
from effdet_keras.evaluate.coco import metric_of
from effdet_keras.evaluate.image_result import ImageResult
from effdet_keras.extras.data_check.check import describe_box
from effdet_keras.network.anchors import anchors_of
from effdet_keras.train.inputs import ErrorContext

_SHOWN = 3  # number of boxes that are shown as examples
_BATCH_SIZE = 8


@dataclasses.dataclass(frozen=True, eq=False)
class AnnotatedBoxes:
    """All boxes of a dataset except crowd regions, one per row."""

    dataset: DetectionDataset
    owner: np.ndarray  # ints `[n]`, index of the record of a box
    row: np.ndarray  # ints `[n]`, index of a box in its record
    boxes: np.ndarray  # float64 `[n, 4]`, `yxyx` in pixels, as annotated
    labels: np.ndarray  # ints `[n]`

    @classmethod
    def of(cls, dataset: DetectionDataset) -> AnnotatedBoxes:
        records = dataset.records
        single = ~concat_field(records, "is_crowd")
        rows = [np.zeros(0, int), *(np.arange(len(r.labels)) for r in records)]
        boxes = concat_field(records, "boxes_xywh")[single].reshape(-1, 4)
        return cls(
            dataset,
            owner=owners(records)[single],
            row=np.concatenate(rows)[single],
            boxes=box_ops.xywh_to_yxyx(boxes),
            labels=concat_field(records, "labels")[single].astype(int),
        )

    def __len__(self):
        return len(self.owner)

    def has_area(self):
        """Returns bools `[n]`, which boxes are finite and have an area."""
        sides = self.boxes[:, 2:] - self.boxes[:, :2]
        return np.isfinite(self.boxes).all(axis=1) & (sides > 0).all(axis=1)

    def examples(self, rows):
        """Returns the first of some rows as text: file, class and box."""
        return tuple(self._describe(int(row)) for row in rows[:_SHOWN])

    def _describe(self, row):
        record = self.dataset.records[self.owner[row]]
        box = describe_box(record.boxes_xywh[self.row[row]])
        label, names = int(self.labels[row]), self.dataset.class_names
        name = names[label] if 0 <= label < len(names) else f"label {label}"
        return f"{record.name}: {name}, {box}"

    def average_precision(self, truth, found, labels=None):
        """Returns COCO's AP of followed boxes, each a detection with a score of 1.

        `truth` and `found` are `Followed`; `labels` are the labels of `found`.
        """
        labels = self.labels if labels is None else labels
        results = []
        for number, image_id in enumerate(self.dataset.image_ids):
            is_own = self.owner == number
            true, seen = is_own & truth.is_there, is_own & found.is_there
            of_truth = truth.boxes[true], self.labels[true]
            of_found = found.boxes[seen], np.ones(seen.sum()), labels[seen]
            results.append(ImageResult(image_id, *of_truth, *of_found))
        most = max(10, len(self))
        metric = metric_of(results, self.dataset.class_names, max_detections=most)
        return metric.result()["AP"]


class Followed(NamedTuple):
    """The boxes of a table after some stages."""

    boxes: np.ndarray  # floats `[n, 4]`, `yxyx` in pixels of the image
    is_there: np.ndarray  # bools `[n]`, which ones are still there


class NetworkInputs(NamedTuple):
    """The boxes of a table as the network receives them."""

    boxes: np.ndarray  # float32 `[n, 4]`, `yxyx` in pixels of the input; zeros if lost
    is_there: np.ndarray  # bools `[n]`, which ones the network receives
    image_scales: np.ndarray  # float32, one per image; 0 if it cannot be read


def read_network_inputs(table, config):
    """Reads a dataset with the pipeline of evaluation, including the letterbox.

    The label of each box is its index in its image, which identifies it afterwards.
    """
    records = table.dataset.records
    most = max((len(record.labels) for record in records), default=0)
    numbered = DetectionDataset(
        (dataclasses.replace(r, labels=np.arange(len(r.labels))) for r in records),
        [str(number) for number in range(max(most, 1))],
    )
    batches = numbered.batches(
        _BATCH_SIZE,
        image_size=config.image_size,
        pad_value=config.padding_rgb,
        resize_method=config.resize_method,
    )
    at = {key: n for n, key in enumerate(zip(table.owner.tolist(), table.row.tolist()))}
    place = {record.image_id: number for number, record in enumerate(records)}
    boxes, is_there = np.zeros((len(table), 4), "float32"), np.zeros(len(table), bool)
    scales = np.zeros(len(records), "float32")
    for truth in _ground_truth(batches):
        for index, image_id in enumerate(truth["image_id"].tolist()):
            owner = place[image_id]
            scales[owner] = truth["image_scale"][index]
            for box, row in zip(truth["boxes"][index], truth["labels"][index]):
                if row >= 0:
                    boxes[at[owner, int(row)]] = box
                    is_there[at[owner, int(row)]] = True
    return NetworkInputs(boxes, is_there, scales)


def _ground_truth(batches):
    """Yields the ground truth of each batch; nothing if no image can be read."""
    with contextlib.suppress(InvalidValueError), ErrorContext(batches).plain_errors():
        for _, truth in batches.as_numpy_iterator():
            yield truth


class FollowedTargets(NamedTuple):
    """The targets of anchors, collected for each box.

    Of the boxes to which the anchors of a box decode, `boxes` has the one that is
    farthest from it: float32 `[n, 4]`, `yxyx` in pixels of the input, zeros for a box
    without an anchor. `labels` has the class of that anchor.
    """

    num_anchors: np.ndarray  # ints `[n]`, number of anchors that have to predict a box
    boxes: np.ndarray
    labels: np.ndarray


def follow_targets(table, inputs, config, matching):
    """Matches boxes with anchors, encodes them like training, and decodes them."""
    anchors = anchors_of(config)
    num_anchors = np.zeros(len(table), int)
    boxes = np.zeros((len(table), 4), "float32")
    labels = np.full(len(table), -1)

    def targets_of(boxes, labels):
        targets = matching(boxes, labels, anchors, config)
        return [np.asarray(ops.convert_to_numpy(target)) for target in targets]

    for rows in _rows_by_image(table, inputs):
        in_boxes, in_labels = inputs.boxes[rows][None], table.labels[rows][None]
        numbers = np.arange(len(rows), dtype="int32")[None]
        # Match twice: once by number, which identifies the box, and once by class.
        (whose,), _ = targets_of(in_boxes, numbers)
        (classes,), (deltas,) = targets_of(in_boxes, in_labels.astype("int32"))
        used = np.flatnonzero(whose >= 0)
        owner = rows[whose[used]]
        decoded = box_ops.decode_boxes(deltas[used], anchors[used], config.box_scales)
        away = box_ops.iou(decoded, inputs.boxes[owner])
        order = np.lexsort((away, owner))
        found, first, counts = np.unique(
            owner[order], return_index=True, return_counts=True
        )
        worst = order[first]
        num_anchors[found] = counts
        boxes[found] = decoded[worst]
        labels[found] = classes[used][worst]
    return FollowedTargets(num_anchors, boxes, labels)


def _rows_by_image(table, inputs):
    """Returns, for each image that has any, the rows of boxes that are still there."""
    rows = np.flatnonzero(inputs.is_there)
    starts = np.flatnonzero(np.diff(table.owner[rows])) + 1
    return np.split(rows, starts) if len(rows) else []
