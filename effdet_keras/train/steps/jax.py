"""One step of training, validation and prediction on JAX.

`EfficientDet` inherits `JAXSteps`, as `keras.Model` inherits its trainer. Keras hands
the values of all variables through a step, as its `state`.
"""

import contextlib
import functools
import math
import threading
from typing import Any

import jax
import keras
import numpy as np
from keras import ops

from effdet_keras.train.optimizers import (
    all_finite,
    clip_gradients,
    float_values,
    step_counter,
)

# What Keras calls the parts of the state of a training step.
_STATE = (
    "trainable_variables",
    "non_trainable_variables",
    "optimizer_variables",
    "metrics_variables",
)


class JAXSteps:
    """The steps of `EfficientDet` on JAX."""

    # Whether the train function is given a batch that `fit` has drawn.
    receives_batches = False

    def train_step(self, state, data):
        """Trains on one batch. A batch that is not finite changes nothing."""
        images, ground_truth, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        recipe, variables = self.settings.recipe, self._state_variables()

        def scaled_loss(trainable_values):
            values = [trainable_values, *state[1:]]
            with _scope_of(variables, values) as forward_pass:
                outputs = self(images, training=True)
                loss = self.compute_loss(images, ground_truth, outputs, sample_weight)
                scaled = self.optimizer.scale_loss(loss)
            new_values = self.assigned_values(forward_pass)
            return scaled, (loss, [value for _, value in new_values])

        differentiated = jax.value_and_grad(scaled_loss, has_aux=True)
        (_, (loss, new_values)), gradients = differentiated(state[0])

        # In this scope the values of the state stand for the variables.
        with _scope_of(variables, state) as scope:
            step = ops.copy(step_counter(self.optimizer))
            new_values = list(zip(self.step_variables(), new_values, strict=True))
            loss_scale = self.optimizer.scale_loss(ops.ones(()))  # of float16, else 1
            gradients, gradient_norm = clip_gradients(
                gradients, recipe.clip_norm, each=recipe.clips_each, scale=loss_scale
            )

            state_is_finite = all_finite([loss, *float_values(new_values)])
            is_finite = state_is_finite & all_finite([gradient_norm])
            self.apply_update(gradients, new_values, step)
            _undo_unless(is_finite, scope, variables, state)
            # Gradients that overflow in float16 may be finite with a smaller scale.
            is_refused = ~is_finite
            if self.has_dynamic_loss_scale:
                can_recover = state_is_finite & ~is_finite & (loss_scale > 1.0)
                self.reduce_loss_scale(when=can_recover)
                is_refused = ~(is_finite | can_recover)
            loss = ops.where(is_refused, math.nan, loss)  # `check_loss` raises
            logs = self.update_metrics(loss, gradient_norm)
            return logs, _values_in(scope, variables)

    def test_step(self, state, data):
        """The losses of one batch."""
        logs, state = super().test_step(state, data)
        return self.settings.trackers.without_steps(logs), state

    def predict_step(self, state, data):
        """The detections of one batch."""
        outputs, state = super().predict_step(state, data)
        return self.detect_outputs(outputs), state

    # --- How Keras runs these steps.

    def make_train_function(self, force=False):
        if self.train_function is None or force:
            super().make_train_function(force)
            self.train_function = self._checked(self.train_function, is_training=True)
            self.skip_steps_before_position()

    def make_test_function(self, force=False):
        if self.test_function is None or force:
            super().make_test_function(force)
            self.test_function = self._checked(self.test_function, is_training=False)

    def _checked(self, function, is_training):
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
                data = jax.tree.map(local_part, last_batch[0])
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

    def predict_of_process(self, keras_predict, model, inputs):
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

    def variable_scope(self):
        """The context in which variables are made for all devices of the model."""
        return contextlib.nullcontext()

    def prepare_fit_data(self, data):
        """What Keras' `fit` is given for the batches of this process."""
        return data

    def loss_normalizer(self, num_positives, rule):
        """What the loss of one replica is divided by; None for its own positives."""
        return None

    def skipped_step(self, logs, state, iterator):
        """What a train function returns for a step that is not trained."""
        return logs, state

    def _apply_gradients(self, gradients, variables):
        optimizer = self.optimizer
        values, optimizer_values = optimizer.stateless_apply(
            [v.value for v in optimizer.variables],
            gradients,
            [v.value for v in variables],
        )
        _assign(variables, values)
        _assign(optimizer.variables, optimizer_values)

    def _state_variables(self):
        return [
            self.trainable_variables,
            self.non_trainable_variables,
            self.optimizer.variables,
            self.metrics_variables,
        ]


def _scope_of(variables, values):
    """A scope in which lists of values stand for lists of variables."""
    pairs = [
        pair
        for group, its_values in zip(variables, values, strict=True)
        for pair in zip(group, its_values, strict=True)
    ]
    return keras.StatelessScope(state_mapping=pairs)


def _values_in(scope, variables):
    return tuple([scope.get_current_value(v) for v in group] for group in variables)


def _undo_unless(condition, scope, variables, values):
    """Gives variables back their earlier values, unless the condition is true."""
    for group, its_values in zip(variables, values, strict=True):
        for variable, value in zip(group, its_values, strict=True):
            new = scope.get_current_value(variable)
            variable.assign(ops.where(condition, new, value))


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
