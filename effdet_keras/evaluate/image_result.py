"""`ImageResult`: what is true of one image, and what was found in it."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import ArrayLike

from effdet_keras.box_ops import area
from effdet_keras.errors import InvalidValueError

_FIELDS = (
    ("truth_boxes", np.float64, (-1, 4)),
    ("truth_labels", np.int64, (-1,)),
    ("truth_is_crowd", bool, (-1,)),
    ("truth_areas", np.float64, (-1,)),
    ("boxes", np.float64, (-1, 4)),
    ("scores", np.float64, (-1,)),
    ("labels", np.int64, (-1,)),
)
_FOUND = ("boxes", "scores", "labels")


@dataclasses.dataclass(frozen=True, eq=False)
class ImageResult:
    """Ground truth and detections of one image, in the pixels of that image.

    What every analysis beyond COCO's twelve numbers starts from: a list of these, one
    for each image of a dataset, also for those with no objects or no detections.

    Args:
        image_id: int, the id in the dataset.
        truth_boxes: floats `[n, 4]`, `yxyx` in pixels of the image.
        truth_labels: ints `[n]`, `0 .. C-1`.
        truth_is_crowd: bools `[n]`; None means that none is a crowd region.
        boxes: floats `[m, 4]`, `yxyx` in pixels of the image; kept best first.
        scores: floats `[m]`, 0 to 1.
        labels: ints `[m]`, `0 .. C-1`.
        name: string, the file of the image, for people.
        size: `(height, width)` of the image, in pixels; None if it is not known.
        truth_areas: floats `[n]`, square pixels: the areas in the annotations, which
            for COCO are those of the outlines; None means those of the boxes.

    Raises:
        ValueError: If the lengths differ.

    Example:
        >>> result = ImageResult(
        ...     7, truth_boxes=[[0, 0, 8, 8]], truth_labels=[0],
        ...     boxes=[[0, 0, 8, 4], [0, 0, 8, 8]], scores=[0.3, 0.9], labels=[0, 0])
        >>> result.scores, result.truth_is_crowd
        (array([0.9, 0.3]), array([False]))
    """

    image_id: int
    truth_boxes: np.ndarray
    truth_labels: np.ndarray
    boxes: np.ndarray
    scores: np.ndarray
    labels: np.ndarray
    truth_is_crowd: np.ndarray | None = None
    name: str = ""
    size: tuple[int, int] | None = None
    truth_areas: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.truth_is_crowd is None:
            crowds = np.zeros(np.shape(self.truth_labels), bool)
            object.__setattr__(self, "truth_is_crowd", crowds)
        if self.truth_areas is None:
            boxes = np.asarray(self.truth_boxes, np.float64).reshape(-1, 4)
            object.__setattr__(self, "truth_areas", area(boxes))
        for field, dtype, shape in _FIELDS:
            array = np.asarray(getattr(self, field), dtype).reshape(shape)
            object.__setattr__(self, field, array)
        for names in (_FIELDS[:4], _FIELDS[4:]):
            lengths = {name: len(getattr(self, name)) for name, *_ in names}
            if len(set(lengths.values())) > 1:
                raise InvalidValueError(
                    f"{' and '.join(f'`{name}`' for name in lengths)} must have one "
                    f"length. Received: {lengths} of image {self.image_id}"
                )
        best = np.argsort(-self.scores, kind="stable")
        for field in _FOUND:
            object.__setattr__(self, field, getattr(self, field)[best])

    def above(self, score: float) -> ImageResult:
        """Returns the result without the detections below a score.

        Example:
            >>> result = ImageResult(1, [], [], [[0, 0, 1, 1]] * 2, [0.3, 0.9], [0, 0])
            >>> result.above(0.5).scores
            array([0.9])
        """
        return with_detections(self, self.scores >= score)


def with_detections(result, keep):
    """The result with the detections that `keep`, bools `[m]`, marks."""
    found = {name: getattr(result, name)[keep] for name in _FOUND}
    return dataclasses.replace(result, **found)


# --- -1, COCO's mark where there is nothing to measure, and means that leave it out.

UNMEASURED = -1.0


def mean_of_measured(values: ArrayLike) -> float:
    """The mean of the values that could be measured; `UNMEASURED` where none could."""
    values = np.asarray(values, float)
    measured = values[values > UNMEASURED]
    return float(measured.mean()) if measured.size else UNMEASURED
