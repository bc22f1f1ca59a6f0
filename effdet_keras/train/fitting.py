"""What `compile` and `fit` set up: recipe, what trains, callbacks, config in files."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras

from effdet_keras._internal.backend import default_jit_compile
from effdet_keras._internal.compiled_keys import DTYPE_POLICY, STEPS_DONE
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.errors import InvalidTypeError, InvalidValueError, require
from effdet_keras.network.batch_norm import (
    STATISTICS,
    MomentumWarmup,
    batch_norms_of,
    set_momentum_warmup,
)
from effdet_keras.network.layers import ConfiguredLayer
from effdet_keras.train import auto_recipe, inputs
from effdet_keras.train.averages import SwapEMA, WeightAverages
from effdet_keras.train.optimizers import check_found, step_counter, steps_done
from effdet_keras.train.recipe import Recipe
from effdet_keras.train.resume import PositionTracker

BATCH_SIZE = 8  # of a dataset, where none is given
_TRAINED = "trained"  # in the config of a `compile`
_REFINING = 10.0  # what a learning rate is divided by, to go on from what was learned


def set_up(model, open_recipe, recipe, keras_options):
    """What `compile` does once its arguments are known to be right."""
    with model.variable_scope():  # `fit` may be called outside of it
        _set_up(model, open_recipe, recipe, keras_options)


def _set_up(model, open_recipe, recipe, keras_options):
    options = dict(keras_options)
    if options["jit_compile"] == "auto":
        options["jit_compile"] = default_jit_compile()
    adversarial = None
    if recipe.adversarial is not None:
        adversarial = recipe.adversarial.new_training(model, options["jit_compile"])
    multipliers = recipe.learning_rate_multipliers or {}
    check_found("learning_rate_multipliers", multipliers, model.variables)
    known = model.variables + ([] if adversarial is None else adversarial.variables)
    check_found("gradient_multipliers", recipe.gradient_multipliers or {}, known)
    if isinstance(recipe.weight_decay, dict):
        check_found("weight_decay", recipe.weight_decay, model.variables)
    optimizer = recipe.new_optimizer()
    # No loss of Keras' kind: `EfficientDet.compute_loss` is ours.
    keras.Model.compile(model, optimizer=optimizer, loss=None, **options)
    model.adversarial, model.moving_normalizer = adversarial, None
    if recipe.loss_scale is not None:
        is_scaled = isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
        rule = "`loss_scale` is for models of `mixed_float16`"
        require(is_scaled, rule, loss_scale=recipe.loss_scale, dtype=model.dtype_policy)
        model.optimizer.initial_scale = recipe.loss_scale
    for layer in model._flatten_layers(include_self=False):
        if isinstance(layer, ConfiguredLayer):
            layer.recomputes = recipe.grad_checkpoint
    # Built here, so that loading weights finds the optimizer's variables, and
    # the first step, which would make them, is not traced a second time.
    model.optimizer.build(model.optimized_variables())
    if (momentum := recipe.loss.positives_momentum or 0.0) > 0.0:
        from effdet_keras.extras.moving_normalizer import MovingNormalizer

        model.moving_normalizer = MovingNormalizer(momentum)
    warmup = None
    if recipe.batch_norm_warmup:
        warmup = MomentumWarmup(step_counter(model.optimizer))
    set_momentum_warmup(model, warmup)
    trackers = Trackers(_names_of_losses(model.config, recipe.loss))
    trackers.add(model.auxiliary_losses)
    if model.adversarial is not None:
        trackers.add((model.adversarial.name,))
    model.settings = Settings(
        recipe=recipe,
        open_recipe=open_recipe,
        trackers=trackers,
        keras_options=keras_options,
    )
    if model.averages is not None and model.averages.is_swapped:
        model.averages.adopt()  # and it holds no weights of training any more
    model.averages = None
    if recipe.ema_decay:
        sources = model.trainable_variables + model.batch_norm_statistics()
        model.averages = WeightAverages(sources, decay=recipe.ema_decay)


# --- Which weights train: chosen by part or by name, kept in files.

PARTS = {
    "backbone": r"efficientnet(v2)?-",
    "backbone+fpn": r"(efficientnet(v2)?-|resample_p\d+/|fpn_cells/)",
}


def freeze(model, what, batch_norm=True):
    """Stops some weights from training, and lets all others train; see the model's."""
    pattern = re.compile(PARTS.get(what, what))
    weights = _weights_of(model)
    frozen = {v.path for v in weights if pattern.match(v.path)}
    if not frozen:
        parts = dict.fromkeys(v.path.split("/")[0] for v in weights)
        raise InvalidValueError(
            f"No weight matches. Received: freeze={what!r}. It may be "
            f"{', '.join(map(repr, PARTS))}, or a regular expression that matches "
            f"from the start of a path; paths start with {', '.join(parts)}."
        )
    require(len(frozen) < len(weights), "Nothing is left to train", freeze=what)
    _set(model, frozen, batch_norm)


def unfreeze(model):
    """Lets all weights train, but the batch norms of a `frozen_batch_norm=True`."""
    _set(model, set(), batch_norm=True)


def trains(model, part):
    """Whether any weight of one of the `PARTS` trains."""
    pattern = re.compile(PARTS[part])
    return any(pattern.match(v.path) for v in model.trainable_variables)


def frozen_state(model):
    """What does not train, in values that JSON can hold; see `restore_frozen`."""
    return {
        "weights": [v.path for v in _weights_of(model) if not v.trainable],
        "batch_norms": [bn.path for bn in batch_norms_of(model) if not bn.trainable],
    }


def restore_frozen(model, state):
    """Freezes what `frozen_state` noted, and nothing else."""
    weights, batch_norms = set(state["weights"]), set(state["batch_norms"])
    model.trainable = True
    for bn in batch_norms_of(model):
        bn.trainable = bn.path not in batch_norms
    for variable in _weights_of(model):
        variable.trainable = variable.path not in weights


def _set(model, frozen, batch_norm):
    norms = batch_norms_of(model)
    if model.config.frozen_batch_norm:
        frozen, batch_norm = frozen | {v.path for v in _weights_of(*norms)}, True
    own = {bn.path: {v.path for v in _weights_of(bn)} for bn in norms}
    whole = [path for path, paths in own.items() if batch_norm and paths <= frozen]
    restore_frozen(model, {"weights": frozen, "batch_norms": whole})


def _weights_of(*layers):
    """The weights that can be frozen: not the statistics of batch norms."""
    return [v for x in layers for v in x.weights if v.name not in STATISTICS]


# --- What a step reads and logs.


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a compiled model trains."""

    recipe: Recipe
    open_recipe: Recipe  # as `compile` was given it
    trackers: Trackers
    keras_options: dict


class _Latest(keras.metrics.Mean):
    """A metric that reports the last value it was given."""

    def update_state(self, value, sample_weight=None):
        self.reset_state()
        super().update_state(value)


class Trackers:
    """The running means that `fit` logs. No Keras container, so not saved."""

    def __init__(self, losses):
        steps = ("gradient_norm", "learning_rate")
        self._losses = {name: keras.metrics.Mean(name=name) for name in losses}
        self._steps = {name: _Latest(name=name) for name in steps}

    @property
    def metrics(self):
        """All of them, in the order of the logs."""
        return [*self._losses.values(), *self._steps.values()]

    def add(self, names):
        """Logs the losses of a part from now on."""
        self._steps |= {name: keras.metrics.Mean(name=name) for name in names}

    def remove(self, names):
        for name in names:
            self._steps.pop(name, None)

    def update(self, values):
        """Adds to the means those of the values that are logged."""
        for name, tracker in (self._losses | self._steps).items():
            if name in values:
                tracker.update_state(values[name])

    def without_steps(self, logs):
        """Logs without those that only a training step knows."""
        return {n: value for n, value in logs.items() if n not in self._steps}


def _names_of_losses(config, loss):
    """The losses of a network's heads, in the order of the logs."""
    names = []
    if config.has_detection:
        names += ["class_loss", "box_loss"]
        names += [] if loss.iou_loss_type is None else ["box_iou_loss"]
    names += ["segmentation_loss"] if config.has_segmentation else []
    return [*names, "reg_l2_loss"]


# --- What `fit` chooses, and what depends on its data and length.


def num_epochs(model, data, batch_size, steps_per_epoch=None):
    """The number of epochs where none is given."""
    is_open = model.settings is not None and model.settings.open_recipe.is_open
    if not (is_open and isinstance(data, DetectionDataset)):
        return 1
    return auto_recipe.num_epochs(len(data), batch_size or BATCH_SIZE, steps_per_epoch)


def chosen_by_fit(data, batch_size, epochs):
    """Names of what `fit` chooses itself, because it makes the batches."""
    if not isinstance(data, DetectionDataset):
        return ()
    given = {"batch_size": batch_size, "epochs": epochs}
    left = [name for name, value in given.items() if value is None]
    return ("scale_jitter", "augment", *left)


def fit_to_length(model, x, batch_size, steps_per_epoch, *, epochs, chosen, **of_fit):
    """Chooses and computes what depends on the data and on how long it trains.

    `of_fit`: `verbose`, and `steps_of_epoch` that were done before.
    """
    if model.settings is None or epochs < 1:
        return
    needs_length = model.settings.recipe.needs_length
    if not (needs_length or _may_choose(model)):
        return
    batch_size, steps = inputs.batch_size_and_steps(
        x, batch_size, steps_per_epoch, must_know=needs_length
    )
    facts = auto_recipe.Facts(
        num_images=inputs.num_images(x, batch_size, steps),
        batch_size=batch_size,
        steps=steps * epochs,
        pretrained=model.pretrained,
        backbone=model.config.backbone,
        chosen_by_fit=chosen,
        epochs=epochs,
    )
    choose_recipe(model, facts, verbose=of_fit["verbose"])
    if model.settings.recipe.needs_length:
        done = steps_done(model.optimizer) - of_fit["steps_of_epoch"]
        model.optimizer.learning_rate = model.settings.recipe.resolve_schedule(
            batch_size=batch_size,
            steps_per_epoch=steps,
            epochs=(done + epochs * steps) / steps,
        )
        model.train_function = None  # its trace holds the schedule of before


def choose_recipe(model, facts, verbose=True):
    """Fills the fields that `compile` left open, before the first step."""
    open_recipe = model.settings.open_recipe
    if not _may_choose(model):
        return
    if frozen_state(model)["weights"] or not open_recipe.may_choose("freeze"):
        facts = facts._replace(backbone_trains=trains(model, "backbone"))
    choices = [
        choice
        for choice in auto_recipe.choose(facts)
        if open_recipe.may_choose(choice.field)
    ]
    recipe = open_recipe.chosen(**{choice.field: choice.value for choice in choices})
    if any(choice.field == "freeze" for choice in choices):
        freeze(model, recipe.freeze, recipe.freeze_batch_norm)
    set_up(model, open_recipe, recipe, model.settings.keras_options)
    model.train_function = None  # its graph has the recipe of before
    if verbose:
        print(auto_recipe.describe(choices, facts, open_recipe.given), flush=True)


def _may_choose(model):
    """Whether the recipe has open fields, and no step was done with it."""
    return model.settings.open_recipe.is_open and not steps_done(model.optimizer)


# --- One line per epoch that a person can read, in the place of Keras' progress bar.

_SHOWN = ("loss", "val_loss", "AP", "AP50", "mIoU")
_BEST = "AP"
_SECONDS_BETWEEN = 1.0  # of two lines that overwrite each other


class EpochLines(keras.callbacks.Callback):
    """Prints what an epoch came to: losses, AP and AP50, and the best AP so far.

    It stands behind all other callbacks, so that the numbers which they add to the logs
    are there. On a terminal a line that counts the steps precedes it.
    """

    def on_train_begin(self, logs=None):
        # AP and the epoch it belongs to, from 1.
        self._best: tuple[float, int] | None = None
        self._is_terminal = sys.stdout.isatty()

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch, self._start, self._shown = epoch + 1, time.monotonic(), 0.0

    def on_train_batch_end(self, batch, logs=None):
        now = time.monotonic()
        if not self._is_terminal or now - self._shown < _SECONDS_BETWEEN:
            return
        self._shown = now
        of = self.params.get("steps")
        loss = (logs or {}).get("loss")
        text = f"{self._title}  step {batch + 1}{f'/{of}' if of else ''}"
        text += "" if loss is None else f"  loss {float(loss):.4g}"
        print(f"\r{text:<60}", end="", flush=True)

    def on_epoch_end(self, epoch, logs=None):
        logs = logs or {}
        parts = [f"{n} {float(logs[n]):.4g}" for n in _SHOWN[:2] if n in logs]
        parts += [f"{n} {float(logs[n]):.3f}" for n in _SHOWN[2:] if n in logs]
        self.remember(epoch, logs)
        if _BEST in logs and self._best is not None:
            parts.append(f"best AP {self._best[0]:.3f} (epoch {self._best[1]})")
        parts.append(f"{time.monotonic() - self._start:.0f} s")
        start = "\r" if self._is_terminal else ""
        print(f"{start}{self._title}  {'  '.join(parts)}", flush=True)

    def remember(self, epoch: int, logs: Mapping[str, Any]) -> None:
        """Notes the AP of an epoch, if it is the best so far."""
        now = float(logs.get(_BEST, math.nan))
        if now > (-math.inf if self._best is None else self._best[0]):
            self._best = (now, epoch + 1)

    def get_state(self) -> dict[str, Any]:
        """What a training that goes on has to know of the epochs before."""
        return {"best": self._best}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Goes on from what `get_state` returned."""
        best = state.get("best")
        self._best = None if best is None else (float(best[0]), int(best[1]))

    @property
    def _title(self):
        total = self.params.get("epochs") or self._epoch
        return f"epoch {self._epoch:>{len(str(total))}}/{total}"


# --- The callbacks of `fit`.

# The callbacks that `fit` adds, and puts in their place where they are given.
_OWN = (SwapEMA, PositionTracker, EpochLines)


def swaps(model, callbacks):
    """The callback that swaps weights and averages: one that is given, or new."""
    if model.averages is None:
        return []
    given = [one for one in flat(callbacks) if isinstance(one, SwapEMA)]
    return given[:1] or [SwapEMA()]


def others_in(callbacks: Any) -> list[keras.callbacks.Callback]:
    """The callbacks of what `fit` takes, but for those that it adds itself.

    Evaluations come first, whose numbers the others monitor and write down: Keras calls
    callbacks in the order of the list, and `AP` would be missing in those before.
    """
    given = [c for c in flat(callbacks) if not isinstance(c, _OWN)]
    # `sorted` keeps the order of the others.
    return sorted(given, key=lambda c: not getattr(c, "evaluates", False))


def flat(callbacks: Any) -> list[keras.callbacks.Callback]:
    """The callbacks of what Keras takes: None, one, a list, a `CallbackList`."""
    given = getattr(callbacks, "callbacks", callbacks)
    found = keras.tree.flatten([] if given is None else given)
    for one in found:
        is_callback = hasattr(one, "set_model") and not isinstance(one, type)
        rule = "`callbacks` must be objects of `keras.callbacks.Callback`"
        require(is_callback, rule, InvalidTypeError, callback=one)
    return found


@contextlib.contextmanager
def let_go_afterwards(callbacks: Sequence[Any]) -> Iterator[None]:
    """Calls `let_go` of the callbacks that have it: Keras tells them of no error."""
    try:
        yield
    finally:
        for callback in callbacks:
            if hasattr(callback, "let_go"):
                callback.let_go()


# --- How a model was compiled, as files of models keep it.


def compile_config(model) -> dict[str, Any]:
    """`EfficientDet.get_compile_config`."""
    if model.settings is None:
        return {}
    settings, steps = model.settings, steps_done(model.optimizer)
    # What `fit` chose counts from its first step on.
    recipe = settings.recipe if steps else settings.open_recipe
    return {
        "recipe": recipe.get_config(),
        **({_TRAINED: True} if steps or model.is_trained_recipe else {}),
        "frozen": frozen_state(model),
        DTYPE_POLICY: keras.dtype_policies.serialize(model.dtype_policy),
        STEPS_DONE: steps,
        **settings.keras_options,
    }


def compile_from(model, config):
    """`EfficientDet.compile_from_config`."""
    options = dict(config)
    options.pop("of", None)  # in files of before
    for name in (DTYPE_POLICY, STEPS_DONE):  # `from_archive(resume=True)` reads them
        options.pop(name, None)
    if "frozen" in options:  # not in files of before there was freezing
        restore_frozen(model, options.pop("frozen"))
    is_trained = options.pop(_TRAINED, False)
    recipe = Recipe.from_config(options.pop("recipe"))
    if model.dtype_policy.name != "mixed_float16":  # in which it may have been trained
        recipe = dataclasses.replace(recipe, loss_scale=None)
    if recipe.freeze != "auto":  # which `frozen` says
        recipe = dataclasses.replace(recipe, freeze=None)
    model.compile(recipe=recipe, **options)
    model.is_trained_recipe = is_trained


def refining_config(model) -> dict[str, Any]:
    """`compile_config`, to go on from what was learned with it.

    A learning rate that the weights were trained with is divided by 10.
    """
    config = compile_config(model)
    rate = config["recipe"]["learning_rate"] if config else None
    if config.pop(_TRAINED, False) and rate is not None:
        config["recipe"] = {**config["recipe"], "learning_rate": rate / _REFINING}
    return config
