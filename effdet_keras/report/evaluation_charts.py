"""The charts of an evaluation: curves, confusion, calibration, errors, slices."""

import numpy as np

from effdet_keras.evaluation.error_kinds import ERROR_MEANINGS
from effdet_keras.evaluation.interpolated_ap import COCO_RECALLS
from effdet_keras.pages import charts
from effdet_keras.pages.chart import Chart
from effdet_keras.pages.curves import MAX_LINES, curves, unit_ticks
from effdet_keras.pages.heat_map import heat_map

_CELLS = 9  # classes of the confusion matrix: more cannot be read on a phone


def evaluation_charts(evaluation):
    """Draws the charts of an evaluation.

    Args:
        evaluation: `Evaluation`, with objects.

    Returns:
        List of `Chart`.
    """
    drawn = [
        _precision_recall(evaluation),
        _confusion(evaluation),
        _errors(evaluation),
        _calibration(evaluation),
        _slices("AP by size of object", evaluation.by_object_size),
        _slices("AP by size of image", evaluation.by_image_size),
        *(_slices(f"AP by {x}", rows) for x, rows in evaluation.by_column.items()),
    ]
    return [chart for chart in drawn if chart is not None]


def _precision_recall(evaluation):
    measured = [curve for curve in evaluation.curves if curve.num_objects]
    most = sorted(measured, key=lambda curve: -curve.num_objects)[: MAX_LINES - 1]
    shown = [curve for curve in measured if curve in most]
    words = ["Best precision at each recall or a higher one, at IoU 0.5."]
    if len(shown) < len(measured):
        words.append(
            f"The {len(shown)} classes with most objects, of {len(measured)}; "
            "numbers.json has all."
        )
    shown.append(evaluation.class_agnostic_curve)
    svg = curves(
        [_best_precision(curve) for curve in shown],
        unit_ticks(),
        unit_ticks(),
        ("recall", "precision"),
    )
    names = [f"{curve.name} {curve.average_precision:.3f}" for curve in shown]
    names[-1] = f"all as one class {shown[-1].average_precision:.3f}"
    return Chart("Precision and recall", svg, tuple(words), tuple(names))


def _best_precision(curve):
    """Recalls that were reached, and the best precision there."""
    reached = curve.recall.max(initial=-1.0) >= COCO_RECALLS
    recalls = COCO_RECALLS[reached]
    return recalls, curve.best_precision[np.searchsorted(curve.recall, recalls)]


def _confusion(evaluation):
    counts = evaluation.confusion
    background = len(counts) - 1
    wrong = counts.sum(axis=0) + counts.sum(axis=1) - 2 * np.diag(counts)
    most = np.argsort(-wrong[:background], kind="stable")[:_CELLS]
    labels = [*sorted(most.tolist()), background]
    names = [*evaluation.class_names, "background"]
    shown = [names[label] for label in labels]
    svg = heat_map(shown, shown, counts[np.ix_(labels, labels)], ("found as", "is"))
    words = [
        f"Detections from score {evaluation.shown_score:.2f} on, at IoU 0.5, whatever "
        "class they say. The last column counts missed objects, the last row "
        "detections of nothing."
    ]
    if len(most) < background:
        words.append(
            f"The {len(most)} classes with most errors, of {background}; numbers.json "
            "has all."
        )
    return Chart("Which class is taken for which", svg, tuple(words))


def _errors(evaluation):
    gains, counts = evaluation.errors.gains, evaluation.shown_errors.counts
    kinds = sorted(ERROR_MEANINGS, key=lambda kind: -gains[kind])
    texts = [f"{gains[kind]:.3f} ({counts[kind]:,})" for kind in kinds]
    svg = charts.bars(kinds, [gains[kind] for kind in kinds], texts)
    meanings = "; ".join(f"{kind}: {ERROR_MEANINGS[kind]}" for kind in kinds)
    words = (
        "What AP50 would gain if the errors of one kind were put right, and in "
        "brackets their number among detections from score "
        f"{evaluation.shown_score:.2f} on.",
        f"{meanings[0].upper()}{meanings[1:]}.",
    )
    return Chart("What the errors cost", svg, words)


def _calibration(evaluation):
    found = evaluation.calibration
    if not found.counts.sum():
        return None
    known = found.counts > 0
    points = found.mean_scores[known], found.precisions[known]
    svg = curves(
        [points], unit_ticks(), unit_ticks(), ("score", "share right"), diagonal=True
    )
    words = [
        "On the dashed line, of the detections with a score of 0.8 four in five are "
        f"right. Expected calibration error {found.expected_error:.3f}, over "
        f"{int(found.counts.sum()):,} detections from score 0.05 on."
    ]
    if evaluation.temperature is not None:
        words.append(f"The temperature that fits best is {evaluation.temperature:.2f}.")
    return Chart("Whether scores can be trusted", svg, tuple(words))


def _slices(title, slices):
    measured = [one for one in slices if one.num_objects]
    if len(measured) < 2:  # one is the number of all
        return None
    texts = [f"{one.ap:.3f} ({one.num_objects:,})" for one in measured]
    svg = charts.bars([x.name for x in measured], [x.ap for x in measured], texts)
    return Chart(title, svg, ("In brackets the number of objects.",))
