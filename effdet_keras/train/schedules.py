"""Learning-rate schedules, as classes and by name: linear warm-up, then a decay."""

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

REFERENCE_BATCH_SIZE = 64  # the batch size of the reference's learning rates


@dataclasses.dataclass(eq=False)
class _Warmup(FieldSerializable, keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up to the rate. A subclass computes the rest in `_decayed`."""

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
    """Linear warm-up, then half a cosine period down to zero.

    With `W = warmup_steps`, `H = W + hold_steps` and `T = total_steps`, at the 0-based
    step `t`:

        t < W:        warmup_init + t / W * (learning_rate - warmup_init)
        W <= t < H:   learning_rate
        t >= H:       learning_rate * (1 + cos(pi * (t - H) / (T - H))) / 2

    The reference divides `t` itself by `T - W`. So its rate drops at the end of the
    warm-up, and rises again over the last `W` steps. Without a warm-up (and with a
    `hold_steps` of 0), the two schedules are equal.

    Args:
        learning_rate: float of at least 0, the rate at the end of the warm-up.
        total_steps: int of at least 1, the number of steps of the whole training.
        warmup_steps: int between 0 and `total_steps`.
        warmup_init: float of at least 0, the rate at step 0 if there is a warm-up.
        hold_steps: int of at least 0, the number of steps at the full rate between the
            warm-up and the decay.

    Call arguments:
        step: int scalar, the 0-based step.

    Returns:
        Float32 scalar, the learning rate.

    Raises:
        ValueError: If a number is out of its range.

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
    """Linear warm-up, then a polynomial decay to zero.

    With `W = warmup_steps` and `T = total_steps`, at the 0-based step `t`:

        t < W:   warmup_init + t / W * (learning_rate - warmup_init)
        t >= W:  learning_rate * (1 - t / T) ** power

    From step `T` on the rate is zero, where that of the reference is NaN.

    Args:
        learning_rate, total_steps, warmup_steps, warmup_init: as in `WarmupCosine`.
        power: float above 0.

    Example:
        >>> schedule = WarmupPolynomial(0.08, total_steps=20, power=2.0)
        >>> [round(float(schedule(step)), 4) for step in (0, 10, 20)]
        [0.08, 0.02, 0.0]
    """

    power: float = number(0.9, "(0, inf)")

    def _decayed(self, step):
        left = ops.maximum(self.total_steps - step, 0.0) / self.total_steps
        return self.learning_rate * left**self.power


@keras.saving.register_keras_serializable(package="effdet_keras")
@dataclasses.dataclass(eq=False)
class Warmup(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up, then any other schedule.

    With `W = warmup_steps` and the other schedule `r`, whose steps also count from the
    beginning of the warm-up, at the 0-based step `t`:

        t < W:   warmup_init + t / W * (r(W) - warmup_init)
        t >= W:  r(t)

    Args:
        schedule: Keras `LearningRateSchedule`, or a float for a constant rate.
        warmup_steps: int of at least 0.
        warmup_init: float of at least 0, the rate at step 0 if there is a warm-up.

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
    """Constant rate of `warmup_init` for `warmup_steps`, then another schedule.

    The steps of the other schedule count from the end of the warm-up.
    """

    def __call__(self, step: Any) -> Any:
        step = ops.cast(step, "float32")
        after = self._after(ops.maximum(step - self.warmup_steps, 0.0))
        return ops.where(step < self.warmup_steps, self.warmup_init, after)


# --- Schedules by name, or by a dict of a name and settings.


def choice(argument, value, known, *, otherwise):
    """Returns the name and the checked settings of an argument given by name or dict.

    Args:
        argument: string, the name of the argument, for messages.
        value: string, or dict with a "name" and settings.
        known: dict from each allowed name to a dict of its settings. The value of a
            setting is its `NumberRange`, or `bool`.
        otherwise: string, what else the argument may be, for messages.

    Raises:
        ValueError: If the name or a setting is unknown, or a value is wrong.
    """
    settings = dict(value) if isinstance(value, dict) else {"name": value}
    name = str(settings.pop("name", "")).lower()
    if name not in known:
        raise InvalidValueError(
            f"`{argument}` must be one of {', '.join(known)}; a dict with one of these "
            f"as 'name' and its settings; or {otherwise}.{hint(name, known)} Received: "
            f"{argument}={value!r}"
        )
    for key in set(settings) - set(known[name]):
        raise InvalidValueError(
            f"{name!r} has no setting {key!r}.{hint(key, known[name])} Its settings "
            f"are: {', '.join(known[name]) or 'none'}; everything else is an argument "
            f"of `compile`. Received: {argument}={value!r}"
        )
    for key, setting in settings.items():
        allowed, title = known[name][key], f"{argument}.{key}"
        if allowed is bool:
            check_argument(isinstance(setting, bool), title, setting, "True or False")
        else:
            allowed.check(title, setting)
    return name, settings


# The settings of each schedule, and the allowed values. If `warmup_steps` is None,
# `warmup_epochs` sets the length of the warm-up.
_STEPS = NumberRange("[0, inf)", whole=True, others=(None,))
_WARMUP = {"warmup_steps": _STEPS, "warmup_init": NumberRange("[0, inf)")}
_LENGTH = {
    "total_steps": NumberRange("[1, inf)", whole=True, others=(None,)),
    "warmup_epochs": NumberRange("[0, inf)"),
    **_WARMUP,
}
_FITTED = {  # these depend on the length of the training, see `is_fitted`
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
    """Returns the name and the checked settings of a schedule by name or dict."""
    otherwise = "a Keras `LearningRateSchedule`"
    return choice("schedule", schedule, _SETTINGS, otherwise=otherwise)


def is_fitted(schedule):
    """Returns whether a schedule by name or dict depends on the training's length.

    "stepwise" always does: its `drop_epochs` need the number of steps per epoch.
    """
    name, settings = schedule_choice(schedule)
    is_in_steps = {"total_steps", "warmup_steps"} <= set(settings)
    return name == "stepwise" or (name in _FITTED and not is_in_steps)


def with_short_warmup(schedule, steps_per_epoch, steps):
    """Returns a schedule whose warm-up is at most a tenth of the steps.

    The schedule is given by name or dict, and its default warm-up is an epoch. It is
    returned unchanged if its warm-up is given, if it is not as long as the training, or
    if an epoch is at most a tenth of the steps.
    """
    name, settings = schedule_choice(schedule)
    if name not in _FITTED or {"warmup_steps", "warmup_epochs"} & set(settings):
        return schedule
    warmup_steps = max(1, (settings.get("total_steps") or steps) // 10)
    if warmup_steps >= steps_per_epoch:
        return schedule
    return {"name": name, **settings, "warmup_steps": warmup_steps}


def has_own_rates(schedule):
    """Returns whether a schedule by name or dict has its rates as a setting."""
    return schedule_choice(schedule)[0] == "manual_step"


def named_schedule(schedule, learning_rate, *, warmup_init, steps_per_epoch, epochs):
    """Returns the learning rate of a schedule given by name or dict.

    "cosine", "stepwise" and "polynomial" are as long as the training, or as
    `total_steps`. They have a warm-up of `warmup_steps`, or of `warmup_epochs`
    (default 1.0), from `warmup_init`. A warm-up longer than the training is cut to its
    length, and so are `hold_steps`. Further settings:

    - "cosine": `hold_steps` (default 0), see `WarmupCosine`.
    - "stepwise": `drop_epochs` (default 200 and 250). After each of them the rate is a
      tenth of the rate before.
    - "polynomial": `power` (default 0.9), see `WarmupPolynomial`.

    The others have no warm-up by default. It is set by `warmup_steps` and `warmup_init`
    (default 0.0). Further settings:

    - "constant": none.
    - "exponential": `decay_steps`, `decay_rate` and `staircase` of Keras'
      `ExponentialDecay`; with `flat_warmup=True` the rate is `warmup_init` in all steps
      of the warm-up.
    - "manual_step": `rates`, and `boundaries`, the first step of each rate except the
      first rate.

    Args:
        schedule: string, or dict with a "name" and settings.
        learning_rate: float, the highest rate; not used by "manual_step".
        warmup_init: float, the default of this setting for the schedules that are as
            long as the training.
        steps_per_epoch: number of steps per epoch.
        epochs: number of epochs.

    Returns:
        Keras `LearningRateSchedule`, or a float for a constant rate.
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
    """Returns a schedule as long as the training, with epochs converted to steps."""
    if total_steps is None:
        total_steps = int(epochs * steps_per_epoch)
    if warmup_steps is None:
        warmup_steps = int(warmup_epochs * steps_per_epoch)
    warmup_steps = min(warmup_steps, total_steps)
    if name == "stepwise":  # the full rate, then a tenth, then a hundredth
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
    # A boundary of Keras is the last step of a rate, not the first of the next one.
    return keras.optimizers.schedules.PiecewiseConstantDecay(
        [int(step) - 1 for step in boundaries], [float(rate) for rate in rates]
    )
