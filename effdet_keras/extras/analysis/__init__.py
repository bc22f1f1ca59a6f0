"""Analysis of a detector's errors: TIDE's kinds of errors, the confusion matrix, the
worst images, suspicious annotations, and sentences on the most useful findings."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from effdet_keras.box_ops import pairwise_iou
from effdet_keras.evaluate.image_result import (
    NONE,
    ImageResult,
    match_detections,
    pairwise_share,
)
from effdet_keras.evaluate.thresholds import SANE_TEMPERATURES
from effdet_keras.extras.analysis.curves import interpolated_ap

ERROR_MEANINGS = {
    "classification": "right place, wrong class",
    "localization": "right class, box too far off",
    "both": "wrong class, and box too far off",
    "duplicate": "an object that was found already",
    "background": "nothing there",
    "missed": "an object that no detection comes near",
}
_SAME = 0.5  # IoU from which two boxes count as boxes of one object
_NEAR = 0.1  # IoU from which a detection may mean an object: TIDE's background limit
_ALL_FALSE, _ALL_MISSED = "false positives", "false negatives"
_RIGHT = "right"


class ErrorKinds(NamedTuple):
    """The errors of a detector, by the kinds of `ERROR_MEANINGS`."""

    ap: float  # at the IoU threshold 0.5, mean over the classes that have objects
    counts: dict[str, int]
    # By how much `ap` rises without errors of a kind. There are two more kinds: for
    # "false positives", all wrong detections come last; for "false negatives", only
    # objects that were found count.
    gains: dict[str, float]

    def __str__(self):
        lines = [f"AP {self.ap:.4f}; errors, and the AP they cost:"]
        for kind, meaning in ERROR_MEANINGS.items():
            numbers = f"{self.counts[kind]:7d}  {self.gains[kind]:.4f}"
            lines.append(f"  {kind:<15} {numbers}  {meaning}")
        for kind in (_ALL_FALSE, _ALL_MISSED):
            lines.append(f"  {kind:<15}          {self.gains[kind]:.4f}  in all")
        return "\n".join(lines)


def decompose_errors(results: Sequence[ImageResult]) -> ErrorKinds | None:
    """Counts the errors of a detector by kind, and the AP that each kind costs.

    The kinds are those of TIDE (https://arxiv.org/abs/2008.08115, sections 2.2 and
    2.3). To measure the gain, the errors of one kind are corrected:

    - Of the localization or classification errors for one object, the one with the
      highest score becomes right, and the others are removed.
    - Errors of the kinds duplicate, background and both are removed.
    - Missed objects no longer count.

    A negative gain is a rounding effect of recalls, and is reported as 0. Classes
    without objects are left out of the mean, as in COCO (TIDE's own program counts them
    as 0).

    Args:
        results: sequence of `ImageResult`.

    Returns:
        `ErrorKinds`; None if there are no objects.
    """
    images = list(map(_classify_errors, results))
    if not sum(len(image.truth_labels) for image in images):
        return None
    fields = zip(*(vars(image).values() for image in images))
    judged = _ErrorKinds(*map(np.concatenate, fields))
    ap = judged.ap()
    counts = {kind: int(np.sum(judged.kinds == kind)) for kind in ERROR_MEANINGS}
    counts["missed"] = int(np.sum(judged.is_missed))
    gains = {
        kind: max(judged.ap_without(kind) - ap, 0.0)
        for kind in (*ERROR_MEANINGS, _ALL_FALSE, _ALL_MISSED)
    }
    return ErrorKinds(ap, counts, gains)


@dataclasses.dataclass(frozen=True, eq=False)
class _ErrorKinds:
    """The counted detections, `[m]`, and objects, `[n]`, of some images."""

    labels: np.ndarray
    scores: np.ndarray
    kinds: np.ndarray  # names in `ERROR_MEANINGS`, or `_RIGHT`
    right_labels: np.ndarray  # the correct label if the error is corrected, else NONE
    truth_labels: np.ndarray
    is_found: np.ndarray
    is_missed: np.ndarray

    def ap(self, *, scores=None, counts=True):
        """Returns the mean AP, with other scores, or with only some objects counted."""
        scores = self.scores if scores is None else scores
        aps = []
        for label in np.unique(self.truth_labels):
            num_objects = np.sum((self.truth_labels == label) & counts)
            rows = np.flatnonzero(self.labels == label)
            rows = rows[np.argsort(-scores[rows], kind="stable")]
            true = self.kinds[rows] == _RIGHT
            # If no object counts, none can be found; 1 avoids a division by zero.
            aps.append(interpolated_ap(true, np.ones_like(rows), max(num_objects, 1)))
        return float(np.mean(aps))

    def ap_without(self, kind):
        """Returns the mean AP if the errors of one kind are corrected."""
        if kind == "missed":
            return self.ap(counts=~self.is_missed)
        if kind == _ALL_MISSED:
            return self.ap(counts=self.is_found)
        if kind == _ALL_FALSE:
            return self.ap(scores=(self.kinds == _RIGHT).astype("float64"))
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


def _classify_errors(result):
    """Returns the error kind of each detection of an image, and its missed objects."""
    matches = match_detections(result)
    # An empty box is appended, so that every detection has a nearest object.
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
        "localization": (own >= _NEAR) & (own < _SAME),
        "classification": other >= _SAME,
        "duplicate": own >= _SAME,
        "background": other <= _NEAR,
    }
    kinds = np.select(list(conditions.values()), list(conditions), default="both")
    meant = np.select(
        [kinds == "localization", kinds == "classification"],
        [of_own.argmax(axis=1), of_other.argmax(axis=1)],
        default=len(result.truth_labels),
    )
    is_free = np.append((matches.detection == NONE) & ~result.truth_is_crowd, False)
    rows = np.flatnonzero(is_free[meant])
    objects, first = np.unique(meant[rows], return_index=True)  # with the best score
    right_labels = np.full(len(kinds), NONE)
    right_labels[rows[first]] = truth_labels[objects]
    is_missed = is_free[:-1].copy()
    is_missed[objects] = False
    counts, is_object = ~matches.is_ignored, ~result.truth_is_crowd
    return _ErrorKinds(
        *(x[counts] for x in (result.labels, result.scores, kinds, right_labels)),
        *(x[is_object] for x in (result.truth_labels, matches.detection != NONE)),
        is_missed[is_object],
    )


# --- The confusion matrix: which class was mistaken for which, or for background.


def confusion_matrix(results: Sequence[ImageResult], num_classes: int) -> np.ndarray:
    """Returns the confusion matrix, int64 `[C + 1, C + 1]`, rows are objects.

    Detections and objects are paired if their IoU is 0.5 or more, whatever their
    classes. The pair with the highest IoU is taken first. Among pairs with equal IoU,
    pairs of one class come first, and then pairs with a higher score. A detection or
    object without a partner is paired with background, the last row and column. Crowd
    regions, and unpaired detections inside them, are not counted.

    Args:
        results: sequence of `ImageResult`.
        num_classes: int, the number of classes `C`.
    """
    matrix = np.zeros((num_classes + 1, num_classes + 1), np.int64)
    for result in results:
        pairs = _pairs(result)
        labels = np.append(result.truth_labels, num_classes)
        found = np.append(result.labels, num_classes)  # index -1 is the last element
        np.add.at(matrix, (labels[pairs[:, 0]], found[pairs[:, 1]]), 1)
    return matrix


def _pairs(result):
    """Returns rows `(object, detection)`; -1 is background; each is in one pair."""
    iou = pairwise_iou(result.truth_boxes, result.boxes)
    objects, found = np.nonzero(iou >= _SAME)
    is_other = result.truth_labels[objects] != result.labels[found]
    pairs = []
    free_objects = ~result.truth_is_crowd
    free_found = np.ones(len(result.boxes), bool)
    # The last key has priority; detections are sorted by score.
    for place in np.lexsort((found, is_other, -iou[objects, found])):
        one, other = objects[place], found[place]
        if free_objects[one] and free_found[other]:
            free_objects[one] = free_found[other] = False
            pairs.append((one, other))
    crowds = result.truth_boxes[result.truth_is_crowd]
    free_found &= ~(pairwise_share(result.boxes, crowds) >= _SAME).any(axis=1)
    pairs += [(one, -1) for one in np.flatnonzero(free_objects)]
    pairs += [(-1, other) for other in np.flatnonzero(free_found)]
    return np.array(pairs, int).reshape(-1, 2)


# --- The images on which a detector makes the most errors.


class ImageErrors(NamedTuple):
    """The errors on one image."""

    image_id: int
    name: str  # the file name of the image
    badness: float
    num_found: int  # number of objects
    num_missed: int  # number of objects
    num_false: int  # number of detections


def worst_images(results: Sequence[ImageResult]) -> list[ImageErrors]:
    """Returns all images, the worst first.

    The order is that of `badness`: the sum of the scores of false detections, plus the
    number of missed objects.
    """
    errors = []
    for result in results:
        matches = match_detections(result)
        num_found = int(matches.is_true.sum())
        num_missed = int((~result.truth_is_crowd).sum()) - num_found
        badness = float(result.scores[matches.is_false].sum()) + num_missed
        counts = num_found, num_missed, int(matches.is_false.sum())
        errors.append(ImageErrors(result.image_id, result.name, badness, *counts))
    return sorted(errors, key=lambda image: -image.badness)


# --- Suspicious annotations, with which a detector disagrees.

_SURE, _WEAK = 0.5, 0.1  # scores from which a detection is sure, below which it is weak
_LOOSE = 0.75  # IoU below which a detection fits its annotation loosely


class Suspect(NamedTuple):
    """An annotation that may be wrong or missing."""

    image_id: int
    name: str  # the file name of the image
    kind: str  # "missing", "unfound", "wrong class" or "loose box"
    suspicion: float  # 0 to 1; only roughly comparable between kinds
    # yxyx in pixels: the annotation's box, or the detection's if it is missing
    box: tuple[float, ...]
    label: int | None  # of the annotation; None if it is missing
    found_box: tuple[float, ...] | None  # of the detection; None if there is none
    found_label: int | None
    score: float  # of the detection, or 0
    iou: float  # between annotation and detection, or 0


def find_suspects(results: Sequence[ImageResult]) -> list[Suspect]:
    """Returns annotations that may be wrong, the most suspicious first.

    The kinds are those of ObjectLab (https://arxiv.org/abs/2309.00832: overlooked,
    swapped, badly located), plus annotations of nothing. The scores are our own, and
    simpler. Crowd regions are never suspects, and detections of their class inside them
    do not count as missing annotations.

    Args:
        results: sequence of `ImageResult`.
    """
    suspects = [suspect for result in results for suspect in _suspects_of(result)]
    return sorted(suspects, key=lambda suspect: -suspect.suspicion)


def _suspects_of(result) -> Iterator[Suspect]:
    """Yields the annotations of an image that seem wrong or missing."""
    matches, is_crowd = match_detections(result, _SAME), result.truth_is_crowd
    overlap = pairwise_iou(result.boxes, result.truth_boxes)
    is_sure = result.scores >= _SURE
    # Detections are sorted by score, so these are, too.
    false = np.flatnonzero(matches.is_false)
    sure = false[is_sure[false]]
    scores = np.append(result.scores, 0.0)  # index `NONE` is the last element

    def suspect(kind, suspicion, index, row):
        """Returns the suspect for an annotation and a detection; one may be `NONE`."""
        truth_box = None if index == NONE else tuple(result.truth_boxes[index].tolist())
        found_box = None if row == NONE else tuple(result.boxes[row].tolist())
        return Suspect(
            result.image_id,
            result.name,
            kind,
            float(suspicion),
            box=truth_box or found_box,
            label=None if index == NONE else int(result.truth_labels[index]),
            found_box=found_box,
            found_label=None if row == NONE else int(result.labels[row]),
            score=float(scores[row]),
            iou=0.0 if NONE in (index, row) else float(overlap[row, index]),
        )

    # Missing: a sure detection that has an IoU below 0.1 with every annotation. The
    # suspicion is its score.
    listed: list[int] = []
    for row in sure:
        again = pairwise_iou(result.boxes[row], result.boxes[listed]) >= _SAME
        if not (overlap[row] >= _NEAR).any() and not again.any():
            listed.append(row)
            yield suspect("missing", scores[row], NONE, row)
    # Unfound: an annotation that only weak detections come near. The suspicion is 1
    # minus their best score.
    for index in np.flatnonzero(~is_crowd & (matches.detection == NONE)):
        near = false[overlap[false, index] >= _NEAR]
        row = near[0] if len(near) else NONE
        if scores[row] < _WEAK:
            yield suspect("unfound", 1 - scores[row], index, row)
    # Wrong class: a sure detection of another class. The suspicion is the margin by
    # which its score exceeds that of the annotation's own detection.
    is_other = (result.labels[:, None] != result.truth_labels) & ~is_crowd
    of_other, seen = np.where(is_other, overlap, 0.0), set()
    for row in sure if len(is_crowd) else ():
        index = int(np.argmax(of_other[row]))
        margin = scores[row] - scores[matches.detection[index]]
        if index not in seen and of_other[row, index] >= _SAME and margin > 0:
            seen.add(index)
            yield suspect("wrong class", margin, index, row)
    # Loose box: a sure detection that fits its annotation loosely. The suspicion is
    # score * (1 - IoU).
    for row in np.flatnonzero(matches.is_true & is_sure & (matches.iou < _LOOSE)):
        suspicion = scores[row] * (1 - matches.iou[row])
        yield suspect("loose box", suspicion, matches.truth[row], row)


# --- The most useful findings of an `Evaluation`, as sentences.

_FEW = 10  # objects: with fewer, the AP of a class is mostly luck
_NOTABLE = 0.01  # AP: a smaller loss is not mentioned
_ENOUGH = 100  # detections: with fewer, calibration is not judged
_UNCALIBRATED = 0.1  # expected calibration error from which scores mislead people


def findings_of(evaluation) -> Iterator[str]:
    """Yields sentences on an `Evaluation`, the most useful first."""
    if evaluation.diagnosis is not None:
        yield evaluation.diagnosis
    yield _threshold(evaluation.common_threshold)
    gains = evaluation.errors.gains
    kind = max(ERROR_MEANINGS, key=gains.get)
    if gains[kind] >= _NOTABLE:
        what = "missed objects" if kind == "missed" else f"{kind} errors"
        meaning = ERROR_MEANINGS[kind]
        yield f"Most AP is lost to {what} ({meaning}): {gains[kind]:.3f} of AP50."
    taken = evaluation.confusion[:-1, :-1].copy()
    np.fill_diagonal(taken, 0)
    if taken.max(initial=0) > 1:  # a single confusion is not a pattern
        row, column = np.unravel_index(np.argmax(taken), taken.shape)
        one, other = (evaluation.class_names[label] for label in (row, column))
        count = evaluation.by_class[row].num_objects
        yield (
            f"{taken[row, column]} of {count} objects of '{one}' are taken for "
            f"'{other}', the most frequent confusion."
        )
    measured = [one for one in evaluation.by_class if one.num_objects]
    if len(measured) > 1:
        worst = min(measured, key=lambda one: one.ap)
        yield f"'{worst.name}' has the lowest AP, {worst.ap:.3f}."
    few = [one.name for one in measured if one.num_objects < _FEW]
    if few:
        names = ", ".join([f"'{name}'" for name in few[:5]] + ["..."] * (len(few) > 5))
        yield (
            f"The AP of classes with fewer than {_FEW} objects is mostly chance: "
            f"{names}."
        )
    yield from _calibration(evaluation.calibration, evaluation.temperature)
    yield from _suspects(evaluation)
    worst = [image for image in evaluation.worst_images[:3] if image.badness > 0]
    if names := ", ".join(image.name for image in worst if image.name):
        yield f"The images with most errors: {names}."


def _threshold(best):
    if best.f1 <= 0:
        return "No detection is right at IoU 0.5."
    return (
        f"Detections from score {best.threshold:.2f} on have the best F1, "
        f"{best.f1:.2f}: {best.precision:.0%} of them are right, and they find "
        f"{best.recall:.0%} of the objects."
    ).replace("%", " %")


def _calibration(calibration, temperature):
    error, is_known = calibration.expected_error, calibration.counts.sum() >= _ENOUGH
    if temperature is None or not (is_known and error >= _UNCALIBRATED):
        return
    words = (
        f"Scores are too {'high' if temperature > 1 else 'low'}: on average they "
        f"differ by {error:.2f} from the fraction of detections that are right."
    )
    low, high = SANE_TEMPERATURES
    is_sane = low < temperature < high
    yield words + f" A temperature of {temperature:.2f} fits best." * is_sane


def _suspects(evaluation):
    kinds = Counter(suspect.kind for suspect in evaluation.suspects)
    annotations = f"{kinds.total()} annotation{'s' * (kinds.total() > 1)}"
    if kinds and not evaluation.can_judge_annotations:
        yield (
            f"{annotations} may be worth a look, because the detections differ most "
            "from them. But at a class-agnostic AP of "
            f"{evaluation.class_agnostic_ap:.2f}, this says more about the model than "
            "about the annotations."
        )
    elif kinds:
        parts = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common())
        yield f"{annotations} may be wrong: {parts}."
