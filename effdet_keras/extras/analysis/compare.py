"""Compares two detectors, and tests whether the difference is more than luck."""

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

_MAX_DETECTIONS = 100  # COCO's limit, per image and class


class Difference(NamedTuple):
    """A metric of two detectors on the same images."""

    first: float  # 0 to 1, on all images
    second: float
    low: float  # second - first is at least this in 97.5 % of the draws
    high: float  # second - first is at most this in 97.5 %: 95 % are between the two


def compare_detectors(first, second, *, num_draws=1000, seed=0):
    """Compares "AP" and "AP50" of two detectors with the paired bootstrap.

    In each draw, as many images as there are are drawn with replacement, the same for
    both detectors (Efron and Tibshirani, 1993, "An introduction to the bootstrap",
    chapter 16). If the interval contains 0, these images do not show which detector is
    better.

    Args:
        first, second: sequences of `ImageResult`, of the same images.
        num_draws: int, number of draws.
        seed: int, seed of the draws.

    Returns:
        Dict from "AP" and "AP50" to `Difference`.

    Raises:
        ValueError: If the images have no objects, so that there is no AP.
    """
    # pycocotools also orders images by id, which matters if scores are equal.
    first = sorted(first, key=lambda image: image.image_id)
    second = sorted(second, key=lambda image: image.image_id)
    has_objects = np.array([(~x.truth_is_crowd).any() for x in first], bool)
    rule = "Detectors can be compared only on images with objects"
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
    """The detections of a class in all images, by score, matched once for all draws."""

    image: np.ndarray  # ints [m], index of the image
    true: np.ndarray  # bools [10, m], at each IoU threshold
    counted: np.ndarray  # bools [10, m], not ignored
    num_objects: np.ndarray  # ints [images], number of objects

    @classmethod
    def from_results(cls, results):
        """Returns a list with an instance for each class that has objects."""
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
        """Returns AP per IoU threshold, `[10]`, if images count `counts` times."""
        weights, num_objects = counts[self.image], int(counts @ self.num_objects)
        return interpolated_ap(self.true * weights, self.counted * weights, num_objects)


def _draw(rng, has_objects):
    """Draws how often each image counts, `[images]`; at least one has an object."""
    num_images = len(has_objects)
    while True:
        counts = rng.multinomial(num_images, np.full(num_images, 1 / num_images))
        if counts[has_objects].any():
            return counts


def _ap_and_ap50(classes, counts):
    """Returns the means of AP and AP50 over the classes with counted objects."""
    counted = [one for one in classes if counts @ one.num_objects]
    aps = np.array([one.ap(counts) for one in counted])  # [class, threshold]
    return float(aps.mean()), float(aps[:, 0].mean())


# --- The metrics of two detectors side by side, with their uncertainty.

# With n images, the bootstrap's percentiles are too narrow by about the ratio of
# Student's distribution to the normal one: by 44 % for 6 images, by 6 % for 30.
_FEWEST = 30


@dataclasses.dataclass(frozen=True, eq=False)
class Comparison:
    """The evaluations of two detectors on the same images."""

    names: tuple[str, str]
    first: Evaluation
    second: Evaluation
    differences: dict[str, Difference]  # "AP" and "AP50"
    num_images: int  # number of images with objects

    def table(self) -> list[tuple[str, ...]]:
        """Returns rows of metrics, then the AP of each class, below column names."""
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
        """Returns sentences on what the draws say about each metric."""
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
    """Returns a `Comparison` of two detectors, with the paired bootstrap of AP."""
    num_images = sum(bool((~image.truth_is_crowd).any()) for image in results[0])
    differences = compare_detectors(*results)
    return Comparison(names, *evaluations, differences, num_images)
