"""Steps and updates: with `gradient_accumulation_steps` N, N steps make one update.

Keras counts both. A step is a batch: learning-rate schedules, checkpoints and the
warm-up of statistics, which each forward pass moves, count these. An update moves the
weights, by the mean of the gradients of N steps: averages count these.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops


def steps_per_update(optimizer: keras.optimizers.Optimizer) -> int:
    """The number of steps whose gradients make one update of the weights.

    Args:
        optimizer: Keras optimizer.

    Example:
        >>> steps_per_update(keras.optimizers.SGD(gradient_accumulation_steps=4))
        4
        >>> steps_per_update(keras.optimizers.SGD())
        1
    """
    return _inner(optimizer).gradient_accumulation_steps or 1


def step_counter(optimizer: keras.optimizers.Optimizer) -> keras.Variable:
    """The variable that counts the steps of an optimizer."""
    return _inner(optimizer)._iterations  # `iterations` counts updates


def steps_done(optimizer: keras.optimizers.Optimizer) -> int:
    """The steps that an optimizer was given since it was made."""
    return int(ops.convert_to_numpy(step_counter(optimizer)))


def with_those_before(optimizer: Any, gradients: list, variables: list, step: Any):
    """The mean of the gradients since the last update of the weights.

    Args:
        optimizer: Keras optimizer that is built.
        gradients: list of tensors, those of this step, with the loss scale.
        variables: list of Keras variables that the gradients are of.
        step: scalar integer tensor, the steps before this one.

    Returns:
        List like `gradients`.
    """
    count = steps_per_update(optimizer)
    if count == 1:
        return gradients
    scale = optimizer.scale_loss(ops.ones(()))
    so_far = ops.cast(step % count + 1, "float32")
    return [
        (g + ops.cast(s * scale, g.dtype)) / ops.cast(so_far, g.dtype)
        for g, s in zip(gradients, _gradient_sums(optimizer, variables))
    ]


def for_optimizer(
    optimizer: Any,
    gradients: list,
    clipped: list,
    variables: list,
    *,
    step: Any,
    is_fine: Any,
):
    """What makes the optimizer move the weights by clipped gradients.

    It adds up those of all steps but the last before an update, and divides the
    sum by their count. What is clipped is that mean: so the last step is given
    all of it, and the optimizer nothing to add it to.

    Args:
        optimizer, gradients, variables, step: as of `with_those_before`.
        clipped: list of tensors, what that returned, clipped.
        is_fine: scalar bool tensor; where it is not, the sums stay.

    Returns:
        List like `gradients`.
    """
    count = steps_per_update(optimizer)
    if count == 1:
        return clipped
    is_last = (step + 1) % count == 0
    empties = ops.logical_and(is_last, is_fine)
    for variable in _gradient_sums(optimizer, variables):
        value = ops.convert_to_tensor(variable)
        variable.assign(ops.where(empties, ops.zeros_like(value), value))
    return [ops.where(is_last, c * count, g) for g, c in zip(gradients, clipped)]


def _gradient_sums(optimizer, variables):
    """The variables that hold the gradients of the steps since the last update."""
    inner = _inner(optimizer)
    return [
        inner._accumulated_gradients[inner._get_variable_index(variable)]
        for variable in variables
    ]


def _inner(optimizer):
    return getattr(optimizer, "inner_optimizer", optimizer)  # of a loss scale
