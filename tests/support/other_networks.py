"""Small detectors with what only PyTorch effdet's own models have."""

import keras
import numpy as np
from support.tiny import spread_outputs, tiny_model

from effdet_keras.model.config import TIMM_BACKBONE
from effdet_keras.model.efficientdet import EfficientDet

_OWN = {**TIMM_BACKBONE, "fpn_padding": "symmetric", "redundant_bias": False}
NETWORKS = {
    "qufpn": {**_OWN, "fpn_name": "qufpn", "fpn_weight_method": "fastattn"},
    "bilinear": {
        **_OWN,
        "fpn_downsampling": "bilinear",
        "fpn_upsampling": "bilinear",
        "max_level": 7,  # maps of 8 x 12 to 1 x 1: odd sides too
    },
}
IMAGE_SIZE = (64, 96)


def other_model(name):
    """One of `NETWORKS` that finds things, on images of 64 x 96."""
    keras.utils.set_random_seed(3)
    small = tiny_model()
    config = small.config.replace(image_size=IMAGE_SIZE, **NETWORKS[name])
    model = EfficientDet(config, class_names=small.class_names)
    rng = np.random.default_rng(5)
    for weight in model.weights:
        if weight.path.endswith("moving_variance"):
            weight.assign(rng.uniform(0.5, 1.5, weight.shape))
        elif weight.path.endswith("moving_mean"):
            weight.assign(rng.normal(0.0, 0.1, weight.shape))
    spread_outputs(model, noise(2), "class-predict", "class_logits", 1.7)
    spread_outputs(model, noise(2), "box-predict", "box_deltas", 0.3)
    return model


def noise(count):
    """Images of random pixels, uint8."""
    rng = np.random.default_rng(1)
    return rng.integers(0, 256, (count, *IMAGE_SIZE, 3), "uint8")
