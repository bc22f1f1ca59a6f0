"""What a network says of an image, of whatever heads it has, in pixels of the input."""

from __future__ import annotations

from typing import Any

from effdet_keras._internal.optional_imports import keras_ops as ops
from effdet_keras.config import EfficientDetConfig
from effdet_keras.postprocess.class_map import class_map_of
from effdet_keras.postprocess.postprocess import Postprocess, nothing_found


def finished_outputs(
    outputs: dict[str, Any],
    postprocess: Postprocess,
    anchors: Any,
    config: EfficientDetConfig,
    content_sizes: Any = None,
) -> dict[str, Any]:
    """Turns raw outputs into detections and, of a segmentation head, a class map.

    Args:
        outputs: dict of raw outputs, as the network returns.
        postprocess: `Postprocess`.
        anchors: float tensor `[N, 4]`, `yxyx` in pixels of the input.
        config: `EfficientDetConfig` of the network.
        content_sizes: float tensor `[B, 2]`, see `Postprocess`; or None.

    Returns:
        Dict of tensors: what `Postprocess` returns, without rows where the network has
        no detection heads; `class_map` `[B, H, W]`, uint8, where it has a segmentation
        head.
    """
    if config.has_detection:
        found = postprocess(
            outputs,
            anchors,
            config.image_size,
            box_scales=config.box_scales,
            content_sizes=content_sizes,
        )
    else:
        found = nothing_found(ops.shape(outputs["segmentation_logits"])[0])
    if config.has_segmentation:
        logits = outputs["segmentation_logits"]
        found["class_map"] = class_map_of(logits, config.image_size)
    return found
