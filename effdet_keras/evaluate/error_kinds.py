"""What kind of error a detector makes, and how much AP each kind costs: TIDE."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from effdet_keras.box_ops import pairwise_iou
from effdet_keras.errors import InvalidValueError
from effdet_keras.evaluate.curves import interpolated_ap
from effdet_keras.evaluate.image_result import ImageResult
from effdet_keras.evaluate.matches import (
    NONE,
    check_iou_threshold,
    check_labels,
    least_overlap,
    match_detections,
    objects_that_count,
    pairwise_share,
)

ERROR_MEANINGS = {
    "classification": "right place, wrong class",
    "localization": "right class, box too far off",
    "both": "wrong class, and box too far off",
    "duplicate": "an object that was found already",
    "background": "nothing there",
    "missed": "an object that no detection comes near",
}
_ALL_FALSE, _ALL_MISSED = "false positives", "false negatives"
_RIGHT = "right"


@dataclasses.dataclass(frozen=True)
class ErrorKinds:
    """Errors of a detector by kind. `print(kinds)` shows them as a table.

    Attributes:
        ap: float, 0 to 1, the AP at the IoU threshold, mean over the classes that
            have objects.
        counts: dict of ints, the number of errors of each kind: "classification",
            "localization", "both", "duplicate" and "background" of detections,
            "missed" of objects.
        gains: dict of floats, by how much `ap` rises if the errors of one kind are put
            right. Besides the six kinds "false positives", if all wrong detections
            came last, and "false negatives", if only objects counted that are found.
    """

    ap: float
    counts: dict[str, int]
    gains: dict[str, float]

    def __str__(self):
        lines = [f"AP {self.ap:.4f}; errors, and the AP they cost:"]
        for kind, meaning in ERROR_MEANINGS.items():
            numbers = f"{self.counts[kind]:7d}  {self.gains[kind]:.4f}"
            lines.append(f"  {kind:<15} {numbers}  {meaning}")
        for kind in (_ALL_FALSE, _ALL_MISSED):
            lines.append(f"  {kind:<15}          {self.gains[kind]:.4f}  in all")
        return "\n".join(lines)


def decompose_errors(
    results: Sequence[ImageResult],
    *,
    iou_threshold: float = 0.5,
    background_iou: float = 0.1,
) -> ErrorKinds:
    """Counts the errors of a detector by kind, and what AP each kind costs.

    The kinds of TIDE (https://arxiv.org/abs/2008.08115, sections 2.2 and 2.3). A wrong
    detection is the first of these that is true of it; IoUs are the highest with

    - "localization": an object of its class, from `background_iou` to below
      `iou_threshold`;
    - "classification": an object of another class, `iou_threshold` or more;
    - "duplicate": an object of its class, `iou_threshold` or more: a detection with a
      higher score has found it;
    - "background": any object, `background_iou` or less;
    - "both": what remains.

    A missed object is found by none, and is not what a localization or classification
    error meant. To put right: of the errors of localization and classification that
    mean one object, the one with the highest score becomes right, with the object's
    class; the others, and those that mean an object which is found, are removed.
    Duplicate, background and both are removed. Missed objects no longer count.

    The gains do not add up to `1 - ap`: each is computed alone. A negative gain is
    rounding of recalls, and given as 0. Detections in crowd regions are neither right
    nor wrong. A class without objects has no AP and is left out of the mean, as COCO
    does (TIDE's own program counts it as 0); its detections are counted.

    Args:
        results: sequence of `ImageResult`.
        iou_threshold: float above `background_iou`, at most 1.
        background_iou: float above 0.

    Returns:
        `ErrorKinds`.

    Raises:
        ValueError: If there are no objects, or the two thresholds are in the wrong
            order.

    Example:
        >>> result = ImageResult(
        ...     1, truth_boxes=[[0, 0, 8, 8], [20, 20, 28, 28]], truth_labels=[0, 1],
        ...     boxes=[[0, 0, 8, 8], [20, 20, 28, 28], [50, 50, 58, 58]],
        ...     scores=[0.9, 0.8, 0.7], labels=[0, 0, 1])
        >>> print(decompose_errors([result]))
        AP 0.5000; errors, and the AP they cost:
          classification        1  0.5000  right place, wrong class
          localization          0  0.0000  right class, box too far off
          both                  0  0.0000  wrong class, and box too far off
          duplicate             0  0.0000  an object that was found already
          background            1  0.0000  nothing there
          missed                0  0.0000  an object that no detection comes near
          false positives          0.0000  in all
          false negatives          0.0000  in all
    """
    if not 0 < background_iou < iou_threshold <= 1:
        raise InvalidValueError(
            "`background_iou` must be above 0 and below `iou_threshold`, at most 1. "
            f"Received: background_iou={background_iou}, iou_threshold={iou_threshold}"
        )
    images = [_judge(result, iou_threshold, background_iou) for result in results]
    if not sum(len(image.truth_labels) for image in images):
        raise InvalidValueError(
            "The errors of a detector need objects to be found. Received: "
            f"{len(results)} results without an object that is no crowd region"
        )
    fields = zip(*(vars(image).values() for image in images))
    judged = _Judged(*map(np.concatenate, fields))
    ap = judged.ap()
    counts = {kind: int(np.sum(judged.kinds == kind)) for kind in ERROR_MEANINGS}
    counts["missed"] = int(np.sum(judged.is_missed))
    gains = {
        kind: max(judged.ap_without(kind) - ap, 0.0)
        for kind in (*ERROR_MEANINGS, _ALL_FALSE, _ALL_MISSED)
    }
    return ErrorKinds(ap, counts, gains)


@dataclasses.dataclass(frozen=True, eq=False)
class _Judged:
    """The detections that count, `[m]`, and the objects, `[n]`, of some images."""

    labels: np.ndarray
    scores: np.ndarray
    kinds: np.ndarray  # of `ERROR_MEANINGS`, or `_RIGHT`
    right_labels: np.ndarray  # the label of an error that is put right, else NONE
    truth_labels: np.ndarray
    is_found: np.ndarray
    is_missed: np.ndarray

    def ap(self, *, scores=None, counts=True):
        """The mean AP, with other scores, or if only some objects count."""
        scores = self.scores if scores is None else scores
        aps = []
        for label in np.unique(self.truth_labels):
            num_objects = np.sum((self.truth_labels == label) & counts)
            rows = np.flatnonzero(self.labels == label)
            rows = rows[np.argsort(-scores[rows], kind="stable")]
            true = self.kinds[rows] == _RIGHT
            # Without an object that counts nothing is found.
            aps.append(interpolated_ap(true, np.ones_like(rows), max(num_objects, 1)))
        return float(np.mean(aps))

    def ap_without(self, kind):
        """The mean AP if the errors of one kind are put right."""
        if kind == "missed":
            return self.ap(counts=~self.is_missed)
        if kind == _ALL_MISSED:
            return self.ap(counts=self.is_found)
        if kind == _ALL_FALSE:
            return self.ap(scores=np.float64(self.kinds == _RIGHT))
        becomes_right = (self.kinds == kind) & (self.right_labels != NONE)
        keep = (self.kinds != kind) | becomes_right
        put_right = dataclasses.replace(
            self,
            labels=np.where(becomes_right, self.right_labels, self.labels)[keep],
            scores=self.scores[keep],
            kinds=np.where(becomes_right, _RIGHT, self.kinds)[keep],
            right_labels=self.right_labels[keep],
        )
        return put_right.ap()


def _judge(result, iou_threshold, background_iou):
    """The `_Judged` of one image."""
    matches = match_detections(result, iou_threshold)
    # An empty box comes last, so that every detection has a nearest object.
    truth_boxes = np.append(result.truth_boxes, np.zeros((1, 4)), axis=0)
    truth_labels = np.append(result.truth_labels, NONE)
    overlap = pairwise_iou(result.boxes, truth_boxes)  # [m, n + 1]
    overlap[:, :-1][:, result.truth_is_crowd] = 0.0
    is_own = result.labels[:, None] == truth_labels
    of_own, of_other = np.where(is_own, overlap, 0), np.where(is_own, 0, overlap)
    own, other = of_own.max(axis=1), of_other.max(axis=1)
    conditions = {
        "ignored": matches.is_ignored,
        _RIGHT: matches.is_true,
        "localization": (own >= background_iou) & (own < iou_threshold),
        "classification": other >= iou_threshold,
        "duplicate": own >= iou_threshold,
        "background": other <= background_iou,
    }
    kinds = np.select(list(conditions.values()), list(conditions), default="both")
    meant = np.select(
        [kinds == "localization", kinds == "classification"],
        [of_own.argmax(axis=1), of_other.argmax(axis=1)],
        default=len(result.truth_labels),
    )
    is_free = np.append((matches.detection == NONE) & ~result.truth_is_crowd, False)
    rows = np.flatnonzero(is_free[meant])
    objects, first = np.unique(meant[rows], return_index=True)  # the best score
    right_labels = np.full(len(kinds), NONE)
    right_labels[rows[first]] = truth_labels[objects]
    is_missed = is_free[:-1].copy()
    is_missed[objects] = False
    counts, is_object = ~matches.is_ignored, ~result.truth_is_crowd
    return _Judged(
        *(x[counts] for x in (result.labels, result.scores, kinds, right_labels)),
        *(x[is_object] for x in (result.truth_labels, matches.detection != NONE)),
        is_missed[is_object],
    )


# --- The confusion matrix: which class was taken for which, or for background.


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
        labels = np.append(shown.truth_labels, background)
        found = np.append(shown.labels, background)  # -1 takes the last
        np.add.at(matrix, (labels[pairs[:, 0]], found[pairs[:, 1]]), 1)
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
