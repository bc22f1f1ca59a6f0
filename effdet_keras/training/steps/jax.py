"""The training step on JAX: Keras' own, then the averages, as state."""

import jax
import keras
import numpy as np
from keras import ops

from effdet_keras.training.base_trainer import BaseTrainer

# What Keras calls the parts of the state that it hands through a step.
_STATE = (
    *("trainable_variables", "non_trainable_variables"),
    *("optimizer_variables", "metrics_variables"),
)


class Trainer(BaseTrainer):
    """`train_step` and `predict_step` for JAX.

    The averages travel with the variables of the metrics, which Keras hands
    through its compiled steps.
    """

    @staticmethod
    def default_jit_compile():
        return True  # without it JAX runs one operation at a time

    @property
    def metrics_variables(self):
        averages = [] if self.averages is None else self.averages.variables
        return [*super().metrics_variables, *averages]

    def make_train_function(self, force=False):
        """Keras' own, except that an error in a step leaves the model whole.

        For a step Keras takes the values out of the variables; where the first
        one fails, on wrong truth for example, it does not put them back. A loss
        that is not finite is such an error.
        """
        is_new = force or self.train_function is None
        super().make_train_function(force)
        if not is_new:
            return
        train_function = self.train_function

        def watched(state, iterator):
            batches = _Remembering(iterator)
            try:
                logs, new_state = train_function(state, batches)
            except BaseException:
                self._jax_state = dict(zip(_STATE, state))  # `fit` puts it back
                raise
            if not np.isfinite(logs["loss"]) and not self._is_left_to_scale(new_state):
                self._jax_state = dict(zip(_STATE, new_state))
                step = int(self._of_optimizer(new_state, "iterations")) + 1
                raise self.non_finite_loss(batches.last[1], step=step)
            return logs, new_state

        self.train_function = watched

    def train_step(self, state, data):
        step = self._of_optimizer(state, "iterations")
        logs, new_state = super().train_step(state, data)
        new_state = self._with_averages(new_state, step)
        # A loss that is not finite moves nothing; `watched` then raises.
        finite = ops.isfinite(logs["loss"])
        return logs, jax.tree.map(
            lambda a, b: ops.where(finite, a, b), new_state, state
        )

    def compute_loss_and_updates(self, trainable_variables, *args, **kwargs):
        """Keras' own, of variables whose gradients are multiplied."""
        if self._gradient_factors is not None:
            pairs = zip(trainable_variables, self._gradient_factors, strict=True)
            trainable_variables = [_with_gradient_times(f, v) for v, f in pairs]
        return super().compute_loss_and_updates(trainable_variables, *args, **kwargs)

    def predict_step(self, state, data):
        outputs, state = super().predict_step(state, data)
        return self.detect_outputs(outputs), state

    def _is_left_to_scale(self, state):
        if self._loss_scale is None:
            return False
        return float(self._of_optimizer(state, "dynamic_scale")) > 1.0

    def _of_optimizer(self, state, name):
        """The value in `state` of a variable that is an attribute of the optimizer."""
        variable = getattr(self.optimizer, name)
        _, _, optimizer_values, _ = state
        return optimizer_values[
            [v is variable for v in self.optimizer.variables].index(True)
        ]

    def _with_averages(self, state, step):
        if self.averages is None:
            return state
        trainable, non_trainable, optimizer, metrics = state
        mapping = [
            *zip(self.trainable_variables, trainable),
            *zip(self.non_trainable_variables, non_trainable),
            *zip(self.metrics_variables, metrics),
        ]
        with keras.StatelessScope(state_mapping=mapping) as scope:
            self.averages.update(step)
        metrics = [scope.get_current_value(v) for v in self.metrics_variables]
        return trainable, non_trainable, optimizer, metrics


def _with_gradient_times(factor, value):
    """`value` itself, through which a gradient passes multiplied."""
    if factor == 1.0:
        return value
    fixed = jax.lax.stop_gradient(value)
    return fixed + factor * (value - fixed)


class _Remembering:
    """An iterator that keeps the last batch it gave."""

    def __init__(self, iterator):
        self._iterator = iterator
        self.last = None

    def __iter__(self):
        return self

    def __next__(self):
        self.last = next(self._iterator)
        return self.last
