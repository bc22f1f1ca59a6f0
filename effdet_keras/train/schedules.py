"""Learning-rate schedules: a linear warm-up, then a decay."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from effdet_keras.errors import InvalidValueError

__all__ = [
    "Warmup",
    "WarmupCosine",
    "WarmupPolynomial",
    "WarmupStepwise",
    "reference_schedule",
]

REFERENCE_BATCH_SIZE = 64  # the reference's learning rates are for this one


class _Warmup(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up; a subclass computes what follows in `_decayed`."""

    def __init__(
        self,
        learning_rate: float,
        *,
        total_steps: int,
        warmup_steps: int = 0,
        warmup_init: float = 0.0,
    ) -> None:
        for name, value in (
            ("learning_rate", learning_rate),
            ("warmup_init", warmup_init),
        ):
            if not (value >= 0 and math.isfinite(value)):
                raise InvalidValueError(
                    f"`{name}` must be a number of at least 0. Received: {name}={value}"
                )
        if total_steps < 1:
            raise InvalidValueError(
                f"`total_steps` must be at least 1. Received: total_steps={total_steps}"
            )
        if not 0 <= warmup_steps <= total_steps:
            raise InvalidValueError(
                "`warmup_steps` must be between 0 and `total_steps`. "
                f"Received: warmup_steps={warmup_steps}, total_steps={total_steps}"
            )
        self.learning_rate = learning_rate
        self.total_steps = total_steps
        self.warmup_steps = warmup_steps
        self.warmup_init = warmup_init

    def __call__(self, step: Any) -> Any:
        step = ops.cast(step, "float32")
        progress = step / max(self.warmup_steps, 1)
        warmup = self.warmup_init + progress * (self.learning_rate - self.warmup_init)
        return ops.where(step < self.warmup_steps, warmup, self._decayed(step))

    def get_config(self) -> dict[str, Any]:
        return {
            "learning_rate": self.learning_rate,
            "total_steps": self.total_steps,
            "warmup_steps": self.warmup_steps,
            "warmup_init": self.warmup_init,
        }


@keras.saving.register_keras_serializable(package="effdet_keras")
class WarmupCosine(_Warmup):
    """Linear warm-up, then half a cosine down to zero.

    With `W = warmup_steps`, `H = W + hold_steps` and `T = total_steps`, at the 0-based
    step `t`:

        t < W:        warmup_init + t / W * (learning_rate - warmup_init)
        W <= t < H:   learning_rate
        t >= H:       learning_rate * (1 + cos(pi * (t - H) / (T - H))) / 2

    With `hold_steps` the rate stays at its highest for as long after the warm-up, and
    the cosine falls over the steps that are left. It is continuous, and zero from
    step `T` on. The reference divides `t` itself by `T - W`: its rate drops at the
    end of the warm-up and rises again over the last `W` steps. Without a warm-up the
    two are equal.

    Args:
        learning_rate: float, the rate at the end of the warm-up.
        total_steps: int, the number of steps of the whole training.
        warmup_steps: int between 0 and `total_steps`.
        warmup_init: float, the rate at step 0 if there is a warm-up.
        hold_steps: int, steps of the full rate before it falls.

    Raises:
        ValueError: If a rate is negative or not finite, or a number of steps
            is out of range.

    Example:
        >>> schedule = WarmupCosine(0.08, total_steps=30, warmup_steps=10)
        >>> [round(float(schedule(step)), 4) for step in (0, 5, 10, 20, 30)]
        [0.0, 0.04, 0.08, 0.04, 0.0]
    """

    def __init__(
        self,
        learning_rate: float,
        *,
        total_steps: int,
        warmup_steps: int = 0,
        warmup_init: float = 0.0,
        hold_steps: int = 0,
    ) -> None:
        super().__init__(
            learning_rate,
            total_steps=total_steps,
            warmup_steps=warmup_steps,
            warmup_init=warmup_init,
        )
        if not 0 <= hold_steps <= total_steps - warmup_steps:
            raise InvalidValueError(
                "`hold_steps` must be between 0 and the steps behind the warm-up. "
                f"Received: hold_steps={hold_steps}, warmup_steps={warmup_steps}, "
                f"total_steps={total_steps}"
            )
        self.hold_steps = hold_steps

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "hold_steps": self.hold_steps}

    def _decayed(self, step):
        first = self.warmup_steps + self.hold_steps
        steps = max(self.total_steps - first, 1)
        progress = ops.clip((step - first) / steps, 0.0, 1.0)
        return self.learning_rate * 0.5 * (1.0 + ops.cos(math.pi * progress))


@keras.saving.register_keras_serializable(package="effdet_keras")
class WarmupStepwise(_Warmup):
    """Linear warm-up, then the full rate, a tenth and a hundredth of it.

    The rate at the end of the warm-up holds for the steps below
    `drop_steps[0]`, a tenth of it below `drop_steps[1]`, and so on.

    Args:
        learning_rate: float, the rate at the end of the warm-up.
        total_steps: int, the number of steps of the whole training.
        drop_steps: ints in rising order, each the first step at which the
            rate is ten times lower.
        warmup_steps: int between 0 and `total_steps`.
        warmup_init: float, the rate at step 0 if there is a warm-up.

    Raises:
        ValueError: If a rate is negative or not finite, a number of steps is
            out of range, or `drop_steps` does not rise.

    Example:
        >>> schedule = WarmupStepwise(
        ...     0.08, total_steps=30, drop_steps=(20, 25), warmup_steps=10
        ... )
        >>> [round(float(schedule(step)), 4) for step in (0, 5, 10, 20, 25)]
        [0.0, 0.04, 0.08, 0.008, 0.0008]
    """

    def __init__(
        self,
        learning_rate: float,
        *,
        total_steps: int,
        drop_steps: Sequence[int],
        warmup_steps: int = 0,
        warmup_init: float = 0.0,
    ) -> None:
        super().__init__(
            learning_rate,
            total_steps=total_steps,
            warmup_steps=warmup_steps,
            warmup_init=warmup_init,
        )
        self.drop_steps = tuple(drop_steps)
        if any(a >= b for a, b in zip(self.drop_steps, self.drop_steps[1:])):
            raise InvalidValueError(
                f"`drop_steps` must rise. Received: drop_steps={self.drop_steps}"
            )

    def _decayed(self, step):
        rate = ops.full((), self.learning_rate, dtype="float32")
        for drops, first in enumerate(self.drop_steps, start=1):
            rate = ops.where(step < first, rate, self.learning_rate * 0.1**drops)
        return rate

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "drop_steps": self.drop_steps}


@keras.saving.register_keras_serializable(package="effdet_keras")
class WarmupPolynomial(_Warmup):
    """Linear warm-up, then a polynomial down to zero.

    With `W = warmup_steps` and `T = total_steps`, at the 0-based step `t`:

        t < W:   warmup_init + t / W * (learning_rate - warmup_init)
        t >= W:  learning_rate * (1 - t / T) ** power

    As in the reference the polynomial starts at step 0, so that the warm-up
    ends a little above it. From step `T` on, where the reference gives NaN,
    the rate is zero.

    Args:
        learning_rate: float, the rate that the warm-up rises to.
        total_steps: int, the number of steps of the whole training.
        warmup_steps: int between 0 and `total_steps`.
        warmup_init: float, the rate at step 0 if there is a warm-up.
        power: float above 0.

    Raises:
        ValueError: If a rate is negative or not finite, a number of steps is
            out of range, or `power` is not above 0.

    Example:
        >>> schedule = WarmupPolynomial(
        ...     0.08, total_steps=40, warmup_steps=10, power=1.0
        ... )
        >>> [round(float(schedule(step)), 4) for step in (0, 5, 10, 20, 40)]
        [0.0, 0.04, 0.06, 0.04, 0.0]
    """

    def __init__(
        self,
        learning_rate: float,
        *,
        total_steps: int,
        warmup_steps: int = 0,
        warmup_init: float = 0.0,
        power: float = 0.9,
    ) -> None:
        super().__init__(
            learning_rate,
            total_steps=total_steps,
            warmup_steps=warmup_steps,
            warmup_init=warmup_init,
        )
        if not power > 0:
            raise InvalidValueError(f"`power` must be above 0. Received: power={power}")
        self.power = power

    def _decayed(self, step):
        left = ops.maximum(self.total_steps - step, 0.0) / self.total_steps
        return self.learning_rate * left**self.power

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "power": self.power}


@keras.saving.register_keras_serializable(package="effdet_keras")
class Warmup(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up to any other schedule.

    With `W = warmup_steps` and `r` the other schedule, which counts from step 0 as
    well, at the 0-based step `t`:

        t < W:   warmup_init + t / W * (r(W) - warmup_init)
        t >= W:  r(t)

    Args:
        schedule: Keras `LearningRateSchedule`, or a float for a constant rate.
        warmup_steps: int, 0 or more.
        warmup_init: float, the rate at step 0 if there is a warm-up.

    Raises:
        ValueError: If a number is negative or not finite.

    Example:
        >>> schedule = Warmup(0.08, warmup_steps=10)
        >>> [round(float(schedule(step)), 4) for step in (0, 5, 10, 100)]
        [0.0, 0.04, 0.08, 0.08]
    """

    def __init__(
        self, schedule: Any, *, warmup_steps: int = 0, warmup_init: float = 0.0
    ) -> None:
        for name, value in (
            ("warmup_steps", warmup_steps),
            ("warmup_init", warmup_init),
        ):
            if not (value >= 0 and math.isfinite(value)):
                raise InvalidValueError(
                    f"`{name}` must be a number of at least 0. Received: {name}={value}"
                )
        self.schedule = schedule
        self.warmup_steps = warmup_steps
        self.warmup_init = warmup_init

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


def reference_schedule(
    kind: str,
    *,
    batch_size: int | None,
    steps_per_epoch: int,
    epochs: float,
    learning_rate: float = 0.08,
    warmup_init: float = 0.008,
    warmup_epochs: float = 1.0,
    warmup_steps: int | None = None,
    hold_steps: int = 0,
    total_steps: int | None = None,
    drop_epochs: Sequence[float] = (200.0, 250.0),
    power: float = 0.9,
) -> keras.optimizers.schedules.LearningRateSchedule:
    """The schedule of the reference recipe, in epochs and for a batch size.

    The rate at the end of the warm-up is `learning_rate * batch_size / 64`;
    `warmup_init` is not scaled, as in the reference (tf2/train_lib.py).
    A warm-up longer than the training is cut to it, and so are `hold_steps`.

    Args:
        kind: `"cosine"`, `"stepwise"` or `"polynomial"`.
        batch_size: int, images per step, over all devices; None leaves
            `learning_rate` as it is.
        steps_per_epoch: int.
        epochs: int, epochs of the whole training.
        learning_rate: float, for a batch of 64 images.
        warmup_init: float, the rate at step 0 if there is a warm-up.
        warmup_epochs: float, the length of the warm-up.
        warmup_steps: int, its length in steps, in place of `warmup_epochs`.
        hold_steps: int, steps of the full rate behind it, for `"cosine"`.
        total_steps: int, steps of the whole training, in place of `epochs`.
        drop_epochs: floats in rising order, for `"stepwise"`.
        power: float, for `"polynomial"`.

    Returns:
        A `keras.optimizers.schedules.LearningRateSchedule`.

    Raises:
        ValueError: If `kind` is not one of the three, or a number is out of
            range.

    Example:
        >>> schedule = reference_schedule(
        ...     "cosine", batch_size=128, steps_per_epoch=100, epochs=300
        ... )
        >>> round(float(schedule(0)), 4), round(float(schedule(100)), 4)
        (0.008, 0.16)
        >>> schedule.total_steps
        30000
    """
    for name, value in (
        ("batch_size", batch_size),
        ("steps_per_epoch", steps_per_epoch),
        ("epochs", epochs),
        ("total_steps", total_steps),
    ):
        if value is not None and value < 1:
            raise InvalidValueError(
                f"`{name}` must be at least 1. Received: {name}={value}"
            )
    if batch_size is not None:
        learning_rate = learning_rate * batch_size / REFERENCE_BATCH_SIZE
    if warmup_steps is None:
        warmup_steps = int(warmup_epochs * steps_per_epoch)
    if total_steps is None:
        total_steps = int(epochs * steps_per_epoch)
    common: dict[str, Any] = {
        "learning_rate": learning_rate,
        "total_steps": total_steps,
        "warmup_steps": min(warmup_steps, total_steps),
        "warmup_init": warmup_init,
    }
    if kind == "cosine":
        hold_steps = min(hold_steps, total_steps - common["warmup_steps"])
        return WarmupCosine(**common, hold_steps=hold_steps)
    if kind == "stepwise":
        drop_steps = [int(epoch * steps_per_epoch) for epoch in drop_epochs]
        return WarmupStepwise(**common, drop_steps=drop_steps)
    if kind == "polynomial":
        return WarmupPolynomial(**common, power=power)
    raise InvalidValueError(
        f"`kind` must be 'cosine', 'stepwise' or 'polynomial'. Received: kind={kind!r}"
    )
