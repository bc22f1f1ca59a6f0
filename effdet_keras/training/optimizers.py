"""Optimizers by name, or by a dict of a name and Keras' arguments."""

import keras

from effdet_keras.errors import InvalidValueError
from effdet_keras.training.by_name import choice

_OF_SGD = ("momentum", "nesterov")
_OF_ADAM = ("beta_1", "beta_2", "epsilon", "amsgrad")
_OF_RMSPROP = ("rho", "momentum", "epsilon", "centered")
# Name: Keras' class, its own default rate, its settings, defaults that are ours.
_NAMED = {
    "sgd": (keras.optimizers.SGD, 0.01, _OF_SGD, {}),
    "momentum": (keras.optimizers.SGD, 0.01, _OF_SGD, {"momentum": 0.9}),
    "adam": (keras.optimizers.Adam, 0.001, _OF_ADAM, {}),
    "adamw": (keras.optimizers.AdamW, 0.001, _OF_ADAM, {}),
    "rmsprop": (keras.optimizers.RMSprop, 0.001, _OF_RMSPROP, {}),
}
_SETTINGS = {name: settings for name, (_, _, settings, _) in _NAMED.items()}
# `compile` has arguments for what these do, the same for every optimizer.
_OF_COMPILE = {
    "learning_rate": "learning_rate",
    "weight_decay": "weight_decay",
    "clipnorm": "clip_norm",
    "global_clipnorm": "clip_norm",
    "use_ema": "ema_decay",
    "ema_momentum": "ema_decay",
    "gradient_accumulation_steps": "accumulate_steps",
}
# All variables whose names do not end like a kernel's: TensorFlow's names go on
# with ":0" or "/replica_1:0".
_NO_KERNEL = "^(?!.*kernel)"


def optimizer_choice(optimizer):
    """The name and settings of an optimizer by name or dict, checked.

    Example:
        >>> optimizer_choice({"name": "rmsprop", "momentum": 0.9})
        ('rmsprop', {'momentum': 0.9})
    """
    for key in optimizer if isinstance(optimizer, dict) else ():
        if key in _OF_COMPILE:
            raise InvalidValueError(
                f"{key!r} is no setting of an optimizer here: give "
                f"`{_OF_COMPILE[key]}` to `compile`. Received: optimizer={optimizer!r}"
            )
    return choice("optimizer", optimizer, _SETTINGS, otherwise="a Keras optimizer")


def default_learning_rate(optimizer):
    """Keras' own default rate of an optimizer by name or dict."""
    name, _ = optimizer_choice(optimizer)
    return _NAMED[name][1]


def has_own_decay(optimizer):
    """Whether an optimizer decays the weights, so that the loss should not.

    Args:
        optimizer: None, a name, a dict, or a Keras optimizer.
    """
    if isinstance(optimizer, keras.optimizers.Optimizer):
        inner = getattr(optimizer, "inner_optimizer", optimizer)  # of a loss scale
        return bool(inner.weight_decay)
    return optimizer is not None and optimizer_choice(optimizer)[0] == "adamw"


def named_optimizer(optimizer, learning_rate, *, weight_decay, **more):
    """The Keras optimizer of a name or dict.

    Args:
        optimizer: "sgd", "momentum" (SGD with 0.9), "adam", "adamw" or "rmsprop";
            or a dict of such a `name` and Keras' own arguments.
        learning_rate: float or Keras `LearningRateSchedule`.
        weight_decay: float, AdamW's decay of kernels; no other has one.
        **more: arguments that all Keras optimizers have.

    Returns:
        `keras.optimizers.Optimizer`.

    Raises:
        ValueError: If the name or a setting is unknown.

    Example:
        >>> named_optimizer("momentum", 0.5, weight_decay=0.0).momentum
        0.9
    """
    name, settings = optimizer_choice(optimizer)
    cls, _, _, defaults = _NAMED[name]
    if name != "adamw":
        return cls(learning_rate, **{**defaults, **settings}, **more)
    made = cls(learning_rate, weight_decay=weight_decay, **settings, **more)
    made.exclude_from_weight_decay(var_names=[_NO_KERNEL])
    return made
