"""`Comparison`: the numbers of two detectors side by side, and how sure they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from effdet_keras.evaluation.coco_metric import METRIC_NAMES
from effdet_keras.evaluation.compare import Difference, compare_detectors
from effdet_keras.evaluation.evaluation import Evaluation
from effdet_keras.evaluation.evaluation_text import number
from effdet_keras.evaluation.image_result import ImageResult
from effdet_keras.evaluation.unmeasured import UNMEASURED


@dataclasses.dataclass(frozen=True, eq=False)
class Comparison:
    """Two detectors on the same images.

    Attributes:
        names: two strings, the detectors.
        first: `Evaluation` of the first detector.
        second: `Evaluation` of the second.
        differences: dict of `Difference` by name, "AP" and "AP50".
    """

    names: tuple[str, str]
    first: Evaluation
    second: Evaluation
    differences: dict[str, Difference]

    def rows(self) -> list[tuple[str, float, float]]:
        """List of `(name, first, second)`: each number, then the AP of each class."""
        pairs = [(x, self.first.coco[x], self.second.coco[x]) for x in METRIC_NAMES]
        for name in ("voc_07", "voc_10"):
            means = (getattr(x, name).mean for x in (self.first, self.second))
            pairs.append((name.replace("_", " ").upper(), *means))
        aps = self.first.class_agnostic_ap, self.second.class_agnostic_ap
        pairs.append(("one class", *aps))
        classes = zip(self.first.by_class, self.second.by_class)
        return pairs + [(f"AP/{one.name}", one.ap, two.ap) for one, two in classes]

    @property
    def conclusions(self) -> list[str]:
        """List of sentences: what the draws say of each number."""
        return [_conclusion(name, x) for name, x in self.differences.items()]

    def to_dict(self) -> dict[str, Any]:
        """Returns the differences as dicts of floats, for JSON."""
        return {name: dataclasses.asdict(x) for name, x in self.differences.items()}

    def __str__(self) -> str:
        rows = [("", "first", "second", "difference")]
        rows += [
            (name, number(one), number(two), difference(one, two))
            for name, one, two in self.rows()
        ]
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = [f"first:  {self.names[0]}", f"second: {self.names[1]}", ""]
        for name, *cells in rows:
            padded = (f"{cell:>{width}}" for cell, width in zip(cells, widths[1:]))
            lines.append("  ".join([f"{name:<{widths[0]}}", *padded]))
        return "\n".join([*lines, "", *self.conclusions])


def compare_evaluations(
    names: tuple[str, str],
    evaluations: tuple[Evaluation, Evaluation],
    results: tuple[Sequence[ImageResult], Sequence[ImageResult]],
) -> Comparison:
    """Puts two detectors side by side, with the paired bootstrap of their AP.

    Args:
        names: two strings, the detectors.
        evaluations: the `Evaluation` of each.
        results: the `ImageResult`s that these were made of.

    Returns:
        `Comparison`.

    Raises:
        ValueError: If the images or their objects differ, or there are no objects.

    Example:
        >>> from effdet_keras.evaluation.evaluation import analyze_results
        >>> truth = dict(truth_boxes=[[0, 0, 8, 8]], truth_labels=[0])
        >>> loose, exact = (
        ...     [ImageResult(1, **truth, boxes=[box], scores=[0.9], labels=[0])]
        ...     for box in ([0, 0, 8, 6], [0, 0, 8, 8]))
        >>> both = (analyze_results(x, ["cat"]) for x in (loose, exact))
        >>> compared = compare_evaluations(("a", "b"), tuple(both), (loose, exact))
        >>> print(compared.conclusions[0])
        AP: 0.600 -> 1.000, +0.400; 95 % of the draws lie between +0.400 and +0.400:
        the second detector is better.
    """
    return Comparison(names, *evaluations, compare_detectors(*results))


def difference(first: float, second: float) -> str:
    """Second - first with its sign, or a dash where one was not measured.

    Example:
        >>> difference(0.5, 0.25), difference(0.5, -1.0)
        ('-0.250', '-')
    """
    if UNMEASURED in (first, second):
        return "-"
    return f"{second - first:+.3f}"


def _conclusion(name, found):
    if found.low > 0:
        words = "the second detector is better"
    elif found.high < 0:
        words = "the first detector is better"
    else:
        words = "these images do not tell which is better"
    return (
        f"{name}: {found.first:.3f} -> {found.second:.3f}, "
        f"{found.second - found.first:+.3f}; 95 % of the draws lie between "
        f"{found.low:+.3f} and {found.high:+.3f}: {words}."
    )
