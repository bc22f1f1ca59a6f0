"""One step of training, validation and prediction on TensorFlow.

`EfficientDet` inherits from `TensorFlowSteps`, as `keras.Model` inherits from its
trainer. Under a `tf.distribute` strategy, each replica runs the step on its shard of
the batch.
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
        """Trains on one batch, unless a loss, gradient or statistic is not finite."""
        images, ground_truth, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        recipe = self.settings.recipe  # resolved: no field is "auto"
        # A copy: `apply_update` counts the step.
        step = tf.identity(step_counter(self.optimizer).value)
        learning_rate = tf.convert_to_tensor(self.optimizer.learning_rate)

        # The scope holds assigned values, such as batch-norm statistics and loss
        # metrics, until it is known whether the batch is finite.
        with tf.GradientTape() as tape, keras.StatelessScope() as forward_pass:
            outputs = self(images, training=True)
            loss = self.compute_loss(images, ground_truth, outputs, sample_weight)
            # Gradients are summed over the replicas below. Divided by the number of
            # replicas, the sum is the gradient of the mean loss.
            replica_loss = loss if num_replicas() == 1 else loss / num_replicas()
            scaled_loss = self.optimizer.scale_loss(replica_loss)
        # As `tape.gradient`, with zeros for variables that the loss does not depend on.
        gradients = gradients_of(tape, scaled_loss, self.trainable_variables)
        # Pairs of a variable and its new value: batch norm, random seeds, loss metrics.
        new_values = self.assigned_values(forward_pass)
        if self.adversarial is not None:
            # AdvProp adds the gradients of adversarial images, and those of its own
            # batch norms. `optimized_variables` lists these after the trainable ones.
            gradients, new_values = self.adversarial.add_gradients(
                gradients, new_values, data, step
            )

        gradients = multiply_gradients(
            gradients, recipe.gradient_multipliers, self.optimized_variables()
        )
        gradients = mask_old_classes(self, gradients, self.optimized_variables())
        gradients = sum_over_replicas(gradients)
        loss_scale = self.optimizer.scale_loss(tf.ones(()))  # not 1 in float16
        self.observe_step(data, gradients, loss_scale)
        # Each gradient is clipped, then all of them by global norm. The norm is the
        # global norm after clipping, without the loss scale.
        gradients, gradient_norm = clip_gradients(
            gradients, recipe.clip_norm, each_first=recipe.clips_each, scale=loss_scale
        )
        # Keras' optimizer sums the gradients of all replicas once more.
        gradients = divide_among_replicas(gradients)

        values = [loss, *float_values(new_values)]
        forward_is_finite = on_all_replicas(all_finite(values))
        is_finite = forward_is_finite & on_all_replicas(all_finite([gradient_norm]))
        # A failed `tf.debugging.Assert` ends the step, and is faster than `tf.cond`.
        # But XLA ignores it, and the loss scale could not be reduced after it.
        asserts = not (self.jit_compile or self.has_dynamic_loss_scale)
        run_if(
            is_finite, self.apply_update, gradients, new_values, step, asserts=asserts
        )
        can_recover = False
        if self.has_dynamic_loss_scale:
            # Gradients that overflow in float16 may be finite with a smaller scale.
            can_recover = forward_is_finite & ~is_finite & (loss_scale > 1.0)
            run_if(can_recover, self.reduce_loss_scale)
        # The train function (`train/functions`) raises an error if the loss is NaN, as
        # it does for a failed assertion.
        loss = tf.where(is_finite | can_recover, loss, math.nan)
        return _logs_per_worker(self.update_metrics(loss, gradient_norm, learning_rate))

    def test_step(self, data):
        """Returns the losses of one batch."""
        images, ground_truth, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        outputs = self(images, training=False)
        loss = self.compute_loss(
            images, ground_truth, outputs, sample_weight, training=False
        )
        return _logs_per_worker(self.update_metrics(loss))

    def predict_step(self, data):
        """Returns the detections of one batch."""
        images, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        return self.detect_step(images)

    def loss_normalizer(self, num_positives: Any, normalizer_fn: Callable) -> Any:
        """Returns the `normalizer` of `DetectionLoss`, for several replicas.

        It is that of the whole batch, divided by the number of replicas. Then the mean
        of the losses of the replicas is the loss of the whole batch. On one device it
        is None, and `DetectionLoss` computes its own.
        """
        count = num_replicas()
        if count == 1:
            return None
        return normalizer_fn(sum_of_replicas(num_positives)) / count


def _logs_per_worker(logs):
    """Returns logs in the shape `[1]` if there are several workers.

    Keras reduces the logs of several workers over their first axis.
    """
    if current_processes().count == 1:
        return logs
    return {name: tf.reshape(value, [1]) for name, value in logs.items()}
