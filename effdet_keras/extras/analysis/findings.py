"""What of an evaluation is most worth knowing, in sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from effdet_keras.evaluate.thresholds import SANE_TEMPERATURES
from effdet_keras.extras.analysis import ERROR_MEANINGS

_FEW = 10  # objects: the AP of a class with fewer is mostly luck
_NOTABLE = 0.01  # of AP, or of calibration: less is not worth a sentence
_ENOUGH = 100  # detections, from which their scores can be judged
_UNCALIBRATED = 0.1  # expected error from which scores mislead people


def findings_of(evaluation) -> Iterator[str]:
    """Yields sentences, the most useful first."""
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
    if taken.max(initial=0) > 1:  # one is no pattern
        row, column = np.unravel_index(np.argmax(taken), taken.shape)
        one, other = (evaluation.class_names[label] for label in (row, column))
        count = evaluation.by_class[row].num_objects
        yield (
            f"{taken[row, column]} of {count} objects of '{one}' are taken for "
            f"'{other}', the most frequent confusion."
        )
    yield from _weakest(evaluation)
    few = [one.name for one in evaluation.by_class if 0 < one.num_objects < _FEW]
    if few:
        verb, whose = (
            ("class has", "its") if len(few) == 1 else ("classes have", "their")
        )
        names = ", ".join([f"'{name}'" for name in few[:5]] + ["..."] * (len(few) > 5))
        yield (
            f"{len(few)} {verb} fewer than {_FEW} objects: {whose} numbers are mostly "
            f"luck ({names})."
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


def _weakest(evaluation):
    measured = [one for one in evaluation.by_class if one.num_objects]
    if len(measured) > 1:
        worst = min(measured, key=lambda one: one.ap)
        yield f"'{worst.name}' has the lowest AP, {worst.ap:.3f}."
    measured = [one for one in evaluation.by_object_size if one.num_objects >= _FEW]
    if len(measured) > 1:
        worst, best = (pick(measured, key=lambda one: one.ap) for pick in (min, max))
        if best.ap - worst.ap >= _NOTABLE:
            yield (
                f"AP is lowest for objects of {worst.name}, {worst.ap:.3f}, and "
                f"highest for those of {best.name}, {best.ap:.3f}."
            ).replace("of under", "under")


def _calibration(calibration, temperature):
    error, is_known = calibration.expected_error, calibration.counts.sum() >= _ENOUGH
    if temperature is None or not (is_known and error >= _UNCALIBRATED):
        return
    words = (
        f"Scores are too {'high' if temperature > 1 else 'low'}: on average they are "
        f"{error:.2f} away from how often detections are right."
    )
    low, high = SANE_TEMPERATURES
    is_sane = low < temperature < high
    yield words + f" A temperature of {temperature:.2f} fits best." * is_sane


def _suspects(evaluation):
    kinds = Counter(suspect.kind for suspect in evaluation.suspects)
    annotations = f"{kinds.total()} annotation{'s' * (kinds.total() > 1)}"
    if kinds and not evaluation.can_judge_annotations:
        yield (
            f"{annotations} may be worth a look, where what was found differs most. "
            f"At an AP of {evaluation.class_agnostic_ap:.2f} over all classes that "
            "says more about the model than about them."
        )
    elif kinds:
        parts = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common())
        yield f"{annotations} may be wrong: {parts}."
