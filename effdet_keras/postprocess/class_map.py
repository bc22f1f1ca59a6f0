"""From the logits of the segmentation head to the class of each pixel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from effdet_keras._internal.optional_imports import keras_ops as ops
from effdet_keras.geometry.pixel_grid import stride_of


def class_map_of(
    segmentation_logits: Any,
    image_size: Sequence[int],
    argmax: Callable[..., Any] | None = None,
) -> Any:
    """Finds the class of each pixel of the network's input.

    The logits are enlarged to the input, bilinear with half-pixel centers, and the
    highest one is the class.

    Args:
        segmentation_logits: float tensor `[B, h, w, K]`.
        image_size: `(height, width)` of the network's input, in pixels.
        argmax: function of a tensor and `axis`; None for that of Keras, which tells 0
            from -0, by operations that targets of exports do not have.

    Returns:
        uint8 tensor `[B, height, width]`.

    Example:
        >>> logits = ops.reshape(ops.array([0.0, 1.0, 4.0, 0.0]), (1, 1, 2, 2))
        >>> ops.convert_to_numpy(class_map_of(logits, (2, 4))).tolist()
        [[[1, 0, 0, 0], [1, 0, 0, 0]]]
    """
    logits = ops.cast(segmentation_logits, "float32")
    places = logits.shape[1:3]
    strides = [stride_of(n, m) for n, m in zip(image_size, places)]
    # The last places may reach over the border of the input.
    size = tuple(m * s for m, s in zip(places, strides))
    if size != tuple(places):
        logits = ops.image.resize(
            logits, size, interpolation="bilinear", data_format="channels_last"
        )
    height, width = image_size
    logits = logits[:, :height, :width]
    return ops.cast((argmax or ops.argmax)(logits, axis=-1), "uint8")
