"""Declares how a detector is trained: `Recipe`, with its optimizer and schedule."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import NoneType
from typing import Any, Literal

import keras

from effdet_keras._internal.number_ranges import (
    check_number,
    check_number_fields,
    number,
    whole_number,
)
from effdet_keras._internal.old_names import warn_of_old_name
from effdet_keras.errors import (
    InvalidTypeError,
    check_argument,
    check_choice,
    check_pattern,
    hint,
    require,
)
from effdet_keras.train.losses import DetectionLoss
from effdet_keras.train.matching import IoUMatching, Matching
from effdet_keras.train.optimizers import (
    default_learning_rate,
    has_own_decay,
    named_optimizer,
)
from effdet_keras.train.schedules import (
    REFERENCE_BATCH_SIZE,
    has_own_rates,
    is_fitted,
    named_schedule,
    with_short_warmup,
)

AUTO = "auto"  # the value of a field that the recipe chooses
Auto = Literal["auto"]
TFOD_NAME = "tfod"
NAMES = (AUTO, "reference", TFOD_NAME)
# Fields that may be dicts from regular expressions to numbers.
_FIELDS_BY_PATTERN = (
    "weight_decay",
    "learning_rate_multipliers",
    "gradient_multipliers",
)
_OPTIMIZER_FIELDS = ("optimizer", "schedule", "learning_rate", "weight_decay")
REFERENCE = {  # the reference's values of fields that are "auto"
    "clip_norm": 10.0,
    "ema_decay": 0.9998,
    "freeze": None,
    "learning_rate_multipliers": None,
    "loss": DetectionLoss(),
    "matching": IoUMatching(),
}
_LEARNING_RATE, _WARMUP_INIT = 0.08, 0.008  # the reference's
_L2_DECAY = 4e-5  # the reference's, added to the loss
# The full rate as a schedule, which `fit` can replace without a change of variables.
_UNTIL_FIT = {"name": "constant", "warmup_steps": 0}
_ADAMW_DECAY = 0.004  # Keras' own default


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecipeFields:
    """Declares the fields of a `Recipe` that a run's file can set, with their types."""

    optimizer: str | dict[str, Any] | None = None
    schedule: str | dict[str, Any] | None = None
    learning_rate: float | None = number(None, "(0, inf)")
    weight_decay: float | dict[str, float] | Auto | None = number(
        AUTO, "[0, inf)", form="number or dict", others=(None,)
    )
    clip_norm: float | Auto | None = number(AUTO, "[0, inf)", others=(None,))
    ema_decay: float | Auto | None = number(AUTO, "[0, 1)", others=(None,))
    learning_rate_multipliers: dict[str, float] | Auto | None = number(
        AUTO, "(0, inf)", form="dict", others=(None,)
    )
    gradient_multipliers: dict[str, float] | None = number(
        None, "(0, inf)", form="dict", others=(None,)
    )
    accumulate_steps: int = whole_number(1, "[1, inf)")
    grad_checkpoint: bool = False
    loss_scale: float | None = number(None, "(0, inf)")
    batch_norm_warmup: bool | Auto = "auto"
    freeze: str | None = "auto"
    freeze_batch_norm: bool = True

    def __post_init__(self) -> None:
        check_number_fields(self)


@dataclasses.dataclass(frozen=True)
class Recipe(RecipeFields):
    """How to train a detector: all options are declared and checked here.

    `EfficientDet.compile` takes a recipe, or its name, and overrides of its fields. The
    recipe chooses the value of each field that is "auto". For `optimizer`, `loss`,
    `schedule` and `learning_rate` it chooses the value if the field is None.

    Args:
        name: the source of the values for fields that are "auto". "auto": `fit`
            chooses them from the data (docs/fine_tuning.md). "reference": those of
            google/automl. "tfod": those of the configs of the TF Object Detection API
            (docs/migrating_from_tfod.md), with its losses, matching and L2 decay, a
            learning rate of 0.08 for all batch sizes, 2,500 steps of warm-up, a cosine
            decay over 300,000 steps, and neither clipping nor averages.
        optimizer: None for the recipe's optimizer; "sgd", "momentum" (SGD with a
            momentum of 0.9), "adam", "adamw", "rmsprop" or "muon"
            (`train/optimizers.py`); a dict of such a name and arguments of the Keras
            optimizer, such as `{"name": "rmsprop", "momentum": 0.9}`; or a Keras
            optimizer, which has its own learning rate.
        loss: `effdet_keras.train.losses.DetectionLoss`. None is the loss of the recipe.
            With `name="auto"` and fewer than 100,000 steps, `fit` adds a CIoU term to
            it, except for `freeze="all-but-new-classes"`.
        matching: the rule for which anchor has to predict which box: an
            `ek.matching.ATSSMatching`, an `IoUMatching`, or a `Matching` of your own.
            "auto" is `IoUMatching()`. With `name="auto"` and fewer than 100,000 steps,
            it is `ATSSMatching()`.
        schedule: "cosine" (the default), "stepwise" or "polynomial", which are as long
            as the training; "constant"; a dict of a name and settings, such as
            `{"name": "cosine", "warmup_steps": 500}`, also for "exponential" and
            "manual_step" (`named_schedule` in `train/schedules.py` lists all settings);
            or a Keras `LearningRateSchedule`.
        learning_rate: float, the highest rate of a named schedule. The default for an
            optimizer by name is Keras' default. The rate of the reference is for a
            batch of 64, and is scaled to your batch size; its default is 0.08. The
            warm-up begins at 0.008 for the reference (not scaled), at a tenth of the
            rate for an optimizer by name, and at an 80th of the rate for "tfod".
        weight_decay: float or None. `weight_decay / 2 * sum(w**2)` over the kernels
            (not over biases and batch norm) is added to the loss. Or a dict of regular
            expressions to floats, such as `{"^efficientnet": 0.0, "kernel$": 4e-5}`: a
            variable takes the number of the first expression that is found in its
            `path`, and does not decay if none is found. For "adamw" and "muon" it is
            the optimizer's decoupled decay, also of kernels only, and nothing is added
            to the loss. "auto" is 4e-5, for "adamw" and "muon" 0.004, and for a Keras
            optimizer with its own `weight_decay` it adds no decay.
        clip_norm: float or None. "auto" is 10, and None for "tfod". Each gradient is
            clipped to this norm, then all of them by their global norm. With "tfod",
            they are only clipped by their global norm.
        ema_decay: float below 1, the decay of the moving averages (EMA) of the weights,
            or None for no averages. "auto" is 0.9998, and None for "tfod". The trained
            model detects with the averages, see `fit`.
        learning_rate_multipliers: dict of regular expressions to factors above 0, such
            as `{"^efficientnet": 0.02}`, or None. The first expression that is found in
            the `path` of a variable gives the factor on its learning rate, and so on
            its decay. "auto" is None for the reference. Not allowed with a Keras
            optimizer.
        gradient_multipliers: dict of regular expressions to factors above 0, such as
            `{"bias$": 2.0}`, or None. The first expression that is found in the `path`
            of a variable gives the factor on its gradient. Gradients are multiplied
            before clipping, as the Object Detection API's `bias_grad_multiplier` does.
            With SGD this is a factor on the learning rate, apart from clipping and the
            decay of the momentum. With Adam and Muon, which divide by the size of a
            gradient, it has almost no effect.
        adversarial: `effdet_keras.AdvProp`, to train on adversarial images as well, or
            None. It needs TensorFlow, one device, and no XLA.
        accumulate_steps: int, the number of batches per update of weights and averages.
            The gradients of each batch are clipped, and the update uses their mean
            (Keras' `gradient_accumulation_steps`). Batch norm sees one batch at a time.
            Schedules still count batches. The rate of the reference is scaled to the
            number of images per update. Not allowed in a strategy of several devices,
            or with a Keras optimizer.
        grad_checkpoint: bool, whether the blocks of the backbone and the cells of the
            BiFPN store only their outputs for the backward pass, which then computes
            the rest again. That takes less memory and more time, and gives the same
            gradients (docs/train.md).
        loss_scale: float above 0, the initial loss scale of a "mixed_float16" model.
            Keras halves it when gradients overflow, and doubles it after 2,000 steps
            without overflow. None is Keras' default, 32,768.
        batch_norm_warmup: bool, whether the moving statistics of batch norm use a lower
            momentum in the first 900 steps. With the full momentum they would lag
            behind the weights. "auto" is True if `fit` chooses, and False for
            "reference" and "tfod".
        freeze: the weights that do not train, see `EfficientDet.freeze`. None leaves
            them as they are. "auto" may freeze a pretrained backbone if nothing is
            frozen yet. "all-but-new-classes" adds classes to a loaded detector, and
            keeps boxes and scores of its old classes, bit for bit
            (docs/add_a_class.md).
        freeze_batch_norm: bool, `batch_norm` of `EfficientDet.freeze`.

    Raises:
        ValueError, TypeError: If a field has a wrong value, or two fields contradict
            each other.

    Example:
        >>> recipe = Recipe("reference", learning_rate=0.08)
        >>> recipe.needs_length, recipe.new_optimizer().momentum
        (True, 0.9)
        >>> recipe.resolve().ema_decay
        0.9998
    """

    name: str = AUTO
    _: dataclasses.KW_ONLY
    # As in a run's file, or an object of Keras; the same for `schedule`.
    optimizer: Any = None
    schedule: Any = None
    loss: object = None
    matching: object = AUTO
    adversarial: Any = None

    def __post_init__(self):
        check_choice("recipe", self.name, NAMES)
        check_number_fields(self)
        is_rule = self.matching == AUTO or isinstance(self.matching, Matching)
        is_loss = isinstance(self.loss, (DetectionLoss, NoneType))
        for field, is_right, expected in (
            ("loss", is_loss, "an `ek.DetectionLoss` or None"),
            ("matching", is_rule, "'auto' or an `ek.matching.Matching`"),
        ):
            check_argument(is_right, field, getattr(self, field), expected)
        self._check_patterns()
        self._check_optimizer()

    def _check_patterns(self):
        """Raises an error for a wrong regular expression, of the paths of weights."""
        if self.freeze is not None:
            check_pattern("freeze", self.freeze)
        for field in _FIELDS_BY_PATTERN:
            if isinstance(patterns := getattr(self, field), Mapping):
                for pattern in patterns:
                    check_pattern(field, pattern)

    def _check_optimizer(self):
        """Raises an error for fields that contradict the optimizer.

        A Keras optimizer has its own learning rate, schedule and accumulation.
        """
        if self._brings_optimizer:
            for field in ("schedule", "learning_rate", "accumulate_steps"):
                rule = (
                    f"A Keras optimizer already sets its own `{field}`: leave out "
                    f"`{field}` or the optimizer"
                )
                received = {field: getattr(self, field), "optimizer": self.optimizer}
                require(not self.is_given(field), rule, **received)
            rule = (
                "`learning_rate_multipliers` do not work with a Keras optimizer: "
                "leave them out, or name an optimizer, such as optimizer='sgd'"
            )
            factors = self.learning_rate_multipliers
            require(factors in (None, AUTO), rule, learning_rate_multipliers=factors)
            return
        is_one = not isinstance(self.weight_decay, dict)
        require(
            is_one or not has_own_decay(self.optimizer),
            "AdamW and Muon decay all kernels by the same factor, so `weight_decay` "
            "must be one number",
            weight_decay=self.weight_decay,
        )
        has_rates = self._brings_schedule or has_own_rates(self._schedule)
        require(
            self.learning_rate is None or not has_rates,
            "A `LearningRateSchedule` and 'manual_step' contain the learning rates "
            "themselves: leave `learning_rate` out",
            learning_rate=self.learning_rate,
            schedule=self.schedule,
        )
        if not self._brings_schedule:
            self.resolve_schedule(batch_size=1, steps_per_epoch=1, epochs=1)

    @classmethod
    def of(cls, recipe: str | Recipe, changes: Mapping[str, Any]) -> Recipe:
        """Returns a recipe, given by name or as object, with some fields changed.

        Raises:
            TypeError: If a name in `changes` is not a field.
            ValueError: If a value is wrong.

        Example:
            >>> Recipe.of("reference", {"clip_norm": 5.0}).clip_norm
            5.0
        """
        known = [f.name for f in dataclasses.fields(cls) if f.name != "name"]
        for name in changes:
            if name not in known:
                raise InvalidTypeError(
                    f"`compile` has no argument {name!r}.{hint(name, known)} Its "
                    f"arguments are the fields of `Recipe`: {', '.join(known)}. For "
                    "metrics pass `callbacks=[ek.callbacks.COCOEvaluation(dataset)]` "
                    "to `fit`."
                )
        if not isinstance(recipe, cls):
            return cls(recipe, **changes)
        return dataclasses.replace(recipe, **changes)

    @property
    def has_auto_fields(self) -> bool:
        """Whether `fit` has to choose fields from the data, which the caller omitted.

        It has to for the name "auto", and not for "reference" and "tfod"; see
        `resolve`.
        """
        return self.name == AUTO

    def is_given(self, field: str) -> bool:
        """Returns whether the caller set a field. Then nothing else may change it."""
        return getattr(self, field) != getattr(Recipe, field)

    @property
    def given_fields(self) -> list[str]:
        """The names of the fields that the caller set."""
        names = [f.name for f in dataclasses.fields(self) if f.name != "name"]
        return [name for name in names if self.is_given(name)]

    def is_auto(self, field: str) -> bool:
        """Returns whether `fit` may choose a field.

        That is so if the recipe has "auto" fields, the caller did not set this field,
        and no other field rules it out:

        - Optimizer, learning rate, schedule and decay belong together. None of them is
          chosen if the caller sets the optimizer, or a schedule with its own rates.
        - `freeze` and `learning_rate_multipliers` are not chosen for a Keras optimizer.
          It has been built for the variables that train, so that nothing can be frozen
          any more.
        """
        if self.is_given(field) or not self.has_auto_fields:
            return False
        if field in ("freeze", "learning_rate_multipliers"):
            return not self._brings_optimizer
        has_rate = (
            self.is_given("optimizer")
            or self._brings_schedule
            or has_own_rates(self._schedule)
        )
        return not (has_rate and field in _OPTIMIZER_FIELDS)

    def resolve(self, **values: Any) -> Recipe:
        """Returns the recipe with a value in place of every "auto".

        Args:
            **values: values of fields that `fit` chose for its data. A field that the
                caller set keeps its own value. Other "auto" fields get the value of the
                recipe with this name, or of the reference if the name is "auto".

        Returns:
            `Recipe` without an "auto" field. If the name was "auto", it becomes
            "reference", because nothing is left to choose.

        Example:
            >>> requested = Recipe(clip_norm=1.0)
            >>> requested.has_auto_fields, requested.is_auto("ema_decay")
            (True, True)
            >>> recipe = requested.resolve(ema_decay=0.99)
            >>> recipe.has_auto_fields, recipe.clip_norm, recipe.ema_decay
            (False, 1.0, 0.99)
        """
        from effdet_keras.extras.tfod.recipe import DEFAULTS

        defaults = {
            **(DEFAULTS if self._is_tfod else REFERENCE),
            "batch_norm_warmup": False,
            **values,
        }
        not_given = {
            field: value
            for field, value in defaults.items()
            if not self.is_given(field)
        }
        name = "reference" if self.has_auto_fields else self.name
        recipe = dataclasses.replace(self, name=name, **not_given)
        # The default of the decay depends on the optimizer, which may just have been
        # chosen.
        return dataclasses.replace(recipe, weight_decay=recipe._weight_decay)

    @property
    def _is_tfod(self):
        return self.name == TFOD_NAME

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
        from effdet_keras.extras.tfod.recipe import SCHEDULE

        return SCHEDULE if self._is_tfod else "cosine"

    @property
    def clips_each(self) -> bool:
        """Whether each gradient is clipped before all are clipped by global norm."""
        return not self._is_tfod

    @property
    def needs_length(self) -> bool:
        """Whether the learning rate depends on the batch size or number of steps.

        Both are known in `fit` only.
        """
        if self._brings_optimizer or self._brings_schedule:
            return False
        return self._scales_rate or is_fitted(self._schedule)

    @property
    def _scales_rate(self):
        """Whether the learning rate is for a batch of 64, and scaled to the actual."""
        is_reference = self.optimizer is None and not self._is_tfod
        return is_reference and not has_own_rates(self._schedule)

    @property
    def l2_decay(self) -> float | dict[str, float]:
        """The L2 decay in the loss, see `decay_factors`. 0 if the optimizer decays."""
        if not self._brings_optimizer and has_own_decay(self.optimizer):
            return 0.0  # the optimizer decays, see `new_optimizer`
        return self._weight_decay or 0.0

    @property
    def _weight_decay(self):
        """The decay, or the default for the optimizer."""
        if self.weight_decay != AUTO:
            return self.weight_decay
        if has_own_decay(self.optimizer):
            # A Keras optimizer already has its decay.
            return 0.0 if self._brings_optimizer else _ADAMW_DECAY
        from effdet_keras.extras.tfod.recipe import tfod_decay

        return tfod_decay() if self._is_tfod else _L2_DECAY

    def new_optimizer(self) -> keras.optimizers.Optimizer:
        """Returns the caller's optimizer, one by name, or SGD with a momentum of 0.9.

        Batch size and length of the training are not known before `fit`. Until then, a
        learning rate that scales with the batch size is that of a batch of one image,
        and a schedule that is as long as the training stays at the full rate.
        """
        if self._brings_optimizer:
            return self.optimizer
        accumulation = {}
        if self.accumulate_steps > 1:
            accumulation["gradient_accumulation_steps"] = self.accumulate_steps
        multipliers = self.learning_rate_multipliers
        return named_optimizer(
            self.optimizer or "momentum",
            self.rate_until_fit(),
            weight_decay=self._weight_decay or 0.0,
            multipliers=None if multipliers == AUTO else multipliers,
            **accumulation,
        )

    def rate_until_fit(
        self,
    ) -> float | keras.optimizers.schedules.LearningRateSchedule:
        """Returns the learning rate of `new_optimizer`, before the length is known."""
        if self._brings_schedule:
            return self.schedule
        known = self
        if is_fitted(self._schedule):
            known = dataclasses.replace(self, schedule=_UNTIL_FIT)
        return known.resolve_schedule(batch_size=1, steps_per_epoch=1, epochs=1)

    def resolve_schedule(
        self, *, batch_size: int, steps_per_epoch: int, epochs: int
    ) -> float | keras.optimizers.schedules.LearningRateSchedule:
        """Returns the learning rate for a training of this length.

        Args:
            batch_size: number of images per step, above 0.
            steps_per_epoch: number of steps per epoch, above 0.
            epochs: number of epochs, above 0.

        Returns:
            Keras `LearningRateSchedule`, or a float for a constant rate.

        Raises:
            ValueError: If a number is out of its range.
        """
        check_number("batch_size", batch_size, "(0, inf)")
        check_number("steps_per_epoch", steps_per_epoch, "(0, inf)")
        check_number("epochs", epochs, "(0, inf)")
        if self.optimizer is None:
            rate, warmup_init = self.learning_rate or _LEARNING_RATE, _WARMUP_INIT
            if self._scales_rate:
                rate *= batch_size * self.accumulate_steps / REFERENCE_BATCH_SIZE
        else:
            rate = self.learning_rate or default_learning_rate(self.optimizer)
            warmup_init = rate * _WARMUP_INIT / _LEARNING_RATE
        if self._is_tfod:
            from effdet_keras.extras.tfod.recipe import WARMUP_INIT

            warmup_init = rate * WARMUP_INIT / _LEARNING_RATE
        return named_schedule(
            self._schedule,
            rate,
            warmup_init=warmup_init,
            steps_per_epoch=steps_per_epoch,
            epochs=epochs,
        )

    def get_config(self):
        """Returns all fields, with objects serialized as Keras does."""
        return keras.saving.serialize_keras_object(dict(vars(self)))

    @classmethod
    def from_config(cls, config):
        if config.get("adversarial") is not None:
            import effdet_keras.extras.advprop  # noqa: F401  # registers its class
        return cls(**keras.saving.deserialize_keras_object(config))

    # --- Former names, which work for one release.

    @property
    def is_open(self) -> bool:
        """Deprecated: `has_auto_fields`."""
        warn_of_old_name("Recipe.is_open", "Recipe.has_auto_fields")
        return self.has_auto_fields

    @property
    def given(self) -> list[str]:
        """Deprecated: `given_fields`."""
        warn_of_old_name("Recipe.given", "Recipe.given_fields")
        return self.given_fields

    def may_choose(self, field: str) -> bool:
        """Deprecated: `is_auto`."""
        warn_of_old_name("Recipe.may_choose", "Recipe.is_auto")
        return self.is_auto(field)

    def chosen(self, **fields: Any) -> Recipe:
        """Deprecated: `resolve`."""
        warn_of_old_name("Recipe.chosen", "Recipe.resolve")
        return self.resolve(**fields)


def shorten_warmup(recipe: Recipe, steps_per_epoch: int, steps: int) -> Recipe:
    """Returns the recipe with its warm-up shortened to a tenth of the steps.

    It is shortened only if one epoch, the default warm-up, is longer. A warm-up that
    the caller set, and an optimizer or schedule of Keras, are not changed.
    """
    if recipe._brings_optimizer or recipe._brings_schedule:
        return recipe
    schedule = with_short_warmup(recipe._schedule, steps_per_epoch, steps)
    if schedule == recipe._schedule:
        return recipe
    return dataclasses.replace(recipe, schedule=schedule)
