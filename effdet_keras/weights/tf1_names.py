"""The names that google/automl's checkpoints give to our weights."""

# Layers carry the published names. What is left: (ours, theirs).
_ENDS = (("depthwise_conv2d/kernel", "depthwise_conv2d/depthwise_kernel"),)
_INNER_SCOPE = "/fusion/"  # the reference keeps fusion weights in the node itself


def tf1_name(variable):
    """The TF1-style name of the array that a checkpoint holds for one weight.

    Args:
        variable: weight of an `EfficientDet`.

    Returns:
        String, without `:0`.

    Example:
        >>> class Weight:
        ...     path = "fpn_cells/cell_0/fnode0/fusion/WSM_1"
        >>> tf1_name(Weight)
        'fpn_cells/cell_0/fnode0/WSM_1'
    """
    path = variable.path.replace(_INNER_SCOPE, "/")
    for ours, theirs in _ENDS:
        if path.endswith(ours):
            return path.removesuffix(ours) + theirs
    return path


def path_of_tf1_name(name):
    """The path of the weight that has this TF1-style name: the inverse of `tf1_name`.

    Args:
        name: string.

    Returns:
        String.

    Example:
        >>> path_of_tf1_name("fpn_cells/cell_0/fnode0/WSM_1")
        'fpn_cells/cell_0/fnode0/fusion/WSM_1'
    """
    for ours, theirs in _ENDS:
        if name.endswith(theirs):
            return name.removesuffix(theirs) + ours
    return name.replace("/WSM", f"{_INNER_SCOPE}WSM")
