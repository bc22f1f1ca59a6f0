"""Ranks images by what their labels are expected to teach a detector.

Three signs are known to be better than chance (Settles, 2009, "Active Learning
Literature Survey"; for detectors Kao et al., 2018, and Elezi et al., 2022): scores near
one half, boxes that change when the image is mirrored, and images unlike those that are
labelled. Each is turned into ranks from 0 to 1, since they have no common unit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from effdet_keras import box_ops
from effdet_keras.data.near_duplicates import ImageHashes
from effdet_keras.detect.detections import Detections

# Below it a detection says nothing: any image has many of these.
LOWEST_SCORE = 0.1
_SAME_BOX = 0.5  # IoU of a box and the one that was found in the mirrored image
_COUNTED = (
    3  # the most uncertain boxes of an image: one of many is little to learn from
)
# So many images are ranked one after the other, each unlike those before it; the others
# in the order of what they are worth by themselves.
_MOST_COMPARED = 2_000


@dataclasses.dataclass(frozen=True)
class RankedImage:
    """An image to label, and why.

    Attributes:
        index: int, which image.
        gain: float from 0 to 1, by which it was ranked.
        uncertainty: float from 0 to 1: 1 where scores are one half.
        disagreement: float from 0 to 1: 1 where the mirrored image has other boxes.
        novelty: float from 0 to 1: how unlike the labelled images; 1 where none are
            known.
        duplicate_of: int, the image ranked before it that it looks like; -1 for a
            labelled one; None where it is like none of these.

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
    """How uncertain the scores are: 1 for boxes with a score of one half, 0 for none.

    The mean of `4 s (1 - s)` of the three most uncertain boxes, of which fewer count as
    certain.
    """
    scores = detections.scores[detections.scores >= LOWEST_SCORE]
    values = np.sort(4 * scores * (1 - scores))[::-1][:_COUNTED]
    return float(values.sum() / _COUNTED)


def disagreement_of(detections: Detections, mirrored: Detections, width: int) -> float:
    """How much the boxes of an image differ from those of its mirror image.

    The boxes of both are matched, the best scores first: of one class, with an IoU of
    0.5 or more. The result is 1 less the share of the scores that agree, each pair
    counted by its IoU.

    Args:
        detections: of the image.
        mirrored: of the image mirrored left to right.
        width: int, of the image in pixels.
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

    What an image is worth by itself is the mean of its three ranks. The best is taken,
    and then again and again the best of the others, each counted for as much as it
    differs from all that were taken. Near-duplicates of a labelled image, or of one
    that was taken, come last.

    Args:
        uncertainty, disagreement: floats, of each image.
        hashes: `ImageHashes` of the images.
        labelled: `ImageHashes` of the labelled images; of none where they are unknown.
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
    """The rank of each value from 0 to 1; equal values have the same, their mean."""
    if len(values) < 2:
        return np.zeros(len(values))
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    below = np.cumsum(counts) - counts
    return (below + (counts - 1) / 2)[places] / (len(values) - 1)
