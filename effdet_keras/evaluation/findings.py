"""What of an evaluation is most worth knowing, in sentences."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from effdet_keras.evaluation.calibration import SANE_TEMPERATURES
from effdet_keras.evaluation.error_kinds import ERROR_MEANINGS

if TYPE_CHECKING:
    from effdet_keras.evaluation.evaluation import Evaluation

_FEW = 10  # objects: the AP of a class with fewer is mostly luck
_NOTABLE = 0.01  # of AP, or of calibration: less is not worth a sentence
_ENOUGH = 100  # detections, from which their scores can be judged
_UNCALIBRATED = 0.1  # expected error from which scores mislead people


def find_what_matters(evaluation: Evaluation) -> list[str]:
    """Says what is most worth knowing of an evaluation.

    Args:
        evaluation: `Evaluation`.

    Returns:
        List of sentences, without markup, the most useful first. Empty where there
        are no objects to be found.

    Example:
        >>> from effdet_keras.evaluation.evaluation import analyze_results
        >>> from effdet_keras.evaluation.image_result import ImageResult
        >>> result = ImageResult(
        ...     1, [[0, 0, 8, 8], [20, 20, 28, 28]], [0, 1],
        ...     [[0, 0, 8, 8], [20, 20, 28, 28]], [0.9, 0.8], [0, 0])
        >>> for words in find_what_matters(analyze_results([result], ["cat", "dog"])):
        ...     print(words)
        Detections from score 0.90 on have the best F1, 0.67: 100 % of them are right,
        and they find 50 % of the objects.
        Most AP is lost to classification errors (right place, wrong class): 0.500 of
        AP50.
        The lowest AP has 'dog', 0.000.
        2 classes have fewer than 10 objects: their numbers are mostly luck ('cat',
        'dog').
        1 annotation may be wrong: 1 wrong class.
    """
    if not evaluation.num_objects:
        return []
    finders = (
        *(_threshold, _costliest_error, _confusion, _weakest_class, _weakest_size),
        *(_few_objects, _calibration, _suspects, _worst_images),
    )
    return [words for finder in finders if (words := finder(evaluation))]


def _threshold(evaluation):
    best = evaluation.common_threshold
    if best.f1 <= 0:
        return "No detection is right at IoU 0.5."
    return (
        f"Detections from score {best.threshold:.2f} on have the best F1, "
        f"{best.f1:.2f}: {best.precision:.0%} of them are right, and they find "
        f"{best.recall:.0%} of the objects."
    ).replace("%", " %")


def _costliest_error(evaluation):
    gains = {kind: evaluation.errors.gains[kind] for kind in ERROR_MEANINGS}
    kind = max(gains, key=gains.get)
    if gains[kind] < _NOTABLE:
        return ""
    what = "missed objects" if kind == "missed" else f"{kind} errors"
    return (
        f"Most AP is lost to {what} ({ERROR_MEANINGS[kind]}): {gains[kind]:.3f} of "
        "AP50."
    )


def _confusion(evaluation):
    taken = evaluation.confusion[:-1, :-1].copy()
    np.fill_diagonal(taken, 0)
    if taken.max(initial=0) < 2:  # one is no pattern
        return ""
    row, column = np.unravel_index(np.argmax(taken), taken.shape)
    names = evaluation.class_names
    return (
        f"{taken[row, column]} of {evaluation.by_class[row].num_objects} objects of "
        f"'{names[row]}' are taken for '{names[column]}', the most frequent confusion."
    )


def _weakest_class(evaluation):
    measured = [one for one in evaluation.by_class if one.num_objects]
    if len(measured) < 2:
        return ""
    worst = min(measured, key=lambda one: one.ap)
    return f"The lowest AP has '{worst.name}', {worst.ap:.3f}."


def _weakest_size(evaluation):
    measured = [one for one in evaluation.by_object_size if one.num_objects >= _FEW]
    if len(measured) < 2:
        return ""
    worst = min(measured, key=lambda one: one.ap)
    best = max(measured, key=lambda one: one.ap)
    if best.ap - worst.ap < _NOTABLE:
        return ""
    return (
        f"By size, the lowest AP have objects of {worst.name}, {worst.ap:.3f}; the "
        f"highest those of {best.name}, {best.ap:.3f}."
    ).replace("of under", "under")


def _few_objects(evaluation):
    few = [one.name for one in evaluation.by_class if 0 < one.num_objects < _FEW]
    if not few:
        return ""
    verb = "class has" if len(few) == 1 else "classes have"
    names = ", ".join(f"'{name}'" for name in few[:5])
    more = ", ..." if len(few) > 5 else ""
    whose = "its" if len(few) == 1 else "their"
    return (
        f"{len(few)} {verb} fewer than {_FEW} objects: {whose} numbers are mostly luck "
        f"({names}{more})."
    )


def _calibration(evaluation):
    error, temperature = evaluation.calibration.expected_error, evaluation.temperature
    is_known = evaluation.calibration.counts.sum() >= _ENOUGH
    if temperature is None or not (is_known and error >= _UNCALIBRATED):
        return ""
    how = "too high" if temperature > 1 else "too low"
    words = (
        f"Scores are {how}: they are {error:.2f} away from how often detections are "
        "right, in the mean."
    )
    low, high = SANE_TEMPERATURES
    if not low < temperature < high:
        return words
    return f"{words} A temperature of {temperature:.2f} fits best."


def _suspects(evaluation):
    kinds = Counter(suspect.kind for suspect in evaluation.suspects)
    if not kinds:
        return ""
    count = sum(kinds.values())
    noun = "annotation" if count == 1 else "annotations"
    if not evaluation.can_judge_annotations:
        return (
            f"{count} {noun} may be worth a look, where what was found differs most. "
            f"At an AP of {evaluation.class_agnostic_ap:.2f} over all classes that "
            "says more about the model than about them."
        )
    parts = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common())
    return f"{count} {noun} may be wrong: {parts}."


def _worst_images(evaluation):
    worst = [image for image in evaluation.worst_images[:3] if image.badness > 0]
    names = ", ".join(image.name for image in worst if image.name)
    return f"The images with most errors: {names}." if names else ""
