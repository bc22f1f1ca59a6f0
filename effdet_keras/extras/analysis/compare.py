"""Whether one detector is better than another, or was lucky with the images."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from effdet_keras.errors import printable, require
from effdet_keras.evaluate.coco import rank_within
from effdet_keras.evaluate.evaluation import Evaluation, aligned, main_numbers, number
from effdet_keras.evaluate.image_result import (
    UNMEASURED,
    match_detections,
    with_detections,
)
from effdet_keras.extras.analysis.curves import COCO_IOU_THRESHOLDS, interpolated_ap

_MAX_DETECTIONS = 100  # COCO's, of each image and class


class Difference(NamedTuple):
    """A number of two detectors on the same images."""

    first: float  # 0 to 1, on the images as they are
    second: float
    low: float  # second - first is this or more in 97.5 % of the draws
    high: float  # it is this or less in 97.5 % of them: 95 % lie between the two


def compare_detectors(first, second, *, num_draws=1000, seed=0):
    """Compares "AP" and "AP50" of two detectors by the paired bootstrap.

    Efron and Tibshirani 1993, "An introduction to the bootstrap", chapter 16: images
    are drawn with replacement, as many as there are, the same for both detectors. Where
    the interval holds 0, the images do not tell which is better.

    Raises:
        ValueError: If the images have no objects, so that there is no AP.
    """
    # pycocotools, too, goes through images by id: it matters where scores are equal.
    first = sorted(first, key=lambda image: image.image_id)
    second = sorted(second, key=lambda image: image.image_id)
    has_objects = np.array([(~x.truth_is_crowd).any() for x in first], bool)
    rule = "Detectors are compared on images with objects"
    require(has_objects.any(), rule, num_images=len(first), num_objects=0)
    classes = _Class.from_results(first), _Class.from_results(second)
    rng = np.random.default_rng(seed)
    once = [_ap_and_ap50(x, np.ones(len(first), int)) for x in classes]
    draws = []  # [draw, detector, AP or AP50]
    for _ in range(num_draws):
        counts = _draw(rng, has_objects)
        draws.append([_ap_and_ap50(x, counts) for x in classes])
    differences = np.diff(draws, axis=1)[:, 0].T  # [AP or AP50, draw]
    found = {}
    for name, one, other, drawn in zip(("AP", "AP50"), *once, differences):
        low, high = np.percentile(drawn, [2.5, 97.5])
        found[name] = Difference(*map(float, (one, other, low, high)))
    return found


class _Class(NamedTuple):
    """The detections of one class on all images, best first, matched once for all."""

    image: np.ndarray  # ints [m], the row of the image
    true: np.ndarray  # bools [10, m], at each IoU threshold
    counted: np.ndarray  # bools [10, m]
    num_objects: np.ndarray  # ints [images], to be found

    @classmethod
    def from_results(cls, results):
        """A list of these: the classes that have objects."""
        results = [
            with_detections(result, rank_within(result.labels) < _MAX_DETECTIONS)
            for result in results
        ]
        matches = [
            [match_detections(result, threshold) for result in results]
            for threshold in COCO_IOU_THRESHOLDS
        ]
        true = np.array([np.concatenate([x.is_true for x in m]) for m in matches])
        counted = ~np.array(
            [np.concatenate([x.is_ignored for x in m]) for m in matches]
        )
        image = np.repeat(np.arange(len(results)), [len(x.labels) for x in results])
        labels = np.concatenate([x.labels for x in results])
        order = np.argsort(-np.concatenate([x.scores for x in results]), kind="stable")
        objects = [x.truth_labels[~x.truth_is_crowd] for x in results]
        image_of = np.repeat(np.arange(len(results)), [len(x) for x in objects])
        label_of = np.concatenate(objects)
        classes = []
        for label in np.unique(label_of):
            rows = order[labels[order] == label]
            found = image[rows], true[:, rows], counted[:, rows]
            of_class = image_of[label_of == label]
            classes.append(cls(*found, np.bincount(of_class, minlength=len(results))))
        return classes

    def ap(self, counts):
        """AP at each IoU threshold, `[10]`, of images that count so often."""
        weights, num_objects = counts[self.image], int(counts @ self.num_objects)
        return interpolated_ap(self.true * weights, self.counted * weights, num_objects)


def _draw(rng, has_objects):
    """How often each image was drawn, `[images]`; some object always was."""
    num_images = len(has_objects)
    while True:
        counts = rng.multinomial(num_images, np.full(num_images, 1 / num_images))
        if counts[has_objects].any():
            return counts


def _ap_and_ap50(classes, counts):
    """Two floats: the means over the classes of which an object counts."""
    counted = [one for one in classes if counts @ one.num_objects]
    aps = np.array([one.ap(counts) for one in counted])  # [class, threshold]
    return float(aps.mean()), float(aps[:, 0].mean())


# --- The numbers of two detectors side by side, and how sure they are.

# Percentiles of draws from n images are too narrow, about as the normal distribution is
# beside Student's: by 44 % of 6 images, and by 6 % of 30.
_FEWEST = 30


@dataclasses.dataclass(frozen=True, eq=False)
class Comparison:
    """Two detectors on the same images."""

    names: tuple[str, str]
    first: Evaluation
    second: Evaluation
    differences: dict[str, Difference]  # "AP" and "AP50"
    num_images: int  # with objects: those that were drawn from

    def table(self) -> list[tuple[str, ...]]:
        """Each number, then the AP of each class, below the names of the columns."""
        columns = [
            main_numbers(x) | {f"AP/{one.name}": one.ap for one in x.by_class}
            for x in (self.first, self.second)
        ]
        cells = [("", "first", "second", "difference")]
        for (name, one), other in zip(columns[0].items(), columns[1].values()):
            is_measured = UNMEASURED not in (one, other)
            difference = f"{other - one:+.3f}" if is_measured else "-"
            cells.append((name, number(one), number(other), difference))
        return cells

    @property
    def conclusions(self) -> list[str]:
        """List of sentences: what the draws say of each number."""
        return [
            f"{name}: {x.first:.3f} -> {x.second:.3f}, {x.second - x.first:+.3f}; "
            f"95 % of the draws lie between {x.low:+.3f} and {x.high:+.3f}: "
            f"{self._words(x)}."
            for name, x in self.differences.items()
        ]

    def _words(self, found):
        if self.num_images < _FEWEST:
            few = f"too few images with objects ({self.num_images})"
            return f"{few} to say which is better"
        if found.low <= 0 <= found.high:
            return "these images do not show which is better"
        return f"the {'second' if found.low > 0 else 'first'} detector is better"

    def to_dict(self) -> dict[str, Any]:
        """Returns the differences as dicts of floats, for JSON."""
        return {name: x._asdict() for name, x in self.differences.items()}

    def __str__(self) -> str:
        names = f"first:  {self.names[0]}\nsecond: {self.names[1]}\n"
        lines = [names, aligned(self.table()), "", *self.conclusions]
        return printable("\n".join(lines))


def compare_evaluations(names, evaluations, results):
    """Puts two detectors side by side, with the paired bootstrap of their AP."""
    num_images = sum(bool((~image.truth_is_crowd).any()) for image in results[0])
    differences = compare_detectors(*results)
    return Comparison(names, *evaluations, differences, num_images)
