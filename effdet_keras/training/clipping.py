"""Clipping gradients in two stages, as the reference: one by one, then together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from keras import ops


def clipped(
    gradients: Sequence[Any],
    limit: float | None,
    *,
    each: bool = True,
    scale: Any = None,
) -> tuple[list[Any], Any]:
    """Gradients of at most this norm, first each of them, then all together.

    Args:
        gradients: list of float tensors.
        limit: float above 0, or None and 0 for no clipping.
        each: bool, whether each is clipped before all together are.
        scale: scalar by which the gradients are multiplied, as a loss scale does. They
            are clipped as if they were not, and keep it. None is 1.

    Returns:
        `(clipped, norm)`: a list like `gradients`, and the norm of all together after
        it, without the scale, a float32 scalar.

    Example:
        >>> gradients, norm = clipped([ops.array([30.0, 40.0]), ops.array([1.0])], 10.0)
        >>> ops.convert_to_numpy(gradients[0]).round(2)  # [6, 8], and both together
        array([5.97, 7.96], dtype=float32)
        >>> round(float(norm), 4)
        10.0
    """
    # One sum and one product per gradient: a step has 500 of them.
    squares = [ops.sum(ops.square(ops.cast(g, "float32"))) for g in gradients]
    norms = ops.sqrt(ops.stack(squares))
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


def _norm(vector):
    return ops.sqrt(ops.sum(ops.square(vector)))
