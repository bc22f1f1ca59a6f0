"""The training step on torch: Keras' own, then the averages."""

import contextlib

import keras
from keras import ops

from effdet_keras.training.accumulation import steps_done, steps_per_update
from effdet_keras.training.advprop import needs_tensorflow
from effdet_keras.training.statistics_warmup import joined, parted


class Step:
    """`BackendStep` of torch."""

    is_reference_step = False
    is_given_batches = True

    def __init__(self, model):
        self._model = model
        self._truth = None

    def train(self, keras_step, data):
        model = self._model
        step = steps_done(model.optimizer)
        warmup = model.settings.statistics_warmup
        statistics = model.batch_norm_statistics()
        before = joined([v.value for v in statistics])
        try:
            with self._watching_gradients():
                logs = keras_step(data)
        except Exception:
            # The forward pass has moved the statistics: of a bad batch for good.
            _assign(statistics, before)
            raise
        if warmup is not None:
            after = joined([v.value for v in statistics])
            _assign(statistics, warmup.moved(before, after, step))
        if model.averages is not None:
            count = steps_per_update(model.optimizer)
            if steps_done(model.optimizer) // count > step // count:
                model.averages.update(step // count)
        return logs

    def test(self, keras_step, data):
        return keras_step(data)

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
        self._truth = truth  # of the gradients that follow
        return loss

    def watched(self, train_function):
        return train_function

    def skipped(self, logs, data):
        return logs

    def scope(self):
        return contextlib.nullcontext()

    def data_of_fit(self, data):
        return data

    def check_adversarial(self):
        raise needs_tensorflow("torch")

    def normalizer(self, num_positives):
        return None

    def predicting(self, predict_function):
        return predict_function

    def carried_variables(self):
        return []

    def scaling_gradients(self, values):
        return values  # see `_watching_gradients`

    @contextlib.contextmanager
    def _watching_gradients(self):
        """Multiplies gradients by their factors, and refuses those not finite."""
        variables = self._model.trainable_variables
        factors = self._model.settings.gradient_factors or [1.0] * len(variables)
        hooks = [
            v.value.register_hook(
                lambda gradient, factor=f: self._multiplied(gradient, factor)
            )
            for v, f in zip(variables, factors, strict=True)
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _multiplied(self, gradient, factor):
        if not self._is_left_to_scale():
            self._refuse_unless_finite(gradient, self._truth)
        return gradient if factor == 1.0 else gradient * factor

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
