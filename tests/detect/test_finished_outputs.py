"""Outputs of all heads, with what the config and the image say."""

import numpy as np
from keras import ops

from effdet_keras.detect.postprocess import Postprocess, finished_outputs
from effdet_keras.model.config import EfficientDetConfig


def found_with(content_sizes=None, **fields):
    """Of one anchor, 16 x 16 at (16, 16), whose box is moved down by a side."""
    fields = {"image_size": 64, "max_level": 6, "num_classes": 1, **fields}
    config = EfficientDetConfig(**fields)
    logits = np.zeros((1, 16, 16, config.seg_num_classes), "float32")
    logits[..., 2] = 1.0
    outputs = {
        "class_logits": ops.array([[[3.0]]]),
        "box_deltas": ops.array([[[1.0, 0.0, 0.0, 0.0]]]),
        "segmentation_logits": ops.array(logits),
    }
    anchors = np.float32([[16, 16, 32, 32]])
    postprocess = Postprocess(max_detections=1)
    found = finished_outputs(
        outputs, postprocess, anchors, config, content_sizes=content_sizes
    )
    return {name: ops.convert_to_numpy(value) for name, value in found.items()}


def test_boxes_are_scaled_as_the_config_says():
    assert found_with()["boxes"][0, 0].tolist() == [32, 16, 48, 32]
    scaled = found_with(box_scales=(2.0, 2.0, 1.0, 1.0))
    assert scaled["boxes"][0, 0].tolist() == [24, 16, 40, 32]


def test_each_head_has_its_outputs():
    both = found_with(heads=("object_detection", "segmentation"))
    assert (both["class_map"] == 2).all() and both["class_map"].shape == (1, 64, 64)
    assert both["num_detections"].tolist() == [1]
    alone = found_with(heads="segmentation")
    assert alone["boxes"].shape == (1, 0, 4) and (alone["class_map"] == 2).all()
    assert "class_map" not in found_with()
