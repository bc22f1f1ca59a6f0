"""How a detector is trained: the arguments of `compile`, and their defaults."""

import dataclasses
import numbers
from types import NoneType

import keras

from effdet_keras.errors import InvalidTypeError, InvalidValueError
from effdet_keras.losses import DetectionLoss
from effdet_keras.matching import IoUMatching, Matching
from effdet_keras.tfod.decay import tfod_decay
from effdet_keras.training.advprop import AdvProp
from effdet_keras.training.gradient_multipliers import check_multipliers
from effdet_keras.training.l2_decay import check_decay
from effdet_keras.training.named_schedules import (
    has_own_rates,
    is_fitted,
    named_schedule,
)
from effdet_keras.training.optimizers import (
    default_learning_rate,
    has_own_decay,
    named_optimizer,
    optimizer_choice,
)
from effdet_keras.training.schedules import REFERENCE_BATCH_SIZE

AUTO = "auto"  # the value of a field that the recipe is to choose
REFERENCE_NAME, TFOD_NAME = "reference", "tfod"
NAMES = (AUTO, REFERENCE_NAME, TFOD_NAME)
_OBJECTS = ("optimizer", "loss", "matching", "schedule", "adversarial")
_OF_OPTIMIZER = ("optimizer", "schedule", "learning_rate", "weight_decay")
REFERENCE = {  # what the reference has in fields that are "auto"
    "clip_norm": 10.0,
    "ema_decay": 0.9998,
    "freeze": None,
    "loss": DetectionLoss(),
    "matching": IoUMatching(),
}
TFOD = {  # what the configs of the TF Object Detection API have there
    "clip_norm": None,
    "ema_decay": None,
    "freeze": None,
    "loss": DetectionLoss(delta=1.0, box_loss_weight=1.0, divide_by="positives"),
    "matching": IoUMatching(in_fractions=True),
}
TFOD_SCHEDULE = {
    "name": "cosine",
    "warmup_steps": 2_500,
    "total_steps": 300_000,
}
_LEARNING_RATE, _WARMUP_INIT = 0.08, 0.008  # the reference's
_TFOD_WARMUP_INIT = 0.001  # and that of the TF Object Detection API, for 0.08 as well
_L2_DECAY = 4e-5  # the reference's, of the loss
_ADAMW_DECAY = 0.004  # Keras' own default


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The checked arguments of `EfficientDet.compile`; that describes them.

    A field is open where it is "auto", or None for `optimizer`, `loss`, `schedule` and
    `learning_rate`. `name` tells who fills open fields: "auto" is `fit`, from what
    the data is (`auto_recipe.py`), "reference" google/automl, "tfod" the TF Object
    Detection API.

    Example:
        >>> recipe = Recipe("reference", learning_rate=0.08)
        >>> recipe.needs_length, recipe.new_optimizer().momentum
        (True, 0.9)
        >>> recipe.chosen().ema_decay
        0.9998
    """

    name: str = AUTO
    optimizer: object = None
    loss: object = None
    matching: object = AUTO
    schedule: object = None
    learning_rate: float | None = None
    weight_decay: float | str | None = "auto"
    clip_norm: float | str | None = AUTO
    ema_decay: float | str | None = AUTO
    gradient_multipliers: dict | None = None
    adversarial: AdvProp | None = None
    accumulate_steps: int = 1
    grad_checkpoint: bool = False
    loss_scale: float | None = None
    batch_norm_warmup: bool | str = AUTO
    freeze: str | None = AUTO
    freeze_batch_norm: bool = True

    def __post_init__(self):
        if self.name not in NAMES:
            raise InvalidValueError(
                f"`recipe` must be one of {', '.join(map(repr, NAMES))}. "
                f"Received: recipe={self.name!r}"
            )
        if not isinstance(self.loss, (DetectionLoss, NoneType)):
            raise InvalidTypeError(
                "`loss` must be an `effdet_keras.losses.DetectionLoss` or None. "
                f"Received: loss={self.loss!r}"
            )
        if self.matching != AUTO and not isinstance(self.matching, Matching):
            raise InvalidTypeError(
                "`matching` must be 'auto' or an `effdet_keras.matching.Matching`. "
                f"Received: matching={self.matching!r}"
            )
        if not isinstance(self.adversarial, (AdvProp, NoneType)):
            raise InvalidTypeError(
                "`adversarial` must be an `effdet_keras.AdvProp` or None. "
                f"Received: adversarial={self.adversarial!r}"
            )
        self._check_optimizer()
        self._check_schedule()
        if self.weight_decay != "auto":
            self._check_weight_decay()
        if self.clip_norm != AUTO:
            _check_not_negative("clip_norm", self.clip_norm)
        if self.batch_norm_warmup not in (True, False, AUTO):
            raise InvalidValueError(
                "`batch_norm_warmup` must be True, False or 'auto'. "
                f"Received: batch_norm_warmup={self.batch_norm_warmup!r}"
            )
        if not isinstance(self.grad_checkpoint, bool):
            raise InvalidTypeError(
                "`grad_checkpoint` must be True or False. "
                f"Received: grad_checkpoint={self.grad_checkpoint!r}"
            )
        self._check_loss_scale()
        check_multipliers(self.gradient_multipliers)
        self._check_accumulation()

    def _check_loss_scale(self):
        scale = self.loss_scale
        if scale is None:
            return
        if not (isinstance(scale, numbers.Real) and scale > 0):
            raise InvalidValueError(
                "`loss_scale` must be a number above 0, or None. "
                f"Received: loss_scale={scale!r}"
            )
        if isinstance(self.optimizer, keras.optimizers.LossScaleOptimizer):
            raise InvalidValueError(
                "A `LossScaleOptimizer` brings its own `initial_scale`: leave "
                f"`loss_scale` out. Received: loss_scale={scale!r}"
            )

    def _check_accumulation(self):
        steps = self.accumulate_steps
        if not isinstance(steps, numbers.Integral) or steps < 1:
            raise InvalidValueError(
                "`accumulate_steps` must be a whole number of at least 1. "
                f"Received: accumulate_steps={steps!r}"
            )
        if steps > 1 and self._brings_optimizer:
            raise InvalidValueError(
                "`accumulate_steps` is for the reference's optimizer and those by "
                "name; a Keras optimizer has `gradient_accumulation_steps`. Received: "
                f"accumulate_steps={steps} and optimizer={self.optimizer!r}"
            )

    def _check_weight_decay(self):
        check_decay(self.weight_decay)
        is_ours = not self._brings_optimizer and has_own_decay(self.optimizer)
        if is_ours and isinstance(self.weight_decay, dict):
            raise InvalidValueError(
                "AdamW decays all kernels alike: its `weight_decay` is one number. "
                f"Received: weight_decay={self.weight_decay!r}"
            )

    def _check_optimizer(self):
        if self.optimizer is None or self._brings_optimizer:
            return
        if not isinstance(self.optimizer, (str, dict)):
            raise InvalidTypeError(
                "`optimizer` must be a name, a dict of a name and settings, a Keras "
                f"optimizer, or None. Received: optimizer={self.optimizer!r}"
            )
        optimizer_choice(self.optimizer)

    def _check_schedule(self):
        for name in ("schedule", "learning_rate"):
            value = getattr(self, name)
            if self._brings_optimizer and value is not None:
                raise InvalidValueError(
                    f"`{name}` is for the reference's optimizer and those by name; a "
                    f"Keras optimizer brings its own. Received: {name}={value!r} and "
                    f"optimizer={self.optimizer!r}. Leave one of the two out."
                )
        if self.learning_rate is not None:
            self._check_learning_rate()
        if not (self._brings_optimizer or self._brings_schedule):
            self.resolve_schedule(batch_size=1, steps_per_epoch=1, epochs=1)

    def _check_learning_rate(self):
        if self._brings_schedule or has_own_rates(self._schedule):
            raise InvalidValueError(
                "`learning_rate` is part of a `LearningRateSchedule` and of "
                "'manual_step'. Received: "
                f"learning_rate={self.learning_rate!r}, schedule={self.schedule!r}"
            )
        if not (
            isinstance(self.learning_rate, numbers.Real) and self.learning_rate > 0
        ):
            raise InvalidValueError(
                "`learning_rate` must be a number above 0. "
                f"Received: learning_rate={self.learning_rate!r}"
            )

    @property
    def is_open(self):
        """Whether `fit` is to choose the open fields, from the data."""
        return self.name == AUTO

    def is_given(self, field):
        """Whether the caller chose a field, so that nothing else may."""
        value = getattr(self, field)
        if field == "gradient_multipliers":
            return bool(value)
        return value != getattr(Recipe, field)

    @property
    def given(self):
        """The names of the fields that the caller chose."""
        names = [f.name for f in dataclasses.fields(self) if f.name != "name"]
        return [name for name in names if self.is_given(name)]

    def may_choose(self, field):
        """Whether a field can be filled: it is open, and goes with what was given.

        An optimizer goes with its rate, schedule and decay: where it or its rate is
        given, none of them is chosen. A Keras optimizer has been built for what trains,
        so that nothing can be frozen any more.
        """
        if self.is_given(field):
            return False
        if field == "freeze":
            return not self._brings_optimizer
        has_rate = (
            self.is_given("optimizer")
            or self.is_given("learning_rate")
            or self._brings_schedule
            or has_own_rates(self._schedule)
        )
        return not (has_rate and field in _OF_OPTIMIZER)

    def chosen(self, **fields):
        """The recipe with every field settled.

        Args:
            **fields: values for fields of which `may_choose` is true.

        Returns:
            `Recipe`; what is still open then is as in the reference.
        """
        of_name = TFOD if self.name == TFOD_NAME else REFERENCE
        default = {**of_name, "batch_norm_warmup": self.is_open}
        settled = {
            name: value
            for name, value in (default | fields).items()
            if not self.is_given(name)
        }
        return dataclasses.replace(self, **settled)

    @property
    def _brings_optimizer(self):
        return isinstance(self.optimizer, keras.optimizers.Optimizer)

    @property
    def _brings_schedule(self):
        kind = keras.optimizers.schedules.LearningRateSchedule
        return isinstance(self.schedule, kind)

    @property
    def _schedule(self):
        if self.schedule is not None:
            return self.schedule
        return TFOD_SCHEDULE if self.name == TFOD_NAME else "cosine"

    @property
    def clips_each(self):
        """Whether each gradient is clipped before all are together."""
        return self.name != TFOD_NAME

    @property
    def needs_length(self):
        """Whether the learning rate depends on the data, which `fit` knows first."""
        if self._brings_optimizer or self._brings_schedule:
            return False
        return self._scales_rate or is_fitted(self._schedule)

    @property
    def _scales_rate(self):
        """Whether the learning rate is for a batch of 64, and scaled to the data's."""
        is_reference = self.optimizer is None and self.name != TFOD_NAME
        return is_reference and not has_own_rates(self._schedule)

    @property
    def l2_decay(self):
        """The loss' weight decay, see `decay_factors`; 0 where the optimizer decays."""
        if self.weight_decay == "auto":
            if has_own_decay(self.optimizer):
                return 0.0
            return tfod_decay() if self.name == TFOD_NAME else _L2_DECAY
        if not self._brings_optimizer and has_own_decay(self.optimizer):
            return 0.0  # it is AdamW's, see `new_optimizer`
        return self.weight_decay or 0.0

    def new_optimizer(self):
        """The optimizer: the caller's own, one by name, or SGD with momentum 0.9.

        Until `fit` knows the length of the training, a schedule that depends on
        it is one for a single step.
        """
        if self._brings_optimizer:
            return self.optimizer
        rate = self.schedule
        if not self._brings_schedule:
            rate = self.resolve_schedule(batch_size=1, steps_per_epoch=1, epochs=1)
        accumulation = {}
        if self.accumulate_steps > 1:
            accumulation["gradient_accumulation_steps"] = self.accumulate_steps
        if self.optimizer is None:
            return keras.optimizers.SGD(rate, momentum=0.9, **accumulation)
        decay = _ADAMW_DECAY if self.weight_decay == "auto" else self.weight_decay
        return named_optimizer(
            self.optimizer, rate, weight_decay=decay or 0.0, **accumulation
        )

    def resolve_schedule(self, *, batch_size, steps_per_epoch, epochs):
        """The learning rate for a training of that length: a schedule or a float."""
        if self.optimizer is None:
            rate, warmup_init = self.learning_rate or _LEARNING_RATE, _WARMUP_INIT
            if self._scales_rate:
                rate *= batch_size * self.accumulate_steps / REFERENCE_BATCH_SIZE
        else:
            rate = self.learning_rate or default_learning_rate(self.optimizer)
            warmup_init = rate * _WARMUP_INIT / _LEARNING_RATE
        if self.name == TFOD_NAME:
            warmup_init = rate * _TFOD_WARMUP_INIT / _LEARNING_RATE
        return named_schedule(
            self._schedule,
            rate,
            warmup_init=warmup_init,
            steps_per_epoch=steps_per_epoch,
            epochs=epochs,
        )

    def get_config(self):
        """All fields; objects as Keras serialises them."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {
            name: keras.saving.serialize_keras_object(value)
            if name in _OBJECTS
            else value
            for name, value in fields.items()
        }

    @classmethod
    def from_config(cls, config):
        return cls(**keras.saving.deserialize_keras_object(config))


def _check_not_negative(name, value):
    if value is None or (isinstance(value, numbers.Real) and value >= 0):
        return
    raise InvalidValueError(
        f"`{name}` must be a number of at least 0, or None. Received: {name}={value!r}"
    )
