"""What happens to gradients before an update: factors, clipping, L2 decay."""

from __future__ import annotations

import difflib
import re

from keras import ops

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.errors import check_argument
from effdet_keras.model.batch_norm import ON_TENSORFLOW

KERNELS = "kernel$"  # of all convolutions, depthwise and pointwise ones as well


# --- Dicts of regular expressions on variable paths to numbers. The first that is found
# in a path counts.


def check_found(argument, patterns, variables):
    """Raises ValueError if an expression is found in no variable's path."""
    paths = [variable.path for variable in variables]
    for pattern in patterns:
        near = difflib.get_close_matches(pattern, paths, n=3, cutoff=0.0)
        expected = f"found in paths of the model's variables, such as {near}"
        is_found = any(re.search(pattern, path) for path in paths)
        check_argument(is_found, argument, pattern, expected)


def factors_of(multipliers, variables):
    """The factor of each variable; 1 where no expression is found in its path."""
    return [_first_found(multipliers or {}, v.path, otherwise=1.0) for v in variables]


def decay_factors(decay, variables):
    """How much each variable decays: a float for all kernels, or that of a dict."""
    patterns = decay if isinstance(decay, dict) else {KERNELS: decay}
    return [_first_found(patterns, v.path, otherwise=0.0) for v in variables]


def decay_loss(decay, variables):
    """The L2 decay of variables by `decay_factors`, a float32 scalar."""
    factors = decay_factors(decay, variables)
    decaying = [(v, factor) for v, factor in zip(variables, factors) if factor]
    if not decaying:
        return ops.zeros(())
    factors = ops.convert_to_tensor([f for _, f in decaying], "float32")
    return ops.sum(factors * ops.stack([half_square(v) for v, _ in decaying]))


def _first_found(patterns, path, otherwise):
    found = (value for pattern, value in patterns.items() if re.search(pattern, path))
    return float(next(found, otherwise))


# --- Clipping gradients in two stages, as the reference: one by one, then together.


def clipped(gradients, limit, *, each=True, scale=None):
    """Gradients of at most this norm, first each, then all together; and their norm.

    With a `scale`, that of the loss, they are clipped as if they were without it.
    """
    # One sum and one product per gradient: a step has 500 of them.
    norms = ops.sqrt(2.0 * ops.stack([half_square(g) for g in gradients]))
    if scale is not None:
        norms = norms / scale
    factors = ops.ones_like(norms)
    if limit:
        if each:
            factors = limit / ops.maximum(norms, limit)
        together = _norm(norms * factors)
        factors = factors * (limit / ops.maximum(together, limit))
    parts = [g * ops.cast(f, g.dtype) for g, f in zip(gradients, ops.unstack(factors))]
    return parts, _norm(norms * factors)


def descend(variable, rate, direction):
    """Subtracts `rate * direction` from a variable."""
    change = direction * ops.cast(rate, variable.dtype)
    variable.assign(variable.value - change)


def half_square(tensor):
    """Half of the sum of squares, a float32 scalar: on TensorFlow one operation."""
    tensor = ops.cast(tensor, "float32")
    if ON_TENSORFLOW:
        return tf.nn.l2_loss(tensor)
    return ops.sum(ops.square(tensor)) / 2.0


def _norm(vector):
    return ops.sqrt(ops.sum(ops.square(vector)))


def all_finite(tensors):
    """Whether no number in a list of float tensors is NaN or infinite."""
    flat = [ops.reshape(ops.cast(t, "float32"), (-1,)) for t in tensors]
    return ops.all(ops.isfinite(ops.concatenate(flat)))
