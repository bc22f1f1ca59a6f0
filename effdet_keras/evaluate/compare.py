"""Whether one detector is better than another, or was lucky with the images."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from effdet_keras.errors import InvalidValueError
from effdet_keras.evaluate.coco import METRIC_NAMES, rank_within
from effdet_keras.evaluate.curves import COCO_IOU_THRESHOLDS, interpolated_ap
from effdet_keras.evaluate.evaluation import Evaluation, aligned, number
from effdet_keras.evaluate.image_result import (
    UNMEASURED,
    ImageResult,
    with_detections,
)
from effdet_keras.evaluate.matches import match_detections

_MAX_DETECTIONS = 100  # COCO's, of each image and class


@dataclasses.dataclass(frozen=True)
class Difference:
    """A number of two detectors on the same images.

    Attributes:
        first: float, 0 to 1, of the first detector on the images as they are.
        second: float, 0 to 1, of the second.
        mean: float, -1 to 1, the mean over all draws of second - first.
        low: float, second - first is this or more in 97.5 % of the draws.
        high: float, it is this or less in 97.5 % of the draws: between the two lies
            the 95 % interval.
        share_better: float, 0 to 1, the share of the draws in which the second is
            better. A draw in which they are equal counts half.
    """

    first: float
    second: float
    mean: float
    low: float
    high: float
    share_better: float

    def __str__(self):
        return (
            f"{self.first:.4f} -> {self.second:.4f}, difference {self.mean:+.4f} "
            f"({self.low:+.4f} to {self.high:+.4f}), second better in "
            f"{self.share_better:.1%} of the draws"
        )


def compare_detectors(
    first: Sequence[ImageResult],
    second: Sequence[ImageResult],
    *,
    num_draws: int = 1000,
    seed: int = 0,
) -> dict[str, Difference]:
    """Compares the AP of two detectors, and how sure the difference is.

    The paired bootstrap (Efron and Tibshirani 1993, "An introduction to the
    bootstrap", chapter 16): images are drawn with replacement, as many as there are,
    the same for both detectors, and the AP of both is computed on each draw. An image
    that was drawn twice counts twice. Where the interval holds 0, the images do not
    tell which is better. Of fewer than some 30 images it is too narrow to tell at all.
    It says nothing of another training of the same model, nor of images of another
    kind.

    AP is COCO's, as `COCOMetric` computes it: the best 100 detections of each image
    and class, mean over the classes that have objects. A draw without any object is
    drawn again.

    Args:
        first: sequence of `ImageResult` of the first detector.
        second: sequence of `ImageResult` of the second, of the same images with the
            same ground truth, in any order.
        num_draws: int above 0.
        seed: int, of the draws.

    Returns:
        Dict of `Difference`: "AP", mean over IoU 0.50 to 0.95, and "AP50".

    Raises:
        ValueError: If the images or their objects differ, or there are no objects.

    Example:
        >>> truth = dict(truth_boxes=[[0, 0, 8, 8]], truth_labels=[0])
        >>> exact = [ImageResult(i, **truth, boxes=[[0, 0, 8, 8]], scores=[0.9],
        ...                      labels=[0]) for i in range(5)]
        >>> loose = [ImageResult(i, **truth, boxes=[[0, 0, 8, 6]], scores=[0.9],
        ...                      labels=[0]) for i in range(5)]
        >>> print(compare_detectors(loose, exact)["AP"])
        0.6000 -> 1.0000, difference +0.4000 (+0.4000 to +0.4000), second better in
        100.0% of the draws
    """
    if num_draws < 1:
        raise InvalidValueError(
            f"`num_draws` must be above 0. Received: num_draws={num_draws}"
        )
    # pycocotools, too, goes through images by id: it matters where scores are equal.
    first = sorted(first, key=lambda image: image.image_id)
    second = sorted(second, key=lambda image: image.image_id)
    _check_same_images(first, second)
    classes = _Class.of_images(first), _Class.of_images(second)
    has_objects = np.array([(~x.truth_is_crowd).any() for x in first])
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
        better = np.mean(drawn > 0) + np.mean(drawn == 0) / 2
        numbers = (one, other, drawn.mean(), low, high, better)
        found[name] = Difference(*map(float, numbers))
    return found


@dataclasses.dataclass(frozen=True, eq=False)
class _Class:
    """The detections of one class on all images, best first, matched once for all.

    `image` `[m]` is the row of the image, `true` and `counted` `[10, m]` are bools at
    each IoU threshold, `num_objects` `[images]` are the objects to be found.
    """

    image: np.ndarray
    true: np.ndarray
    counted: np.ndarray
    num_objects: np.ndarray

    @classmethod
    def of_images(cls, results):
        """A list of these: the classes that have objects."""
        results = [
            with_detections(result, rank_within(result.labels) < _MAX_DETECTIONS)
            for result in results
        ]
        matches = [
            [match_detections(result, threshold) for result in results]
            for threshold in COCO_IOU_THRESHOLDS
        ]
        true = np.array([np.concatenate([x.is_true for x in row]) for row in matches])
        counted = np.array(
            [np.concatenate([~x.is_ignored for x in row]) for row in matches]
        )
        image = np.repeat(np.arange(len(results)), [len(x.labels) for x in results])
        labels = np.concatenate([x.labels for x in results])
        order = np.argsort(-np.concatenate([x.scores for x in results]), kind="stable")
        objects = [x.truth_labels[~x.truth_is_crowd] for x in results]
        classes = []
        for label in np.unique(np.concatenate(objects)):
            rows = order[labels[order] == label]
            found = image[rows], true[:, rows], counted[:, rows]
            classes.append(cls(*found, np.array([np.sum(x == label) for x in objects])))
        return classes

    def ap(self, counts):
        """AP at each IoU threshold, `[10]`, of images that count so often."""
        weights, num_objects = counts[self.image], int(counts @ self.num_objects)
        return interpolated_ap(self.true * weights, self.counted * weights, num_objects)


def _draw(rng, has_objects):
    """How often each image was drawn, `[images]`."""
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


def _check_same_images(first, second):
    ids = [[result.image_id for result in results] for results in (first, second)]
    if ids[0] != ids[1] or len(set(ids[0])) < len(ids[0]):
        others = sorted(set(ids[0]) ^ set(ids[1]))
        raise InvalidValueError(
            "`first` and `second` must be of the same images, each once. Received: "
            f"{len(first)} and {len(second)} results; only in one: {others[:5]}"
        )
    for one, other in zip(first, second):
        for field in ("truth_boxes", "truth_labels", "truth_is_crowd"):
            if not np.array_equal(getattr(one, field), getattr(other, field)):
                raise InvalidValueError(
                    "`first` and `second` must have the same ground truth. Received: "
                    f"another `{field}` for image {one.image_id}"
                )
    if not any((~result.truth_is_crowd).any() for result in first):
        raise InvalidValueError(
            "A comparison needs objects to be found. Received: "
            f"{len(first)} results without an object that is no crowd region"
        )


# --- The numbers of two detectors side by side, and how sure they are.

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
        both = self.first, self.second
        return [
            *((name, *(x.coco[name] for x in both)) for name in METRIC_NAMES),
            ("VOC 07", *(x.voc_07.mean for x in both)),
            ("VOC 10", *(x.voc_10.mean for x in both)),
            ("one class", *(x.class_agnostic_ap for x in both)),
            *(
                (f"AP/{one.name}", one.ap, two.ap)
                for one, two in zip(*(x.by_class for x in both))
            ),
        ]

    def table(self) -> list[tuple[str, ...]]:
        """`rows` as text, with the differences, below the names of the columns."""
        cells = [("", "first", "second", "difference")]
        for name, one, two in self.rows():
            is_measured = UNMEASURED not in (one, two)
            difference = f"{two - one:+.3f}" if is_measured else "-"
            cells.append((name, number(one), number(two), difference))
        return cells

    @property
    def conclusions(self) -> list[str]:
        """List of sentences: what the draws say of each number."""
        said = [
            f"{name}: {x.first:.3f} -> {x.second:.3f}, {x.second - x.first:+.3f}; "
            f"95 % of the draws lie between {x.low:+.3f} and {x.high:+.3f}: "
            f"{self._words(x)}."
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
        names = f"first:  {self.names[0]}\nsecond: {self.names[1]}\n"
        return "\n".join([names, aligned(self.table()), "", *self.conclusions])


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
    """
    num_images = sum(bool((~image.truth_is_crowd).any()) for image in results[0])
    differences = compare_detectors(*results)
    return Comparison(names, *evaluations, differences, num_images, same_weights)
