"""Holds the metrics that a step updates: losses, gradient norm and learning rate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import keras

from effdet_keras.network.config import EfficientDetConfig
from effdet_keras.train.losses import DetectionLoss


class _LastValue(keras.metrics.Mean):
    """A metric whose result is the value of the last update."""

    def update_state(self, value, sample_weight=None):
        self.reset_state()
        super().update_state(value)


class LossMetrics:
    """The metrics of a compiled model, besides the `loss` that Keras tracks itself.

    It is not a Keras object, so that model files do not contain its variables.

    Args:
        losses: names of the losses that both training and validation steps have.
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
        """Adds a mean for each of these losses, which only training steps have."""
        self._training_only |= {name: keras.metrics.Mean(name=name) for name in names}

    def remove(self, names: Iterable[str]) -> None:
        """Removes metrics that `add` added."""
        for name in names:
            self._training_only.pop(name, None)

    def update(self, values: Mapping[str, Any]) -> None:
        """Updates the metrics whose names are in `values`; ignores other values."""
        for name, metric in (self._losses | self._training_only).items():
            if name in values:
                metric.update_state(values[name])

    def validation_logs(self, logs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns logs without the metrics that only training steps have."""
        return {n: value for n, value in logs.items() if n not in self._training_only}


def loss_names(config: EfficientDetConfig, loss: DetectionLoss) -> list[str]:
    """Returns the names of the losses of a network, in the order of the logs.

    They are the losses of its heads, and the L2 decay.
    """
    names = []
    if config.has_detection:
        names += ["class_loss", "box_loss"]
        names += [] if loss.iou_loss_type is None else ["box_iou_loss"]
    if config.has_segmentation:
        names.append("segmentation_loss")
    return [*names, "reg_l2_loss"]
