"""The metrics that a training step updates: losses, gradient norm, learning rate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import keras

from effdet_keras.network.config import EfficientDetConfig
from effdet_keras.train.losses import DetectionLoss


class _LastValue(keras.metrics.Mean):
    """A metric whose result is the last value that it was given."""

    def update_state(self, value, sample_weight=None):
        self.reset_state()
        super().update_state(value)


class LossMetrics:
    """The metrics of a compiled model, besides the `loss` that Keras tracks itself.

    It is no Keras container, so that files of models do not hold its variables.

    Args:
        losses: names of losses that a training step and a validation step have.
    """

    def __init__(self, losses: Iterable[str]) -> None:
        self._losses = {name: keras.metrics.Mean(name=name) for name in losses}
        self._training_only = {
            name: _LastValue(name=name) for name in ("gradient_norm", "learning_rate")
        }

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        """All metrics, in the order of the logs."""
        return [*self._losses.values(), *self._training_only.values()]

    def add(self, names: Iterable[str]) -> None:
        """Adds the mean of a loss that only training steps have, by its name."""
        self._training_only |= {name: keras.metrics.Mean(name=name) for name in names}

    def remove(self, names: Iterable[str]) -> None:
        """Removes what `add` added."""
        for name in names:
            self._training_only.pop(name, None)

    def update(self, values: Mapping[str, Any]) -> None:
        """Updates the metrics that there are values for; ignores other values."""
        for name, metric in (self._losses | self._training_only).items():
            if name in values:
                metric.update_state(values[name])

    def validation_logs(self, logs: Mapping[str, Any]) -> dict[str, Any]:
        """The logs of a validation step: without what only a training step has."""
        return {n: value for n, value in logs.items() if n not in self._training_only}


def loss_names(config: EfficientDetConfig, loss: DetectionLoss) -> list[str]:
    """The names of the losses of a network's heads, in the order of the logs."""
    names = []
    if config.has_detection:
        names += ["class_loss", "box_loss"]
        names += [] if loss.iou_loss_type is None else ["box_iou_loss"]
    if config.has_segmentation:
        names.append("segmentation_loss")
    return [*names, "reg_l2_loss"]
