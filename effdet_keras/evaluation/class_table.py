"""One row per class: what the text, the page and the JSON file say of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from effdet_keras.evaluation.evaluation import Evaluation


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

    Args:
        evaluation: `Evaluation`.

    Returns:
        List of `C` `ClassRow`.

    Example:
        >>> from effdet_keras.evaluation.evaluation import analyze_results
        >>> from effdet_keras.evaluation.image_result import ImageResult
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

    Args:
        evaluation: `Evaluation`.

    Returns:
        `ClassRow`.

    Example:
        >>> from effdet_keras.evaluation.evaluation import analyze_results
        >>> from effdet_keras.evaluation.image_result import ImageResult
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
