"""Successive halving: trains all candidates briefly, and the better ones for longer.

Jamieson and Talwalkar, 2016, "Non-stochastic Best Arm Identification and Hyperparameter
Optimization" (https://arxiv.org/abs/1502.07943): a candidate that is worse than most
after a short training is rarely the best after a long one. So most of the time is spent
on few candidates. With `eta=3`, the shortest training is a ninth of the whole one. In
less time the learning rate has only just been warmed up, and AP says little.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from effdet_keras._internal.number_ranges import check_whole_number
from effdet_keras.errors import InvalidValueError

MOST_RUNGS = 3
_UNCERTAIN = 0.1  # AP, at the start of a training: see benchmarks/RESULTS.md


def num_rungs(num_candidates: int, eta: int, epochs: int) -> int:
    """Returns the number of rungs that leave one candidate, but at most three.

    There are fewer rungs if the training has too few epochs for these.

    Args:
        num_candidates: int, number of candidates in the first rung.
        eta: int, one in `eta` candidates goes on to the next rung.
        epochs: int, epochs of the whole training.
    Example:
        >>> [num_rungs(count, eta=3, epochs=20) for count in (1, 2, 3, 4, 9, 40)]
        [1, 2, 2, 3, 3, 3]
        >>> [num_rungs(40, eta=3, epochs=epochs) for epochs in (2, 3, 8, 9)]
        [1, 2, 2, 3]
    """
    rungs = 1
    while (
        eta ** (rungs - 1) < num_candidates
        and rungs < MOST_RUNGS
        and eta**rungs <= epochs
    ):
        rungs += 1
    return rungs


def rung_epochs(epochs: int, rungs: int, eta: int) -> list[int]:
    """Returns the epoch at which each rung ends; the last one is `epochs`.

    All but the last are multiples of the first. So if evaluations are that many epochs
    apart, there is one at the end of every rung.

    Args:
        epochs: int, epochs of the whole training.
        rungs: int, number of rungs.
        eta: int, how many times as long as a rung the next one is.

    Raises:
        ValueError: If the training has fewer epochs than the rungs need.

    Example:
        >>> rung_epochs(140, rungs=3, eta=3)
        [15, 45, 140]
    """
    needed = eta ** (rungs - 1)
    if epochs < needed:
        raise InvalidValueError(
            f"{rungs} rungs, each {eta} times as long as the one before, need {needed} "
            f"epochs or more. Received: epochs={epochs}. Train for more epochs or "
            "steps, or ask for fewer rungs (`rungs`, --rungs)."
        )
    first = epochs // needed
    return [first * eta**rung for rung in range(rungs - 1)] + [epochs]


def uncertainty(share: float) -> float:
    """Returns how far AP may mislead after a share of a training; less near its end.

    Example:
        >>> [round(uncertainty(share), 3) for share in (1 / 9, 1 / 3, 1)]
        [0.089, 0.067, 0.0]
    """
    return _UNCERTAIN * (1.0 - share)


def ranking(
    average_precisions: Sequence[float],
    costs: Sequence[float],
    margin: float = 0.0,
) -> list[int]:
    """Returns the indices of candidates, the best first.

    Among candidates with similar AP, the most expensive one comes first. All candidates
    are within the limits, and a larger model or input is better in the end, unless its
    AP says otherwise. It does not learn faster: after a ninth of the steps, the order
    by AP is often different.

    Args:
        average_precisions: floats, AP of each candidate.
        costs: floats, such as milliseconds.
        margin: float, candidates are similar if their AP is at most this much below the
            best of the candidates not yet ranked.

    Example:
        >>> ranking([0.3, 0.5, 0.1, 0.5], costs=[9, 5, 9, 6])
        [3, 1, 0, 2]
        >>> ranking([0.24, 0.18, 0.07], costs=[15, 20, 8], margin=0.09)
        [1, 0, 2]
    """
    left, order = list(range(len(average_precisions))), []
    while left:
        best = max(average_precisions[i] for i in left)
        alike = [i for i in left if average_precisions[i] >= best - margin]
        order.append(max(alike, key=lambda i: (costs[i], average_precisions[i], -i)))
        left.remove(order[-1])
    return order


def num_survivors(count: int, eta: int) -> int:
    """Returns how many of `count` candidates go on: one in `eta`, rounded up.

    Example:
        >>> [num_survivors(count, eta=3) for count in (1, 3, 4, 9)]
        [1, 1, 2, 3]
    """
    check_whole_number("eta", eta, "[2, inf)")
    return math.ceil(count / eta)


def frontier(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Returns the points for which no other has a lower `x` and at least their `y`.

    Args:
        points: `(x, y)`, such as milliseconds and AP.

    Returns:
        The points by rising `x`, each with a higher `y` than the one before.

    Example:
        >>> frontier([(30, 0.5), (10, 0.4), (20, 0.3), (40, 0.5)])
        [(10, 0.4), (30, 0.5)]
    """
    best, found = -math.inf, []
    for x, y in sorted(points, key=lambda point: (point[0], -point[1])):
        if y > best:
            best = y
            found.append((x, y))
    return found
