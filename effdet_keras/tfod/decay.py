"""Which variables the TF Object Detection API decays: its L2, by paths."""


def tfod_decay(*, fpn=4e-5, heads=4e-5, backbone=1e-5):
    """The decay of the TF Object Detection API, as a `weight_decay` of `compile`.

    With its published configs no depthwise kernel of the backbone decays, and of the
    heads those alone, but for their last layers. The `l2_regularizer` of a config is
    for BiFPN and heads; the backbone brings its own. There the factor of the plain sum
    of squares is half of what is here.

    Args:
        fpn: float, of the BiFPN's kernels.
        heads: float, of the heads' depthwise kernels.
        backbone: float, of the backbone's kernels and biases.

    Returns:
        Dict of regular expressions to floats.

    Example:
        >>> tfod_decay()["^(fpn_cells|resample_p).*kernel$"]
        4e-05
    """
    return {
        r"^efficientnet.*depthwise": 0.0,
        r"^efficientnet.*(kernel|bias)$": backbone,
        r"^(fpn_cells|resample_p).*kernel$": fpn,
        r"_net/[a-z]+-\d+/depthwise_kernel$": heads,
    }
