"""The `train_config` of a `pipeline.config`: how to train, and from what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from effdet_keras._internal.proto_text import Message
from effdet_keras.errors import InvalidValueError

# What takes path, value and reason of a field that is not done here; with
# `is_done=True`, of one that changes nothing, or is done in another way.
Note = Callable[..., None]

_OPTIMIZERS = ("momentum_optimizer", "adam_optimizer", "rms_prop_optimizer")
_RATES = (
    *("cosine_decay_learning_rate", "constant_learning_rate"),
    *("exponential_decay_learning_rate", "manual_step_learning_rate"),
)
_TYPES = ("classification", "detection", "full")


def overall(config: Message, note: Note) -> dict[str, Any]:
    """Length, batch size, clipping, averages, and what to start from.

    Args:
        config: the whole `pipeline.config`.
        note: `Note`.

    Returns:
        Dict of fields of `RunConfiguration`.
    """
    train = config.message("train_config")
    steps = train.whole("num_steps", 0)
    if not steps:
        why = "no end there; enough for 1,000 steps here"
        note(train.place_of("num_steps"), 0, why, is_done=True)
    bias = train.number("bias_grad_multiplier", 0.0)
    return {
        "batch_size": train.whole("batch_size", 32),
        "steps": steps or None,
        "clip_norm": train.number("gradient_clipping_by_norm", 0.0) or None,
        "gradient_multipliers": {"bias$": bias} if bias else {},
        **_averages(config, note),
        **_start(train),
        **_quantization(config.message("graph_rewriter"), note),
    }


def _averages(config, note):
    optimizer = config.message("train_config").message("optimizer")
    decay = optimizer.number("moving_average_decay", 0.9999)
    evaluation = config.message("eval_config")
    are_evaluated = evaluation.switch("use_moving_averages", False)
    if not optimizer.switch("use_moving_average", True):
        return {"ema_decay": None}
    if not are_evaluated:
        note(
            evaluation.place_of("use_moving_averages"),
            "false",
            "the averages are evaluated and saved; `ema_decay` None turns them off",
            is_done=True,
        )
    return {"ema_decay": decay}


def _quantization(rewriter, note):
    """Quantization-aware training; the delay's default is that of its message."""
    if not rewriter.has("quantization"):
        return {}
    message = rewriter.message("quantization")
    for name in ("weight_bits", "activation_bits"):
        if message.whole(name, 8) != 8:
            note(message.place_of(name), message.whole(name, 8), "always 8")
    if message.switch("symmetric", False):
        why = "kernels are symmetric, and the ranges of features are not"
        note(message.place_of("symmetric"), "true", why, is_done=True)
    return {"quantize_aware": {"delay": message.whole("delay", 500_000)}}


def _start(train):
    """The checkpoint, and what to take of it."""
    path = train.text("fine_tune_checkpoint", "")
    from_detection = train.switch("from_detection_checkpoint", False)
    kind = train.text("fine_tune_checkpoint_type", "")
    if not path:
        return {"weights": None}  # there, too, it starts from random weights
    kind = kind or ("detection" if from_detection else "classification")
    if kind not in _TYPES:
        place = train.place_of("fine_tune_checkpoint_type")
        raise InvalidValueError(
            f"`{place}` must be one of {', '.join(_TYPES)}. Received: {kind!r}"
        )
    return {"weights": path, "checkpoint_type": kind}


def optimizer(train: Message, note: Note) -> dict[str, Any]:
    """Optimizer, schedule and learning rate.

    Args:
        train: the message `train_config`.
        note: `Note`.

    Returns:
        Dict of fields of `RunConfiguration`.
    """
    message = train.message("optimizer")
    kind = next((name for name in _OPTIMIZERS if message.has(name)), None)
    if kind is None:
        raise InvalidValueError(
            f"`{message.path}` must be one of {', '.join(_OPTIMIZERS)}. "
            f"Received: {message.names}"
        )
    inner = message.message(kind)
    chosen: dict[str, Any]
    if kind == "adam_optimizer":
        chosen = {"name": "adam", "epsilon": inner.number("epsilon", 1e-8)}
    else:
        momentum = inner.number("momentum_optimizer_value", 0.9)
        chosen = {"name": "momentum", "momentum": momentum}
        if kind == "rms_prop_optimizer":
            chosen = {
                "name": "rmsprop",
                "momentum": momentum,
                "rho": inner.number("decay", 0.9),
                "epsilon": inner.number("epsilon", 1.0),
            }
    steps = train.whole("num_steps", 0)
    return {
        "optimizer": chosen,
        **_schedule(inner.message("learning_rate"), steps, note),
    }


def _schedule(message, steps, note):
    kind = next((name for name in _RATES if message.has(name)), None)
    if kind is None:
        raise InvalidValueError(
            f"`{message.path}` must be one of {', '.join(_RATES)}. "
            f"Received: {message.names}"
        )
    inner = message.message(kind)
    if kind == "cosine_decay_learning_rate":
        return _cosine(inner, steps, note)
    if kind == "constant_learning_rate":
        return {
            "schedule": "constant",
            "learning_rate": inner.number("learning_rate", 0.002),
        }
    if kind == "exponential_decay_learning_rate":
        return _exponential(inner, note)
    return _manual_step(inner)


def _cosine(inner, steps, note):
    total = inner.whole("total_steps", 4_000_000)
    if steps and total > steps:
        note(
            inner.place_of("total_steps"),
            total,
            f"as there, the {steps} steps of the training end before the cosine does",
            is_done=True,
        )
    schedule = {
        "name": "cosine",
        "total_steps": total,
        "warmup_steps": inner.whole("warmup_steps", 10_000),
        "warmup_init": inner.number("warmup_learning_rate", 0.0002),
    }
    hold = inner.whole("hold_base_rate_steps", 0)
    return {
        "schedule": schedule | ({"hold_steps": hold} if hold else {}),
        "learning_rate": inner.number("learning_rate_base", 0.002),
    }


def _exponential(inner, note):
    schedule = {
        "name": "exponential",
        "decay_steps": inner.whole("decay_steps", 4_000_000),
        "decay_rate": inner.number("decay_factor", 0.95),
        "staircase": inner.switch("staircase", True),
    }
    rate = inner.number("initial_learning_rate", 0.002)
    first, steps = (
        inner.number("burnin_learning_rate", 0.0),
        inner.whole("burnin_steps", 0),
    )
    if steps:
        schedule |= {"warmup_steps": steps, "warmup_init": first or rate}
        why = "the rate rises from the first one here, and the decay begins at step 0"
        note(inner.place_of("burnin_steps"), steps, why)
    return {"schedule": schedule, "learning_rate": rate}


def _manual_step(inner):
    rates = [inner.number("initial_learning_rate", 0.002)]
    boundaries = []
    for step in inner.messages("schedule"):
        boundaries.append(step.whole("step", 0))
        rates.append(step.number("learning_rate", 0.002))
    warmup = {}
    if inner.switch("warmup", False) and boundaries:
        # There the rate rises from the first one to the second one.
        warmup = {"warmup_steps": boundaries.pop(0), "warmup_init": rates.pop(0)}
    if not boundaries:
        schedule: dict[str, Any] = {"name": "constant", **warmup}
        return {"schedule": schedule, "learning_rate": rates[0]}
    schedule = {"name": "manual_step", "boundaries": tuple(boundaries)}
    return {"schedule": {**schedule, "rates": tuple(rates), **warmup}}
