"""google/automl's `positives_momentum`: the losses are divided by a moving average."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from keras import ops

from effdet_keras.train.parts import Part, new_number


class MovingNormalizer(Part):
    """Divides the losses of training by a moving average of `n` of `DetectionLoss`.

    It is `n` in the first step, and from there on, with a momentum `m`,

        average = m * average + (1 - m) * n

    which the losses of the same step are divided by. The reference's would start at 0,
    with losses `1 / (1 - m)` times as large. `of_step` is that of the `BackendStep`.
    """

    _NAME = "average_normalizer"  # in files

    def __init__(self, momentum: float, of_step: Callable) -> None:
        self._momentum = momentum
        self._of_step = of_step
        self._average = new_number(self._NAME)
        self._next = new_number("next_normalizer")
        super().__init__(variables=[self._average], carried=[self._average, self._next])

    def normalizer(self, num_positives: Any, rule: Callable) -> Any:
        """The average with this batch; it is kept once the step is known to be fine."""
        value = self._of_step(num_positives, rule)
        value = rule(num_positives) if value is None else value
        average = ops.convert_to_tensor(self._average)
        moved = self._momentum * average + (1.0 - self._momentum) * value
        value = ops.where(average > 0.0, moved, value)
        self._next.assign(value)
        return value

    def for_optimizer(
        self, gradients: list, clipped: list, *, step: Any, is_fine: Any
    ) -> list:
        """The same gradients; the average moves with the weights."""
        average, following = map(ops.convert_to_tensor, (self._average, self._next))
        self._average.assign(ops.where(is_fine, following, average))
        return clipped

    def save(self, store: Any) -> None:
        """Writes the average."""
        store[self._NAME] = ops.convert_to_numpy(self._average)

    def load(self, store: Any) -> bool:
        """Reads what `save` wrote; returns whether there was something."""
        is_there = self._NAME in set(store.keys())  # a `.weights.h5`'s is no dict
        if is_there:
            self._average.assign(np.asarray(store[self._NAME]))
        return is_there
