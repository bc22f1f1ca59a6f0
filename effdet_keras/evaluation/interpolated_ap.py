"""COCO's average precision of ranked detections: the mean over 101 recalls."""

from __future__ import annotations

import numpy as np

from effdet_keras.evaluation.precision_recall import COCO_RECALLS


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
    precision = found / np.maximum(total, 1)
    reachable = np.maximum.accumulate(precision[..., ::-1], axis=-1)[..., ::-1]
    recall = found / num_objects
    result = np.empty(found.shape[:-1])
    for row in np.ndindex(result.shape):
        at = np.searchsorted(recall[row], COCO_RECALLS, side="left")
        result[row] = np.append(reachable[row], 0.0)[at].mean()
    return result
