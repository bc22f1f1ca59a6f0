"""One step of training, validation and prediction on TensorFlow.

`EfficientDet` inherits `TensorFlowSteps`, as `keras.Model` inherits its trainer. Under
a `tf.distribute` strategy each replica runs the step on its part of the batch.
"""

import math
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from effdet_keras._internal.processes import current_processes
from effdet_keras.network.batch_norm import num_replicas, sum_of_replicas
from effdet_keras.train.one_device import OneDeviceTraining
from effdet_keras.train.optimizers import (
    all_finite,
    clip_gradients,
    float_values,
    gradients_of,
    multiply_gradients,
    step_counter,
)
from effdet_keras.train.replicas import (
    divide_among_replicas,
    on_all_replicas,
    run_if,
    sum_over_replicas,
)


class TensorFlowSteps(OneDeviceTraining):
    """The steps of `EfficientDet` on TensorFlow."""

    def train_step(self, data):
        """Trains on one batch. A batch that is not finite changes nothing."""
        images, ground_truth, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        recipe = self.settings.recipe
        step = tf.identity(step_counter(self.optimizer).value)
        learning_rate = tf.convert_to_tensor(self.optimizer.learning_rate)

        # The scope keeps what the forward pass assigns, such as the statistics of batch
        # norms, until the batch is known to be finite.
        with tf.GradientTape() as tape, keras.StatelessScope() as forward_pass:
            outputs = self(images, training=True)
            loss = self.compute_loss(images, ground_truth, outputs, sample_weight)
            # The gradients of all replicas are summed.
            share = loss if num_replicas() == 1 else loss / num_replicas()
            scaled_loss = self.optimizer.scale_loss(share)
        gradients = gradients_of(tape, scaled_loss, self.trainable_variables)
        new_values = self.assigned_values(forward_pass)
        if self.adversarial is not None:  # AdvProp: also on adversarial images
            gradients, new_values = self.adversarial.train(
                gradients, new_values, data, step
            )

        gradients = multiply_gradients(
            gradients, recipe.gradient_multipliers, self.optimized_variables()
        )
        gradients = sum_over_replicas(gradients, self.optimizer)
        loss_scale = self.optimizer.scale_loss(tf.ones(()))  # of float16, else 1
        self.observe_step(data, gradients, loss_scale)
        gradients, gradient_norm = clip_gradients(
            gradients, recipe.clip_norm, each=recipe.clips_each, scale=loss_scale
        )
        gradients = divide_among_replicas(gradients)  # the optimizer sums them again

        state_is_finite = on_all_replicas(all_finite([loss, *float_values(new_values)]))
        is_finite = state_is_finite & on_all_replicas(all_finite([gradient_norm]))
        stops = not (self.jit_compile or self.has_dynamic_loss_scale)
        run_if(is_finite, self.apply_update, gradients, new_values, step, stops=stops)
        # Gradients that overflow in float16 may be finite with a smaller loss scale.
        is_refused = ~is_finite
        if self.has_dynamic_loss_scale:
            can_recover = state_is_finite & ~is_finite & (loss_scale > 1.0)
            run_if(can_recover, self.reduce_loss_scale)
            is_refused = ~(is_finite | can_recover)
        loss = tf.where(is_refused, math.nan, loss)  # `check_loss` raises the error
        return _logs_of_processes(
            self.update_metrics(loss, gradient_norm, learning_rate)
        )

    def test_step(self, data):
        """The losses of one batch."""
        images, ground_truth, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        outputs = self(images, training=False)
        loss = self.compute_loss(
            images, ground_truth, outputs, sample_weight, training=False
        )
        return _logs_of_processes(self.update_metrics(loss))

    def predict_step(self, data):
        """The detections of one batch."""
        images, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        return self.detect_step(images)

    def loss_normalizer(self, num_positives: Any, rule: Callable) -> Any:
        """What the loss of one replica is divided by; None for its own positives.

        The gradients of replicas are summed: together they take the loss of one batch.
        """
        count = num_replicas()
        if count == 1:
            return None
        return rule(sum_of_replicas(num_positives)) / count


def _logs_of_processes(logs):
    """Logs as Keras reduces them: those of several processes along an axis."""
    if current_processes().count == 1:
        return logs
    return {name: tf.reshape(value, [1]) for name, value in logs.items()}
