"""The training step on torch: gradients, clipping, update, then the averages."""

import contextlib

import keras
import torch
from keras import ops

from effdet_keras.model.basic_layers import recomputing
from effdet_keras.train.gradients import clipped
from effdet_keras.train.parts import joined, parted, steps_done, steps_per_update


class Step:
    """`BackendStep` of torch."""

    is_given_batches = True

    def __init__(self, model):
        self._model = model

    def train(self, keras_step, data):
        model = self._model
        step = steps_done(model.optimizer)
        statistics = model.batch_norm_statistics()
        before = joined([v.value for v in statistics])
        try:
            gradients = self._gradients(data)
        except Exception:
            # The forward pass has moved the statistics: of a bad batch for good.
            _assign(statistics, before)
            raise
        if "statistics_warmup" in model.parts:
            after = joined([v.value for v in statistics])
            for part in model.parts.values():
                after = part.settled(before, after, step)
            _assign(statistics, after)
        self._update(gradients, step)
        if model.averages is not None:
            count = steps_per_update(model.optimizer)
            if steps_done(model.optimizer) // count > step // count:
                model.averages.update(step // count)
        return model.get_metrics_result()

    def test(self, keras_step, data):
        return self._model.settings.trackers.without_steps(keras_step(data))

    def predict(self, keras_step, data):
        images, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        return self._model.detect_step(images)

    def predict_on_batch(self, keras_predict, model, inputs):
        return keras_predict(inputs)

    def checked_loss(self, loss, truth, training):
        if loss.is_meta:
            return loss
        moved = self._model.batch_norm_statistics() if training else []
        numbers = [ops.reshape(loss, (1,)), *(v.value for v in moved)]
        self._refuse_unless_finite(ops.concatenate(numbers), truth, training=training)
        return loss

    def making_function(self):
        return contextlib.nullcontext()

    def watched(self, train_function):
        return train_function

    def skipped(self, logs, data):
        return logs

    def scope(self):
        return contextlib.nullcontext()

    def data_of_fit(self, data):
        return data

    def normalizer(self, num_positives, rule):
        return None

    def predicting(self, predict_function):
        return predict_function

    def carried_variables(self):
        return []

    def scaling_gradients(self, values):
        return values  # see `_gradients`

    def _gradients(self, data):
        """Forward and backward pass; the gradients, multiplied, with the loss scale."""
        images, truth, weight = keras.utils.unpack_x_y_sample_weight(data)
        model, variables = self._model, self._model.trainable_variables
        with recomputing(model.settings.recipe.grad_checkpoint):
            outputs = model(images, training=True)
        model.zero_grad()
        loss = model.compute_loss(images, truth, outputs, weight, training=True)
        model._loss_tracker.update_state(loss.detach())
        model.optimizer.scale_loss(loss).backward()
        factors = model.settings.gradient_factors or [1.0] * len(variables)
        # None where no loss depends on a variable.
        gradients = [
            torch.zeros_like(v.value) if v.value.grad is None else v.value.grad * f
            for v, f in zip(variables, factors, strict=True)
        ]
        if not self._is_left_to_scale():
            sums = ops.stack([ops.sum(g) for g in gradients])
            self._refuse_unless_finite(sums, truth)
        return gradients

    def _update(self, gradients, step):
        """The optimizer moves the weights by clipped gradients."""
        model = self._model
        optimizer, settings = model.optimizer, model.settings
        with torch.no_grad():
            scale = optimizer.scale_loss(ops.ones(()))
            mean, parts = gradients, model.parts.values()
            for part in parts:
                mean = part.together(mean, scale)
            whole, norm = clipped(
                mean,
                settings.recipe.clip_norm,
                each=settings.recipe.clips_each,
                scale=scale,
            )
            settings.trackers.update_step(norm, optimizer.learning_rate)
            for part in parts:
                whole = part.for_optimizer(
                    gradients, whole, step=step, is_fine=ops.isfinite(norm)
                )
            optimizer.apply(whole, model.trainable_variables)

    def _is_left_to_scale(self):
        """Whether a smaller loss scale may mend gradients that are not finite."""
        scale = self._model.settings.loss_scale(self._model.optimizer)
        return scale is not None and float(scale) > 1.0

    def _refuse_unless_finite(self, numbers, truth, *, training=True):
        if bool(ops.all(ops.isfinite(numbers))):
            return
        model = self._model
        step = steps_done(model.optimizer) + 1
        raise model.refusal(truth, step=step if training else None)


def _assign(statistics, vector):
    values = parted(vector, [v.shape[0] for v in statistics])
    for variable, value in zip(statistics, values):
        variable.assign(value)
