"""`balance`: images of rare classes more often, in epochs of the same length.

Repeat-factor sampling (Gupta et al., "LVIS", arXiv:1908.03195): with `f` the
share of images that a class `c` is in, and a threshold `t`,

    r(c) = max(1, sqrt(t / f(c)))        r(image) = max of r(c) over its classes

There an epoch repeats each image `r` times. Here it keeps its number of images, so that
a training is as long as without: an image is in an epoch `r / mean(r)` times on
average, which is rounded up or down at random, epoch by epoch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from effdet_keras._internal.number_ranges import check_number
from effdet_keras.data.record import Record

AUTO = "auto"


def class_shares(records: Sequence[Record], num_classes: int) -> np.ndarray:
    """The share of images that each class is in, floats `[C]`; crowds do not count."""
    counts = np.zeros(num_classes)
    for record in records:
        counts[_classes_of(record, num_classes)] += 1
    return counts / max(len(records), 1)


def threshold_of(shares: np.ndarray) -> float:
    """The threshold of "auto": the median share of the classes that have boxes."""
    found = shares[shares > 0]
    return float(np.median(found)) if len(found) else 0.0


def repeat_factors(
    records: Sequence[Record], num_classes: int, threshold: float | str = AUTO
) -> np.ndarray:
    """The repeat factor of each image, floats `[n]`, at least 1.

    Args:
        records: sequence of `Record`, the images.
        num_classes: int, of the labels.
        threshold: float in (0, 1], `t` above: classes in fewer images than this share
            are repeated; "auto" is the median of the shares of all classes.

    Raises:
        ValueError: If the threshold is neither.

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
    """A random order of `n` places, each `factors / mean(factors)` times on average.

    Systematic sampling: each is there that many times, rounded up or down.

    Args:
        factors: floats `[n]` above 0.
        rng: NumPy generator.

    Returns:
        int64 `[n]`.
    """
    size = len(factors)
    order = rng.permutation(size)  # so that chance rounds neighbours independently
    ends = np.cumsum(factors[order])
    ends *= size / ends[-1]
    ends[-1] = size  # whatever was rounded
    counts = np.diff(np.floor(ends + rng.random()), prepend=0.0).astype(int)
    return rng.permutation(np.repeat(order, counts))


def _classes_of(record, num_classes):
    """The labels of a record's objects, each once."""
    labels = np.unique(record.labels[~record.is_crowd])
    return labels[(labels >= 0) & (labels < num_classes)]
