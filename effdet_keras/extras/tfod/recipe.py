"""The recipe of the TF Object Detection API's configs: `compile(recipe="tfod")`."""

from effdet_keras.train.losses import DetectionLoss
from effdet_keras.train.matching import IoUMatching

DEFAULTS = {
    "clip_norm": None,
    "ema_decay": None,
    "freeze": None,
    "learning_rate_multipliers": None,
    "loss": DetectionLoss(delta=1.0, box_loss_weight=1.0, normalizer="positives"),
    "matching": IoUMatching(normalized_coordinates=True),
}
SCHEDULE = {"name": "cosine", "warmup_steps": 2_500, "total_steps": 300_000}
WARMUP_INIT = 0.001  # for a learning rate of 0.08


def tfod_decay(*, fpn=4e-5, heads=4e-5, backbone=1e-5):
    """Returns the decay of the TF Object Detection API as `weight_decay` of `compile`.

    With its published configs, depthwise kernels of the backbone do not decay. In the
    heads only depthwise kernels decay, except those of the last layers. The
    `l2_regularizer` of a config is for BiFPN and heads; the backbone has its own. In
    that API, the factor of the plain sum of squares is half of the decay here.
    """
    return {
        r"^efficientnet.*depthwise": 0.0,
        r"^efficientnet.*(kernel|bias)$": backbone,
        r"^(fpn_cells|resample_p).*kernel$": fpn,
        r"_net/[a-z]+-\d+/depthwise_kernel$": heads,
    }
