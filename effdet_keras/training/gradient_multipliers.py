"""Factors for the gradients of variables, chosen by their paths."""

import difflib
import math
import re

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
        variables: list of Keras variables.

    Returns:
        List of floats, one per variable, 1.0 where no expression is found.

    Raises:
        ValueError: If an expression is found in no path.

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
