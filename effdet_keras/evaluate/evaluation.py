"""`Evaluation`: all that is known of a detector on a dataset, as one typed result."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from effdet_keras.errors import InvalidValueError
from effdet_keras.evaluate.coco import COCO_MEANINGS
from effdet_keras.evaluate.coco_results import coco_numbers_of
from effdet_keras.evaluate.curves import (
    COCO_RECALLS,
    PrecisionRecallCurve,
    VOCAveragePrecision,
    class_agnostic_average_precision,
    class_agnostic_curve,
    precision_recall_curves,
    voc_average_precision,
)
from effdet_keras.evaluate.error_kinds import (
    ERROR_MEANINGS,
    ErrorKinds,
    confusion_matrix,
    decompose_errors,
)
from effdet_keras.evaluate.image_result import UNMEASURED, ImageResult
from effdet_keras.evaluate.matches import objects_that_count
from effdet_keras.evaluate.slices import (
    Slice,
    slice_by_class,
    slice_by_column,
    slice_by_image_size,
    slice_by_object_size,
)
from effdet_keras.evaluate.suspects import (
    ImageErrors,
    Suspect,
    find_suspects,
    worst_images,
)
from effdet_keras.evaluate.thresholds import (
    SANE_TEMPERATURES,
    BestThreshold,
    Calibration,
    ScoreSettings,
    best_common_threshold,
    best_thresholds,
    find_temperature,
    measure_calibration,
)

_USUAL_SCORE = 0.3  # `detect`'s own, where no score is better than another
_JUDGES = 0.4  # class-agnostic AP
_LEAST_SCORE = 0.05  # of calibration: what lies below is seen by nobody


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """What `analyze_results` found out of a detector on a dataset.

    `print(evaluation)` shows the most useful of it. Numbers are 0 to 1, and -1 where
    there is nothing to measure. Where no other IoU is named, a detection is right if
    it has an IoU of 0.5 or more with an object of its class.

    Attributes:
        class_names: tuple of `C` strings, in the order of the labels.
        num_images: int.
        num_objects: int, crowd regions not counted.
        num_detections: int.
        coco: dict of floats by name: COCO's twelve numbers, then `AP/<class>`.
        voc_07: `VOCAveragePrecision` by the rule of 2007.
        voc_10: `VOCAveragePrecision` by the rule of 2010.
        class_agnostic_ap: float, COCO's AP if all classes were one.
        curves: tuple of `C` `PrecisionRecallCurve`.
        class_agnostic_curve: `PrecisionRecallCurve`, if all classes were one.
        thresholds: tuple of `C` `BestThreshold`.
        common_threshold: `BestThreshold` of all classes together.
        shown_score: float, from which detections count as shown to people: that of
            `common_threshold`, or 0.3 where that is to show none.
        confusion: ints `[C + 1, C + 1]`, of `confusion_matrix`, of shown detections.
        calibration: `Calibration` of detections with a score of 0.05 or more.
        temperature: float, of `find_temperature` for the same; None where right or
            wrong detections are missing.
        errors: `ErrorKinds` of all detections; None where there are no objects.
        shown_errors: `ErrorKinds` of shown detections; None where there are no objects.
        by_class: tuple of `C` `Slice`.
        by_object_size: tuple of `Slice`, by COCO's sizes.
        by_image_size: tuple of `Slice`; empty where sizes of images are not known.
        by_column: dict from the name of a column to a tuple of `Slice`, one for each of
            its values; empty where no columns were given.
        worst_images: tuple of `ImageErrors`, one for each image, the worst first, by
            shown detections.
        suspects: tuple of `Suspect`, the most suspicious annotation first.
    """

    class_names: tuple[str, ...]
    num_images: int
    num_objects: int
    num_detections: int
    coco: dict[str, float]
    voc_07: VOCAveragePrecision
    voc_10: VOCAveragePrecision
    class_agnostic_ap: float
    curves: tuple[PrecisionRecallCurve, ...]
    class_agnostic_curve: PrecisionRecallCurve
    thresholds: tuple[BestThreshold, ...]
    common_threshold: BestThreshold
    shown_score: float
    confusion: np.ndarray
    calibration: Calibration
    temperature: float | None
    errors: ErrorKinds | None
    shown_errors: ErrorKinds | None
    by_class: tuple[Slice, ...]
    by_object_size: tuple[Slice, ...]
    by_image_size: tuple[Slice, ...]
    worst_images: tuple[ImageErrors, ...]
    suspects: tuple[Suspect, ...]
    by_column: dict[str, tuple[Slice, ...]] = dataclasses.field(default_factory=dict)

    @property
    def can_judge_annotations(self) -> bool:
        """Whether objects are found well enough to doubt annotations.

        Where `class_agnostic_ap` is below 0.4, a box that differs from its annotation
        is most often the model's error.
        """
        return self.class_agnostic_ap >= _JUDGES

    @property
    def findings(self) -> list[str]:
        """List of sentences: what is most worth knowing, the most useful first."""
        return find_what_matters(self)

    def score_settings(self, class_names: Sequence[str] | None = None) -> ScoreSettings:
        """Returns what `detect` needs to show what is best by this evaluation.

        They are the threshold with the best F1 of each class, and the temperature. A
        class of which nothing was found rightly gets `shown_score`. A temperature
        below 0.1 or above 10 says that scores do not tell right from wrong, and is
        left out. Judge a model on other images than those its thresholds were chosen
        on.

        Args:
            class_names: names of a model's labels, in their order, among which are
                all names of this evaluation; None for those of this evaluation.

        Returns:
            `ScoreSettings`, with a threshold for each of `class_names`.

        Raises:
            ValueError: If no detection is right, or a class is not in `class_names`.

        Example:
            >>> result = ImageResult(
            ...     1, [[0, 0, 8, 8]], [0], [[0, 0, 8, 8]], [0.75], [0])
            >>> evaluation = analyze_results([result], ["cat"])
            >>> evaluation.score_settings(["dog", "cat"]).thresholds
            (0.75, 0.75)
        """
        names = self.class_names if class_names is None else tuple(class_names)
        missing = [name for name in self.class_names if name not in names]
        if missing:
            raise InvalidValueError(
                "`class_names` must have all classes of the evaluation. Received: "
                f"{len(names)} names; missing: {missing[:5]}"
            )
        if self.common_threshold.f1 <= 0:
            raise InvalidValueError(
                "No detection is right at IoU 0.5, so no threshold is better than "
                "another. Evaluate on images in which the model finds something."
            )
        best = {one.name: one.threshold for one in self.thresholds if one.f1 > 0}
        low, high = SANE_TEMPERATURES
        is_sane = self.temperature is not None and low < self.temperature < high
        return ScoreSettings(
            tuple(best.get(name, self.shown_score) for name in names),
            self.temperature if is_sane else None,
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns all numbers as dicts, lists, strings and numbers, for JSON.

        Curves are given as their best precision at COCO's 101 recalls. Of the worst
        images and of the suspects the first 200 are listed. What is no finite number
        is None.

        Returns:
            Dict; `json.dump` writes it.

        Example:
            >>> result = ImageResult(
            ...     1, [[0, 0, 8, 8]], [0], [[0, 0, 8, 8]], [0.9], [0], size=(9, 9))
            >>> numbers = analyze_results([result], ["cat"]).to_dict()
            >>> round(numbers["coco"]["AP"], 3), numbers["confusion"]["counts"]
            (1.0, [[1, 0], [0, 0]])
        """
        return evaluation_to_dict(self)

    def __repr__(self) -> str:
        return (
            f"Evaluation({self.num_images} images, {self.num_objects} objects, "
            f"AP {self.coco['AP']:.4f}, AP50 {self.coco['AP50']:.4f})"
        )

    def __str__(self) -> str:
        return evaluation_to_text(self)


def analyze_results(
    results: Sequence[ImageResult],
    class_names: Sequence[str],
    *,
    columns: Mapping[str, Mapping[int, object]] | None = None,
) -> Evaluation:
    """Computes all that this package knows to say of a detector's results.

    Args:
        results: an `ImageResult` per image, also for images without objects, with
            detections down to a low score, as `ek.inference.image_results` gives them.
        class_names: strings `[C]`, in the order of the labels.
        columns: what else is known of the images, to slice by: from the name of a
            column to its values by image id, as `ek.data.read_image_columns` gives
            them. None for nothing.

    Returns:
        `Evaluation`.

    Raises:
        InvalidValueError: If there are no results, a label has no name, two results
            are of one image, or a column has no value for an image.

    Example:
        >>> result = ImageResult(
        ...     1, truth_boxes=[[0, 0, 8, 8], [20, 20, 28, 28]], truth_labels=[0, 1],
        ...     boxes=[[0, 0, 8, 8], [20, 20, 28, 28]], scores=[0.9, 0.4],
        ...     labels=[0, 0], size=(64, 64))
        >>> evaluation = analyze_results([result], ["cat", "dog"])
        >>> round(evaluation.coco["AP50"], 3), evaluation.confusion.tolist()
        (0.5, [[1, 0, 0], [0, 0, 1], [0, 0, 0]])
        >>> round(evaluation.class_agnostic_ap, 3)
        1.0
    """
    if not results:
        raise InvalidValueError("There are no results to analyze: `results` is empty.")
    coco = coco_numbers_of(results, class_names)  # first: it checks ids and labels
    has_objects = any(objects_that_count(result).any() for result in results)
    has_sizes = all(result.size is not None for result in results)
    common = best_common_threshold(results, class_names)
    shown_score = common.threshold if math.isfinite(common.threshold) else _USUAL_SCORE
    shown = [result.above(shown_score) for result in results]
    visible = [result.above(_LEAST_SCORE) for result in results]
    calibration = measure_calibration(visible)
    return Evaluation(
        class_names=tuple(class_names),
        num_images=len(results),
        num_objects=sum(int(objects_that_count(x).sum()) for x in results),
        num_detections=sum(len(result.scores) for result in results),
        coco=coco,
        voc_07=voc_average_precision(results, class_names, rule="07"),
        voc_10=voc_average_precision(results, class_names, rule="10"),
        class_agnostic_ap=class_agnostic_average_precision(results),
        curves=tuple(precision_recall_curves(results, class_names)),
        class_agnostic_curve=class_agnostic_curve(results),
        thresholds=tuple(best_thresholds(results, class_names)),
        common_threshold=common,
        shown_score=shown_score,
        confusion=confusion_matrix(results, class_names, score_threshold=shown_score),
        calibration=calibration,
        temperature=_temperature(visible, calibration),
        errors=decompose_errors(results) if has_objects else None,
        shown_errors=decompose_errors(shown) if has_objects else None,
        by_class=tuple(slice_by_class(results, class_names)),
        by_object_size=tuple(slice_by_object_size(results, class_names)),
        by_image_size=(
            tuple(slice_by_image_size(results, class_names)) if has_sizes else ()
        ),
        worst_images=tuple(worst_images(results, min_score=shown_score)),
        suspects=tuple(find_suspects(results)),
        by_column={
            name: tuple(slice_by_column(results, class_names, values))
            for name, values in (columns or {}).items()
        },
    )


def _temperature(results, calibration):
    """A temperature, where some detections are right and some are wrong."""
    rights = np.nansum(calibration.counts * calibration.precisions)
    if not 0 < round(float(rights)) < calibration.counts.sum():
        return None
    return find_temperature(results)


# --- An `Evaluation` as text for a terminal.

CLASS_COLUMNS = (
    *("class", "objects", "AP", "AP50", "VOC 07", "VOC 10"),
    *("from score", "precision", "recall", "F1"),
)
SLICE_COLUMNS = ("images", "objects", "AP", "AP50")
_LONGEST = 24  # characters of the name of a class or slice


def evaluation_to_text(evaluation: Evaluation) -> str:
    """Writes the numbers, the classes, the errors and what matters most.

    Example:

        >>> from effdet_keras.evaluate.image_result import ImageResult
        >>> result = ImageResult(1, [[0, 0, 8, 8]], [0], [[0, 0, 8, 8]], [0.9], [0])
        >>> lines = evaluation_to_text(analyze_results([result], ["cat"])).splitlines()
        >>> print("\\n".join(lines[:3]))
        1 image, 1 object of 1 class, 1 detection
        <BLANKLINE>
        AP          1.0000  precision, mean over IoU 0.50 to 0.95
    """
    parts = [_counts(evaluation)]
    if evaluation.num_objects:
        parts += [_numbers(evaluation), class_table(evaluation)]
        parts += [slices_table(*column) for column in evaluation.by_column.items()]
        parts.append(f"At IoU 0.5: {evaluation.errors}")
    else:
        parts.append("There are no objects to be found: nothing can be measured.")
    if evaluation.findings:
        lines = "\n".join(f"- {words}" for words in evaluation.findings)
        parts.append(f"What matters most:\n{lines}")
    return "\n\n".join(parts)


def class_table(evaluation: Evaluation) -> str:
    """Writes a line per class, and one for all.

    Example:

        >>> from effdet_keras.evaluate.image_result import ImageResult
        >>> result = ImageResult(1, [[0, 0, 8, 8]], [0], [[0, 0, 8, 8]], [0.9], [0])
        >>> print(class_table(analyze_results([result], ["cat"])).splitlines()[1][:34])
        cat                1  1.000  1.000
    """
    rows = [_cells(row) for row in class_rows(evaluation)]
    rows.append(_cells(row_of_all(evaluation)))
    return _aligned([CLASS_COLUMNS, *rows])


def slices_table(column: str, slices: Sequence[Slice]) -> str:
    """Writes a line per slice of a column.

    Example:
        >>> print(slices_table("weather", [Slice("rain", 2, 9, 0.5, 0.75)]))
        weather  images  objects     AP   AP50
        rain          2        9  0.500  0.750
    """
    rows = [slice_cells(one) for one in slices]
    return _aligned(
        [(column, *SLICE_COLUMNS), *([_shortened(r[0]), *r[1:]] for r in rows)]
    )


def slice_cells(one: Slice) -> list[str]:
    """The cells of a slice: its name, and `SLICE_COLUMNS`.

    Example:
        >>> slice_cells(Slice("rain", 2, 9000, 0.5, -1.0))
        ['rain', '2', '9,000', '0.500', '-']
    """
    counts = f"{one.num_images:,}", f"{one.num_objects:,}"
    return [one.name, *counts, number(one.ap), number(one.ap50)]


def _aligned(table):
    widths = [max(map(len, column)) for column in zip(*table)]
    return "\n".join(
        f"{name:<{widths[0]}}  "
        + "  ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths[1:]))
        for name, *cells in table
    )


def number(value: float | None, digits: int = 3) -> str:
    """A number, or a dash where there is none.

    Example:
        >>> number(0.5), number(-1.0), number(None)
        ('0.500', '-', '-')
    """
    return "-" if value is None or value == UNMEASURED else f"{value:.{digits}f}"


def _cells(row):
    name, num_objects, *numbers = row
    return [_shortened(name), f"{num_objects:,}", *map(number, numbers)]


def _shortened(name):
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 3]}..."


def _counts(evaluation):
    counts = (
        (evaluation.num_images, "image", "images"),
        (evaluation.num_objects, "object", "objects"),
        (len(evaluation.class_names), "class", "classes"),
        (evaluation.num_detections, "detection", "detections"),
    )
    images, objects, classes, detections = (
        f"{count:,} {one if count == 1 else many}" for count, one, many in counts
    )
    return f"{images}, {objects} of {classes}, {detections}"


def _numbers(evaluation):
    rows = [
        (name, evaluation.coco[name], meaning)
        for name, meaning in COCO_MEANINGS.items()
    ]
    rows += [
        ("VOC 07", evaluation.voc_07.mean, "Pascal VOC's mAP, rule of 2007, IoU 0.5"),
        ("VOC 10", evaluation.voc_10.mean, "Pascal VOC's mAP, rule of 2010, IoU 0.5"),
        (
            "one class",
            evaluation.class_agnostic_ap,
            "AP if all classes were one: how well objects are found",
        ),
    ]
    return "\n".join(
        f"{name:<10}{number(value, 4):>8}  {words}" for name, value, words in rows
    )


# --- An `Evaluation` as what JSON can hold.

_LISTED = 200  # of the worst images and of the suspects


def evaluation_to_dict(evaluation: Evaluation) -> dict[str, Any]:
    """See `Evaluation.to_dict`."""
    calibration = evaluation.calibration
    return _plain(
        {
            "images": evaluation.num_images,
            "objects": evaluation.num_objects,
            "detections": evaluation.num_detections,
            "coco": evaluation.coco,
            "voc": {"07": evaluation.voc_07.mean, "10": evaluation.voc_10.mean},
            "class_agnostic_ap": evaluation.class_agnostic_ap,
            "all_classes": row_of_all(evaluation)._asdict(),
            "classes": [row._asdict() for row in class_rows(evaluation)],
            "curves": {
                "recall": COCO_RECALLS,
                "precision": {
                    curve.name: _at_recalls(curve) for curve in evaluation.curves
                },
                "class_agnostic_precision": _at_recalls(
                    evaluation.class_agnostic_curve
                ),
            },
            "shown_score": evaluation.shown_score,
            "confusion": {
                "classes": [*evaluation.class_names, "background"],
                "counts": evaluation.confusion,
            },
            "calibration": {
                **_fields(calibration),
                "expected_error": calibration.expected_error,
                "temperature": evaluation.temperature,
            },
            "errors": _fields(evaluation.errors),
            "shown_errors": _fields(evaluation.shown_errors),
            "slices": {
                "object size": [_fields(x) for x in evaluation.by_object_size],
                "image size": [_fields(x) for x in evaluation.by_image_size],
                "columns": {
                    name: [_fields(x) for x in slices]
                    for name, slices in evaluation.by_column.items()
                },
            },
            "worst_images": [_fields(x) for x in evaluation.worst_images[:_LISTED]],
            "num_suspects": dict(Counter(x.kind for x in evaluation.suspects)),
            "suspects": [_fields(x) for x in evaluation.suspects[:_LISTED]],
            "findings": evaluation.findings,
        }
    )


def _fields(value):
    return None if value is None else dataclasses.asdict(value)


def _at_recalls(curve):
    """The best precision at COCO's recalls; None where there are no objects."""
    if not curve.num_objects:
        return None
    return curve.best_precision_at(COCO_RECALLS)


def _plain(value):
    """The value as Python's own dicts, lists, strings, and finite numbers."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


# --- One row per class: what the text, the page and the JSON file say of it.


class ClassRow(NamedTuple):
    """The numbers of one class, or of all.

    Attributes:
        name: string.
        num_objects: int.
        ap: float, COCO's AP; -1 where there is nothing to measure, as all the others.
        ap50: float, COCO's AP at IoU 0.5.
        voc_07: float, Pascal VOC's AP by the rule of 2007.
        voc_10: float, by that of 2010.
        threshold: float, the score threshold with the best F1; None where it is best
            to show nothing.
        precision: float, what that threshold gives.
        recall: float, the same.
        f1: float, the same.
    """

    name: str
    num_objects: int
    ap: float
    ap50: float
    voc_07: float
    voc_10: float
    threshold: float | None
    precision: float
    recall: float
    f1: float


def class_rows(evaluation: Evaluation) -> list[ClassRow]:
    """The row of each class, in the order of the labels.

    Example:

        >>> from effdet_keras.evaluate.image_result import ImageResult
        >>> result = ImageResult(1, [[0, 0, 8, 8]], [0], [[0, 0, 8, 8]], [0.9], [0])
        >>> cat, dog = class_rows(analyze_results([result], ["cat", "dog"]))
        >>> cat.name, round(cat.ap, 2), cat.threshold, dog.ap, dog.threshold
        ('cat', 1.0, 0.9, -1.0, None)
    """
    numbers = zip(
        evaluation.by_class,
        evaluation.voc_07.per_class.tolist(),
        evaluation.voc_10.per_class.tolist(),
        evaluation.thresholds,
    )
    return [
        ClassRow(
            one.name, one.num_objects, one.ap, one.ap50, voc_07, voc_10, *_at(best)
        )
        for one, voc_07, voc_10, best in numbers
    ]


def row_of_all(evaluation: Evaluation) -> ClassRow:
    """The row of all classes: means of AP, and one threshold for all.

    Example:

        >>> from effdet_keras.evaluate.image_result import ImageResult
        >>> result = ImageResult(1, [[0, 0, 8, 8]], [0], [[0, 0, 8, 8]], [0.9], [0])
        >>> row_of_all(analyze_results([result], ["cat", "dog"])).num_objects
        1
    """
    return ClassRow(
        "all classes",
        evaluation.num_objects,
        evaluation.coco["AP"],
        evaluation.coco["AP50"],
        evaluation.voc_07.mean,
        evaluation.voc_10.mean,
        *_at(evaluation.common_threshold),
    )


def _at(best):
    threshold = best.threshold if math.isfinite(best.threshold) else None
    return threshold, best.precision, best.recall, best.f1


# --- What of an evaluation is most worth knowing, in sentences.

_FEW = 10  # objects: the AP of a class with fewer is mostly luck
_NOTABLE = 0.01  # of AP, or of calibration: less is not worth a sentence
_ENOUGH = 100  # detections, from which their scores can be judged
_UNCALIBRATED = 0.1  # expected error from which scores mislead people


def find_what_matters(evaluation: Evaluation) -> list[str]:
    """Says what is most worth knowing of an evaluation.

    Example:

        >>> from effdet_keras.evaluate.image_result import ImageResult
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
