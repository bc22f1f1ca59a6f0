"""Class maps in exported files: the same as the live model's, in every runtime."""

import numpy as np
import pytest
from support.tiny import BOTH_HEADS, lively_segmentation

from effdet_keras.extras.shapes import draw_shapes
from effdet_keras.predictor import Predictor

pytestmark = pytest.mark.tensorflow
NAMES = ("background", "cat", "dog", "bird")
ALONE = ("segmentation",)


@pytest.fixture(scope="module")
def models():
    return {
        heads: lively_segmentation(heads=heads, seg_class_names=NAMES)
        for heads in (BOTH_HEADS, ALONE)
    }


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    "file, options, heads, package",
    [
        ("a.onnx", {}, BOTH_HEADS, "tf2onnx"),
        slow("a.onnx", {"outputs": "raw"}, BOTH_HEADS, "tf2onnx"),
        slow("a.onnx", {}, ALONE, "tf2onnx"),
        slow("a.tflite", {}, BOTH_HEADS, "ai_edge_litert"),
        slow("a.tflite", {"outputs": "raw"}, BOTH_HEADS, "ai_edge_litert"),
        slow("a.tflite", {}, ALONE, "ai_edge_litert"),
        slow("a.xml", {}, BOTH_HEADS, "openvino"),
        slow("a", {}, BOTH_HEADS, "tensorflow"),
        slow("a", {}, ALONE, "tensorflow"),
    ],
)
def test_a_file_finds_the_classes_of_the_model(
    models, tmp_path, file, options, heads, package
):
    pytest.importorskip(package)
    model = models[heads]
    image = draw_shapes(np.random.default_rng(1), 96)[0][:80]
    live = model.detect(image, score_threshold=0.0)
    assert len(live.pixel_shares()) > 1
    report = model.export(tmp_path / file, images=[image], verbose=0, **options)
    assert report.same_pixels > 0.999 and "of the pixels have the same class" in str(
        report
    )
    found = Predictor.load(tmp_path / file).detect(image, score_threshold=0.0)
    assert found.class_map.shape == (80, 96) and found.seg_class_names == NAMES
    assert (found.class_map == live.class_map).mean() > 0.999
    assert (len(found) > 0) == (heads == BOTH_HEADS)


def test_names_of_the_object_detection_api_are_refused(models, tmp_path):
    with pytest.raises(ValueError, match="no output for classes of pixels"):
        models[BOTH_HEADS].export(tmp_path / "a", names="tfod", verbose=0)
