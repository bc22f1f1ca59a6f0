"""The names that google/automl's checkpoints give to our weights."""

import re

import numpy as np
from keras import ops

_LEAVES = {"depthwise_conv2d/kernel": "depthwise_conv2d/depthwise_kernel"}
_FUSION = re.compile(r"/fusion/fusion_weights$")


def tf1_names(variable):
    """The TF1-style name, or names, of the array behind one weight.

    Layers carry the published names, so the rule is short: a depthwise kernel
    is called so, and the vector of fusion weights is one scalar (or, for
    channel attention, vector) an edge: `WSM`, `WSM_1`, ...

    Args:
        variable: weight of an `EfficientDet`.

    Returns:
        Tuple of names without `:0`. More than one means: stacked in this order.

    Example:
        >>> class Weight:
        ...     path, shape = "fpn_cells/cell_0/fnode0/fusion/fusion_weights", (2,)
        >>> tf1_names(Weight)
        ('fpn_cells/cell_0/fnode0/WSM', 'fpn_cells/cell_0/fnode0/WSM_1')
    """
    path = variable.path
    if _FUSION.search(path):
        edges = range(variable.shape[0])
        ends = ["WSM" + (f"_{i}" if i else "") for i in edges]
        return tuple(_FUSION.sub(f"/{end}", path) for end in ends)
    for ours, theirs in _LEAVES.items():
        if path.endswith(ours):
            return (path[: -len(ours)] + theirs,)
    return (path,)


def tf1_arrays(weights):
    """Weights as a dict of arrays by TF1-style name; inverse of `array_for`.

    Args:
        weights: iterable of Keras variables.

    Returns:
        Dict of name to NumPy array.
    """
    arrays = {}
    for variable in weights:
        names = tf1_names(variable)
        value = ops.convert_to_numpy(variable)
        parts = [value] if len(names) == 1 else list(value)
        arrays.update(zip(names, parts))
    return arrays


def array_for(variable, lookup):
    """The value of one weight, from a function of TF1-style name to array.

    Args:
        variable: weight of an `EfficientDet`.
        lookup: callable `(name) -> array`.

    Returns:
        NumPy array, in the weight's shape where names are stacked.
    """
    parts = [np.asarray(lookup(name)) for name in tf1_names(variable)]
    return parts[0] if len(parts) == 1 else np.stack(parts)
