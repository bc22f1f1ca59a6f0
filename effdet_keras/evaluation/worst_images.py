"""Which images a detector gets most wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from effdet_keras.evaluation.image_result import ImageResult
from effdet_keras.evaluation.matches import match_detections


@dataclasses.dataclass(frozen=True)
class ImageErrors:
    """What went wrong on one image, among detections from some score on.

    Attributes:
        image_id: int.
        name: string, the file of the image.
        badness: float, the scores of the false detections, and 1 for each missed
            object, added up.
        num_found: int, objects that were found.
        num_missed: int, objects that were not.
        num_false: int, detections that are wrong.
    """

    image_id: int
    name: str
    badness: float
    num_found: int
    num_missed: int
    num_false: int


def worst_images(
    results: Sequence[ImageResult],
    *,
    min_score: float = 0.5,
    iou_threshold: float = 0.5,
) -> list[ImageErrors]:
    """Sorts images by what a detector gets wrong on them, the worst first.

        badness = sum of the scores of false detections + number of missed objects

    among the detections with `min_score`, so that an error that people see counts, and
    a sure one more. An image with many objects can be worse than one with few.
    Detections in crowd regions and crowd regions themselves do not count.

    Args:
        results: sequence of `ImageResult`.
        min_score: float, the score from which detections are shown to people.
        iou_threshold: float above 0, at most 1.

    Returns:
        List of `ImageErrors`, one for each image; equal ones in the order of `results`.

    Example:
        >>> good = ImageResult(1, [[0, 0, 8, 8]], [0], [[0, 0, 8, 8]], [0.9], [0])
        >>> bad = ImageResult(2, [[0, 0, 8, 8]], [0], [[20, 0, 28, 8]], [0.7], [0])
        >>> [(x.image_id, x.badness) for x in worst_images([good, bad])]
        [(2, 1.7), (1, 0.0)]
    """
    errors = [_count(result.above(min_score), iou_threshold) for result in results]
    return sorted(errors, key=lambda image: -image.badness)


def _count(result, iou_threshold):
    matches = match_detections(result, iou_threshold)
    num_found = int(matches.is_true.sum())
    num_missed = int((~result.truth_is_crowd).sum()) - num_found
    return ImageErrors(
        result.image_id,
        result.name,
        badness=float(result.scores[matches.is_false].sum()) + num_missed,
        num_found=num_found,
        num_missed=num_missed,
        num_false=int(matches.is_false.sum()),
    )
