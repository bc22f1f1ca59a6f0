"""Resolves the recipe of a model: puts a value in place of every "auto".

`compile` stores the `Recipe` that was requested. "reference" and "tfod" are resolved at
once, because none of their fields depends on the data. `recipe="auto"` is resolved by
`fit`, which knows its data, and which then creates the optimizer and the averages.
Until then the model has those of the reference recipe. So `train_on_batch`, `evaluate`,
`model.optimizer` and files work without a `fit`.

After the first step with a recipe, it is not resolved again: a resumed training
continues with the same recipe.
"""

from __future__ import annotations

import math
from typing import Any

from effdet_keras.train import auto_recipe, inputs
from effdet_keras.train.auto_recipe import AutoChoice, TrainingFacts
from effdet_keras.train.compile_model import compile_model
from effdet_keras.train.fit_data import TrainingData
from effdet_keras.train.freezing import freeze, frozen_state, is_trainable, unfreeze
from effdet_keras.train.optimizers import steps_done
from effdet_keras.train.recipe import shorten_warmup


def resolve_recipe(model: Any, data: TrainingData, *, verbose: bool) -> None:
    """Resolves the recipe for one `fit`, and sets the schedule for its length.

    Args:
        model: `EfficientDet`, compiled or not.
        data: the data and the length of this `fit`.
        verbose: bool, whether to print the choices and their reasons.

    Raises:
        ValueError: If the schedule needs the number of steps of the training, and the
            data has no known length.
    """
    if model.settings is None or data.epochs_to_train < 1:
        return
    needs_length = model.settings.recipe.needs_length
    if not (needs_length or _must_resolve(model)):
        return
    batch_size, steps_per_epoch = inputs.batch_size_and_steps(
        data.x, data.batch_size, data.steps_per_epoch, must_know=needs_length
    )
    facts = TrainingFacts(
        num_images=inputs.num_images(data.x, batch_size, steps_per_epoch),
        batch_size=batch_size,
        steps=steps_per_epoch * data.epochs_to_train,
        pretrained=model.pretrained,
        backbone=model.config.backbone,
        auto_fields=data.auto_fields,
        epochs=data.epochs_to_train,
    )
    resolve_auto_fields(model, facts, verbose=verbose)
    if model.settings.recipe.needs_length:
        _set_schedule(model, facts, steps_per_epoch, data.position)


def resolve_auto_fields(model: Any, facts: TrainingFacts, *, verbose: bool) -> None:
    """Compiles a model with values for the "auto" fields, chosen for the data.

    Nothing changes if no field is "auto", or if a step was trained with the recipe.
    """
    if not _must_resolve(model):
        return
    requested = model.settings.requested_recipe
    unfreeze_what_fit_froze(model)
    if frozen_state(model)["weights"] or not requested.is_auto("freeze"):
        facts = facts._replace(backbone_trains=is_trainable(model, "backbone"))
    facts = facts._replace(trains_new_classes=bool(model.frozen_labels))
    choices = [
        choice
        for choice in auto_recipe.choose(facts)
        if requested.is_auto(choice.field)
    ]
    recipe = requested.resolve(**{choice.field: choice.value for choice in choices})
    epochs = facts.epochs or facts.steps  # if not known: the most that is possible
    with_warmup = shorten_warmup(recipe, facts.steps // epochs, facts.steps)
    if with_warmup != recipe:
        why = "warm-up takes a tenth of the steps, not a whole epoch"
        choices.append(AutoChoice("schedule", with_warmup.schedule, why))
        recipe = with_warmup
    if any(choice.field == "freeze" for choice in choices):
        freeze(model, recipe.freeze, recipe.freeze_batch_norm)
    compile_model(model, requested, recipe, model.settings.keras_options)
    if verbose:
        text = auto_recipe.describe(choices, facts, requested.given_fields)
        print(text, flush=True)


def unfreeze_what_fit_froze(model: Any) -> None:
    """Unfreezes the weights that an earlier `fit` chose to freeze for its data."""
    if model.settings is None:
        return
    frozen = model.settings.recipe.freeze
    if frozen is not None and model.settings.requested_recipe.is_auto("freeze"):
        unfreeze(model, frozen)


def _must_resolve(model):
    """Returns whether fields are "auto" and no step was trained with the recipe."""
    is_new = not steps_done(model.optimizer)
    return model.settings.requested_recipe.has_auto_fields and is_new


def _set_schedule(model, facts, steps_per_epoch, position):
    """Gives the optimizer the schedule for the length of the whole training.

    `facts.steps` counts all steps of a resumed epoch, with those that are done at its
    `position`. A constant rate is set only once, because `ReduceLROnPlateau` or the
    user may have changed it since.
    """
    done = steps_done(model.optimizer)
    if position is not None:  # the length that the training had before it ended
        done += position.omitted_steps - position.step
    rate = model.settings.recipe.resolve_schedule(
        batch_size=facts.batch_size,
        steps_per_epoch=steps_per_epoch,
        epochs=(done + facts.steps) / steps_per_epoch,
    )
    if not callable(rate) and (steps_done(model.optimizer) or _was_assigned(model)):
        return  # keep the constant rate, which may have been changed
    model.optimizer.learning_rate = rate
    model.train_function = None  # it was traced with the previous schedule


def _was_assigned(model):
    """Returns whether the user has changed the constant rate that `compile` set."""
    rate = float(model.optimizer.learning_rate)
    until_fit = model.settings.recipe.rate_until_fit()
    return not math.isclose(rate, until_fit, rel_tol=1e-6)
