"""Likely errors of annotations, told by a detector that disagrees with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from effdet_keras.box_ops import pairwise_iou
from effdet_keras.errors import InvalidValueError
from effdet_keras.evaluate.image_result import ImageResult
from effdet_keras.evaluate.matches import NONE, match_detections

Kind = Literal["missing", "unfound", "wrong class", "loose box"]

_SAME = 0.5  # IoU from which two boxes are of one object
_NEAR = 0.1  # IoU from which a detection may be about an object: TIDE's border


@dataclasses.dataclass(frozen=True)
class Suspect:
    """One place where an annotation may be wrong.

    Attributes:
        image_id: int.
        name: string, the file of the image.
        kind: "missing", a confident detection where nothing is annotated; "unfound",
            an annotation where the detector sees nothing; "wrong class", a confident
            detection of another class in the place of an annotation; "loose box", a
            confident detection whose box differs from that of its annotation.
        suspicion: float, 0 to 1. Sorts the suspects of one kind; those of two kinds
            only roughly.
        box: four floats, `yxyx` in pixels: of the annotation, or, where it is missing,
            of the detection.
        label: int, of the annotation; None where it is missing.
        found_box: four floats, the box of the detection; None if there is none.
        found_label: int, the label of the detection; None if there is none.
        score: float, the score of the detection; 0 if there is none.
        iou: float, the IoU of annotation and detection; 0 if there are not both.
    """

    image_id: int
    name: str
    kind: Kind
    suspicion: float
    box: tuple[float, ...]
    label: int | None
    found_box: tuple[float, ...] | None
    found_label: int | None
    score: float
    iou: float


def find_suspects(
    results: Sequence[ImageResult],
    *,
    min_score: float = 0.5,
    weak_score: float = 0.1,
    loose_iou: float = 0.75,
) -> list[Suspect]:
    """Lists annotations that may be wrong, the most suspicious first.

    A detector that has not learned an image by heart is a second opinion on it. Use
    the results of images that it was not trained on, such as those of a validation
    split, or of models that were each trained without a part of the images.

    - "missing": the detection has `min_score` and an IoU below 0.1 with every
      annotation. Suspicion: the score. Of several in one place the best is listed.
    - "unfound": no detection that found no other object overlaps the annotation by
      an IoU of 0.1 with `weak_score`. Suspicion: 1 - the score of the best that does.
    - "wrong class": the detection has `min_score`, an IoU of 0.5 or more with the
      annotation, and a higher score than what found the annotation in its own class.
      Suspicion: the difference of the two scores.
    - "loose box": the detection has `min_score`, found the annotation, and their IoU
      is below `loose_iou`. Suspicion: score * (1 - IoU).

    The kinds are those of ObjectLab (https://arxiv.org/abs/2309.00832: overlooked,
    swapped, badly located), with annotations of nothing; the scores are our own and
    simpler. Crowd regions are never suspects, and nothing of their class is missing in
    them.

    Args:
        results: sequence of `ImageResult`, with detections down to `weak_score`.
        min_score: float above `weak_score`, from which a detection is confident.
        weak_score: float, below which a detection is none.
        loose_iou: float, 0.5 to 1.

    Returns:
        List of `Suspect`.

    Raises:
        ValueError: If `weak_score` is not below `min_score`.

    Example:
        >>> result = ImageResult(
        ...     1, truth_boxes=[[0, 0, 8, 8], [50, 50, 58, 58]], truth_labels=[0, 1],
        ...     boxes=[[9, 9, 28, 28], [0, 0, 8, 8]], scores=[0.9, 0.8], labels=[0, 2])
        >>> for suspect in find_suspects([result]):
        ...     print(suspect.kind, round(suspect.suspicion, 2), suspect.box)
        unfound 1.0 (50.0, 50.0, 58.0, 58.0)
        missing 0.9 (9.0, 9.0, 28.0, 28.0)
        wrong class 0.8 (0.0, 0.0, 8.0, 8.0)
    """
    if not weak_score < min_score:
        raise InvalidValueError(
            "`weak_score` must be below `min_score`. "
            f"Received: weak_score={weak_score}, min_score={min_score}"
        )
    suspects: list[Suspect] = []
    for result in results:
        one = _Disagreement(result)
        suspects += one.missing(min_score)
        suspects += one.unfound(weak_score)
        suspects += one.wrong_class(min_score)
        suspects += one.loose_boxes(min_score, loose_iou)
    return sorted(suspects, key=lambda suspect: -suspect.suspicion)


class _Disagreement:
    """What detections and annotations of one image say of each other."""

    def __init__(self, result):
        self.result = result
        self.matches = match_detections(result, _SAME)
        self.overlap = pairwise_iou(result.boxes, result.truth_boxes)
        self.objects = np.flatnonzero(~result.truth_is_crowd)
        # Detections are sorted: these come best first.
        self.false = np.flatnonzero(self.matches.is_false)

    def missing(self, min_score) -> Iterator[Suspect]:
        result, listed = self.result, []
        for row in self.false[result.scores[self.false] >= min_score]:
            annotated = (self.overlap[row] >= _NEAR).any()
            again = pairwise_iou(result.boxes[row], result.boxes[listed]) >= _SAME
            if not annotated and not again.any():
                listed.append(row)
                yield self._suspect("missing", result.scores[row], NONE, row)

    def unfound(self, weak_score) -> Iterator[Suspect]:
        for index in self.objects[self.matches.detection[self.objects] == NONE]:
            near = self.false[self.overlap[self.false, index] >= _NEAR]
            row = near[0] if len(near) else NONE
            score = self._score(row)
            if score < weak_score:
                yield self._suspect("unfound", 1 - score, index, row)

    def wrong_class(self, min_score) -> Iterator[Suspect]:
        result, seen = self.result, set()
        is_other = result.labels[:, None] != result.truth_labels
        overlap = np.where(is_other & ~result.truth_is_crowd, self.overlap, 0.0)
        for row in self.false[result.scores[self.false] >= min_score]:
            index = int(np.argmax(overlap[row])) if len(self.objects) else NONE
            if index == NONE or index in seen or overlap[row, index] < _SAME:
                continue
            margin = result.scores[row] - self._score(self.matches.detection[index])
            if margin > 0:
                seen.add(index)
                yield self._suspect("wrong class", margin, index, row)

    def loose_boxes(self, min_score, loose_iou) -> Iterator[Suspect]:
        scores, iou = self.result.scores, self.matches.iou
        is_loose = self.matches.is_true & (scores >= min_score) & (iou < loose_iou)
        for row in np.flatnonzero(is_loose):
            suspicion = scores[row] * (1 - iou[row])
            yield self._suspect("loose box", suspicion, self.matches.truth[row], row)

    def _score(self, row):
        return 0.0 if row == NONE else float(self.result.scores[row])

    def _suspect(self, kind, suspicion, index, row):
        """The suspect of an annotation and a detection; either may be `NONE`."""
        result = self.result
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
            score=self._score(row),
            iou=0.0 if NONE in (index, row) else float(self.overlap[row, index]),
        )


# --- Which images a detector gets most wrong.


@dataclasses.dataclass(frozen=True)
class ImageErrors:
    """What went wrong on one image, among detections from some score on.

    Attributes:
        image_id: int.
        name: string, the file of the image.
        badness: float, the scores of the false detections, and 1 for each missed
            object, added up.
        num_found: int, objects that were found.
        num_missed: int, objects that were not.
        num_false: int, detections that are wrong.
    """

    image_id: int
    name: str
    badness: float
    num_found: int
    num_missed: int
    num_false: int


def worst_images(
    results: Sequence[ImageResult],
    *,
    min_score: float = 0.5,
    iou_threshold: float = 0.5,
) -> list[ImageErrors]:
    """Sorts images by what a detector gets wrong on them, the worst first.

        badness = sum of the scores of false detections + number of missed objects

    among the detections with `min_score`, so that an error that people see counts, and
    a sure one more. An image with many objects can be worse than one with few.
    Detections in crowd regions and crowd regions themselves do not count.

    Args:
        results: sequence of `ImageResult`.
        min_score: float, the score from which detections are shown to people.
        iou_threshold: float above 0, at most 1.

    Returns:
        List of `ImageErrors`, one for each image; equal ones in the order of `results`.

    Example:
        >>> good = ImageResult(1, [[0, 0, 8, 8]], [0], [[0, 0, 8, 8]], [0.9], [0])
        >>> bad = ImageResult(2, [[0, 0, 8, 8]], [0], [[20, 0, 28, 8]], [0.7], [0])
        >>> [(x.image_id, x.badness) for x in worst_images([good, bad])]
        [(2, 1.7), (1, 0.0)]
    """
    errors = []
    for result in results:
        shown = result.above(min_score)
        matches = match_detections(shown, iou_threshold)
        num_found = int(matches.is_true.sum())
        num_missed = int((~shown.truth_is_crowd).sum()) - num_found
        badness = float(shown.scores[matches.is_false].sum()) + num_missed
        counts = num_found, num_missed, int(matches.is_false.sum())
        errors.append(ImageErrors(result.image_id, result.name, badness, *counts))
    return sorted(errors, key=lambda image: -image.badness)
