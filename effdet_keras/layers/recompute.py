"""Recomputing blocks in the backward pass, in the place of keeping their insides."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

import keras

from effdet_keras.layers.other_arrays import other_variables_within

_is_on = contextvars.ContextVar("recomputing", default=False)


@contextlib.contextmanager
def recomputing(is_on: bool = True) -> Iterator[None]:
    """Within this context the blocks of a network keep nothing but their outputs.

    The backward pass computes the rest a second time (https://arxiv.org/abs/1604.06174):
    less memory, for about a third more time. Results and gradients are the same.

    Args:
        is_on: bool, False for no change.
    """
    token = _is_on.set(is_on)
    try:
        yield
    finally:
        _is_on.reset(token)


def call_block(block: keras.layers.Layer, inputs: Any, training: bool) -> Any:
    """Calls a block of a network, as the context says: see `recomputing`.

    Args:
        block: a layer that is built.
        inputs: tensor, or list of tensors.
        training: bool; without it nothing is recomputed.

    Returns:
        What the block returns.
    """
    if not (_is_on.get() and training):
        return block(inputs, training=training)
    more_trainable, more_others = other_variables_within(block)
    trainable = [*block.trainable_variables, *more_trainable]
    others = [*block.non_trainable_variables, *more_others]
    is_list = isinstance(inputs, (list, tuple))
    tensors = list(inputs) if is_list else [inputs]
    # Statistics and random states go in and come out as values. So the second time
    # draws the same random numbers, and statistics move once.
    states = [v.value for v in others]

    def run(*values):
        inputs = list(values[: len(tensors)]) if is_list else values[0]
        weights = values[len(tensors) :]
        mapping = zip([*trainable, *others], [*weights, *states], strict=True)
        with keras.StatelessScope(list(mapping)) as scope:
            outputs = block.call(inputs, training=True)
        return outputs, [scope.get_current_value(v) for v in others]

    outputs, moved = keras.remat(run)(*tensors, *[v.value for v in trainable])
    for variable, value in zip(others, moved):
        variable.assign(value)
    return outputs
