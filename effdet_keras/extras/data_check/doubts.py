"""How likely annotations are wrong, by how often such detections are right elsewhere.

A detection that disagrees with the annotations says something only if detections like
it usually agree with them. That share is counted over all images, by score, as a curve
that rises (isotonic regression): `a`. A share `p` of the annotations is taken to be
wrong, so `r = a / (1 - p)` of these detections are right, and of one that disagrees the
annotation is wrong with the probability

    r p / (r p + 1 - r)

This is how a classifier is learned from labels of which some are missing (Elkan and
Noto, 2008, "Learning Classifiers from Only Positive and Unlabeled Data"). So doubts of
all kinds have one scale, and a weak detector doubts little.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from effdet_keras.box_ops import pairwise_iou
from effdet_keras.evaluate.image_result import NONE, ImageResult, pairwise_share
from effdet_keras.extras.analysis import Suspect

_WRONG = 0.15  # of the annotations are taken to be missing, misplaced or misnamed
_SPURIOUS = 0.005  # and of objects that are not there
_LOWEST_SCORE = 0.1
_SAME, _NEAR = 0.5, 0.1  # IoU of two boxes of one object, and of neighbours
_ONE_PLACE = 0.6  # IoU of detections of which the best alone counts
_UNSEEN = 2  # detections that are counted as wrong beside those seen: few prove little


def find_doubts(results: Sequence[ImageResult]) -> list[Suspect]:
    """Lists annotations that may be wrong, the most likely ones first.

    Args:
        results: of all images, each by a detector that was not trained on it.

    Returns:
        List of `Suspect`, whose `suspicion` is a probability, and whose `kind` is
        "missing", "loose box" (misplaced), "wrong class" or "unfound".
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
    """The detections `[m]` of an image, and the annotation that each is about."""

    result: ImageResult
    boxes: np.ndarray
    scores: np.ndarray
    labels: np.ndarray
    overlap: np.ndarray  # [m, n], 0 for crowd regions
    in_crowd: np.ndarray  # [m]
    truth: np.ndarray  # [m], the annotation, or NONE
    iou: np.ndarray  # [m], with it

    def agrees(self):
        """Whether detection and annotation have one class, `[m]`."""
        labels = np.append(self.result.truth_labels, NONE)
        return labels[self.truth] == self.labels

    def is_near(self):
        """Whether a detection is near an annotation, or has it, `[n]`."""
        near = (self.overlap >= _NEAR).any(axis=0)
        near[self.truth[self.truth != NONE]] = True
        return near


def _match(result):
    """Pairs detections and annotations, the highest IoU first; neighbours of one class.

    A detection at the place of an annotation may have another class; one beside it is
    another object then.
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
    """The share of detections that are right as a function of their score.

    It never falls: neighbours of which the lower score has the higher share are pooled
    (isotonic regression).
    """
    scores = np.concatenate([np.zeros(0), *scores])
    is_right = np.concatenate([np.zeros(0, bool), *is_right])
    order = np.argsort(scores, kind="stable")
    pools: list[tuple[float, int]] = []  # how many are right, of how many
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
    """Of each class how many annotations there are, and how many have a detection."""
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
    """The probability that an annotation is wrong with which a detection disagrees."""
    right = min(agreement / (1 - _WRONG), 1.0)
    return right * _WRONG / (right * _WRONG + 1 - right)


def _doubts_of(one, place, name, found) -> Iterator[Suspect]:
    """Yields the annotations of an image that may be wrong."""
    result = one.result

    def doubt(kind, suspicion, index, row):
        """The doubt of an annotation and a detection; either may be `NONE`."""
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
        missed = 1 - (seen + 0.5) / count  # of the others; none is never missed
        suspicion = _SPURIOUS / (_SPURIOUS + (1 - _SPURIOUS) * missed)
        yield doubt("unfound", suspicion, index, NONE)
