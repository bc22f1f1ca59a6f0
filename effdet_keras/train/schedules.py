"""Learning-rate schedules: a linear warm-up, then a decay; as classes, and by name."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import keras
from keras import ops

from effdet_keras._internal.number_ranges import (
    NumberRange,
    check_number,
    check_number_fields,
    number,
    whole_number,
)
from effdet_keras._internal.plain_values import FieldSerializable
from effdet_keras.errors import InvalidValueError, check_argument, hint

__all__ = ["WarmupCosine"]

REFERENCE_BATCH_SIZE = 64  # the reference's learning rates are for this one


@dataclasses.dataclass(eq=False)
class _Warmup(FieldSerializable, keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up to the rate; a subclass computes what follows in `_decayed`."""

    learning_rate: float = number(dataclasses.MISSING, "[0, inf)")
    _: dataclasses.KW_ONLY
    total_steps: int = whole_number(dataclasses.MISSING, "[1, inf)")
    warmup_steps: int = whole_number(0, "[0, inf)")
    warmup_init: float = number(0.0, "[0, inf)")

    def __post_init__(self) -> None:
        check_number_fields(self)
        check_number("warmup_steps", self.warmup_steps, f"[0, {self.total_steps}]")

    def __call__(self, step: Any) -> Any:
        step = ops.cast(step, "float32")
        progress = step / max(self.warmup_steps, 1)
        warmup = self.warmup_init + progress * (self.learning_rate - self.warmup_init)
        return ops.where(step < self.warmup_steps, warmup, self._decayed(step))


@keras.saving.register_keras_serializable(package="effdet_keras")
@dataclasses.dataclass(eq=False, kw_only=True)
class WarmupCosine(_Warmup):
    """Linear warm-up, then half a cosine down to zero.

    With `W = warmup_steps`, `H = W + hold_steps` and `T = total_steps`, at the 0-based
    step `t`:

        t < W:        warmup_init + t / W * (learning_rate - warmup_init)
        W <= t < H:   learning_rate
        t >= H:       learning_rate * (1 + cos(pi * (t - H) / (T - H))) / 2

    The reference divides `t` itself by `T - W`: its rate drops at the end of a warm-up,
    and rises again over the last `W` steps. Without one the two are equal.

    Args:
        learning_rate: the rate at the end of the warm-up.
        total_steps: the number of steps of the whole training.
        warmup_steps: between 0 and `total_steps`.
        warmup_init: the rate at step 0 if there is a warm-up.
        hold_steps: steps of the full rate before it falls.

    Example:
        >>> schedule = WarmupCosine(0.08, total_steps=30, warmup_steps=10)
        >>> [round(float(schedule(step)), 4) for step in (0, 5, 10, 20, 30)]
        [0.0, 0.04, 0.08, 0.04, 0.0]
    """

    hold_steps: int = whole_number(0, "[0, inf)")

    def _decayed(self, step):
        first = self.warmup_steps + self.hold_steps
        steps = max(self.total_steps - first, 1)
        progress = ops.clip((step - first) / steps, 0.0, 1.0)
        return self.learning_rate * 0.5 * (1.0 + ops.cos(math.pi * progress))


@keras.saving.register_keras_serializable(package="effdet_keras")
@dataclasses.dataclass(eq=False, kw_only=True)
class WarmupPolynomial(_Warmup):
    """Linear warm-up, then a polynomial down to zero.

    With `W = warmup_steps` and `T = total_steps`, at the 0-based step `t`:

        t < W:   warmup_init + t / W * (learning_rate - warmup_init)
        t >= W:  learning_rate * (1 - t / T) ** power

    The reference gives NaN from step `T` on, this zero.
    """

    power: float = number(0.9, "(0, inf)")

    def _decayed(self, step):
        left = ops.maximum(self.total_steps - step, 0.0) / self.total_steps
        return self.learning_rate * left**self.power


@keras.saving.register_keras_serializable(package="effdet_keras")
@dataclasses.dataclass(eq=False)
class Warmup(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up to any other schedule.

    With `W = warmup_steps` and `r` the other schedule, which counts from step 0 as
    well, at the 0-based step `t`:

        t < W:   warmup_init + t / W * (r(W) - warmup_init)
        t >= W:  r(t)

    Args:
        schedule: Keras `LearningRateSchedule`, or a float for a constant rate.
        warmup_steps: 0 or more.
        warmup_init: the rate at step 0 if there is a warm-up.

    Example:
        >>> schedule = Warmup(0.08, warmup_steps=10)
        >>> [round(float(schedule(step)), 4) for step in (0, 5, 10, 100)]
        [0.0, 0.04, 0.08, 0.08]
    """

    schedule: Any
    _: dataclasses.KW_ONLY
    warmup_steps: int = whole_number(0, "[0, inf)")
    warmup_init: float = number(0.0, "[0, inf)")

    def __post_init__(self) -> None:
        check_number_fields(self)
        if not callable(self.schedule):
            check_number("schedule", self.schedule, "[0, inf)")

    def __call__(self, step: Any) -> Any:
        progress = ops.cast(step, "float32") / max(self.warmup_steps, 1)
        rise = self._after(self.warmup_steps) - self.warmup_init
        is_warmup = ops.cast(step, "float32") < self.warmup_steps
        warmup = self.warmup_init + progress * rise
        return ops.where(is_warmup, warmup, self._after(step))

    def _after(self, step):
        rate = self.schedule(step) if callable(self.schedule) else self.schedule
        return ops.cast(rate, "float32")

    def get_config(self) -> dict[str, Any]:
        return {
            "schedule": keras.saving.serialize_keras_object(self.schedule),
            "warmup_steps": self.warmup_steps,
            "warmup_init": self.warmup_init,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Warmup:
        return cls(**keras.saving.deserialize_keras_object(config))


@keras.saving.register_keras_serializable(package="effdet_keras")
class FlatWarmup(Warmup):
    """`warmup_init` for `warmup_steps`; then a schedule, which counts from there on."""

    def __call__(self, step: Any) -> Any:
        step = ops.cast(step, "float32")
        after = self._after(ops.maximum(step - self.warmup_steps, 0.0))
        return ops.where(step < self.warmup_steps, self.warmup_init, after)


# --- By name, or by a dict of a name and settings.


def choice(argument, value, known, *, otherwise):
    """The name and the settings of what an argument chooses, by name or dict.

    `known` has the settings of each name, and of each setting its `NumberRange`, or
    `bool`.
    """
    settings = dict(value) if isinstance(value, dict) else {"name": value}
    name = str(settings.pop("name", "")).lower()
    if name not in known:
        raise InvalidValueError(
            f"`{argument}` must be one of {', '.join(known)}; a dict of such a 'name' "
            f"and its settings; or {otherwise}.{hint(name, known)} "
            f"Received: {argument}={value!r}"
        )
    for key in set(settings) - set(known[name]):
        raise InvalidValueError(
            f"{name!r} has no setting {key!r}.{hint(key, known[name])} It has: "
            f"{', '.join(known[name]) or 'none'}; the rest are arguments of `compile`. "
            f"Received: {argument}={value!r}"
        )
    for key, setting in settings.items():
        allowed, title = known[name][key], f"{argument}.{key}"
        if allowed is bool:
            check_argument(isinstance(setting, bool), title, setting, "True or False")
        else:
            allowed.check(title, setting)
    return name, settings


# The settings of each, and what they may be. A warm-up of None goes by its epochs.
_STEPS = NumberRange("[0, inf)", whole=True, others=(None,))
_WARMUP = {"warmup_steps": _STEPS, "warmup_init": NumberRange("[0, inf)")}
_LENGTH = {
    "total_steps": NumberRange("[1, inf)", whole=True, others=(None,)),
    "warmup_epochs": NumberRange("[0, inf)"),
    **_WARMUP,
}
_FITTED = {  # as long as the training, unless settings say all of it in steps
    "cosine": {"hold_steps": NumberRange("[0, inf)", whole=True), **_LENGTH},
    "stepwise": {
        "drop_epochs": NumberRange("(0, inf)", form="sequence", rising=True),
        **_LENGTH,
    },
    "polynomial": {"power": NumberRange("(0, inf)"), **_LENGTH},
}
_SETTINGS = {
    **_FITTED,
    "constant": _WARMUP,
    "exponential": {
        "decay_steps": NumberRange("[1, inf)", whole=True),
        "decay_rate": NumberRange("(0, inf)"),
        "staircase": bool,
        "flat_warmup": bool,
        **_WARMUP,
    },
    "manual_step": {
        "boundaries": NumberRange("[0, inf)", whole=True, form="sequence", rising=True),
        "rates": NumberRange("[0, inf)", form="sequence"),
        **_WARMUP,
    },
}


def schedule_choice(schedule):
    """The name and settings of a schedule by name or dict, checked."""
    otherwise = "a Keras `LearningRateSchedule`"
    return choice("schedule", schedule, _SETTINGS, otherwise=otherwise)


def is_fitted(schedule):
    """Whether a schedule by name or dict is as long as the training."""
    name, settings = schedule_choice(schedule)
    return name in _FITTED and not {"total_steps", "warmup_steps"} <= set(settings)


def with_short_warmup(schedule, steps_per_epoch, steps):
    """A schedule by name or dict, whose warm-up is at most a tenth of the training.

    One whose warm-up is given, or that is not as long as the training, stays.
    """
    name, settings = schedule_choice(schedule)
    if name not in _FITTED or {"warmup_steps", "warmup_epochs"} & set(settings):
        return schedule
    warmup_steps = max(1, (settings.get("total_steps") or steps) // 10)
    if warmup_steps >= steps_per_epoch:
        return schedule
    return {"name": name, **settings, "warmup_steps": warmup_steps}


def has_own_rates(schedule):
    """Whether a schedule by name or dict takes no learning rate."""
    return schedule_choice(schedule)[0] == "manual_step"


def named_schedule(schedule, learning_rate, *, warmup_init, steps_per_epoch, epochs):
    """The learning rate of a schedule by name or dict: a schedule, or a float.

    "cosine", "stepwise" and "polynomial" are as long as the training, or have
    `total_steps`: `warmup_epochs` (1.0) or `warmup_steps`, `warmup_init`, `hold_steps`
    (of "cosine"), `drop_epochs` (200 and 250), `power`. A warm-up longer than the
    training is cut to it, and so are `hold_steps`. The others have no warm-up unless
    `warmup_steps` and `warmup_init` (0.0) say so: "constant"; "exponential" with
    `decay_steps`, `decay_rate`, `staircase` of Keras' `ExponentialDecay` (and
    `flat_warmup`: true for `warmup_init` in all of its steps); "manual_step" with
    `rates`, and `boundaries`: the first step of each rate but the first one's.
    """
    name, settings = schedule_choice(schedule)
    if name in _FITTED:
        settings = {"warmup_init": warmup_init, **settings}
        return _fitted(name, learning_rate, steps_per_epoch, epochs, **settings)
    warmup = {key: settings.pop(key) for key in _WARMUP if key in settings}
    kind = FlatWarmup if settings.pop("flat_warmup", False) else Warmup
    after = learning_rate
    if name == "exponential":
        after = keras.optimizers.schedules.ExponentialDecay(learning_rate, **settings)
    elif name == "manual_step":
        after = _manual_step(**settings)
    return kind(after, **warmup) if warmup else after


def _fitted(
    name,
    learning_rate,
    steps_per_epoch,
    epochs,
    *,
    warmup_epochs=1.0,
    warmup_steps=None,
    total_steps=None,
    **settings,
):
    """Makes a schedule of the training's length, with epochs converted to steps."""
    if total_steps is None:
        total_steps = int(epochs * steps_per_epoch)
    if warmup_steps is None:
        warmup_steps = int(warmup_epochs * steps_per_epoch)
    warmup_steps = min(warmup_steps, total_steps)
    if name == "stepwise":  # the full rate, a tenth, a hundredth
        drop_epochs = settings.pop("drop_epochs", (200.0, 250.0))
        drops = [int(epoch * steps_per_epoch) for epoch in drop_epochs]
        rates = [learning_rate * 0.1**i for i in range(len(drops) + 1)]
        decay = _manual_step(drops, rates)
        return Warmup(decay, warmup_steps=warmup_steps, **settings)
    settings |= {"total_steps": total_steps, "warmup_steps": warmup_steps}
    if name == "polynomial":
        return WarmupPolynomial(learning_rate, **settings)
    hold_steps = min(settings.pop("hold_steps", 0), total_steps - warmup_steps)
    return WarmupCosine(learning_rate, **settings, hold_steps=hold_steps)


def _manual_step(boundaries, rates):
    # Keras' boundaries are the last step of a rate, not the first of the next one.
    return keras.optimizers.schedules.PiecewiseConstantDecay(
        [int(step) - 1 for step in boundaries], [float(rate) for rate in rates]
    )
