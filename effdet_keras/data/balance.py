"""`balance`: shows images of rare classes more often, in epochs of the same length.

Repeat-factor sampling (Gupta et al., "LVIS", arXiv:1908.03195): with `f(c)` the share
of images that contain class `c`, and a threshold `t`,

    r(c) = max(1, sqrt(t / f(c)))        r(image) = max of r(c) over its classes

In the paper, an epoch repeats each image `r` times. Here, an epoch keeps its number of
images, so that training takes as long as without `balance`: an image appears
`r / mean(r)` times per epoch on average. In each epoch this number is rounded up or
down at random.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from effdet_keras._internal.number_ranges import check_number
from effdet_keras.data.record import Record

AUTO = "auto"


def class_shares(records: Sequence[Record], num_classes: int) -> np.ndarray:
    """Returns the share of images with each class, floats `[C]`, without crowds."""
    counts = np.zeros(num_classes)
    for record in records:
        counts[_classes_of(record, num_classes)] += 1
    return counts / max(len(records), 1)


def threshold_of(shares: np.ndarray) -> float:
    """Returns the threshold for "auto": the median share of classes with boxes."""
    found = shares[shares > 0]
    return float(np.median(found)) if len(found) else 0.0


def repeat_factors(
    records: Sequence[Record], num_classes: int, threshold: float | str = AUTO
) -> np.ndarray:
    """Returns the repeat factor of each image, `r(image)` in the module's docstring.

    Args:
        records: sequence of `Record`, the images.
        num_classes: int, the number of classes.
        threshold: float in (0, 1], `t` in the module's docstring: images of a class are
            repeated if a smaller share of images contains it. "auto" takes the median
            of the shares of all classes that have boxes.

    Returns:
        Floats `[n]`, at least 1.

    Raises:
        ValueError: If the threshold is neither in (0, 1] nor "auto".

    Example:
        >>> from effdet_keras.data.formats.arrays import from_arrays
        >>> images = [np.zeros((32, 32, 3), "uint8")] * 4
        >>> box = [[0, 0, 8, 8]]
        >>> dataset = from_arrays(
        ...     images, [box, box, box, box], [[0], [0], [0], [1]], ["cat", "dog"])
        >>> repeat_factors(dataset.records, 2, threshold=1.0).round(4)
        array([1.1547, 1.1547, 1.1547, 2.    ])
    """
    check_number("balance", threshold, "(0, 1]", others=(AUTO,))
    shares = class_shares(records, num_classes)
    if threshold == AUTO:
        threshold = threshold_of(shares)
    of_class = np.sqrt(threshold / np.where(shares > 0, shares, 1.0))
    return np.array(
        [
            max(1.0, of_class[_classes_of(record, num_classes)].max(initial=1.0))
            for record in records
        ]
    )


def balanced_places(factors: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draws `n` image indices in random order by systematic sampling.

    Each index appears `factors / mean(factors)` times on average: that number, rounded
    up or down at random.

    Args:
        factors: floats `[n]` above 0.
        rng: `numpy.random.Generator`.

    Returns:
        int64 array `[n]`.
    """
    size = len(factors)
    order = rng.permutation(size)  # neighbours are then rounded independently
    ends = np.cumsum(factors[order])
    ends *= size / ends[-1]
    ends[-1] = size  # exactly, in spite of rounding errors
    counts = np.diff(np.floor(ends + rng.random()), prepend=0.0).astype(int)
    return rng.permutation(np.repeat(order, counts))


def _classes_of(record, num_classes):
    """Returns the distinct valid labels of a record, without crowds."""
    labels = np.unique(record.labels[~record.is_crowd])
    return labels[(labels >= 0) & (labels < num_classes)]
