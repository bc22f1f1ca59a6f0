"""Puts named arrays into weights, strictly: nothing is skipped in silence."""

import numpy as np

from effdet_keras.checkpoints.tf1_names import tf1_name


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
            ...
        ValueError: No array was found for 1 of 1 weights. The first is
        'resample_p6/bn/gamma', among 0 arrays. Is it a checkpoint of this model?
    """
    by_name = {tf1_name(variable): variable for variable in weights}
    missing = [name for name in by_name if name not in arrays]
    if missing:
        raise ValueError(
            f"No array was found for {len(missing)} of {len(by_name)} weights. "
            f"The first is {missing[0]!r}, among {len(arrays)} arrays. "
            "Is it a checkpoint of this model?"
        )
    for name, variable in by_name.items():
        if tuple(variable.shape) != np.shape(arrays[name]):
            raise ValueError(
                f"The array {name!r} has shape {np.shape(arrays[name])}, but the "
                f"weight has shape {tuple(variable.shape)}. Build the model with the "
                "checkpoint's `num_classes` and config."
            )
    for name, variable in by_name.items():
        variable.assign(np.asarray(arrays[name], dtype="float32"))
    return [name for name in arrays if name not in by_name]
