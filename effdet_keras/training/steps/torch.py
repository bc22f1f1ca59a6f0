"""The training step on torch: Keras' own, then the averages."""

import contextlib

import keras
from keras import ops

from effdet_keras.training.base_trainer import BaseTrainer


class Trainer(BaseTrainer):
    """`train_step` and `predict_step` for torch."""

    @staticmethod
    def default_jit_compile():
        return False  # compiling takes minutes before the first step

    def train_step(self, data):
        step = int(ops.convert_to_numpy(self.optimizer.iterations))
        with self._multiplying_gradients():
            logs = super().train_step(data)
        if self.averages is not None:
            self.averages.update(step)
        return logs

    @contextlib.contextmanager
    def _multiplying_gradients(self):
        factors = self._gradient_factors
        pairs = zip(self.trainable_variables, factors, strict=True) if factors else ()
        hooks = [
            v.value.register_hook(lambda gradient, factor=f: gradient * factor)
            for v, f in pairs
            if f != 1.0
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        scale = self._loss_scale if training else None
        is_left_to_scale = scale is not None and float(scale) > 1.0
        if loss.is_meta or is_left_to_scale:
            return loss
        if not bool(ops.isfinite(loss)):
            step = int(ops.convert_to_numpy(self.optimizer.iterations)) + 1
            raise self.non_finite_loss(y, step=step if training else None)
        return loss

    def predict_step(self, data):
        images, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        return self.detect_step(images)
