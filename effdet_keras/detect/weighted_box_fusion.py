"""Several answers about one image made into one: weighted box fusion."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from effdet_keras.box_ops import pairwise_iou
from effdet_keras.detect.detections import Detections
from effdet_keras.errors import InvalidValueError


def weighted_box_fusion(
    detections: Sequence[Detections],
    iou_threshold: float = 0.55,
    weights: Sequence[float] | None = None,
) -> Detections:
    """Fuses what several models, or several views, found in one image.

    Weighted box fusion (https://arxiv.org/abs/1910.13302, section 3): boxes of one
    class are taken best first, and each joins the cluster whose fused box it overlaps
    most, or begins one. With the scores `s` of a cluster, the weights `w` of their
    lists (scaled to a mean of 1) and `N` lists, its one box is

        box = sum(w * s * box) / sum(w * s)
        score = sum(w * s) / sum(w) * min(1, sum(w) / N)

    Unlike suppression it makes better boxes of several good ones, and lowers the
    score of what few of the lists hold. A list should have an object once: a second,
    weak box of it (Soft-NMS leaves such) draws the mean of the scores down.

    Equal to the reference where that fuses; it leaves out the last class. For lists
    of unequal weights a score stays a weighted mean and never passes 1.

    Args:
        detections: list of `Detections` of one image, `N` of them.
        iou_threshold: float in `[0, 1]`, the IoU from which on a box joins a cluster.
        weights: `N` floats above 0, how far each list is trusted, or None for
            all the same.

    Returns:
        `Detections`, best first; names and image are those of the first list.

    Raises:
        ValueError: If there is no list, an argument is not one of those above, or the
            lists are of different classes.

    Example:
        >>> from effdet_keras.detect.detections import Detections
        >>> one = Detections([[0, 0, 10, 10], [20, 20, 30, 30]], [0.9, 0.4], [0, 1])
        >>> two = Detections([[0, 2, 10, 12]], [0.3], [0])
        >>> weighted_box_fusion([one, two])
        2 detections: 1 0, 1 1
          0  0.60  y 0.0 to 10.0, x 0.5 to 10.5
          1  0.20  y 20.0 to 30.0, x 20.0 to 30.0
    """
    detections = list(detections)
    weights = _checked_weights(detections, iou_threshold, weights)
    boxes, scores, labels = joined(detections)
    weights = np.repeat(weights, [len(part) for part in detections])
    fused = [np.zeros((0, 6))]
    for label in np.unique(labels):
        of_class = labels == label
        clusters = _clusters(
            boxes[of_class], scores[of_class], weights[of_class], iou_threshold
        )
        fused.append(_one_box_each(clusters, label, len(detections)))
    fused = np.concatenate(fused)
    fused = fused[np.argsort(-fused[:, 4], kind="stable")]
    return dataclasses.replace(
        detections[0], boxes=fused[:, :4], scores=fused[:, 4], labels=fused[:, 5]
    )


def joined(detections):
    """Lists of one image as one.

    Returns:
        `(boxes, scores, labels)`: float64 `[n, 4]` and `[n]`, int `[n]`.
    """
    first = detections[0]
    for part in detections:
        if part.class_names != first.class_names:
            raise InvalidValueError(
                "Detections that are merged must be of the same classes. Received: "
                f"class_names={first.class_names} and {part.class_names}"
            )
    return (
        np.concatenate([part.boxes for part in detections]).astype("float64"),
        np.concatenate([part.scores for part in detections]).astype("float64"),
        np.concatenate([part.labels for part in detections]),
    )


def _clusters(boxes, scores, weights, iou_threshold):
    """The sums over each cluster of one class: `[k, 6]` of w s box, w s, w."""
    trust = weights * scores
    rows = np.concatenate([trust[:, None] * boxes, trust[:, None], weights[:, None]], 1)
    sums = np.zeros_like(rows)
    fused = np.zeros_like(boxes)
    count = 0
    for i in np.argsort(-trust, kind="stable"):
        ious = pairwise_iou(boxes[i : i + 1], fused[:count])[0]
        best = int(np.argmax(ious)) if count else 0
        if not count or ious[best] < iou_threshold:
            best, count = count, count + 1
        sums[best] += rows[i]
        # A score of 0 moves no box, and alone it is its own.
        total = sums[best, 4]
        fused[best] = sums[best, :4] / total if total else boxes[i]
    return np.concatenate([fused[:count], sums[:count, 4:]], axis=1)


def _one_box_each(clusters, label, num_lists):
    """`[k, 6]` of box, score and label."""
    boxes, total, weights = clusters[:, :4], clusters[:, 4:5], clusters[:, 5:]
    scores = total / weights * np.minimum(1.0, weights / num_lists)
    return np.concatenate([boxes, scores, np.full_like(scores, label)], axis=1)


def _checked_weights(detections, iou_threshold, weights):
    """The weights, scaled to a mean of 1."""
    if not detections:
        raise InvalidValueError(
            "There must be one list of detections or more. Received: none"
        )
    if not 0 <= iou_threshold <= 1:
        raise InvalidValueError(
            "`iou_threshold` must be between 0 and 1. "
            f"Received: iou_threshold={iou_threshold}"
        )
    if weights is None:
        return np.ones(len(detections))
    weights = np.asarray(weights, "float64")
    is_usable = np.isfinite(weights) & (weights > 0)
    if weights.shape != (len(detections),) or not is_usable.all():
        raise InvalidValueError(
            "`weights` must be one number above 0 for each list of detections "
            f"({len(detections)}). Received: weights={weights.tolist()}"
        )
    return weights / weights.mean()
