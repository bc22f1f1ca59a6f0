"""COCO's average precision of ranked detections: the mean over 101 recalls."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

# By `linspace`, as in pycocotools: its 0.35 is a little above 7 / 20.
COCO_RECALLS = np.linspace(0.0, 1.0, 101)


def best_precision(precision: np.ndarray) -> np.ndarray:
    """Computes the best precision at each place or a later one, of a higher recall.

    Args:
        precision: floats `[..., m]`, in the order of rising recall.

    Returns:
        Float64 array `[..., m]`.

    Example:
        >>> best_precision(np.array([1.0, 0.5, 0.75]))
        array([1.  , 0.75, 0.75])
    """
    return np.maximum.accumulate(precision[..., ::-1], axis=-1)[..., ::-1]


def precision_at_recalls(
    recall: np.ndarray, best: np.ndarray, recalls: ArrayLike
) -> np.ndarray:
    """Looks up the best precision at some recalls.

    Args:
        recall: floats `[m]`, ascending.
        best: floats `[m]`, of `best_precision`.
        recalls: floats `[r]`.

    Returns:
        Float64 array `[r]`; 0 at a recall that is never reached.

    Example:
        >>> recall, best = np.array([0.5, 1.0]), np.array([1.0, 0.75])
        >>> precision_at_recalls(recall, best, [0.5, 0.6, 1.1])
        array([1.  , 0.75, 0.  ])
    """
    places = np.searchsorted(recall, np.asarray(recalls, float), side="left")
    return np.append(best, 0.0)[places]


def interpolated_ap(
    true: np.ndarray, counted: np.ndarray, num_objects: int
) -> np.ndarray:
    """Computes the average precision of ranked detections of one class.

    With `precision(k)` and `recall(k)` of the best `k` detections:

        AP = mean over r in {0, 0.01, .. 1} of max(precision(k) for recall(k) >= r)

    and 0 for a recall that is never reached. The rule of pycocotools
    (https://cocodataset.org/#detection-eval). A detection may count several times: its
    weight stands in both arrays.

    Args:
        true: ints `[..., m]`, best first: how often each counts as a true positive.
        counted: ints `[..., m]`: how often it counts at all, as right or as wrong.
        num_objects: int above 0, how many objects there were to find.

    Returns:
        Float64 array `[...]`, 0 to 1.

    Example:
        >>> true = np.array([[1, 0, 1], [1, 1, 0]])
        >>> interpolated_ap(true, np.ones_like(true), num_objects=2).round(3)
        array([0.835, 1.   ])
    """
    found, total = np.cumsum(true, axis=-1), np.cumsum(counted, axis=-1)
    best, recall = best_precision(found / np.maximum(total, 1)), found / num_objects
    result = np.empty(found.shape[:-1])
    for row in np.ndindex(result.shape):
        result[row] = precision_at_recalls(recall[row], best[row], COCO_RECALLS).mean()
    return result
