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
from effdet_keras._internal.replicas import num_replicas, sum_of_replicas
from effdet_keras.train.new_classes import mask_old_classes
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
from effdet_keras.train.training_defaults import TrainingDefaults


class TensorFlowSteps(TrainingDefaults):
    """The steps of `EfficientDet` on TensorFlow.

    Methods of `self` that are not here, such as `apply_update`, are in
    `model/steps.py`; `compute_loss` is in `model/efficientdet.py`.
    """

    def train_step(self, data):
        """One update; skipped where a loss, gradient or statistic is not finite."""
        images, ground_truth, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        recipe = self.settings.recipe  # resolved: no field is "auto"
        # A copy: `apply_update` counts the step.
        step = tf.identity(step_counter(self.optimizer).value)
        learning_rate = tf.convert_to_tensor(self.optimizer.learning_rate)

        # The scope keeps what is assigned, such as the statistics of batch norms and
        # the metrics of the losses, until the batch is known to be finite.
        with tf.GradientTape() as tape, keras.StatelessScope() as forward_pass:
            outputs = self(images, training=True)
            loss = self.compute_loss(images, ground_truth, outputs, sample_weight)
            # Divided by the number of replicas, over which the gradients are summed
            # below: the sum is the gradient of the mean loss.
            replica_loss = loss if num_replicas() == 1 else loss / num_replicas()
            scaled_loss = self.optimizer.scale_loss(replica_loss)
        # As `tape.gradient`, with zeros for variables that the loss does not depend on.
        gradients = gradients_of(tape, scaled_loss, self.trainable_variables)
        # Pairs of a variable and its new value: batch norm, random seeds, loss metrics.
        new_values = self.assigned_values(forward_pass)
        if self.adversarial is not None:
            # AdvProp adds the gradients of adversarial images, and those of its own
            # batch norms, which `optimized_variables` has behind the trainable ones.
            gradients, new_values = self.adversarial.add_gradients(
                gradients, new_values, data, step
            )

        gradients = multiply_gradients(
            gradients, recipe.gradient_multipliers, self.optimized_variables()
        )
        gradients = mask_old_classes(self, gradients, self.optimized_variables())
        gradients = sum_over_replicas(gradients)
        loss_scale = self.optimizer.scale_loss(tf.ones(()))  # 1 but for float16
        self.observe_step(data, gradients, loss_scale)
        # Each gradient is clipped, then all together. The norm is the one after it,
        # without the loss scale.
        gradients, gradient_norm = clip_gradients(
            gradients, recipe.clip_norm, each_first=recipe.clips_each, scale=loss_scale
        )
        # Keras' optimizer sums the gradients of all replicas once more.
        gradients = divide_among_replicas(gradients)

        values = [loss, *float_values(new_values)]
        forward_is_finite = on_all_replicas(all_finite(values))
        is_finite = forward_is_finite & on_all_replicas(all_finite([gradient_norm]))
        # A failed `tf.debugging.Assert` ends the step, which is faster than `tf.cond`.
        # XLA ignores it, and a smaller loss scale could not be tried after it.
        asserts = not (self.jit_compile or self.has_dynamic_loss_scale)
        run_if(
            is_finite, self.apply_update, gradients, new_values, step, asserts=asserts
        )
        can_recover = False
        if self.has_dynamic_loss_scale:
            # Gradients that overflow in float16 may be finite with a smaller scale.
            can_recover = forward_is_finite & ~is_finite & (loss_scale > 1.0)
            run_if(can_recover, self.reduce_loss_scale)
        # The train function (`train/functions`) raises an error where the loss is NaN,
        # as it does for a failed assertion.
        loss = tf.where(is_finite | can_recover, loss, math.nan)
        return _logs_per_worker(self.update_metrics(loss, gradient_norm, learning_rate))

    def test_step(self, data):
        """The losses of one batch."""
        images, ground_truth, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        outputs = self(images, training=False)
        loss = self.compute_loss(
            images, ground_truth, outputs, sample_weight, training=False
        )
        return _logs_per_worker(self.update_metrics(loss))

    def predict_step(self, data):
        """The detections of one batch."""
        images, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        return self.detect_step(images)

    def loss_normalizer(self, num_positives: Any, normalizer_fn: Callable) -> Any:
        """The `normalizer` of `DetectionLoss`; None on one device: it computes its own.

        With that of the whole batch, divided by the number of replicas, the mean of the
        losses of the replicas is the loss of the whole batch.
        """
        count = num_replicas()
        if count == 1:
            return None
        return normalizer_fn(sum_of_replicas(num_positives)) / count


def _logs_per_worker(logs):
    """Logs for Keras, which reduces those of several workers over their first axis."""
    if current_processes().count == 1:
        return logs
    return {name: tf.reshape(value, [1]) for name, value in logs.items()}
