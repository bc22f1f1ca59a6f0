"""How a model was compiled, as files of models hold it: Keras' `compile_config`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras

from effdet_keras._internal.compiled_keys import DTYPE_POLICY, STEPS_DONE
from effdet_keras.train.freezing import frozen_state, restore_frozen
from effdet_keras.train.optimizers import steps_done
from effdet_keras.train.recipe import Recipe

_TRAINED = "trained"  # the key of whether the weights were trained with the recipe
_RATE_DIVISOR = 10.0  # of the learning rate, where a trained model is trained further


def compile_config(model: Any) -> dict[str, Any]:
    """`EfficientDet.get_compile_config`; empty where the model was never compiled."""
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
    """The requested recipe, until a step was trained with the resolved one.

    Under its requested name, because another training may choose again what the data
    decides, and with its requested decay, which goes with the optimizer.
    """
    requested = settings.requested_recipe
    if not steps:
        return requested
    return dataclasses.replace(
        settings.recipe, name=requested.name, weight_decay=requested.weight_decay
    )


def compile_from_config(model: Any, config: Mapping[str, Any]) -> None:
    """Compiles a model as another one was; `EfficientDet.compile_from_config`."""
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
    model.weights_match_recipe = is_trained


def refining_config(model: Any) -> dict[str, Any]:
    """`compile_config`, to train the model further.

    A learning rate that the weights were trained with is divided by 10.
    """
    config = compile_config(model)
    rate = config["recipe"]["learning_rate"] if config else None
    if config.pop(_TRAINED, False) and rate is not None:
        config["recipe"] = {**config["recipe"], "learning_rate": rate / _RATE_DIVISOR}
    return config
