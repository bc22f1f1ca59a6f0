"""The confusion matrix: which class was taken for which, or for background."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from effdet_keras.evaluation.image_result import ImageResult
from effdet_keras.evaluation.matches import (
    least_overlap,
    objects_that_count,
    pairwise_iou,
    pairwise_share,
)
from effdet_keras.evaluation.outcomes import check_iou_threshold, check_labels


def confusion_matrix(
    results: Sequence[ImageResult],
    class_names: Sequence[str],
    *,
    score_threshold: float = 0.3,
    iou_threshold: float = 0.5,
) -> np.ndarray:
    """Counts which class was taken for which.

    Each object is paired with at most one detection, whatever class that says, and each
    detection with at most one object: of all pairs that overlap by the threshold or
    more, that of the highest IoU first; of equal ones that of one class, then that of
    the higher score. What finds no partner is paired with background. Crowd regions are
    not counted, and neither are the detections without a partner that lie in one.

    Args:
        results: an `ImageResult` per image, also for images without objects.
        class_names: strings `[C]`, in the order of the labels.
        score_threshold: float; detections below it are left out.
        iou_threshold: float above 0, at most 1.

    Returns:
        Int64 array `[C + 1, C + 1]`: in row `i` and column `j`, how many objects of
        class `i` were found as class `j`. The last row counts detections of background,
        the last column objects that were missed, and the last element is 0.

    Raises:
        InvalidValueError: If a label has no name, or the threshold is out of its range.

    Example:
        >>> result = ImageResult(
        ...     1, truth_boxes=[[0, 0, 8, 8], [20, 20, 28, 28]], truth_labels=[0, 1],
        ...     boxes=[[0, 0, 8, 8], [40, 40, 48, 48]], scores=[0.9, 0.8],
        ...     labels=[1, 0])
        >>> confusion_matrix([result], ["cat", "dog"])
        array([[0, 1, 0],
               [0, 0, 1],
               [1, 0, 0]])
    """
    check_labels(results, class_names)
    check_iou_threshold(iou_threshold)
    background = len(class_names)
    matrix = np.zeros((background + 1, background + 1), np.int64)
    for result in results:
        shown = result.above(score_threshold)
        pairs = _pairs(shown, least_overlap(iou_threshold))
        np.add.at(matrix, tuple(_labels(shown, pairs, background)), 1)
    return matrix


def _pairs(result, limit):
    """Rows of `(object, detection)`; -1 is background. Each stands in one pair."""
    iou = pairwise_iou(result.truth_boxes, result.boxes)
    objects, found = np.nonzero(iou >= limit)
    is_other = result.truth_labels[objects] != result.labels[found]
    pairs = []
    free_objects = objects_that_count(result)
    free_found = np.ones(len(result.boxes), bool)
    # The last key comes first; detections are sorted by score.
    for place in np.lexsort((found, is_other, -iou[objects, found])):
        one, other = objects[place], found[place]
        if free_objects[one] and free_found[other]:
            free_objects[one] = free_found[other] = False
            pairs.append((one, other))
    crowds = result.truth_boxes[result.truth_is_crowd]
    free_found &= ~(pairwise_share(result.boxes, crowds) >= limit).any(axis=1)
    pairs += [(one, -1) for one in np.flatnonzero(free_objects)]
    pairs += [(-1, other) for other in np.flatnonzero(free_found)]
    return np.array(pairs, int).reshape(-1, 2)


def _labels(result, pairs, background):
    """The labels of the two columns of pairs, where -1 stands for background."""
    for rows, labels in zip(pairs.T, (result.truth_labels, result.labels)):
        yield np.append(labels, background)[rows]
