"""L2 decay in the loss: which variables decay, and how much."""

import difflib
import math
import numbers
import re

from effdet_keras.errors import InvalidTypeError, InvalidValueError

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
        variables: list of Keras variables.

    Returns:
        List of floats, one per variable, 0.0 where nothing is found.

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
    return [_first(patterns, variable.path) for variable in variables]


def _first(patterns, path):
    found = (value for pattern, value in patterns.items() if re.search(pattern, path))
    return float(next(found, 0.0))


def _is_decay(value):
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and value >= 0
