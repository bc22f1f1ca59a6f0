"""Validation on the moving averages of the weights."""

import contextlib

import keras

from effdet_keras.errors import InvalidValueError


class SwapEMA(keras.callbacks.Callback):
    """Makes the validation of `fit` use the moving averages of the weights.

    Without it `val_loss` and the like are those of the weights in training.
    `COCOEvaluation` and `ImageSummary` use the averages by themselves and do
    not need it. The averages are updated by the model's train step.

    The weights of training come back, bit by bit, when validation ends, also
    where it ends in an exception or is interrupted.

    Raises:
        ValueError: At the start of training or evaluation, if the model has no
            averages.

    Example:
        >>> from effdet_keras.models import EfficientDet
        >>> model = EfficientDet.from_preset(
        ...     "efficientdet-d0", image_size=64, max_level=6, num_classes=2
        ... )
        >>> model.compile()
        >>> callback = SwapEMA()  # model.fit(..., callbacks=[SwapEMA()]) does this:
        >>> callback.set_model(model)
        >>> callback.on_test_begin()
        >>> model.averages.is_swapped
        True
        >>> callback.on_test_end()
        >>> model.averages.is_swapped
        False
    """

    def on_train_begin(self, logs=None):
        self._averages().restore()

    def on_epoch_begin(self, epoch, logs=None):
        self._averages().restore()

    def on_test_begin(self, logs=None):
        if not self._averages().is_swapped:
            self._averages().swap()

    def on_test_end(self, logs=None):
        self._averages().restore()

    def on_train_end(self, logs=None):
        self._averages().restore()

    def _averages(self):
        averages = getattr(self.model, "averages", None)
        if averages is None:
            raise InvalidValueError(
                "`SwapEMA` needs a model with moving averages. Compile it with "
                "`ema_decay` (0.9998 by default), or leave the callback out. "
                f"Received: model={self.model.name!r} without averages"
            )
        return averages


@contextlib.contextmanager
def evaluated_weights(model):
    """Context in which `model` has the weights to evaluate: averages, if any.

    Gives `"averages"` or `"live"`, and always brings the weights of training
    back.

    Args:
        model: `EfficientDet`.

    Example:
        >>> from effdet_keras.models import EfficientDet
        >>> model = EfficientDet.from_preset(
        ...     "efficientdet-d0", image_size=64, max_level=6, num_classes=2
        ... )
        >>> with evaluated_weights(model) as which:
        ...     print(which)
        live
        >>> model.compile()
        >>> with evaluated_weights(model) as which:
        ...     print(which)
        averages
    """
    averages = getattr(model, "averages", None)
    if averages is None:
        yield "live"
        return
    with averages.swapped():
        yield "averages"
