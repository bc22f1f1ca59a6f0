"""Validation on the moving averages of the weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from effdet_keras.errors import InvalidValueError
from effdet_keras.train.averages import AveragesInPlace


class SwapEMA(AveragesInPlace):
    """Makes validation use the moving averages of the weights.

    `fit` does this by itself: there the callback changes nothing. It is for
    `evaluate(..., callbacks=[SwapEMA()])` while the weights of training are in place,
    and for loops of your own that call callbacks.

    The weights of training come back, bit by bit, when a validation ends that found
    them in place, and at the beginning of an epoch.

    Raises:
        ValueError: At the start of training or evaluation, if the model has no
            averages.

    Example:
        >>> from effdet_keras.model.efficientdet import EfficientDet
        >>> model = EfficientDet.from_preset(
        ...     "efficientdet-d0", image_size=64, max_level=6, num_classes=2
        ... )
        >>> model.compile()
        >>> callback = SwapEMA()
        >>> callback.set_model(model)  # `evaluate(..., callbacks=[callback])` calls:
        >>> callback.on_test_begin()
        >>> model.averages.is_swapped
        True
        >>> callback.on_test_end()
        >>> model.averages.is_swapped
        False
    """

    _has_swapped = False  # whether the validation under way found weights of training

    def on_train_begin(self, logs: dict | None = None) -> None:
        self._averages()

    def on_test_begin(self, logs: dict | None = None) -> None:
        # After an interrupted validation they are in place still.
        self._has_swapped |= not self._averages().is_swapped
        super().on_test_begin(logs)

    def on_test_end(self, logs: dict | None = None) -> None:
        if self._has_swapped:
            self._averages().restore()
        self._has_swapped = False

    def _averages(self):
        averages = super()._averages()
        if averages is None:
            raise InvalidValueError(
                "`SwapEMA` needs a model with moving averages. Compile it with "
                "`ema_decay` (0.9998 by default), or leave the callback out. "
                f"Received: model={self.model.name!r} without averages"
            )
        return averages


@contextlib.contextmanager
def evaluated_weights(model: Any) -> Iterator[str]:
    """Context in which `model` has the weights to evaluate: averages, if any.

    Gives `"averages"` or `"live"`, and always leaves the weights as they were.

    Example:
        >>> from effdet_keras.model.efficientdet import EfficientDet
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
