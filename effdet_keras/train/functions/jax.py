"""The functions of `fit`, `evaluate` and `predict` on JAX: checked, put back.

What a step computes is in `train/steps/jax.py`.
"""

import functools
import math
import threading
from collections.abc import Callable
from typing import Any

import jax
import keras
import numpy as np

from effdet_keras.train.training_defaults import TrainingDefaults

# What Keras calls the parts of the state of a training step.
_STATE = (
    "trainable_variables",
    "non_trainable_variables",
    "optimizer_variables",
    "metrics_variables",
)


class JAXFunctions(TrainingDefaults):
    """How Keras runs the steps of `EfficientDet` on JAX."""

    def _with_finite_check(self, function, is_training):
        """A function of an iterator that raises where the loss of a batch is NaN.

        For a step Keras takes the values out of the variables. Where the first step of
        an epoch fails, Keras does not put them back: this does.
        """

        def run(state, iterator):
            last_batch = []

            def remembered():
                for batch in iterator:
                    last_batch[:] = [batch]
                    yield batch

            try:
                logs, new_state = function(state, remembered())
            except BaseException:
                self._put_back(state, is_training)
                raise
            if not np.all(np.isfinite(logs["loss"])):
                self._put_back(new_state, is_training)
                # Of several steps all have run: nobody can name the batch.
                is_known = self.steps_per_execution == 1
                data = jax.tree.map(local_part, last_batch[0]) if is_known else None
                self.check_loss(math.nan, data, is_training=is_training)
            return logs, new_state

        return run

    def _put_back(self, state, is_training):
        """Gives Keras the state that it puts into the variables at the end."""
        names = _STATE if is_training else [*_STATE[:2], _STATE[3]]
        self._jax_state = dict(zip(names, state))
        self._jax_state_synced = False
        self.jax_state_sync()

    @property
    def metrics_variables(self):
        """With all that a step changes, and that Keras does not know of."""
        return [*super().metrics_variables, *self.variables_beside_keras()]

    def predict_local_batch(
        self, keras_predict: Callable, model: Any, inputs: Any
    ) -> Any:
        """What a model, or one that runs it, predicts for a batch of this process."""
        if keras.distribution.distribution() is None:
            with self._prediction_lock:  # Keras takes the values of all weights away
                return keras_predict(inputs)
        from effdet_keras.extras.multiprocess.jax import LocalPrediction

        is_own = model is self
        known = self._local_predictions
        if is_own not in known or known[is_own].model is not model:
            known[is_own] = LocalPrediction(model)
        return known[is_own](inputs)

    @functools.cached_property
    def _prediction_lock(self):
        return threading.Lock()

    @functools.cached_property
    def _local_predictions(self):
        """Of the model itself, and of the last other one that ran it."""
        return {}

    def skip_step(self, logs: dict, state: Any, iterator: Any) -> Any:
        """The logs, and the state of the variables as it was given."""
        return logs, state


def local_part(array: Any) -> Any:
    """The rows of a batch that this process gave, as a NumPy array."""
    if not isinstance(array, jax.Array) or array.is_fully_addressable:
        return np.asarray(array)
    if array.is_fully_replicated:
        return np.asarray(array.addressable_data(0))
    parts = {
        shard.index[0].start or 0: shard.data for shard in array.addressable_shards
    }
    return np.concatenate([np.asarray(parts[start]) for start in sorted(parts)])
