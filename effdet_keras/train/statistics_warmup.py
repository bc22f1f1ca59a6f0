"""Moving statistics of batch norm that settle as fast as a short training needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops


class StatisticsWarmup:
    """Gives batch-norm statistics a short memory in the first steps.

    A layer of momentum `m` moves a statistic `s` towards that of the batch, `b`, by
    `s + (1 - m) * (b - s)`. With `m` of 0.99 its first value still counts for a
    seventh after 200 steps, long after the weights have left it behind. This makes the
    momentum of step `k` (0-based)

        m_k = min(m, (1 + k) / (10 + k))

    as the moving averages of the weights have it (`WeightAverages`). From step 891 on
    `m_k` is 0.99. It acts on what the layers wrote, so that it is one rule for every
    layer and every backend: the change that a layer made is made longer.

    Args:
        momentum: float in `[0, 1)`, `m` of the layers.

    Example:
        >>> warmup = StatisticsWarmup(0.99)
        >>> moved = warmup.moved(ops.array([0.0]), ops.array([0.01]), step=0)
        >>> round(float(moved[0]), 6)  # the batch had 1.0: momentum 0.1, not 0.99
        0.9
    """

    def __init__(self, momentum: float) -> None:
        self.momentum = momentum

    def moved(self, before: Any, after: Any, step: Any) -> Any:
        """What the statistics are after a step, with the momentum of that step.

        Args:
            before, after: float32 tensors of one shape, the statistics before the
                step and as the layers left them.
        """
        # 1 - (1 + k) / (10 + k) without the loss of digits.
        rate = 9.0 / (10.0 + ops.cast(step, "float32"))
        factor = ops.maximum(rate / (1.0 - self.momentum), 1.0)
        # Where the factor is 1 the layers' own value stays, to the last bit.
        return ops.where(factor > 1.0, before + (after - before) * factor, after)


def joined(statistics: Sequence[Any]) -> Any:
    """All statistics in one vector: a step has 250, and each operation its price.

    Example:
        >>> vector = joined([ops.array([1.0, 2.0]), ops.array([3.0])])
        >>> [value.shape[0] for value in parted(vector, [2, 1])]
        [2, 1]
    """
    return ops.concatenate(list(statistics)) if statistics else ops.zeros((0,))


def parted(vector: Any, lengths: Sequence[int]) -> list[Any]:
    """The statistics of these lengths that were `joined`."""
    if len(lengths) < 2:
        return [vector] * len(lengths)
    return list(ops.split(vector, np.cumsum(lengths)[:-1].tolist()))
