"""google/automl's `positives_momentum`: divides losses by a moving average."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops


class MovingNormalizer:
    """Divides the training losses by a moving average of `n` of `DetectionLoss`.

    The average is `n` in the first step. In each further step, with a momentum `m`, it
    becomes

        average = m * average + (1 - m) * n

    which divides the losses of the same step. The average of the reference would start
    at 0, so that its first losses are `1 / (1 - m)` times as large. A training step
    only assigns the average after it has found the batch to be finite, as it does for
    the statistics of batch norms.
    """

    _NAME = "average_normalizer"  # in files

    def __init__(self, momentum: float) -> None:
        self._momentum = momentum
        self._average = keras.Variable(
            0.0,
            trainable=False,
            autocast=False,
            dtype="float32",
            aggregation="only_first_replica",  # all replicas hold the same value
            name=self._NAME,
        )
        self.variables = [self._average]

    def __call__(self, normalizer: Any) -> Any:
        """Returns the average after it has been updated with `n` of this batch."""
        average = ops.convert_to_tensor(self._average)
        moved = self._momentum * average + (1.0 - self._momentum) * normalizer
        value = ops.where(average > 0.0, moved, normalizer)
        self._average.assign(value)
        return value

    def reset(self) -> None:
        """Does nothing: the average does not depend on the loaded weights."""

    def save(self, store: Any) -> None:
        """Writes the average."""
        store[self._NAME] = ops.convert_to_numpy(self._average)

    def load(self, store: Any) -> bool:
        """Reads what `save` wrote; returns whether the store has it."""
        is_there = self._NAME in set(store.keys())  # `.weights.h5` stores are not dicts
        if is_there:
            self._average.assign(np.asarray(store[self._NAME]))
        return is_there
