"""One step of training, validation and prediction on JAX.

`EfficientDet` inherits from `JAXSteps`, as `keras.Model` inherits from its trainer.
Keras passes the values of all variables to a step as its `state`, and gets them back.
"""

import math

import jax
import keras
from keras import ops

from effdet_keras.train.new_classes import mask_old_classes
from effdet_keras.train.optimizers import (
    all_finite,
    clip_gradients,
    float_values,
    multiply_gradients,
    step_counter,
)
from effdet_keras.train.training_defaults import TrainingDefaults


class JAXSteps(TrainingDefaults):
    """The steps of `EfficientDet` on JAX.

    Methods of `self` that are not here, such as `apply_update`, are in
    `model/steps.py`; `compute_loss` is in `model/efficientdet.py`.
    AdvProp (`self.adversarial`) is only supported on TensorFlow.
    """

    def train_step(self, state, data):
        """Trains on one batch, unless a loss, gradient or statistic is not finite."""
        images, ground_truth, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        recipe, variables = self.settings.recipe, self._state_variables()
        trainable_values, *other_values = state  # in the order of `_state_variables`

        def scaled_loss(trainable_values):
            values = [trainable_values, *other_values]
            with _scope_of(variables, values) as forward_pass:
                outputs = self(images, training=True)
                loss = self.compute_loss(images, ground_truth, outputs, sample_weight)
                scaled = self.optimizer.scale_loss(loss)
            # In this scope every variable has a value, so the pairs are those of all
            # `step_variables`, in their order.
            new_values = self.assigned_values(forward_pass)
            return scaled, (loss, [value for _, value in new_values])

        differentiated = jax.value_and_grad(scaled_loss, has_aux=True)
        (_, (loss, new_values)), gradients = differentiated(trainable_values)

        # In this scope each variable has its value of `state`, or a newly assigned
        # value.
        with _scope_of(variables, state) as scope:
            step = ops.copy(step_counter(self.optimizer))
            learning_rate = ops.copy(self.optimizer.learning_rate)
            new_values = list(zip(self.step_variables(), new_values, strict=True))
            gradients = multiply_gradients(
                gradients, recipe.gradient_multipliers, self.trainable_variables
            )
            gradients = mask_old_classes(self, gradients, self.trainable_variables)
            loss_scale = self.optimizer.scale_loss(ops.ones(()))  # not 1 in float16
            self.observe_step(data, gradients, loss_scale)
            gradients, gradient_norm = clip_gradients(
                gradients,
                recipe.clip_norm,
                each_first=recipe.clips_each,
                scale=loss_scale,
            )

            forward_is_finite = all_finite([loss, *float_values(new_values)])
            is_finite = forward_is_finite & all_finite([gradient_norm])
            # The update is always computed. If it is not finite, the old values are
            # restored.
            self.apply_update(gradients, new_values, step)
            _undo_unless(is_finite, scope, variables, state)
            can_recover = False
            if self.has_dynamic_loss_scale:
                # Gradients that overflow in float16 may be finite with a smaller scale.
                can_recover = forward_is_finite & ~is_finite & (loss_scale > 1.0)
                self.reduce_loss_scale(when=can_recover)
            # The train function (`train/functions`) raises an error if it is NaN.
            loss = ops.where(is_finite | can_recover, loss, math.nan)
            logs = self.update_metrics(loss, gradient_norm, learning_rate)
            return logs, _values_in(scope, variables)

    def test_step(self, state, data):
        """Returns the losses of one batch, and the new state."""
        images, ground_truth, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        trainable, non_trainable, _, metrics = self._state_variables()
        variables = [trainable, non_trainable, metrics]
        with _scope_of(variables, state) as scope:
            outputs = self(images, training=False)
            loss = self.compute_loss(
                images, ground_truth, outputs, sample_weight, training=False
            )
            logs = self.update_metrics(loss)
            return logs, _values_in(scope, variables)

    def predict_step(self, state, data):
        """Returns the detections of one batch, and the new state."""
        outputs, state = super().predict_step(state, data)
        return self.detect_outputs(outputs), state

    def _apply_gradients(self, gradients, variables):
        """Updates the variables with the optimizer; `apply_update` calls it."""
        optimizer = self.optimizer
        values, optimizer_values = optimizer.stateless_apply(
            [v.value for v in optimizer.variables],
            gradients,
            [v.value for v in variables],
        )
        _assign(variables, values)
        _assign(optimizer.variables, optimizer_values)

    def _state_variables(self):
        """Returns the variables of a `state`.

        `train/functions/jax.py` adds variables to the last group.
        """
        return [
            self.trainable_variables,
            self.non_trainable_variables,
            self.optimizer.variables,
            self.metrics_variables,
        ]


def _scope_of(variables, values):
    """Returns a scope in which variables have these values; both are lists of lists."""
    pairs = [
        pair
        for group, group_values in zip(variables, values, strict=True)
        for pair in zip(group, group_values, strict=True)
    ]
    return keras.StatelessScope(state_mapping=pairs)


def _values_in(scope, variables):
    return tuple([scope.get_current_value(v) for v in group] for group in variables)


def _undo_unless(condition, scope, variables, values):
    """Restores earlier values of variables, unless the condition is true."""
    for group, group_values in zip(variables, values, strict=True):
        for variable, value in zip(group, group_values, strict=True):
            new = scope.get_current_value(variable)
            variable.assign(ops.where(condition, new, value))


def _assign(variables, values):
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
