"""Whether a model's numbers are numbers."""

import warnings

import numpy as np
from keras import ops

from effdet_keras.errors import NonFiniteLossError


def check_finite(model, what):
    """Raises where a weight or an average of a model is NaN or infinite.

    Args:
        model: `keras.Model`, with `averages` or without.
        what: string, what it is that cannot be done, to begin the message with.

    Raises:
        FloatingPointError: With the names of the first such weights.

    Example:
        >>> model = keras.Sequential([keras.layers.Dense(1)])
        >>> model.build((None, 1))
        >>> model.layers[0].kernel.assign([[np.nan]]) is not None
        True
        >>> check_finite(model, "It was not written")
        Traceback (most recent call last):
            ...
        effdet_keras.errors.NonFiniteLossError: It was not written: 1 of its 2 ...
    """
    fault = _fault(model)
    if fault is not None:
        raise NonFiniteLossError(
            f"{what}: {fault}. Go back to the last good checkpoint, and train with a "
            "lower learning rate."
        )


def warn_unless_finite(model, path):
    """Warns where a weight that was loaded is NaN or infinite.

    Args:
        model: `keras.Model`.
        path: path of the file, for the message.
    """
    fault = _fault(model)
    if fault is not None:
        warnings.warn(
            f"What was loaded from '{path}' finds nothing: {fault}. Take an earlier "
            "checkpoint.",
            stacklevel=3,
        )


def _fault(model):
    averages = getattr(model, "averages", None)
    variables = [*model.weights, *([] if averages is None else averages.variables)]
    bad = [v.path for v in variables if not np.isfinite(_sum(v))]
    if not bad:
        return None
    return (
        f"{len(bad)} of its {len(variables)} weights and averages are NaN or infinite, "
        f"such as {', '.join(bad[:3])}"
    )


def _sum(variable):
    """NaN or infinite if a number is: many times faster than to look at each."""
    return ops.convert_to_numpy(ops.sum(ops.abs(ops.cast(variable, "float32"))))
