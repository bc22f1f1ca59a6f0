"""The dataset of the scorecard that a dataset is most like, and the AP to expect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from effdet_keras.data.record import concat_field, owners


class Training(NamedTuple):
    """A training with nothing set by hand, and its dataset (docs/scorecard.md)."""

    name: str
    images: int
    classes: int
    boxes_per_image: float  # the mean
    side: float  # of a box in sides of its image, the median
    ap: float  # on `test`

    def __str__(self):
        classes = "1 class" if self.classes == 1 else f"{self.classes} classes"
        return (
            f"{self.name} ({classes}, {self.boxes_per_image:.2g} boxes per image, "
            f"boxes of {100 * self.side:.0f} % of its side)"
        )


SCORECARD = (
    Training("cats", 80, 1, 1.2, 0.40, 0.672),
    Training("circuit boards", 112, 4, 1.2, 0.32, 0.835),
    Training("playing cards", 296, 6, 1.8, 0.33, 0.850),
    Training("defects of circuit boards", 300, 6, 6.9, 0.054, 0.647),
    Training("blood cells", 205, 3, 14.0, 0.19, 0.576),
)
_LOST_BY_HALF = 0.02  # AP, where the training has half as many images
_HOLD = 0.8  # of the intervals


def forecast(dataset):
    """A line with an interval of AP and its reason, for a dataset with boxes."""
    boxes = concat_field(dataset.records, "boxes_xywh")
    if len(boxes) == 0:
        return []
    images = np.array([record.image_size for record in dataset.records], float)
    areas = images.prod(axis=1)[owners(dataset.records)]
    side = np.median(np.sqrt(boxes[:, 2:].clip(0).prod(axis=1) / areas))
    number = len(dataset)
    own = Training(
        "yours", number, dataset.num_classes, len(boxes) / number, max(side, 1e-3), -1.0
    )
    like, expected = expect(own, SCORECARD)
    errors = leave_one_out(SCORECARD)
    margin = np.quantile(errors, _HOLD, method="higher")
    return [
        f"data most like yours: {like}; expect AP {max(expected - margin, 0.0):.2f} to "
        f"{min(expected + margin, 1.0):.2f} with nothing set by hand (the AP of "
        f"each of {len(errors)} datasets, expected from the others, is off by "
        f"{np.mean(errors):.2f})"
    ]


def expect(own: Training, others: Sequence[Training]) -> tuple[Training, float]:
    """The most similar of the others, and the AP that it lets one expect."""

    def distance(other):
        return np.linalg.norm(np.log2(own[2:5]) - np.log2(other[2:5]))

    like = min(others, key=distance)
    halvings = max(np.log2(like.images / own.images), 0.0)
    return like, max(like.ap - _LOST_BY_HALF * halvings, 0.0)


def leave_one_out(trainings: Sequence[Training]) -> list[float]:
    """How far off the AP of each is, when it is expected from the others."""
    pairs = [(one, [x for x in trainings if x is not one]) for one in trainings]
    return [abs(expect(one, others)[1] - one.ap) for one, others in pairs]
