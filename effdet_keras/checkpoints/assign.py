"""Puts named arrays into weights, strictly: nothing is skipped in silence."""

import numpy as np

from effdet_keras.checkpoints.tf1_names import array_for, tf1_names


def assign_tf1_arrays(weights, arrays):
    """Assigns arrays by TF1-style name to every one of `weights`.

    All names and shapes are checked before the first weight changes.

    Args:
        weights: iterable of Keras variables, such as `model.weights`.
        arrays: mapping of TF1-style name to array.

    Returns:
        List of the names in `arrays` that no weight asked for.

    Raises:
        ValueError: If a weight has no array, or one of another shape.

    Example:
        >>> class Weight:
        ...     path, shape = "resample_p6/bn/gamma", (4,)
        >>> assign_tf1_arrays([Weight], {})
        Traceback (most recent call last):
        ValueError: No array was found for 1 of 1 weights. ...
    """
    weights = list(weights)
    missing = [
        name for v in weights for name in tf1_names(v) if name not in arrays
    ]
    if missing:
        raise ValueError(
            f"No array was found for {len(missing)} of {len(weights)} weights. "
            f"The first: {missing[0]!r}. Found {len(arrays)} arrays, the first: "
            f"{next(iter(arrays), None)!r}. Is it a checkpoint of this model?"
        )
    values = [array_for(variable, arrays.__getitem__) for variable in weights]
    for variable, value in zip(weights, values):
        if tuple(variable.shape) != value.shape:
            raise ValueError(
                f"The array {tf1_names(variable)[0]!r} has shape {value.shape}, but "
                f"the weight has shape {tuple(variable.shape)}. Build the model with "
                "the checkpoint's `num_classes` and config."
            )
    for variable, value in zip(weights, values):
        variable.assign(np.asarray(value, dtype="float32"))
    used = {name for variable in weights for name in tf1_names(variable)}
    return [name for name in arrays if name not in used]
