"""The training step on torch: it raises at once, and computes without autograd."""

import math

import keras
import torch

from effdet_keras.train.parts import assign_parted, joined
from effdet_keras.train.steps import BackendStep


class Step(BackendStep):
    """`BackendStep` of torch."""

    is_given_batches = True

    def train(self, step, data):
        statistics = self._model.moved_statistics()
        before = joined([v.value for v in statistics])
        try:
            with torch.no_grad():
                return step(data)
        except Exception:
            # The forward pass has moved the statistics: of a bad batch for good.
            assign_parted(statistics, before)
            raise

    def gradients(self, data, before):
        images, truth, weight = keras.utils.unpack_x_y_sample_weight(data)
        model = self._model
        with torch.enable_grad():
            outputs = model(images, training=True)
            model.zero_grad()
            loss = model.compute_loss(images, truth, outputs, weight, training=True)
            model.optimizer.scale_loss(loss).backward()
        # None where no loss depends on a variable.
        return (
            loss.detach(),
            [
                torch.zeros_like(v.value) if v.value.grad is None else v.value.grad
                for v in model.trainable_variables
            ],
            joined(model.moved_statistics()),
        )

    def finish(self, logs, update, goes_on, data, step):
        if not bool(goes_on):
            _, truth, _ = keras.utils.unpack_x_y_sample_weight(data)
            raise self._model.refusal(truth, step=int(step) + 1)
        update()
        return logs

    def test(self, keras_step, data):
        logs = keras_step(data)
        if not math.isfinite(float(logs["loss"])):
            _, truth, _ = keras.utils.unpack_x_y_sample_weight(data)
            raise self._model.refusal(truth)
        return self._model.settings.trackers.without_steps(logs)
