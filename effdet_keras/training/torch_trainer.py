"""The training step on torch: Keras' own, then the averages."""

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
        logs = super().train_step(data)
        if self.averages is not None:
            self.averages.update(step)
        return logs

    def predict_step(self, data):
        images, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        return self.detect_step(images)
