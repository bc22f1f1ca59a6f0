"""The callback of `fit` that knows where the training is, and goes on from a place."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from effdet_keras.distribution.processes import current_processes
from effdet_keras.training.callback_states import set_states, states_of
from effdet_keras.training.data_order import DataOrder
from effdet_keras.training.own_callbacks import OwnCallback
from effdet_keras.training.place import Place, means_of, set_means


class PlaceKeeper(OwnCallback):
    """Starts the data of each epoch in its order, and tells checkpoints the place.

    It stands in front of all other callbacks. A `fit` that goes on in the middle of an
    epoch counts through the steps that are done, and trains the first that is not.

    Args:
        order: `DataOrder` of the data.
        place: `Place` to go on from, or None.
        is_given_batches: bool, whether a step is given its batch, so that those of
            steps which are done have to be drawn.
    """

    def __init__(
        self, order: DataOrder, place: Place | None, *, is_given_batches: bool
    ) -> None:
        super().__init__()
        self.callbacks: Sequence[Any] = ()  # all of `fit`: see `watch`
        self.is_skipping = False  # whether the step under way is done already
        self.draws = False  # whether a step that is done must draw its batch
        self.logs: dict[str, float] = {}  # of the steps that are done
        self._order = order
        self._place = place
        self._is_given_batches = is_given_batches
        self._epoch = 0
        self._start = time.monotonic()

    def watch(self, callbacks: Sequence[Any]) -> None:
        """Names the callbacks whose state belongs to a place."""
        self.callbacks = [getattr(one, "callback_of_fit", one) for one in callbacks]

    @property
    def must_skip(self) -> bool:
        """Whether `fit` begins in the middle of an epoch."""
        return self._place is not None and self._place.step > 0

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._epoch, self._start = epoch, time.monotonic()
        place = self._place
        if place is not None and place.epoch == epoch:
            self._go_on_from(place)
            return
        self._place, self.is_skipping = None, False
        self._order.start(epoch)

    def on_train_batch_begin(
        self, batch: int, logs: Mapping[str, Any] | None = None
    ) -> None:
        self.is_skipping = self._place is not None and batch < self._place.step

    def after_step(self, step: int) -> Place:
        """The place after so many steps of the epoch under way."""
        means = _mean_of_all(means_of(self.model.metrics))
        return self._place_now(epoch=self._epoch, step=step, means=means)

    def after_epoch(self, logs: Mapping[str, Any]) -> Place:
        """The place at the end of the epoch, whose numbers are `logs`."""
        for callback in self.callbacks:
            if hasattr(callback, "remember"):  # it stands behind who asks
                callback.remember(self._epoch, logs)
        return self._place_now(epoch=self._epoch + 1)

    def _place_now(self, **fields):
        seconds = time.monotonic() - self._start
        return Place(
            steps=int(keras.ops.convert_to_numpy(self.model.optimizer.iterations)),
            seconds=seconds if fields.get("step") else 0.0,
            callbacks=states_of(self.callbacks),
            is_stopped=bool(self.model.stop_training),
            seed=self._order.seed,
            **fields,
        )

    def _go_on_from(self, place):
        set_states(self.callbacks, place.callbacks)
        self._start -= place.seconds
        set_means(self.model.metrics, place.means)
        results = self.model.get_metrics_result() if place.step else {}
        self.logs = {name: float(value) for name, value in results.items()}
        if self._is_given_batches:
            self._order.start(place.epoch)
        else:
            self.draws = not self._order.start(place.epoch, place.step)


def _mean_of_all(means):
    """The running means of all processes, each of which has seen its share."""
    if current_processes().count == 1:
        return means
    of_all = current_processes().gather(means)
    return {n: np.mean([one[n] for one in of_all], 0).tolist() for n in means}


class FromPlaceOn:
    """A callback that is not told of the steps which `fit` only counts through.

    Args:
        callback: the callback, all else of which stays as it is.
        keeper: `PlaceKeeper`.
    """

    def __init__(self, callback: Any, keeper: PlaceKeeper) -> None:
        self.callback_of_fit = callback
        self._keeper = keeper

    def __getattr__(self, name: str) -> Any:
        return getattr(self.callback_of_fit, name)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if not self._keeper.is_skipping:
            self.callback_of_fit.on_train_batch_begin(batch, logs)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if not self._keeper.is_skipping:
            self.callback_of_fit.on_train_batch_end(batch, logs)
