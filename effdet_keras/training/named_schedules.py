"""Learning-rate schedules by name, or by a dict of a name and settings."""

import keras

from effdet_keras.errors import InvalidValueError
from effdet_keras.training.by_name import choice
from effdet_keras.training.schedules import Warmup, reference_schedule

_WARMUP = ("warmup_steps", "warmup_init")
_FITTED = {  # as long as the training, unless settings say all of it in steps
    "cosine": ("hold_steps", "total_steps", "warmup_epochs", *_WARMUP),
    "stepwise": ("drop_epochs", "total_steps", "warmup_epochs", *_WARMUP),
    "polynomial": ("power", "total_steps", "warmup_epochs", *_WARMUP),
}
_SETTINGS = {
    **_FITTED,
    "constant": _WARMUP,
    "exponential": ("decay_steps", "decay_rate", "staircase", *_WARMUP),
    "manual_step": ("boundaries", "rates", *_WARMUP),
}
_REQUIRED = {
    "exponential": ("decay_steps", "decay_rate"),
    "manual_step": ("boundaries", "rates"),
}


def schedule_choice(schedule):
    """The name and settings of a schedule by name or dict, checked.

    Example:
        >>> schedule_choice("cosine")
        ('cosine', {})
    """
    name, settings = choice(
        "schedule", schedule, _SETTINGS, otherwise="a Keras `LearningRateSchedule`"
    )
    missing = [key for key in _REQUIRED.get(name, ()) if key not in settings]
    if missing:
        raise InvalidValueError(
            f"The schedule {name!r} needs {' and '.join(map(repr, missing))}, in a "
            f"dict beside its name. Received: schedule={schedule!r}"
        )
    if {"warmup_epochs", "warmup_steps"} <= set(settings):
        raise InvalidValueError(
            "A warm-up is as long as 'warmup_epochs' or 'warmup_steps' says, not "
            f"both. Received: schedule={schedule!r}"
        )
    return name, settings


def is_fitted(schedule):
    """Whether a schedule by name or dict is as long as the training."""
    name, settings = schedule_choice(schedule)
    return name in _FITTED and not {"total_steps", "warmup_steps"} <= set(settings)


def has_own_rates(schedule):
    """Whether a schedule by name or dict takes no learning rate."""
    return schedule_choice(schedule)[0] == "manual_step"


def named_schedule(schedule, learning_rate, *, warmup_init, steps_per_epoch, epochs):
    """The learning rate of a schedule by name or dict.

    Args:
        schedule: a name, or a dict of it and settings. "cosine", "stepwise" and
            "polynomial" are as long as the training, or have `total_steps`:
            `warmup_epochs` (1.0) or `warmup_steps`, `warmup_init`, `hold_steps` (of
            "cosine"), `drop_epochs`, `power` as in `reference_schedule`. The others
            have no warm-up unless `warmup_steps` and `warmup_init` (0.0) say so:
            "constant"; "exponential" with `decay_steps`, `decay_rate`, `staircase` of
            Keras' `ExponentialDecay`; "manual_step" with `rates`, and `boundaries`:
            the first step of each rate but the first one's.
        learning_rate: float, the highest rate; "manual_step" ignores it.
        warmup_init: float, where the first three begin unless settings say.
        steps_per_epoch: int.
        epochs: float, of the whole training.

    Returns:
        A float if the rate is constant, else a Keras `LearningRateSchedule`.

    Raises:
        ValueError: If a name, a setting or its value is wrong.

    Example:
        >>> drop = {"name": "manual_step", "boundaries": [10], "rates": [0.1, 0.01]}
        >>> rate = named_schedule(
        ...     drop, 0.1, warmup_init=0.0, steps_per_epoch=5, epochs=4
        ... )
        >>> [round(float(rate(step)), 2) for step in (0, 9, 10)]
        [0.1, 0.1, 0.01]
    """
    name, settings = schedule_choice(schedule)
    if name in _FITTED:
        return reference_schedule(
            name,
            batch_size=None,
            steps_per_epoch=steps_per_epoch,
            epochs=epochs,
            learning_rate=learning_rate,
            **{"warmup_init": warmup_init, **settings},
        )
    warmup = {key: settings.pop(key) for key in _WARMUP if key in settings}
    if name == "exponential":
        _check_decay(**settings)
        after = keras.optimizers.schedules.ExponentialDecay(learning_rate, **settings)
    elif name == "manual_step":
        after = _manual_step(**settings)
    else:
        after = learning_rate
    return Warmup(after, **warmup) if warmup else after


def _check_decay(decay_steps, decay_rate, staircase=False):
    for name, value in (("decay_steps", decay_steps), ("decay_rate", decay_rate)):
        if not value > 0:
            raise InvalidValueError(
                f"`{name}` must be above 0. Received: {name}={value!r}"
            )


def _manual_step(boundaries, rates):
    boundaries, rates = list(boundaries), list(rates)
    rises = all(a < b for a, b in zip([0, *boundaries], boundaries))
    if not rises or len(rates) != len(boundaries) + 1 or min(rates) < 0:
        raise InvalidValueError(
            "`boundaries` must be steps above 0 in rising order, `rates` numbers of "
            "at least 0, one more than boundaries. "
            f"Received: boundaries={boundaries}, rates={rates}"
        )
    # Keras' boundaries are the last step of a rate, not the first of the next one.
    return keras.optimizers.schedules.PiecewiseConstantDecay(
        [int(step) - 1 for step in boundaries], [float(rate) for rate in rates]
    )
