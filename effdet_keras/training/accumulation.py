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


def gradient_sums(optimizer: Any, variables: list) -> list:
    """The variables that hold the gradients of the steps since the last update."""
    inner = _inner(optimizer)
    return [
        inner._accumulated_gradients[inner._get_variable_index(variable)]
        for variable in variables
    ]


def _inner(optimizer):
    return getattr(optimizer, "inner_optimizer", optimizer)  # of a loss scale
