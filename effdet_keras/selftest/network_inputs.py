"""What the input pipeline makes of annotated boxes, followed box by box."""

from __future__ import annotations

import contextlib
import dataclasses

import numpy as np

from effdet_keras.config import EfficientDetConfig
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.errors import InvalidValueError
from effdet_keras.selftest.annotated_boxes import AnnotatedBoxes
from effdet_keras.training.run import Run

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

    Args:
        table: `AnnotatedBoxes`.
        config: `EfficientDetConfig`, for size and padding.

    Returns:
        `NetworkInputs`.

    Raises:
        ImportError: If TensorFlow is not installed.

    Example:
        >>> from effdet_keras.data import from_arrays
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
