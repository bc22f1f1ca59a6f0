"""What happens to gradients before an update: factors, clipping, L2 decay."""

from __future__ import annotations

import difflib
import math
import numbers
import re
from collections.abc import Sequence
from typing import Any

from keras import ops

from effdet_keras.errors import InvalidTypeError, InvalidValueError


def check_multipliers(multipliers):
    """Raises unless `multipliers` is None or a dict of patterns to factors."""
    if multipliers is None:
        return
    if not isinstance(multipliers, dict):
        raise InvalidTypeError(
            "`gradient_multipliers` must be a dict of regular expressions on variable "
            "paths to factors, such as {'bias$': 2.0}, or None. "
            f"Received: gradient_multipliers={multipliers!r}"
        )
    if not multipliers:
        raise InvalidValueError(
            "`gradient_multipliers` must hold at least one pattern, or be None. "
            "Received: gradient_multipliers={}"
        )
    for pattern, factor in multipliers.items():
        _check_pattern(pattern)
        _check_factor(pattern, factor)


def gradient_factors(multipliers, variables):
    """The factor for each variable's gradient.

    Args:
        multipliers: dict of a regular expression to a factor above 0, or None.
            An expression is searched in the variable's `path`; the first that
            is found counts.

    Example:
        >>> import keras
        >>> layer = keras.layers.Dense(2, name="head")
        >>> layer.build((None, 3))
        >>> gradient_factors({"head/bias": 2.0}, layer.trainable_variables)
        [1.0, 2.0]
    """
    paths = [variable.path for variable in variables]
    for pattern in multipliers or {}:
        if not any(re.search(pattern, path) for path in paths):
            near = difflib.get_close_matches(pattern, paths, n=3, cutoff=0.0)
            raise InvalidValueError(
                "`gradient_multipliers` must hold patterns that are found in paths of "
                f"trainable variables. Received: {pattern!r}. Paths near it: "
                f"{', '.join(near) or 'none'}"
            )
    return [_first(multipliers or {}, path) for path in paths]


def _first(multipliers, path):
    found = (factor for p, factor in multipliers.items() if re.search(p, path))
    return float(next(found, 1.0))


def _check_pattern(pattern):
    try:
        re.compile(pattern)
    except (re.error, TypeError) as error:
        raise InvalidValueError(
            "`gradient_multipliers` must have regular expressions as its keys. "
            f"Received: {pattern!r} ({error})"
        ) from error


def _check_factor(pattern, factor):
    is_number = isinstance(factor, (int, float)) and not isinstance(factor, bool)
    if is_number and math.isfinite(factor) and factor > 0:
        return
    cure = " For 0 use `freeze`: what is frozen costs no time." if factor == 0 else ""
    raise InvalidValueError(
        "A factor of `gradient_multipliers` must be a number above 0."
        f"{cure} Received: {pattern!r}: {factor!r}"
    )


# --- Clipping gradients in two stages, as the reference: one by one, then together.


def clipped(
    gradients: Sequence[Any],
    limit: float | None,
    *,
    each: bool = True,
    scale: Any = None,
) -> tuple[list[Any], Any]:
    """Gradients of at most this norm, first each of them, then all together.

    Args:
        scale: scalar by which the gradients are multiplied, as a loss scale does. They
            are clipped as if they were not, and keep it. None is 1.

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


# --- L2 decay in the loss: which variables decay, and how much.

KERNELS = "kernel$"  # of all convolutions, depthwise and pointwise ones as well


def check_decay(decay):
    """Raises unless `decay` is a number of at least 0, a dict of such, or None."""
    if decay is None:
        return
    if not isinstance(decay, dict):
        if not isinstance(decay, numbers.Real) or not _is_decay(decay):
            raise InvalidValueError(
                "`weight_decay` must be a number of at least 0, a dict of regular "
                "expressions on variable paths to such numbers, 'auto' or None. "
                f"Received: weight_decay={decay!r}"
            )
        return
    for pattern, value in decay.items():
        if not isinstance(pattern, str):
            raise InvalidTypeError(
                "`weight_decay` must have regular expressions as its keys. "
                f"Received: {pattern!r}"
            )
        try:
            re.compile(pattern)
        except re.error as error:
            raise InvalidValueError(
                "`weight_decay` must have regular expressions as its keys. "
                f"Received: {pattern!r} ({error})"
            ) from error
        if not _is_decay(value):
            raise InvalidValueError(
                "A value of `weight_decay` must be a number of at least 0. "
                f"Received: {pattern!r}: {value!r}"
            )


def check_found(decay, variables):
    """Raises ValueError if an expression of a dict is found in no variable's path."""
    paths = [variable.path for variable in variables]
    for pattern in decay:
        if not any(re.search(pattern, path) for path in paths):
            near = difflib.get_close_matches(pattern, paths, n=3, cutoff=0.0)
            raise InvalidValueError(
                "`weight_decay` must have expressions that are found in paths of the "
                f"model's variables. Received: {pattern!r}. Paths near it: "
                f"{', '.join(near)}"
            )


def decay_factors(decay, variables):
    """How much each variable decays.

    Args:
        decay: float, for all kernels; or dict of a regular expression to a float. An
            expression is searched in the variable's `path`; the first that is found
            counts.

    Example:
        >>> import keras
        >>> layer = keras.layers.Dense(2, name="head")
        >>> layer.build((None, 3))
        >>> decay_factors(0.5, layer.variables)
        [0.5, 0.0]
        >>> decay_factors({"bias$": 0.0, "^head/": 0.1}, layer.variables)
        [0.1, 0.0]
    """
    patterns = decay if isinstance(decay, dict) else {KERNELS: decay}
    return [_first_decay(patterns, variable.path) for variable in variables]


def _first_decay(patterns, path):
    found = (value for pattern, value in patterns.items() if re.search(pattern, path))
    return float(next(found, 0.0))


def _is_decay(value):
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and value >= 0
