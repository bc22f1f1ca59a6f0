"""Whether a model's numbers are numbers."""

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
    averages = getattr(model, "averages", None)
    variables = [*model.weights, *([] if averages is None else averages.variables)]
    bad = [v.path for v in variables if not np.isfinite(_sum(v))]
    if bad:
        raise NonFiniteLossError(
            f"{what}: {len(bad)} of its {len(variables)} weights and averages are NaN "
            f"or infinite, such as {', '.join(bad[:3])}. Go back to the last "
            "good checkpoint, and train with a lower learning rate."
        )


def _sum(variable):
    """NaN or infinite if a number is: many times faster than to look at each."""
    return ops.convert_to_numpy(ops.sum(ops.abs(ops.cast(variable, "float32"))))
