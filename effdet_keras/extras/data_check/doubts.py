"""Estimates the probability that annotations are wrong, from detections that disagree.

A detection that disagrees with the annotations is evidence only if detections like it
usually agree with them. Let `a` be the share of detections that agree, counted over all
images as a function of the score that never falls (isotonic regression). Assume that a
share `p` of the annotations is wrong. Then a share `r = a / (1 - p)` of these
detections is right. If a detection disagrees with an annotation, the annotation is
wrong with the probability

    r p / (r p + 1 - r)

This is how a classifier is learned from labels some of which are missing (Elkan and
Noto, 2008, "Learning Classifiers from Only Positive and Unlabeled Data"). So all kinds
of suspicions have the same scale, and a weak detector suspects little.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from effdet_keras.box_ops import pairwise_iou
from effdet_keras.evaluate.image_result import NONE, ImageResult, pairwise_share
from effdet_keras.extras.analysis import Suspect

# The assumed share of annotations that are missing, misplaced or misnamed.
_WRONG = 0.15
_SPURIOUS = 0.005  # the assumed share of annotations of objects that do not exist
_LOWEST_SCORE = 0.1  # of the detections that are used
_SAME, _NEAR = 0.5, 0.1  # IoU of two boxes of one object, and of neighbours
_ONE_PLACE = 0.6  # only the best of detections with this IoU or more counts
# In each pool, this many further detections count as wrong: few prove little.
_UNSEEN = 2


def find_doubts(results: Sequence[ImageResult]) -> list[Suspect]:
    """Lists annotations that may be wrong, the most suspicious ones first.

    Args:
        results: sequence of `ImageResult`, one per image, each from a detector that was
            not trained on that image.

    Returns:
        List of `Suspect`. The `suspicion` is the probability that the annotation is
        wrong. The `kind` is "missing", "loose box" (a misplaced box), "wrong class" or
        "unfound" (no detection is near).
    """
    matched = [_match(result) for result in results]
    is_placed = [one.iou >= _SAME for one in matched]
    place = _rising_share([one.scores for one in matched], is_placed)
    agreeing = [one.agrees()[placed] for one, placed in zip(matched, is_placed)]
    scores = [one.scores[placed] for one, placed in zip(matched, is_placed)]
    name = _rising_share(scores, agreeing)
    found = _share_found(matched)
    doubts = [x for one in matched for x in _doubts_of(one, place, name, found)]
    return sorted(doubts, key=lambda doubt: (-doubt.suspicion, -doubt.score))


@dataclasses.dataclass(frozen=True, eq=False)
class _Matched:
    """The `m` detections of an image, and the annotation matched to each."""

    result: ImageResult
    boxes: np.ndarray  # [m, 4], yxyx in pixels
    scores: np.ndarray  # [m]
    labels: np.ndarray  # [m]
    overlap: np.ndarray  # [m, n], IoU with each annotation, 0 for crowds
    in_crowd: np.ndarray  # [m], whether a detection lies in a crowd
    truth: np.ndarray  # [m], the index of the matched annotation, or NONE
    iou: np.ndarray  # [m], the IoU with that annotation

    def agrees(self):
        """Returns whether each detection has the class of its annotation, `[m]`."""
        labels = np.append(self.result.truth_labels, NONE)
        return labels[self.truth] == self.labels

    def is_near(self):
        """Returns whether each annotation has a match or a detection near it, `[n]`."""
        near = (self.overlap >= _NEAR).any(axis=0)
        near[self.truth[self.truth != NONE]] = True
        return near


def _match(result):
    """Matches detections to annotations, the highest IoU first.

    A detection and an annotation of the same class match if they are neighbours
    (IoU 0.1). If their classes differ, they match only at the same place (IoU 0.5);
    otherwise the detection is another object.
    """
    kept: list[int] = []
    for row in np.flatnonzero(result.scores >= _LOWEST_SCORE):  # best first
        again = pairwise_iou(result.boxes[row], result.boxes[kept]) >= _ONE_PLACE
        if not again.any():
            kept.append(row)
    boxes, crowds = result.boxes[kept], result.truth_is_crowd
    overlap = pairwise_iou(boxes, result.truth_boxes)
    in_crowd = pairwise_share(boxes, result.truth_boxes[crowds]) >= _SAME
    overlap = np.where(crowds, 0.0, overlap)
    truth, iou = np.full(len(kept), NONE), np.zeros(len(kept))
    is_free = np.ones(len(crowds), bool)
    is_own = result.labels[kept][:, None] == result.truth_labels
    rows, columns = np.nonzero(overlap >= np.where(is_own, _NEAR, _SAME))
    for pair in np.argsort(-overlap[rows, columns], kind="stable"):
        row, column = rows[pair], columns[pair]
        if truth[row] == NONE and is_free[column]:
            truth[row], iou[row] = column, overlap[row, column]
            is_free[column] = False
    of_kept = boxes, result.scores[kept], result.labels[kept]
    return _Matched(result, *of_kept, overlap, in_crowd.any(axis=1), truth, iou)


def _rising_share(scores, is_right):
    """Returns the share of detections that are right, as a function of their score.

    The function never falls: neighbours are pooled if the one with the lower score has
    the higher share (isotonic regression).

    Args:
        scores: list of float arrays, the scores of detections.
        is_right: list of bool arrays, whether each detection is right.
    """
    scores = np.concatenate([np.zeros(0), *scores])
    is_right = np.concatenate([np.zeros(0, bool), *is_right])
    order = np.argsort(scores, kind="stable")
    pools: list[tuple[float, int]] = []  # number right, number of detections
    for right in is_right[order].astype(float).tolist():
        count = 1
        while pools and pools[-1][0] * count >= right * pools[-1][1]:
            right, count = right + pools[-1][0], count + pools[-1][1]
            pools.pop()
        pools.append((right, count))
    if not pools:
        return lambda score: 0.0
    counts = np.array([count for _, count in pools])
    shares = np.array([right for right, _ in pools]) / (counts + _UNSEEN)
    shares = np.repeat(np.maximum.accumulate(shares), counts)
    return lambda score: float(np.interp(score, scores[order], shares))


def _share_found(matched):
    """Returns, for each label, the number of annotations and of those found.

    An annotation is found if a detection is near it.
    """
    counts: dict[int, list[int]] = {}
    for one in matched:
        counted = ~one.result.truth_is_crowd
        for label, is_near in zip(
            one.result.truth_labels[counted], one.is_near()[counted]
        ):
            of_class = counts.setdefault(int(label), [0, 0])
            of_class[0] += 1
            of_class[1] += int(is_near)
    return counts


def _is_wrong(agreement):
    """Returns the probability that an annotation is wrong if a detection disagrees."""
    right = min(agreement / (1 - _WRONG), 1.0)
    return right * _WRONG / (right * _WRONG + 1 - right)


def _doubts_of(one, place, name, found) -> Iterator[Suspect]:
    """Yields a `Suspect` for each annotation of an image that may be wrong."""
    result = one.result

    def doubt(kind, suspicion, index, row):
        """Returns a `Suspect` of an annotation and a detection; one may be `NONE`."""
        truth_box = None if index == NONE else tuple(result.truth_boxes[index].tolist())
        found_box = None if row == NONE else tuple(one.boxes[row].tolist())
        return Suspect(
            result.image_id,
            result.name,
            kind,
            suspicion,
            box=truth_box or found_box,
            label=None if index == NONE else int(result.truth_labels[index]),
            found_box=found_box,
            found_label=None if row == NONE else int(one.labels[row]),
            score=0.0 if row == NONE else float(one.scores[row]),
            iou=0.0 if NONE in (index, row) else float(one.iou[row]),
        )

    agrees = one.agrees()
    for row, (index, score) in enumerate(zip(one.truth.tolist(), one.scores.tolist())):
        if index == NONE:
            is_apart = not (one.overlap[row] >= _SAME).any() and not one.in_crowd[row]
            if is_apart:
                yield doubt("missing", _is_wrong(place(score)), NONE, row)
        elif one.iou[row] < _SAME:
            yield doubt("loose box", _is_wrong(place(score)), index, row)
        elif not agrees[row]:
            yield doubt("wrong class", _is_wrong(name(score)), index, row)
    for index in np.flatnonzero(~one.is_near() & ~result.truth_is_crowd).tolist():
        count, seen = found[int(result.truth_labels[index])]
        # The share of annotations of this class that have no detection. This annotation
        # itself counts only by half. The share is never zero.
        missed = 1 - (seen + 0.5) / count
        suspicion = _SPURIOUS / (_SPURIOUS + (1 - _SPURIOUS) * missed)
        yield doubt("unfound", suspicion, index, NONE)
