"""The training step on JAX: values in the place of variables."""

from __future__ import annotations

import threading
from typing import Any

import jax
import keras
import numpy as np
from keras import ops

from effdet_keras._internal.extras import extra
from effdet_keras.train.parts import joined, step_counter
from effdet_keras.train.steps import BackendStep

# What Keras calls the parts of the state that it hands through a step.
_STATE = (
    "trainable_variables",
    "non_trainable_variables",
    "optimizer_variables",
    "metrics_variables",
)


class Step(BackendStep):
    """`BackendStep` of JAX: Keras hands values through a step, in place of variables.

    The averages travel with the variables of the metrics.
    """

    def __init__(self, model):
        super().__init__(model)
        # Of the model itself, and of the last other one that ran it.
        self._local = {}
        self._predicts = threading.Lock()  # Keras takes the values of all weights away

    def train(self, step, state, data):
        """The step in a scope where the state's values stand for the variables."""
        model, state = self._model, tuple(map(list, state))
        groups = [model.trainable_variables, model.non_trainable_variables]
        groups += [model.optimizer.variables, model.metrics_variables]
        mapping = [pair for g, x in zip(groups, state) for pair in zip(g, x)]
        with keras.StatelessScope(state_mapping=mapping) as scope:
            logs, goes_on = step(data)
            new_state = tuple(
                [scope.get_current_value(v) for v in group] for group in groups
            )
        # A step that is not finite moves nothing; `watched` sees it by its loss.
        trainable, non_trainable, _, _ = new_state
        sums = [ops.sum(ops.cast(x, "float32")) for x in (*trainable, *non_trainable)]
        is_fine = ops.all(ops.isfinite(ops.stack([logs["loss"], *sums])))
        is_fine = ops.logical_and(is_fine, goes_on)
        logs = {**logs, "loss": ops.where(is_fine, logs["loss"], float("nan"))}
        return logs, jax.tree.map(
            lambda a, b: ops.where(is_fine, a, b), new_state, state
        )

    def gradients(self, data, before):
        model, optimizer = self._model, self._model.optimizer
        images, truth, weight = keras.utils.unpack_x_y_sample_weight(data)
        differentiated = jax.value_and_grad(
            model.compute_loss_and_updates, has_aux=True
        )
        (_, moved), gradients = differentiated(
            _values(model.trainable_variables),
            _values(model.non_trainable_variables),
            _values(model.metrics_variables),
            images,
            truth,
            weight,
            training=True,
            optimizer_variables=_values(optimizer.variables),
        )
        loss, _, others, metrics = moved
        _assign(model.non_trainable_variables, others)
        _assign(model.metrics_variables, metrics)
        return loss, gradients, joined(model.moved_statistics())

    def finish(self, logs, update, goes_on, data, step):
        update()
        return logs, goes_on

    def apply(self, gradients, variables):
        optimizer = self._model.optimizer
        own = _values(optimizer.variables)
        values, own = optimizer.stateless_apply(own, gradients, _values(variables))
        _assign(variables, values)
        _assign(optimizer.variables, own)

    def test(self, keras_step, state, data):
        logs, state = keras_step(state, data)
        return self._model.settings.trackers.without_steps(logs), state

    def predict(self, keras_step, state, data):
        outputs, state = keras_step(state, data)
        return self._model.detect_outputs(outputs), state

    def predict_on_batch(self, keras_predict, model, inputs):
        if keras.distribution.distribution() is None:
            with self._predicts:
                return keras_predict(inputs)
        is_own = model is self._model
        if is_own not in self._local or self._local[is_own].model is not model:
            kind = extra("multiprocess.jax:LocalPrediction")
            self._local[is_own] = kind(model)
        return self._local[is_own](inputs)

    def watched(self, train_function):
        """The function, except that an error in a step leaves the model whole.

        For a step Keras takes the values out of the variables; where the first
        one fails, on wrong ground truth for example, it does not put them back. A
        loss that is not finite is such an error.
        """
        model = self._model

        def run(state, iterator):
            last = []

            def remembered():
                for batch in iterator:
                    last[:] = [batch]
                    yield batch

            try:
                logs, new_state = train_function(state, remembered())
            except BaseException:
                self._put_back(state)
                raise
            if not np.isfinite(logs["loss"]):
                self._put_back(new_state)
                step = int(self._steps_in(new_state)) + 1
                truth = jax.tree.map(local_part, last[0][1])
                raise model.refusal(truth, step=step)
            return logs, new_state

        return run

    def skipped(self, logs, state, iterator):
        return logs, state

    def carried_variables(self):
        averages = self._model.averages
        of_averages = [] if averages is None else averages.variables
        return [*of_averages, *self._model.of_parts("carried")]

    def _put_back(self, state):
        """Gives Keras the state that it puts into the variables at the end."""
        self._model._jax_state = dict(zip(_STATE, state))
        self._model._jax_state_synced = False
        self._model.jax_state_sync()

    def _steps_in(self, state):
        """The steps that the optimizer has counted in a state."""
        optimizer = self._model.optimizer
        variable = step_counter(optimizer)
        _, _, optimizer_values, _ = state
        return optimizer_values[
            [v is variable for v in optimizer.variables].index(True)
        ]


def _values(variables):
    return [variable.value for variable in variables]


def _assign(variables, values):
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


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
