"""The callback of `fit` that stops where the weights are no numbers any more."""

from __future__ import annotations

from effdet_keras._internal.finite import check_finite
from effdet_keras.training.own_callbacks import OwnCallback


class FiniteWeights(OwnCallback):
    """Raises after an epoch whose weights or averages are NaN or infinite.

    A step that is not finite is refused before it moves a weight. What is left is an
    update that itself overflows, at a learning rate far too high. This stands in front
    of the callbacks that evaluate and write.
    """

    def on_epoch_end(self, epoch, logs=None):
        check_finite(self.model, f"The training cannot go on after epoch {epoch + 1}")
