"""`Evaluation`: all measurements of a detector on a dataset, as one typed result."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from effdet_keras._internal.plain_values import to_jsonable
from effdet_keras.errors import printable, require
from effdet_keras.evaluate.coco import (
    COCO_MEANINGS,
    METRIC_NAMES,
    average_precisions,
    metric_of,
)
from effdet_keras.evaluate.diagnosis import ap50_of_boxes, diagnose
from effdet_keras.evaluate.image_result import (
    UNMEASURED,
    ImageResult,
    as_one_class,
    mean_of_measured,
)
from effdet_keras.evaluate.thresholds import (
    SANE_TEMPERATURES,
    BestThreshold,
    ScoreSettings,
    best_thresholds,
    find_temperature,
)

if TYPE_CHECKING:
    from effdet_keras.extras.analysis import ErrorKinds, ImageErrors, Suspect
    from effdet_keras.extras.analysis.curves import (
        Calibration,
        PrecisionRecallCurve,
        Slice,
        VOCAveragePrecision,
    )

_USUAL_SCORE = 0.3  # default of `detect`, used if no threshold is better than another
_JUDGES = 0.4  # class-agnostic AP from which a detector may doubt annotations
_LEAST_SCORE = 0.05  # for calibration: detections with lower scores are never shown


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """The result of `analyze_results`: all measurements of a detector on a dataset.

    `print(evaluation)` shows the most useful of them. A number is -1 if there is
    nothing to measure. A detection is right if it has an IoU of 0.5 or more with an
    object of its class. A detection is shown if its score is `shown_score` or more.

    Attributes:
        class_names: tuple of `C` strings, in the order of the labels.
        num_images, num_objects, num_detections: ints. Crowd regions are not counted.
        coco: dict of floats by name: the twelve COCO metrics, then `AP/<class>`.
        voc_10: Pascal VOC's AP by the rule of 2010: `mean`, and `per_class`, floats
            `[C]`.
        class_agnostic_ap: float, COCO's AP if all classes are treated as one.
        curves: for each class its `name`, `num_objects`, and floats `[k]`: `scores`
            (descending), `precision` and `recall`; `average_precision` is COCO's.
        thresholds: for each class the score threshold with the best F1: `name`,
            `threshold` (infinity to show none), `f1`, `precision`, `recall`.
        common_threshold: the same for all classes together.
        shown_score: float, the threshold of `common_threshold`, or 0.3 if that is
            infinite.
        confusion: ints `[C + 1, C + 1]`, for shown detections: row `i`, column `j`
            counts the objects of class `i` that were detected as class `j`. The last
            row counts detections without an object, the last column missed objects.
        calibration: how often detections with a score of 0.05 or more are right, in
            bins of scores: `edges`, `counts`, `mean_scores`, `precisions`,
            `expected_error`.
        temperature: float, the temperature that brings scores closest to the share of
            detections that are right. None if no detection is right, or none is wrong.
        errors: the error types of TIDE: `ap`, `counts`, and `gains`, the AP that each
            type costs; `print(evaluation.errors)` shows them. None without objects.
        shown_errors: the same for shown detections only.
        by_class: AP of each class: `name`, `num_images`, `num_objects`, `ap`, `ap50`.
        by_object_size: the same for COCO's object sizes.
        worst_images: all images, the worst first, judged by shown detections:
            `image_id`, `name`, `badness`, `num_found`, `num_missed`, `num_false`.
        suspects: annotations that may be wrong, the most suspicious first: `image_id`,
            `name`, `kind`, `suspicion`, `box` (`yxyx` in pixels), `label`,
            `found_box`, `found_label`, `score`, `iou`.
        by_column: dict from the name of a column to the AP of the images with each
            value of the column.
        diagnosis: string, the cause of a low AP50 and what to do; None if not known.
    """

    class_names: tuple[str, ...]
    num_images: int
    num_objects: int
    num_detections: int
    coco: dict[str, float]
    voc_10: VOCAveragePrecision
    class_agnostic_ap: float
    curves: tuple[PrecisionRecallCurve, ...]
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
    worst_images: tuple[ImageErrors, ...]
    suspects: tuple[Suspect, ...]
    by_column: dict[str, tuple[Slice, ...]] = dataclasses.field(default_factory=dict)
    diagnosis: str | None = None

    @property
    def can_judge_annotations(self) -> bool:
        """Whether `class_agnostic_ap` is 0.4 or more, enough to doubt annotations."""
        return self.class_agnostic_ap >= _JUDGES

    @property
    def findings(self) -> list[str]:
        """List of sentences with the main findings, the most useful first."""
        if not self.num_objects:
            return []
        from effdet_keras.extras.analysis import findings_of

        return list(findings_of(self))

    def score_settings(self, class_names: Sequence[str] | None = None) -> ScoreSettings:
        """Returns the thresholds and the temperature that are best by this evaluation.

        The threshold of a class is the one with the best F1, or `shown_score` if no
        detection of the class is right. The temperature is stored if it is between 0.1
        and 10. `detect` uses these settings with `score_threshold="best"` and
        `calibrated=True`.

        Args:
            class_names: class names of a model, in the order of its labels. They must
                include all class names of this evaluation. None takes the class names
                of this evaluation.

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
        rule = "`class_names` must have all classes of the evaluation"
        require(not missing, rule, missing=missing[:5])
        rule = "No detection is right at IoU 0.5, so no threshold is the best one"
        require(self.common_threshold.f1 > 0, rule, f1=self.common_threshold.f1)
        best = {one.name: one.threshold for one in self.thresholds if one.f1 > 0}
        low, high = SANE_TEMPERATURES
        is_sane = self.temperature is not None and low < self.temperature < high
        return ScoreSettings(
            tuple(best.get(name, self.shown_score) for name in names),
            self.temperature if is_sane else None,
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns all numbers as dicts, lists, strings and finite numbers, for JSON.

        A curve is given by its best precision at each of COCO's 101 recalls. Only the
        first 200 of the worst images and of the suspects are listed.

        Example:
            >>> result = ImageResult(
            ...     1, [[0, 0, 8, 8]], [0], [[0, 0, 8, 8]], [0.9], [0], size=(9, 9))
            >>> numbers = analyze_results([result], ["cat"]).to_dict()
            >>> round(numbers["coco"]["AP"], 3), numbers["confusion"]["counts"]
            (1.0, [[1, 0], [0, 0]])
        """
        *classes, every = class_rows(self)
        from effdet_keras.extras.analysis.curves import COCO_RECALLS as recalls

        numbers = {
            "images": self.num_images,
            "objects": self.num_objects,
            "detections": self.num_detections,
            "coco": self.coco,
            "voc": {"10": self.voc_10.mean},
            "class_agnostic_ap": self.class_agnostic_ap,
            "all_classes": every,
            "classes": classes,
            "curves": {
                "recall": recalls,
                "precision": {
                    x.name: x.best_precision_at(recalls) if x.num_objects else None
                    for x in self.curves
                },
            },
            "shown_score": self.shown_score,
            "confusion": {
                "classes": [*self.class_names, "background"],
                "counts": self.confusion,
            },
            "calibration": {
                **self.calibration._asdict(),
                "expected_error": self.calibration.expected_error,
                "temperature": self.temperature,
            },
            "errors": self.errors,
            "shown_errors": self.shown_errors,
            "slices": {"object size": self.by_object_size, "columns": self.by_column},
            "worst_images": self.worst_images[:_LISTED],
            "num_suspects": dict(Counter(x.kind for x in self.suspects)),
            "suspects": self.suspects[:_LISTED],
            "findings": self.findings,
        }
        return to_jsonable(numbers)

    def __repr__(self) -> str:
        return (
            f"Evaluation({self.num_images} images, {self.num_objects} objects, "
            f"AP {self.coco['AP']:.4f}, AP50 {self.coco['AP50']:.4f})"
        )

    def __str__(self) -> str:
        parts = [counts_of(self)]
        if self.num_objects:
            numbers = (f"{a:<10}{b:>8}  {words}" for a, b, words in number_rows(self))
            tables = [slice_table(*column) for column in self.by_column.items()]
            parts.append("\n".join(numbers))
            parts += [aligned(x, _LONGEST) for x in (class_table(self), *tables)]
            parts.append(f"At IoU 0.5: {self.errors}")
        else:
            parts.append("The ground truth has no objects, so nothing can be measured.")
        if self.findings:
            lines = "\n".join(f"- {words}" for words in self.findings)
            parts.append(f"What matters most:\n{lines}")
        return printable("\n\n".join(parts))


def analyze_results(
    results: Sequence[ImageResult],
    class_names: Sequence[str],
    *,
    columns: Mapping[str, Mapping[int, object]] | None = None,
) -> Evaluation:
    """Computes every measurement of `Evaluation` from a detector's results.

    Args:
        results: one `ImageResult` per image, with detections down to a low score, as
            `image_results` of `detect/evaluate.py` returns them.
        class_names: strings `[C]`, in the order of the labels.
        columns: mapping from the name of a column to its values by image id, as
            `read_image_columns` of `extras/image_columns.py` returns it. AP is also
            computed for the images with each value.

    Returns:
        `Evaluation`.

    Raises:
        InvalidValueError: If there are no results, a label has no name, two results
            have the same image id, or a column has no value for an image.

    Example:
        >>> result = ImageResult(
        ...     1, truth_boxes=[[0, 0, 8, 8], [20, 20, 28, 28]], truth_labels=[0, 1],
        ...     boxes=[[0, 0, 8, 8], [20, 20, 28, 28]], scores=[0.9, 0.4],
        ...     labels=[0, 0], size=(64, 64))
        >>> evaluation = analyze_results([result], ["cat", "dog"])
        >>> round(evaluation.coco["AP50"], 3), evaluation.confusion.tolist()
        (0.5, [[1, 0, 0], [0, 0, 1], [0, 0, 0]])
    """
    require(results, "There is nothing to analyze", results=results)
    coco = metric_of(results, class_names).result()  # first: it checks ids and labels
    count = len(class_names)
    num_objects = sum(int((~x.truth_is_crowd).sum()) for x in results)
    *thresholds, common = best_thresholds(results, class_names)
    shown_score = common.threshold if math.isfinite(common.threshold) else _USUAL_SCORE
    shown = [result.above(shown_score) for result in results]
    visible = [result.above(_LEAST_SCORE) for result in results]
    as_one = as_one_class(results)
    from effdet_keras.extras import analysis
    from effdet_keras.extras.analysis import curves

    analysis, curves = analysis, curves
    by_class, by_object_size = curves.slice_by_class_and_size(results, class_names)
    return Evaluation(
        class_names=tuple(class_names),
        num_images=len(results),
        num_objects=num_objects,
        num_detections=sum(len(result.scores) for result in results),
        coco=coco,
        voc_10=curves.voc_average_precision(results, count),
        class_agnostic_ap=mean_of_measured(average_precisions(as_one, 1)[..., 0]),
        curves=tuple(curves.precision_recall_curves(results, class_names)),
        thresholds=tuple(thresholds),
        common_threshold=common,
        shown_score=shown_score,
        confusion=analysis.confusion_matrix(shown, count),
        calibration=curves.measure_calibration(visible),
        temperature=find_temperature(visible),
        errors=analysis.decompose_errors(results),
        shown_errors=analysis.decompose_errors(shown),
        by_class=tuple(by_class),
        by_object_size=tuple(by_object_size),
        worst_images=tuple(analysis.worst_images(shown)),
        suspects=tuple(analysis.find_suspects(results)),
        by_column={
            name: tuple(curves.slice_by_column(results, count, values))
            for name, values in (columns or {}).items()
        },
        diagnosis=diagnose(coco["AP50"], ap50_of_boxes(results), count),
    )


# --- An `Evaluation` as rows of text and numbers, for text, web page and JSON file.

_LISTED = 200  # the most images and suspects to list
_LONGEST = 24  # characters; a longer name of a class or slice is cut


def counts_of(evaluation):
    """Returns a text like "1 image, 2 objects of 1 class, 3 detections"."""
    counts = (
        (evaluation.num_images, "image", "images"),
        (evaluation.num_objects, "object", "objects"),
        (len(evaluation.class_names), "class", "classes"),
        (evaluation.num_detections, "detection", "detections"),
    )
    words = [f"{count:,} {one if count == 1 else many}" for count, one, many in counts]
    return "{}, {} of {}, {}".format(*words)


def number(value: float | None, digits: int = 3) -> str:
    """Formats a number; a dash for None or -1."""
    return "-" if value is None or value == UNMEASURED else f"{value:.{digits}f}"


def number_rows(evaluation):
    """Returns the names of `main_numbers`, the numbers as text, and their meanings."""
    numbers = main_numbers(evaluation)
    return [(name, number(x, 4), _MEANINGS[name]) for name, x in numbers.items()]


def main_numbers(evaluation):
    """Returns COCO metrics, Pascal VOC's mAP and the class-agnostic AP, by name."""
    return {
        **{name: evaluation.coco[name] for name in METRIC_NAMES},
        "VOC 10": evaluation.voc_10.mean,
        "one class": evaluation.class_agnostic_ap,
    }


_MEANINGS = {
    **COCO_MEANINGS,
    "VOC 10": "Pascal VOC's mAP, rule of 2010, IoU 0.5",
    "one class": "AP if all classes were one: how well objects are found",
}


def aligned(table, longest=99):
    """Formats rows of cells as aligned text, the header first; cuts long names."""
    table = [(f"{name:.{longest}}", *cells) for name, *cells in table]
    widths = [max(map(len, column)) for column in zip(*table)]
    return "\n".join(
        f"{name:<{widths[0]}}  "
        + "  ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths[1:]))
        for name, *cells in table
    )


def slice_table(column, slices):
    """Returns the cells of slices as rows, below a header."""
    columns = column, "images", "objects", "AP", "AP50"
    return [columns, *map(_cells, slices)]


def _cells(row):
    """Formats a name, counts and numbers as text."""
    return tuple(
        x if isinstance(x, str) else f"{x:,}" if isinstance(x, int) else number(x)
        for x in row
    )


def class_rows(evaluation: Evaluation) -> list[dict[str, Any]]:
    """Returns the numbers of each class, then a row for all classes.

    The last row has the mean APs and the common threshold. A threshold is the one with
    the best F1, or None if it is best to show nothing.
    """
    aps = evaluation.coco["AP"], evaluation.coco["AP50"]
    counts = evaluation.num_images, evaluation.num_objects
    from effdet_keras.extras.analysis.curves import Slice

    every = Slice("all classes", *counts, *aps)
    rows = zip(
        (*evaluation.by_class, every),
        (*evaluation.voc_10.per_class.tolist(), evaluation.voc_10.mean),
        (*evaluation.thresholds, evaluation.common_threshold),
    )
    return [
        {
            "name": one.name,
            "num_objects": one.num_objects,
            "ap": one.ap,
            "ap50": one.ap50,
            "voc_10": voc_10,
            "threshold": best.threshold if math.isfinite(best.threshold) else None,
            "precision": best.precision,
            "recall": best.recall,
            "f1": best.f1,
        }
        for one, voc_10, best in rows
    ]


def class_table(evaluation):
    """Returns the cells of `class_rows` as rows, below a header."""
    columns = ("class", "objects", "AP", "AP50", "VOC 10")
    columns += ("from score", "precision", "recall", "F1")
    return [columns, *(_cells(row.values()) for row in class_rows(evaluation))]
