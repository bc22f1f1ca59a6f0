"""Creates what `compile` needs from a recipe: optimizer, averages and metrics."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras

from effdet_keras._internal.backend import default_jit_compile
from effdet_keras._internal.replicas import num_replicas
from effdet_keras.errors import require
from effdet_keras.network.batch_norm import MomentumWarmup, set_momentum_warmup
from effdet_keras.network.computing import ON_TENSORFLOW
from effdet_keras.network.layers import ConfiguredLayer
from effdet_keras.train.averages import WeightAverages
from effdet_keras.train.loss_metrics import LossMetrics, loss_names
from effdet_keras.train.new_classes import check_not_adversarial
from effdet_keras.train.optimizers import (
    check_found,
    step_counter,
    steps_per_update,
    unknown_variables,
)
from effdet_keras.train.recipe import Recipe


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of a compiled model, stored as `EfficientDet.settings`.

    Attributes:
        recipe: the resolved `Recipe`, without an "auto" field. Optimizer, averages and
            losses are created from it.
        requested_recipe: the `Recipe` that `compile` received, which may have "auto"
            fields; see `train/resolve_recipe.py`.
        loss_metrics: `LossMetrics`, the metrics that a step updates.
        keras_options: dict of arguments of `keras.Model.compile`, as the caller passed
            them.
    """

    recipe: Recipe
    requested_recipe: Recipe
    loss_metrics: LossMetrics
    keras_options: dict[str, Any]


def compile_model(
    model: Any,
    requested_recipe: Recipe,
    recipe: Recipe,
    keras_options: dict[str, Any],
) -> None:
    """Compiles a model with a resolved recipe. Optimizer and averages start again.

    Args:
        model: `EfficientDet`.
        requested_recipe, recipe, keras_options: see `Settings`.

    Raises:
        ValueError: If an expression of the recipe matches no variable of the model, or
            a loss scale is given for a model that does not compute in float16; or if
            gradients are to be accumulated by several devices of a `tf.distribute`
            strategy, adversarial training has frozen classes, or the optimizer has
            trained other variables.
    """
    check_not_adversarial(model, recipe.adversarial)
    with model.variable_scope():  # of `tf.distribute`: `fit` may be called outside it
        jit_compile = keras_options["jit_compile"]
        if jit_compile == "auto":
            jit_compile = default_jit_compile() and not keras_options["run_eagerly"]
        adversarial = None
        if recipe.adversarial is not None:
            adversarial = recipe.adversarial.new_training(model, jit_compile)
        _check_expressions(model, requested_recipe, recipe, adversarial)
        optimizer = recipe.new_optimizer()
        _check_is_not_of_other_variables(model, optimizer, adversarial)
        _check_accumulation(optimizer)
        _check_loss_scale(model, recipe, optimizer, keras_options)
        keras.Model.compile(
            model,
            optimizer=optimizer,
            loss=None,  # `EfficientDet.compute_loss` computes the losses
            **(keras_options | {"jit_compile": jit_compile}),
        )
        model.adversarial = adversarial
        if recipe.loss_scale is not None:
            model.optimizer.initial_scale = recipe.loss_scale
        _set_recomputation(model, recipe)
        # Built here, so that loading weights finds the optimizer's variables, and the
        # first step is not traced a second time because it creates them.
        model.optimizer.build(model.optimized_variables())
        _set_moving_normalizer(model, recipe)
        _set_momentum_warmup(model, recipe)
        model.settings = Settings(
            recipe=recipe,
            requested_recipe=requested_recipe,
            loss_metrics=_new_metrics(model, recipe),
            keras_options=keras_options,
        )
        _set_averages(model, recipe)


def _check_expressions(model, requested_recipe, recipe, adversarial):
    """Raises ValueError for a regular expression found in no variable's path."""
    multipliers = recipe.learning_rate_multipliers or {}
    check_found("learning_rate_multipliers", multipliers, model.variables)
    with_gradient = list(model.variables)
    if adversarial is not None:
        with_gradient += adversarial.variables
    multipliers = recipe.gradient_multipliers or {}
    check_found("gradient_multipliers", multipliers, with_gradient)
    # Only the user's decay: that of a named recipe has expressions for all networks.
    decay = requested_recipe.weight_decay
    if isinstance(decay, dict):
        check_found("weight_decay", decay, model.variables)


def _check_is_not_of_other_variables(model, optimizer, adversarial):
    """Raises ValueError for an optimizer object that was built for other variables."""
    variables = list(model.trainable_variables)
    if adversarial is not None:
        variables += adversarial.trainable
    unknown = unknown_variables(optimizer, variables)
    require(
        not unknown,
        "`optimizer` was compiled before, with another model or with other trainable "
        "variables, and it can only update those. Pass a new optimizer, such as "
        "`type(optimizer).from_config(optimizer.get_config())`",
        optimizer=type(optimizer).__name__,
        unknown_variables=len(unknown),
    )


def _check_accumulation(optimizer):
    """Raises ValueError for gradient accumulation in a `tf.distribute` strategy."""
    steps = steps_per_update(optimizer)
    require(
        steps == 1 or not ON_TENSORFLOW or num_replicas() == 1,
        "Keras cannot accumulate gradients under a `tf.distribute` strategy with "
        "several devices: leave `accumulate_steps` out",
        accumulate_steps=steps,
    )


def _check_loss_scale(model, recipe, optimizer, keras_options):
    """Raises ValueError for a loss scale if Keras will not scale the loss."""
    if recipe.loss_scale is None:
        return
    is_float16 = model.dtype_policy.name == "mixed_float16"
    wraps = is_float16 and keras_options["auto_scale_loss"]
    is_scaled = wraps or isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    rule = (
        "`loss_scale` is only for models whose loss Keras scales: those of the dtype "
        "policy 'mixed_float16', without `auto_scale_loss=False`. Leave `loss_scale` "
        "out, or set that policy before the model is made"
    )
    require(is_scaled, rule, loss_scale=recipe.loss_scale, dtype=model.dtype_policy)


def _set_recomputation(model, recipe):
    """Sets whether layers recompute their activations in the backward pass."""
    for layer in model._flatten_layers(include_self=False):
        if isinstance(layer, ConfiguredLayer):
            layer.recomputes = recipe.grad_checkpoint


def _set_moving_normalizer(model, recipe):
    model.moving_normalizer = None
    momentum = recipe.loss.positives_momentum or 0.0
    if momentum > 0.0:
        from effdet_keras.extras.moving_normalizer import MovingNormalizer

        model.moving_normalizer = MovingNormalizer(momentum)


def _set_momentum_warmup(model, recipe):
    warmup = None
    if recipe.batch_norm_warmup:
        warmup = MomentumWarmup(step_counter(model.optimizer))
    set_momentum_warmup(model, warmup)


def _new_metrics(model, recipe):
    metrics = LossMetrics(loss_names(model.config, recipe.loss))
    metrics.add(model.auxiliary_losses)
    if model.adversarial is not None:
        metrics.add((model.adversarial.name,))
    return metrics


def _set_averages(model, recipe):
    """Starts averages at the model's weights: after a `fit`, at the old averages."""
    if model.averages is not None and model.averages.is_swapped:
        model.averages.commit()  # the raw weights are dropped
    model.averages = None
    if recipe.ema_decay:
        sources = model.trainable_variables + model.batch_norm_statistics()
        model.averages = WeightAverages(sources, decay=recipe.ema_decay)
