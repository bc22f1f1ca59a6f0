"""How a detector is trained: `Recipe`, and the optimizers that it can choose."""

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

AUTO = "auto"  # the value of a field that the recipe is to choose
Auto = Literal["auto"]
TFOD_NAME = "tfod"
NAMES = (AUTO, "reference", TFOD_NAME)
_OPTIMIZER_FIELDS = ("optimizer", "schedule", "learning_rate", "weight_decay")
REFERENCE = {  # what the reference has in fields that are "auto"
    "clip_norm": 10.0,
    "ema_decay": 0.9998,
    "freeze": None,
    "learning_rate_multipliers": None,
    "loss": DetectionLoss(),
    "matching": IoUMatching(),
}
_LEARNING_RATE, _WARMUP_INIT = 0.08, 0.008  # the reference's
_L2_DECAY = 4e-5  # the reference's, of the loss
# The full rate, as a schedule: `fit` can replace it without a change of variables.
_UNTIL_FIT = {"name": "constant", "warmup_steps": 0}
_ADAMW_DECAY = 0.004  # Keras' own default


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecipeFields:
    """The fields of a `Recipe` that a file of a run has, with their types there."""

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
    """How a detector is trained: every option, declared and checked here alone.

    `EfficientDet.compile` takes a recipe, or its name, and changes to it. The recipe
    fills a field that is "auto", or None for `optimizer`, `loss`, `schedule` and
    `learning_rate`.

    Args:
        name: who fills fields that are "auto": "auto" is `fit`, from what the data is
            (docs/fine_tuning.md); "reference" google/automl; "tfod" the configs of the
            TF Object Detection API, with its losses, matching and L2 decay, a rate of
            0.08 whatever the batch size, 2,500 steps of warm-up, a cosine over 300,000,
            neither clipping nor averages (docs/migrating_from_tfod.md).
        optimizer: None for the recipe's; "sgd", "momentum" (SGD with 0.9), "adam",
            "adamw", "rmsprop" or "muon" (`train/optimizers.py`); a dict of such a name
            and Keras' own arguments, such as `{"name": "rmsprop", "momentum": 0.9}`; or
            a Keras optimizer, which brings its own learning rate.
        loss: `effdet_keras.train.losses.DetectionLoss`. None is that of the recipe, and
            where the heads are new one with a CIoU term.
        matching: which anchor has to predict which box: an `ek.matching.ATSSMatching`
            or `IoUMatching`, or one of your own; "auto" is `IoUMatching()`, and where
            the heads are new `ATSSMatching()`.
        schedule: "cosine" (the default), "stepwise" or "polynomial", which are as long
            as the training; "constant"; a dict of a name and settings, such as
            `{"name": "cosine", "warmup_steps": 500}`, or of "exponential" or
            "manual_step" (all settings: `named_schedule` of `train/schedules.py`); or a
            Keras `LearningRateSchedule`.
        learning_rate: the highest rate of a named schedule; of an optimizer by name the
            default is Keras' own. The reference's is for a batch of 64, scaled to
            yours, 0.08 by default. Its warm-up begins at a tenth.
        weight_decay: float or None; `weight_decay / 2 * sum(w**2)` over the kernels (no
            biases, no batch norm) is added to the loss. Or a dict of regular
            expressions to floats, such as `{"^efficientnet": 0.0, "kernel$": 4e-5}`: of
            a variable's `path` the first that is found in it counts, and what none is
            found in does not decay. For "adamw" and "muon" it is their own decay, of
            kernels as well, and nothing is added. "auto" is 4e-5; for those two 0.004;
            for a Keras optimizer with a `weight_decay` of its own, nothing more.
        clip_norm: float or None; "auto" is 10. Each gradient is clipped to this norm,
            then all together; with "tfod" all together alone.
        ema_decay: float below 1, or None for no averages; "auto" is 0.9998. The
            averages are what the trained model detects with, see `fit`.
        learning_rate_multipliers: dict of regular expressions to factors above 0, such
            as `{"^efficientnet": 0.02}`, or None. A variable in whose `path` an
            expression is found, the first that is, has its factor times the learning
            rate, and decays by that much less. "auto" is None for the reference. Not
            for a Keras optimizer.
        gradient_multipliers: dict of regular expressions to factors above 0, such as
            `{"bias$": 2.0}`, or None. The gradient of a variable in whose `path` an
            expression is found, the first that is, is multiplied by its factor before
            all are clipped, as the Object Detection API's `bias_grad_multiplier` does.
            With SGD it is a factor on the rate, but for clipping and momentum's decay;
            with Adam and Muon, which divide by the size of a gradient, next to nothing.
        adversarial: `effdet_keras.AdvProp`, to train on adversarial images as well,
            with TensorFlow on one device and without XLA; or None.
        accumulate_steps: int, the batches of one update of weights and averages. The
            gradients of each batch are clipped, and the update has their mean (Keras'
            `gradient_accumulation_steps`). Batch norm sees one batch at a time.
            Schedules still count batches; the reference's rate is scaled to the images
            of an update. Not under a strategy of several devices, nor for a Keras
            optimizer.
        grad_checkpoint: whether the blocks of the backbone and the cells of the
            BiFPN keep only their outputs for the backward pass, which computes the rest
            again: less memory, the same gradients, more time (docs/train.md).
        loss_scale: float above 0, by which a model of "mixed_float16" multiplies its
            loss at first: Keras halves it where gradients overflow, and doubles it
            after 2,000 steps without. None is Keras' own, 32,768.
        batch_norm_warmup: whether the moving statistics of batch norm have a short
            memory in the first 900 steps, in which they would lag behind the weights;
            "auto" is True where `fit` chooses, and False for "reference" and "tfod".
        freeze: what must not train; see `freeze`. None leaves it as it is; "auto" may
            freeze a pretrained backbone, where nothing is frozen yet.
            "all-but-new-classes" adds classes to a loaded detector, and keeps boxes and
            scores of those that it has, bit by bit (docs/add_a_class.md).
        freeze_batch_norm: `batch_norm` of `freeze`.

    Raises:
        ValueError, TypeError: If a field has a value that cannot be right, or two
            contradict.

    Example:
        >>> recipe = Recipe("reference", learning_rate=0.08)
        >>> recipe.needs_length, recipe.new_optimizer().momentum
        (True, 0.9)
        >>> recipe.resolve().ema_decay
        0.9998
    """

    name: str = AUTO
    _: dataclasses.KW_ONLY
    optimizer: Any = None  # as in a file, or an object of Keras; `schedule` as well
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
        self._check_optimizer()

    def _check_optimizer(self):
        """What goes with an optimizer: a Keras one brings its own of much."""
        if self._brings_optimizer:
            for field in ("schedule", "learning_rate", "accumulate_steps"):
                rule = f"A Keras optimizer has its own `{field}`: leave one of them out"
                received = {field: getattr(self, field), "optimizer": self.optimizer}
                require(not self.is_given(field), rule, **received)
            rule = "`learning_rate_multipliers` are not for a Keras optimizer"
            factors = self.learning_rate_multipliers
            require(factors in (None, AUTO), rule, learning_rate_multipliers=factors)
            return
        is_one = not isinstance(self.weight_decay, dict)
        require(
            is_one or not has_own_decay(self.optimizer),
            "AdamW and Muon decay all kernels alike: `weight_decay` is one number",
            weight_decay=self.weight_decay,
        )
        has_rates = self._brings_schedule or has_own_rates(self._schedule)
        require(
            self.learning_rate is None or not has_rates,
            "`learning_rate` is part of a `LearningRateSchedule` and of 'manual_step'",
            learning_rate=self.learning_rate,
            schedule=self.schedule,
        )
        if not self._brings_schedule:
            self.resolve_schedule(batch_size=1, steps_per_epoch=1, epochs=1)

    @classmethod
    def of(cls, recipe: str | Recipe, changes: Mapping[str, Any]) -> Recipe:
        """A recipe, or that of a name, with other values for some fields."""
        known = [f.name for f in dataclasses.fields(cls) if f.name != "name"]
        for name in changes:
            if name not in known:
                raise InvalidTypeError(
                    f"`compile` has no argument {name!r}.{hint(name, known)} The "
                    f"fields of a `Recipe` are {', '.join(known)}. For metrics pass "
                    "`callbacks=[ek.callbacks.COCOEvaluation(dataset)]` to `fit`."
                )
        if not isinstance(recipe, cls):
            return cls(recipe, **changes)
        return dataclasses.replace(recipe, **changes)

    @property
    def has_auto_fields(self) -> bool:
        """Whether fields that are not given depend on the data, so that `fit` has to
        choose them.

        Those of "reference" and "tfod" do not; see `resolve`.
        """
        return self.name == AUTO

    def is_given(self, field: str) -> bool:
        """Whether the caller chose a field, so that nothing else may."""
        return getattr(self, field) != getattr(Recipe, field)

    @property
    def given_fields(self) -> list[str]:
        """The names of the fields that the caller chose."""
        names = [f.name for f in dataclasses.fields(self) if f.name != "name"]
        return [name for name in names if self.is_given(name)]

    def is_auto(self, field: str) -> bool:
        """Whether the recipe may fill a field: it is not given, and goes with the rest.

        An optimizer goes with its rate, schedule and decay: where it is given, none of
        them is chosen. A Keras optimizer has been built for what trains, so that
        nothing can be frozen any more.
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
        """The recipe with a value in the place of every "auto".

        Args:
            **values: values of fields, which `fit` chose for its data. A field that is
                given keeps its value; what else is "auto" gets that of the recipe by
                its name, and of the reference where the name is "auto".

        Returns:
            `Recipe` without a field that is "auto". With the name "auto" it becomes one
            of the name "reference", as nothing is left to choose.

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
        # The default of the decay depends on the optimizer, which may just be chosen.
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
        """Whether each gradient is clipped before all are together."""
        return not self._is_tfod

    @property
    def needs_length(self) -> bool:
        """Whether the learning rate depends on the data, which `fit` knows first."""
        if self._brings_optimizer or self._brings_schedule:
            return False
        return self._scales_rate or is_fitted(self._schedule)

    @property
    def _scales_rate(self):
        """Whether the learning rate is for a batch of 64, and scaled to the data's."""
        is_reference = self.optimizer is None and not self._is_tfod
        return is_reference and not has_own_rates(self._schedule)

    @property
    def l2_decay(self) -> float | dict[str, float]:
        """The loss' weight decay, see `decay_factors`; 0 where the optimizer decays."""
        if not self._brings_optimizer and has_own_decay(self.optimizer):
            return 0.0  # it is AdamW's, see `new_optimizer`
        return self._weight_decay or 0.0

    @property
    def _weight_decay(self):
        """The decay, or the default that goes with the optimizer."""
        if self.weight_decay != AUTO:
            return self.weight_decay
        if has_own_decay(self.optimizer):
            # Of a Keras optimizer it is an argument of its own.
            return 0.0 if self._brings_optimizer else _ADAMW_DECAY
        from effdet_keras.extras.tfod.recipe import tfod_decay

        return tfod_decay() if self._is_tfod else _L2_DECAY

    def new_optimizer(self) -> keras.optimizers.Optimizer:
        """The optimizer: the caller's own, one by name, or SGD with momentum 0.9.

        Until `fit` knows batch size and length of the training, a rate that is scaled
        to the batch is that of one image, and a schedule that is as long as the
        training stays at the full rate.
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
        """What `new_optimizer` takes for a learning rate where no length is known."""
        if self._brings_schedule:
            return self.schedule
        known = self
        if is_fitted(self._schedule):
            known = dataclasses.replace(self, schedule=_UNTIL_FIT)
        return known.resolve_schedule(batch_size=1, steps_per_epoch=1, epochs=1)

    def resolve_schedule(
        self, *, batch_size: int, steps_per_epoch: int, epochs: int
    ) -> float | keras.optimizers.schedules.LearningRateSchedule:
        """The learning rate for a training of that length: a schedule or a float."""
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
        """All fields; objects as Keras serialises them."""
        return keras.saving.serialize_keras_object(dict(vars(self)))

    @classmethod
    def from_config(cls, config):
        if config.get("adversarial") is not None:
            import effdet_keras.extras.advprop  # noqa: F401  # registers its class
        return cls(**keras.saving.deserialize_keras_object(config))

    # --- Names of before, which work for one release.

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
    """The recipe, with a warm-up of a tenth of the steps where an epoch is longer.

    A warm-up that is given, and the schedule of an object of Keras, stay.
    """
    if recipe._brings_optimizer or recipe._brings_schedule:
        return recipe
    schedule = with_short_warmup(recipe._schedule, steps_per_epoch, steps)
    if schedule == recipe._schedule:
        return recipe
    return dataclasses.replace(recipe, schedule=schedule)
