"""`Evaluation`: all that is known of a detector on a dataset, as one typed result."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from effdet_keras.errors import InvalidValueError
from effdet_keras.evaluation.calibration import (
    SANE_TEMPERATURES,
    Calibration,
    find_temperature,
    measure_calibration,
)
from effdet_keras.evaluation.confusion import confusion_matrix
from effdet_keras.evaluation.error_kinds import ErrorKinds, decompose_errors
from effdet_keras.evaluation.evaluation_json import evaluation_to_dict
from effdet_keras.evaluation.evaluation_text import evaluation_to_text
from effdet_keras.evaluation.findings import find_what_matters
from effdet_keras.evaluation.image_result import ImageResult
from effdet_keras.evaluation.matches import objects_that_count
from effdet_keras.evaluation.precision_recall import (
    PrecisionRecallCurve,
    class_agnostic_average_precision,
    class_agnostic_curve,
    precision_recall_curves,
)
from effdet_keras.evaluation.results_to_coco import coco_numbers_of
from effdet_keras.evaluation.score_settings import ScoreSettings
from effdet_keras.evaluation.slices import (
    Slice,
    slice_by_class,
    slice_by_column,
    slice_by_image_size,
    slice_by_object_size,
)
from effdet_keras.evaluation.suspects import Suspect, find_suspects
from effdet_keras.evaluation.thresholds import (
    BestThreshold,
    best_common_threshold,
    best_thresholds,
)
from effdet_keras.evaluation.voc import VOCAveragePrecision, voc_average_precision
from effdet_keras.evaluation.worst_images import ImageErrors, worst_images

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
