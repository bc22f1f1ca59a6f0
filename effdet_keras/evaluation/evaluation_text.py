"""An `Evaluation` as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from effdet_keras.evaluation.class_table import class_rows, row_of_all
from effdet_keras.evaluation.coco_metric import COCO_MEANINGS
from effdet_keras.evaluation.slices import Slice
from effdet_keras.evaluation.unmeasured import UNMEASURED

if TYPE_CHECKING:
    from effdet_keras.evaluation.evaluation import Evaluation

CLASS_COLUMNS = (
    *("class", "objects", "AP", "AP50", "VOC 07", "VOC 10"),
    *("from score", "precision", "recall", "F1"),
)
SLICE_COLUMNS = ("images", "objects", "AP", "AP50")
_LONGEST = 24  # characters of the name of a class or slice


def evaluation_to_text(evaluation: Evaluation) -> str:
    """Writes the numbers, the classes, the errors and what matters most.

    Args:
        evaluation: `Evaluation`.

    Returns:
        str of several lines, at most 100 characters wide but for long sentences.

    Example:
        >>> from effdet_keras.evaluation.evaluation import analyze_results
        >>> from effdet_keras.evaluation.image_result import ImageResult
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

    Args:
        evaluation: `Evaluation`.

    Returns:
        str of several lines.

    Example:
        >>> from effdet_keras.evaluation.evaluation import analyze_results
        >>> from effdet_keras.evaluation.image_result import ImageResult
        >>> result = ImageResult(1, [[0, 0, 8, 8]], [0], [[0, 0, 8, 8]], [0.9], [0])
        >>> print(class_table(analyze_results([result], ["cat"])).splitlines()[1][:34])
        cat                1  1.000  1.000
    """
    rows = [_cells(row) for row in class_rows(evaluation)]
    rows.append(_cells(row_of_all(evaluation)))
    return _aligned([CLASS_COLUMNS, *rows])


def slices_table(column: str, slices: Sequence[Slice]) -> str:
    """Writes a line per slice of a column.

    Args:
        column: string, its name.
        slices: `Slice`s.

    Returns:
        str of several lines.

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
