"""Random weights similar to those of a trained model, to test a conversion.

In a new model all batch norms are equal and the outputs are close to zero, so that they
would not show errors of a conversion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras
import numpy as np

from effdet_keras.network.batch_norm import batch_norm_layers

if TYPE_CHECKING:
    from effdet_keras.model.efficientdet import EfficientDet

# Standard deviations of the outputs: they give scores of all sizes, and boxes near the
# anchors.
_DEVIATIONS = {
    "class_logits": ("class-predict", 1.5),
    "box_deltas": ("box-predict", 0.3),
}


def draw_weights(model: EfficientDet, seed: int = 0) -> EfficientDet:
    """Draws scales, offsets and statistics for every batch norm, in place.

    The statistics are those of two images of random pixels. The last layers are scaled
    so that the detections cover all scores. Other kernels are not changed.

    Args:
        model: the `EfficientDet` to change.
        seed: int, seed of the random numbers.

    Returns:
        The model.
    """
    rng = np.random.default_rng(seed)
    norms = batch_norm_layers(model)
    for layer in norms:
        layer.gamma.assign(rng.uniform(0.5, 1.5, layer.gamma.shape))
        layer.beta.assign(rng.normal(0.0, 0.3, layer.beta.shape))
    images = rng.uniform(0, 255, (2, *model.config.image_size, 3)).astype("float32")
    momenta = [layer.momentum for layer in norms]
    for layer in norms:
        layer.momentum = 0.0  # the statistics become those of these images
    model(images, training=True)
    for layer, momentum in zip(norms, momenta):
        layer.momentum = momentum
    outputs = model(images)
    for name, (part, deviation) in _DEVIATIONS.items():
        if name in outputs:
            found = keras.ops.convert_to_numpy(outputs[name])
            scale_kernels(model, part, deviation / np.std(found))
    return model


def scale_kernels(model: EfficientDet, part: str, factor: float) -> None:
    """Scales the last layer of a head, and with it the output of the head.

    Args:
        model: the `EfficientDet` to change.
        part: string in the paths of the kernels, such as "class-predict".
        factor: float.
    """
    kernels = [w for w in model.weights if part in w.path and w.path.endswith("kernel")]
    for kernel in kernels:
        # The product of the depthwise and the pointwise kernel is scaled by the factor.
        kernel.assign(kernel * factor ** (1 / len(kernels)))
