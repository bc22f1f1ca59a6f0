"""`Comparison`: the numbers of two detectors side by side, and how sure they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from effdet_keras.evaluate.coco import METRIC_NAMES
from effdet_keras.evaluate.compare import Difference, compare_detectors
from effdet_keras.evaluate.evaluation import Evaluation, number
from effdet_keras.evaluate.image_result import UNMEASURED, ImageResult

# Percentiles of draws from n images are too narrow, about as the normal distribution is
# beside Student's: by 44 % of 6 images, and by 6 % of 30.
_FEWEST = 30
_OF_ONE_MODEL = (
    "Both have the same weights, as a model and its export have. So the difference is "
    "of rounding and of suppression, and neither has learned more; the draws say how "
    "far it depends on which images these are."
)


@dataclasses.dataclass(frozen=True, eq=False)
class Comparison:
    """Two detectors on the same images.

    Attributes:
        names: two strings, the detectors.
        first: `Evaluation` of the first detector.
        second: `Evaluation` of the second.
        differences: dict of `Difference` by name, "AP" and "AP50".
        num_images: int, the images with objects that were drawn from.
        same_weights: bool, whether both are one model in two formats.
    """

    names: tuple[str, str]
    first: Evaluation
    second: Evaluation
    differences: dict[str, Difference]
    num_images: int
    same_weights: bool = False

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
        said = [
            f"{_numbers(name, x)}: {self._words(x)}."
            for name, x in self.differences.items()
        ]
        return [*said, _OF_ONE_MODEL] if self.same_weights else said

    def _words(self, found):
        if self.num_images < _FEWEST:
            told = "what is lost" if self.same_weights else "which is better"
            return f"too few images with objects ({self.num_images}) to tell {told}"
        if found.low <= 0 <= found.high:
            told = "a change" if self.same_weights else "which is better"
            return f"these images do not tell {told}"
        if self.same_weights:
            return "the format changes it so, on images like these"
        return f"the {'second' if found.low > 0 else 'first'} detector is better"

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
    *,
    same_weights: bool = False,
) -> Comparison:
    """Puts two detectors side by side, with the paired bootstrap of their AP.

    Args:
        same_weights: bool, whether both are one model, such as a live one and its
            export: neither is then called the better detector.

    Example:
        >>> from effdet_keras.evaluate.evaluation import analyze_results
        >>> truth = dict(truth_boxes=[[0, 0, 8, 8]], truth_labels=[0])
        >>> loose, exact = (
        ...     [ImageResult(1, **truth, boxes=[box], scores=[0.9], labels=[0])]
        ...     for box in ([0, 0, 8, 6], [0, 0, 8, 8]))
        >>> both = (analyze_results(x, ["cat"]) for x in (loose, exact))
        >>> compared = compare_evaluations(("a", "b"), tuple(both), (loose, exact))
        >>> print(compared.conclusions[0])
        AP: 0.600 -> 1.000, +0.400; 95 % of the draws lie between +0.400 and +0.400:
        too few images with objects (1) to tell which is better.
    """
    num_images = sum(bool((~image.truth_is_crowd).any()) for image in results[0])
    differences = compare_detectors(*results)
    return Comparison(names, *evaluations, differences, num_images, same_weights)


def difference(first: float, second: float) -> str:
    """Second - first with its sign, or a dash where one was not measured.

    Example:
        >>> difference(0.5, 0.25), difference(0.5, -1.0)
        ('-0.250', '-')
    """
    if UNMEASURED in (first, second):
        return "-"
    return f"{second - first:+.3f}"


def _numbers(name, found):
    return (
        f"{name}: {found.first:.3f} -> {found.second:.3f}, "
        f"{found.second - found.first:+.3f}; 95 % of the draws lie between "
        f"{found.low:+.3f} and {found.high:+.3f}"
    )
