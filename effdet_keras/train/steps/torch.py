"""One step of training, validation and prediction on PyTorch.

`EfficientDet` inherits from `TorchSteps`, as `keras.Model` inherits from its trainer.
"""

import math

import keras
import torch

from effdet_keras.train.new_classes import mask_old_classes
from effdet_keras.train.optimizers import (
    all_finite,
    clip_gradients,
    float_values,
    multiply_gradients,
    step_counter,
)
from effdet_keras.train.training_defaults import TrainingDefaults


class TorchSteps(TrainingDefaults):
    """The steps of `EfficientDet` on PyTorch.

    Methods of `self` that are not here, such as `apply_update`, are in
    `model/steps.py`; `compute_loss` is in `model/efficientdet.py`.
    AdvProp (`self.adversarial`) is only supported on TensorFlow.
    """

    def train_step(self, data):
        """Trains on one batch, unless a loss, gradient or statistic is not finite."""
        images, ground_truth, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        recipe = self.settings.recipe
        step = keras.ops.copy(step_counter(self.optimizer))
        learning_rate = keras.ops.copy(self.optimizer.learning_rate)

        # The scope holds assigned values, such as batch-norm statistics and loss
        # metrics, until it is known whether the batch is finite.
        with keras.StatelessScope() as forward_pass:
            outputs = self(images, training=True)
            loss = self.compute_loss(images, ground_truth, outputs, sample_weight)
            scaled_loss = self.optimizer.scale_loss(loss)
        self.zero_grad()
        scaled_loss.backward()
        gradients = [
            torch.zeros_like(v.value) if v.value.grad is None else v.value.grad
            for v in self.trainable_variables
        ]

        with torch.no_grad():
            loss = loss.detach()
            new_values = self.assigned_values(forward_pass)
            gradients = multiply_gradients(
                gradients, recipe.gradient_multipliers, self.trainable_variables
            )
            gradients = mask_old_classes(self, gradients, self.trainable_variables)
            loss_scale = self.optimizer.scale_loss(torch.ones(()))  # not 1 in float16
            self.observe_step(data, gradients, loss_scale)
            gradients, gradient_norm = clip_gradients(
                gradients,
                recipe.clip_norm,
                each_first=recipe.clips_each,
                scale=loss_scale,
            )

            forward_is_finite = all_finite([loss, *float_values(new_values)])
            is_finite = forward_is_finite and all_finite([gradient_norm])
            if is_finite:
                self.apply_update(gradients, new_values, step)
            # Gradients that overflow in float16 may be finite with a smaller scale.
            elif self.has_dynamic_loss_scale and forward_is_finite and loss_scale > 1.0:
                self.reduce_loss_scale()
            else:
                # The train function (`train/functions`) raises an error for it.
                loss = torch.full_like(loss, math.nan)
            return self.update_metrics(loss, gradient_norm, learning_rate)

    def test_step(self, data):
        """Returns the losses of one batch."""
        images, ground_truth, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        outputs = self(images, training=False)
        loss = self.compute_loss(
            images, ground_truth, outputs, sample_weight, training=False
        )
        return self.update_metrics(loss)

    def predict_step(self, data):
        """Returns the detections of one batch."""
        images, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        return self.detect_step(images)
