"""The functions of `fit`, `evaluate` and `predict` on JAX.

They check the loss of each step, and restore the variables after an error. The
computations of a step are in `train/steps/jax.py`.
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

# Keras' names for the groups of variables in the state of a training step.
_STATE = (
    "trainable_variables",
    "non_trainable_variables",
    "optimizer_variables",
    "metrics_variables",
)


class JAXFunctions(TrainingDefaults):
    """Methods with which Keras runs the steps of `EfficientDet` on JAX."""

    def _with_finite_check(self, function, is_training):
        """Wraps a function of an iterator, to raise an error for a loss that is NaN.

        For a step, Keras takes the values out of the variables. If the first step of an
        epoch fails, Keras does not put them back, but this wrapper does.
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
                # If several steps have run in one call, the batch is not known.
                is_known = self.steps_per_execution == 1
                data = jax.tree.map(local_part, last_batch[0]) if is_known else None
                self.check_loss(math.nan, data, is_training=is_training)
            return logs, new_state

        return run

    def _put_back(self, state, is_training):
        """Gives Keras a state, and makes it write the state into the variables."""
        names = _STATE if is_training else [*_STATE[:2], _STATE[3]]
        self._jax_state = dict(zip(names, state))
        self._jax_state_synced = False
        self.jax_state_sync()

    @property
    def metrics_variables(self):
        """The variables of metrics, and those that a step changes beside Keras."""
        return [*super().metrics_variables, *self.variables_beside_keras()]

    def predict_local_batch(
        self, keras_predict: Callable, model: Any, inputs: Any
    ) -> Any:
        """Returns the prediction of a model for the rows of a batch of this process.

        `model` is this model, or an `EvaluationStep` that runs it.
        """
        if keras.distribution.distribution() is None:
            # During a prediction, Keras takes the values out of all weights.
            with self._prediction_lock:
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
        """The `LocalPrediction` of the model, and of the last `EvaluationStep`."""
        return {}

    def skip_step(self, logs: dict, state: Any, iterator: Any) -> Any:
        """Returns the logs, and the state of the variables unchanged."""
        return logs, state


def local_part(array: Any) -> Any:
    """Returns the rows of a batch that this process provided, as a NumPy array."""
    if not isinstance(array, jax.Array) or array.is_fully_addressable:
        return np.asarray(array)
    if array.is_fully_replicated:
        return np.asarray(array.addressable_data(0))
    parts = {
        shard.index[0].start or 0: shard.data for shard in array.addressable_shards
    }
    return np.concatenate([np.asarray(parts[start]) for start in sorted(parts)])
