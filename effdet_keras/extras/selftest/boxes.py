"""The boxes of a dataset in one table, so that each can be followed by its row."""

from __future__ import annotations

import contextlib
import dataclasses

import numpy as np

from effdet_keras import box_ops
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.errors import InvalidValueError
from effdet_keras.evaluate.coco import COCOMetric
from effdet_keras.model.config import EfficientDetConfig
from effdet_keras.train.run import Run

_SHOWN = 3  # examples of boxes


@dataclasses.dataclass(frozen=True, eq=False)
class AnnotatedBoxes:
    """All boxes of a dataset but its crowd regions, one per row.

    Attributes:
        dataset: `DetectionDataset`.
        owner: ints `[n]`, the record that a box belongs to.
        row: ints `[n]`, its place in that record.
        boxes: float64 `[n, 4]`, `yxyx` in pixels of the image, as they are annotated.
        labels: ints `[n]`.
    """

    dataset: DetectionDataset
    owner: np.ndarray
    row: np.ndarray
    boxes: np.ndarray
    labels: np.ndarray

    @classmethod
    def of(cls, dataset: DetectionDataset) -> AnnotatedBoxes:
        """Makes the table of a dataset.

        Example:
            >>> from effdet_keras.data.formats.arrays import from_arrays
            >>> image = np.zeros((32, 32, 3), "uint8")
            >>> boxes = [[[4, 8, 20, 24]], [[0, 0, 8, 8], [8, 8, 16, 16]]]
            >>> table = AnnotatedBoxes.of(
            ...     from_arrays([image, image], boxes, [[0], [0, 0]], ["cat"]))
            >>> table.owner.tolist(), table.row.tolist()
            ([0, 1, 1], [0, 0, 1])
        """
        records = dataset.records
        single = [np.flatnonzero(~record.is_crowd) for record in records]
        counts = [len(rows) for rows in single]
        boxes = [r.boxes_xywh[rows] for r, rows in zip(records, single)]
        labels = [r.labels[rows] for r, rows in zip(records, single)]
        return cls(
            dataset,
            owner=np.repeat(np.arange(len(records)), counts),
            row=np.concatenate([np.zeros(0, int), *single]),
            boxes=box_ops.xywh_to_yxyx(np.concatenate([np.zeros((0, 4)), *boxes])),
            labels=np.concatenate([np.zeros(0, int), *labels]),
        )

    def __len__(self):
        return len(self.owner)

    def has_area(self) -> np.ndarray:
        """Which boxes have finite numbers and an area, bools `[n]`."""
        sides = self.boxes[:, 2:] - self.boxes[:, :2]
        return np.isfinite(self.boxes).all(axis=1) & (sides > 0).all(axis=1)

    def examples(self, rows: np.ndarray) -> tuple[str, ...]:
        """The first of some rows in words: file, class and box."""
        return tuple(self._describe(int(row)) for row in rows[:_SHOWN])

    def average_precision(
        self,
        truth: np.ndarray,
        is_truth: np.ndarray,
        found: np.ndarray,
        is_found: np.ndarray,
        labels: np.ndarray | None = None,
    ) -> float:
        """COCO's AP of boxes that were followed, each a detection with the score 1.

        Args:
            truth: floats `[n, 4]`, `yxyx` in pixels of the image, what is to be found.
            is_truth: bools `[n]`, which of them count.
            found: floats `[n, 4]`, what became of them.
            is_found: bools `[n]`, which are still there.
            labels: ints `[n]` of what was found; None for those of the annotations.
        """
        labels = self.labels if labels is None else labels
        ids = np.asarray(self.dataset.category_ids)
        xywh = box_ops.yxyx_to_xywh(np.asarray(truth, "float64")).tolist()
        image_ids = self.dataset.image_ids
        metric = COCOMetric(
            {
                "images": [{"id": image_id} for image_id in image_ids],
                "categories": [{"id": int(i), "name": str(i)} for i in ids],
                "annotations": [
                    {
                        "image_id": image_ids[self.owner[i]],
                        "category_id": int(ids[self.labels[i]]),
                        "bbox": xywh[i],
                    }
                    for i in np.flatnonzero(is_truth)
                ],
            },
            # That evaluation counts 100 alone is a stage of its own.
            max_detections=max(10, len(self)),
        )
        for number, image_id in enumerate(image_ids):
            rows = np.flatnonzero((self.owner == number) & is_found)
            metric.update(image_id, found[rows], np.ones(len(rows)), ids[labels[rows]])
        return metric.result()["AP"]

    def _describe(self, row):
        record = self.dataset.records[self.owner[row]]
        left, top, width, height = record.boxes_xywh[self.row[row]].tolist()
        label, names = int(self.labels[row]), self.dataset.class_names
        name = names[label] if 0 <= label < len(names) else f"label {label}"
        return (
            f"{record.name}: {name}, left {left:g}, top {top:g}, width {width:g}, "
            f"height {height:g}"
        )


# --- What the input pipeline makes of annotated boxes, followed box by box.

_BATCH_SIZE = 8


@dataclasses.dataclass(frozen=True, eq=False)
class NetworkInputs:
    """The boxes of a table where the network sees them.

    Attributes:
        boxes: float32 `[n, 4]`, `yxyx` in pixels of the network's input; zeros where
            a box did not arrive.
        is_there: bools `[n]`, whether it did.
        image_scales: float32, one for each image: pixels of the image per pixel of the
            input; 0 marks an image that cannot be read.
    """

    boxes: np.ndarray
    is_there: np.ndarray
    image_scales: np.ndarray


def read_network_inputs(
    table: AnnotatedBoxes, config: EfficientDetConfig
) -> NetworkInputs:
    """Sends a dataset through the pipeline of evaluation: reading and letterbox.

    Each box has its place in its image for a label, by which it is known again.

    Example:
        >>> from effdet_keras.data.formats.arrays import from_arrays
        >>> image = np.zeros((32, 64, 3), "uint8")
        >>> dataset = from_arrays([image], [[[4, 8, 20, 40]]], [[0]], ["cat"])
        >>> inputs = read_network_inputs(
        ...     AnnotatedBoxes.of(dataset), EfficientDetConfig(image_size=128))
        >>> inputs.boxes.tolist(), inputs.image_scales.tolist()
        ([[8.0, 16.0, 40.0, 80.0]], [0.5])
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
    """The ground truth of each batch; none where no image can be read."""
    with contextlib.suppress(InvalidValueError), Run(batches).plain_errors():
        for _, truth in batches.as_numpy_iterator():
            yield truth
