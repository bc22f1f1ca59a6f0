"""Saves in model files how a model was compiled: Keras' `compile_config`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras

from effdet_keras._internal.compiled_keys import DTYPE_POLICY, STEPS_DONE
from effdet_keras.errors import InvalidStateError, require
from effdet_keras.train.freezing import frozen_state, restore_frozen
from effdet_keras.train.optimizers import steps_done
from effdet_keras.train.recipe import Recipe

_TRAINED = "trained"  # key: whether the weights were trained with the recipe
_RATE_DIVISOR = 10.0  # for the learning rate, if a trained model is trained further


def compile_config(model: Any) -> dict[str, Any]:
    """Returns `EfficientDet.get_compile_config()`, {} if the model is not compiled."""
    if model.settings is None:
        return {}
    steps = steps_done(model.optimizer)
    config = {
        "recipe": _recipe_to_save(model.settings, steps).get_config(),
        "frozen": frozen_state(model),
        DTYPE_POLICY: keras.dtype_policies.serialize(model.dtype_policy),
        STEPS_DONE: steps,
        **model.settings.keras_options,
    }
    if steps or model.weights_match_recipe:
        config[_TRAINED] = True
    return config


def _recipe_to_save(settings, steps):
    """Returns the recipe for a file.

    Before the first training step it is the requested recipe, afterwards the resolved
    one. The resolved recipe keeps its requested name, because another training may
    choose the fields again for its data. It also keeps its requested decay, whose
    default depends on the optimizer.
    """
    requested = settings.requested_recipe
    if not steps:
        return requested
    return dataclasses.replace(
        settings.recipe, name=requested.name, weight_decay=requested.weight_decay
    )


def compile_from_config(model: Any, config: Mapping[str, Any]) -> None:
    """Compiles a model by a config of `compile_config`.

    `EfficientDet.compile_from_config` calls it.
    """
    options = dict(config)
    options.pop("of", None)  # a key of older files
    # `from_archive(resume=True)` reads both too. Older files do not have them.
    policy, steps = options.pop(DTYPE_POLICY, None), options.pop(STEPS_DONE, 0)
    if "frozen" in options:  # not in files from before freezing was supported
        restore_frozen(model, options.pop("frozen"))
    is_trained = options.pop(_TRAINED, False)
    recipe = Recipe.from_config(options.pop("recipe"))
    # The saved model may have been "mixed_float16". Other policies need no loss scale.
    if model.dtype_policy.name != "mixed_float16":
        recipe = dataclasses.replace(recipe, loss_scale=None)
    if recipe.freeze != "auto":  # "frozen" above has already been restored
        recipe = dataclasses.replace(recipe, freeze=None)
    model.compile(recipe=recipe, **options)
    model.weights_match_recipe = is_trained
    if steps and policy is not None:
        model.policy_to_continue = keras.dtype_policies.deserialize(policy).name


def check_precision_to_continue(model: Any) -> None:
    """Raises an error if `fit` would continue a file's training in another precision.

    `keras.models.load_model` loads weights and optimizer of a training whose dtype
    policy was the global one into a model with the current global policy.
    """
    policy = model.dtype_policy.name
    rule = (
        "The training of this model cannot be continued with another dtype policy than "
        "the one that it began with, because the state of the optimizer belongs to it. "
        "Load the file with `EfficientDet.from_archive(path, resume=True)`, or call "
        "`keras.config.set_dtype_policy` with the policy of the training before you "
        "load it. To begin a new training from its weights, call `compile` first"
    )
    require(
        model.policy_to_continue in (None, policy),
        rule,
        InvalidStateError,
        policy_of_training=model.policy_to_continue,
        policy_of_model=policy,
    )


def refining_config(model: Any) -> dict[str, Any]:
    """Returns `compile_config` for training the model further.

    If the weights were trained with the recipe, its learning rate is divided by 10.
    """
    config = compile_config(model)
    rate = config["recipe"]["learning_rate"] if config else None
    if config.pop(_TRAINED, False) and rate is not None:
        config["recipe"] = {**config["recipe"], "learning_rate": rate / _RATE_DIVISOR}
    return config
