"""google/automl's `positives_momentum`: the losses are divided by a moving average."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops


class MovingNormalizer:
    """Divides the losses of training by a moving average of `n` of `DetectionLoss`.

    It is `n` in the first step, and from there on, with a momentum `m`,

        average = m * average + (1 - m) * n

    which the losses of the same step are divided by. The reference's would start at 0,
    with losses `1 / (1 - m)` times as large. A training step assigns the average, as
    the statistics of batch norms, once the batch is known to be finite.
    """

    _NAME = "average_normalizer"  # in files

    def __init__(self, momentum: float) -> None:
        self._momentum = momentum
        self._average = keras.Variable(
            0.0,
            trainable=False,
            autocast=False,
            dtype="float32",
            aggregation="only_first_replica",  # replicas hold the same
            name=self._NAME,
        )
        self.variables = [self._average]

    def __call__(self, normalizer: Any) -> Any:
        """The average with the `n` of this batch, which it becomes."""
        average = ops.convert_to_tensor(self._average)
        moved = self._momentum * average + (1.0 - self._momentum) * normalizer
        value = ops.where(average > 0.0, moved, normalizer)
        self._average.assign(value)
        return value

    def reset(self) -> None:
        """Nothing: the average is not of the weights that were loaded."""

    def save(self, store: Any) -> None:
        """Writes the average."""
        store[self._NAME] = ops.convert_to_numpy(self._average)

    def load(self, store: Any) -> bool:
        """Reads what `save` wrote; returns whether there was something."""
        is_there = self._NAME in set(store.keys())  # a `.weights.h5`'s is no dict
        if is_there:
            self._average.assign(np.asarray(store[self._NAME]))
        return is_there
