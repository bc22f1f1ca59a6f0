"""Ranks images by how much their labels are expected to improve a detector.

Three signs are known to be better than random selection (Settles, 2009, "Active
Learning Literature Survey"; for detectors Kao et al., 2018, and Elezi et al., 2022):
scores near one half, boxes that change when the image is mirrored, and images that
differ from the labelled ones. Each sign is converted to ranks from 0 to 1, since the
signs have no common unit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from effdet_keras import box_ops
from effdet_keras.data.near_duplicates import ImageHashes
from effdet_keras.detect.detections import Detections

# Detections with lower scores are ignored: every image has many of them.
LOWEST_SCORE = 0.1
_SAME_BOX = 0.5  # IoU from which a box of the mirrored image counts as the same
_COUNTED = (
    3  # the most uncertain boxes of an image: one of many is little to learn from
)
# This many images are ranked one by one, each compared with those before it. The other
# images are ranked by their own worth.
_MOST_COMPARED = 2_000


@dataclasses.dataclass(frozen=True)
class RankedImage:
    """An image to label, and the reasons for its rank.

    Attributes:
        index: int, the index of the image.
        gain: float from 0 to 1, the value by which it was ranked.
        uncertainty: float from 0 to 1, where 1 means scores of one half.
        disagreement: float from 0 to 1, where 1 means that the mirrored image has other
            boxes.
        novelty: float from 0 to 1, how much it differs from the labelled images; 1 if
            none are known.
        duplicate_of: int, the index of a similar image that was ranked before it; -1 if
            it is similar to a labelled image; None if it is similar to neither.

    Example:
        >>> best = RankedImage(7, 0.8, 0.9, disagreement=0.4, novelty=1.0)
        >>> best.index, best.duplicate_of is None
        (7, True)
    """

    index: int
    gain: float
    uncertainty: float
    disagreement: float
    novelty: float
    duplicate_of: int | None = None


def uncertainty_of(detections: Detections) -> float:
    """Returns the uncertainty of scores: 1 for scores of one half, 0 for no boxes.

    It is the mean of `4 s (1 - s)` over the three most uncertain boxes. If there are
    fewer than three, the missing ones count as certain.
    """
    scores = detections.scores[detections.scores >= LOWEST_SCORE]
    values = np.sort(4 * scores * (1 - scores))[::-1][:_COUNTED]
    return float(values.sum() / _COUNTED)


def disagreement_of(detections: Detections, mirrored: Detections, width: int) -> float:
    """Returns how much the boxes of an image differ from those of its mirror image.

    Boxes of the same class with an IoU of 0.5 or more are matched, in descending order
    of score. The result is 1 minus the fraction of the scores that agree, where each
    pair is weighted by its IoU.

    Args:
        detections: `Detections` in the image.
        mirrored: `Detections` in the image mirrored left to right.
        width: int, width of the image in pixels.

    Returns:
        Float from 0 to 1; 0 if neither has a box.
    """
    first = detections[detections.scores >= LOWEST_SCORE]
    second = mirrored[mirrored.scores >= LOWEST_SCORE]
    total = float(first.scores.sum() + second.scores.sum())
    if total == 0:
        return 0.0
    boxes = second.boxes.copy()
    boxes[:, [1, 3]] = width - second.boxes[:, [3, 1]]
    iou = box_ops.pairwise_iou(first.boxes, boxes)
    iou = np.where(first.labels[:, None] == second.labels, iou, 0.0)
    agreed, is_free = 0.0, np.ones(len(second), bool)
    for row in np.argsort(-first.scores, kind="stable"):
        overlaps = np.where(is_free, iou[row], 0.0)
        best = int(np.argmax(overlaps)) if len(overlaps) else 0
        if len(overlaps) and overlaps[best] >= _SAME_BOX:
            is_free[best] = False
            both = min(first.scores[row], second.scores[best])
            agreed += 2 * both * overlaps[best]
    return 1.0 - float(agreed) / total


def rank(
    uncertainty: Sequence[float],
    disagreement: Sequence[float],
    hashes: ImageHashes,
    labelled: ImageHashes,
) -> list[RankedImage]:
    """Ranks images, the one to label first at the beginning.

    The worth of an image is the mean of its ranks by the three signs, or by two if no
    labelled images are known. The best image is taken first. Then the best of the
    others is taken repeatedly, where the worth of each is reduced by its similarity to
    the labelled images and to those taken before. After 2,000 images, the others follow
    in one step. Near-duplicates of a labelled image, or of an image that was taken,
    come last.

    Args:
        uncertainty, disagreement: floats, one per image.
        hashes: `ImageHashes` of the images.
        labelled: `ImageHashes` of the labelled images; empty if they are unknown.

    Returns:
        List of `RankedImage`.
    """
    count = len(hashes)
    likeness, twin = np.zeros(count), np.full(count, False)
    for index in range(count):
        if len(labelled):
            likeness[index] = max(hashes.likeness(index, labelled).max(), 0.0)
            twin[index] = hashes.are_alike_to(index, labelled).any()
    novelty = 1.0 - likeness
    signs = [np.asarray(uncertainty, float), np.asarray(disagreement, float)]
    signs += [novelty] if len(labelled) else []
    worth = np.mean([_ranks(sign) for sign in signs], axis=0)
    duplicate_of = {int(i): -1 for i in np.flatnonzero(twin)}
    is_left, order, gains = ~twin, [], np.zeros(count)
    while is_left.any():
        value = worth * (1 - likeness / 2)
        if len(order) >= _MOST_COMPARED:
            rest = np.flatnonzero(is_left)
            rest = rest[np.argsort(-value[rest], kind="stable")]
            gains[rest] = value[rest]
            order += rest.tolist()
            break
        best = int(np.argmax(np.where(is_left, value, -1.0)))
        gains[best], is_left[best] = value[best], False
        order.append(best)
        alike = hashes.are_alike_to(best, hashes) & is_left
        duplicate_of |= {int(i): best for i in np.flatnonzero(alike)}
        is_left &= ~alike
        likeness = np.maximum(likeness, hashes.likeness(best, hashes))
    last = sorted(duplicate_of, key=lambda i: -worth[i])
    return [
        RankedImage(
            index,
            float(gains[index]),
            float(signs[0][index]),
            float(signs[1][index]),
            float(novelty[index]),
            duplicate_of.get(index),
        )
        for index in [*order, *last]
    ]


def _ranks(values):
    """Returns the rank of each value, from 0 to 1; equal values share a mean rank."""
    if len(values) < 2:
        return np.zeros(len(values))
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    below = np.cumsum(counts) - counts
    return (below + (counts - 1) / 2)[places] / (len(values) - 1)
