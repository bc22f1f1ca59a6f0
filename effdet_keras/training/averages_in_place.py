"""The callback of `fit` that keeps the averages in place outside of its steps."""

from __future__ import annotations

from effdet_keras.training.own_callbacks import OwnCallback


class AveragesInPlace(OwnCallback):
    """Puts the weights of training in place for an epoch's steps, else the averages.

    It stands in front of all other callbacks of `fit`, so that their `on_epoch_end`,
    `on_test_...` and `on_train_end` find the averages in the model.
    """

    def on_epoch_begin(self, epoch, logs=None):
        averages = self._averages()
        if averages is not None:
            averages.restore()

    def on_test_begin(self, logs=None):
        self._swap_in()

    def on_epoch_end(self, epoch, logs=None):
        self._swap_in()

    def on_train_end(self, logs=None):
        self._swap_in()

    def _swap_in(self):
        averages = self._averages()
        if averages is not None:
            averages.swap_in()

    def _averages(self):
        return getattr(self.model, "averages", None)
