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
        >>> (moved,) = warmup.moved([ops.array([0.0])], [ops.array([0.01])], step=0)
        >>> round(float(moved[0]), 6)  # the batch had 1.0: momentum 0.1, not 0.99
        0.9
    """

    def __init__(self, momentum: float) -> None:
        self.momentum = momentum

    def moved(
        self, before: Sequence[Any], after: Sequence[Any], step: Any
    ) -> list[Any]:
        """What the statistics are after a step, with the momentum of that step.

        Args:
            before, after: lists of float32 tensors `[C]`, the statistics before the
                step and as the layers left them.
            step: int or scalar integer tensor, the 0-based number of the step.

        Returns:
            List of tensors like `after`. A statistic that its layer did not move, as
            that of a frozen batch norm, stays where it is.
        """
        if not after:
            return []
        # 1 - (1 + k) / (10 + k) without the loss of digits.
        rate = 9.0 / (10.0 + ops.cast(step, "float32"))
        factor = ops.maximum(rate / (1.0 - self.momentum), 1.0)
        # All in one vector: a step has 250 statistics, and each operation its price.
        old, new = ops.concatenate(list(before)), ops.concatenate(list(after))
        # Where the factor is 1 the layers' own value stays, to the last bit.
        new = ops.where(factor > 1.0, old + (new - old) * factor, new)
        ends = np.cumsum([value.shape[0] for value in after])[:-1].tolist()
        return list(ops.split(new, ends)) if ends else [new]
