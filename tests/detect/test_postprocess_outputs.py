"""Outputs of all heads; in NumPy the same as in a graph, whatever the options."""

import dataclasses

import numpy as np
import pytest
from keras import ops

from effdet_keras.detect import postprocess as module
from effdet_keras.detect.postprocess import Postprocess, postprocess_outputs
from effdet_keras.network.anchors import anchors_of
from effdet_keras.network.config import EfficientDetConfig

CONFIG = EfficientDetConfig(image_size=(128, 96), max_level=6, num_classes=7)
ANCHORS = anchors_of(CONFIG)


def few_objects(seed):
    """Background below every threshold, and some objects, each of many anchors."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(-9, 1, (2, len(ANCHORS), CONFIG.num_classes))
    for image, start in ((0, 100), (0, 700), (1, 1500)):
        logits[image, start : start + 40, start % 7] = rng.normal(0, 2, 40)
    return logits


def noise(seed):
    return np.random.default_rng(seed).normal(-2, 2, (2, len(ANCHORS), 7))


def ties(seed):
    """Scores of few values, so that only the order of the candidates decides."""
    return np.round(noise(seed))


def wild(seed):
    logits = noise(seed)
    logits[0, 50:60, 2] = np.inf
    logits[1, ::3] = -np.inf
    return logits


def nothing(seed):
    return np.full((2, len(ANCHORS), 7), -30.0)


CASES = [few_objects, noise, ties, wild, nothing]
OPTIONS = [
    {},
    {"method": "hard"},
    {"pre_nms_top_k": 0},
    {"pre_nms_top_k": 50, "max_detections": 30, "sigma": 0.2},
    {"pre_nms_top_k": None, "clip": False},
    {"max_detections_per_class": 2, "score_threshold": 0.05},
    {"per_class": False, "max_detections_per_class": 9, "method": "hard"},
    {"drop_empty": True, "max_detections": 40},
]


def outputs_of(case, seed=0):
    deltas = np.random.default_rng(seed).normal(0, 0.5, (2, len(ANCHORS), 4))
    return {
        "class_logits": case(seed).astype("float32"),
        "box_deltas": deltas.astype("float32"),
    }


def of_graph(outputs, postprocess, content_sizes=None):
    tensors = {name: ops.convert_to_tensor(value) for name, value in outputs.items()}
    found = postprocess_outputs(tensors, postprocess, ANCHORS, CONFIG, content_sizes)
    return {name: ops.convert_to_numpy(value) for name, value in found.items()}


def assert_same(found, expected):
    assert {n: (v.dtype, v.shape) for n, v in found.items()} == {
        n: (v.dtype, v.shape) for n, v in expected.items()
    }
    for name in ("num_detections", "labels"):
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
    # The exponential of two libraries differs in its last digits.
    np.testing.assert_allclose(found["scores"], expected["scores"], rtol=2e-5)
    np.testing.assert_allclose(found["boxes"], expected["boxes"], rtol=1e-5, atol=1e-4)


@pytest.mark.slow_elsewhere
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_it_finds_what_the_graph_finds(options, case):
    outputs, postprocess = outputs_of(case), Postprocess(**options)
    sizes = None
    if postprocess.drop_empty:
        sizes = np.float32([[128, 50], [70, 96]])
    found = postprocess_outputs(outputs, postprocess, ANCHORS, CONFIG, sizes)
    assert_same(found, of_graph(outputs, postprocess, sizes))


@pytest.mark.parametrize("case", [noise, few_objects, ties])
@pytest.mark.parametrize("top_k", [1000, None])
def test_how_the_candidates_are_found_changes_nothing(case, top_k, monkeypatch):
    outputs = outputs_of(case)
    options = {"method": "hard", "iou_threshold": 0.3, "max_detections": 900}
    postprocess = Postprocess(**options, pre_nms_top_k=top_k)
    expected = postprocess_outputs(outputs, postprocess, ANCHORS, CONFIG)
    # Of a long step in the sample nothing is known, and all are looked at.
    for first, step in ((1, 97), (150, 1), (700, 31), (10**9, 10**9)):
        monkeypatch.setattr(module, "_FIRST_OF_ARRAYS", first)
        monkeypatch.setattr(module, "_SAMPLE", step)
        found = postprocess_outputs(outputs, postprocess, ANCHORS, CONFIG)
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.parametrize("size", [(64, 64), (64, 96)])
def test_the_class_of_each_pixel_is_that_of_the_graph(size):
    config = dataclasses.replace(
        CONFIG, image_size=size, heads=("segmentation",), seg_num_classes=4
    )
    shape = (2, size[0] // 4, size[1] // 4, 4)
    logits = np.random.default_rng(0).normal(size=shape).astype("float32")
    outputs = {"segmentation_logits": logits}
    found = postprocess_outputs(outputs, Postprocess(), None, config)
    tensors = {"segmentation_logits": ops.convert_to_tensor(logits)}
    expected = postprocess_outputs(tensors, Postprocess(), None, config)
    assert found["boxes"].shape == (2, 0, 4)
    np.testing.assert_array_equal(
        found["class_map"], ops.convert_to_numpy(expected["class_map"])
    )


# Outputs of all heads, with what the config says.


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
    found = postprocess_outputs(
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
