"""The training step on torch: Keras' own, then the averages."""

import contextlib

import keras
from keras import ops


class Step:
    """`BackendStep` of torch."""

    is_reference_step = False

    def __init__(self, model):
        self._model = model

    def train(self, keras_step, data):
        model = self._model
        step = int(ops.convert_to_numpy(model.optimizer.iterations))
        warmup = model.settings.statistics_warmup
        statistics = [] if warmup is None else model.batch_norm_statistics()
        before = [ops.copy(v.value) for v in statistics]
        with self._multiplying_gradients():
            logs = keras_step(data)
        if statistics:
            settled = warmup.moved(before, [v.value for v in statistics], step)
            for variable, value in zip(statistics, settled):
                variable.assign(value)
        if model.averages is not None:
            model.averages.update(step)
        return logs

    def test(self, keras_step, data):
        return keras_step(data)

    def predict(self, keras_step, data):
        images, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        return self._model.detect_step(images)

    def checked_loss(self, loss, truth, training):
        model = self._model
        scale = model.settings.loss_scale(model.optimizer) if training else None
        is_left_to_scale = scale is not None and float(scale) > 1.0
        if loss.is_meta or is_left_to_scale:
            return loss
        if not bool(ops.isfinite(loss)):
            step = int(ops.convert_to_numpy(model.optimizer.iterations)) + 1
            raise model.refusal(truth, step=step if training else None)
        return loss

    def watched(self, train_function):
        return train_function

    def carried_variables(self):
        return []

    def scaling_gradients(self, values):
        return values  # see `_multiplying_gradients`

    @contextlib.contextmanager
    def _multiplying_gradients(self):
        variables = self._model.trainable_variables
        factors = self._model.settings.gradient_factors or [1.0] * len(variables)
        hooks = [
            v.value.register_hook(lambda gradient, factor=f: gradient * factor)
            for v, f in zip(variables, factors, strict=True)
            if f != 1.0
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
