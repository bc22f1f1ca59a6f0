"""How a detector is trained: what `compile` was told, and the reference's answers."""

import dataclasses

import keras

from effdet_keras.losses import DetectionLoss
from effdet_keras.training.schedules import reference_schedule

SCHEDULES = ("cosine", "stepwise", "polynomial")


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The arguments of `EfficientDet.compile`, checked. See there.

    Example:
        >>> recipe = Recipe(learning_rate=0.08)
        >>> recipe.follows_reference, recipe.new_optimizer().momentum
        (True, 0.9)
    """

    optimizer: object = None
    loss: object = None
    schedule: object = None
    learning_rate: float | None = None
    weight_decay: float = 4e-5
    clip_norm: float | None = 10.0
    ema_decay: float | None = 0.9998

    def __post_init__(self):
        if self.loss is None:
            object.__setattr__(self, "loss", DetectionLoss())
        if not isinstance(self.loss, DetectionLoss):
            raise TypeError(
                "`loss` must be an `effdet_keras.losses.DetectionLoss` or None. "
                f"Received: loss={self.loss!r}"
            )
        self._check_schedule()
        for name in ("weight_decay", "clip_norm"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise ValueError(
                    f"`{name}` must be at least 0, or None. Received: {name}={value!r}"
                )

    def _check_schedule(self):
        own_optimizer = self.optimizer is not None
        for name in ("schedule", "learning_rate"):
            value = getattr(self, name)
            if own_optimizer and value is not None:
                raise ValueError(
                    f"`{name}` belongs to the reference recipe; an optimizer brings "
                    f"its own. Received: {name}={value!r} and "
                    f"optimizer={self.optimizer!r}. Leave one of the two out."
                )
        is_schedule = isinstance(
            self.schedule, keras.optimizers.schedules.LearningRateSchedule
        )
        if not (self.schedule is None or is_schedule or self.schedule in SCHEDULES):
            raise ValueError(
                f"`schedule` must be one of {', '.join(SCHEDULES)}, or a Keras "
                f"`LearningRateSchedule`. Received: schedule={self.schedule!r}"
            )
        if self.learning_rate is not None:
            if is_schedule:
                raise ValueError(
                    "`learning_rate` is part of a `LearningRateSchedule`. Received: "
                    f"learning_rate={self.learning_rate!r}, schedule={self.schedule!r}"
                )
            if not self.learning_rate > 0:
                raise ValueError(
                    "`learning_rate` must be above 0. "
                    f"Received: learning_rate={self.learning_rate!r}"
                )

    @property
    def follows_reference(self):
        """Whether the schedule depends on the data, which `fit` knows first."""
        return self.optimizer is None and (
            self.schedule is None or isinstance(self.schedule, str)
        )

    def new_optimizer(self):
        """The optimizer: the caller's own, or SGD with momentum 0.9.

        Until `fit` knows the length of the training, the reference's schedule
        is one for a single step.
        """
        if self.optimizer is not None:
            return keras.optimizers.get(self.optimizer)
        schedule = self.schedule
        if self.follows_reference:
            schedule = self.resolve_schedule(batch_size=1, steps_per_epoch=1, epochs=1)
        return keras.optimizers.SGD(schedule, momentum=0.9)

    def resolve_schedule(self, *, batch_size, steps_per_epoch, epochs):
        """The reference's schedule for a training of that length."""
        return reference_schedule(
            self.schedule or "cosine",
            batch_size=batch_size,
            steps_per_epoch=steps_per_epoch,
            epochs=epochs,
            learning_rate=0.08 if self.learning_rate is None else self.learning_rate,
        )

    def get_config(self):
        """All fields; objects as Keras serialises them."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {
            name: keras.saving.serialize_keras_object(value)
            if name in ("optimizer", "loss", "schedule")
            else value
            for name, value in fields.items()
        }

    @classmethod
    def from_config(cls, config):
        return cls(**keras.saving.deserialize_keras_object(config))
