"""Forecasts the AP of a dataset from the most similar dataset of the scorecard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from effdet_keras.data.dataset import count_of
from effdet_keras.data.record import concat_field, owners


class Training(NamedTuple):
    """A training with default settings, and its dataset (docs/scorecard.md)."""

    name: str
    images: int
    classes: int
    boxes_per_image: float  # mean
    side: float  # median of the root of a box's area relative to the image's area
    ap: float  # on `test`

    def __str__(self):
        classes = count_of(self.classes, "class", "classes")
        return (
            f"{self.name} ({classes}, {self.boxes_per_image:.2g} boxes per image, "
            f"boxes about {100 * self.side:.0f} % as long as the image)"
        )


SCORECARD = (
    Training("cats", 80, 1, 1.2, 0.40, 0.672),
    Training("circuit boards", 112, 4, 1.2, 0.32, 0.835),
    Training("playing cards", 296, 6, 1.8, 0.33, 0.850),
    Training("defects of circuit boards", 300, 6, 6.9, 0.054, 0.647),
    Training("blood cells", 205, 3, 14.0, 0.19, 0.576),
)
_LOST_BY_HALF = 0.02  # AP that is lost with half as many training images
_HOLD = 0.8  # the share of intervals that should contain the AP


def forecast(dataset):
    """Forecasts the AP of a training with default settings.

    Args:
        dataset: `DetectionDataset`.

    Returns:
        List of one line with an interval of AP and its reason; empty if the dataset has
        no boxes.
    """
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
        f"Of the measured datasets, this one is most like {like}. Expect an AP of "
        f"{max(expected - margin, 0.0):.2f} to {min(expected + margin, 1.0):.2f} with "
        f"default settings: predicted in this way, the AP of {len(errors)} datasets "
        f"was off by {np.mean(errors):.2f} on average."
    ]


def expect(own: Training, others: Sequence[Training]) -> tuple[Training, float]:
    """Finds the most similar training, and derives the AP to expect from it.

    The distance is Euclidean, in the logarithms of the number of classes, of the boxes
    per image and of the box side. The AP of the other training is reduced by 0.02 for
    each halving of the number of images.

    Args:
        own: `Training` whose AP is unknown.
        others: sequence of `Training`.

    Returns:
        The most similar `Training`, and the expected AP from 0 to 1.
    """

    def distance(other):
        return np.linalg.norm(np.log2(own[2:5]) - np.log2(other[2:5]))

    like = min(others, key=distance)
    halvings = max(np.log2(like.images / own.images), 0.0)
    return like, max(like.ap - _LOST_BY_HALF * halvings, 0.0)


def leave_one_out(trainings: Sequence[Training]) -> list[float]:
    """Returns the absolute error of each AP if it is forecast from the others."""
    pairs = [(one, [x for x in trainings if x is not one]) for one in trainings]
    return [abs(expect(one, others)[1] - one.ap) for one, others in pairs]
