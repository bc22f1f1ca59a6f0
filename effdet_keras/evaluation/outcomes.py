"""`Outcomes`: the detections of one class in a whole dataset, right or wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from effdet_keras.errors import InvalidValueError
from effdet_keras.evaluation.image_result import ImageResult
from effdet_keras.evaluation.matches import (
    EVERY_AREA,
    Matches,
    match_detections,
    objects_that_count,
)


@dataclasses.dataclass(frozen=True, eq=False)
class Outcomes:
    """The detections of a class that are right or wrong, without the ignored ones.

    Attributes:
        scores: floats `[k]`, best first.
        is_true: bools `[k]`, whether each detection found an object.
        num_objects: int, how many objects there were to find.
    """

    scores: np.ndarray
    is_true: np.ndarray
    num_objects: int


def outcomes_of(
    results: Sequence[ImageResult],
    class_names: Sequence[str],
    iou_threshold: float,
    match: Callable[[ImageResult, float], Matches] = match_detections,
) -> list[Outcomes]:
    """Checks results, matches each image, and collects the detections of each class.

    Args:
        results: an `ImageResult` per image.
        class_names: strings `[C]`, in the order of the labels.
        iou_threshold: float above 0, at most 1.
        match: function of a result and the threshold, the rule by which detections
            find objects.

    Returns:
        List of `C` `Outcomes`, in the order of the labels.

    Raises:
        InvalidValueError: If a label has no name, or the threshold is out of its range.

    Example:
        >>> result = ImageResult(
        ...     1, [[0, 0, 8, 8]], [0], [[0, 0, 8, 8]] * 2, [0.9, 0.8], [0, 0])
        >>> outcomes_of([result], ["cat"], 0.5)[0].is_true
        array([ True, False])
    """
    check_labels(results, class_names)
    check_iou_threshold(iou_threshold)
    matches = [match(result, iou_threshold) for result in results]
    return pool_outcomes(results, matches, len(class_names))


def pool_outcomes(
    results: Sequence[ImageResult],
    matches: Sequence[Matches],
    num_classes: int,
    *,
    area_range: tuple[float, float] = EVERY_AREA,
) -> list[Outcomes]:
    """Collects the detections of all images, class by class.

    Of detections with one score, that of the lower image id comes first, and of one
    image that which comes first there: COCO's order.

    Args:
        results: an `ImageResult` per image.
        matches: what `match_detections`, or another rule, says of each image.
        num_classes: int, `C`.
        area_range: `(low, high)` in square pixels, which objects count.

    Returns:
        List of `C` `Outcomes`, in the order of the labels.

    Example:
        >>> from effdet_keras.evaluation.matches import match_detections
        >>> result = ImageResult(
        ...     1, [[0, 0, 8, 8]], [0], [[0, 0, 8, 8]] * 2, [0.9, 0.8], [0, 0])
        >>> pool_outcomes([result], [match_detections(result)], 1)[0].is_true
        array([ True, False])
    """
    scores = _joined([result.scores for result in results], float)
    labels = _joined([result.labels for result in results], int)
    is_true = _joined([match.is_true for match in matches], bool)
    counts = is_true | _joined([match.is_false for match in matches], bool)
    ids = _joined([np.full(len(r.scores), r.image_id) for r in results], int)
    order = np.lexsort((ids, -scores))
    order = order[counts[order]]
    objects = [r.truth_labels[objects_that_count(r, area_range)] for r in results]
    num_objects = np.bincount(_joined(objects, int), minlength=num_classes)
    places = [order[labels[order] == label] for label in range(num_classes)]
    return [
        Outcomes(scores[rows], is_true[rows], int(count))
        for rows, count in zip(places, num_objects)
    ]


def pool_classes(outcomes: Sequence[Outcomes]) -> Outcomes:
    """Collects the detections of all classes, each right or wrong about its own class.

    Args:
        outcomes: `Outcomes` per class.

    Returns:
        `Outcomes`.

    Example:
        >>> cats = Outcomes(np.array([0.9, 0.2]), np.array([True, False]), 3)
        >>> dogs = Outcomes(np.array([0.5]), np.array([True]), 1)
        >>> both = pool_classes([cats, dogs])
        >>> both.is_true, both.num_objects
        (array([ True,  True, False]), 4)
    """
    scores = _joined([one.scores for one in outcomes], float)
    is_true = _joined([one.is_true for one in outcomes], bool)
    order = np.argsort(-scores, kind="stable")
    num_objects = sum(one.num_objects for one in outcomes)
    return Outcomes(scores[order], is_true[order], num_objects)


def check_labels(results: Sequence[ImageResult], class_names: Sequence[str]) -> None:
    """Refuses labels without a name.

    Raises:
        InvalidValueError: If a label is below 0, or has no name.

    Example:
        >>> check_labels([ImageResult(1, [[0, 0, 8, 8]], [1], [], [], [])], ["cat"])
        Traceback (most recent call last):
            ...
        effdet_keras.errors.InvalidValueError: `class_names` must have a name for ...
    """
    for result in results:
        for field in ("truth_labels", "labels"):
            labels = getattr(result, field)
            wrong = labels[(labels < 0) | (labels >= len(class_names))]
            if len(wrong):
                raise InvalidValueError(
                    "`class_names` must have a name for each label, 0 .. C-1, and "
                    f"padding rows must be left out. Received: {len(class_names)} "
                    f"names; label {wrong[0]} in `{field}` of image {result.image_id}"
                )


def check_iou_threshold(iou_threshold: float) -> None:
    """Refuses an IoU threshold that no IoU can have.

    Raises:
        InvalidValueError: If it is not above 0 and at most 1.

    Example:
        >>> check_iou_threshold(50)
        Traceback (most recent call last):
            ...
        effdet_keras.errors.InvalidValueError: `iou_threshold` must be above 0 ...
    """
    if not 0 < iou_threshold <= 1:
        raise InvalidValueError(
            "`iou_threshold` must be above 0 and at most 1, such as 0.5. "
            f"Received: iou_threshold={iou_threshold}"
        )


def _joined(arrays, dtype):
    return np.concatenate([np.zeros(0, dtype), *arrays])
