"""What `compile` makes of a recipe: settings that a step reads, and what is logged."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from effdet_keras.errors import InvalidStateError, InvalidValueError
from effdet_keras.train.gradients import decay_factors, half_square
from effdet_keras.train.recipe import Recipe


class _Latest(keras.metrics.Mean):
    """A metric that reports the last value it was given."""

    def update_state(self, value, sample_weight=None):
        self.reset_state()
        super().update_state(value)


class Trackers:
    """The running means that `fit` logs. No Keras container, so not saved."""

    def __init__(self, losses):
        steps = ("gradient_norm", "learning_rate")
        self._losses = {name: keras.metrics.Mean(name=name) for name in losses}
        self._steps = {name: _Latest(name=name) for name in steps}

    @property
    def metrics(self):
        """All of them, in the order of the logs."""
        return [*self._losses.values(), *self._steps.values()]

    def add(self, names):
        """Logs the losses of a part from now on."""
        self._steps |= {name: keras.metrics.Mean(name=name) for name in names}

    def remove(self, names):
        for name in names:
            self._steps.pop(name, None)

    def update(self, name, value):
        """Adds a value to the mean of a part's loss."""
        self._steps[name].update_state(value)

    def without_steps(self, logs):
        """Logs without those that only a training step knows."""
        return {n: value for n, value in logs.items() if n not in self._steps}

    def update_losses(self, terms):
        for name, tracker in self._losses.items():
            tracker.update_state(terms[name])
        for name in self._steps:
            if name in terms:
                self.update(name, terms[name])

    def update_step(self, gradient_norm, learning_rate):
        self._steps["gradient_norm"].update_state(gradient_norm)
        self._steps["learning_rate"].update_state(learning_rate)


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a compiled model trains; `gradient_factors` is None where all are 1."""

    recipe: Recipe
    open_recipe: Recipe  # as `compile` was given it
    trackers: Trackers
    gradient_factors: list | None
    keras_options: dict

    def weight_decay_loss(self, variables: Sequence[keras.Variable]) -> Any:
        """The L2 decay of some variables, a float32 scalar."""
        factors = decay_factors(self.recipe.l2_decay, variables)
        decaying = [(v, factor) for v, factor in zip(variables, factors) if factor]
        if not decaying:
            return ops.zeros(())
        factors = ops.convert_to_tensor([f for _, f in decaying], "float32")
        return ops.sum(factors * ops.stack([half_square(v) for v, _ in decaying]))

    def multiplied(self, gradients: list) -> list:
        """Gradients by their `gradient_multipliers`."""
        factors = self.gradient_factors or [1.0] * len(gradients)
        pairs = zip(gradients, factors, strict=True)
        return [g if f == 1.0 else g * f for g, f in pairs]

    def loss_scale(self, optimizer: Any) -> keras.Variable | None:
        """The variable of a float16 optimizer's loss scale, else None."""
        if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
            return optimizer.dynamic_scale
        return None


def refuse_keras_metrics(**arguments: Any) -> None:
    """Raises ValueError if any of the arguments, which `compile` lacks, is given."""
    for name, value in arguments.items():
        if value is None:
            continue
        if name == "loss_weights":
            cure = (
                "`EfficientDet` has one loss, a sum of parts: weigh them with "
                "`loss=DetectionLoss(box_loss_weight=..., iou_loss_weight=...)`."
            )
        else:
            cure = (
                "A Keras metric compares each output with a target of the same shape, "
                "and detections and ground-truth boxes differ in number and order. "
                "For average precision after each epoch pass "
                "`callbacks=[effdet_keras.callbacks.COCOEvaluation(dataset)]` to "
                "`fit`; the parts of the loss are always logged."
            )
        raise InvalidValueError(
            f"`compile` of `EfficientDet` does not take `{name}`. {cure} "
            f"Received: {name}={value!r}"
        )


@keras.saving.register_keras_serializable(package="effdet_keras")
class CompiledDetector:
    """Tells, in the config of a `compile`, that no other kind of model can use it.

    Only `keras.models.clone_model` tries: it makes of every network a plain
    `keras.Model`, and compiles that as the detector was compiled.
    """

    def get_config(self):
        return {}

    @classmethod
    def from_config(cls, config):
        raise InvalidStateError(
            "`keras.models.clone_model` makes a plain network, which cannot be trained "
            "as a detector. `EfficientDet.from_config(model.get_config())` makes "
            "another detector, with new weights; `set_weights(model.get_weights())` "
            "gives it the same ones."
        )


def names_of_losses(config, loss):
    """The losses of a network's heads, in the order of the logs."""
    names = []
    if config.has_detection:
        names += ["class_loss", "box_loss"]
        names += [] if loss.iou_loss_type is None else ["box_iou_loss"]
    names += ["segmentation_loss"] if config.has_segmentation else []
    return [*names, "reg_l2_loss"]
